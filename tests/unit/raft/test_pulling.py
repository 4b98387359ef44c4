"""A follower of the metadata quorum and its leader's answers."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from ottla.events import Events
from ottla.events.quorum import MetadataRefused
from ottla.raft.follower import Puller
from ottla.raft.journal import Journal
from ottla.raft.messages import FetchAnswer
from ottla.raft.outputs import Outputs
from ottla.raft.voters import ReplicaKey
from ottla.records.record import Record, build
from ottla.runtime.files import RealDisk
from ottla.wire.errors import ErrorCode


def batch(offset: int, epoch: int) -> bytes:
    return bytes(
        build([Record(offset, 1000, None, b"v", ())], base_offset=offset, leader_epoch=epoch)
    )


def answer(epoch: int, *records: bytes) -> FetchAnswer:
    return FetchAnswer(ErrorCode.NONE, epoch, 1, records=memoryview(b"".join(records)))


def test_records_of_a_later_leader_in_an_earlier_ones_answer_are_left_out(tmp_path: Path) -> None:
    """The earlier one was deposed and cut its log while the answer waited to be sent: what lies there now need not
    follow what we have."""
    journal = Journal.open(RealDisk(), str(tmp_path), now_ms=0)
    outputs = Outputs(Events())
    puller = Puller(ReplicaKey(3, UUID(int=3)), journal, 500, outputs)
    assert puller.take(answer(1, batch(0, 1)))
    assert puller.take(answer(1, batch(1, 1), batch(2, 2)))
    assert journal.log_end == 2 and not outputs.events
    assert not puller.take(answer(1, batch(2, 2)))
    (refused,) = outputs.events
    assert isinstance(refused, MetadataRefused) and journal.log_end == 2
    assert puller.take(answer(2, batch(2, 2)))
    assert (journal.log_end, journal.last_epoch) == (3, 2)
