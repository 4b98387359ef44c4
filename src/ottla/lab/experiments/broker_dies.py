"""A broker dies: how its partitions get other leaders, and how the other brokers learn of them.

Three brokers have a replica of each partition, and each leads a third. One that is not the controller dies: its process is
killed, or its machine is gone. The product sees that the connections of a killed process are closed, which ZooKeeper does
not look at; nobody sees anything of a machine that is gone. The simulated time has no CPU time in it: it is the time of the
network, of the disks under ZooKeeper and the quorum, and of waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

from ottla.lab.design import Design, Seam, design_named, designs_of
from ottla.lab.experiment import Experiment, LabOptions, Run, command_of
from ottla.lab.propagation.cluster import (
    BROKERS,
    DETECTION_S_MAX,
    DETECTION_S_MIN,
    GONE,
    IDLE_S,
    KILLED,
    SESSION_TIMEOUT_S,
    SIGN_OF_LIFE_S,
    PropagationCluster,
    propagating,
)
from ottla.lab.propagation.elected_controller import ControlledMember
from ottla.lab.propagation.node import Propagation
from ottla.lab.propagation.pinned_producer import PinnedProducer
from ottla.lab.propagation.state_queue import RecipeQueueMember
from ottla.lab.propagation.znodes import TOPICS, leader_path
from ottla.lab.results import Cell, Chart, ExperimentResult, Table
from ottla.metadata.image import Delta, MetadataImage
from ottla.sim.clients.connections import ClientConnections
from ottla.wire.apis import ApiKey
from ottla.wire.types import TopicPartition

PAUSED, CUT = "paused", "cut off"
V1, V2, V3, KRAFT = "zk-watchers", "zk-queue", "zk-controller", "kraft"
SMALL_SIZES = (10, 50)
SIZES = (10, 100)
LARGE_SIZES = (1_000, 10_000)
"""With the first seed only: they take most of the time."""
REPLICAS_LEFT = len(BROKERS) - 1
DRAIN_S = 2.0
STALE_S = 5.0
"""How long a former leader stays cut off, or paused, after another one leads."""
OPERATIONS_TIMED = 20
STALE_PARTITIONS = 99
STALE_PARTITIONS_SMALL = 48
WINDOW_FACTOR_TO_KRAFT = 20
WINDOW_FACTOR = 3
"""So many times as long as in the other designs does v1 have two leaders after a pause, at least."""


@dataclass(frozen=True)
class DeathFigures:
    """One broker's death."""

    design: str
    cause: str
    partitions: int
    seed: int
    led: int
    """Partitions that it led."""
    detected_s: float
    settled_s: float
    """From the death until the last partition has a live leader that the live replicas follow."""
    rpcs: int
    """That the death caused."""
    reads: int
    writes: int
    watch_events: int
    leader_watch_events: int
    """Of the znodes of leaders."""
    watches: int
    """Registered before."""
    updates: float
    """Changes of leaders or ISRs that a live broker was given, each counted once however many partitions it has."""
    split: int
    """Partitions that two live brokers led at the same time."""
    wrong: int
    """Partitions that one live broker led, while another followed somebody else."""
    wrong_s: float
    """The longest such time."""


def measure_death(design: str, cause: str, partitions: int, seed: int) -> DeathFigures:
    with propagating(seed, design_named(design)) as cluster:
        cluster.start(partitions)
        victim = _not_the_controller(cluster)
        led = len(cluster.views.led_by(victim))
        alive = [cluster.node(id).host.name for id in cluster.lab.sim.nodes if id != victim]
        cluster.idle()
        watches = cluster.ensemble.watches if cluster.ensemble is not None else 0
        updates = UpdateCounter(cluster, [id for id in BROKERS if id != victim])
        cluster.views.forget_history()
        before, died_at = cluster.sent(), cluster.lab.now

        cluster.kill(victim, cause)
        detected = cluster.lab.run_until(lambda: cluster.knows_dead(victim), 60.0)
        assert detected, "a dead broker is never noticed"
        detected_s = cluster.lab.now - died_at
        cluster.settle()
        settled_s = cluster.views.settled_at - died_at
        assert settled_s > detected_s, "nobody decides before the death is noticed"
        cluster.lab.run_for(DRAIN_S)

        sent, now = cluster.sent_since(before), cluster.lab.now
        zookeeper = sent.zookeeper
        wrong = cluster.views.wrong.until(now)
        return DeathFigures(
            design,
            cause,
            partitions,
            seed,
            led,
            detected_s,
            settled_s,
            zookeeper.operation_rpcs
            + sent.direct
            + sent.learnt(alive)
            + sent.asked_of_quorum(alive),
            zookeeper.reads.total(),
            zookeeper.writes.total(),
            zookeeper.watch_events.total(),
            zookeeper.watch_events["deleted"],
            watches,
            updates.per_broker,
            len({each.key for each in cluster.views.split.until(now)}),
            len({each.key for each in wrong}),
            max((each.seconds for each in wrong), default=0.0),
        )


