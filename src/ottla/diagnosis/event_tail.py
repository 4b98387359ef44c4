"""The newest entries of the cluster's event log. A cluster without one has no such topic."""

from __future__ import annotations

from ottla.client import Client
from ottla.client.client import EARLIEST, LATEST
from ottla.client.opening import Opening
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.internal_topics import EVENT_LOG_TOPIC

ENTRIES_MAX = 5_000


async def event_tail(client: Client, entries: int = ENTRIES_MAX) -> list[str]:
    """Values of the newest records, oldest first: one JSON object each. Empty if there is no event log."""
    try:
        await client.topic(EVENT_LOG_TOPIC)
    except KafkaError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return []
        raise
    start = await client.offset(EVENT_LOG_TOPIC, 0, EARLIEST)
    end = await client.offset(EVENT_LOG_TOPIC, 0, LATEST)
    offset = max(start, end - entries)
    found: list[str] = []
    while offset < end:
        fetched = await client.fetch(EVENT_LOG_TOPIC, 0, offset, max_wait_ms=0, opening=Opening())
        if fetched.next_offset <= offset:
            break
        found += (bytes(each.value or b"").decode(errors="replace") for each in fetched.records)
        offset = fetched.next_offset
    return found
