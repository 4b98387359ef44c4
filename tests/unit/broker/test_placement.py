"""On which directory a replica lies after a start, a failure or a move, and when it must not be served."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from replicas_world import ELSEWHERE, ME, ReplicasWorld

from ottla.broker.replication.listener import ReplicaListener
from ottla.log.future_logs import WHOLE
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.metadata import records as r
from ottla.metadata.records import (
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    TOPIC_RESOURCE,
)
from ottla.replica.roles import Role
from ottla.wire.errors import ErrorCode
from ottla.wire.types import TopicPartition

T0 = TopicPartition("t", 0)
UNKNOWN = UUID(int=12345)
"""A directory that this broker no longer has."""


class Place:
    """Broker 1 with two directories, and what it holds of t-0."""

    def __init__(self, world: ReplicasWorld) -> None:
        self.world = world

    @property
    def placement(self) -> Any:
        return self.world.replicas.placement

    @property
    def logs(self) -> LogManager:
        return self.world.logs

    def id_of(self, directory: str) -> UUID:
        return self.logs.directory_ids[directory]

    def log(self) -> Log:
        return self.logs.logs[T0]

    def records(self) -> int:
        return self.log().log_end

    def is_served(self) -> bool:
        return T0 in self.world.replicas.partitions

    def found(self) -> Any:
        return self.world.replicas.find("t", None, 0)

    def log_of(self, topic: str) -> str:
        return self.logs.logs[TopicPartition(topic, 0)].directory

    def report(self, name: str = "t", number: int = 0) -> UUID | None:
        return self.world.replicas.directory_to_report(self.world.image.topics[name], number)

    def strays(self) -> list[str]:
        disk = self.world.host.disk
        return [
            name.partition(".")[0]
            for directory in self.world.directories
            if directory not in self.logs.offline_directories
            for name in disk.list_dir(directory)
            if name.endswith("-stray")
        ]

    # -- what happens

    def filled(self, *replicas: int, **changes: Any) -> None:
        """t-0 with three records that are flushed, on /a."""
        self.world.topic("t", replicas or (ME,), **changes)
        self.world.produce("t", records=3)
        self.log().flush()
        self.logs.checkpoint()

    def future(self, directory: str = "/b") -> Log:
        return self.logs.create_future(self.log(), directory, 0)

    def rot(self) -> None:
        self.world.host.disk.rot(f"{self.log().path}/{0:020d}.log", 40)

    def remove(self, path: str) -> None:
        """By somebody who should not."""
        self.world.host.disk.remove_tree(path)

    def restart_without(self, path: str, *learned: Any) -> None:
        def meanwhile() -> None:
            self.remove(path)
            self.world.learn(*learned)

        self.world.restart(meanwhile=meanwhile)

    def restart_knowing(self, *records: Any, clean: bool = True) -> None:
        self.world.restart(clean=clean, meanwhile=lambda: self.world.learn(*records))

    def lose_disk(self, directory: str) -> None:
        self.world.run(lambda: self.logs.mark_offline(directory, OSError("it is broken")))

    def restart_without_disk(self, directory: str, *learned: Any) -> None:
        """It cannot even be listed. The other one can."""

        def meanwhile() -> None:
            self.world.host.disk.fail("open", directory)
            self.world.learn(*learned)

        self.world.restart(meanwhile=meanwhile)
        assert list(self.logs.offline_directories) == [directory]


@pytest.fixture
def place() -> Iterator[Place]:
    with ReplicasWorld(directories=("/a", "/b")) as world:
        yield Place(world)


# -- a replica that lost its data


def test_a_replica_whose_flushed_data_is_damaged_is_not_served_while_nobody_else_leads(
    place: Place,
) -> None:
    """What is left of it may be all there is."""
    place.filled(ME, 2)
    place.rot()
    place.world.restart(clean=False)
    assert not place.is_served() and place.found() is ErrorCode.KAFKA_STORAGE_ERROR
    assert place.report() == DIRECTORY_LOST
    place.world.change("t", isr=(ME,))
    place.world.change("t", leader=-1)
    assert not place.is_served() and place.strays() == []


def test_a_damaged_replica_is_copied_anew_once_another_leads(place: Place) -> None:
    place.filled(ME, 2)
    place.rot()
    place.world.restart(clean=False)
    place.world.change("t", leader=2, isr=(2,))
    assert place.is_served() and place.records() == 0
    assert place.strays() == ["t-0"], "and what is left is kept"
    assert place.report() == DIRECTORY_LOST, "it must not be elected yet"
    place.world.change("t", directories=(DIRECTORY_LOST, ELSEWHERE))
    assert place.report() is None, "that is known"
    place.world.change("t", isr=(2, ME))
    assert place.report() == place.id_of(place.log().directory)


def test_damage_that_is_found_in_use_is_treated_alike(place: Place) -> None:
    place.filled(ME, 2)
    partition = place.world["t", 0]
    place.world.run(lambda: place.world.replicas.replica_damaged(partition, "its CRC is wrong"))
    assert not place.is_served() and place.report() == DIRECTORY_LOST
    assert partition.role is Role.OFFLINE
    place.world.change("t", leader=2, isr=(2,))
    assert place.is_served() and place.records() == 0 and place.strays() == ["t-0"]


def test_a_damaged_replica_that_is_given_to_another_broker_is_set_aside(place: Place) -> None:
    place.filled(ME, 2)
    place.rot()
    place.world.restart(clean=False)
    place.world.change("t", leader=2, replicas=(2, 3), isr=(2,))
    assert place.strays() == ["t-0"] and not place.logs.corrupt
    assert not place.placement.is_unavailable(T0)


def test_a_damaged_log_of_nobodys_replica_is_set_aside_at_the_start(place: Place) -> None:
    place.filled(ME, 2)
    place.rot()
    topic_id = place.world.image.topics["t"].id
    place.world.restart(
        clean=False,
        meanwhile=lambda: place.world.learn(r.RemoveTopicRecord(topic_id=topic_id)),
    )
    assert place.strays() == ["t-0"] and not place.logs.corrupt and not place.placement.lost


def eligible(place: Place) -> None:
    """t-0 is led by nobody in sync but 2, and 1 is in its ELR."""
    place.filled(ME, 2)
    place.world.configure(TOPIC_RESOURCE, "t", "min.insync.replicas", "2")
    place.world.change("t", leader=2, isr=(2,), eligible_leader_replicas=(ME,))


def test_a_replica_in_the_elr_must_have_its_log(place: Place) -> None:
    eligible(place)
    place.restart_without("/a/t-0", place.world.changed("t", leader=-1, isr=()))
    assert not place.is_served() and place.report() == DIRECTORY_LOST
    place.world.change("t", isr=(2,), leader=2)
    assert place.is_served() and place.report() == DIRECTORY_LOST


def test_a_replica_in_the_elr_that_has_its_log_is_served(place: Place) -> None:
    eligible(place)
    place.world.restart()
    assert place.is_served() and place.records() == 3 and place.report() is None


def made_anew(place: Place) -> list[Any]:
    """While 1 was down t was deleted, and made anew; 1 is in the ELR of the new one."""
    changed = place.world.decision("t")
    again = UUID(int=77)
    return [
        r.RemoveTopicRecord(topic_id=place.world.image.topics["t"].id),
        r.TopicRecord(name="t", topic_id=again),
        r.ConfigRecord(
            resource_type=TOPIC_RESOURCE,
            resource_name="t",
            name="min.insync.replicas",
            value="2",
        ),
        r.PartitionRecord(
            partition_id=0,
            topic_id=again,
            replicas=changed.replicas,
            isr=(2,),
            leader=2,
            leader_epoch=9,
            partition_epoch=9,
            directories=changed.directories,
            eligible_leader_replicas=(ME,),
        ),
    ]


def test_a_log_of_a_former_topic_of_that_name_is_not_that_of_a_replica_in_the_elr(
    place: Place,
) -> None:
    """It shows that the last process had not heard of the new topic, so nothing of that is lost."""
    eligible(place)
    place.restart_knowing(*made_anew(place))
    assert place.strays() == ["t-0"], "it is of the former topic"
    assert place.is_served() and place.records() == 0 and place.report() is None


def test_a_replica_in_the_elr_that_never_had_a_log_is_not_lost(place: Place) -> None:
    """Its broker stopped cleanly before it heard of the topic: whoever is in the ISR then has nothing committed."""
    place.filled(ME, 2)
    directory = place.id_of("/a")
    new = UUID(int=78)
    place.restart_knowing(
        r.TopicRecord(name="new", topic_id=new),
        r.PartitionRecord(
            partition_id=0,
            topic_id=new,
            replicas=(ME,),
            isr=(),
            leader=-1,
            leader_epoch=1,
            partition_epoch=1,
            directories=(directory,),
            eligible_leader_replicas=(ME,),
        ),
    )
    assert place.report("new") is None and place.log_of("new") == "/a"


def test_a_replica_outside_of_the_elr_is_simply_made_anew(place: Place) -> None:
    place.filled(ME, 2)
    place.restart_without("/a/t-0", place.world.changed("t", leader=2, isr=(2,)))
    assert place.is_served() and place.records() == 0
    assert place.log().directory == "/a", "where the metadata says that it lies"
    assert place.report() is None


def test_a_copy_that_the_last_process_did_not_finish_is_not_reported_as_whole(
    place: Place,
) -> None:
    place.filled(ME, 2)
    place.world.change("t", leader=2, isr=(2,), directories=(DIRECTORY_LOST, ELSEWHERE))
    place.world.restart()
    assert place.report() is None and T0 in place.placement.rebuilding
    place.world.change("t", isr=(2, ME))
    assert place.report() == place.id_of("/a")


def test_a_lost_replica_that_nobody_can_copy_was_put_back_by_an_operator(place: Place) -> None:
    place.filled(ME)
    place.world.change("t", directories=(DIRECTORY_LOST,))
    place.world.restart()
    assert place.is_served() and place.report() == place.id_of("/a")


def test_a_log_that_the_metadata_does_not_give_us_is_set_aside_and_kept(place: Place) -> None:
    place.filled(ME, 2)
    place.restart_knowing(place.world.changed("t", leader=2, replicas=(2, 3), isr=(2,)))
    assert place.strays() == ["t-0"] and not place.is_served() and not place.placement.lost
    assert place.report() is None


# -- directories that fail, and new ones


def test_a_directory_that_fails_takes_its_replicas_with_it_and_no_others(place: Place) -> None:
    place.filled()
    place.world.topic("u", directories=(place.id_of("/b"),))
    place.lose_disk("/a")
    assert place.found() is ErrorCode.KAFKA_STORAGE_ERROR
    assert place.report() is None, "the controller knows from the heartbeat where it lies"
    place.world.change("t", leader=2, replicas=(2, 3), isr=(2,), directories=(ELSEWHERE,) * 2)
    assert not place.placement.is_unavailable(T0), "it is no longer ours"
    assert ("u", 0) in place.world.replicas.partitions and place.log_of("u") == "/b"


def test_a_replica_that_the_metadata_places_elsewhere_is_told_to_be_on_the_disk_that_failed(
    place: Place,
) -> None:
    place.filled()
    place.world.change("t", directories=(DIRECTORY_UNASSIGNED,))
    failed = place.id_of("/a")
    place.lose_disk("/a")
    assert place.report() == failed
    place.world.change("t", isr=(ME,))
    assert place.report() == failed and not place.is_served()


@pytest.mark.parametrize("named", [DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING])
def test_at_the_start_a_replica_without_a_place_may_lie_on_the_disk_that_failed(
    place: Place, named: UUID
) -> None:
    """To make it anew on another one would give a broker that is in sync an empty log."""
    place.filled(ME, 2)
    place.restart_without_disk("/a", place.world.changed("t", directories=(named, ELSEWHERE)))
    assert not place.is_served() and place.report() == DIRECTORY_LOST


def test_at_the_start_a_replica_on_the_disk_that_failed_is_not_made_anew(place: Place) -> None:
    place.filled(ME, 2)
    place.restart_without_disk("/a")
    assert not place.is_served() and place.found() is ErrorCode.KAFKA_STORAGE_ERROR
    assert place.report() is None


def test_a_replica_in_the_elr_whose_disk_failed_is_offline_and_not_lost(place: Place) -> None:
    eligible(place)
    place.restart_without_disk("/a")
    assert not place.is_served() and not place.placement.lost


def test_a_replica_on_another_disk_than_the_failed_one_is_made_anew(place: Place) -> None:
    place.world.topic("t", (2, ME), directories=(ELSEWHERE, place.id_of("/b")))
    assert place.log().directory == "/b"
    place.restart_without_disk("/a")
    assert place.is_served()

    def meanwhile() -> None:
        place.remove("/b/t-0")

    place.world.restart(meanwhile=meanwhile)
    assert place.is_served() and place.log().directory == "/b"


@pytest.mark.parametrize("named", [DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING])
def test_a_new_replica_goes_to_a_disk_that_works(place: Place, named: UUID) -> None:
    place.lose_disk("/a")
    place.world.topic("t", (ME, 2), directories=(named, ELSEWHERE))
    assert place.log().directory == "/b" and place.report() == place.id_of("/b")
    assert not place.placement.rebuilding


def test_a_replica_of_a_disk_that_is_no_longer_ours_is_copied_before_it_may_lead(
    place: Place,
) -> None:
    place.world.topic("t", (2, ME), isr=(2,), directories=(ELSEWHERE, UNKNOWN))
    assert place.is_served() and place.report() == DIRECTORY_LOST
    place.world.change("t", isr=(2, ME))
    assert place.report() == place.id_of(place.log().directory)


def test_a_replica_is_made_where_the_metadata_says_that_it_lies(place: Place) -> None:
    for number in range(4):
        directory = "/a" if number % 2 else "/b"
        place.world.topic(f"t{number}", directories=(place.id_of(directory),))
        assert place.log_of(f"t{number}") == directory
        assert place.report(f"t{number}") is None


def test_a_replica_is_made_where_an_operator_wants_it_and_only_once(place: Place) -> None:
    place.logs.preferred[T0] = "/b"
    place.filled(ME)
    assert place.log().directory == "/b" and place.report() == place.id_of("/b")
    assert not place.logs.preferred


def test_a_replica_that_is_wanted_on_a_disk_that_failed_is_not_made_elsewhere(
    place: Place,
) -> None:
    place.logs.preferred[T0] = "/b"
    place.lose_disk("/b")
    place.world.topic("t", directories=(DIRECTORY_UNASSIGNED,))
    assert not place.is_served() and place.found() is ErrorCode.KAFKA_STORAGE_ERROR
    assert place.report() == DIRECTORY_LOST


def test_a_replica_for_which_no_log_can_be_made_is_offline(place: Place) -> None:
    place.world.host.disk.fail("open", "/a/t-0")
    place.world.topic("t", directories=(place.id_of("/a"),))
    assert not place.is_served() and list(place.logs.offline_directories) == ["/a"]
    assert place.found() is ErrorCode.KAFKA_STORAGE_ERROR
    assert place.report() is None, "it would lie where the metadata says"


def test_others_hear_of_a_new_log_and_of_none_that_was_there(place: Place) -> None:
    class Heard(ReplicaListener):
        def __init__(self) -> None:
            self.logs: list[Log] = []

        def log_created(self, log: Log) -> None:
            self.logs.append(log)

    heard = Heard()
    place.world.replicas.listeners.append(heard)
    place.filled(ME)
    assert heard.logs == [place.log()]
    place.world.change("t", isr=(ME,))
    assert len(heard.logs) == 1


def test_a_log_of_a_former_topic_is_set_aside_and_the_new_one_begins_empty(place: Place) -> None:
    place.filled(ME)
    former = place.world.image.topics["t"].id
    place.restart_knowing(
        r.RemoveTopicRecord(topic_id=former), *place.world.topic_records("t", (ME,))
    )
    assert place.is_served() and place.records() == 0 and place.strays() == ["t-0"]
    assert place.log().topic_id == place.world.image.topics["t"].id != former


def test_a_log_that_was_there_gets_the_settings_of_today(place: Place) -> None:
    place.filled(ME)
    setting = r.ConfigRecord(
        resource_type=TOPIC_RESOURCE, resource_name="t", name="retention.ms", value="1234"
    )
    place.restart_knowing(setting)
    assert place.log().config.retention_ms == 1234


# -- future logs that the last process left


def whole(future: Log) -> None:
    future.disk.replace(f"{future.path}/{WHOLE}", b"")


def test_a_move_that_the_controller_knows_of_is_promised_again(place: Place) -> None:
    place.filled(ME, 2)
    place.future()
    place.restart_knowing(place.world.changed("t", directories=(place.id_of("/b"), ELSEWHERE)))
    assert place.placement.promised == {T0: place.id_of("/b")}
    assert place.log().directory == "/a" and place.report() is None


def test_a_move_that_the_controller_does_not_know_of_goes_on_in_silence(place: Place) -> None:
    place.filled(ME, 2)
    place.future()
    place.world.restart()
    assert not place.placement.promised and T0 in place.logs.futures
    assert place.report() is None


def test_a_promise_is_what_the_controller_hears(place: Place) -> None:
    place.filled(ME, 2)
    place.placement.promised[T0] = place.id_of("/b")
    assert place.report() == place.id_of("/b")
    place.world.change("t", leader=2, replicas=(2, 3), isr=(2,))
    assert not place.placement.promised


def test_a_future_log_that_was_whole_takes_the_place_of_its_log(place: Place) -> None:
    place.filled(ME, 2)
    whole(place.future())
    named = (place.id_of("/b"), ELSEWHERE)
    place.restart_without("/a/t-0", place.world.changed("t", leader=2, isr=(2,), directories=named))
    assert place.is_served() and place.log().directory == "/b"
    assert place.report() is None, "it lacks nothing"


def test_a_future_log_that_was_whole_once_is_not_believed_for_ever(place: Place) -> None:
    """Its disk failed, and the current log went on."""
    place.filled(ME, 2)
    whole(place.future())
    place.restart_without("/a/t-0", place.world.changed("t", leader=2, isr=(2,)))
    assert place.strays() == ["t-0"] and not place.logs.futures
    assert place.log().directory == "/a" and place.records() == 0


def test_a_future_log_that_the_metadata_names_takes_its_place_and_is_completed_first(
    place: Place,
) -> None:
    place.filled(ME, 2)
    place.future()
    place.restart_without(
        "/a/t-0",
        place.world.changed("t", leader=2, isr=(2,), directories=(place.id_of("/b"), ELSEWHERE)),
    )
    assert place.is_served() and place.log().directory == "/b"
    assert place.report() == DIRECTORY_LOST


def test_a_future_log_that_nobody_can_complete_is_served_as_it_is(place: Place) -> None:
    place.filled(ME)
    place.future()
    place.restart_without(
        "/a/t-0",
        place.world.changed(
            "t",
            leader=-1,
            isr=(),
            eligible_leader_replicas=(ME,),
            directories=(place.id_of("/b"),),
        ),
    )
    assert place.is_served() and place.log().directory == "/b"
    assert place.report() is None, "else nobody would ever be elected"


def test_a_future_log_without_its_log_is_set_aside_if_nobody_counts_on_it(place: Place) -> None:
    place.filled(ME, 2)
    place.future()
    place.restart_without("/a/t-0", place.world.changed("t", leader=2, isr=(2,)))
    assert place.strays() == ["t-0"] and not place.logs.futures
    assert place.log().directory == "/a" and place.records() == 0


def test_a_future_log_waits_for_a_log_whose_disk_may_come_back(place: Place) -> None:
    place.filled(ME, 2)
    path = place.future().path
    place.restart_without_disk("/a")
    assert not place.logs.futures and place.strays() == []
    assert place.world.host.disk.exists(path)


@pytest.mark.parametrize("replicas", [(ME,), (ME, 2)])
def test_a_named_future_log_that_lacks_records_does_not_stand_in_for_a_disk_that_is_away(
    place: Place, replicas: tuple[int, ...]
) -> None:
    """Nobody else in the ISR has the rest: what it lacks may have been acknowledged."""
    place.filled(*replicas)
    path = place.future().path
    named = (place.id_of("/b"), ELSEWHERE)[: len(replicas)]
    decided = place.world.changed("t", leader=ME, isr=(ME,), directories=named)
    place.restart_without_disk("/a", decided)
    assert not place.is_served() and place.report() == DIRECTORY_LOST
    assert place.world.host.disk.exists(path) and not place.logs.futures
    lost = (DIRECTORY_LOST, ELSEWHERE)[: len(replicas)]
    place.world.learn(place.world.changed("t", leader=-1, isr=(ME,), directories=lost))
    place.world.restart(meanwhile=place.world.host.disk.mend)
    assert place.report() == place.id_of("/a"), "it may lead again"
    assert place.log().directory == "/a" and place.records() == 3
    assert place.strays() == [] and T0 in place.logs.futures


def test_no_empty_log_is_made_where_the_only_one_was_to_go_while_its_disk_is_away(
    place: Place,
) -> None:
    """The move was given up, and its future log deleted, before the controller heard of it."""
    place.filled(ME)
    decided = place.world.changed("t", leader=-1, isr=(ME,), directories=(place.id_of("/b"),))
    place.restart_without_disk("/a", decided)
    assert not place.is_served() and place.report() == DIRECTORY_LOST
    place.world.restart(meanwhile=place.world.host.disk.mend)
    assert place.log().directory == "/a" and place.records() == 3 and place.strays() == []


def test_a_named_future_log_is_completed_from_others_while_the_disk_of_its_log_is_away(
    place: Place,
) -> None:
    place.filled(ME, 2)
    place.future()
    named = (place.id_of("/b"), ELSEWHERE)
    place.restart_without_disk(
        "/a", place.world.changed("t", leader=2, isr=(2,), directories=named)
    )
    assert place.is_served() and place.log().directory == "/b"
    assert place.report() == DIRECTORY_LOST


def test_a_future_log_of_a_damaged_log_is_of_no_use(place: Place) -> None:
    place.filled(ME, 2)
    path = place.future().path
    place.rot()
    place.world.restart(clean=False)
    assert not place.logs.futures and not place.world.host.disk.exists(path)
    assert place.strays() == [] and place.report() == DIRECTORY_LOST


def gone_from_here(place: Place) -> list[Any]:
    """Ways in which the metadata gives us no replica of t-0."""
    former = place.world.image.topics["t"].id
    removed = r.RemoveTopicRecord(topic_id=former)
    return [
        [removed],
        [removed, *place.world.topic_records("t", (ME,))],
        [place.world.changed("t", leader=2, replicas=(2, 3), isr=(2,))],
    ]


@pytest.mark.parametrize("way", range(3))
def test_a_future_log_of_a_replica_that_is_gone_is_deleted_with_its_log_there(
    place: Place, way: int
) -> None:
    place.filled(ME, 2)
    path = place.future().path
    place.restart_knowing(*gone_from_here(place)[way])
    assert not place.logs.futures and not place.world.host.disk.exists(path)
    assert place.strays() == ["t-0"], "the log, which holds all of it"


@pytest.mark.parametrize("way", range(3))
def test_a_future_log_of_a_replica_that_is_gone_is_kept_if_it_is_all_there_is(
    place: Place, way: int
) -> None:
    place.filled(ME, 2)
    whole(place.future())
    place.restart_without("/a/t-0", *gone_from_here(place)[way])
    assert place.strays() == ["t-0"] and not place.logs.futures


def test_a_future_log_of_a_partition_that_the_topic_does_not_have_is_not_ours(
    place: Place,
) -> None:
    place.filled(ME)
    topic_id = place.world.image.topics["t"].id
    beyond = place.logs.create("t", topic_id, 1, place.log().config, 0, directory="/a")
    path = place.logs.create_future(beyond, "/b", 0).path
    place.world.restart()
    assert not place.logs.futures and not place.world.host.disk.exists(path)
    assert place.strays() == ["t-1"]


def test_a_future_log_that_cannot_be_renamed_takes_its_disk_offline(place: Place) -> None:
    place.filled(ME, 2)
    whole(place.future())

    def meanwhile() -> None:
        place.remove("/a/t-0")
        place.world.host.disk.fail("rename", "/b")

    place.world.restart(meanwhile=meanwhile)
    assert list(place.logs.offline_directories) == ["/b"] and not place.placement.rebuilding


def test_a_log_that_cannot_be_set_aside_takes_its_disk_offline_and_the_rest_goes_on(
    place: Place,
) -> None:
    place.filled(ME)
    place.world.topic("u", directories=(place.id_of("/b"),))
    removed = r.RemoveTopicRecord(topic_id=place.world.image.topics["t"].id)

    def meanwhile() -> None:
        place.world.learn(removed)
        place.world.host.disk.fail("rename", "/a/t-0")

    place.world.restart(meanwhile=meanwhile)
    assert list(place.logs.offline_directories) == ["/a"]
    assert ("u", 0) in place.world.replicas.partitions


def test_a_replica_that_is_removed_is_deleted_and_one_that_cannot_be_fails_its_disk(
    place: Place,
) -> None:
    place.filled(ME, 2)
    place.world.topic("u", (ME, 2), directories=(place.id_of("/b"), ELSEWHERE))
    place.world.change("t", leader=2, replicas=(2, 3), isr=(2,))
    assert T0 not in place.logs.logs and place.strays() == []
    place.world.host.disk.fail("rename", "/b/u-0")
    place.world.delete("u")
    assert list(place.logs.offline_directories) == ["/b"]


# -- directories that are made beforehand


def test_directories_are_made_for_new_logs_where_these_will_lie(place: Place) -> None:
    records = place.world.topic_records(
        "t",
        *[(ME,)] * 3,
        directories=(place.id_of("/b"),),
    )
    place.world.learn(*records)
    topic = place.world.image.topics["t"]
    place.logs.preferred[TopicPartition("t", 1)] = "/a"
    place.placement.lost[TopicPartition("t", 2)] = "it is damaged"
    plan = place.placement.directories_plan((topic, number) for number in range(3))
    plan.run()
    assert plan.made == {TopicPartition("t", 0): "/b/t-0", TopicPartition("t", 1): "/a/t-1"}


def test_no_directory_is_made_for_a_replica_that_may_lie_on_a_failed_disk(place: Place) -> None:
    failed = place.id_of("/a")
    place.lose_disk("/a")
    place.world.learn(*place.world.topic_records("t", (ME,), directories=(failed,)))
    plan = place.placement.directories_plan([(place.world.image.topics["t"], 0)])
    assert not plan

    place.world.learn(*place.world.topic_records("u", (ME,), directories=(UNKNOWN,)))
    assert not place.placement.directories_plan([(place.world.image.topics["u"], 0)])
    new = (DIRECTORY_UNASSIGNED,)
    place.world.learn(*place.world.topic_records("v", (ME,), directories=new))
    assert place.placement.directories_plan([(place.world.image.topics["v"], 0)])


def test_a_replica_that_left_while_it_was_copied_anew_comes_back_as_any_other(
    place: Place,
) -> None:
    place.world.topic("t", (2, ME), isr=(2,), directories=(ELSEWHERE, UNKNOWN))
    assert place.report() == DIRECTORY_LOST
    place.world.change("t", replicas=(2, 3), directories=(ELSEWHERE, ELSEWHERE))
    place.world.change(
        "t", replicas=(2, 3, ME), directories=(ELSEWHERE, ELSEWHERE, DIRECTORY_UNASSIGNED)
    )
    assert place.report() == place.id_of(place.log().directory)
