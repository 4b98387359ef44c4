"""One run of the simulator, from the start of its cluster to the verdict.

It has three parts. The cluster starts without faults. Then there are faults and load for a while, and everything is
checked after every event (safety). Then everything is healed, and the cluster must come to rest within bounded virtual
time (liveness); at rest the logs are compared with what the clients were answered.
"""

from __future__ import annotations

import errno
import time
import traceback
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from ottla.broker.cluster.lifecycle import RegistrationRefused
from ottla.client.admin import Place
from ottla.events import Event
from ottla.events.coordination import ShardApplied
from ottla.events.storage import LogDirectoryFailed
from ottla.log.errors import LogDirError, WrongDirectory
from ottla.sim.clients import compacted_table
from ottla.sim.clients.access import TOPICS as PRIVATE_TOPICS
from ottla.sim.clients.access import AccessPlan, some_question
from ottla.sim.clients.access_workload import AccessWorkload
from ottla.sim.clients.connections import create_topic
from ottla.sim.clients.group_workload import TARGET, GroupWorkload
from ottla.sim.clients.hostile import HostileClient
from ottla.sim.clients.mover import DRAIN, FACTOR, FAILURES, SLOW, MoveOrder, Mover
from ottla.sim.clients.operator import UNCLEAN, Operator
from ottla.sim.clients.workload import Workload
from ottla.sim.cluster.nodes import SimCluster, SimNode
from ottla.sim.engine.loop import Deadlock, Livelock, collector_at_rest
from ottla.sim.engine.world import World
from ottla.sim.faults.context import CLIENTS
from ottla.sim.faults.crowding import CrowdedDisks
from ottla.sim.faults.nemesis import Nemesis
from ottla.sim.oracle.access_checker import AccessChecker
from ottla.sim.oracle.coordinator_checker import CoordinatorChecker
from ottla.sim.oracle.coverage import counted, mark
from ottla.sim.oracle.coverage_coordination import mark_coordination
from ottla.sim.oracle.coverage_quorum import mark_quorum
from ottla.sim.oracle.coverage_replication import ReplicationCoverage
from ottla.sim.oracle.coverage_storage import mark_storage
from ottla.sim.oracle.event_log_checker import EventLogChecker
from ottla.sim.oracle.group_oracle import Transaction
from ottla.sim.oracle.history import TABLE
from ottla.sim.oracle.ledger import Violation
from ottla.sim.oracle.loss_checker import LossChecker
from ottla.sim.oracle.move_checker import MoveChecker
from ottla.sim.oracle.safety_checker import SafetyChecker
from ottla.sim.oracle.swallowed import heard
from ottla.sim.run import unclean
from ottla.sim.run.final_checks import check_end, check_losses, unsettled
from ottla.sim.run.lag_check import check_lag
from ottla.sim.run.options import RunOptions
from ottla.sim.run.outcome import RunOutcome, Verdict
from ottla.wire.types import TopicPartition

FAULTS_SHOWN = 12
"""The last faults that are printed with a violation of groups and transactions."""
ENDS_S_MAX = 15
"""How long a node whose disk failed may take to end, while its process is not paused."""
START_S_MAX = 60.0
PRIVATE_REPLICAS = 3
SETTLE_S_MAX = 180.0
MOVE_S_MAX = 60.0
"""How long the last command may take, when all is healed: it moves everything that one broker has, or a topic."""
OPERATOR_WAITS_S = 30.0
"""If the cluster has not come to rest by then, the operator replaces damaged disks."""


class _Failed(Exception):
    def __init__(self, verdict: Verdict, problem: str) -> None:
        super().__init__(problem)
        self.verdict = verdict


def is_expected(failure: BaseException) -> bool:
    """Exceptions with which a node may end: its disk failed, or its registration was refused."""
    return isinstance(failure, WrongDirectory | LogDirError | RegistrationRefused) or (
        isinstance(failure, OSError) and failure.errno in (errno.EIO, errno.ENOSPC)
    )


