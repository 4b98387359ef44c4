"""What the metadata says of this broker's replicas, made true: which are here, in which role, and with which settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from replicas_world import ELSEWHERE, ME, ReplicasWorld, broker_epoch

from ottla.broker.replication.listener import ReplicaListener
from ottla.broker.replication.replica_manager import MADE_IN_A_TURN_MAX
from ottla.log.errors import LogDirError
from ottla.log.log import Log
from ottla.log.room import Watermark
from ottla.metadata import records as r
from ottla.metadata.image import TopicImage
from ottla.metadata.records import BROKER_RESOURCE, DIRECTORY_UNASSIGNED, TOPIC_RESOURCE
from ottla.replica.observer import News
from ottla.replica.partition import Partition
from ottla.replica.roles import Role
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.types import TopicPartition

SOME_ID = UUID(int=4242)


class Heard(ReplicaListener):
    """What the other parts of the broker hear."""

    def __init__(self) -> None:
        self.roles: list[tuple[TopicPartition, Role]] = []
        self.removed: list[tuple[TopicPartition, Role]] = []
        self.expired: list[TopicPartition] = []
        self.proposed: list[TopicPartition] = []
        self.created: list[TopicPartition] = []
        self.placed: list[TopicPartition] = []

    def role_changed(self, partition: Partition) -> None:
        self.roles.append((partition.key, partition.role))

    def replica_removed(self, partition: Partition) -> None:
        self.removed.append((partition.key, partition.role))

    def isr_proposed(self, partition: Partition) -> None:
        self.proposed.append(partition.key)

    def records_expired(self, partition: Partition) -> None:
        self.expired.append(partition.key)

    def log_created(self, log: Log) -> None:
        self.created.append(log.key)

    def placement_changed(self, topic: TopicImage, number: int) -> None:
        self.placed.append(TopicPartition(topic.name, number))


class Waiting:
    """Somebody who waits for a commit."""

    def __init__(self) -> None:
        self.heard: list[ErrorCode | None] = []

    def committed(self, partition: Partition) -> None:
        self.heard.append(None)

    def not_committed(self, partition: Partition, error: ErrorCode) -> None:
        self.heard.append(error)


class Watching:
    def __init__(self) -> None:
        self.news = 0

    def partition_changed(self, partition: Partition, news: int) -> None:
        self.news |= news


def t(number: int = 0) -> TopicPartition:
    return TopicPartition("t", number)


@pytest.fixture
def world() -> Iterator[ReplicasWorld]:
    with ReplicasWorld(directories=("/a", "/b"), log_retention_ms="1000") as made:
        yield made


@pytest.fixture
def heard(world: ReplicasWorld) -> Heard:
    made = Heard()
    world.replicas.listeners.append(made)
    return made


# -- look-up


def test_a_replica_is_found_by_the_name_and_by_the_id_of_its_topic(world: ReplicasWorld) -> None:
    id = world.topic("t", (ME, 2), (2, ME))
    for number in range(2):
        partition = world["t", number]
        assert world.replicas.find("t", None, number) is partition
        assert world.replicas.find(None, id, number) is partition
        assert world.replicas.get("t", number) is partition


def test_what_is_not_here_has_a_reason(world: ReplicasWorld) -> None:
    id = world.topic("t", (ME, 2), (2, 3))
    find = world.replicas.find
    assert find(None, SOME_ID, 0) is ErrorCode.UNKNOWN_TOPIC_ID
    assert find("u", None, 0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for number in (2, -1):
        assert find("t", None, number) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert find(None, id, number) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert find("t", None, 1) is find(None, id, 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.run(lambda: world.logs.mark_offline("/a", OSError("it is broken")))
    assert find("t", None, 0) is find(None, id, 0) is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        world.replicas.get("t", 0)


def test_only_brokers_that_may_be_in_sync_have_an_epoch_to_be_named(world: ReplicasWorld) -> None:
    epoch_of = world.replicas.eligible_broker_epoch
    assert epoch_of(2) == broker_epoch(2) and epoch_of(9) is None
    world.decide(world.registered(2, fenced=True))
    assert epoch_of(2) is None
    world.decide(world.registered(2, in_controlled_shutdown=True))
    assert epoch_of(2) is None


# -- settings


def test_a_topics_settings_come_before_the_brokers_and_the_clusters(world: ReplicasWorld) -> None:
    world.topic("t", (ME,))

    def retention() -> int:
        assert world.replicas.log_config("t").retention_ms == world["t", 0].log.config.retention_ms
        return world["t", 0].log.config.retention_ms

    assert retention() == 1000, "this node's file"
    world.configure(BROKER_RESOURCE, "", "log.retention.ms", "2000")
    assert retention() == 2000, "the cluster"
    world.configure(BROKER_RESOURCE, "2", "log.retention.ms", "2500")
    assert retention() == 2000, "another broker"
    world.configure(BROKER_RESOURCE, str(ME), "log.retention.ms", "3000")
    assert retention() == 3000, "this broker"
    world.configure(TOPIC_RESOURCE, "u", "retention.ms", "3500")
    assert retention() == 3000, "another topic"
    world.configure(TOPIC_RESOURCE, "t", "retention.ms", "4000")
    assert retention() == 4000, "the topic"
    world.configure(TOPIC_RESOURCE, "t", "retention.ms", None)
    assert retention() == 3000


def test_a_topic_that_is_made_anew_does_not_inherit_the_settings(world: ReplicasWorld) -> None:
    world.topic("t", (ME,))
    world.configure(TOPIC_RESOURCE, "t", "retention.ms", "4000")
    assert world.replicas.log_config("t").retention_ms == 4000
    world.delete("t")
    world.topic("t", (ME,))
    assert world["t", 0].log.config.retention_ms == 1000


def test_a_restart_reads_the_settings_of_today(world: ReplicasWorld) -> None:
    world.topic("t", (ME,))
    world.replicas.log_config("t")
    setting = r.ConfigRecord(
        resource_type=TOPIC_RESOURCE, resource_name="t", name="retention.ms", value="4000"
    )
    world.learn(setting)
    world.run(lambda: world.replicas.apply_all(world.image))
    assert world.replicas.log_config("t").retention_ms == 4000


def test_an_isr_is_judged_by_the_minimum_that_was_decided_with_it(world: ReplicasWorld) -> None:
    world.topic("t", (ME, 2))
    world.configure(TOPIC_RESOURCE, "t", "min.insync.replicas", "2")
    world.produce("t")
    minimum = r.ConfigRecord(
        resource_type=TOPIC_RESOURCE, resource_name="t", name="min.insync.replicas", value="1"
    )
    world.decide(world.changed("t", isr=(ME,)), minimum)
    assert world["t", 0].log.high_watermark == 1


# -- roles


def test_a_broker_that_starts_takes_the_roles_of_the_first_image(world: ReplicasWorld) -> None:
    world.topic("t", (ME, 2), (2, ME), (2, 3))
    world.produce("t", 0)
    world.restart()
    assert [world["t", number].role for number in range(2)] == [Role.LEADER, Role.FOLLOWER]
    assert world["t", 0].log.log_end == 1
    assert list(world.replicas.partitions) == [t(0), t(1)]


def test_a_replica_follows_each_decision(world: ReplicasWorld, heard: Heard) -> None:
    world.topic("t", (ME, 2))
    world.change("t", leader=2)
    world.change("t", leader=-1)
    world.change("t", leader=ME)
    assert heard.roles == [
        (t(), Role.LEADER),
        (t(), Role.FOLLOWER),
        (t(), Role.FOLLOWER),
        (t(), Role.LEADER),
    ]
    assert heard.created == [t()] and heard.placed == [t()] * 4
    world.change("t", isr=(ME,))
    assert len(heard.roles) == 4 and world["t", 0].isr == (ME,)


def test_a_follower_drops_what_the_rule_drops_when_it_begins_to_follow(
    world: ReplicasWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The designs of the lab have such rules; the product has none."""
    begun: list[Partition] = []
    monkeypatch.setattr("ottla.replica.follower.begin_following", begun.append)
    world.topic("t", (ME, 2))
    assert begun == []
    world.change("t", leader=2)
    assert begun == [world["t", 0]]
    world.change("t", isr=(2,))
    assert len(begun) == 1, "the leader and its epoch are the same"


