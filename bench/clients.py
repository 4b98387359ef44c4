"""The load: librdkafka through confluent-kafka, each client in a process of its own.

`python -m bench.clients NAME JSON` does one piece of work and prints one JSON object. Latency is measured from the
moment a record was *due*, not from when a busy client came to send it: a broker that stalls cannot hide it.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

IN_ENVIRONMENT = "OTTLA_BENCH_CLIENTS"
COMMON: dict[str, Any] = {"log_level": 0, **json.loads(os.environ.get(IN_ENVIRONMENT, "{}"))}
"""What every client is told besides its own settings."""
PATIENCE_S = 120.0


def use(settings: dict[str, Any]) -> None:
    """From now on every client is told this, also those in processes of their own."""
    COMMON.update(settings)
    os.environ[IN_ENVIRONMENT] = json.dumps(settings)


_running: list[subprocess.Popen[bytes]] = []


@atexit.register
def _end_clients() -> None:
    """However this process ends, nobody goes on writing to brokers that are gone."""
    for client in _running:
        client.kill()


def start(name: str, **options: Any) -> subprocess.Popen[bytes]:
    client = subprocess.Popen(
        [sys.executable, "-m", "bench.clients", name, json.dumps(options)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    _running.append(client)
    return client


def result(client: subprocess.Popen[bytes]) -> dict[str, Any]:
    printed, said = client.communicate(timeout=600)
    _running.remove(client)
    if client.returncode:
        raise RuntimeError(f"a client failed: {client.args!r}\n{said.decode()}")
    told: dict[str, Any] = json.loads(printed)
    return told


def produce(
    bootstrap: str,
    topic: str,
    partitions: int,
    size: int,
    total: int,
    compression: str = "none",
    batched: bool = True,
) -> dict[str, Any]:
    """As fast as it goes, acks=all, until `total` bytes are acknowledged."""
    failures: list[str] = []
    settings = {
        "bootstrap.servers": bootstrap,
        "acks": "all",
        "enable.idempotence": batched,
        "compression.type": compression,
        "linger.ms": 5 if batched else 0,
        "batch.size": 1_000_000 if batched else 1,
        "batch.num.messages": 100_000 if batched else 1,
        "max.in.flight.requests.per.connection": 5 if batched else 200,
        "queue.buffering.max.messages": 200_000,
        "queue.buffering.max.kbytes": 128 * 1024,
        **COMMON,
    }

    def on_delivery(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(str(error))

    producer = Producer(settings)
    payload = payloads(size)
    _warm(producer, topic, partitions, payload[0])
    count = total // size
    began = time.monotonic()
    for number in range(count):
        while True:
            try:
                producer.produce(
                    topic,
                    payload[number % len(payload)],
                    partition=number // 64 % partitions if batched else number % partitions,
                    on_delivery=on_delivery,
                )
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1024 == 0:
            producer.poll(0)
    left = producer.flush(PATIENCE_S)
    seconds = time.monotonic() - began
    if left or failures:
        raise RuntimeError(f"{left} records without an answer, {failures[:3]}")
    return {"bytes": count * size, "records": count, "seconds": seconds}


def payloads(size: int) -> list[bytes]:
    """Half of it compressible, as events are."""
    return [os.urandom(size // 2).ljust(size, b"a") for _ in range(512)]


def _warm(producer: Producer, topic: str, partitions: int, value: bytes) -> None:
    """A record to each partition, so that no connection or producer id has to be waited for later: librdkafka may ask
    for one only half a second after it was made, whoever it talks to."""
    for partition in range(partitions):
        producer.produce(topic, value, partition=partition)
    if producer.flush(PATIENCE_S):
        raise RuntimeError(f"no answer from {topic}")


def paced(
    bootstrap: str, topic: str, partitions: int, rate: float, seconds: float, size: int = 1024
) -> dict[str, Any]:
    """An open loop: a record each 1/rate seconds, whatever became of the ones before."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "enable.idempotence": True}
        | COMMON
    )
    payload = payloads(size)
    _warm(producer, topic, partitions, payload[0])
    latencies: list[float] = []
    acknowledged: list[float] = []
    failures: list[str] = []

    def acknowledged_after(due: float) -> Callable[[Any, Any], None]:
        def on_delivery(error: Any, _: Any) -> None:
            now = time.monotonic()
            if error is not None:
                failures.append(str(error))
            else:
                latencies.append(now - due)
                acknowledged.append(now)

        return on_delivery

    began = time.monotonic()
    for number in range(int(rate * seconds)):
        due = began + number / rate
        while (early := due - time.monotonic()) > 0:
            producer.poll(early)
        producer.produce(
            topic,
            payload[number % len(payload)],
            partition=number % partitions,
            on_delivery=acknowledged_after(due),
        )
        producer.poll(0)
    left = producer.flush(PATIENCE_S)
    if left or failures:
        raise RuntimeError(f"{left} records without an answer, {failures[:3]}")
    gaps = [later - earlier for earlier, later in pairwise(acknowledged)]
    return {**percentiles(latencies), "silence_ms": 1000 * max(gaps, default=0.0)}