class UpdateCounter:
    """How often these brokers are given decisions about partitions."""

    def __init__(self, cluster: PropagationCluster, brokers: Sequence[int]) -> None:
        self._counts = dict.fromkeys(brokers, 0)
        for id in brokers:
            node = cluster.node(id).node
            assert node is not None and node.broker is not None
            node.broker.source.on_image.append(partial(self._changed, id))

    def _changed(self, broker: int, image: MetadataImage, delta: Delta) -> None:
        self._counts[broker] += bool(delta.changed_partitions)

    @property
    def per_broker(self) -> float:
        return fmean(self._counts.values())


def _not_the_controller(cluster: PropagationCluster) -> int:
    return max(id for id in BROKERS if id != cluster.controller)


# -- one notification --------------------------------------------------------------------------------


@dataclass(frozen=True)
class NotificationFigures:
    """One partition gets another leader, and one broker is told so."""

    design: str
    seed: int
    decision_rpcs: float
    """To decide, and to make the decision durable."""
    notification_rpcs: float
    read_ms: float
    """One read of ZooKeeper, from the call to its answer."""
    write_ms: float


RECIPE = Design(
    name=f"{V2}, by the recipe",
    seam=Seam.PROPAGATION,
    promise="P46",
    summary="The queue of ZooKeeper's recipes, for its price only.",
    part=Propagation(RecipeQueueMember),
)


def measure_notification(name: str, seed: int) -> NotificationFigures:
    design = RECIPE if name == RECIPE.name else design_named(name)
    with propagating(seed, design) as cluster:
        cluster.start(len(BROKERS))
        cluster.lab.run_for(IDLE_S)
        key = cluster.keys[0]
        if cluster.ensemble is None:
            decision, notification = _notify_by_quorum(cluster, key)
            read_ms = write_ms = 0.0
        else:
            measure = _notify_by_watch if cluster.controller is None else _notify_by_controller
            decision, notification = measure(cluster, key)
            read_ms, write_ms = cluster.lab.clients.complete(_time_operations(cluster))
        return NotificationFigures(name, seed, decision, notification, read_ms, write_ms)


def _notify_by_controller(cluster: PropagationCluster, key: TopicPartition) -> tuple[float, float]:
    """The controller gives the partition to another broker, and tells that broker."""
    id = cluster.controller
    assert id is not None
    member = cluster.member(id)
    assert isinstance(member, ControlledMember) and member.controller is not None
    target = next(each for each in BROKERS if each != id and each != cluster.views.leader(key))
    broker = member.controller.brokers[target]
    before = cluster.sent()
    host = cluster.node(id).host
    decision = host.complete(member.write_decision(key, target))
    decided, between = cluster.sent_since(before), cluster.sent()
    host.complete(member.tell([broker], [decision]))
    cluster.lab.run_for(DRAIN_S)
    replica = cluster.lab.replica(target, key)
    assert replica is not None and replica.leadership is not None, "it was not notified"
    told = cluster.sent_since(between)
    return decided.zookeeper.operation_rpcs, told.zookeeper.operation_rpcs + told.direct


