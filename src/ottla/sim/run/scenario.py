"""One run of the simulator: a cluster, its clients and a nemesis, drawn from a seed, from birth to verdict.

Three parts: the cluster comes up in peace; faults and load for a while, everything checked after every event
(safety); then everything is healed, and the cluster must come to rest within bounded virtual time (liveness).
At rest the logs are held against what the clients were told.
"""

from __future__ import annotations

import errno
import logging
import random
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from enum import IntEnum

from ottla.broker.cluster.lifecycle import RegistrationRefused
from ottla.log.errors import LogDirError, WrongDirectory
from ottla.sim.clients import compacted_table
from ottla.sim.clients.connections import create_topic
from ottla.sim.clients.group_workload import TARGET, GroupPlan, GroupWorkload
from ottla.sim.clients.hostile import Vandal, VandalPlan
from ottla.sim.clients.operator import UNCLEAN, Operator
from ottla.sim.clients.workload import Workload
from ottla.sim.cluster.nodes import SimCluster, SimNode
from ottla.sim.engine.loop import Deadlock, Livelock, collector_at_rest
from ottla.sim.engine.world import World
from ottla.sim.faults.fault import CLIENTS
from ottla.sim.faults.nemesis import Absence, FaultPlan, Nemesis
from ottla.sim.oracle.coverage import counted, mark
from ottla.sim.oracle.coverage_replication import ReplicationCoverage
from ottla.sim.oracle.group_observers import watched
from ottla.sim.oracle.group_oracle import Transaction
from ottla.sim.oracle.history import TABLE
from ottla.sim.oracle.ledger import Violation
from ottla.sim.oracle.observers import observed
from ottla.sim.oracle.replica_checker import Checkers
from ottla.sim.oracle.swallowed import heard
from ottla.sim.run import profiles
from ottla.sim.run.final_checks import check_end, unsettled
from ottla.wire.types import TopicPartition

log = logging.getLogger(__name__)

DURABLE_RATE = 0.15
"""Of all seeds, in which everything is flushed before it counts."""
FLUSH_MESSAGES = "log.flush.interval.messages"
TABLE_RATE = 0.25
"""Of the seeds without groups, that have a compacted topic."""
SOURCE_PAUSE_S = 1.0
"""Between the rounds of producers whose records are processed in transactions."""
EXPIRING = ("retention", "delete_records", "recreate", "rot", "misdirect")
"""Faults after which records may be gone, or damaged where they lie."""
DEEDS_TOLD = 12
"""Of the nemesis, with a violation of groups and transactions."""
START_S_MAX = 60.0
SETTLE_S_MAX = 180.0
OPERATOR_WAITS_S = 30.0
"""Before they replace disks that are not what was written to them, if the cluster does not come to rest."""
TROUBLE_S = (60.0, 62.0, 66.0)
ROUNDS_PER_S = (2.0, 6.0, 15.0)
"""How often some producer sends what it has, up to five batches. Faults meet states of the protocol, not bytes."""


class Verdict(IntEnum):
    """Also the exit code."""

    PASSED = 0
    CRASH = 10
    """An exception that nobody expected."""
    SAFETY = 20
    """Something that must never happen did."""
    LIVENESS = 30
    """Something that must happen in the end did not."""


