"""The writer of the event log in whole simulated clusters: who writes what, when the topic is made, what is dropped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ottla.broker.observability.event_log import EventLogWriter
from ottla.event_log.entry import EventEntry, entries
from ottla.events.replication import LeadershipStarted
from ottla.events.requests import QuotaExceeded
from ottla.records.batch import batches
from ottla.records.record import records
from ottla.sim.cluster.nodes import SimCluster
from ottla.sim.engine.world import World
from ottla.wire.internal_topics import ADMIN_CLIENT_ID, EVENT_LOG_TOPIC
from ottla.wire.types import TopicPartition

KEY = TopicPartition(EVENT_LOG_TOPIC, 0)


@contextmanager
def cluster_of(
    nodes: int, *, controllers: int = 0, world_seed: int = 1, **settings: str
) -> Iterator[SimCluster]:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    with World(world_seed) as world:
        cluster = SimCluster(
            world, nodes, {"ottla.event.log.enable": "true", **given}, controllers=controllers
        )
        cluster.start()
        assert cluster.wait_ready(30)
        yield cluster
        assert world.problems() == []


def stored(cluster: SimCluster) -> list[EventEntry]:
    """From the log of whoever leads the topic."""
    for node in cluster.up:
        broker = None if node.node is None else node.node.broker
        partition = None if broker is None else broker.replicas.partitions.get(KEY)
        if partition is not None and partition.leadership is not None:
            read = partition.log.read(0, max_bytes=1 << 30, end_offset=partition.log.log_end)
            data = memoryview(b"" if read.range is None else read.range.read())
            return list(entries(each for batch in batches(data) for each in records(data, batch)))
    return []


def writer_of(cluster: SimCluster, id: int) -> EventLogWriter:
    node = cluster.nodes[id].node
    assert node is not None and node.event_log is not None
    return node.event_log


def test_every_node_writes_also_one_that_is_only_a_controller() -> None:
    with cluster_of(4, controllers=1) as cluster:
        cluster.world.run_for(5)
        told = [(entry.kind, entry.node) for entry in stored(cluster)]
        assert ("controller_change", 4) in told
        assert {node for kind, node in told if kind == "node_start"} == {1, 2, 3, 4}
        assert not any(writer_of(cluster, id).waiting for id in cluster.nodes)


def test_the_topic_waits_for_more_brokers_and_has_three_replicas_at_most() -> None:
    for nodes, replicas in ((1, 1), (2, 2), (4, 3)):
        with cluster_of(nodes) as cluster:
            cluster.world.run_for(5)
            node = cluster.nodes[1].node
            assert node is not None and node.quorum is not None
            (partition,) = node.quorum.image.topics[EVENT_LOG_TOPIC].partitions
            assert len(partition.replicas) == replicas


def test_what_does_not_fit_is_dropped_and_counted() -> None:
    with cluster_of(1, ottla_event_log_queue_max="10") as cluster:
        writer = writer_of(cluster, 1)
        waiting = writer.waiting
        for number in range(100):
            writer._happened(LeadershipStarted(TopicPartition("t", number), 0, 0, 0))
        assert writer.waiting == 10 and writer.dropped == 90 + waiting
        cluster.world.run_for(5)
        assert writer.waiting == 0
        kept = [
            each
            for each in stored(cluster)
            if each.told.partition in (("t", n) for n in range(100))
        ]
        (dropped,) = [each for each in stored(cluster) if each.kind == "events_dropped"]
        assert len(kept) == 10 - waiting
        # The start of the topic's own leader did not fit either.
        assert dropped.told.fields["count"] == writer.dropped == 100 - len(kept) + 1


def test_nobody_to_write_to_holds_up_neither_the_queue_nor_the_stop() -> None:
    with cluster_of(3) as cluster:
        cluster.world.run_for(5)
        for id in (2, 3):
            cluster.nodes[id].kill()
        writer = writer_of(cluster, 1)
        began = cluster.world.loop.time()
        writer._happened(LeadershipStarted(TopicPartition("t", 0), 0, 0, 0))
        assert cluster.world.loop.time() == began and writer.waiting
        cluster.nodes[1].stop()
        assert cluster.world.run_until(lambda: not cluster.nodes[1].is_up, 20)


def test_a_client_above_its_quota_is_told_once_a_minute_and_the_writer_itself_never() -> None:
    with cluster_of(1) as cluster:
        cluster.world.run_for(5)
        writer = writer_of(cluster, 1)

        def exceeded(client: str) -> None:
            writer._happened(QuotaExceeded(client, "producer_byte_rate", 10.0, 0.1, 20.0))

        for _ in range(50):
            exceeded("app")
            exceeded(ADMIN_CLIENT_ID)
        cluster.world.run_for(61)
        exceeded("app")
        cluster.world.run_for(1)
        told = [
            each.told.fields["client_id"]
            for each in stored(cluster)
            if each.kind == "quota_exceeded"
        ]
        assert told == ["app", "app"]


def test_a_topic_that_somebody_deleted_is_made_again() -> None:
    with cluster_of(1) as cluster:
        cluster.world.run_for(5)
        assert stored(cluster)
        node = cluster.nodes[1].node
        assert node is not None and node.controller is not None
        controller = node.controller
        cluster.nodes[1].host.complete(_delete(controller))
        cluster.world.run_for(1)
        assert not stored(cluster)
        writer_of(cluster, 1)._happened(LeadershipStarted(TopicPartition("t", 0), 0, 0, 0))
        cluster.world.run_for(5)
        assert [each.told.partition for each in stored(cluster)][:1] == [("t", 0)]


async def _delete(controller: object) -> None:
    from ottla.broker.cluster.controller_service import ControllerService
    from ottla.controller import topics

    assert isinstance(controller, ControllerService)
    controller.decide(
        lambda draft: topics.delete_topics(draft, [EVENT_LOG_TOPIC], [], topics.unlimited)
    )
