"""A streaming query without a JVM: the stream reader is used as Spark's engine uses it. Needs PySpark, not Java."""

from __future__ import annotations

import json
import pickle
from typing import Any

from pyspark.sql.types import StructType

from pyspark_ottla import DefaultSource


class Engine:
    """One streaming query: its checkpoint is `end`."""

    def __init__(self, bootstrap: str, topic: str, **options: Any) -> None:
        given = {name.replace("__", "."): str(value) for name, value in options.items()}
        self.options = {
            "kafka.bootstrap.servers": bootstrap,
            "subscribe": topic,
            "startingOffsets": "earliest",
            **given,
        }
        self.source = DefaultSource(self.options)
        self.end: str | None = None
        self.start()

    def start(self) -> None:
        """As after a crash of the driver: only the checkpoint is left."""
        schema = self.source.schema()
        assert isinstance(schema, StructType)
        self.schema = schema
        self.reader = self.source.streamReader(schema)

    def batch(self, limit: Any = None) -> list[int] | None:
        """The numbers of the next micro-batch; None if there is none."""
        if self.end is None:
            self.end = json.dumps(self.reader.initialOffset())
        limit = self.reader.getDefaultReadLimit() if limit is None else limit
        start = self.end
        end = json.dumps(self.reader.latestOffset(json.loads(start), limit))
        if end == start:
            return None
        numbers = self.read(start, end)
        self.end = end
        return numbers

    def read(self, start: str, end: str) -> list[int]:
        tasks = self.reader.partitions(json.loads(start), json.loads(end))
        copy = pickle.loads(pickle.dumps(self.source.streamReader(self.schema)))
        return sorted(
            int(value)
            for task in tasks
            for batch in copy.read(pickle.loads(pickle.dumps(task)))
            for value in batch.column("value").to_pylist()
        )

    @property
    def marks(self) -> Any:
        assert self.end is not None
        (topic,) = json.loads(self.end)["topics"].values()
        return topic["partitions"]
