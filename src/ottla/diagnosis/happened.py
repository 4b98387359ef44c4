"""Something that happened, as explanations read it: from the event log, or derived from the metadata log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

UNKNOWN_NODE = -1


@dataclass(frozen=True, slots=True)
class Happened:
    at_ms: int
    kind: str
    """As in the event log."""
    node: int
    """Who wrote it down."""
    partition: str | None
    """`orders-0`."""
    cause: str | None
    fields: Mapping[str, Any]
