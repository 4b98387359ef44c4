"""How long a single record takes through a streaming query over a topic in which little happens."""

from __future__ import annotations

import random
import time
from typing import Self

from confluent_kafka import Producer

from support.spark_sources import SparkSource

PATIENCE_S = 120
PAUSE_S = (0.1, 0.5)
"""Between a row that has arrived and the next record: the micro-batch is over, and polls have begun again."""


class QuietStream:
    """A query that runs in a session, and the producer of the records that it waits for."""

    def __init__(
        self, spark: SparkSource, bootstrap: str, topic: str, options: dict[str, str] | None = None
    ) -> None:
        self._spark = spark
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0}
        )
        self._random = random.Random(topic)
        self._written = 0
        spark("watch", bootstrap=bootstrap, topic=topic, options=options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._spark("stop", target=self._topic)

    def latencies_ms(self, records: int) -> list[float]:
        """One record after the other, each from when it is sent until its row is in the driver."""
        return [self._one_s() * 1000 for _ in range(records)]

    def _one_s(self) -> float:
        time.sleep(self._random.uniform(*PAUSE_S))
        value = str(self._written)
        self._written += 1
        sent = time.monotonic()
        self._producer.produce(self._topic, value)
        assert self._producer.flush(PATIENCE_S) == 0, "the record was not acknowledged"
        arrived: float = self._spark("arrival", topic=self._topic, value=value)
        return arrived - sent
