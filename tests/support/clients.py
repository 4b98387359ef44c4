"""Four Kafka clients behind one small face: write rows to partition 0, read them from there.

Each is used as its own documentation says, with assigned partitions (no consumer group).
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import aiokafka
import confluent_kafka
import kafka

from support.messages import headers_of

CODECS: tuple[str, ...] = ("none", "gzip", "snappy", "lz4", "zstd")
TIMEOUT_S = 30
FIRST_MS = int(time.time() * 1000) - 60_000
"""Timestamp of the first of the `rows`; each later one is a millisecond younger. Recent, because records
older than the retention time may vanish at any moment."""


class Row(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = 0
    """0: let the client take the time of sending."""


def rows(count: int, size: int = 100, *, null_headers: bool = False) -> list[Row]:
    """Rows with and without keys, values and headers; half of each value can be packed."""
    draw = random.Random(count)
    headers: tuple[tuple[str, bytes | None], ...] = (("empty", b""),)
    if null_headers:
        headers += (("none", None),)
    return [
        Row(
            None if i % 5 == 0 else b"key-%d" % (i % 17),
            None if i % 5 == 3 else draw.randbytes(size // 2) + bytes(size // 2),
            (("number", b"%d" % i), *headers) if i % 3 == 0 else (),
            FIRST_MS + i,
        )
        for i in range(count)
    ]


class Client(Protocol):
    codecs: tuple[str, ...]
    """What it can pack and unpack with what is installed here."""

    def produce(
        self,
        bootstrap: str,
        topic: str,
        rows: list[Row],
        *,
        acks: str = "all",
        codec: str = "none",
        idempotent: bool = False,
    ) -> list[int] | None:
        """The offsets that were reported, where the client reports any."""

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Row]:
        """The first `count` rows; fewer if no more came in time."""


class Confluent:
    codecs = CODECS

    def produce(
        self,
        bootstrap: str,
        topic: str,
        rows: list[Row],
        *,
        acks: str = "all",
        codec: str = "none",
        idempotent: bool = False,
        config: Mapping[str, Any] | None = None,
    ) -> list[int] | None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": acks,
                "compression.type": codec,
                "enable.idempotence": idempotent,
                "message.timeout.ms": TIMEOUT_S * 1000,
                "queue.buffering.max.messages": 1_000_000,
                **(config or {}),
            }
        )
        offsets: dict[int, int] = {}
        errors: list[str] = []

        def delivered(number: int) -> Any:
            def callback(error: Any, message: Any) -> None:
                if error is not None:
                    errors.append(f"{number}: {error}")
                else:
                    offsets[number] = message.offset()

            return callback

        for number, row in enumerate(rows):
            producer.produce(
                topic,
                row.value,
                row.key,
                partition=0,
                on_delivery=delivered(number),
                timestamp=row.timestamp_ms,
                headers=list(row.headers),
            )
            producer.poll(0)
        assert producer.flush(TIMEOUT_S) == 0, "not all rows were sent"
        assert not errors, errors[:3]
        return None if acks == "0" else [offsets[i] for i in range(len(rows))]

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Row]:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
            }
        )
        rows: list[Row] = []
        try:
            beginning = confluent_kafka.OFFSET_BEGINNING
            consumer.assign([confluent_kafka.TopicPartition(topic, 0, beginning)])
            deadline = time.monotonic() + TIMEOUT_S
            while len(rows) < count and time.monotonic() < deadline:
                for message in consumer.consume(count - len(rows), 0.2):
                    assert message.error() is None, message.error()
                    assert message.offset() == len(rows)
                    rows.append(
                        Row(
                            message.key(),
                            message.value(),
                            headers_of(message),
                            message.timestamp()[1],
                        )
                    )
        finally:
            consumer.close()
        return rows


class KafkaPython:
    codecs = CODECS

    def produce(
        self,
        bootstrap: str,
        topic: str,
        rows: list[Row],
        *,
        acks: str = "all",
        codec: str = "none",
        idempotent: bool = False,
    ) -> list[int] | None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap.split(","),
            acks=acks if acks == "all" else int(acks),
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            linger_ms=5,
            batch_size=65536,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    row.value,
                    row.key,
                    list(row.headers),
                    partition=0,
                    timestamp_ms=row.timestamp_ms or None,
                )
                for row in rows
            ]
            producer.flush(TIMEOUT_S)
            offsets = [future.get(TIMEOUT_S).offset for future in futures]
        finally:
            producer.close(TIMEOUT_S)
        return None if acks == "0" else offsets

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Row]:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap.split(","),
            group_id=None,
            enable_auto_commit=False,
            consumer_timeout_ms=TIMEOUT_S * 1000,
            max_partition_fetch_bytes=4 << 20,
        )
        partition = kafka.TopicPartition(topic, 0)
        rows: list[Row] = []
        try:
            consumer.assign([partition])
            consumer.seek_to_beginning(partition)
            for message in consumer:
                assert message.offset == len(rows)
                headers = tuple((key, value) for key, value in message.headers)
                rows.append(Row(message.key, message.value, headers, message.timestamp))
                if len(rows) == count:
                    break
        finally:
            consumer.close()
        return rows


class Aiokafka:
    codecs = CODECS

    def produce(
        self,
        bootstrap: str,
        topic: str,
        rows: list[Row],
        *,
        acks: str = "all",
        codec: str = "none",
        idempotent: bool = False,
    ) -> list[int] | None:
        async def send() -> list[Any]:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                acks=acks if acks == "all" else int(acks),
                compression_type=None if codec == "none" else codec,
                enable_idempotence=idempotent,
                linger_ms=5,
                max_batch_size=65536,
                max_request_size=4 << 20,
            )
            async with producer:
                futures = [
                    await producer.send(
                        topic, row.value, row.key, 0, row.timestamp_ms or None, list(row.headers)
                    )
                    for row in rows
                ]
                await producer.flush()
                return list(await asyncio.gather(*futures))

        sent = asyncio.run(asyncio.wait_for(send(), TIMEOUT_S))
        return None if acks == "0" else [each.offset for each in sent]

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Row]:
        async def receive() -> list[Row]:
            consumer = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=bootstrap,
                group_id=None,
                enable_auto_commit=False,
                max_partition_fetch_bytes=4 << 20,
            )
            rows: list[Row] = []
            async with consumer:
                partition = aiokafka.TopicPartition(topic, 0)
                consumer.assign([partition])
                await consumer.seek_to_beginning(partition)
                deadline = time.monotonic() + TIMEOUT_S
                while len(rows) < count and time.monotonic() < deadline:
                    batches = await consumer.getmany(timeout_ms=200, max_records=count - len(rows))
                    for message in batches.get(partition, []):
                        assert message.offset == len(rows)
                        headers = tuple(message.headers)
                        rows.append(Row(message.key, message.value, headers, message.timestamp))
            return rows

        return asyncio.run(receive())


class Kcat:
    """Text only: keys and values without tabs and newlines. Sets no timestamps and gives every row the
    headers of the first one."""

    codecs = CODECS

    def produce(
        self,
        bootstrap: str,
        topic: str,
        rows: list[Row],
        *,
        acks: str = "all",
        codec: str = "none",
        idempotent: bool = False,
    ) -> list[int] | None:
        lines = b"".join(b"%s\t%s\n" % (row.key, row.value) for row in rows)
        headers = [f"-H{key}={(value or b'').decode()}" for key, value in rows[0].headers]
        self.run(
            "-P",
            *("-b", bootstrap, "-t", topic, "-p", "0", "-K", "\t", *headers),
            *("-X", f"acks={acks}", "-X", f"compression.codec={codec}"),
            *("-X", f"enable.idempotence={str(idempotent).lower()}"),
            stdin=lines,
        )
        return None

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Row]:
        output = self.run(
            *("-C", "-b", bootstrap, "-t", topic, "-p", "0", "-o", "beginning"),
            *("-c", str(count), "-J", "-X", "check.crcs=true"),
        )
        rows = []
        for line in output.splitlines():
            message = json.loads(line)
            names, values = message.get("headers", [])[::2], message.get("headers", [])[1::2]
            headers = tuple((k, _encoded(v)) for k, v in zip(names, values, strict=True))
            key, value = _encoded(message["key"]), _encoded(message["payload"])
            rows.append(Row(key, value, headers, message["ts"]))
        return rows

    def run(self, *arguments: str, stdin: bytes = b"") -> bytes:
        done = subprocess.run(
            ["kcat", *arguments], input=stdin, capture_output=True, timeout=TIMEOUT_S
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return done.stdout


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


CLIENTS: dict[str, Client] = {
    "confluent": Confluent(),
    "kafka-python": KafkaPython(),
    "aiokafka": Aiokafka(),
    "kcat": Kcat(),
}
