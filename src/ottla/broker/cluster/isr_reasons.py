"""Why a leader proposes another ISR, as text that travels with AlterPartition.

Kafka's request has no place for it, so it is a tagged field of our own (`wire.schema.OWN_FIELDS`). The controller
decides by it nothing: it only passes it on to the event log, which must tell each change once and with its cause.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from uuid import UUID

from ottla.events.replication import IsrCause, IsrReason, Lag

Reasons = Mapping[int, IsrReason]
"""By broker."""

TEXT_BYTES_MAX = 32_767
"""Of one request. More proposals go into the next."""
PROPOSAL_BYTES_MAX, REASON_BYTES_MAX = 56, 96
"""What one proposal and one of its reasons take at most: identifiers, numbers of 64 bits, and what separates them."""


def size_max(reasons: Reasons) -> int:
    """How much of the text a proposal takes at most."""
    return PROPOSAL_BYTES_MAX + REASON_BYTES_MAX * len(reasons)


def written(proposals: Iterable[tuple[UUID, int, Reasons]]) -> bytes:
    """[[topic id, partition, [[broker, cause, records, bytes, seconds], ...]], ...]"""
    rows = [
        [topic_id.hex, index, [[id, why.cause, *why.lag] for id, why in reasons.items()]]
        for topic_id, index, reasons in proposals
    ]
    return json.dumps(rows, separators=(",", ":")).encode()


def read(text: bytes) -> dict[tuple[UUID, int], dict[int, IsrReason]]:
    """Nothing at all if the text is not one of ours: a proposal does not fail for it."""
    try:
        return {
            (UUID(hex=topic_id), int(index)): {
                int(id): IsrReason(IsrCause(cause), Lag(int(records), int(size), seconds))
                for id, cause, records, size, seconds in reasons
            }
            for topic_id, index, reasons in json.loads(text or b"[]")
        }
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return {}
