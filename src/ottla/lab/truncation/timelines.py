"""Plays a scripted scenario under a design, and records every replica after each step.

The cluster has no checkers that stop at the first violation: the timeline shows it, and its verdict says what was lost or
diverged.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NamedTuple

from ottla.broker.node import Node
from ottla.lab.design import Design
from ottla.lab.results import LogEntry, ReplicaMoment, Step, Timeline
from ottla.lab.truncation.agreement import ReplicaLogs, differences, first_difference_text
from ottla.lab.truncation.excuses import may_lose_records
from ottla.lab.truncation.scenarios import ScriptedScenario, commands_of, comment_of
from ottla.metadata.image import PartitionImage
from ottla.records.batch import batches
from ottla.records.record import records as records_of
from ottla.replica.roles import Role
from ottla.sim.cluster.nodes import SimNode
from ottla.sim.engine.world import World
from ottla.sim.scripts.commands import ScriptCommands
from ottla.sim.scripts.script import SEED, run_line
from ottla.sim.scripts.script_cluster import ScriptCluster, log_content

DOWN = "down"


class PlayedScenario(NamedTuple):
    timeline: Timeline
    lost: list[str]
    """Acknowledged records that the leader does not have at the end, without an excuse."""
    differing: list[int]
    """The offsets below the common high watermark at which the replicas differ at the end."""


def play(scenario: ScriptedScenario, design: Design) -> PlayedScenario:
    with World(SEED) as world:
        cluster = ScriptCluster(world, partial(Node, design=design.part), is_checked=False)
        commands = ScriptCommands(world, cluster)
        recorder = TimelineRecorder(cluster)
        steps: list[Step] = []
        for block in scenario.blocks:
            events: list[str] = []
            for line in commands_of(block):
                events += run_line(commands, line)
                recorder.look()
            if comment := comment_of(block):
                steps.append(recorder.step(" ".join(comment), events))
        is_broken = bool(recorder.lost() or differences(recorder.replicas()))
        timeline = Timeline(scenario.title, design.name, steps, recorder.verdict(), is_broken)
        return PlayedScenario(timeline, recorder.lost(), differences(recorder.replicas()))


class TimelineRecorder:
    """What is known of the records of a script's partition, from step to step."""

    def __init__(self, cluster: ScriptCluster) -> None:
        self._cluster = cluster
        self._began_at = cluster.world.loop.time()
        self._written_in: dict[str, int] = {}
        """The leader epoch in which each value was written. Not all designs write it into the batch."""
        self._held: dict[int, dict[str, int]] = {}
        """For each broker, the values that it had at some time, and their offsets."""
        self._before: dict[int, ReplicaMoment] = {}
        self._decision: PartitionImage | None = None
        self._excused: set[str] = set()
        """Acknowledged records that were written before an election that may lose records."""

    def look(self) -> None:
        """After each command: a new value is in the log of the leader that wrote it."""
        for node in self._cluster.brokers:
            held = self._held.setdefault(node.id, {})
            for value, offset in _values(node):
                held[value] = offset
                replica = self._cluster.replica(node)
                if replica is not None and replica.role is Role.LEADER:
                    self._written_in.setdefault(value, replica.leader_epoch)
        before, self._decision = self._decision, self._cluster.decision
        if self._decision is not None and may_lose_records(before, self._decision):
            self._excused |= {
                value
                for value in self._cluster.client.acknowledged
                if self._written_in[value] < self._decision.leader_epoch
            }

    def step(self, what: str, events: list[str]) -> Step:
        moments = []
        for node in self._cluster.brokers:
            moment = self._moment(node)
            before = self._before.get(node.id, moment)
            self._before[node.id] = moment
            moments.append(replace(moment, changed=moment != before))
        at_s = self._cluster.world.loop.time() - self._began_at
        return Step(round(at_s, 3), what, events, moments)

    def _moment(self, node: SimNode) -> ReplicaMoment:
        replica = self._cluster.replica(node)
        stored = _values(node)
        log = [LogEntry(offset, self._written_in[value], value) for value, offset in stored]
        end = stored[-1][1] + 1 if stored else 0
        log += self._lost(node.id, {value for value, _ in stored}, end)
        if replica is None or replica.role is Role.OFFLINE:
            return ReplicaMoment(node.id, DOWN, -1, log, None, end)
        return ReplicaMoment(
            node.id,
            replica.role.name.lower(),
            replica.leader_epoch,
            log,
            replica.log.high_watermark,
            replica.log.log_end,
        )

    def _lost(self, broker: int, stored: set[str], end: int) -> list[LogEntry]:
        """Acknowledged records that this broker had, and has no more; until another record is at their offset."""
        gone = [
            LogEntry(offset, self._written_in[value], value, is_lost=True)
            for value, offset in self._held[broker].items()
            if value in self._cluster.client.acknowledged and value not in stored and offset >= end
        ]
        return sorted(gone, key=lambda entry: entry.offset)

    def lost(self) -> list[str]:
        """Acknowledged records that the leader does not have, and no unclean election excuses."""
        return [value for value in self._missing() if value not in self._excused]

    def _missing(self) -> list[str]:
        led = {
            value
            for node in self._cluster.brokers
            if (replica := self._cluster.replica(node)) is not None and replica.role is Role.LEADER
            for value, _ in _values(node)
        }
        return [value for value in self._cluster.client.acknowledged if value not in led]

    def replicas(self) -> ReplicaLogs:
        return {
            node.id: (
                replica.log.high_watermark,
                {offset: value for value, offset in _values(node)},
            )
            for node in self._cluster.brokers
            if (replica := self._cluster.replica(node)) is not None
        }

    def verdict(self) -> str:
        replicas = self.replicas()
        excused = [value for value in self._missing() if value in self._excused]
        parts = []
        for values, how in (
            (self.lost(), "though acknowledged"),
            (excused, "by the unclean election"),
        ):
            if values:
                are = "is" if len(values) == 1 else "are"
                parts.append(f"{', '.join(values)} {are} lost, {how}")
        if differences(replicas):
            parts.append(f"the replicas diverge: {first_difference_text(replicas)}")
        elif parts:
            parts.append("the replicas agree")
        return "; ".join(parts) or "nothing is lost, and the replicas agree"


def _values(node: SimNode) -> list[tuple[str, int]]:
    """The data records on the disk of that broker: value and offset."""
    data = log_content(node.host)
    return [
        ((record.value or b"").decode(), record.offset)
        for batch in batches(data, allow_partial=True)
        if not batch.is_control
        for record in records_of(data, batch)
    ]
