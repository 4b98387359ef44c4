"""A transaction coordinator's shard without a broker: commands in, replies and markers out, a log to reload."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from ottla.coordinators.shard import CoordinatorRecord, Effects
from ottla.coordinators.transactions.transaction_records import (
    TransactionMetadata,
    TransactionState,
)
from ottla.coordinators.transactions.transaction_shard import (
    PATIENCE_S,
    AddPartitions,
    Command,
    EndTransaction,
    InitProducerId,
    MarkersWritten,
    SendMarkers,
    TransactionConfig,
    TransactionShard,
)
from ottla.events import Events
from ottla.wire.errors import ErrorCode
from ottla.wire.types import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 3)
ID = "my-id"
CONFIG = TransactionConfig(
    timeout_ms_max=60_000, id_expiration_ms=1_000_000, abort_check_s=10, expiration_check_s=100
)


class Coordinator:
    """What a broker does for a shard, with a log that commits at once."""

    def __init__(self, *, transaction_version: int = 2) -> None:
        self.log: list[CoordinatorRecord] = []
        self.markers: list[SendMarkers] = []
        self.replies: dict[object, dict[str, Any]] = {}
        self.now = 0.0
        self.version = transaction_version
        self.writable = True
        self.ids: Iterator[int] | None = count(1000)
        self._tokens = count()
        self.events = Events()
        self.fail_over()

    clock_error_ms = 0
    """How far the wall clock of this broker is ahead."""

    def fail_over(self) -> None:
        """Another broker leads the partition: all it knows is the log."""
        self.shard = TransactionShard(CONFIG, self._new_id, lambda: self.version, self.events)
        self.markers.clear()
        for offset, record in enumerate(self.log):
            self.shard.replay(offset, record, None, self.now_ms)
        self._apply(self.shard.loaded(self.now))

    def _new_id(self) -> int | None:
        return None if self.ids is None else next(self.ids)

    @property
    def now_ms(self) -> int:
        return 1_000_000 + round(self.now * 1000) + self.clock_error_ms

    def _apply(self, effects: Effects) -> None:
        if effects.records and not self.writable:
            assert effects.only_records
            for token, _ in effects.replies:
                self.replies[token] = {"error": ErrorCode.COORDINATOR_NOT_AVAILABLE}
            return
        for record in effects.records:
            self.shard.replay(len(self.log), record, None, self.now_ms)
            self.log.append(record)
        for token, fields in effects.replies:
            assert token not in self.replies
            self.replies[token] = dict(fields)
        self.markers += effects.actions

    def begin(self, command: Command) -> int:
        token = next(self._tokens)
        self._apply(self.shard.handle(0, 0, command, token, self.now, self.now_ms))
        return token

    def ask(self, command: Command) -> dict[str, Any]:
        token = self.begin(command)
        self.wait(0)
        return self.replies[token]

    def ask_or_wait(self, command: Command) -> dict[str, Any]:
        """As `ask`; one that is kept waiting gets its answer within the shard's patience."""
        token = self.begin(command)
        self.wait(0)
        if token not in self.replies:
            self.wait(PATIENCE_S)
        return self.replies[token]

    def wait(self, seconds: float) -> None:
        """Let time pass, ticking whenever the shard asks for it."""
        end = self.now + seconds
        for _ in range(1000):
            due = self.shard.next_deadline()
            if due > end:
                self.now = end
                return
            self.now = max(self.now, due)
            self._apply(self.shard.tick(self.now, self.now_ms))
        raise AssertionError("the shard wants to be called for ever")

    @property
    def transaction(self) -> TransactionMetadata:
        return self.shard.transactions[ID]

    def state(self) -> TransactionState:
        """Not a property: mypy would take it for unchanged after a call that changes it."""
        return self.transaction.state

    # -- what a producer does

    def init(self, **fields: Any) -> tuple[int, int]:
        answer = self.ask(InitProducerId(ID, 30_000, **fields))
        assert answer["error"] is ErrorCode.NONE, answer
        return answer["producer_id"], answer["producer_epoch"]

    def add(self, producer: tuple[int, int], *partitions: TopicPartition, v: int = 2) -> ErrorCode:
        return self.ask(AddPartitions(ID, *producer, frozenset(partitions), client_version=v))[
            "error"
        ]

    def end(self, producer: tuple[int, int], commit: bool, *, v: int = 2) -> dict[str, Any]:
        return self.ask(EndTransaction(ID, *producer, commit, client_version=v))

    def write_markers(self) -> None:
        markers, self.markers = self.markers, []
        for each in markers:
            assert (
                self.ask(
                    MarkersWritten(each.transactional_id, each.producer_id, each.producer_epoch)
                )["error"]
                is ErrorCode.NONE
            )
