"""Which log of a replica counts at the start of its broker, where more than one directory may hold it."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from uuid import UUID

import pytest
from logkit import SMALL, batch_of, sim_disk

from ottla.broker.replication.placement import Placement
from ottla.log.future_logs import WHOLE
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import PartitionRecord, TopicRecord
from ottla.replica import relocation
from ottla.wire.types import TopicPartition

FIRST, SECOND = "/a", "/b"
KEY, TOPIC = TopicPartition("t", 0), UUID(int=77)
OF_FIRST, OF_SECOND = UUID(int=1001), UUID(int=1002)


class Broker:
    """The logs of broker 1, from start to start."""

    def __init__(self) -> None:
        self.disk = sim_disk()
        self.ids = itertools.count(1001)
        self.start()

    def start(self) -> None:
        self.disk.forget_process()
        ids = (UUID(int=number) for number in self.ids)
        self.logs = LogManager(self.disk, [FIRST, SECOND], SMALL, new_id=lambda: next(ids))
        self.logs.start("cluster", 1, 0)

    def create(self, directory: str, records: int, topic_id: UUID = TOPIC) -> Log:
        log = self.logs.create("t", topic_id, 0, SMALL, 0, directory=directory)
        return fill(log, records)

    def take_away(self, directory: str) -> None:
        """Until it is put back, the broker starts without it."""
        self.logs.close(clean=False)
        self.disk.fail("lock", directory)
        self.start()
        assert directory in self.logs.offline_directories

    def put_back(self) -> None:
        self.logs.close(clean=False)
        self.disk.mend()
        self.start()

    def settle(self, named: UUID, replicas: tuple[int, ...] = (1, 2, 3)) -> Placement:
        """The first image: where the metadata says that the replica lies."""
        others = tuple(UUID(int=2000 + node) for node in replicas[1:])
        decision = PartitionRecord(
            partition_id=0,
            topic_id=TOPIC,
            replicas=replicas,
            isr=(1,),
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=(named, *others),
        )
        topic = TopicRecord(name="t", topic_id=TOPIC)
        image, _ = MetadataImage().apply([topic, decision], 1, 1)
        placement = Placement(1, SimpleNamespace(wall_ms=lambda: 0), self.logs, [])
        placement.settle_doubles(image)
        placement.settle_futures(image)
        placement.find_lost(image.topics["t"], 0)
        placement.open_log(image.topics["t"], 0, SMALL)
        return placement

    def strays(self) -> list[str]:
        found = [each for each in (FIRST, SECOND) for each in self.disk.list_dir(each)]
        return [name for name in found if name.endswith("-stray")]


def fill(log: Log, records: int) -> Log:
    for number in range(records):
        log.append_as_leader(batch_of(value=b"%d" % number), 0, 0)
    log.flush()
    return log


def test_a_future_log_that_was_whole_once_does_not_replace_the_log_that_went_on() -> None:
    """The new disk failed at the last step of a move. It is back when the disk with the log is away."""
    broker = Broker()
    current = broker.create(FIRST, 5)
    future = broker.logs.create_future(current, SECOND, 0)
    relocation.copy_rest(current, future, 300)
    future.flush()
    whole = f"{future.path}/{WHOLE}"
    broker.disk.replace(whole, b"")  # as `take_place` does
    broker.logs.mark_offline(SECOND, OSError(5, "Input/output error"))
    fill(current, 10)
    assert broker.disk.exists(whole)
    broker.take_away(FIRST)
    placement = broker.settle(named=OF_FIRST)
    assert KEY in placement.offline and not broker.logs.logs
    broker.put_back()
    broker.settle(named=OF_FIRST)
    assert broker.logs.logs[KEY].log_end == 15


def test_a_disk_that_returns_after_its_topic_was_made_anew_keeps_no_broker_from_starting() -> None:
    broker = Broker()
    broker.create(FIRST, 5, topic_id=UUID(int=76))
    broker.take_away(FIRST)
    broker.create(SECOND, 3)
    broker.put_back()
    placement = broker.settle(named=OF_SECOND)
    log = broker.logs.logs[KEY]
    assert (log.directory, log.log_end) == (SECOND, 3) and not placement.rebuilding
    assert len(broker.strays()) == 1, "for an operator"
    broker.put_back()
    assert not broker.logs.doubles


@pytest.mark.parametrize("named, lies_in", [(OF_FIRST, FIRST), (OF_SECOND, SECOND)])
def test_of_two_logs_of_a_topic_the_one_that_the_metadata_names_counts(
    named: UUID, lies_in: str
) -> None:
    broker = Broker()
    broker.create(FIRST, 5)
    broker.take_away(FIRST)
    broker.create(SECOND, 3)
    broker.put_back()
    placement = broker.settle(named)
    assert broker.logs.logs[KEY].directory == lies_in and not placement.rebuilding


def test_of_two_logs_that_the_metadata_does_not_name_the_longer_one_is_copied_anew() -> None:
    broker = Broker()
    broker.create(FIRST, 5)
    broker.take_away(FIRST)
    broker.create(SECOND, 3)
    broker.put_back()
    placement = broker.settle(named=UUID(int=999))
    assert broker.logs.logs[KEY].directory == FIRST and KEY in placement.rebuilding


def test_a_damaged_log_of_a_former_topic_is_set_aside_too() -> None:
    broker = Broker()
    broker.create(FIRST, 5, topic_id=UUID(int=76))
    broker.logs.checkpoint()
    broker.take_away(FIRST)
    broker.create(SECOND, 3)
    broker.disk.mend()
    broker.disk.rot(f"{FIRST}/t-0/00000000000000000000.log", 100)
    broker.put_back()
    placement = broker.settle(named=OF_SECOND)
    assert broker.logs.logs[KEY].log_end == 3 and not placement.lost and not broker.logs.corrupt


def test_a_directory_that_was_made_for_a_log_is_removed_if_the_log_is_wanted_elsewhere() -> None:
    broker = Broker()
    plan = broker.logs.directories_plan([(KEY, TOPIC, SECOND)])
    plan.run()
    broker.logs.directories_made(plan)
    broker.create(FIRST, 3)
    broker.logs.abandon_directory(KEY)
    assert not broker.disk.exists(f"{SECOND}/t-0")
    broker.put_back()
    assert broker.logs.logs[KEY].directory == FIRST