def _notify_by_watch(cluster: PropagationCluster, key: TopicPartition) -> tuple[float, float]:
    """The leader gives up its znode. Every replica is told by a watch, and has a part in the decision."""
    leader = cluster.views.leader(key)
    before = cluster.sent()
    cluster.node(leader).host.complete(cluster.member(leader).client.delete(leader_path(key)))
    cluster.lab.run_for(DRAIN_S)
    cluster.settle()
    sent = cluster.sent_since(before).zookeeper
    told = sent.watch_events["deleted"] + sent.reads["get_data"]
    return (sent.operation_rpcs - told) / len(BROKERS), told / len(BROKERS)


def _notify_by_quorum(cluster: PropagationCluster, key: TopicPartition) -> tuple[float, float]:
    """The preferred leader becomes another one, and is elected. All brokers are told at the same time."""
    controllers = [cluster.node(id).host.name for id in cluster.lab.sim.nodes if id not in BROKERS]
    brokers = [cluster.node(id).host.name for id in BROKERS]
    connections = ClientConnections(cluster.lab.clients, cluster.lab.sim.bootstrap[:1], "admin")
    replicas = [*BROKERS[1:], BROKERS[0]]
    asked = {"name": key.topic, "partitions": [{"partition_index": 0, "replicas": replicas}]}
    cluster.lab.clients.complete(
        connections.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, {"topics": [asked], "timeout": 3_000})
    )
    cluster.lab.run_for(IDLE_S)
    before = cluster.sent()
    elected = {"topic": key.topic, "partitions": [0]}
    cluster.lab.clients.complete(
        connections.ask(
            ApiKey.ELECT_LEADERS,
            {"election_type": 0, "topic_partitions": [elected], "timeout": 3_000},
        )
    )
    cluster.lab.run_for(DRAIN_S)
    assert cluster.views.leader(key) == replicas[0], "the election did not move the leader"
    sent = cluster.sent_since(before)
    return sent.learnt(controllers), sent.learnt(brokers) / len(brokers)


async def _time_operations(cluster: PropagationCluster) -> tuple[float, float]:
    admin = await cluster.admin()
    began = cluster.lab.now
    for _ in range(OPERATIONS_TIMED):
        await admin.get(TOPICS)
    middle = cluster.lab.now
    for _ in range(OPERATIONS_TIMED):
        await admin.set(TOPICS, b"")
    ended = cluster.lab.now
    await admin.close()
    each_ms = 1000 / OPERATIONS_TIMED
    return (middle - began) * each_ms, (ended - middle) * each_ms


# -- a leader that does not know that it is none -------------------------------------------------------


@dataclass(frozen=True)
class StaleLeaderFigures:
    design: str
    how: str
    """paused, or cut off from what decides."""
    seed: int
    beside_s: float
    """Two running brokers both lead the partition, and one of them cannot learn it. The experiment decides how long."""
    window_s: float
    """They both lead it although the former leader runs and reaches all others again. The design decides how long."""
    acknowledged: int
    """By the former leader after another one led, with acks=1."""
    lost: int
    """Of all that it acknowledged with acks=1."""
    lost_all: int
    """With acks=all."""


def measure_stale_leader(design: str, how: str, partitions: int, seed: int) -> StaleLeaderFigures:
    """What is reported is about the last partition that it led."""
    with propagating(seed, design_named(design)) as cluster:
        cluster.start(partitions)
        cluster.lab.run_for(IDLE_S)
        victim = _not_the_controller(cluster)
        key = cluster.views.led_by(victim)[-1]
        replica = cluster.lab.replica(victim, key)
        assert replica is not None
        host = cluster.node(victim).host.name
        one, all_ = (
            PinnedProducer(cluster.lab.clients, host, key, replica.topic_id, acks)
            for acks in (1, -1)
        )
        one.start()
        all_.start()
        cluster.lab.run_for(1.0)
        cluster.views.forget_history()

        others = [id for id in BROKERS if id != victim]
        if how == PAUSED:
            cluster.pause(victim)
        else:
            cluster.cut(victim)
        led = cluster.lab.run_until(lambda: _is_led_by(cluster, key, others), 60.0)
        assert led, "nobody takes over"
        by_then = len(one.acknowledged)
        cluster.lab.run_for(STALE_S)
        back_at = cluster.lab.now
        if how == PAUSED:
            cluster.resume(victim)
        else:
            cluster.heal()
        cluster.lab.run_for(DRAIN_S)
        cluster.settle()
        one.stop()
        all_.stop()
        cluster.lab.run_for(IDLE_S)

        split = [each for each in cluster.views.split.until(cluster.lab.now) if each.key == key]
        beside_s = sum(each.seconds_before(back_at) for each in split)
        kept = {each.value for each in cluster.lab.records_on_disk(cluster.views.leader(key), key)}
        return StaleLeaderFigures(
            design,
            how,
            seed,
            beside_s,
            sum(each.seconds for each in split) - beside_s,
            len(one.acknowledged) - by_then,
            sum(value not in kept for value in one.acknowledged),
            sum(value not in kept for value in all_.acknowledged),
        )


