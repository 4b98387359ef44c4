"""The entries of the event log: over the network from any replica that answers, or from a disk.

Explanations look at the last day. An entry that cannot be read is left out: an explanation must not fail because of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ottla.client import Client, Unreachable
from ottla.diagnosis.disks import log_directories, segments
from ottla.diagnosis.happened import Happened
from ottla.event_log.entry import entries
from ottla.records.batch import CorruptBatch, batches
from ottla.records.record import Record, records
from ottla.wire.errors import ErrorCode, KafkaError

DAY_MS = 24 * 60 * 60_000
EVENTS_TOPIC = "__ottla_events"


async def fetched_history(client: Client, now_ms: int) -> tuple[list[Happened], str]:
    """What happened in the last day, and why that is not known, if so."""
    try:
        await client.metadata([EVENTS_TOPIC])
        offset = await client.offset(EVENTS_TOPIC, 0, now_ms - DAY_MS)
        found: list[Record] = []
        while True:
            fetched = await client.fetch(EVENTS_TOPIC, 0, offset, max_wait_ms=0)
            found += fetched.records
            if fetched.next_offset <= offset or fetched.next_offset >= fetched.high_watermark:
                return _happened(found), ""
            offset = fetched.next_offset
    except KafkaError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return [], (
                f"What happened before: this cluster has no event log (topic {EVENTS_TOPIC}). Apache Kafka keeps none."
            )
        reason = str(error)
    except (OSError, Unreachable) as error:
        reason = str(error) or "no answer in time"
    return [], f"What happened before: the event log cannot be read ({reason})."


def stored_history(nodes: Iterable[Path]) -> list[Happened]:
    """From the disk that has most of it."""
    found = [
        _stored(place)
        for node in nodes
        for directory in log_directories(node)
        if (place := directory / f"{EVENTS_TOPIC}-0").is_dir()
    ]
    return max(found, key=lambda each: (each[-1].at_ms if each else 0, len(each)), default=[])


def _stored(directory: Path) -> list[Happened]:
    found: list[Record] = []
    for data in segments(directory):
        try:
            for batch in batches(data, allow_partial=True):
                if not batch.is_control:
                    found += records(data, batch)
        except CorruptBatch:
            break
    return _happened(found)


def _happened(found: Iterable[Record]) -> list[Happened]:
    """By time: each node has a clock of its own, and writes when it can."""
    return sorted(
        (
            Happened(
                each.at_ms,
                each.kind,
                each.node,
                each.members()["partition"],
                each.told.cause,
                each.told.fields,
            )
            for each in entries(found)
        ),
        key=lambda each: each.at_ms,
    )