@dataclass
class Options:
    """What a seed decides, apart from what happens when."""

    seed: int
    nodes: int
    topics: list[tuple[str, int, int, int]]
    """(name, partitions, replication factor, min.insync.replicas)"""
    settings: dict[str, str]
    topic_settings: dict[str, str]
    producers: int
    consumers: int
    careless: int
    """Producers whose records may be lost"""
    rounds_per_s: float
    """How often some producer of all sends what it has"""
    pause_s: float
    """Between the rounds of one producer"""
    backoff_s: float
    patience_s: float
    trouble_s: float
    faults: FaultPlan
    has_table: bool = False
    """Whether there is a compacted topic besides"""
    forgets_tombstones: bool = False
    """Whether what was deleted there leaves no trace after a while"""
    groups: GroupPlan | None = None
    """Groups and transactions, in some runs"""
    profile: str = profiles.BROAD
    """What this run makes likely"""
    restless: bool = False
    """Whether careless producers look for the leader before each record"""
    vandal: VandalPlan | None = None
    """Somebody who sends garbage, and what others have sent before"""
    absence: Absence | None = None
    """Whether the others have to come to rest without one, before it is back"""
    cold_rate: float = 0.0
    """How often what is fetched has to come from the disk"""

    @staticmethod
    def draw(seed: int, trouble_s: float | None = None) -> Options:
        """What the seed says; `trouble_s` changes how long it is troubled, and nothing else."""
        options = Options._draw(seed)
        if trouble_s is not None:
            options.trouble_s = trouble_s
        if random.Random(f"{seed}/durable").random() < DURABLE_RATE:
            options.flush_everything()
        options.cold_rate = random.Random(f"{seed}/memory").choice((0.0, 0.05, 0.5))
        return options

    @staticmethod
    def _draw(seed: int) -> Options:
        chance, rare = random.Random(f"{seed}/options"), random.Random(f"{seed}/rare")
        nodes = chance.choice((3, 3, 3, 3, 4, 5))
        topics = []
        for number in range(chance.choice((1, 1, 2))):
            factor = chance.choice((3, 3, 3, 2, nodes))
            minimum = chance.choice((2, 2, 1)) if factor > 2 else chance.choice((1, 2))
            topics.append((f"t{number}", chance.choice((1, 2, 3)), factor, minimum))
        options = Options(
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
                # Every second: leadership moves while everybody stays in sync.
                "leader.imbalance.check.interval.seconds": rare.choice(
                    ("1", chance.choice(("5", "300")))
                ),
                "log.retention.check.interval.ms": rare.choice(("700", "3000")),
                "log.flush.scheduler.interval.ms": chance.choice(("1000", "9223372036854775807")),
                "max.incremental.fetch.session.cache.slots": chance.choice(("1000", "1000", "2")),
            },
            topic_settings={
                "segment.bytes": chance.choice(("2048", "2048", "16384", "1073741824")),
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
            vandal=VandalPlan.draw(seed),
        )
        if rare.random() < 0.3:
            retained = rare.choice(("0", "6000"))
            options.topic_settings |= {"segment.bytes": "2048", "retention.bytes": retained}
        if rare.random() < 0.5:
            options.settings["metadata.max.retention.bytes"] = "4000"
        if rare.random() < 0.15:
            # Two replicas that take over from each other whatever they lack.
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
        """Before it counts: then all of it outlives a power loss of all machines."""
        self.settings[FLUSH_MESSAGES] = "1"
        self.topic_settings["unclean.leader.election.enable"] = "false"
        self.faults.leave_out("empty_disk", "rot", "misdirect")
        self.faults.include("outage")

    def add_table(self) -> None:
        self.profile, self.has_table = profiles.TABLE, True
        self.settings |= compacted_table.NODE_SETTINGS
        self.forgets_tombstones = random.Random(f"{self.seed}/tombstones").random() < 0.4

    def add_groups(self, plan: GroupPlan) -> None:
        """Nothing but what is promised to last: else nobody could tell what groups and transactions lost."""
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

    def with_faults(self, only: frozenset[int] | None) -> Options:
        """The same run with these of its faults, by number; all for None."""
        return replace(self, faults=replace(self.faults, only=only))

    def is_likely_to_meet(self, what: str) -> bool:
        """Whether its profile is called so, or it has faults of that kind."""
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
            *([f"  vandal: {self.vandal.describe()}"] if self.vandal is not None else ()),
            f"  faults: {self.faults.describe()}"
            + (f", one node {self.absence.value} in the end" if self.absence is not None else "")
            + (
                f", {self.cold_rate:.0%} of what is fetched not in memory" if self.cold_rate else ""
            ),
            f"  settings: {_texts(self.settings)}",
            f"  topics: {_texts(self.topic_settings)}",
        ]


def _texts(settings: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in settings.items())


@dataclass
class Outcome:
    seed: int
    verdict: Verdict
    problem: str
    """What was wrong; empty if nothing was."""
    digest: str
    events: int
    virtual_s: float
    cpu_s: float = 0.0
    """Not part of the run: what it took to simulate it."""
    acknowledged: int = 0
    unknown: int = 0
    read: int = 0
    losses: int = 0
    """Stretches of records that the cluster itself recorded as possibly lost."""
    transactions: int = 0
    excused: int = 0
    """Transactions of which such a loss excuses something."""
    faults: dict[str, int] = field(default_factory=dict)
    struck: list[int] = field(default_factory=list)
    """The numbers of those faults, for `FaultPlan.only`."""
    story: list[str] = field(default_factory=list)
    """What the nemesis did, and when."""
    marks: dict[str, int] = field(default_factory=dict)
    """The rare states that the run met, and how often."""
    trace: list[str] | None = None

    @property
    def speed(self) -> float:
        """Virtual seconds for each second that a processor worked."""
        return self.virtual_s / max(self.cpu_s, 1e-9)


class _Failed(Exception):
    def __init__(self, verdict: Verdict, problem: str) -> None:
        super().__init__(problem)
        self.verdict = verdict


def is_expected(failure: BaseException) -> bool:
    """What a node may leave with: its disk failed, or nobody registered it in time."""
    return isinstance(failure, WrongDirectory | LogDirError | RegistrationRefused) or (
        isinstance(failure, OSError) and failure.errno in (errno.EIO, errno.ENOSPC)
    )


