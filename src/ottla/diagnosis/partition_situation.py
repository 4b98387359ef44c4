"""The facts of one partition, and its story, as all rules look at them."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.diagnosis.happened import Happened
from ottla.diagnosis.now import ClusterNow, Commands, PartitionNow
from ottla.diagnosis.timeline import story_of_partition
from ottla.diagnosis.words import duration


class PartitionSituation:
    def __init__(
        self,
        now: PartitionNow,
        cluster: ClusterNow,
        entries: Sequence[Happened],
        commands: Commands,
    ) -> None:
        self.now = now
        self.cluster = cluster
        self.commands = commands
        self.story = story_of_partition(entries, now.name, now.replicas, not now.out_of_sync)
        self.entries = entries

    def last(self, *kinds: str, broker: int | None = None) -> Happened | None:
        """The latest event of these kinds about this partition, or about a broker."""
        for entry in reversed(self.entries):
            if entry.kind not in kinds or entry.partition not in (None, self.now.name):
                continue
            named = entry.fields.get("brokers", [entry.fields.get("broker", entry.node)])
            if broker is None or broker in named:
                return entry
        return None

    def ago(self, entry: Happened) -> str:
        return f"{duration(self.cluster.now_ms - entry.at_ms)} ago"
