"""The entries of the event log: over the network from any replica that answers, or from a disk.

Explanations look at the last day. An entry that cannot be read is left out: an explanation must not fail because of it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from pathlib import Path

from ottla.client import Client, Unreachable
from ottla.diagnosis.disks import log_directories, segments
from ottla.diagnosis.happened import Happened
from ottla.event_log.entry import entries
from ottla.records.batch import CorruptBatch, batches
from ottla.records.record import Record, records
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.internal_topics import EVENT_LOG_TOPIC

DAY_MS = 24 * 60 * 60_000


async def fetched_history(
    client: Client, now_ms: int, silent: Container[int]
) -> tuple[list[Happened], str]:
    """What happened in the last day, and what of it is not known. Brokers that are `silent` are not asked."""
    try:
        topic = (await client.metadata([EVENT_LOG_TOPIC])).topics[0]
    except KafkaError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return [], (
                f"What happened before: this cluster has no event log (topic {EVENT_LOG_TOPIC}). Apache Kafka keeps none."
            )
        return [], f"What happened before: the event log cannot be read ({error})."
    (partition,) = topic.partitions
    # The leader first. Without a controller a dead one keeps its office.
    replicas = sorted(partition.replicas, key=lambda id: id != partition.leader)
    for broker in (id for id in replicas if id not in silent):
        try:
            found = await _all_of(client, broker, now_ms - DAY_MS)
        except (KafkaError, OSError, Unreachable):
            continue
        late = "" if broker == partition.leader else (
            f"What happened last: the event log was read from broker {broker}, which does not lead it and may lack the end."
        )  # fmt: skip
        return _happened(found), late
    return [], "What happened before: no broker that has the event log answers."


async def _all_of(client: Client, broker: int, since_ms: int) -> list[Record]:
    """Of one replica, from a time on."""
    found: list[Record] = []
    offset = await client.offset_at(broker, EVENT_LOG_TOPIC, 0, since_ms)
    while offset >= 0:
        fetched = await client.fetch_from(broker, EVENT_LOG_TOPIC, 0, offset)
        found += fetched.records
        if fetched.next_offset <= offset:
            break
        offset = fetched.next_offset
    return found


def stored_history(nodes: Iterable[Path]) -> list[Happened]:
    """From the disk that has most of it."""
    found = [
        _stored(place)
        for node in nodes
        for directory in log_directories(node)
        if (place := directory / f"{EVENT_LOG_TOPIC}-0").is_dir()
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
