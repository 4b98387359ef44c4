"""Which answers count as votes. Each script would lose an acknowledged record if another answer counted too."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.controller.draft import Draft
from ottla.lab.commit import majority
from ottla.lab.commit.clients import OpenLoopProducer
from ottla.lab.commit.majority import Vacancy
from ottla.lab.commit.rules import Completeness, voters_of
from ottla.lab.experiments.f_failures import (
    PARTITION,
    QUORUM,
    WAIT_S,
    Laboratory,
    laboratory,
    variants,
)
from ottla.metadata.image import Delta, MetadataImage, PartitionImage
from ottla.metadata.records import NO_LEADER, PartitionChangeRecord
from ottla.replica.partition import Partition
from ottla.sim.clients.connections import ClientConnections
from ottla.sim.cluster.nodes import BROKER_PORT
from ottla.sim.engine.tcp import Way
from ottla.wire.errors import ErrorCode, KafkaError

VARIANT = next(each for each in variants(1) if each.label == QUORUM)


class LateBroker:
    """A broker that gets the metadata and applies it when it is told to, as a slow process does."""

    def __init__(self, lab: Laboratory, id: int) -> None:
        node = lab.cluster.sim.nodes[id].node
        assert node is not None and node.broker is not None
        self._host = lab.cluster.sim.nodes[id].host
        self._broker = node.broker
        self._place = self._broker.source.on_image.index(self._broker._image_changed)
        self._waiting: list[tuple[MetadataImage, Delta]] = []
        self._broker.source.on_image[self._place] = self._hold

    def _hold(self, image: MetadataImage, delta: Delta) -> None:
        self._waiting.append((image, delta))

    def apply_until(self, is_enough: Callable[[PartitionImage], bool]) -> None:
        """Everything up to and with the first image that is enough."""
        images = [image.topics[PARTITION.topic].partitions[0] for image, _ in self._waiting]
        count = 1 + next(number for number, image in enumerate(images) if is_enough(image))
        self._host.complete(self._apply(count))

    def apply_all(self) -> None:
        self._broker.source.on_image[self._place] = self._broker._image_changed
        self._host.complete(self._apply(len(self._waiting)))

    async def _apply(self, count: int) -> None:
        for _ in range(count):
            self._broker._image_changed(*self._waiting.pop(0))


def decided(lab: Laboratory) -> PartitionImage:
    """The partition as the controller has decided it."""
    node = lab.cluster.sim.nodes[VARIANT.replicas + 1].node
    assert node is not None and node.quorum is not None
    return node.quorum.image.topics[PARTITION.topic].partitions[0]


def lose_controller(lab: Laboratory, id: int) -> list[Way]:
    return lab.cluster.world.network.partition([lab.name(id)], [lab.controller])


def kept_after(lab: Laboratory, acknowledged: set[str]) -> set[str]:
    lab.cluster.run_for(WAIT_S)
    assert lab.can_write()
    return acknowledged & lab.readable()


def vote_of_a_follower() -> tuple[set[str], set[str]]:
    """The leader loses the controller and writes on with broker 3, which has not heard yet that the leader is deposed. If the
    vote of broker 3 counted, broker 2 would lead without what the two wrote."""
    with laboratory(0, VARIANT) as lab:
        acknowledged = set(lab.produce(1.0, 0.02).acknowledged_at)
        assert lab.leader == 1
        late = LateBroker(lab, 3)
        cut = lose_controller(lab, 1)
        assert lab.cluster.run_until(lambda: decided(lab).leader != 1, WAIT_S)
        lab.cluster.run_for(2.0)
        acknowledged |= produce_with(lab, 1)
        late.apply_all()
        lab.cluster.world.network.unblock(cut)
        return acknowledged, kept_after(lab, acknowledged)


def produce_with(lab: Laboratory, leader: int) -> set[str]:
    """Records of a client that asks this leader only."""
    address = lab.name(leader), BROKER_PORT
    connections = ClientConnections(lab.cluster.clients, [address], "late client")
    producer = OpenLoopProducer(connections, PARTITION, "late", interval_s=0.1)
    lab.cluster.clients.run(producer.run())
    lab.cluster.run_for(1.0)
    producer.is_running = False
    assert lab.cluster.run_until(lambda: producer.is_settled, WAIT_S)
    assert producer.acknowledged_at, "the former leader and its follower are a majority"
    return set(producer.acknowledged_at)


def test_P41_a_replica_that_still_follows_the_old_leader_does_not_vote() -> None:
    acknowledged, kept = vote_of_a_follower()
    assert kept == acknowledged


def test_P41_the_vote_of_a_replica_that_still_follows_would_lose_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unchecked(partition: Partition, epoch: int) -> Completeness:
        return Completeness(partition.log.epochs.latest or 0, partition.log.log_end)

    monkeypatch.setattr(majority, "_without_leader", unchecked)
    acknowledged, kept = vote_of_a_follower()
    assert kept < acknowledged


def vote_for_an_older_epoch() -> tuple[set[str], set[str]]:
    """Broker 1 leads, then broker 2, and broker 3 hears of both changes late. It applies that broker 1 is deposed,
    votes for broker 2, and is asked again when broker 2 is deposed as well. Later it applies that broker 2 leads, and follows. If its vote had
    counted, broker 1 would lead without what brokers 2 and 3 write then."""
    with laboratory(0, VARIANT) as lab:
        acknowledged = set(lab.produce(1.0, 0.02).acknowledged_at)
        assert lab.leader == 1
        late = LateBroker(lab, 3)
        lab.cluster.sim.nodes[1].kill()
        assert lab.cluster.run_until(lambda: decided(lab).leader == NO_LEADER, WAIT_S)
        first = decided(lab).leader_epoch
        lab.cluster.run_for(0.1)
        late.apply_until(lambda image: image.leader_epoch == first)
        assert lab.cluster.run_until(lambda: decided(lab).leader == 2, WAIT_S)
        lab.cluster.sim.nodes[1].start()
        lab.cluster.run_for(WAIT_S)
        cut = lose_controller(lab, 2)
        assert lab.cluster.run_until(lambda: decided(lab).leader != 2, WAIT_S)
        lab.cluster.run_for(2.0)
        late.apply_until(lambda image: image.leader_epoch == first + 1)
        acknowledged |= produce_with(lab, 2)
        late.apply_all()
        lab.cluster.world.network.unblock(cut)
        return acknowledged, kept_after(lab, acknowledged)


def test_P41_a_replica_in_an_older_epoch_does_not_vote() -> None:
    acknowledged, kept = vote_for_an_older_epoch()
    assert kept == acknowledged


def test_P41_the_vote_of_a_replica_in_an_older_epoch_would_lose_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checked = majority._without_leader

    def in_any_epoch(partition: Partition, epoch: int) -> Completeness:
        return checked(partition, partition.leader_epoch)

    monkeypatch.setattr(majority, "_without_leader", in_any_epoch)
    acknowledged, kept = vote_for_an_older_epoch()
    assert kept < acknowledged


def test_P41_a_replica_that_has_a_leader_does_not_vote_in_its_epoch_either() -> None:
    with laboratory(0, VARIANT) as lab:
        lab.produce(0.5, 0.1)
        for id in lab.brokers:
            replica = lab.cluster.replica(id, PARTITION)
            assert replica is not None and replica.leader == lab.leader
            with pytest.raises(KafkaError) as refused:
                majority._without_leader(replica, replica.leader_epoch)
            assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_P41_a_vote_is_void_when_the_partition_has_another_epoch_or_a_leader() -> None:
    """Broker 3 was as complete as the others when it was asked, and is not when the votes are counted."""
    with laboratory(0, VARIANT) as lab:
        lab.cluster.sim.nodes[1].kill()
        assert lab.cluster.run_until(lambda: decided(lab).leader == NO_LEADER, WAIT_S)
        node = lab.cluster.sim.nodes[VARIANT.replicas + 1].node
        assert node is not None and node.quorum is not None and node.controller is not None
        image, config = node.quorum.image, node.controller._controller.config
        topic = image.topics[PARTITION.topic]
        vacant = topic.partitions[0]
        logs = {id: Completeness(0, 10) for id in (2, 3)}

        def elected(epoch: int, image: MetadataImage) -> list[int]:
            place = Vacancy(PARTITION.topic, topic.id, 0, epoch, vacant.replicas, voters_of(vacant))
            draft = Draft(image, config, image.epoch, image.offset + 1)
            majority._elect({place: logs}, draft)
            return [
                each.leader for each in draft.records if isinstance(each, PartitionChangeRecord)
            ]

        assert elected(vacant.leader_epoch, image) == [2]
        assert elected(vacant.leader_epoch - 1, image) == []
        leads = PartitionChangeRecord(partition_id=0, topic_id=topic.id, leader=3)
        with_leader, _ = image.apply([leads], image.offset + 1, image.epoch)
        assert elected(vacant.leader_epoch, with_leader) == []
        assert elected(vacant.leader_epoch + 1, with_leader) == []
