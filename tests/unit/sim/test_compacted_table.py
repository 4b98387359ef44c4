"""What the judge of a compacted topic demands, before and after a loss that the cluster told of."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.resources import LogResources
from ottla.records.record import build
from ottla.sim.clients.compacted_table import PARTITION, CompactedTable, TableLoss
from ottla.sim.clients.record_content import is_tombstone, record_of
from ottla.sim.engine.disk import SimDisk
from ottla.sim.oracle.history import Ack, ProducedBatch
from ottla.sim.oracle.leader_history import LeaderHistory
from ottla.sim.oracle.ledger import Violation

LOSS_AT = 10.0
VALUE, TOMBSTONE = b"x:44", b"over:44"
LOSS = TableLoss(epoch=1, at=LOSS_AT, end=1)


class JudgedTable(CompactedTable):
    """Replicas with these values at the offsets from 0 on."""

    def __init__(self, *replicas: list[bytes], forgets_tombstones: bool = False) -> None:
        super().__init__(
            None,  # type: ignore[arg-type]
            LeaderHistory(lambda: 0.0),
            random.Random(0),
            forgets_tombstones=forgets_tombstones,
        )
        self._judged = [(id, _log_of(values)) for id, values in enumerate(replicas, 1)]

    def _logs(self) -> list[tuple[int, Log]]:
        return self._judged

    def acknowledge(self, value: bytes, offset: int, begun_at: float) -> None:
        batch = ProducedBatch(PARTITION, 1, 0, (value,), begun_at)
        self.history.acknowledged.append(Ack(batch, offset, begun_at + 1, 0))


def _log_of(values: list[bytes]) -> Log:
    disk = SimDisk(random.Random(0))
    disk.make_dirs("/data")
    log = Log.create(
        LogResources(disk), "/data", PARTITION.topic, 0, LogConfig(), topic_id=UUID(int=1), now_ms=0
    )
    for value in values:
        record = record_of(PARTITION, 0, 0, value)
        log.append_as_leader(memoryview(build([record])), 0, 0)
    return log


def test_what_was_begun_before_a_loss_may_be_gone() -> None:
    table = JudgedTable([b"other:11"])
    table.acknowledge(b"other:11", 0, LOSS_AT + 1)
    table.acknowledge(b"gone:22", 5, LOSS_AT - 1)
    with pytest.raises(Violation, match=r"D3.*gone:22"):
        table.check_end()
    table.losses.append(LOSS)
    table.check_end()


def test_D3_what_was_begun_after_a_loss_must_be_there() -> None:
    table = JudgedTable([b"other:11"])
    table.losses.append(LOSS)
    table.acknowledge(b"other:11", 0, LOSS_AT + 1)
    table.acknowledge(b"gone:22", 5, LOSS_AT + 1)
    with pytest.raises(Violation, match=r"D3.*gone:22"):
        table.check_end()


def test_C2_an_offset_given_after_a_loss_is_where_the_record_is() -> None:
    table = JudgedTable([b"a:11", b"b:11"])
    table.losses.append(LOSS)
    table.acknowledge(b"b:11", 1, LOSS_AT - 1)
    table.acknowledge(b"a:11", 1, LOSS_AT + 1)
    with pytest.raises(Violation, match="C2"):
        table.check_end()


def test_D3_what_lay_below_the_end_of_whoever_lost_must_be_there() -> None:
    table = JudgedTable([])
    table.losses.append(LOSS)
    table.acknowledge(b"gone:22", 0, LOSS_AT - 1)
    with pytest.raises(Violation, match=r"D3.*gone:22"):
        table.check_end()


def test_a_replica_may_have_dropped_a_value_for_the_sake_of_a_lost_one() -> None:
    """Seed 237: it had compacted, others had not yet."""
    table = JudgedTable([b"old:33"], [])
    table.acknowledge(b"old:33", 0, LOSS_AT - 2)
    table.losses.append(LOSS)
    with pytest.raises(Violation, match=r"D3.*old:33"):
        table.check_end()
    table.acknowledge(b"lost:33", 5, LOSS_AT - 1)
    table.check_end()


def test_D2_replicas_that_have_a_value_have_the_same() -> None:
    table = JudgedTable([b"one:33"], [b"two:33"])
    table.losses.append(LOSS)
    for value in (b"one:33", b"two:33"):
        table.acknowledge(value, 5, LOSS_AT - 1)
    with pytest.raises(Violation, match="D2"):
        table.check_end()


def judged(*replica: bytes, forgets_tombstones: bool = False) -> None:
    assert is_tombstone(PARTITION, TOMBSTONE) and not is_tombstone(PARTITION, VALUE)
    table = JudgedTable(list(replica), forgets_tombstones=forgets_tombstones)
    table.acknowledge(VALUE, 0, 1.0)
    table.acknowledge(TOMBSTONE, 1, 2.0)
    table.check_end()


def test_a_key_that_was_deleted_has_its_tombstone() -> None:
    judged(VALUE, TOMBSTONE)


def test_D3_no_value_of_before_its_deletion_comes_back() -> None:
    with pytest.raises(Violation, match=r"D3.*over:44"):
        judged(VALUE)


def test_D3_a_tombstone_is_not_forgotten_before_its_time() -> None:
    with pytest.raises(Violation, match=r"D3.*over:44"):
        judged()
    judged(forgets_tombstones=True)
