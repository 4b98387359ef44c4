"""The admin calls and seeks of each Python client: what they create, change, find and delete, and how a refusal
looks to them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from itertools import count
from typing import Any

import kafka
import kafka.errors
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from aiokafka.admin import (
    AIOKafkaAdminClient,
    RecordsToDelete,
)
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.admin.config_resource import ConfigResource as AioResource
from aiokafka.admin.config_resource import ConfigResourceType as AioResourceType
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka import TopicCollection as Topics
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ConfigResource,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)
from kafka import TopicPartition as Partition
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ConfigResourceType,
    ResourcePattern,
    UpdateFeatureType,
)
from kafka.admin import ConfigResource as Resource
from kafka.admin import OffsetSpec as Spec
from kafka.admin import ResourceType as Kind

from support.clients import FIRST_MS, Confluent, rows
from support.cluster import ProcessCluster, wait_until
from support.configs import TOPIC, alter
from support.messages import place_of

NewTopic = Callable[..., str]
NUMBERS = count(1)


# -- confluent-kafka --------------------------------------------------------------------------------------------


def test_confluent_describes_topics_and_the_cluster(
    cluster: ProcessCluster, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=2)
    described = cluster.admin.describe_topics(Topics([topic]))[topic].result(10)
    assert len(described.partitions) == 2 and not described.is_internal
    assert {node.id for node in described.partitions[0].isr} == {1, 2, 3}
    shown = cluster.admin.describe_cluster(include_authorized_operations=True).result(10)
    assert {node.id for node in shown.nodes} == {1, 2, 3} and len(shown.cluster_id) == 22
    assert shown.authorized_operations


def test_confluent_deletes_records_and_finds_offsets(
    cluster: ProcessCluster, new_topic: NewTopic
) -> None:
    topic, admin = new_topic(), cluster.admin
    Confluent().produce(cluster.bootstrap, topic, rows(10))
    place = TopicPartition(topic, 0, 4)
    assert admin.delete_records([place])[place].result(10).low_watermark == 4
    for spec, offset in (
        (OffsetSpec.earliest(), 4),
        (OffsetSpec.latest(), 10),
        (OffsetSpec.for_timestamp(FIRST_MS + 7), 7),
    ):
        found = admin.list_offsets({place: spec}, isolation_level=IsolationLevel.READ_COMMITTED)
        assert found[place].result(10).offset == offset
    beyond = TopicPartition(topic, 0, 11)
    with pytest.raises(KafkaException) as refused:
        admin.delete_records([beyond])[beyond].result(10)
    assert refused.value.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE


def test_what_the_leader_alone_deletes_needs_no_time(
    cluster: ProcessCluster, new_topic: NewTopic
) -> None:
    topic, admin = new_topic(replicas=1), cluster.admin
    Confluent().produce(cluster.bootstrap, topic, rows(10))
    place = TopicPartition(topic, 0, 4)
    deleted = admin.delete_records([place], operation_timeout=0)
    assert deleted[place].result(10).low_watermark == 4


@pytest.mark.parametrize(
    "policy, is_refused",
    [("delete", False), ("compact,delete", False), ("compact", True), ("", False)],
)
def test_records_are_deleted_by_hand_unless_the_topic_is_only_compacted(
    cluster: ProcessCluster, new_topic: NewTopic, policy: str, is_refused: bool
) -> None:
    """Without any policy, too (KIP-1161)."""
    topic, admin = new_topic(), cluster.admin
    Confluent().produce(cluster.bootstrap, topic, rows(10))
    alter(cluster, TOPIC, topic, cleanup_policy=policy)
    place = TopicPartition(topic, 0, 4)

    def answer() -> int:
        try:
            admin.delete_records([place])[place].result(10)
        except KafkaException as refused:
            return int(refused.args[0].code())
        return int(KafkaError.NO_ERROR)

    expected = KafkaError.POLICY_VIOLATION if is_refused else KafkaError.NO_ERROR
    wait_until(lambda: answer() == expected, 10, f"{policy!r} is known to the leader")


def test_confluent_seeks_to_and_fro(cluster: ProcessCluster, new_topic: NewTopic) -> None:
    topic = new_topic()
    Confluent().produce(cluster.bootstrap, topic, rows(20))
    unused = {"group.id": "unused", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, **unused})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])

        def next_offset() -> int:
            def read() -> list[int]:
                return [place_of(each)[1] for each in consumer.consume(1, 0.2) if not each.error()]

            return wait_until(read, 15, "a record", every=0)[0]

        assert next_offset() == 0
        for offset in (17, 3, 0, 19):
            consumer.seek(TopicPartition(topic, 0, offset))
            assert next_offset() == offset
    finally:
        consumer.close()


def test_confluent_elects_preferred_leaders(cluster: ProcessCluster, new_topic: NewTopic) -> None:
    place = TopicPartition(new_topic(), 0)
    from confluent_kafka import ElectionType

    elected = cluster.admin.elect_leaders(ElectionType.PREFERRED, [place]).result(20)
    error = elected[place]
    assert error is not None and error.code() == KafkaError.ELECTION_NOT_NEEDED


def test_confluent_replaces_all_settings_of_a_topic(
    cluster: ProcessCluster, new_topic: NewTopic
) -> None:
    topic = new_topic(config={"retention.ms": "12345"})
    change = ConfigResource(ResourceType.TOPIC, topic, set_config={"segment.bytes": "1048576"})
    cluster.admin.alter_configs([change])[change].result(10)

    def settings() -> dict[str, str]:
        asked = ConfigResource(ResourceType.TOPIC, topic)
        found = cluster.admin.describe_configs([asked])[asked].result(10)
        return {name: entry.value for name, entry in found.items() if not entry.is_default}

    wait_until(
        lambda: settings().get("segment.bytes") == "1048576" and "retention.ms" not in settings(),
        10,
        "one setting instead of the other",
    )


def test_confluent_is_told_that_security_is_off(cluster: ProcessCluster) -> None:
    every: Any = None  # as documented; the client's types forbid it
    asked = AclBindingFilter(
        ResourceType.ANY,
        every,
        ResourcePatternType.ANY,
        every,
        every,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    one = AclBinding(
        ResourceType.TOPIC,
        "t",
        ResourcePatternType.LITERAL,
        "User:ann",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    for refused in (
        cluster.admin.create_acls([one])[one],
        cluster.admin.delete_acls([asked])[asked],
    ):
        with pytest.raises(KafkaException) as error:
            refused.result(10)
        assert error.value.args[0].code() == KafkaError.SECURITY_DISABLED
    # librdkafka takes the refusal of this one for an empty list.
    assert cluster.admin.describe_acls(asked).result(10) == []
    credentials = cluster.admin.describe_user_scram_credentials()
    assert isinstance(credentials, Future), "of all users together"
    assert credentials.result(10) == {}


# -- kafka-python -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def admin(cluster: ProcessCluster) -> Iterator[Any]:
    client = kafka.KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    yield client
    client.close()


def test_kafka_python_creates_changes_and_deletes_topics(
    cluster: ProcessCluster, admin: Any
) -> None:
    topic = f"of-kafka-python-{next(NUMBERS)}"
    made = {topic: {"num_partitions": 2, "replication_factor": 3, "configs": {"flush.ms": "7"}}}
    admin.create_topics(made)
    with pytest.raises(kafka.errors.TopicAlreadyExistsError):
        admin.create_topics(made)
    cluster.wait_whole(topic)
    admin.create_partitions({topic: 3})
    wait_until(lambda: len(admin.describe_topics([topic])[0]["partitions"]) == 3, 10, "three")
    resource = Resource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": "9999"})
    admin.alter_configs([resource])

    def settings() -> Any:
        return admin.describe_configs([Resource(ConfigResourceType.TOPIC, topic)])["topic"][topic]

    wait_until(lambda: set(settings()) >= {"retention.ms", "flush.ms"}, 10, "both are set")
    admin.reset_configs([Resource(ConfigResourceType.TOPIC, topic, configs={"flush.ms": None})])
    wait_until(lambda: "flush.ms" not in settings(), 10, "one is reset")
    admin.delete_topics([topic])
    with pytest.raises(kafka.errors.UnknownTopicOrPartitionError):
        admin.delete_topics([topic])


def test_kafka_python_deletes_records_seeks_and_finds_offsets(
    cluster: ProcessCluster, new_topic: NewTopic, admin: Any
) -> None:
    place = Partition(new_topic(), 0)
    Confluent().produce(cluster.bootstrap, place.topic, rows(10))
    admin.delete_records({place: 4})
    for spec, offset in ((Spec.EARLIEST, 4), (Spec.LATEST, 10)):
        assert admin.list_partition_offsets({place: spec})[place].offset == offset
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=cluster.bootstrap, group_id=None, enable_auto_commit=False
    )
    try:
        consumer.assign([place])
        assert consumer.beginning_offsets([place]) == {place: 4}
        assert consumer.end_offsets([place]) == {place: 10}
        assert consumer.offsets_for_times({place: FIRST_MS + 7})[place].offset == 7
        for offset in (9, 5):
            consumer.seek(place, offset)
            read = wait_until(lambda: consumer.poll(500).get(place), 15, "records")
            assert [record.offset for record in read] == list(range(offset, 10))
    finally:
        consumer.close()


def test_kafka_python_changes_and_deletes_a_groups_offsets(
    cluster: ProcessCluster, new_topic: NewTopic, admin: Any
) -> None:
    place, group = Partition(new_topic(), 0), f"kafka-python-{next(NUMBERS)}"
    Confluent().produce(cluster.bootstrap, place.topic, rows(10))

    def committed() -> int | None:
        found = admin.list_group_offsets({group: None})[group].get(place)
        return None if found is None else int(found.offset)

    admin.alter_group_offsets(group, {place: kafka.OffsetAndMetadata(5, "", -1)})
    assert committed() == 5
    assert admin.describe_groups([group])[group]["group_state"] == "Empty"
    admin.delete_group_offsets(group, [place])
    assert committed() is None
    admin.alter_group_offsets(group, {place: kafka.OffsetAndMetadata(6, "", -1)})
    admin.delete_groups([group])
    assert group not in str(admin.list_groups())


def test_kafka_python_sees_the_cluster_as_it_is(
    cluster: ProcessCluster, new_topic: NewTopic, admin: Any
) -> None:
    place = Partition(new_topic(), 0)
    assert {node["broker_id"] for node in admin.describe_cluster()["brokers"]} == {1, 2, 3}
    features = admin.describe_features()
    assert features["metadata.version"]["finalized"] == (30, 30)
    assert features["group.version"]["supported"] == (0, 1)
    (quorum,) = admin.describe_metadata_quorum()["topics"]
    assert len(quorum["partitions"][0]["current_voters"]) == 3
    directories = admin.describe_log_dirs({place.topic: [0]})
    assert [row["broker"] for row in directories if row["log_dirs"][0]["topics"]] == [1, 2, 3]
    (described,) = admin.describe_topic_partitions([place.topic])["topics"]
    assert sorted(described["partitions"][0]["isr_nodes"]) == [1, 2, 3]
    resources = admin.list_config_resources()
    assert resources["broker"] == ["1", "2", "3"] and place.topic in resources["topic"]
    assert admin.list_partition_reassignments() == {}
    assert place in admin.describe_producers([place])
    validated = admin.update_features(
        {"group.version": (UpdateFeatureType.UPGRADE, 1)}, validate_only=True
    )
    assert validated == {"group.version": "OK"}


def test_kafka_python_moves_a_partition(
    cluster: ProcessCluster, new_topic: NewTopic, admin: Any
) -> None:
    place = Partition(new_topic(replicas=2), 0)
    (before,) = cluster.partitions(place.topic).values()
    (spare,) = {1, 2, 3} - set(before.replicas)
    wished = [before.replicas[0], spare]
    admin.alter_partition_reassignments({place: wished})
    wait_until(
        lambda: (
            cluster.partitions(place.topic)[0].isr == wished
            and not admin.list_partition_reassignments()
        ),
        20,
        "moved",
    )


def test_kafka_python_sees_no_transaction_where_there_is_none(admin: Any) -> None:
    def unknown() -> bool:
        try:
            admin.describe_transactions(["nobody"])
        except kafka.errors.CoordinatorLoadInProgressError:  # the first question makes the topic
            return False
        except kafka.errors.TransactionalIdNotFoundError:
            return True
        raise AssertionError("described")

    assert wait_until(unknown, 30, "the coordinators have loaded")


def test_kafka_python_finds_no_hanging_transaction(cluster: ProcessCluster, admin: Any) -> None:
    def hanging() -> list[Any] | None:
        try:
            return [admin.find_hanging_transactions()]
        except kafka.errors.CoordinatorLoadInProgressError:  # the first question makes the topic
            return None

    assert wait_until(hanging, 30, "the coordinators have loaded") == [[]]


def test_kafka_python_is_told_that_security_is_off(admin: Any) -> None:
    what = {"host": "*", "resource_pattern": ResourcePattern(Kind.TOPIC, "t")}
    with pytest.raises(kafka.errors.SecurityDisabledError):
        admin.describe_acls(
            ACLFilter(
                None, operation=ACLOperation.ANY, permission_type=ACLPermissionType.ANY, **what
            )
        )
    made = admin.create_acls(
        [
            ACL(
                "User:ann",
                operation=ACLOperation.READ,
                permission_type=ACLPermissionType.ALLOW,
                **what,
            )
        ]
    )
    assert made["failed"] and not made["succeeded"]
    assert admin.describe_user_scram_credentials() == {}


# -- aiokafka ---------------------------------------------------------------------------------------------------


def test_aiokafka_creates_changes_reads_and_deletes(cluster: ProcessCluster) -> None:
    topic, group = f"of-aiokafka-{next(NUMBERS)}", f"aiokafka-{next(NUMBERS)}"
    asyncio.run(_aiokafka(cluster, topic, group))


async def _aiokafka(cluster: ProcessCluster, topic: str, group: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    await admin.start()
    try:
        made = await admin.create_topics([AioNewTopic(topic, 1, 3)])
        assert made.topic_errors[0][1] == 0
        again = await admin.create_topics([AioNewTopic(topic, 1, 3)])
        assert again.topic_errors[0][1] == KafkaError.TOPIC_ALREADY_EXISTS
        more = await admin.create_partitions({topic: AioNewPartitions(2)})
        assert more.topic_errors[0][1] == 0
        cluster.wait_whole(topic)
        (described,) = await admin.describe_topics([topic])
        assert len(described["partitions"]) == 2
        assert len((await admin.describe_cluster())["brokers"]) == 3
        await _aiokafka_settings(admin, topic)
        await _aiokafka_records(cluster, admin, topic, group)
        assert topic in await admin.list_topics()
        gone = await admin.delete_topics([topic])
        assert gone.topic_error_codes[0][1] == 0
        again = await admin.delete_topics([topic])
        assert again.topic_error_codes[0][1] == KafkaError.UNKNOWN_TOPIC_OR_PART
    finally:
        await admin.close()


async def _aiokafka_settings(admin: AIOKafkaAdminClient, topic: str) -> None:
    await admin.alter_configs(
        [AioResource(AioResourceType.TOPIC, topic, configs={"retention.ms": "9999999"})]
    )
    asked = AioResource(AioResourceType.TOPIC, topic, configs={"retention.ms": None})
    deadline = time.monotonic() + 10
    while True:
        (answer,) = await admin.describe_configs([asked])
        if answer.resources[0][4][0][1] == "9999999":
            return
        assert time.monotonic() < deadline, answer
        await asyncio.sleep(0.05)


async def _aiokafka_records(
    cluster: ProcessCluster, admin: AIOKafkaAdminClient, topic: str, group: str
) -> None:
    place = AioPartition(topic, 0)
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        for number in range(10):
            await producer.send_and_wait(
                topic, b"%d" % number, partition=0, timestamp_ms=FIRST_MS + number
            )
    deleted = await admin.delete_records({place: RecordsToDelete(before_offset=3)})
    assert deleted == {place: 3}
    async with AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap, group_id=group, enable_auto_commit=False
    ) as consumer:
        consumer.assign([place])
        consumer.seek(place, 6)
        read = await consumer.getmany(timeout_ms=10_000)
        assert [record.offset for record in read[place]] == [6, 7, 8, 9]
        found = await consumer.offsets_for_times({place: FIRST_MS + 5})
        assert found[place].offset == 5
        assert await consumer.beginning_offsets([place]) == {place: 3}
        assert await consumer.end_offsets([place]) == {place: 10}
        await consumer.commit({place: 7})
        assert (await admin.list_consumer_group_offsets(group))[place].offset == 7
        assert group in [name for name, _ in await admin.list_consumer_groups()]
        (described,) = await admin.describe_consumer_groups([group])
        assert described.groups[0][2] == "Empty"
        assert await admin.find_coordinator(group) in cluster.nodes
