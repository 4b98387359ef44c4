"""What must hold of moves of replicas (O1 to O3), whoever asked for them.

Operators say here what they ask for, before they ask. The committed decisions are compared with that, as the oracle's own
replay of the metadata has them: the product's words for what is wanted, and what was before, are not believed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

from ottla.metadata.image import Delta, MetadataImage
from ottla.sim.cluster.nodes import SimNode
from ottla.sim.oracle.evidence import Evidence
from ottla.sim.oracle.ledger import Violation
from ottla.sim.oracle.metadata_replay import ReplayedPartition
from ottla.wire.types import TopicPartition

REPLICA_LISTS = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
DELETED = "-delete"
KEPT_ASIDE = ("-stray", "-future", DELETED)
"""Directories that are no replicas: logs that were set aside for an operator, copies that will take the place of a replica
in another log directory, and deleted logs that wait for their removal."""

Id = tuple[UUID, int]


class MoveChecker:
    def __init__(self, evidence: Evidence) -> None:
        self.violations: list[Violation] = []
        """What was found while a command ran."""
        self._evidence = evidence
        self._asked: dict[TopicPartition, set[tuple[int, ...] | None]] = {}
        """What was ever asked for; None: to cancel. A request that got no answer may take effect at any time."""
        self._last: dict[Id, ReplayedPartition] = {}
        self._original: dict[Id, tuple[int, ...]] = {}
        """The replicas when nothing was being moved."""
        self._target: dict[Id, tuple[int, ...]] = {}
        """Of what is being moved."""
        self._moved: dict[TopicPartition, tuple[float, tuple[int, ...]]] = {}
        """When its last move ended, and with which replicas."""
        self._reached: dict[tuple[TopicPartition, tuple[int, ...]], float] = {}
        """When a move last ended with these replicas."""

    # What operators say

    def asked(self, key: TopicPartition, replicas: Sequence[int] | None) -> None:
        wished = None if replicas is None else tuple(replicas)
        self._asked.setdefault(key, set()).add(wished)

    def commanded(self, targets: Mapping[tuple[str, int], Sequence[int]]) -> float:
        """When it began."""
        for (topic, number), replicas in targets.items():
            self.asked(TopicPartition(topic, number), replicas)
        return self._evidence.now()

    def command_ended(self, targets: Mapping[tuple[str, int], Sequence[int]], began: float) -> None:
        """O3: a command that came to its end leaves none of its partitions in a list of throttled replicas, unless something
        else was being moved when it was about to remove them: also one of its own, that somebody moves elsewhere. What others
        have left, of replicas that are out of sync, may stay until all is healed."""
        wanted = {TopicPartition(*place): tuple(targets[place]) for place in targets}
        mine = wanted.keys()
        ended = max([began, *(self._reached.get(each, began) for each in wanted.items())])
        others = any(
            at >= ended for key, (at, reached) in self._moved.items() if wanted.get(key) != reached
        )
        if self._target or others:
            return
        for (_, topic), settings in self._evidence.quorum.replay.configs.items():
            for name in settings.keys() & set(REPLICA_LISTS):
                pairs = [each.split(":") for each in settings[name].split(",")]
                if mine & {TopicPartition(topic, int(pair[0])) for pair in pairs}:
                    what = f"{topic} has {name}={settings[name]}"
                    self.violations.append(self._fail("O3", what, f"a move has ended, but {what}"))

    # What the controller decides

    def decided(
        self, _node: int, _before: MetadataImage, _after: MetadataImage, delta: Delta
    ) -> None:
        """Called for each committed batch."""
        replay = self._evidence.quorum.replay
        for deleted in delta.deleted_topics:
            for id in [id for id in self._last if id[0] == deleted.id]:
                for known in (self._last, self._original, self._target):
                    known.pop(id, None)
        for id in delta.changed_partitions:
            now, was = replay.partitions.get(id), self._last.get(id)
            if now is None:
                continue
            self._last[id] = now
            if was is None:
                self._original[id] = now.replicas
            elif _assignment(was) != _assignment(now):
                key = TopicPartition(replay.names[id[0]], id[1])
                for wrong in self._wrong(key, id, was, now):
                    raise self._evidence.violation(
                        "O1", "controller", key, f"{wrong}: {was} → {now}"
                    )

    def _wrong(
        self, key: TopicPartition, id: Id, was: ReplayedPartition, now: ReplayedPartition
    ) -> Iterator[str]:
        """O1. What is being moved when this returns is in `_target`, and what was before in `_original`."""
        asked, original = self._asked.get(key, set()), self._original[id]
        if now.adding or now.removing:
            target = tuple(each for each in now.replicas if each not in now.removing)
            if target not in asked:
                yield f"nobody asked for {target}"
            if now.replicas != target + now.removing or not set(was.replicas) <= set(now.replicas):
                yield "a replica leaves before the others are in sync"
            if set(now.replicas) - set(now.adding) != set(original):
                yield f"before the move the replicas were {original}"
            self._target[id] = target
            return
        self._target.pop(id, None)
        is_done = now.replicas in asked  # perhaps in place of another move, and at once
        is_undone = set(now.replicas) == set(original) and None in asked
        if not is_done and not is_undone:
            yield f"nobody asked for {now.replicas}; before the move there were {original}"
        moved = set(was.replicas) != set(now.replicas)
        if moved and not is_undone and not set(now.replicas) <= set(now.isr):
            yield "the move ends before all replicas are in sync"
        self._original[id] = now.replicas
        self._moved[key] = self._evidence.now(), now.replicas
        self._reached[key, now.replicas] = self._evidence.now()

    # At rest

    def moving(self, absent: int | None = None) -> list[str]:
        """What is being moved; not what waits for a node that is away."""
        names = self._evidence.quorum.replay.names
        return [
            f"{names[topic]}-{number} is still being moved to {target}"
            for (topic, number), target in self._target.items()
            if absent not in target
        ]

    def not_removed(self, topics: Sequence[str]) -> list[str]:
        """Directories of deleted replicas of these topics."""
        return [
            f"node {node.id} still has {name}"
            for node in self._evidence.cluster.nodes.values()
            for name in _directories(node)
            if name.endswith(DELETED) and name.rpartition("-")[0].rpartition("-")[0] in topics
        ]

    def throttles(self) -> list[str]:
        """What the committed metadata has of them."""
        return [
            f"{resource[1]} has {name}={value}"
            for resource, settings in self._evidence.quorum.replay.configs.items()
            for name, value in settings.items()
            if name in (*REPLICA_LISTS, *RATES)
        ]

    def _throttled(self) -> Iterator[str]:
        """Brokers that hold replicas back, whatever the metadata has."""
        for node in self._evidence.cluster.nodes.values():
            assert node.node is not None and node.node.broker is not None
            broker = node.node.broker
            if broker.throttle.limits_leaders or broker.throttle.limits_followers:
                yield f"node {node.id} limits what is copied"
            for key, partition in broker.replicas.partitions.items():
                config = partition.log.config
                if config.leader_throttled_replicas or config.follower_throttled_replicas:
                    yield f"node {node.id} has a list of throttled replicas of {key}"

    def check_end(
        self, wanted: Mapping[tuple[str, int], Sequence[int]], drained: int | None
    ) -> None:
        """All is healed and at rest, and the last command has ended well. O1: what it asked for is so. O2: nobody has a
        directory or a partition that is not its own; who was drained has none. O3: no throttle is left."""
        self.check_strays()
        for what in (*self.throttles(), *self._throttled()):
            raise self._fail("O3", what, f"all moves are over, but {what}")
        self.check_wanted(wanted, drained)

    def check_wanted(
        self, wanted: Mapping[tuple[str, int], Sequence[int]], drained: int | None
    ) -> None:
        """O1, when a command has ended well."""
        ids = {name: id for id, name in self._evidence.quorum.replay.names.items()}
        for (topic, number), replicas in wanted.items():
            found = self._evidence.quorum.replay.partitions[ids[topic], number]
            if found.replicas != tuple(replicas) or found.leader != replicas[0]:
                what = f"wanted are {tuple(replicas)}, led by the first; there is {found}"
                raise self._fail("O1", f"{topic}-{number}", what)
        for id, decided in self._evidence.quorum.replay.partitions.items():
            if drained is not None and drained in (decided.leader, *decided.replicas):
                name = f"{self._evidence.quorum.replay.names[id[0]]}-{id[1]}"
                raise self._fail("O1", name, f"broker {drained} was drained, but has {decided}")

    def check_strays(self) -> None:
        """O2: on each node, the directories and the open partitions are those of its replicas."""
        replay = self._evidence.quorum.replay
        for node in self._evidence.cluster.nodes.values():
            names = {
                TopicPartition(replay.names[topic], number)
                for (topic, number), decided in replay.partitions.items()
                if node.id in decided.replicas
            }
            assert node.node is not None and node.node.broker is not None
            if (served := set(node.node.broker.replicas.partitions)) != names:
                what = f"serves {sorted(served)}, its replicas are {sorted(names)}"
                raise self._fail("O2", f"node {node.id}", what)
            expected = {f"{key.topic}-{key.partition}" for key in names}
            found = sorted(name for name in _directories(node) if not name.endswith(KEPT_ASIDE))
            if found != sorted(expected):
                what = f"has the directories {found}, its replicas are {sorted(expected)}"
                raise self._fail("O2", f"node {node.id}", what)

    def _fail(self, rule: str, where: str, what: str) -> Violation:
        return Violation(rule, f"{where}, at {self._evidence.now():.6f}", what, [])


def _directories(node: SimNode) -> list[str]:
    """Of partitions, in all log directories of a node."""
    disk = node.host.disk
    return [
        name
        for directory in node.settings.log_dirs
        for name in disk.list_dir(directory)
        if disk.is_dir(f"{directory}/{name}")
    ]


def _assignment(decided: ReplayedPartition) -> tuple[tuple[int, ...], ...]:
    return decided.replicas, decided.adding, decided.removing