def _is_led_by(cluster: PropagationCluster, key: TopicPartition, brokers: Iterable[int]) -> bool:
    replicas = (cluster.lab.replica(id, key) for id in brokers)
    return any(each is not None and each.leadership is not None for each in replicas)


# -- all together --------------------------------------------------------------------------------------


def compared() -> list[str]:
    return [each.name for each in designs_of(Seam.PROPAGATION)]


def runs(options: LabOptions) -> list[Run]:
    chosen = options.designs or compared()
    sizes = SMALL_SIZES if options.is_small else SIZES
    work = [
        Run(measure_death, (design, cause, partitions, seed))
        for design in chosen
        for cause in (KILLED, GONE)
        for partitions in sizes
        for seed in options.seeds
    ]
    if not options.is_small:
        work += [
            Run(measure_death, (design, KILLED, partitions, options.seeds.start))
            for design in chosen
            for partitions in LARGE_SIZES
        ]
    work += [
        Run(measure_notification, (name, seed))
        for name in _notifying(chosen)
        for seed in options.seeds
    ]
    partitions = STALE_PARTITIONS_SMALL if options.is_small else STALE_PARTITIONS
    work += [
        Run(measure_stale_leader, (design, how, partitions, seed))
        for design in chosen
        for how in (PAUSED, CUT)
        for seed in options.seeds
    ]
    return work


def _notifying(designs: Sequence[str]) -> list[str]:
    return [*designs, RECIPE.name] if V2 in designs else list(designs)


def summarize(options: LabOptions, found: Sequence[Any]) -> ExperimentResult:
    designs = list(options.designs or compared())
    all_deaths = [each for each in found if isinstance(each, DeathFigures)]
    deaths, gone = (Deaths([e for e in all_deaths if e.cause == cause]) for cause in (KILLED, GONE))
    notifications = {
        design: _mean_notification(
            [e for e in found if isinstance(e, NotificationFigures) and e.design == design]
        )
        for design in _notifying(designs)
    }
    stale = [each for each in found if isinstance(each, StaleLeaderFigures)]
    return ExperimentResult(
        experiment=EXPERIMENT.name,
        question=EXPERIMENT.question,
        designs=designs,
        finding=_finding(deaths, gone, notifications),
        seeds=f"{options.seeds.start}..{options.seeds.stop - 1}",
        command=command_of(EXPERIMENT.name, options),
        tables=[
            deaths.table(notifications),
            _detection_table(deaths, gone),
            _notification_table(notifications),
            _stale_table(designs, stale),
        ],
        charts=[*deaths.charts(), _notification_chart(notifications), _stale_chart(designs, stale)],
        contradictions=_contradictions(notifications, stale),
        failed_expectations=_failures(all_deaths, notifications, stale),
    )