def end_to_end(bootstrap: str, topic: str, rate: float, seconds: float) -> dict[str, Any]:
    """From when a record was due until a consumer has it."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False} | COMMON
    )
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0} | COMMON)
    _warm(producer, topic, 1, b"0.0")
    start = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1]
    consumer.assign([TopicPartition(topic, 0, start)])
    consumer.poll(1.0)  # has nothing to give, and connects
    latencies: list[float] = []
    count = int(rate * seconds)
    began = time.monotonic()
    sent = 0
    while len(latencies) < count:
        now = time.monotonic()
        if sent < count and now >= began + sent / rate:
            producer.produce(topic, repr(began + sent / rate).encode().ljust(1024))
            sent += 1
        producer.poll(0)
        due_in = began + sent / rate - time.monotonic() if sent < count else 0.1
        message = consumer.poll(max(0.0, min(due_in, 0.001)))
        if message is not None:
            if message.error():
                raise KafkaException(message.error())
            latencies.append(time.monotonic() - float(message.value() or b""))
        if now > began + seconds + PATIENCE_S:
            raise RuntimeError(f"{len(latencies)} of {count} records arrived")
    return percentiles(latencies)


def consume(
    bootstrap: str, topic: str, partitions: int, total: int, from_end: bool = False
) -> dict[str, Any]:
    """Until `total` bytes have come, from the beginning or from where the log ends now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 1 << 20,
            "queued.max.messages.kbytes": 64 * 1024,
            "fetch.queue.backoff.ms": 10,  # by default it rests a second when a broker is faster than it reads
        }
        | COMMON
    )
    starts = []
    for partition in range(partitions):
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
        starts.append(TopicPartition(topic, partition, high if from_end else low))
    consumer.assign(starts)
    received = records = 0
    began = time.monotonic()
    while received < total:
        for message in consumer.consume(10_000, timeout=0.05):
            if message.error():
                raise KafkaException(message.error())
            received += len(message.value() or b"")
            records += 1
        if time.monotonic() > began + PATIENCE_S:
            raise RuntimeError(f"{received} of {total} bytes arrived")
    return {"bytes": received, "records": records, "seconds": time.monotonic() - began}


def percentiles(latencies: list[float]) -> dict[str, float]:
    ranked = sorted(latencies)

    def at(share: float) -> float:
        return 1000 * ranked[min(len(ranked) - 1, int(share * len(ranked)))]

    return {"p50_ms": at(0.5), "p99_ms": at(0.99), "p999_ms": at(0.999)}


WORK: dict[str, Callable[..., dict[str, Any]]] = {
    "produce": produce,
    "paced": paced,
    "end_to_end": end_to_end,
    "consume": consume,
}

if __name__ == "__main__":
    print(json.dumps(WORK[sys.argv[1]](**json.loads(sys.argv[2]))))