def test_a_replica_knows_which_of_its_epochs_began_uncleanly(world: ReplicasWorld) -> None:
    id = world.topic("t", (ME, 2))
    assert world["t", 0].unclean_epoch == -1
    world.unclean[id, 0] = 6
    world.change("t", leader=2)
    assert world["t", 0].unclean_epoch == 6
    other = world.topic("u", (ME, 2))
    assert other != id and world["u", 0].unclean_epoch == -1


def test_who_waits_for_a_commit_hears_that_the_leader_is_deposed(world: ReplicasWorld) -> None:
    world.topic("t", (ME, 2))
    world.produce("t")
    waiting = Waiting()
    world.replicas.purgatory.await_commit(world["t", 0], 1, waiting)
    world.change("t", leader=ME)
    assert waiting.heard == [], "it leads on in a new epoch, and its log is the same"
    world.change("t", leader=2)
    assert waiting.heard == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_who_watches_a_partition_hears_of_its_role(world: ReplicasWorld) -> None:
    world.topic("t", (ME, 2))
    for leader, news in ((ME, News.ROLE), (2, News.ROLE | News.DEPOSED)):
        watching = Watching()
        world.replicas.purgatory.watch(world["t", 0], watching)
        world.change("t", leader=leader)
        assert watching.news & (News.ROLE | News.DEPOSED) == news