class Deaths:
    """The figures by design and number of partitions, each the mean over its seeds."""

    def __init__(self, found: Sequence[DeathFigures]) -> None:
        self._by: dict[tuple[str, int], list[DeathFigures]] = {}
        for each in found:
            self._by.setdefault((each.design, each.partitions), []).append(each)

    def mean(self, design: str, partitions: int, name: str) -> float:
        return fmean(getattr(each, name) for each in self._by[design, partitions])

    def after_detection_s(self, design: str, partitions: int) -> float:
        mean = partial(self.mean, design, partitions)
        return mean("settled_s") - mean("detected_s")

    def sizes(self, design: str) -> list[int]:
        return sorted(partitions for name, partitions in self._by if name == design)

    @property
    def designs(self) -> list[str]:
        return list(dict.fromkeys(design for design, _ in self._by))

    @property
    def common_size(self) -> int:
        """The largest that all designs were measured with."""
        return min(max(self.sizes(design)) for design in self.designs)

    def table(self, notifications: dict[str, NotificationFigures]) -> Table:
        timed = [each for each in notifications.values() if each.read_ms]
        latency = ""
        if timed:
            latency = (
                f" A read of ZooKeeper takes {fmean(each.read_ms for each in timed):.1f} ms, a "
                f"write {fmean(each.write_ms for each in timed):.1f} ms; each broker does one "
                "operation after the other."
            )
        return Table(
            "The process of one of three brokers is killed: ZooKeeper waits for the session timeout of"
            f" {SESSION_TIMEOUT_S:g} s, the quorum sees that the connection is closed.{latency} RPCs are"
            f" those that the death caused; of {KRAFT}: the fetches that brought its records, or the"
            " high watermark that commits them.",
            (
                "design",
                "partitions",
                "RPCs",
                "ZooKeeper reads",
                "ZooKeeper writes",
                "watch firings",
                "watches",
                "updates per broker",
                "detected s",
                "last leader s",
                "wrong views",
                "longest wrong view ms",
                "two leaders",
            ),
            [
                self._row(design, partitions)
                for design in self.designs
                for partitions in self.sizes(design)
            ],
        )

    def _row(self, design: str, partitions: int) -> list[Cell]:
        mean = partial(self.mean, design, partitions)
        names = ("rpcs", "reads", "writes", "watch_events", "watches")
        return [
            design,
            partitions,
            *(round(mean(name)) for name in names),
            round(mean("updates"), 1),
            round(mean("detected_s"), 3),
            round(mean("settled_s"), 3),
            round(mean("wrong")),
            round(mean("wrong_s") * 1000, 1),
            round(mean("split")),
        ]

    def charts(self) -> list[Chart]:
        def lines(value: Any) -> dict[str, list[tuple[int, float]]]:
            return {
                design: [(size, value(design, size)) for size in self.sizes(design)]
                for design in self.designs
            }

        return [
            Chart(
                "RPCs until every partition of a dead broker has a leader again",
                "line",
                "partitions",
                "RPCs",
                lines(lambda design, size: self.mean(design, size, "rpcs")),
                log_x=True,
                log_y=True,
            ),
            Chart(
                "From the detection of the death to the last leader",
                "line",
                "partitions",
                "seconds",
                lines(self.after_detection_s),
                log_x=True,
            ),
            Chart(
                "Watches that fire when a broker dies",
                "line",
                "partitions",
                "watch firings",
                lines(lambda design, size: self.mean(design, size, "watch_events")),
                log_x=True,
            ),
        ]


def _detection_table(killed: Deaths, gone: Deaths) -> Table:
    """Only for the sizes that both causes were measured with."""
    return Table(
        "The cause of the death: the process is killed (its connections are closed), or the machine is"
        f" gone (they are not; {KRAFT} waits for the same session timeout of {SESSION_TIMEOUT_S:g} s"
        " then). Timeouts count from the last ping or heartbeat, which was sent up to"
        f" {SIGN_OF_LIFE_S:g} s before",
        (
            "design",
            "partitions",
            "killed: detected s",
            "killed: last leader s",
            "machine gone: detected s",
            "machine gone: last leader s",
        ),
        [
            [
                design,
                size,
                *(
                    round(deaths.mean(design, size, name), 3)
                    for deaths in (killed, gone)
                    for name in ("detected_s", "settled_s")
                ),
            ]
            for design in gone.designs
            for size in gone.sizes(design)
        ],
    )


def _mean_notification(found: Sequence[NotificationFigures]) -> NotificationFigures:
    names = ("decision_rpcs", "notification_rpcs", "read_ms", "write_ms")
    means = {name: fmean(getattr(each, name) for each in found) for name in names}
    return NotificationFigures(found[0].design, found[0].seed, **means)


