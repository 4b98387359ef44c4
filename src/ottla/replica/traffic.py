"""What goes in and out of a topic here, in plain counters: whoever wants to know reads them.

They are attributes, and those who count add to them without a call: every produced and fetched batch is counted.
"""

from __future__ import annotations


class Traffic:
    """Of all topics, since the start of the node."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "messages_in",
        "produces",
        "replication_bytes_in",
        "replication_bytes_out",
    )

    def __init__(self) -> None:
        self.bytes_in = 0
        """Written as leader."""
        self.messages_in = 0
        self.bytes_out = 0
        """To consumers."""
        self.bytes_rejected = 0
        """Of batches that were too large."""
        self.produces = 0
        """Partitions in produce requests."""
        self.failed_produces = 0
        self.fetches = 0
        """Reads of a partition for a fetch."""
        self.failed_fetches = 0
        self.replication_bytes_in = 0
        """Copied from leaders."""
        self.replication_bytes_out = 0
        """To followers."""


class TopicTraffic(Traffic):
    """Of one topic. Who counts here counts in `every` too."""

    __slots__ = ("every",)

    def __init__(self, every: Traffic | None = None) -> None:
        super().__init__()
        self.every = Traffic() if every is None else every
