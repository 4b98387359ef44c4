"""Transactional producers of three clients behind one small face, and readers at both isolation levels."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

import aiokafka
import confluent_kafka
import kafka
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError

from support.messages import value_of

TIMEOUT_S = 30


class Transactional(Protocol):
    """Made with the cluster's address and a transactional id; has its producer id by then."""

    name: str

    def begin(self) -> None: ...
    def send(self, topic: str, value: str, partition: int = 0) -> None:
        """Returns when the record is in the log; if it is not, this fails or `commit` does."""

    def offsets(self, committed: Mapping[tuple[str, int], int], group: str) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class ConfluentTransactions:
    name = "confluent-kafka"

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self.producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        self.bootstrap = bootstrap
        self.producer.init_transactions(TIMEOUT_S)

    def begin(self) -> None:
        self.producer.begin_transaction()

    def send(self, topic: str, value: str, partition: int = 0) -> None:
        self.producer.produce(topic, value.encode(), partition=partition)
        assert self.producer.flush(TIMEOUT_S) == 0

    def offsets(self, committed: Mapping[tuple[str, int], int], group: str) -> None:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        places = [
            confluent_kafka.TopicPartition(topic, number, offset)
            for (topic, number), offset in committed.items()
        ]
        self.producer.send_offsets_to_transaction(
            places, consumer.consumer_group_metadata(), TIMEOUT_S
        )
        consumer.close()

    def commit(self) -> None:
        self.producer.commit_transaction(TIMEOUT_S)

    def abort(self) -> None:
        self.producer.abort_transaction(TIMEOUT_S)

    def close(self) -> None:
        self.producer.flush(0)


class KafkaPythonTransactions:
    name = "kafka-python"

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self.producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap.split(","),
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
        )
        self.producer.init_transactions()

    def begin(self) -> None:
        self.producer.begin_transaction()

    def send(self, topic: str, value: str, partition: int = 0) -> None:
        self.producer.send(topic, value.encode(), partition=partition).get(TIMEOUT_S)

    def offsets(self, committed: Mapping[tuple[str, int], int], group: str) -> None:
        self.producer.send_offsets_to_transaction(
            {
                kafka.TopicPartition(topic, number): kafka.OffsetAndMetadata(offset, "", -1)
                for (topic, number), offset in committed.items()
            },
            group,
        )

    def commit(self) -> None:
        self.producer.commit_transaction()

    def abort(self) -> None:
        self.producer.abort_transaction()

    def close(self) -> None:
        self.producer.close(5)


class AiokafkaTransactions:
    name = "aiokafka"

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self.loop = asyncio.new_event_loop()

        async def start() -> Any:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
            )
            await producer.start()
            return producer

        self.producer = self._run(start())

    def _run(self, work: Any) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(work, TIMEOUT_S))

    def begin(self) -> None:
        self._run(self.producer.begin_transaction())

    def send(self, topic: str, value: str, partition: int = 0) -> None:
        self._run(self.producer.send_and_wait(topic, value.encode(), partition=partition))

    def offsets(self, committed: Mapping[tuple[str, int], int], group: str) -> None:
        places = {
            aiokafka.TopicPartition(topic, number): offset
            for (topic, number), offset in committed.items()
        }
        self._run(self.producer.send_offsets_to_transaction(places, group))

    def commit(self) -> None:
        self._run(self.producer.commit_transaction())

    def abort(self) -> None:
        self._run(self.producer.abort_transaction())

    def close(self) -> None:
        self._run(self.producer.stop())
        self.loop.close()


CLIENTS = (ConfluentTransactions, KafkaPythonTransactions, AiokafkaTransactions)


def read(bootstrap: str, topic: str, partition: int = 0, *, committed: bool = True) -> list[str]:
    """Everything that can be read now, with librdkafka."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "log_level": 0,
        }
    )
    values = []
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, "no end of the partition"
            error = message.error()
            if error is None:
                values.append(value_of(message).decode())
            elif error.code() == KafkaError._PARTITION_EOF:
                return values
            else:
                raise confluent_kafka.KafkaException(error)
    finally:
        consumer.close()


def read_with_kafka_python(bootstrap: str, topic: str, count: int) -> list[str]:
    """The first `count` committed values of partition 0; fewer if no more come."""
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap.split(","),
        group_id=None,
        enable_auto_commit=False,
        isolation_level="read_committed",
        consumer_timeout_ms=3000,
    )
    place = kafka.TopicPartition(topic, 0)
    values: list[str] = []
    try:
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        for message in consumer:
            values.append(message.value.decode())
            if len(values) == count:
                break
    finally:
        consumer.close()
    return values


def read_with_aiokafka(bootstrap: str, topic: str, count: int) -> list[str]:
    async def receive() -> list[str]:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=None,
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        values: list[str] = []
        async with consumer:
            place = aiokafka.TopicPartition(topic, 0)
            consumer.assign([place])
            await consumer.seek_to_beginning(place)
            while len(values) < count:
                batches = await consumer.getmany(timeout_ms=3000)
                if not batches:
                    break
                values += [message.value.decode() for message in batches.get(place, [])]
        return values

    return asyncio.run(receive())
