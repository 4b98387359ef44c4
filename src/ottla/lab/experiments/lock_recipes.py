"""Lock recipes: what a hand-over of a lock costs when N clients want it (P50).

N clients arrive one after another. Then the lock changes hands: the holder releases it, or dies. Its place at the end of
the queue is taken by a new arrival, so that each hand-over has N - 1 clients that wait. Everything is counted from the
release, or the death, until all is quiet again.

A second schedule pauses a holder for longer than its session. It goes on afterwards as if it still held the lock. It writes to
a store, once with and once without a fencing token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from statistics import mean
from typing import Any, NamedTuple

from ottla.lab.design import Seam, design_named, designs_of
from ottla.lab.experiment import Experiment, LabOptions, Run, command_of
from ottla.lab.results import Cell, Chart, ExperimentResult, Table
from ottla.lab.zookeeper.client import ZooKeeperClient
from ottla.lab.zookeeper.ensemble import ZooKeeperEnsemble
from ottla.lab.zookeeper.errors import SessionExpired
from ottla.lab.zookeeper.locks import Lock, LockRecipe
from ottla.sim.engine.loop import collector_at_rest
from ottla.sim.engine.world import SimHost, World

NAME = "lock-recipes"
CLIENTS = (2, 4, 8, 16, 32, 64)
SMALL_CLIENTS = (2, 4, 8)
HANDOVERS = 10
"""In one run; half of them releases, half of them deaths."""
LOCK_PATH = "/lock"
SESSION_TIMEOUT_S = 6.0
QUIET_S = 0.25
"""Longer than any message of the simulated network is under way, and than a write takes."""
LIMIT_S = 60.0
WORK_EVERY_S = 0.05
PAUSE_S = 2 * SESSION_TIMEOUT_S


class Handover(NamedTuple):
    is_death: bool
    watch_events: int
    woken: int
    """Clients that were woken, of those that waited."""
    rpcs: int
    """Of ZooKeeper, without those that keep sessions."""
    seconds: float
    """From the release or the death until the next holder knows that it has the lock."""
    overtaken: int
    """Clients that had waited longer than the next holder."""


class HandoverRun(NamedTuple):
    design: str
    clients: int
    handovers: list[Handover]


class PauseRun(NamedTuple):
    design: str
    fenced: bool
    stale_accepted: int
    """Writes of the paused holder that the store took although there was a new holder."""
    stale_refused: int
    known_s: float
    """From the end of the pause until the paused client knew that its session was over."""


class Contender:
    """A client that wants the lock."""

    def __init__(self, bench: LockBench, host: SimHost, arrival: int) -> None:
        self._bench = bench
        self.host = host
        self.arrival = arrival
        self.has_lock = False
        self.client: ZooKeeperClient
        self.lock: Lock
        self.acquired_at = 0.0

    def __repr__(self) -> str:
        return f"<contender {self.arrival}, {'holds' if self.has_lock else 'waits'}>"

    @property
    def is_paused(self) -> bool:
        process = self.host.process
        return process is not None and process.paused

    async def contend(self) -> None:
        bench = self._bench
        self.client = await ZooKeeperClient.connect(
            self.host.runtime.network,
            bench.ensemble.addresses,
            self.host.name,
            SESSION_TIMEOUT_S,
        )
        self.lock = bench.recipe(self.client, LOCK_PATH)
        await self.lock.acquire()
        assert all(each.is_paused for each in bench.holders), f"two holders: {bench.holders}"
        self.has_lock = True
        self.acquired_at = bench.world.loop.time()

    async def release(self) -> None:
        # From here on it does nothing that needs the lock.
        self.has_lock = False
        await self.lock.release()
        await self.client.close()


class LockBench:
    """A simulated ZooKeeper, and clients that want one lock."""

    def __init__(self, world: World, recipe: LockRecipe) -> None:
        self.world = world
        self.recipe = recipe
        self.ensemble = ZooKeeperEnsemble(world)
        self.ensemble.start()
        self.contenders: list[Contender] = []
        """Those that hold the lock or wait, in the order of their arrival."""
        self._arrivals = 0
        world.node("admin").complete(self._create_path())

    async def _create_path(self) -> None:
        host = self.world.node("admin")
        client = await ZooKeeperClient.connect(
            host.runtime.network, self.ensemble.addresses, host.name
        )
        await client.create(LOCK_PATH)
        await client.close()

    def arrive(self) -> Contender:
        """One more client, on a host of its own. It asks for the lock, and waits."""
        self._arrivals += 1
        contender = Contender(self, self.world.node(f"c{self._arrivals}"), self._arrivals)
        contender.host.run(contender.contend())
        self.contenders.append(contender)
        self.world.run_for(QUIET_S)
        return contender

    @property
    def holders(self) -> list[Contender]:
        return [each for each in self.contenders if each.has_lock]

    def holder(self) -> Contender:
        """Runs until there is one. Never two."""
        assert self.world.run_until(lambda: bool(self.holders), LIMIT_S), "nobody gets the lock"
        (found,) = self.holders
        return found

    def hand_over(self, is_death: bool) -> Handover:
        holder = self.holder()
        waiting = [each for each in self.contenders if each is not holder]
        wakes = {each.arrival: each.lock.wakes for each in waiting}
        before, began = self.ensemble.counts.copy(), self.world.loop.time()
        self.contenders.remove(holder)
        if is_death:
            holder.host.kill()
        else:
            holder.host.run(holder.release())
        following = self.holder()
        self.world.run_for(QUIET_S)
        assert self.holders == [following], self.holders
        counted = self.ensemble.counts.since(before)
        return Handover(
            is_death,
            counted.watch_events.total(),
            sum(each.lock.wakes > wakes[each.arrival] for each in waiting),
            counted.operation_rpcs,
            following.acquired_at - began,
            sum(each.arrival < following.arrival for each in waiting),
        )


def measure_handovers(design: str, clients: int, seed: int) -> HandoverRun:
    with collector_at_rest(), World(seed) as world:
        bench = LockBench(world, design_named(design).part)
        for _ in range(clients):
            bench.arrive()
        deaths = [number < HANDOVERS // 2 for number in range(HANDOVERS)]
        world.random.shuffle(deaths)
        handovers = []
        for is_death in deaths:
            handovers.append(bench.hand_over(is_death))
            bench.arrive()
        problems = world.problems()
        assert not problems, problems
        return HandoverRun(design, clients, handovers)


class ProtectedStore:
    """What the lock protects. With fencing it refuses a token that is lower than one it saw."""

    def __init__(self, fenced: bool) -> None:
        self._fenced = fenced
        self._highest = 0
        self.writes: list[tuple[int, bool]] = []
        """(arrival of the writer, whether it was accepted)"""

    def write(self, writer: int, token: int) -> None:
        accepted = not self._fenced or token >= self._highest
        self._highest = max(self._highest, token)
        self.writes.append((writer, accepted))


async def work(contender: Contender, store: ProtectedStore) -> None:
    """Write to the store as long as the client has heard nothing that speaks against it."""
    token = await contender.lock.fencing_token()
    while not contender.client.is_over:
        store.write(contender.arrival, token)
        await asyncio.sleep(WORK_EVERY_S)


def pause_the_holder(design: str, fenced: bool, seed: int) -> PauseRun:
    with collector_at_rest(), World(seed) as world:
        bench = LockBench(world, design_named(design).part)
        first, second = bench.arrive(), bench.arrive()
        store = ProtectedStore(fenced)
        assert bench.holder() is first
        first.host.run(work(first, store))
        world.run_for(world.random.uniform(1.0, 2.0))
        first.host.pause()
        paused = world.loop.time()
        # ZooKeeper gives the lock away when the session is over. It never has two holders.
        assert world.run_until(lambda: second.has_lock, PAUSE_S), "the lock is stuck"
        second.host.run(work(second, store))
        world.run_for(paused + PAUSE_S - world.loop.time())
        resumed, written = world.loop.time(), len(store.writes)
        first.host.resume()
        assert world.run_until(lambda: first.client.is_over, LIMIT_S), "it never learns of its end"
        known_s = world.loop.time() - resumed
        stale = [accepted for writer, accepted in store.writes[written:] if writer == first.arrival]
        lock_is_gone = first.host.run(_release_fails(first))
        assert world.run_until(lock_is_gone.done, LIMIT_S) and lock_is_gone.result()
        return PauseRun(design, fenced, sum(stale), len(stale) - sum(stale), known_s)


async def _release_fails(contender: Contender) -> bool:
    """A client whose session is over cannot release the lock of the next holder."""
    try:
        await contender.lock.release()
    except SessionExpired:
        return True
    return False


def design_names() -> list[str]:
    return [each.name for each in designs_of(Seam.LOCK)]


def runs(options: LabOptions) -> Sequence[Run]:
    designs = options.designs or tuple(design_names())
    sizes = SMALL_CLIENTS if options.is_small else CLIENTS
    handovers = [
        Run(measure_handovers, each) for each in product(designs, sizes, list(options.seeds))
    ]
    pauses = [
        Run(pause_the_holder, each) for each in product(designs, (False, True), list(options.seeds))
    ]
    return [*handovers, *pauses]


HANDOVER_COLUMNS = (
    "design",
    "clients",
    "hand-over",
    "watch events",
    "clients woken",
    "ZooKeeper RPCs",
    "ms to the next holder",
    "longer waiting clients overtaken",
)


def summarize(options: LabOptions, results: Sequence[Any]) -> ExperimentResult:
    measured = [each for each in results if isinstance(each, HandoverRun)]
    pauses = [each for each in results if isinstance(each, PauseRun)]
    designs = list(dict.fromkeys(each.design for each in measured))
    sizes = sorted({each.clients for each in measured})

    def handovers(design: str, clients: int, is_death: bool | None = None) -> list[Handover]:
        return [
            handover
            for each in measured
            if (each.design, each.clients) == (design, clients)
            for handover in each.handovers
            if is_death in (None, handover.is_death)
        ]

    def series(
        value: Callable[[Handover], float], is_death: bool | None = None
    ) -> dict[str, list[tuple[Any, float]]]:
        return {
            design: [(size, mean(map(value, handovers(design, size, is_death)))) for size in sizes]
            for design in designs
        }

    def row(design: str, size: int, is_death: bool) -> list[Cell]:
        found = handovers(design, size, is_death)
        return [
            design,
            size,
            "the holder dies" if is_death else "release",
            round(mean(each.watch_events for each in found), 2),
            round(mean(each.woken for each in found), 2),
            round(mean(each.rpcs for each in found), 2),
            round(mean(each.seconds for each in found) * 1000, 2),
            round(mean(each.overtaken for each in found), 2),
        ]

    rows = [row(*each) for each in product(designs, sizes, (False, True))]
    pause_rows = [
        pause_row([each for each in pauses if (each.design, each.fenced) == key])
        for key in product(designs, (False, True))
    ]
    charts = [
        chart("Clients woken by one hand-over", "clients", series(lambda each: each.woken)),
        chart("ZooKeeper RPCs of one release", "RPCs", series(lambda each: each.rpcs, False)),
        chart(
            "Time from a release to the next holder",
            "ms",
            series(lambda each: each.seconds * 1000, False),
        ),
        chart(
            "Fairness: clients overtaken that had waited longer than the next holder",
            "clients",
            series(lambda each: each.overtaken),
        ),
    ]
    return ExperimentResult(
        experiment=NAME,
        question=EXPERIMENT.question,
        designs=designs,
        finding=finding_of(designs, sizes[-1], handovers, pauses),
        seeds=f"{options.seeds.start}..{options.seeds.stop - 1}",
        command=command_of(NAME, options),
        tables=[
            Table(
                "One hand-over of the lock, on average (without the RPCs that keep sessions)",
                HANDOVER_COLUMNS,
                rows,
            ),
            Table("A holder that is paused for longer than its session", PAUSE_COLUMNS, pause_rows),
        ],
        charts=charts,
        failed_expectations=failed_expectations(measured, pauses),
    )


def chart(title: str, y_label: str, series: Mapping[str, Sequence[tuple[Any, float]]]) -> Chart:
    return Chart(title, "line", "clients that want the lock", y_label, series, log_x=True)


PAUSE_COLUMNS = (
    "design",
    "fencing token",
    "stale writes accepted",
    "stale writes refused",
    "ms until it knew",
)


def pause_row(found: Sequence[PauseRun]) -> list[Cell]:
    return [
        found[0].design,
        "yes" if found[0].fenced else "no",
        sum(each.stale_accepted for each in found),
        sum(each.stale_refused for each in found),
        round(mean(each.known_s for each in found) * 1000, 2),
    ]


def finding_of(
    designs: Sequence[str],
    size: int,
    handovers: Callable[..., list[Handover]],
    pauses: Sequence[PauseRun],
) -> str:
    costs = " and ".join(
        f"{mean(each.woken for each in handovers(design, size)):.4g} with {design}"
        f" ({mean(each.rpcs for each in handovers(design, size, False)):.4g} RPCs a release,"
        f" {mean(each.overtaken for each in handovers(design, size)):.3g} overtaken)"
        for design in designs
    )
    stale = sum(each.stale_accepted for each in pauses if not each.fenced)
    fenced = sum(each.stale_accepted for each in pauses if each.fenced)
    return (
        f"With {size} clients one hand-over wakes {costs}; ZooKeeper never had two holders, but holders that were"
        f" paused for longer than their sessions made {stale} stale writes without a fencing token, and {fenced} with one."
    )


HERDS: Mapping[str, Callable[[int], int]] = {
    "unique-name-lock": lambda clients: clients - 1,
    "ephemeral-sequential-lock": lambda clients: 1,
}
"""How many clients a hand-over must wake."""


def failed_expectations(measured: Sequence[HandoverRun], pauses: Sequence[PauseRun]) -> list[str]:
    failed = []
    for each in measured:
        where = f"{each.design} with {each.clients} clients"
        seen = {count for one in each.handovers for count in (one.watch_events, one.woken)}
        if each.design in HERDS and seen != {HERDS[each.design](each.clients)}:
            expected = HERDS[each.design](each.clients)
            failed.append(f"{where}: a hand-over woke {sorted(seen)} clients, not {expected}")
        is_queue = each.design == "ephemeral-sequential-lock"
        if is_queue and any(one.overtaken for one in each.handovers):
            failed.append(f"{where}: a client was overtaken")
    failed += [
        f"{each.design}: a fenced store accepted {each.stale_accepted} stale writes"
        for each in pauses
        if each.fenced and each.stale_accepted
    ]
    return sorted(set(failed))


EXPERIMENT = Experiment(
    name=NAME,
    title="Lock recipes",
    question="How many of the clients that wait for a lock does one hand-over wake, and what does that cost?",
    promises=("P50",),
    designs=design_names,
    default_seeds=10,
    small_seeds=1,
    runs=runs,
    summarize=summarize,
)