def _notification_table(notifications: dict[str, NotificationFigures]) -> Table:
    rpcs = {design: f"{each.notification_rpcs:g}" for design, each in notifications.items()}
    title = (
        "One partition gets another leader: RPCs to decide and store it, and to tell one broker."
    )
    if V2 in rpcs:
        title += (
            f" The {rpcs[V2]} of {V2} rests on one atomic multi for its two znodes, and on an ensemble"
            " of a leader and one follower, where a write is 2 RPCs; the queue by ZooKeeper's recipe"
            f" costs {rpcs[RECIPE.name]}."
        )
    if V3 in rpcs:
        title += f" The {rpcs[V3]} of {V3} rests on one request that merges LeaderAndIsr and UpdateMetadata."
    if KRAFT in rpcs:
        title += (
            f" In {KRAFT} a fetch brings the record, and one the high watermark that commits it."
        )
    return Table(
        title,
        ("design", "RPCs of the decision", "RPCs per notification"),
        [
            [design, round(each.decision_rpcs, 1), round(each.notification_rpcs, 1)]
            for design, each in notifications.items()
        ],
    )


def _notification_chart(notifications: dict[str, NotificationFigures]) -> Chart:
    return Chart(
        "RPCs to tell one broker of one decision",
        "bar",
        "design",
        "RPCs",
        {
            "per notification": [
                (design, each.notification_rpcs) for design, each in notifications.items()
            ]
        },
    )


def _worst(stale: Sequence[StaleLeaderFigures], design: str, how: str) -> StaleLeaderFigures | None:
    of_it = [each for each in stale if (each.design, each.how) == (design, how)]
    return max(of_it, key=lambda each: each.window_s, default=None)


def _stale_table(designs: Sequence[str], stale: Sequence[StaleLeaderFigures]) -> Table:
    rows: list[list[Cell]] = []
    for design in designs:
        for how in (PAUSED, CUT):
            of_it = [each for each in stale if (each.design, each.how) == (design, how)]
            worst = _worst(stale, design, how)
            if worst is not None:
                rows.append(
                    [
                        design,
                        how,
                        round(worst.beside_s, 3),
                        round(worst.window_s * 1000, 1),
                        worst.seed,
                        sum(each.acknowledged for each in of_it),
                        sum(each.lost for each in of_it),
                        sum(each.lost_all for each in of_it),
                    ]
                )
    return Table(
        "A leader is paused, or cut off from ZooKeeper or the controllers, until"
        f" {STALE_S:g} s after another one leads; a client goes on writing to it. Two brokers lead"
        " while it is cut off, and until it knows better after its return",
        (
            "design",
            "former leader",
            "two leaders while cut off s",
            "two leaders after its return ms",
            "seed",
            "acknowledged too late",
            "lost, acks=1",
            "lost, acks=all",
        ),
        rows,
    )


def _stale_chart(designs: Sequence[str], stale: Sequence[StaleLeaderFigures]) -> Chart:
    return Chart(
        "How long two brokers lead one partition after a paused leader runs again",
        "bar",
        "design",
        "milliseconds",
        {
            PAUSED: [
                (design, worst.window_s * 1000)
                for design in designs
                if (worst := _worst(stale, design, PAUSED)) is not None
            ]
        },
    )


def _finding(deaths: Deaths, gone: Deaths, notifications: dict[str, NotificationFigures]) -> str:
    size = deaths.common_size
    told = ", ".join(
        f"{design} {each.notification_rpcs:.3g}" for design, each in notifications.items()
    )
    totals = ", ".join(
        f"{design} {deaths.mean(design, size, 'rpcs'):,.0f} RPCs and"
        f" {_seconds(deaths.after_detection_s(design, size))}"
        for design in deaths.designs
    )
    least = min(gone.sizes(gone.designs[0]))
    noticed = ", ".join(
        f"{design} {_seconds(deaths.mean(design, least, 'detected_s'))} and"
        f" {_seconds(gone.mean(design, least, 'detected_s'))}"
        for design in gone.designs
    )
    return (
        f"RPCs to tell one broker of one decision: {told}. Other leaders for {size:,} partitions take, once the death"
        f" is detected, {totals}. A death is detected, if the process is killed and if the machine is gone, after:"
        f" {noticed}."
    )


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value >= 1 else f"{value * 1000:.0f} ms"


def _contradictions(
    notifications: dict[str, NotificationFigures], stale: Sequence[StaleLeaderFigures]
) -> list[str]:
    found = []
    if RECIPE.name in notifications:
        recipe, cheapest = (notifications[name].notification_rpcs for name in (RECIPE.name, V2))
        if recipe != cheapest:
            found.append(
                f"004 counts 6 RPCs for a notification through a queue. Measured: {cheapest:g} if the"
                " read that takes an entry also watches for the next, and the delete fires no watch;"
                f" {recipe:g} with the queue of ZooKeeper's recipes."
            )
    later = [each for each in stale if each.how == CUT and each.design != V1 and each.beside_s > 0]
    if later:
        lost = dict.fromkeys((each.design for each in later), 0)
        for each in later:
            lost[each.design] += each.lost
        counts = ", ".join(f"{design} {count}" for design, count in lost.items())
        found.append(
            "004 names split brain as a problem of v1. A leader that is cut off from what decides"
            " leads beside the new one in every design, and acknowledges records with acks=1 that"
            f" are lost ({counts}); with acks=all {sum(each.lost_all for each in stale)} are lost."
        )
    return found


def _failures(
    deaths: Sequence[DeathFigures],
    notifications: dict[str, NotificationFigures],
    stale: Sequence[StaleLeaderFigures],
) -> list[str]:
    failed = []
    for design, expected in ((V2, 6), (V3, 1)):
        figures = notifications.get(design)
        if figures is not None and figures.notification_rpcs != expected:
            failed.append(
                f"{design}: {figures.notification_rpcs} RPCs per notification, not {expected}"
            )
    for each in deaths:
        what = f"{each.design}, {each.partitions} partitions, seed {each.seed}, {each.cause}"
        # ZooKeeper sends events to a machine that is gone too, for that connection is not closed.
        watching = len(BROKERS) if each.cause == GONE else REPLICAS_LEFT
        if each.design == V1 and each.leader_watch_events != each.led * watching:
            failed.append(
                f"{what}: {each.leader_watch_events} watches of leaders fired for {each.led}"
                f" partitions with {watching} replicas that watch"
            )
        if each.design in (V3, KRAFT) and each.updates != 1:
            failed.append(f"{what}: {each.updates} updates per broker for one death, not 1")
        if each.cause == GONE and not DETECTION_S_MIN <= each.detected_s <= DETECTION_S_MAX:
            failed.append(
                f"{what}: detected after {each.detected_s:.3f} s, not after the session timeout"
            )
    return failed + _window_failures(stale)


def _window_failures(stale: Sequence[StaleLeaderFigures]) -> list[str]:
    """In v1 a leader that comes back leads beside the new one for longer than in any other design, in every seed."""
    failed = []
    windows = {(each.design, each.how, each.seed): each for each in stale}
    for (design, how, seed), each in windows.items():
        if design != V1:
            continue
        if each.window_s <= 0 or each.lost == 0:
            failed.append(f"{V1}, seed {seed}: no window of two leaders after one was {how}")
        for (other, other_how, other_seed), its in windows.items():
            if other == V1 or (other_how, other_seed) != (PAUSED, seed) or how != PAUSED:
                continue
            factor = WINDOW_FACTOR_TO_KRAFT if other == KRAFT else WINDOW_FACTOR
            if each.window_s < factor * its.window_s:
                failed.append(
                    f"{V1}, seed {seed}: two leaders for {each.window_s:.4f} s after one was {how},"
                    f" which is not {factor} times the {its.window_s:.4f} s of {other}"
                )
    return failed


EXPERIMENT = Experiment(
    name="broker-dies",
    title="A broker dies with N partitions",
    question="What does it take to give the partitions of a dead broker other leaders,"
    " and to tell everybody?",
    promises=("P32", "P45", "P46", "P47", "P48"),
    designs=compared,
    default_seeds=3,
    small_seeds=1,
    runs=runs,
    summarize=summarize,
)
