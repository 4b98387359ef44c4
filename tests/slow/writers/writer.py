"""Writes a record after the other until somebody ends it: FAMILY DIRECTORY TOPIC. The directory has the settings that `ottla users
add` wrote. A line for each: `sent`, or why not; what the client logs comes between."""

from __future__ import annotations

import asyncio
import json
import logging
import runpy
import subprocess
import sys
import time
from pathlib import Path

EVERY_S = 0.1
PATIENCE_MS = 5_000
REFRESH_MS = 500
"""How often metadata is asked for: a client that was refused has to find out that it is no longer."""


def say(problem: object) -> None:
    text = "sent" if problem is None else f"refused {type(problem).__name__} {problem}"
    print(text.replace("\n", " "), flush=True)


def confluent(directory: Path, topic: str) -> None:
    from confluent_kafka import KafkaException, Producer

    settings = json.loads((directory / "confluent-kafka.json").read_text())
    more = {
        "message.timeout.ms": PATIENCE_MS,
        "topic.metadata.refresh.interval.ms": REFRESH_MS,
        "error_cb": say,
    }
    producer = Producer(settings | more)
    while True:
        try:
            producer.produce(topic, b"x", on_delivery=lambda error, _: say(error))
            producer.flush()
        except KafkaException as error:
            producer.poll(0)
            say(error)
        time.sleep(EVERY_S)


def kafka_python(directory: Path, topic: str) -> None:
    from kafka import KafkaProducer

    settings = json.loads((directory / "kafka-python.json").read_text())
    # Once the broker has refused a record, the idempotent producer of kafka-python 3.0 refuses all others itself, for ever. The test
    # is about what the broker says.
    more = {
        "max_block_ms": PATIENCE_MS,
        "metadata_max_age_ms": REFRESH_MS,
        "enable_idempotence": False,
    }
    producer = KafkaProducer(**settings, **more)
    while True:
        try:
            producer.send(topic, b"x").get(PATIENCE_MS / 1000)
            say(None)
        except Exception as error:
            say(error)
        time.sleep(EVERY_S)


def aiokafka(directory: Path, topic: str) -> None:
    from aiokafka import AIOKafkaProducer

    settings = runpy.run_path(str(directory / "aiokafka.py"))["settings"]

    async def main() -> None:
        async with AIOKafkaProducer(**settings(), metadata_max_age_ms=REFRESH_MS) as producer:
            while True:
                try:
                    await asyncio.wait_for(producer.send_and_wait(topic, b"x"), PATIENCE_MS / 1000)
                    say(None)
                except Exception as error:
                    say(error)
                await asyncio.sleep(EVERY_S)

    asyncio.run(main())


def kcat(directory: Path, topic: str) -> None:
    """It reads its input to the end before it writes: one for each record."""
    words = ["kcat", "-P", "-F", str(directory / "kcat.conf"), "-t", topic]
    words += ["-X", f"message.timeout.ms={PATIENCE_MS}"]
    while True:
        done = subprocess.run(words, input="x", capture_output=True, text=True, check=False)
        print("sent" if done.returncode == 0 else f"refused {done.stderr!r}", flush=True)
        time.sleep(EVERY_S)


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stdout, level=logging.WARNING, format="log %(message)s")
    families = {
        "confluent": confluent,
        "kafka-python": kafka_python,
        "aiokafka": aiokafka,
        "kcat": kcat,
    }
    try:
        families[sys.argv[1]](Path(sys.argv[2]), sys.argv[3])
    except Exception as error:
        say(error)
