"""The interface between a coordinator and the broker that runs it: records in, effects out.

The leader of a partition of `__consumer_offsets` (or `__transaction_state`) is the coordinator of all groups (or
transactional ids) that hash to it. It replays the partition's records when it becomes leader. From then on it decides:
each decision's records are appended and replayed at once into the same state, and its replies are sent when the records
are committed. When leadership ends, the shard is discarded, and with it whatever was not committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ottla.events.coordination import OpenWork

Token = object
"""A request that waits for its reply; opaque to the shard."""


@dataclass(frozen=True, slots=True)
class CoordinatorRecord:
    key: bytes
    value: bytes | None
    """None deletes the key."""


@dataclass(frozen=True, slots=True)
class ProducerStamp:
    """The producer in whose transaction records are written (offsets of a transaction)."""

    producer_id: int
    producer_epoch: int


@dataclass(slots=True)
class Effects:
    """The result of a command or of a timer."""

    records: Sequence[CoordinatorRecord] = ()
    """Appended as one batch: all of them are written, or none."""
    producer: ProducerStamp | None = None
    only_records: bool = False
    """Only the replay of the records changes the shard. So if they cannot be written, it is enough to refuse these
    replies."""
    replies: Sequence[tuple[Token, Mapping[str, Any]]] = ()
    """Sent after the records, and all that was decided before, are committed."""
    actions: Sequence[Any] = ()
    """What the broker does then besides (send a transaction's markers)."""


class Shard(Protocol):
    """One partition's coordinator. No clock, no I/O: `now` is monotonic seconds, `now_ms` wall time."""

    def replay(
        self, offset: int, record: CoordinatorRecord, producer: ProducerStamp | None, now_ms: int
    ) -> None:
        """Apply a record of the log, when loading and after each append."""

    def replay_marker(self, producer: ProducerStamp, committed: bool) -> None:
        """A transaction that wrote into this partition has ended."""

    def loaded(self, now: float) -> Effects:
        """Every record has been replayed: the shard may now act (and start its timers)."""

    def handle(
        self, api_key: int, version: int, message: Any, token: Token, now: float, now_ms: int
    ) -> Effects:
        """A request for this shard. Its reply is among these effects, or among those of a later command or tick. A reply
        to a client that has disconnected does no harm."""

    def tick(self, now: float, now_ms: int) -> Effects: ...

    def next_deadline(self) -> float:
        """When `tick` should be called (inf: nothing is due)."""

    def open_work(self) -> OpenWork:
        """What a failover would interrupt, for events."""


def partition_of(key: str, partitions: int) -> int:
    """Which partition coordinates `key`: Java's String.hashCode, as every Kafka client and tool expects."""
    value = 0
    units = key.encode("utf-16-be")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >> 31 else value
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions
