"""The event log against what happened: each event once, none untold that was not counted, none that did not happen.

A process is followed from its start to its end. What it reported (`Events`) is compared with what stands in the log, by
the id of its writer. What the cluster committed is compared with what controllers reported, by reading the committed
metadata a second time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ottla.event_log.entry import EventEntry, Told, entries
from ottla.event_log.mapping import TELLERS, told
from ottla.events import Event
from ottla.events.controller import (
    ControllerActivated,
    ControllerDeactivated,
    IsrExpanded,
    IsrShrunk,
    LeaderElected,
    PartitionWentOffline,
)
from ottla.metadata.image import Delta, MetadataImage
from ottla.metadata.records import NO_LEADER
from ottla.records.batch import read_batch
from ottla.records.record import Record
from ottla.records.record import records as records_of
from ottla.sim.cluster.nodes import SimCluster, SimNode
from ottla.sim.oracle.coverage import mark
from ottla.sim.oracle.evidence import Evidence
from ottla.sim.oracle.ledger import Violation, content
from ottla.wire.internal_topics import EVENT_LOG_TOPIC
from ottla.wire.types import TopicPartition

KEY = TopicPartition(EVENT_LOG_TOPIC, 0)
COMMIT_S_MAX = 5.0
"""A controller that stays active for so long after a commit has reported it."""

Change = tuple[object, ...]


@dataclass
class _Life:
    """A process, from its start on."""

    node: SimNode
    incarnation: str
    is_running: bool = True
    told: Counter[str] = field(default_factory=Counter)
    most_waiting: int = 0


class EventLogChecker:
    def __init__(self, cluster: SimCluster, evidence: Evidence) -> None:
        self._cluster = cluster
        self._evidence = evidence
        self._lives: list[_Life] = []
        self._life_of: dict[int, _Life] = {}
        self._ended_at: dict[int, float] = {}
        """When the controller of an epoch was no longer active."""
        self._active: dict[int, int] = {}
        """The epoch in which a node is the active controller."""
        self._committed: list[tuple[Change, float, int]] = []
        """(change, when, the epoch of its controller)"""
        self._reported: Counter[Change] = Counter()
        self._is_whole = True
        """Nobody has deleted the topic."""
        cluster.subscribe(self._happened, *TELLERS, ControllerDeactivated)
        cluster.on_change.append(self._process_changed)
        evidence.quorum.on_decisions.append(self._decided)

    # What happens

    def _process_changed(self, node: SimNode) -> None:
        former = self._life_of.pop(node.id, None)
        if former is not None:
            former.is_running = False
        self._no_longer_active(node.id)
        if node.node is not None:
            writer = node.node.event_log
            assert writer is not None
            life = self._life_of[node.id] = _Life(node, writer.incarnation)
            self._lives.append(life)

    def _no_longer_active(self, node: int) -> None:
        epoch = self._active.pop(node, None)
        if epoch is not None:
            self._ended_at[epoch] = self._evidence.now()

    def _happened(self, node: SimNode, event: Event) -> None:
        match event:
            case ControllerActivated(epoch=epoch):
                self._active[node.id] = epoch
            case ControllerDeactivated():
                self._no_longer_active(node.id)
                return
            case _:
                self._reported.update(_changes_in(event))
        life, running = self._life_of[node.id], node.node
        assert running is not None and running.event_log is not None
        life.told[_text(told(event, node.id))] += 1
        life.most_waiting = max(life.most_waiting, running.event_log.waiting)

    def _decided(
        self, node: int, before: MetadataImage, after: MetadataImage, delta: Delta
    ) -> None:
        now = self._evidence.now()
        self._is_whole &= all(topic.name != EVENT_LOG_TOPIC for topic in delta.deleted_topics)
        for change in _changes_between(before, after, delta):
            self._committed.append((change, now, after.epoch))

    # At rest

    def unsettled(self, absent: SimNode | None) -> list[str]:
        if EVENT_LOG_TOPIC not in self._evidence.image.topics:
            return [f"{EVENT_LOG_TOPIC} is not created"]
        if absent is not None and self._is_under_min_isr(absent):
            return []
        return [
            f"node {node.id} has {node.node.event_log.waiting} events to write"
            for node in self._cluster.up
            if node is not absent
            and node.node is not None
            and node.node.event_log is not None
            and node.node.event_log.waiting
        ]

    def _is_under_min_isr(self, absent: SimNode) -> bool:
        """Somebody raised min.insync.replicas of the event log, and a replica is away: then nobody can write."""
        brokers = [
            each.node.broker for each in self._cluster.up if each is not absent and each.node
        ]
        found = [broker.replicas.partitions.get(KEY) for broker in brokers if broker is not None]
        return any(each is not None and each.is_under_min_isr for each in found)

    def check_end(self) -> None:
        self._check_controllers()
        found = list(entries(self._records()))
        ledger = self._evidence.ledgers[KEY]
        is_whole = self._is_whole and not ledger.losses and self._evidence.highest_start(KEY) == 0
        for life in self._lives:
            own = [each for each in found if each.id.split("-")[1] == life.incarnation]
            self._check_bound(life)
            self._check_life(life, own, is_complete=is_whole and life.is_running)

    def _check_life(self, life: _Life, own: list[EventEntry], *, is_complete: bool) -> None:
        dropped = sum(each.told.fields["count"] for each in own if each.kind == "events_dropped")
        stored = Counter(_text(each.told) for each in own if each.kind != "events_dropped")
        if dropped:
            mark("events dropped")
        if too_many := stored - life.told:
            raise _fail("E1", life, f"in the log more often than they happened: {_some(too_many)}")
        missing = life.told - stored
        if is_complete and missing.total() != dropped:
            what = f"{missing.total()} events are not in the log, {dropped} were counted as dropped"
            raise _fail("E1", life, f"{what}: {_some(missing)}")

    def _check_bound(self, life: _Life) -> None:
        most = life.node.settings.ottla_event_log_queue_max
        # The entry about dropped events may be one more.
        if life.most_waiting > most + 1:
            raise _fail("E3", life, f"{life.most_waiting} events waited, {most} may")

    def _check_controllers(self) -> None:
        committed = Counter(change for change, _, _ in self._committed)
        if invented := self._reported - committed:
            change = next(iter(invented))
            raise Violation(
                "E2", "the controllers", f"reported, but not so often true: {change}", []
            )
        missing = committed - self._reported
        for change, when, epoch in self._committed:
            if (
                missing[change]
                and self._ended_at.get(epoch, when + COMMIT_S_MAX) < when + COMMIT_S_MAX
            ):
                missing[change] -= 1  # its controller was no longer there to report it
        if +missing:
            change = next(iter(+missing))
            raise Violation("E2", "the controllers", f"committed and not reported: {change}", [])

    def _records(self) -> Iterator[Record]:
        """Of any replica: they are equal (D2)."""
        for id in self._evidence.image.topics[EVENT_LOG_TOPIC].partitions[0].replicas:
            machine = self._cluster.nodes[id]
            assert machine.node is not None and machine.node.broker is not None
            log = machine.node.broker.replicas.partitions[KEY].log
            if machine.host.disk.may_be_wrong(log.path):
                continue
            for seen in self._evidence.copy_of(id, KEY).after(log.log_start):
                data = content(machine.host.disk, log, seen)
                yield from records_of(data, read_batch(data, 0))
            return


def _changes_between(before: MetadataImage, after: MetadataImage, delta: Delta) -> Iterator[Change]:
    for topic_id, index in delta.changed_partitions:
        topic, former = after.topics_by_id.get(topic_id), before.topics_by_id.get(topic_id)
        if topic is None or former is None or index >= len(former.partitions):
            continue
        was, now = former.partitions[index], topic.partitions[index]
        elected = NO_LEADER
        if now.leader != was.leader:
            elected = now.leader
            yield "leader", topic.name, index, now.leader, now.leader_epoch
        for id in sorted((set(was.isr) ^ set(now.isr)) - {elected}):
            yield ("joined" if id in now.isr else "left"), topic.name, index, id, now.isr


def _changes_in(event: Event) -> Iterable[Change]:
    match event:
        case LeaderElected():
            return [("leader", event.topic, event.partition, event.leader, event.leader_epoch)]
        case PartitionWentOffline():
            return [("leader", event.topic, event.partition, NO_LEADER, event.leader_epoch)]
        case IsrShrunk():
            return [("left", event.topic, event.partition, id, event.isr) for id in event.brokers]
        case IsrExpanded():
            return [("joined", event.topic, event.partition, id, event.isr) for id in event.brokers]
    return ()


def _text(what: Told) -> str:
    return json.dumps([what.kind, what.about, what.partition, what.cause, what.fields])


def _some(texts: Counter[str]) -> str:
    return "; ".join(list(texts)[:3])


def _fail(rule: str, life: _Life, what: str) -> Violation:
    return Violation(rule, f"the event log of node {life.node.id}, {life.incarnation}", what, [])
