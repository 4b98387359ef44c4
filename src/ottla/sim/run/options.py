"""What a seed decides before its run begins: the cluster, its settings, its clients, its faults.

Every draw is part of a seed: another order of draws, or another label of a generator, is another run.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ottla.sim.clients import compacted_table
from ottla.sim.clients.access import NODE_SETTINGS, AccessPlan
from ottla.sim.clients.group_workload import GroupPlan
from ottla.sim.clients.hostile import HostilePlan
from ottla.sim.clients.mover import KINDS
from ottla.sim.faults import crowding, directories
from ottla.sim.faults.plan import Absence, FaultPlan
from ottla.sim.faults.registry import Rate, kinds
from ottla.sim.run import profiles

EVENT_LOG_RATE = 0.15
"""The share of seeds in which the cluster writes its event log."""
DURABLE_RATE = 0.15
"""The share of seeds in which everything is flushed before it counts as replicated."""
UPGRADE_RATE = 0.3
"""The share of runs with voters that change in which they are static at first."""
VOTERS_RATE = 0.15
"""The share of seeds in which voters change."""
OPERATED_RATE = 1 / 3
"""The share of seeds that have each of the things that an operator does."""
OPERATED = (*kinds(Rate.OPERATED), "reassign", "elect_preferred")
DELETE_DELAY, SOON_MS = "file.delete.delay.ms", "1000"
LAST_MOVE_RATE = 0.35
"""The share of seeds in which an operator moves replicas when all is healed."""
EVENT_LOG = "ottla.event.log.enable"
FLUSH_MESSAGES = "log.flush.interval.messages"
CROWDED_RATE = 0.1
"""The share of seeds in which others fill the disks."""
TABLE_RATE = 0.25
"""The share of seeds without groups that have a compacted topic."""
SOURCE_PAUSE_S = 1.0
"""Between the rounds of producers whose records are processed in transactions."""
EXPIRING = ("retention", "delete_records", "recreate", "rot", "misdirect")
"""Faults that delete or damage records."""
TROUBLE_S = (60.0, 62.0, 66.0)
ROUNDS_PER_S = (2.0, 6.0, 15.0)
"""How often some producer sends up to five batches. A low rate is enough: faults meet states of the protocol, and
more bytes add none."""


@dataclass
class RunOptions:
    """What a seed decides before the run begins."""

    seed: int
    nodes: int
    topics: list[tuple[str, int, int, int]]
    """(name, partitions, replication factor, min.insync.replicas)"""
    settings: dict[str, str]
    topic_settings: dict[str, str]
    producers: int
    consumers: int
    careless: int
    """Producers of each partition with acks=1, whose records may be lost"""
    rounds_per_s: float
    """How often some producer sends its next batches, over all producers"""
    pause_s: float
    """Between the rounds of one producer"""
    backoff_s: float
    patience_s: float
    trouble_s: float
    faults: FaultPlan
    has_table: bool = False
    """Whether there is a compacted topic besides"""
    forgets_tombstones: bool = False
    """Whether tombstones expire there after a second"""
    groups: GroupPlan | None = None
    """Groups and transactions, in some runs"""
    profile: str = profiles.BROAD
    """What this run makes likely"""
    restless: bool = False
    """Whether careless producers look for the leader before each record"""
    hostile: HostilePlan | None = None
    """A client that sends garbage, and repeats what others have sent"""
    absence: Absence | None = None
    """Whether the other nodes have to come to rest without one node, before it is back"""
    access: AccessPlan | None = None
    """Logins, ACLs and certificates, in some runs"""
    cold_rate: float = 0.0
    """The share of fetched data that is not in memory"""
    first_voters: int = 0
    """Voters may change, and begin with so many; 0 if they are static"""
    upgrades_voters: bool = False
    """Voters are static, until the operator upgrades them; then they may change"""
    last_move: str | None = None
    """What an operator does when all is healed: it must be done within bounded time"""
    has_crowded_disks: bool = False
    """Whether others fill the disks, and free them again"""

    @staticmethod
    def draw(seed: int, trouble_s: float | None = None) -> RunOptions:
        """What the seed says; `trouble_s` changes only how long there are faults."""
        options = RunOptions._draw(seed)
        if trouble_s is not None:
            options.trouble_s = trouble_s
        if random.Random(f"{seed}/durable").random() < DURABLE_RATE:
            options.flush_everything()
        options.cold_rate = random.Random(f"{seed}/memory").choice((0.0, 0.05, 0.5))
        access = AccessPlan.draw(seed)
        if access is not None:
            options.access = access
            options.settings = NODE_SETTINGS | options.settings
        chance = random.Random(f"{seed}/voters")
        if options.access is None and chance.random() < VOTERS_RATE:
            options.change_voters(chance)
        options.operate(random.Random(f"{seed}/operator"))
        if random.Random(f"{seed}/crowded disks").random() < CROWDED_RATE:
            options.crowd_disks()
        chance = random.Random(f"{seed}/directories")
        has_other_disks = options.access or options.has_crowded_disks
        is_plain = not (has_other_disks or options.first_voters or options.upgrades_voters)
        if is_plain and chance.random() < directories.RATE:
            directories.give_two(options.settings, options.faults, chance)
            if options.groups is not None:
                options.faults.leave_out(*EXPIRING)
        chance = random.Random(f"{seed}/event log")
        if chance.random() < EVENT_LOG_RATE:
            options.write_events(chance)
        return options

    @staticmethod
    def _draw(seed: int) -> RunOptions:
        chance, rare = random.Random(f"{seed}/options"), random.Random(f"{seed}/rare")
        nodes = chance.choice((3, 3, 3, 3, 4, 5))
        topics = []
        for number in range(chance.choice((1, 1, 2))):
            factor = chance.choice((3, 3, 3, 2, nodes))
            minimum = chance.choice((2, 2, 1)) if factor > 2 else chance.choice((1, 2))
            topics.append((f"t{number}", chance.choice((1, 2, 3)), factor, minimum))
        options = RunOptions(
            seed=seed,
            nodes=nodes,
            topics=topics,
            settings={
                "broker.session.timeout.ms": chance.choice(("2000", "9000")),
                "broker.heartbeat.interval.ms": chance.choice(("500", "1000")),
                "replica.lag.time.max.ms": chance.choice(("1500", "5000", "30000")),
                "replica.socket.timeout.ms": chance.choice(("2000", "30000")),
                "request.timeout.ms": chance.choice(("2000", "30000")),
                "controller.quorum.election.timeout.ms": chance.choice(("200", "1000")),
                "controller.quorum.fetch.timeout.ms": chance.choice(("500", "2000")),
                "metadata.log.max.record.bytes.between.snapshots": chance.choice(
                    ("2000", "20971520")
                ),
                "controller.quorum.retry.backoff.ms": chance.choice(("50", "200")),
                "replica.high.watermark.checkpoint.interval.ms": chance.choice(("1000", "5000")),
                # Every second: leadership moves while all replicas stay in sync.
                "leader.imbalance.check.interval.seconds": rare.choice(
                    ("1", chance.choice(("5", "300")))
                ),
                "log.retention.check.interval.ms": rare.choice(("700", "3000")),
                "log.flush.scheduler.interval.ms": chance.choice(("1000", "9223372036854775807")),
                "max.incremental.fetch.session.cache.slots": chance.choice(("1000", "1000", "2")),
            },
            topic_settings={
                "internal.segment.bytes": chance.choice(("2048", "2048", "16384", "1073741824")),
                "flush.ms": chance.choice(("1000", "9223372036854775807")),
                "index.interval.bytes": chance.choice(("256", "4096")),
                "unclean.leader.election.enable": rare.choice(("false",) * 5 + ("true",)),
            },
            producers=chance.choice((1, 1, 2)),
            consumers=chance.choice((0, 1)),
            careless=rare.choice((0, 0, 1)),
            rounds_per_s=0.0,
            pause_s=0.0,
            backoff_s=rare.choice((0.1, 0.1, 0.5, 2.0)),
            patience_s=chance.choice((5.0, 60.0)),
            trouble_s=chance.choice(TROUBLE_S),
            faults=FaultPlan.draw(chance),
            hostile=HostilePlan.draw(seed),
        )
        if rare.random() < 0.3:
            retained = rare.choice(("0", "6000"))
            options.topic_settings |= {
                "internal.segment.bytes": "2048",
                "retention.bytes": retained,
            }
        if rare.random() < 0.5:
            options.settings["metadata.max.retention.bytes"] = "4000"
        if rare.random() < 0.15:
            # Two replicas, each of which may lead whatever it lacks.
            name, count, _, _ = topics[0]
            topics[0] = name, count, 2, 1
            options.topic_settings["unclean.leader.election.enable"] = "true"
        options.rounds_per_s = chance.choice(ROUNDS_PER_S)
        groups = GroupPlan.draw(seed)
        if groups is not None:
            options.add_groups(groups)
            return options
        if not profiles.shape(options) and random.Random(f"{seed}/table").random() < TABLE_RATE:
            options.add_table()
        partitions = sum(count for _, count, _, _ in options.topics)
        clients = (options.producers + options.careless) * partitions
        options.pause_s = round(clients / options.rounds_per_s, 3)
        if not options.has_table:
            absence = random.Random(f"{seed}/absence")
            options.absence = absence.choice((*Absence, *[None] * 4))
        return options

    @property
    def is_durable(self) -> bool:
        return self.settings.get(FLUSH_MESSAGES) == "1"

    def flush_everything(self) -> None:
        """Before it counts as replicated: then everything survives a power loss of all machines."""
        self.settings[FLUSH_MESSAGES] = "1"
        self.topic_settings["unclean.leader.election.enable"] = "false"
        self.faults.leave_out("empty_disk", "rot", "misdirect")
        self.faults.include("outage")

    def change_voters(self, chance: random.Random) -> None:
        """Controllers are added, removed and replaced. In some runs they join by themselves."""
        if self.profile == profiles.BROAD:
            self.profile = profiles.VOTERS
        self.nodes = max(self.nodes, chance.choice((4, 4, 5)))
        self.first_voters = chance.choice((1, 3, 3, self.nodes))
        if chance.random() < 0.3:
            self.settings["controller.quorum.auto.join.enable"] = "true"
        if self.profile == profiles.VOTERS:
            self.faults.include(*chance.sample(("kill", "isolate", "empty_disk"), 2))
        share = 0.5 if self.profile == profiles.VOTERS else chance.choice((0.1, 0.3))
        self.faults.weights["change_voters"] = self.faults.part(share)
        if chance.random() < UPGRADE_RATE:
            self.first_voters, self.upgrades_voters = 0, True
            self.settings.pop("controller.quorum.auto.join.enable", None)

    def operate(self, chance: random.Random) -> None:
        """Each seed turns each thing that operators do on or off, whatever else it has."""
        for kind in OPERATED:
            if chance.random() < OPERATED_RATE:
                weight = self.faults.part(chance.choice((0.05, 0.1, 0.2)))
                self.faults.weights[kind] = max(weight, self.faults.weights.get(kind, 0))
        if chance.random() < LAST_MOVE_RATE:
            self.last_move = chance.choice(KINDS)
        if chance.random() < 0.5:
            self.topic_settings[DELETE_DELAY] = SOON_MS

    @property
    def deletes_soon(self) -> bool:
        """Whether nothing of a removed replica is left at rest. Who deletes with a clock that is ahead waits for long."""
        has_wrong_clocks = bool(self.faults.weights.get("clock"))
        return self.topic_settings.get(DELETE_DELAY) == SOON_MS and not has_wrong_clocks

    @property
    def moves_replicas(self) -> bool:
        """Whether a command may leave a throttle behind."""
        return self.last_move is not None or any(map(self.faults.weights.get, KINDS))

    def crowd_disks(self) -> None:
        self.has_crowded_disks = True
        self.settings |= crowding.SETTINGS
        self.faults.leave_out("full_disk")

    @property
    def has_event_log(self) -> bool:
        return self.settings.get(EVENT_LOG) == "true"

    def write_events(self, chance: random.Random) -> None:
        """With a queue that is often full, in some runs."""
        self.settings[EVENT_LOG] = "true"
        self.settings["ottla.event.log.queue.max"] = chance.choice(("3", "50", "20000"))

    def add_table(self) -> None:
        self.profile, self.has_table = profiles.TABLE, True
        self.settings |= compacted_table.NODE_SETTINGS
        self.forgets_tombstones = random.Random(f"{self.seed}/tombstones").random() < 0.4

    def add_groups(self, plan: GroupPlan) -> None:
        """Nothing that deletes records: otherwise nobody could tell what groups and transactions lost."""
        self.profile, self.groups = profiles.GROUPS, plan
        self.topics = plan.topics
        self.producers, self.pause_s = 1, SOURCE_PAUSE_S
        self.settings |= plan.settings
        self.topic_settings["unclean.leader.election.enable"] = "false"
        self.topic_settings.pop("retention.bytes", None)
        self.faults.leave_out(*EXPIRING)

    @property
    def records_expire(self) -> bool:
        weights = self.faults.weights
        return "retention.bytes" in self.topic_settings or any(
            weights.get(kind) for kind in ("retention", "delete_records")
        )

    def with_faults(self, only: frozenset[int] | None) -> RunOptions:
        """The same run with only these of its faults, by number; with all for None."""
        return replace(self, faults=replace(self.faults, only=only))

    def is_likely_to_meet(self, what: str) -> bool:
        """`what` is the name of a profile or of a kind of fault, the event log, or security."""
        if what == profiles.SECURE:
            return self.access is not None
        if what == profiles.EVENT_LOG:
            return self.has_event_log
        if what == profiles.CROWDED:
            return self.has_crowded_disks
        if what == profiles.VOTERS:
            return self.first_voters > 0
        return self.profile == what or bool(self.faults.weights.get(what))

    def lines(self) -> list[str]:
        topics = " ".join(f"{n}:{p}x{f}/{m}" for n, p, f, m in self.topics)
        return [
            f"seed {self.seed}: {self.nodes} nodes, topics {topics}, {self.trouble_s} s of trouble, "
            f"profile {self.profile}",
            f"  clients: {self.producers} producers, {self.careless} "
            f"{'restless ' if self.restless else ''}careless ones and "
            f"{self.consumers} consumers a partition, pause {self.pause_s} s, "
            f"backoff {self.backoff_s} s, patience {self.patience_s} s",
            *([f"  groups: {self.groups.describe()}"] if self.groups is not None else ()),
            *([f"  security: {self.access.describe()}"] if self.access is not None else ()),
            *([f"  hostile client: {self.hostile.describe()}"] if self.hostile is not None else ()),
            f"  faults: {self.faults.describe()}"
            + (f", one node {self.absence.value} in the end" if self.absence is not None else "")
            + (f", at last a {self.last_move}" if self.last_move is not None else "")
            + (f", {self.first_voters} voters at first" if self.first_voters else "")
            + (", crowded disks" if self.has_crowded_disks else "")
            + (
                f", {self.cold_rate:.0%} of what is fetched not in memory" if self.cold_rate else ""
            ),
            f"  settings: {_texts(self.settings)}",
            f"  topics: {_texts(self.topic_settings)}",
        ]


def _texts(settings: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in settings.items())