class Scenario:
    """The cluster, clients, nemesis and checkers of one run, and how they are connected."""

    def __init__(self, world: World, options: RunOptions) -> None:
        self.world = world
        self.options = options
        security = None if options.access is None else options.access.security
        self.cluster = SimCluster(
            world,
            options.nodes,
            options.settings,
            security=security,
            first_voters=options.first_voters,
            upgrades_voters=options.upgrades_voters,
        )
        for mark_event in (mark_storage, mark_quorum, mark_coordination, ReplicationCoverage()):
            self.cluster.subscribe(mark_event)
        for machine in self.cluster.nodes.values():
            machine.host.disk.cold_rate = options.cold_rate
        chance = world.loop.random_for("clients")
        self.access_checker: AccessChecker | None = None
        self.access = None if options.access is None else self._access(options.access)
        self.workload = Workload(
            world.node(CLIENTS),
            self.cluster.bootstrap,
            chance,
            (lambda name: None) if self.access is None else self.access.user_of,
        )
        self.checker = SafetyChecker(self.cluster, self.workload.history, self.access_checker)
        self.evidence = self.checker.evidence
        self.evidence.is_durable = options.is_durable
        if options.profile == unclean.PROFILE:
            self.evidence.losses = LossChecker()
        self.checker.on_loss.append(self.workload.allow_losses)
        self.checker.on_deletion.append(self.workload.forget)
        self.moves = MoveChecker(self.evidence)
        self.checker.on_decisions.append(self.moves.decided)
        self.operator = Operator(
            world.node(CLIENTS), self.workload.connections("operator"), self.moves.asked
        )
        self.mover = Mover(
            world.node(CLIENTS),
            self.cluster.bootstrap,
            self.moves,
            None if self.access is None else self.access.user_of("operator"),
        )
        self.nemesis = Nemesis(
            self.cluster,
            self.evidence,
            self.operator,
            self.mover,
            options.faults,
            world.loop.random_for("nemesis"),
        )
        self.checker.on_proposal.append(self.nemesis.isr_proposed)
        self.nemesis.on_wrong_disk.append(self.workload.expect_wrong_disks)
        self.table: compacted_table.CompactedTable | None = None
        if options.has_table:
            self.table = compacted_table.CompactedTable(
                self.cluster,
                self.evidence.leaders,
                world.loop.random_for("table"),
                forgets_tombstones=options.forgets_tombstones,
            )
            self.checker.on_decisions.append(self.table.decided)
        self.groups: GroupWorkload | None = None
        if options.groups is not None:
            self.groups = GroupWorkload(
                options.groups,
                world.node(CLIENTS),
                self.workload.connections,
                world.loop.random_for("groups"),
                self.evidence.end_of,
                self.evidence.standing,
            )
            self.cluster.subscribe(CoordinatorChecker(self.groups.oracle), ShardApplied)
            self.checker.on_decisions.append(self.groups.oracle.decided)
            self.checker.on_loss.append(self.groups.oracle.excuse)
        self.hostile: HostileClient | None = None
        if options.hostile is not None:
            self.hostile = HostileClient(
                options.hostile,
                world.node(CLIENTS),
                [node.host.name for node in self.cluster.nodes.values()],
                world.loop.random_for("vandal"),
                records_expire=options.records_expire,
            )
        self.event_log: EventLogChecker | None = None
        if options.has_event_log:
            self.event_log = EventLogChecker(self.cluster, self.evidence)
        self.failures: list[str] = []
        self.cluster.on_end.append(self._node_left)
        self.cluster.subscribe(self._directory_failed, LogDirectoryFailed)
        self.crowding: CrowdedDisks | None = None
        if options.has_crowded_disks:
            self.crowding = CrowdedDisks(self.cluster, world.loop.random_for("crowding"))

    def _access(self, plan: AccessPlan) -> AccessWorkload:
        host, random_for = self.world.node(CLIENTS), self.world.loop.random_for
        self.access_checker = AccessChecker(
            self.cluster, random_for("questions"), some_question(host.address)
        )
        nodes = list(self.cluster.nodes)
        return AccessWorkload(
            plan,
            host,
            nodes,
            self.access_checker,
            self._leader_of,
            lambda: self.evidence.image,
            random_for,
        )

    def _leader_of(self, key: TopicPartition) -> int | None:
        partition = self.evidence.partition_image(key)
        return None if partition is None or partition.leader < 0 else partition.leader

    def recorded(self) -> AbstractContextManager[None]:
        """For the length of a run: requests are recorded for the hostile client, if there is one."""
        return nullcontext() if self.hostile is None else self.hostile.listening()

    def _node_left(self, node: SimNode, failure: BaseException | None) -> None:
        if failure is not None and not is_expected(failure):
            text = "".join(traceback.format_exception(failure))
            self.failures.append(f"node {node.id} died of {failure!r}\n{text}")

    def _directory_failed(self, node: SimNode, _event: Event) -> None:
        """It was the node's only one: the process must end, and not wait for somebody to restart it."""
        process = node.process

        def look(awake_s: int) -> None:
            if process is None or node.process is not process:
                return
            if awake_s < ENDS_S_MAX:
                self.world.loop.after_s(1.0, look, awake_s + (not process.paused))
            else:
                self.failures.append(
                    f"node {node.id} still runs {awake_s} s after its log directory failed"
                )

        look(0)

    def run(self) -> None:
        """The whole run. Raises Violation, or _Failed, as soon as something is wrong."""
        self._begin()
        self.world.script(self.nemesis.run())
        if self.crowding is not None:
            self.world.script(self.crowding.run())
        if self.hostile is not None:
            self.world.node(CLIENTS).run(self.hostile.run(), name="vandal")
        self._let_run(self.options.trouble_s)
        if self.crowding is not None:
            self.crowding.end()
        absent = self.nemesis.end(self.options.absence)
        if self.hostile is not None:
            self.hostile.is_stopping = True
        if self.access is not None:
            self.access.stop()
        self.workload.stop_producing()
        if self.table is not None:
            self.table.stop_producing()
        if self.groups is not None:
            self.groups.calm()
        if absent is not None:
            self._settle(absent)
            mark("at rest without one")
            if self.options.last_move is not None:
                self._drain_dead(absent)
            self.nemesis.bring_back(absent)
        self._settle()
        self._move_at_last()
        check_end(self.cluster, self.evidence, self.workload.history)
        check_losses(self.cluster, self.evidence)
        if self.table is not None:
            self.table.check_end()
        if self.groups is not None:
            self.groups.check_end(self.evidence)
        check_lag(self.cluster, self.world.loop.random_for("lag"))
        if self.event_log is not None:
            self.event_log.check_end()
        if self.access_checker is not None:
            self.access_checker.check_end()
        self._check_problems()

    @property
    def transactions(self) -> list[Transaction]:
        return [] if self.groups is None else list(self.groups.oracle.transactions.values())

    @property
    def _violations(self) -> list[Violation]:
        found = self.groups.oracle.violations if self.groups is not None else []
        if self.crowding is not None:
            found = found or self.crowding.violations
        found = found or self.moves.violations
        return found or (self.access_checker.violations if self.access_checker is not None else [])

    def _check_problems(self) -> None:
        for violation in self._violations:
            # Both begin with the time.
            violation.history = sorted([*violation.history, *self.nemesis.log[-FAULTS_SHOWN:]])
            raise violation
        problems = self.failures + self.world.problems()
        if problems:
            raise _Failed(Verdict.CRASH, "\n".join(problems))

    def _let_run(self, seconds: float) -> None:
        failures, unhandled = self.failures, self.world.loop.unhandled
        violations = [] if self.groups is None else self.groups.oracle.violations
        others = [] if self.access_checker is None else self.access_checker.violations
        crowded = [] if self.crowding is None else self.crowding.violations
        moved = self.moves.violations
        self.world.run_until(
            lambda: bool(failures or violations or others or crowded or moved or unhandled), seconds
        )
        self._check_problems()

    def _begin(self) -> None:
        self.cluster.start()
        if not self.cluster.wait_ready(START_S_MAX):
            raise _Failed(Verdict.LIVENESS, f"the cluster did not come up: {self._nodes()}")
        connections = self.workload.connections("admin")
        clients = self.world.node(CLIENTS)
        if self.access is not None:
            clients.complete(self.access.prepare(), START_S_MAX)
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
        if self.access_checker is not None:
            for name in PRIVATE_TOPICS:
                create(name, 1, PRIVATE_REPLICAS, {})
            self.world.run_until(self._users_are_known, START_S_MAX)
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
        if self.access is not None:
            self.access.begin()
        self._check_problems()

    def _users_are_known(self) -> bool:
        """By every node. The rights of the worker are not refused to it after that."""
        newest = self.evidence.image
        images = [
            machine.node.quorum.image
            for machine in self.cluster.up
            if machine.node is not None and machine.node.quorum is not None
        ]
        return all(image.acls == newest.acls and image.scram == newest.scram for image in images)

    def _move_at_last(self) -> None:
        """What an operator asks for now is done within bounded time, and no throttle is left of anything."""
        if not self.options.moves_replicas:
            self.moves.check_strays()
            return
        order, kind = None, self.options.last_move
        if kind is not None:
            chance = self.world.loop.random_for("last move")
            topics = [name for name, _, _, _ in self.options.topics]
            order = MoveOrder.draw(kind, list(self.cluster.nodes), topics, chance)
            if order.throttle == SLOW:
                order = replace(order, throttle=None)
        wanted = self._commanded(f"{order or 'a look for throttles'}", self.mover.at_last(order))
        self._settle()
        self.moves.check_end(wanted, order.broker if order is not None and kind == DRAIN else None)
        if order is not None and kind == FACTOR:
            self._check_factor(order)

    def _drain_dead(self, absent: SimNode) -> None:
        """Others get what a node has that is away, while it is away."""
        wanted = self._commanded(f"drains {absent}", self.mover.drain_dead(absent.id))
        self._settle(absent)
        self.moves.check_wanted(wanted, absent.id)
        mark("absent node replaced")

    def _commanded(
        self, what: str, command: Coroutine[Any, Any, Mapping[Place, Sequence[int]]]
    ) -> Mapping[Place, Sequence[int]]:
        """Faults are over: a command must succeed, in time."""
        try:
            return self.world.node(CLIENTS).complete(command, MOVE_S_MAX)
        except TimeoutError as error:
            left = "; ".join(self.moves.moving()) or "nothing is being moved"
            raise _Failed(
                Verdict.LIVENESS, f"{what}: not done within {MOVE_S_MAX} s: {left}"
            ) from error
        except FAILURES as error:
            raise _Failed(Verdict.LIVENESS, f"{what}: {error!r}, though all is healed") from error

    def _check_factor(self, order: MoveOrder) -> None:
        for number, decided in enumerate(self.evidence.image.topics[order.topic].partitions):
            if len(decided.replicas) != order.factor:
                raise Violation(
                    "O1",
                    f"{order.topic}-{number}, at the end",
                    f"{order}, but it has {decided.replicas}",
                    [],
                )

    def _unsettled(self, absent: SimNode | None) -> list[str]:
        left = unsettled(self.cluster, self.evidence, self.workload, absent)
        if not left:
            left = self.moves.moving(None if absent is None else absent.id)
        if not left and self.options.deletes_soon and absent is None:
            left = self.moves.not_removed([name for name, _, _, _ in self.options.topics])
        if self.table is not None and not left:
            left = self.table.unsettled()
        if self.groups is not None and not left:
            left = self.groups.unsettled(self.cluster, self.evidence)
        if self.event_log is not None and not left:
            left = self.event_log.unsettled(absent)
        return left

    def _settle(self, absent: SimNode | None = None) -> None:
        def settled() -> bool:
            return (
                bool(self.failures or self._violations)
                or bool(self.world.loop.unhandled)
                or not (self._is_operated(absent) or self._unsettled(absent))
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
                for partition, candidates in self.evidence.leaderless().items():
                    if not candidates:
                        self.evidence.given_up.add(partition)
                        self.operator.elect(partition, UNCLEAN)
        self._check_problems()
        if not held:
            left = self._unsettled(absent) or ["a command still runs"]
            text = "\n".join(f"  {line}" for line in left)
            healed = "everything was healed" if absent is None else f"all but {absent} was healed"
            raise _Failed(
                Verdict.LIVENESS, f"{SETTLE_S_MAX} virtual seconds after {healed}:\n{text}"
            )

    def _is_operated(self, absent: SimNode | None) -> bool:
        """Whether a command runs. What moves to a node that is away may wait for it."""
        return self.operator.is_busy or (absent is None and self.mover.is_busy)

    def _nodes(self) -> str:
        return ", ".join(repr(node) for node in self.cluster.nodes.values())


def run_seed(
    seed: int, *, keep_trace: bool = False, options: RunOptions | None = None
) -> RunOutcome:
    """The whole run of a seed. Whatever goes wrong is in the outcome."""
    options = options or RunOptions.draw(seed)
    verdict, problem = Verdict.PASSED, ""
    cpu_began = time.process_time()
    with collector_at_rest(), World(seed, keep_trace=keep_trace) as world, counted() as marks:
        began = world.loop.time()
        scenario = Scenario(world, options)
        try:
            with scenario.recorded(), heard(scenario.failures.append, is_expected):
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
        return RunOutcome(
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
            losses=sum(len(ledger.losses) for ledger in scenario.evidence.ledgers.values()),
            records_lost=0
            if scenario.evidence.losses is None
            else scenario.evidence.losses.records_lost,
            transactions=len(scenario.transactions),
            excused=sum(each.is_excused for each in scenario.transactions),
            faults=dict(sorted(scenario.nemesis.counts.items())),
            struck=scenario.nemesis.struck,
            fault_log=scenario.nemesis.log,
            marks=dict(sorted(marks.items())),
            trace=world.loop.trace.lines,
        )
