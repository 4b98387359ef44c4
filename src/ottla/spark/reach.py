"""Which executors reach the brokers? `ottla spark doctor` runs this inside Spark, because only executors can tell.

Arguments: addresses of brokers, as host:port. The last line printed is JSON: per host of an executor its Python, whether it
has ottla, and why it does not reach an address (null where it does).
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
from collections.abc import Iterable, Iterator
from typing import Final, TypedDict

TIMEOUT_S: Final = 5.0
TASKS_PER_CORE: Final = 2
"""A few more tasks than cores, so that every executor gets one."""


class Report(TypedDict):
    host: str
    python: str
    ottla: str | None
    """Its version; None where it cannot be imported."""
    brokers: dict[str, str | None]


def report(addresses: Iterable[str]) -> Report:
    """What this process sees. It imports nothing of ottla before it knows that ottla is there."""
    version: str | None = None
    with contextlib.suppress(ImportError):
        from ottla import __version__ as version
    return {
        "host": socket.gethostname(),
        "python": sys.version.split()[0],
        "ottla": version,
        "brokers": {address: obstacle(address) for address in addresses},
    }


def obstacle(address: str) -> str | None:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), TIMEOUT_S).close()
    except OSError as error:
        return str(error)
    return None


def main() -> None:
    """Run as a programme, so that its functions go to the executors by value: they may have no ottla."""
    from pyspark.sql import SparkSession

    addresses = sys.argv[1:]
    spark = SparkSession.builder.appName("ottla spark doctor").getOrCreate()
    context = spark.sparkContext

    def look(_: Iterator[int]) -> Iterator[Report]:
        yield report(addresses)

    tasks = context.defaultParallelism * TASKS_PER_CORE
    found = context.parallelize(range(tasks), tasks).mapPartitions(look).collect()
    print(json.dumps({each["host"]: each for each in found}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
