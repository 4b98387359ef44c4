"""What the judge of a compacted topic demands, before and after a loss that the cluster told of."""

from __future__ import annotations

import random
from types import SimpleNamespace
from uuid import UUID

import pytest

from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.records.record import Record, build
from ottla.sim.disk import SimDisk
from ottla.sim.oracle import Violation
from ottla.sim.tables import PARTITION, Table
from ottla.sim.workload import Ack, Batch, key_of

LOSS_AT = 10.0


class JudgedTable(Table):
    """One replica, with these values at the offsets from 0 on."""

    def __init__(self, values: list[bytes]) -> None:
        clock = SimpleNamespace(time=lambda: LOSS_AT)
        super().__init__(
            SimpleNamespace(world=SimpleNamespace(loop=clock)),  # type: ignore[arg-type]
            random.Random(0),
        )
        disk = SimDisk(random.Random(0))
        disk.make_dirs("/data")
        self._log = Log.create(
            disk, "/data", PARTITION.topic, 0, LogConfig(), topic_id=UUID(int=1), now_ms=0
        )
        for value in values:
            record = Record(0, 0, key_of(PARTITION, value), value)
            self._log.append_as_leader(memoryview(build([record])), 0, 0)

    def _logs(self) -> list[tuple[int, Log]]:
        return [(1, self._log)]

    def acknowledge(self, value: bytes, offset: int, begun_at: float) -> None:
        batch = Batch(PARTITION, 1, 0, (value,), begun_at)
        self.history.acknowledged.append(Ack(batch, offset, begun_at + 1))


def test_what_was_begun_before_a_loss_may_be_gone() -> None:
    table = JudgedTable([b"other:11"])
    table.acknowledge(b"other:11", 0, LOSS_AT + 1)
    table.acknowledge(b"gone:22", 5, LOSS_AT - 1)
    with pytest.raises(Violation, match=r"D3.*gone:22"):
        table.check_end()
    table._allow_losses(until=LOSS_AT)
    table.check_end()


def test_D3_what_was_begun_after_a_loss_must_be_there() -> None:
    table = JudgedTable([b"other:11"])
    table._allow_losses(until=LOSS_AT)
    table.acknowledge(b"other:11", 0, LOSS_AT + 1)
    table.acknowledge(b"gone:22", 5, LOSS_AT + 1)
    with pytest.raises(Violation, match=r"D3.*gone:22"):
        table.check_end()


def test_C2_an_offset_given_after_a_loss_is_where_the_record_is() -> None:
    table = JudgedTable([b"a:11", b"b:11"])
    table._allow_losses(until=LOSS_AT)
    table.acknowledge(b"b:11", 1, LOSS_AT - 1)
    table.acknowledge(b"a:11", 1, LOSS_AT + 1)
    with pytest.raises(Violation, match="C2"):
        table.check_end()
