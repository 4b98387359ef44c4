"""Groups and transactions of real clients with exactly the rights that they need, without them, and when a right is taken away.

Nobody logs in here, so nodes and clients are one principal, User:ANONYMOUS. It may do everything with what has no ACL, which is how
the nodes work. What a test closes by giving a right to somebody else, ANONYMOUS has to be allowed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import aiokafka
import aiokafka.errors
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from ottla.config.values import STANDARD_AUTHORIZER
from support.cluster import ProcessCluster, wait_until

SETTINGS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "allow.everyone.if.no.acl.found": "true",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
TOPIC, GROUP, TXN = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
WAIT_S = 20.0


class Rights:
    """Of ANONYMOUS in one cluster."""

    def __init__(self, cluster: ProcessCluster) -> None:
        self.cluster = cluster
        self.bootstrap = cluster.bootstrap

    def close(self, kind: Any, name: str) -> None:
        self._change(kind, name, AclOperation.ALTER_CONFIGS, "User:nobody")

    def give(self, kind: Any, name: str, operation: Any) -> None:
        self._change(kind, name, operation, "User:ANONYMOUS")

    def _change(self, kind: Any, name: str, operation: Any, principal: str) -> None:
        acl = AclBinding(
            kind,
            name,
            ResourcePatternType.LITERAL,
            principal,
            "*",
            operation,
            AclPermissionType.ALLOW,
        )
        for done in self.cluster.admin.create_acls([acl]).values():
            done.result(WAIT_S)

    def take(self, kind: Any, name: str, operation: Any) -> None:
        wanted = AclBindingFilter(
            kind,
            name,
            ResourcePatternType.LITERAL,
            "User:ANONYMOUS",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )
        for done in self.cluster.admin.delete_acls([wanted]).values():
            assert len(done.result(WAIT_S)) == 1


@pytest.fixture(scope="module")
def rights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rights]:
    with ProcessCluster(tmp_path_factory.mktemp("rights"), 1, SETTINGS) as cluster:
        yield Rights(cluster)


def filled_topic(rights: Rights, name: str) -> str:
    rights.cluster.create_topic(name, partitions=1, replicas=1)
    producer = Producer({"bootstrap.servers": rights.bootstrap, "linger.ms": 0})
    for number in range(5):
        producer.produce(name, str(number).encode())
    assert producer.flush(WAIT_S) == 0
    return name


def consumer_of(rights: Rights, group: str, protocol: str) -> Consumer:
    settings: dict[str, Any] = {
        "bootstrap.servers": rights.bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "topic.metadata.refresh.interval.ms": 300,
        "log_level": 0,
    }
    if protocol == "classic":
        settings["heartbeat.interval.ms"] = 200
    return Consumer(settings)


def next_of(consumer: Consumer) -> bytes | int:
    """The value of the next record, or the code of the next error."""

    def polled() -> Any:
        return consumer.poll(0.2)

    message = wait_until(polled, WAIT_S, "a record or an error", every=0.0)
    error = message.error()
    return message.value() if error is None else error.code()


def until_code(consumer: Consumer, code: int) -> None:
    wait_until(lambda: next_of(consumer) == code, WAIT_S, f"error {code}", every=0.0)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_consumer_reads_with_read_on_topic_and_group_and_nothing_less(
    rights: Rights, protocol: str
) -> None:
    topic, group = filled_topic(rights, f"orders-{protocol}"), f"billing-{protocol}"
    rights.close(TOPIC, topic)
    rights.close(GROUP, group)
    stranger = consumer_of(rights, group, protocol)
    stranger.subscribe([topic])
    until_code(stranger, KafkaError.GROUP_AUTHORIZATION_FAILED)
    stranger.close()
    rights.give(GROUP, group, READ)
    stranger = consumer_of(rights, group, protocol)
    stranger.subscribe([topic])
    until_code(stranger, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    stranger.close()
    rights.give(TOPIC, topic, READ)
    consumer = consumer_of(rights, group, protocol)
    consumer.subscribe([topic])
    assert [next_of(consumer) for _ in range(5)] == [b"0", b"1", b"2", b"3", b"4"]
    consumer.commit(asynchronous=False)
    rights.take(GROUP, group, READ)
    places = consumer.position(consumer.assignment())
    with pytest.raises(KafkaException) as refused:
        consumer.commit(offsets=places, asynchronous=False)
    assert refused.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    consumer.close()


def test_aiokafkas_consumer_is_told_which_right_it_lacks(rights: Rights) -> None:
    topic, group = filled_topic(rights, "orders-aio"), "billing-aio"
    rights.close(TOPIC, topic)
    rights.close(GROUP, group)

    async def read() -> list[bytes]:
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=rights.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
        )
        try:
            await asyncio.wait_for(consumer.start(), WAIT_S)
            return [(await asyncio.wait_for(consumer.getone(), WAIT_S)).value for _ in range(5)]
        finally:
            await consumer.stop()

    rights.give(TOPIC, topic, READ)
    with pytest.raises(aiokafka.errors.GroupAuthorizationFailedError):
        asyncio.run(read())
    rights.give(GROUP, group, READ)
    assert asyncio.run(read()) == [b"0", b"1", b"2", b"3", b"4"]


def transactional(rights: Rights, id: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": rights.bootstrap,
            "transactional.id": id,
            "linger.ms": 0,
            "log_level": 0,
        }
    )


def failure(work: Any, *arguments: Any) -> int:
    with pytest.raises(KafkaException) as failed:
        work(*arguments)
    code: int = failed.value.args[0].code()
    return code


def test_a_transactional_producer_needs_write_on_its_id_and_its_topics(rights: Rights) -> None:
    topic, id = filled_topic(rights, "payments"), "payer"
    rights.close(TOPIC, topic)
    rights.close(TXN, id)
    denied = KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert failure(transactional(rights, id).init_transactions, WAIT_S) == denied
    rights.give(TXN, id, DESCRIBE)
    assert failure(transactional(rights, id).init_transactions, WAIT_S) == denied
    rights.give(TXN, id, WRITE)
    rights.give(TOPIC, topic, DESCRIBE)
    producer = transactional(rights, id)
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"refused")
    producer.flush(WAIT_S)
    unwritable = KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert failure(producer.commit_transaction, WAIT_S) == unwritable
    rights.give(TOPIC, topic, WRITE)
    producer = transactional(rights, id)
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"paid")
    producer.commit_transaction(WAIT_S)
    assert _committed(rights, topic) == [b"0", b"1", b"2", b"3", b"4", b"paid"]


def test_offsets_in_a_transaction_need_read_on_group_and_topic(rights: Rights) -> None:
    topic, group, id = filled_topic(rights, "inputs"), "copiers", "copier"
    consumer = consumer_of(rights, group, "classic")
    consumer.subscribe([topic])
    assert next_of(consumer) == b"0"
    rights.close(GROUP, group)
    producer = transactional(rights, id)
    producer.init_transactions(WAIT_S)

    def send_offsets() -> None:
        producer.begin_transaction()
        places = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), WAIT_S)

    assert failure(send_offsets) == KafkaError.GROUP_AUTHORIZATION_FAILED
    producer.abort_transaction(WAIT_S)
    rights.give(GROUP, group, READ)
    send_offsets()
    producer.commit_transaction(WAIT_S)
    assert consumer.committed(consumer.assignment(), WAIT_S)[0].offset == 1
    consumer.close()


def test_a_transaction_whose_right_is_taken_away_is_not_committed(rights: Rights) -> None:
    topic, id = filled_topic(rights, "fading"), "fader"
    rights.close(TXN, id)
    rights.give(TXN, id, WRITE)
    producer = transactional(rights, id)
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"never seen")
    assert producer.flush(WAIT_S) == 0
    rights.take(TXN, id, WRITE)
    denied = KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert failure(producer.commit_transaction, WAIT_S) == denied
    rights.give(TXN, id, WRITE)
    transactional(rights, id).init_transactions(WAIT_S)  # ends what was left open
    assert _committed(rights, topic) == [b"0", b"1", b"2", b"3", b"4"]


def _committed(rights: Rights, topic: str) -> list[bytes]:
    """All records of the topic, up to the end that a reader of committed records sees."""
    rights.give(TOPIC, topic, READ)
    consumer = Consumer(
        {
            "bootstrap.servers": rights.bootstrap,
            "group.id": f"checks-{topic}-{time.monotonic_ns()}",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([topic])
    found: list[bytes] = []
    while (value := next_of(consumer)) != KafkaError._PARTITION_EOF:
        assert isinstance(value, bytes), value
        found.append(value)
    consumer.close()
    return found