class Scenario:
    def __init__(self, world: World, options: Options) -> None:
        self.world = world
        self.options = options
        self.cluster = SimCluster(world, options.nodes, options.settings)
        for machine in self.cluster.nodes.values():
            machine.host.disk.cold_rate = options.cold_rate
        chance = world.loop.random_for("clients")
        self.workload = Workload(world.node(CLIENTS), self.cluster.bootstrap, chance)
        self.checkers = Checkers(self.cluster, self.workload.history)
        self.checkers.is_durable = options.is_durable
        self.checkers.on_loss.append(self.workload.allow_losses)
        self.checkers.on_deletion.append(self.workload.forget)
        self.operator = Operator(world.node(CLIENTS), self.workload.connections("operator"))
        self.nemesis = Nemesis(
            self.cluster,
            self.checkers,
            self.operator,
            options.faults,
            world.loop.random_for("nemesis"),
        )
        self.nemesis.on_wrong_disk.append(self.workload.expect_wrong_disks)
        self.table: compacted_table.Table | None = None
        if options.has_table:
            self.table = compacted_table.Table(
                self.cluster,
                self.checkers.leaders,
                world.loop.random_for("table"),
                forgets_tombstones=options.forgets_tombstones,
            )
            self.checkers.on_decisions.append(self.table.decided)
        self.groups: GroupWorkload | None = None
        if options.groups is not None:
            self.groups = GroupWorkload(
                options.groups,
                world.node(CLIENTS),
                self.workload.connections,
                world.loop.random_for("groups"),
                self.checkers.end_of,
                self.checkers.standing,
            )
            self.checkers.on_decisions.append(self.groups.oracle.decided)
            self.checkers.on_loss.append(self.groups.oracle.excuse)
        self.vandal: Vandal | None = None
        if options.vandal is not None:
            self.vandal = Vandal(
                options.vandal,
                world.node(CLIENTS),
                [node.host.name for node in self.cluster.nodes.values()],
                world.loop.random_for("vandal"),
                records_expire=options.records_expire,
            )
        self.failures: list[str] = []
        self.cluster.on_end.append(self._node_left)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """What is checked inside of nodes, and overheard between them, for the length of a run."""
        with ExitStack() as stack:
            if self.groups is not None:
                stack.enter_context(watched(self.groups.oracle))
            if self.vandal is not None:
                stack.enter_context(self.vandal.listening())
            yield

    def _node_left(self, node: SimNode, failure: BaseException | None) -> None:
        if failure is not None and not is_expected(failure):
            text = "".join(traceback.format_exception(failure))
            self.failures.append(f"node {node.id} died of {failure!r}\n{text}")

    def run(self) -> None:
        self._begin()
        self.world.script(self.nemesis.run())
        if self.vandal is not None:
            self.world.node(CLIENTS).run(self.vandal.run(), name="vandal")
        self._let_run(self.options.trouble_s)
        absent = self.nemesis.end(self.options.absence)
        if self.vandal is not None:
            self.vandal.is_stopping = True
        self.workload.stop_producing()
        if self.table is not None:
            self.table.stop_producing()
        if self.groups is not None:
            self.groups.calm()
        if absent is not None:
            self._settle(absent)
            mark("at rest without one")
            self.nemesis.bring_back(absent)
        self._settle()
        check_end(self.cluster, self.checkers, self.workload.history)
        if self.table is not None:
            self.table.check_end()
        if self.groups is not None:
            self.groups.check_end(self.checkers)
        self._check_problems()

    @property
    def transactions(self) -> list[Transaction]:
        return [] if self.groups is None else list(self.groups.oracle.transactions.values())

    @property
    def _violations(self) -> list[Violation]:
        return self.groups.oracle.violations if self.groups is not None else []

    def _check_problems(self) -> None:
        for violation in self._violations:
            # Both begin with the time.
            violation.history = sorted([*violation.history, *self.nemesis.story[-DEEDS_TOLD:]])
            raise violation
        problems = self.failures + self.world.problems()
        if problems:
            raise _Failed(Verdict.CRASH, "\n".join(problems))

    def _let_run(self, seconds: float) -> None:
        failures, violations = self.failures, self._violations
        unhandled = self.world.loop.unhandled
        self.world.run_until(lambda: bool(failures or violations or unhandled), seconds)
        self._check_problems()

    def _begin(self) -> None:
        self.cluster.start()
        if not self.cluster.wait_ready(START_S_MAX):
            raise _Failed(Verdict.LIVENESS, f"the cluster did not come up: {self._nodes()}")
        connections = self.workload.connections("admin")
        clients = self.world.node(CLIENTS)
        partitions = []

        def create(name: str, count: int, factor: int, configs: Mapping[str, str]) -> None:
            try:
                clients.complete(
                    create_topic(connections, name, count, factor, configs), START_S_MAX
                )
            except TimeoutError as error:
                raise _Failed(Verdict.LIVENESS, f"{name} was not created") from error

        for name, count, factor, minimum in self.options.topics:
            configs = {"min.insync.replicas": str(minimum), **self.options.topic_settings}
            create(name, count, factor, configs)
            if self.groups is None or name != TARGET:
                partitions += [TopicPartition(name, number) for number in range(count)]
        if self.table is not None:
            create(TABLE, 1, compacted_table.REPLICAS, self.table.topic_settings)
        self.workload.begin(
            partitions,
            producers=self.options.producers,
            consumers=self.options.consumers,
            careless=self.options.careless,
            restless=self.options.restless,
            pause_s=self.options.pause_s,
            backoff_s=self.options.backoff_s,
            patience_s=self.options.patience_s,
        )
        if self.table is not None:
            self.table.begin(self.workload, clients, self.options)
        if self.groups is not None:
            clients.complete(self.groups.prepare(), START_S_MAX)
            self.groups.begin()
        self._check_problems()

    def _unsettled(self, absent: SimNode | None) -> list[str]:
        left = unsettled(self.cluster, self.checkers, self.workload, absent)
        if self.table is not None and not left:
            left = self.table.unsettled()
        if self.groups is not None and not left:
            left = self.groups.unsettled(self.cluster, self.checkers)
        return left

    def _settle(self, absent: SimNode | None = None) -> None:
        def settled() -> bool:
            return (
                bool(self.failures or self._violations)
                or bool(self.world.loop.unhandled)
                or not (self.operator.is_busy or self._unsettled(absent))
            )

        held = False
        end = self.world.loop.time() + SETTLE_S_MAX
        while not held and self.world.loop.time() < end:
            self.world.run_for(0.5)
            held = settled()
            waited_s = SETTLE_S_MAX - (end - self.world.loop.time())
            if not held and waited_s > OPERATOR_WAITS_S:
                self.nemesis.replace_a_wrong_disk(at_any_cost=waited_s > 2 * OPERATOR_WAITS_S)
            if not self.operator.is_busy:
                for partition, heirs in self.checkers.leaderless().items():
                    if not heirs:
                        self.checkers.given_up.add(partition)
                        self.operator.elect(partition, UNCLEAN)
        self._check_problems()
        if not held:
            text = "\n".join(f"  {line}" for line in self._unsettled(absent))
            healed = "everything was healed" if absent is None else f"all but {absent} was healed"
            raise _Failed(
                Verdict.LIVENESS, f"{SETTLE_S_MAX} virtual seconds after {healed}:\n{text}"
            )

    def _nodes(self) -> str:
        return ", ".join(repr(node) for node in self.cluster.nodes.values())