def test_a_follower_whose_broker_returns_is_proposed_for_the_isr(
    world: ReplicasWorld, heard: Heard
) -> None:
    world.topic("t", (ME, 2), isr=(ME,))
    world.topic("followed", (3, ME))
    world.decide(world.registered(2, fenced=True))
    world.produce("t")
    world.replicate("t")
    assert heard.proposed == []
    world.decide(world.registered(2))
    assert heard.proposed == [t()]


def test_a_defect_in_one_partition_leaves_the_others_their_roles(
    world: ReplicasWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    become_leader = Partition.become_leader

    def broken(self: Partition, *decided: Any) -> None:
        if self.key == t(1):
            raise ValueError("a mistake of ours")
        become_leader(self, *decided)

    monkeypatch.setattr(Partition, "become_leader", broken)
    world.topic("t", *[(ME,)] * 3)
    assert [world["t", number].role for number in (0, 2)] == [Role.LEADER] * 2
    (problem,) = world.world.loop.unhandled
    assert "t-1 does not follow the metadata" in problem.message
    world.world.loop.unhandled.clear()


def test_a_disk_that_fails_when_a_role_is_taken_takes_its_replicas_and_no_others(
    world: ReplicasWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    become_leader = Partition.become_leader

    def failing(self: Partition, *decided: Any) -> None:
        if self.key == t(1):
            raise LogDirError("/a", OSError("it is broken"))
        become_leader(self, *decided)

    monkeypatch.setattr(Partition, "become_leader", failing)
    b = (world.logs.directory_ids["/b"],)
    world.decide(
        *world.topic_records("t", *[(ME,)] * 3), *world.topic_records("u", (ME,), directories=b)
    )
    assert list(world.logs.offline_directories) == ["/a"]
    assert list(world.replicas.partitions) == [TopicPartition("u", 0)]
    assert world.world.loop.unhandled == []


# -- replicas come and go


def test_a_deleted_topic_takes_its_replicas_with_it(world: ReplicasWorld, heard: Heard) -> None:
    id = world.topic("t", (ME, 2), (2, ME))
    partition = world["t", 0]
    world.topic("u", (ME,))
    world.delete("t")
    assert heard.removed == [(t(0), Role.LEADER), (t(1), Role.FOLLOWER)], "told before it is so"
    assert partition.role is Role.OFFLINE
    assert world.replicas.find(None, id, 0) is ErrorCode.UNKNOWN_TOPIC_ID
    assert list(world.logs.logs) == [TopicPartition("u", 0)]
    assert not world.host.disk.exists("/a/t-0")


def test_a_topic_that_is_made_anew_in_one_batch_begins_empty(world: ReplicasWorld) -> None:
    former = world.topic("t", (ME,))
    world.produce("t")
    world.decide(r.RemoveTopicRecord(topic_id=former), *world.topic_records("t", (ME,)))
    assert world["t", 0].log.log_end == 0 and world["t", 0].topic_id != former
    assert world.replicas.find(None, former, 0) is ErrorCode.UNKNOWN_TOPIC_ID


def test_a_replica_that_is_given_to_another_broker_is_deleted(
    world: ReplicasWorld, heard: Heard
) -> None:
    world.topic("t", (2, ME), (2, ME))
    world.change("t", 0, replicas=(2, 3), isr=(2,))
    assert heard.removed == [(t(0), Role.FOLLOWER)]
    assert list(world.logs.logs) == [t(1)]
    assert world.replicas.find("t", None, 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.change("t", 0, replicas=(2, 3, ME), directories=(ELSEWHERE, ELSEWHERE, world.home(ME)))
    assert world["t", 0].role is Role.FOLLOWER and heard.created == [t(0), t(1), t(0)]


def test_a_topic_that_cannot_be_removed_does_not_keep_the_others_from_it(
    world: ReplicasWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.topic("t", (ME,))
    world.topic("u", (ME,))
    become_offline = Partition.become_offline

    def broken(self: Partition) -> None:
        if self.key == t():
            raise ValueError("a mistake of ours")
        become_offline(self)

    monkeypatch.setattr(Partition, "become_offline", broken)
    world.decide(
        *(r.RemoveTopicRecord(topic_id=world.image.topics[name].id) for name in ("t", "u"))
    )
    assert not world.replicas.partitions
    assert TopicPartition("u", 0) not in world.logs.logs
    (problem,) = world.world.loop.unhandled
    assert "t-0" in problem.message
    world.world.loop.unhandled.clear()


def test_a_topics_traffic_is_counted_as_long_as_it_exists(world: ReplicasWorld) -> None:
    world.topic("t", (2, ME), (ME, 2))
    counted = world.replicas.topic_traffic["t"]
    world.produce("t", 1, records=3)
    assert counted.messages_in == 3 == world.replicas.traffic.messages_in
    world.change("t", 0, replicas=(2, 3), isr=(2,))
    assert world.replicas.topic_traffic["t"] is counted
    world.delete("t")
    assert "t" not in world.replicas.topic_traffic
    assert world.replicas.traffic.messages_in == 3


# -- many at once


def made_at_once(world: ReplicasWorld, *records: Any) -> int:
    """How many replicas are here when the image has been applied, before anybody else has had a turn."""
    delta = world.learn(*records)

    async def apply() -> int:
        world.publish(delta)
        return len(world.replicas.partitions)

    return world.complete(apply())


def test_a_few_replicas_are_made_at_once(world: ReplicasWorld) -> None:
    records = world.topic_records("t", *[(ME,)] * MADE_IN_A_TURN_MAX)
    assert made_at_once(world, *records) == MADE_IN_A_TURN_MAX


@pytest.mark.parametrize("is_placed", [True, False])
def test_many_replicas_are_made_one_part_after_the_other(
    world: ReplicasWorld, is_placed: bool
) -> None:
    """Also where no directory can be made beforehand."""
    count = 2 * MADE_IN_A_TURN_MAX + 1
    steps: list[int] = []
    place = {} if is_placed else {"directories": (DIRECTORY_UNASSIGNED,)}
    assert made_at_once(world, *world.topic_records("t", *[(ME,)] * count, **place)) == 0
    assert world.replicas.find("t", None, 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    def all_are_made() -> bool:
        if not steps or steps[-1] != len(world.replicas.partitions):
            steps.append(len(world.replicas.partitions))
        return steps[-1] == count

    assert world.world.run_until(all_are_made, 10)
    assert steps == [0, MADE_IN_A_TURN_MAX, 2 * MADE_IN_A_TURN_MAX, count]
    assert list(world.replicas.partitions) == [t(number) for number in range(count)]
    assert all(partition.role is Role.LEADER for partition in world.replicas.partitions.values())
    for log in world.logs.logs.values():
        assert log.directory == "/a" or not is_placed
        assert log.topic_id == world.image.topics["t"].id
    world.topic("u", (ME,))
    assert len(world.replicas.partitions) == count + 1, "and few are made at once again"


def test_what_is_decided_while_many_are_made_counts_for_them(world: ReplicasWorld) -> None:
    count = 2 * MADE_IN_A_TURN_MAX
    made_at_once(world, *world.topic_records("t", *[(ME, 2)] * count))
    last = count - 1
    made_at_once(
        world,
        world.changed("t", last, leader=2),
        world.changed("t", last - 1, leader=2, replicas=(2, 3), isr=(2,)),
        *world.topic_records("u", (ME,)),
    )
    world.wait(1)
    assert world["t", last].role is Role.FOLLOWER
    assert t(last - 1) not in world.replicas.partitions and t(last - 1) not in world.logs.logs
    assert world["u", 0].role is Role.LEADER
    assert len(world.replicas.partitions) == count


def test_a_topic_that_is_deleted_while_it_is_made_leaves_nothing_behind(
    world: ReplicasWorld,
) -> None:
    """Wherever the making has come to."""
    for pause_s in (0.0, 0.00001, 0.0001, 0.001):
        made_at_once(world, *world.topic_records("t", *[(ME,)] * 120))
        world.wait(pause_s)
        world.delete("t")
        world.wait(1)
        assert not world.replicas.partitions and not world.logs.logs
        names = world.host.disk.list_dir("/a")
        assert not [name for name in names if name.startswith("t-") and "delete" not in name]


def test_a_topic_that_is_deleted_between_its_directories_and_its_logs_leaves_none(
    world: ReplicasWorld,
) -> None:
    made_at_once(world, *world.topic_records("t", *[(ME,)] * 120))
    assert world.world.run_until(lambda: world.host.disk.exists("/a/t-0"), 1)
    assert not world.logs.logs
    world.delete("t")
    world.wait(1)
    assert not [name for name in world.host.disk.list_dir("/a") if name.startswith("t-")]


def test_a_broker_that_stops_makes_no_more(world: ReplicasWorld) -> None:
    made_at_once(world, *world.topic_records("t", *[(ME,)] * 120))
    world.complete(world.replicas.stop())
    made = len(world.replicas.partitions)
    assert made <= MADE_IN_A_TURN_MAX
    world.wait(1)
    assert len(world.replicas.partitions) == made


def test_a_broker_that_makes_nothing_stops_at_once(world: ReplicasWorld) -> None:
    world.complete(world.replicas.stop())


# -- storage


def test_a_directory_that_fails_is_told_once_and_costs_its_replicas(
    world: ReplicasWorld, heard: Heard
) -> None:
    b = (world.logs.directory_ids["/b"],)
    world.topic("t", (ME,))
    world.topic("u", (ME,), directories=b)
    partition = world["t", 0]
    failure = LogDirError("/a", OSError("it is broken"))
    error = world.run(lambda: world.replicas.directory_failed(failure))
    assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert heard.removed == [(t(), Role.LEADER)] and partition.role is Role.OFFLINE
    assert heard.placed[-1] == t() and list(world.replicas.partitions) == [("u", 0)]
    world.run(lambda: world.replicas.directory_failed(failure))
    assert len(heard.removed) == 1
    assert world.replicas.find("t", None, 0) is ErrorCode.KAFKA_STORAGE_ERROR


def test_work_without_a_request_reports_a_failed_disk_alike(world: ReplicasWorld) -> None:
    def work() -> None:
        with world.replicas.directories_guarded():
            raise LogDirError("/a", OSError("it is broken"))

    world.topic("t", (ME,))
    world.run(work)
    assert list(world.logs.offline_directories) == ["/a"] and not world.replicas.partitions


def test_others_hear_of_a_replica_that_is_about_to_move(world: ReplicasWorld, heard: Heard) -> None:
    world.topic("t", (ME,), (ME,))
    heard.placed.clear()
    world.replicas.placement_changed(world["t", 1])
    assert heard.placed == [t(1)]
    gone = world["t", 1]
    world.delete("t")
    heard.placed.clear()
    world.replicas.placement_changed(gone)
    assert heard.placed == []


def test_retention_tells_who_waits_what_is_left(world: ReplicasWorld, heard: Heard) -> None:
    world.topic("t", (ME,), (ME,))
    for number in range(2):
        world.produce("t", number)
        world.produce("t", number)
    old, young = world["t", 0], world["t", 1]
    watching, other = Watching(), Watching()
    world.replicas.purgatory.watch(old, watching)
    world.replicas.purgatory.watch(young, other)
    world.configure(TOPIC_RESOURCE, "t", "retention.ms", "-1")
    assert world.run(world.replicas.retention) == 0 and heard.expired == []
    old.log.roll(world.host.clock.wall_ms())
    watching.news = other.news = 0
    old.log.configure(replace(old.log.config, retention_ms=1))
    assert world.run(world.replicas.retention) >= 1
    assert heard.expired == [t(0)]
    assert watching.news & News.LOG_START and not other.news & News.LOG_START


def test_the_isrs_of_partitions_that_are_led_here_are_reviewed(
    world: ReplicasWorld, heard: Heard
) -> None:
    world.topic("t", (ME, 2), (2, ME))
    world.replicate("t")
    world.produce("t")
    world.wait(world.settings.replica_lag_time_max_ms / 1000 + 1)
    assert heard.proposed == []
    world.run(world.replicas.review_isrs)
    assert heard.proposed == [t(0)]


def test_a_directory_may_fail_before_the_first_image_comes(world: ReplicasWorld) -> None:
    world.topic("t", (ME,))
    world.logs.close(clean=True)
    world.open_logs()
    world.run(lambda: world.logs.mark_offline("/a", OSError("it is broken")))
    world.start()
    assert not world.replicas.partitions
    assert world.replicas.find("t", None, 0) is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_disk_that_is_nearly_full_is_told_and_that_it_is_so_no_longer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with ReplicasWorld(watermark=Watermark(percent=50)) as world:
        caplog.set_level("WARNING", "ottla.broker.replication.replica_manager")
        size, free = world.host.disk.usage("/data")
        lefts = [size // 3, size // 8, free]
        for left in lefts:
            world.host.disk.taken_bytes = free - left
            world.logs.look_for_room()
    texts = [
        ("ERROR", "records are refused until space is freed there"),
        ("ERROR", "replicas copy nothing until space is freed there"),
        ("WARNING", "disk has room again, records are taken"),
    ]
    for record, (level, text), left in zip(caplog.records, texts, lefts, strict=True):
        assert record.levelname == level
        assert record.getMessage().endswith(f"{text} path=/data free={left} size={size}")
