"""What brokers of two implementations must agree on, one theme after the other, with each kind in each part."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from ottla.client import BlockingClient
from ottla.client.coordinators import GROUP_KEY, TRANSACTION_KEY, find_coordinator
from support.clients import Confluent, rows
from support.cluster import HOST, byte_identical, wait_until
from support.configs import TOPIC, alter
from support.groups import ConfluentMember, ConfluentNew
from support.mixed import KAFKA, OTTLA, Kind, MixedCluster
from support.transactions import ConfluentTransactions, read

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

EACH = pytest.mark.parametrize("kind", list(Kind), ids=lambda kind: kind.name)
IDS_MAX = 50
OF = {OTTLA: 1, KAFKA: 2}
"""A node of each kind."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    directory = tmp_path_factory.mktemp("mixed") / "cluster"
    with MixedCluster(directory, [OTTLA, KAFKA, OTTLA]) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: MixedCluster) -> Iterator[MixedCluster]:
    """Whole, whatever the test before did."""
    running.mend()
    yield running


def coordinated_by(cluster: MixedCluster, node_id: int, kind: int, prefix: str) -> str:
    """A group or transactional id whose coordinator is this node."""
    addresses = [(HOST, node.port) for node in cluster.up]
    with BlockingClient(addresses, timeout_s=30) as blocking:
        connections = blocking.client.connections

        def found() -> str | None:
            for number in range(IDS_MAX):
                id = f"{prefix}-{number}"
                if blocking.run(find_coordinator(connections, kind, id, id)) == node_id:
                    return id
            return None

        # Leaderships are even only after preferred elections.
        def elected() -> str | None:
            for topic in ("__consumer_offsets", "__transaction_state"):
                if topic in cluster.all_topics():
                    cluster.ottla("topics", "elect", topic)
            return found()

        id = wait_until(elected, 60, f"an id that node {node_id} coordinates", every=1)
    assert id is not None
    return id


@EACH
def test_what_one_deletes_by_hand_the_other_deletes_too(cluster: MixedCluster, kind: Kind) -> None:
    topic = cluster.create_topic(f"deleted-{kind.name}", assignment=[[OF[kind], OF[kind.other], 3]])
    Confluent().produce(cluster.bootstrap, topic, rows(100))
    place = TopicPartition(topic, 0, 40)
    assert cluster.admin.delete_records([place])[place].result(30).low_watermark == 40

    def starts() -> set[int | None]:
        (partition,) = cluster.ottla("replicas", topic)["partitions"]
        return {each["log_start"] for each in partition["replicas"]}

    wait_until(lambda: starts() == {40}, 30, "all replicas begin at 40")


@EACH
@pytest.mark.parametrize("member", [ConfluentMember, ConfluentNew])
def test_a_group_goes_on_with_a_coordinator_of_the_other_kind(
    cluster: MixedCluster, kind: Kind, member: type[ConfluentMember]
) -> None:
    topic = cluster.create_topic(f"read-{kind.name}-{member.__name__.lower()}", 3)
    produce(cluster, topic, 90)
    group = coordinated_by(cluster, OF[kind], GROUP_KEY, f"group-{topic}")
    reader = member(cluster.bootstrap, group, [topic])
    wait_until(lambda: has_read(reader, 90), 60, "all is read")
    reader.commit()
    cluster.kill(OF[kind])
    produce(cluster, topic, 30)
    wait_until(lambda: has_read(reader, 120), 90, "the new ones are read")
    assert len(reader.read) == 120, "and none of the others again"
    wait_until(lambda: committed_now(reader), 60, "offsets are committed at the other kind")
    reader.close()
    cluster.start(OF[kind])
    cluster.wait_ready(90)
    next_one = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "log_level": 0})
    places = [TopicPartition(topic, partition) for partition in range(3)]
    offsets = [each.offset for each in next_one.committed(places, 30)]
    next_one.close()
    assert sum(offsets) == 120


def produce(cluster: MixedCluster, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % 3)
    assert producer.flush(60) == 0


def has_read(reader: ConfluentMember, count: int) -> bool:
    reader.poll()
    return len(reader.read) >= count


def committed_now(reader: ConfluentMember) -> bool:
    reader.poll()
    try:
        reader.commit()
    except KafkaException:
        return False
    return True


@EACH
def test_a_transaction_is_committed_by_a_coordinator_of_the_other_kind(
    cluster: MixedCluster, kind: Kind
) -> None:
    topic = cluster.create_topic(f"written-{kind.name}", assignment=[[3, OF[kind.other], OF[kind]]])
    id = coordinated_by(cluster, OF[kind], TRANSACTION_KEY, f"application-{kind.name}")
    producer = ConfluentTransactions(cluster.bootstrap, id)
    producer.begin()
    producer.send(topic, "committed")
    cluster.kill(OF[kind])
    producer.commit()
    producer.begin()
    producer.send(topic, "aborted")
    cluster.start(OF[kind])
    cluster.wait_ready(90)
    producer.abort()
    wait_until(
        lambda: read(cluster.bootstrap, topic) == ["committed"], 30, "what was committed is read"
    )
    assert read(cluster.bootstrap, topic, committed=False) == ["committed", "aborted"]
    producer.close()
    byte_identical(cluster, topic, 60)


@EACH
def test_what_an_unclean_election_cost_is_cut_by_the_other_kind(
    cluster: MixedCluster, kind: Kind
) -> None:
    """The leader is of this kind; a follower of the other kind that lacks its last records is elected."""
    leader, follower = OF[kind], OF[kind.other]
    topic = cluster.create_topic(f"unclean-{kind.name}", assignment=[[leader, follower]])
    alter(cluster, TOPIC, topic, min_insync_replicas="1")
    Confluent().produce(cluster.bootstrap, topic, rows(50), acks="all")
    cluster.kill(follower)
    wait_until(lambda: cluster.partitions(topic)[0].isr == [leader], 60, "the leader is alone")
    Confluent().produce(cluster.bootstrap, topic, rows(50), acks="all")
    alter(cluster, TOPIC, topic, unclean_leader_election_enable="true")
    cluster.kill(leader)
    cluster.start(follower)
    cluster.wait_ready(90)
    found = wait_until(lambda: max(cluster.partitions(topic)[0].leader, 0), 60, "some leader")
    assert found == follower
    cluster.start(leader)
    cluster.wait_ready(90)
    byte_identical(cluster, topic, 90)


@EACH
def test_leadership_goes_back_to_the_preferred_replica(cluster: MixedCluster, kind: Kind) -> None:
    topic = cluster.create_topic(
        f"preferred-{kind.name}", assignment=[[OF[kind], OF[kind.other], 3]]
    )
    cluster.restart(OF[kind])
    cluster.wait_ready(90)
    cluster.wait_whole(topic, 60)
    cluster.ottla("topics", "elect", topic)
    wait_until(lambda: cluster.leader(topic) == OF[kind], 30, "it leads again")


@EACH
def test_all_that_was_written_is_the_same_on_both(cluster: MixedCluster, kind: Kind) -> None:
    for topic in cluster.all_topics():
        if not topic.startswith("__ottla"):
            byte_identical(cluster, topic, 90)