def run_seed(seed: int, *, keep_trace: bool = False, options: Options | None = None) -> Outcome:
    """The whole run of a seed. Whatever goes wrong is in the outcome."""
    options = options or Options.draw(seed)
    verdict, problem = Verdict.PASSED, ""
    cpu_began = time.process_time()
    with collector_at_rest(), World(seed, keep_trace=keep_trace) as world, counted() as marks:
        began = world.loop.time()
        scenario = Scenario(world, options)
        scenario.cluster.subscribe(ReplicationCoverage())
        try:
            with observed(), scenario.watched(), heard(scenario.failures.append, is_expected):
                scenario.run()
        except _Failed as failed:
            verdict, problem = failed.verdict, str(failed)
        except Violation as violation:
            verdict, problem = Verdict.SAFETY, str(violation)
        except (Deadlock, Livelock) as stuck:
            verdict, problem = Verdict.LIVENESS, repr(stuck)
        except Exception:
            verdict, problem = Verdict.CRASH, traceback.format_exc()
        history = scenario.workload.history
        return Outcome(
            seed=seed,
            verdict=verdict,
            problem=problem,
            digest=world.digest(),
            events=world.loop.events,
            virtual_s=world.loop.time() - began,
            cpu_s=time.process_time() - cpu_began,
            acknowledged=len(history.acknowledged),
            unknown=len(history.unknown),
            read=history.reads,
            losses=sum(len(ledger.losses) for ledger in scenario.checkers.ledgers.values()),
            transactions=len(scenario.transactions),
            excused=sum(each.is_excused for each in scenario.transactions),
            faults=dict(sorted(scenario.nemesis.counts.items())),
            struck=scenario.nemesis.struck,
            story=scenario.nemesis.story,
            marks=dict(sorted(marks.items())),
            trace=world.loop.trace.lines,
        )
