"""Consumer groups with four clients and both protocols: sharing, rebalances, offsets, static members, admin, and
the death of a coordinator."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from typing import Any

import confluent_kafka
import kafka
import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import NewPartitions

from ottla.wire.apis import ApiKey
from support.cluster import ProcessCluster, wait_until
from support.groups import (
    CLIENTS,
    ConfluentMember,
    ConfluentNew,
    GroupMember,
    KafkaPythonMember,
    Make,
    produce,
    read_until,
    settle,
)

EACH_CLIENT = pytest.mark.parametrize("make", CLIENTS, ids=[each.name for each in CLIENTS])  # type: ignore[attr-defined]
NUMBERS = count(1)
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.session.timeout.ms": "6000",
    "offsets.topic.num.partitions": "5",
}
Join = Callable[..., GroupMember]


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path_factory.mktemp("groups"), 3, SETTINGS) as running:
        yield running


@pytest.fixture
def join() -> Iterator[Join]:
    """Starts members that are closed with the test, unless it closes them itself."""
    with ExitStack() as stack:

        def start(make: Make, *args: Any, **config: Any) -> GroupMember:
            member = make(*args, **config)
            is_open = [True]

            def close_once(close: Callable[[], None] = member.close) -> None:
                if is_open.pop() if is_open else False:
                    close()

            member.close = close_once  # type: ignore[method-assign]
            stack.callback(close_once)
            return member

        yield start


def new_names(cluster: ProcessCluster, partitions: int = 4) -> tuple[str, str]:
    """A topic and a group."""
    number = next(NUMBERS)
    return cluster.create_topic(f"shared-{number}", partitions), f"group-{number}"


def coordinator(cluster: ProcessCluster, group: str) -> int:
    fields = {"key_type": 0, "coordinator_keys": [group]}

    def known() -> int:
        (found,) = cluster.ask(cluster.up[0], ApiKey.FIND_COORDINATOR, 6, fields).coordinators
        return 0 if int(found.error_code) else int(found.node_id)

    return wait_until(known, 20, f"a coordinator of {group}")


@EACH_CLIENT
def test_members_share_partitions_and_take_over_from_those_who_leave(
    groups: ProcessCluster, join: Join, make: Make
) -> None:
    topic, group = new_names(groups)
    produce(groups.bootstrap, topic, 100, 4)
    first = join(make, groups.bootstrap, group, [topic])
    settle([first], [4], "one member has all")
    second = join(make, groups.bootstrap, group, [topic])
    settle([first, second], [2, 2], "two members share")
    third = join(make, groups.bootstrap, group, [topic])
    settle([first, second, third], [1, 1, 2], "three members share")
    first.close()
    settle([second, third], [2, 2], "the others take over")


@EACH_CLIENT
def test_C4_committed_offsets_are_where_the_next_member_goes_on(
    groups: ProcessCluster, join: Join, make: Make
) -> None:
    topic, group = new_names(groups)
    produce(groups.bootstrap, topic, 100, 4)
    first = join(make, groups.bootstrap, group, [topic])
    read_until([first], 100)
    first.commit()
    first.close()
    produce(groups.bootstrap, topic, 20, 4, start=100)
    second = join(make, groups.bootstrap, group, [topic])
    read_until([second], 20)
    assert sorted(int(value) for _, value in second.read) == list(range(100, 120))


@EACH_CLIENT
def test_C4_committed_offsets_survive_the_coordinators_death(
    new_cluster: Callable[..., ProcessCluster], join: Join, make: Make
) -> None:
    names = {name.replace(".", "_"): value for name, value in SETTINGS.items()}
    cluster = new_cluster(3, **names)
    topic, group = new_names(cluster, partitions=2)
    members = [join(make, cluster.bootstrap, group, [topic]) for _ in range(2)]
    settle(members, [1, 1], "two members share")
    produce(cluster.bootstrap, topic, 40, 2)  # not before: the first to join would read it all
    read_until(members, 40)
    for member in members:
        member.commit()
    cluster.kill(coordinator(cluster, group))
    produce(cluster.bootstrap, topic, 40, 2, start=40)
    read_until(members, 80)
    seconds = settle(members, [1, 1], "the group is stable again")
    assert seconds < 10
    for member in members:
        member.commit()
        member.close()
    values = sorted(int(value) for member in members for _, value in member.read)
    assert sorted(set(values)) == list(range(80))
    # A new client of those that live. kafka-python (3.0) that tries the dead broker does not join for half a minute, so
    # it begins when Metadata no longer names that one.
    alive = ",".join(node.address for node in cluster.up)
    if make is KafkaPythonMember:
        cluster.wait_ready()
    last = join(make, alive, group, [topic])
    settle([last], [2], "a new member has all")
    produce(alive, topic, 2, 2, start=80)
    read_until([last], 2)
    assert sorted(int(value) for _, value in last.read) == [80, 81]


@pytest.mark.parametrize("make", [ConfluentMember, ConfluentNew], ids=["classic", "consumer"])
def test_a_member_that_dies_silently_is_replaced_after_its_session(
    groups: ProcessCluster, join: Join, make: Make
) -> None:
    topic, group = new_names(groups)
    members = [join(make, groups.bootstrap, group, [topic]) for _ in range(2)]
    settle(members, [2, 2], "two members share")
    program = (
        "import sys, confluent_kafka as c\n"
        f"x = c.Consumer({{'bootstrap.servers': '{groups.bootstrap}', 'group.id': '{group}',"
        f" 'group.protocol': '{'consumer' if make is ConfluentNew else 'classic'}'"
        f"{'' if make is ConfluentNew else chr(44) + chr(39) + 'session.timeout.ms' + chr(39) + ': 6000'}}})\n"
        f"x.subscribe(['{topic}'])\n"
        "while not x.assignment(): x.poll(0.1)\n"
        "print('assigned', flush=True)\n"
        "while True: x.poll(0.1)\n"
    )
    import sys

    victim = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:

        def three() -> bool:
            for member in members:
                member.poll()
            return sum(len(member.assigned()) for member in members) < 4

        wait_until(three, 30, "the third member has a share", every=0)
    finally:
        victim.kill()
        victim.wait()
    seconds = settle(members, [2, 2], "its share is taken over")
    assert seconds < 15


def test_static_members_come_back_without_a_rebalance(groups: ProcessCluster, join: Join) -> None:
    topic, group = new_names(groups)
    one, two = (
        join(ConfluentMember, groups.bootstrap, group, [topic], **{"group.instance.id": name})
        for name in ("one", "two")
    )
    settle([one, two], [2, 2], "two members share")
    kept = two.assigned()
    before = generation_of(groups, group)
    two.close()
    again = join(ConfluentMember, groups.bootstrap, group, [topic], **{"group.instance.id": "two"})
    settle([one, again], [2, 2], "it is back")
    assert again.assigned() == kept
    assert generation_of(groups, group) == before


def generation_of(cluster: ProcessCluster, group: str) -> dict[str, tuple[Any, ...]]:
    """What would change with a generation, as far as tools see it: which member has what."""
    described = cluster.admin.describe_consumer_groups([group])[group].result(10)
    return {
        member.group_instance_id: tuple(
            sorted(each.partition for each in member.assignment.topic_partitions)
        )
        for member in described.members
    }


def test_a_static_member_is_fenced_by_its_twin(groups: ProcessCluster, join: Join) -> None:
    topic, group = new_names(groups)
    config = {"group.instance.id": "one"}
    first = join(ConfluentMember, groups.bootstrap, group, [topic], **config)
    settle([first], [4], "it has all")
    second = join(ConfluentMember, groups.bootstrap, group, [topic], **config)
    settle([second], [4], "its twin has all")

    def fenced() -> bool:
        second.poll()
        message = first.consumer.poll(0.1)  # type: ignore[attr-defined]
        return (
            message is not None
            and message.error() is not None
            and "fenced" in message.error().str().lower()
        )

    wait_until(fenced, 20, "the first is told", every=0)


def test_a_pattern_subscribes_to_topics_to_come(groups: ProcessCluster, join: Join) -> None:
    number = next(NUMBERS)
    groups.create_topic(f"pattern-{number}-a", 2)
    member = join(
        ConfluentNew, groups.bootstrap, f"pattern-group-{number}", [f"^pattern-{number}-.*"]
    )
    settle([member], [2], "the topic there is")
    groups.create_topic(f"pattern-{number}-b", 3)

    def both() -> bool:
        member.poll()
        return len(member.consumer.assignment()) == 5  # type: ignore[attr-defined]

    wait_until(both, 30, "the new topic too", every=0)


def test_new_partitions_are_assigned(groups: ProcessCluster, join: Join) -> None:
    topic, group = new_names(groups, partitions=2)
    member = join(ConfluentNew, groups.bootstrap, group, [topic])
    settle([member], [2], "it has all")
    groups.admin.create_partitions([NewPartitions(topic, 5)])[topic].result(10)
    settle([member], [5], "it has the new ones too")


def test_a_wrong_pattern_is_told(groups: ProcessCluster, join: Join) -> None:
    member = join(ConfluentNew, groups.bootstrap, "wrong-pattern", ["^a{9999}"])

    def told() -> bool:
        message = member.consumer.poll(0.1)  # type: ignore[attr-defined]
        return message is not None and message.error() is not None

    wait_until(told, 20, "the error", every=0)


def test_groups_are_listed_described_reset_and_deleted(groups: ProcessCluster, join: Join) -> None:
    topic, group = new_names(groups)
    member = join(ConfluentMember, groups.bootstrap, group, [topic])
    settle([member], [4], "it has all")
    admin = groups.admin
    listed = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(10)
    assert group in {each.group_id for each in listed.valid}
    described = admin.describe_consumer_groups([group])[group].result(10)
    assert described.state is ConsumerGroupState.STABLE
    assert described.partition_assignor == "range"
    (shown,) = described.members
    assert {each.partition for each in shown.assignment.topic_partitions} == {0, 1, 2, 3}
    member.close()
    places = [TopicPartition(topic, partition, 7) for partition in range(4)]
    admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)])[group].result(
        10
    )
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(
        10
    )
    assert [each.offset for each in found.topic_partitions] == [7] * 4
    admin.delete_consumer_groups([group])[group].result(10)
    with pytest.raises(confluent_kafka.KafkaException, match="does not exist"):
        admin.delete_consumer_groups([group])[group].result(10)


def test_kafka_pythons_admin_sees_groups(groups: ProcessCluster, join: Join) -> None:
    topic, group = new_names(groups)
    member = join(ConfluentMember, groups.bootstrap, group, [topic])
    settle([member], [4], "it has all")
    admin = kafka.KafkaAdminClient(bootstrap_servers=groups.bootstrap)
    try:
        listed = admin.list_groups()
        assert group in str(listed)
        assert "Stable" in str(admin.describe_groups([group]))
        member.consumer.commit(  # type: ignore[attr-defined]
            offsets=[TopicPartition(topic, 0, 3)], asynchronous=False
        )
        offsets = admin.list_group_offsets({group: None})
        assert "3" in str(offsets)
    finally:
        admin.close()


def test_kcat_reads_as_a_member(groups: ProcessCluster) -> None:
    topic, group = new_names(groups)
    produce(groups.bootstrap, topic, 40, 4)
    command = ["kcat", "-b", groups.bootstrap, "-G", group, "-X", "auto.offset.reset=earliest"]
    done = subprocess.run(
        [*command, "-c", "40", "-q", topic], capture_output=True, timeout=60, check=True
    )
    assert sorted(map(int, done.stdout.split())) == list(range(40))


def test_offsets_of_a_deleted_topic_are_gone(groups: ProcessCluster, join: Join) -> None:
    topic, group = new_names(groups, partitions=1)
    produce(groups.bootstrap, topic, 5, 1)
    member = join(ConfluentMember, groups.bootstrap, group, [topic])
    read_until([member], 5)
    member.commit()
    member.close()
    groups.admin.delete_topics([topic])[topic].result(10)

    def gone() -> bool:
        asked = [ConsumerGroupTopicPartitions(group)]
        found = groups.admin.list_consumer_group_offsets(asked)[group].result(10)
        return not found.topic_partitions

    wait_until(gone, 20, "the offsets are deleted")
