"""Clusters for the screens of `ottla top`, made by what a watch observes, and somebody who presses keys there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

from ottla.client.group_admin import GroupDescription, GroupMember, ListedGroup
from ottla.client.group_lag import PartitionLag
from ottla.client.model import (
    BrokerInfo,
    ClusterDescription,
    PartitionInfo,
    QuorumInfo,
    QuorumReplica,
    Topic,
)
from ottla.console.model.cluster_model import ClusterModel
from ottla.console.model.flow import FlowCounters
from ottla.console.model.rows import DiskRow, EndsRow, EpochRow, EventRow, ReplicaRow
from ottla.console.top.frame import frame
from ottla.console.top.lines import Line, text_of, width_of
from ottla.console.top.picture import Explained, Orders, Picture, Scene, Size
from ottla.console.top.pressing import press
from ottla.console.top.screens import beginning
from ottla.console.top.views import TopState
from ottla.event_log.kinds import Severity

NOW = 1_700_000_000_000
"""22:13:20 UTC."""
SECOND = 1000
MINUTE = 60 * SECOND
GIGABYTE = 1 << 30
BROKERS = (1, 2, 3)


def a_topic(name: str, partitions: int, *, internal: bool = False) -> Topic:
    def info(number: int) -> PartitionInfo:
        replicas = tuple((number + turn) % 3 + 1 for turn in range(3))
        return PartitionInfo(name, number, replicas[0], 4, replicas, replicas, ())

    return Topic(name, UUID(int=sum(name.encode())), internal, tuple(map(info, range(partitions))))


def an_event(
    seconds_ago: float,
    kind: str,
    about: str,
    text: str,
    cause: str | None = None,
    severity: Severity = Severity.INFO,
    /,
    **fields: object,
) -> EventRow:
    what, _, name = about.partition(":")
    partition = name if what == "partition" else None
    at_ms = NOW - int(seconds_ago * SECOND)
    return EventRow(
        f"{at_ms}-{about}", at_ms, kind, severity, 1, about, partition, cause, text, dict(fields)
    )


def nothing() -> ClusterModel:
    """Nobody has answered yet."""
    return ClusterModel()


def a_cluster(topics: Iterable[Topic], *, is_ottla: bool = True) -> ClusterModel:
    model = ClusterModel()
    structure, began = model.structure, NOW - 10 * MINUTE
    infos = tuple(BrokerInfo(id, "kafka", 9091 + id, f"rack-{id}") for id in BROKERS)
    structure.answers(began, None)
    structure.kind(is_ottla=is_ottla, has_event_log=is_ottla)
    structure.described(ClusterDescription("QPtc1h5YIbujOTONQMsXlQ", 1, infos), began)
    structure.all_topics(list(topics), model.version, began)
    voters = tuple(QuorumReplica(id, 317, NOW, NOW) for id in BROKERS)
    structure.quorum_described(QuorumInfo(1, 7, 317, voters, ()), began)
    return model


def well() -> ClusterModel:
    """Three brokers under load, a group that keeps up, a name that is hard on terminals."""
    model = a_cluster([a_topic("orders", 3), a_topic("支付", 2), a_topic("audit-" + "x" * 60, 1)])
    _load(model)
    _group(model, "billing", behind_s=0.4, lag=12)
    model.event(
        an_event(600, "controller_change", "cluster", "node 1 is the active controller, epoch 7")
    )
    model.event(
        an_event(
            300,
            "leader_start",
            "partition:orders-0",
            "orders-0: broker 1 leads, epoch 4 starts at offset 900",
            None,
        )
    )
    model.settle(NOW)
    return model  # fmt: skip


def without_broker_2() -> ClusterModel:
    """Broker 2 was killed twelve seconds ago, and a group is late."""
    model = well()
    bad, warn = Severity.ERROR, Severity.WARNING
    fenced = "its address refuses connections"
    model.event(
        an_event(
            12, "fenced", "broker:2", "broker 2 was fenced", fenced, bad, broker=2, broker_epoch=1
        )
    )
    for name, number, leader in (
        ("orders", 0, 1),
        ("orders", 1, 3),
        ("orders", 2, 3),
        ("支付", 0, 1),
        ("支付", 1, 3),
        ("audit-" + "x" * 60, 0, 1),
    ):
        about = f"partition:{name}-{number}"
        isr = [id for id in BROKERS if id != 2]
        state = {"leader": leader, "leader_epoch": 4, "isr": isr, "previous_isr": [*BROKERS]}
        if leader == number % 3 + 1:
            text = "broker 2 left the ISR (fenced), ISR 1,3"
            model.event(an_event(11.9, "isr_shrink", about, text, "fenced", warn, **state))
        else:
            text = f"broker {leader} is elected from the ISR, epoch 5"
            model.event(
                an_event(
                    11.9,
                    "election",
                    about,
                    text,
                    "fenced",
                    warn,
                    **{**state, "leader_epoch": 5},
                    previous_leader=2,
                    how="clean",
                )
            )
    place = ("orders", 1)
    model.flow.replicas_told(
        place,
        {
            1: ReplicaRow(1, 0, 1190, 1180),
            2: ReplicaRow(2, None, None, None),
            3: ReplicaRow(3, 0, 1200, 1190),
        },
    )
    model.flow.epochs.put(place, EpochRow(((4, 0), (5, 1100))))
    _group(model, "billing", behind_s=45, lag=4200)
    model.settle(NOW)
    return model  # fmt: skip


def gone() -> ClusterModel:
    """Since five seconds nobody answers."""
    model = well()
    model.structure.silent(dict.fromkeys(BROKERS, NOW - 5 * SECOND))
    model.structure.answers(NOW - 5 * SECOND, "kafka:9092 (connection refused)")
    model.settle(NOW)
    return model


def apache_kafka() -> ClusterModel:
    """No event log, no metrics page: what other brokers tell."""
    topics = [a_topic("__consumer_offsets", 2, internal=True), a_topic("orders", 3)]
    model = a_cluster(topics, is_ottla=False)
    for at in (NOW - 10 * SECOND, NOW):
        model.flow.offsets_told(at, {("orders", n): 1000 + (at - NOW) // 100 for n in range(3)})
    model.flow.sum_topics({"orders": 3})
    model.settle(NOW)
    return model


def large(topics: int = 5000, partitions: int = 3) -> ClusterModel:
    model = a_cluster([a_topic(f"topic-{number:05}", partitions) for number in range(topics)])
    model.settle(NOW)
    return model


def _load(model: ClusterModel) -> None:
    flow = model.flow
    for step in range(14):
        at_ms = NOW - (13 - step) * 10 * SECOND
        for id in BROKERS:
            told = 5 + 4 * (step % 5) + id
            sums = [told * step * each for each in (10.0, 20_000.0, 60_000.0, 40_000.0, 0.01)]
            flow.counters(id, at_ms, FlowCounters(*sums))
        flow.step(at_ms)
    for id in BROKERS:
        flow.disk_told(id, DiskRow(1, (), (), 2 * GIGABYTE * id, 100 * GIGABYTE, 60 * GIGABYTE))
    names = {name: row.partitions for name, row in model.topics.items()}
    places = [(name, number) for name, many in names.items() for number in range(many)]
    starts = dict.fromkeys(places, 0)
    for at_ms, end in ((NOW - 10 * SECOND, 700), (NOW, 1200)):
        flow.offsets_told(at_ms, dict.fromkeys(places, end), starts)
    flow.ends_told({place: EndsRow(((1, 1200), (2, 1195), (3, 1200))) for place in places})
    flow.sizes_told(NOW, dict.fromkeys(names, 3_000_000))
    flow.sum_topics(names)


def _group(model: ClusterModel, id: str, *, behind_s: float, lag: int) -> None:
    consumers = model.consumers
    places = tuple(("orders", number) for number in range(3))
    consumers.listed([ListedGroup(id, "Stable", "consumer", "consumer", 1)])
    member = GroupMember("m-1", None, "app", "/10.0.0.7", places, None)
    consumers.described(GroupDescription(id, "consumer", "Stable", "range", 1, (member,), 3, None))
    for step in range(1, 8):
        at_ms, part = NOW - (7 - step) * 10 * SECOND, step / 7
        oldest_ms, end = at_ms - int(behind_s * part * SECOND), 1200 + int(lag * part) // 3
        consumers.lag_told(id, [PartitionLag(*p, 1200, 0, end, oldest_ms) for p in places], at_ms)
        consumers.step(at_ms)


CLUSTERS: Mapping[str, Callable[[], ClusterModel]] = {
    "nothing": nothing,
    "well": well,
    "without broker 2": without_broker_2,
    "gone": gone,
    "Apache Kafka": apache_kafka,
}


class TopUser:
    """Somebody in front of a terminal of this size."""

    def __init__(self, model: ClusterModel, columns: int = 100, rows: int = 24) -> None:
        self.model = model
        self.size = Size(columns, rows)
        self.state: TopState = beginning()
        self.told: dict[str, Explained] = {}
        self.now_ms = NOW
        self._orders = Orders()

    @property
    def scene(self) -> Scene:
        picture = Picture(self.model, self.now_ms, "kafka:9092", self.told)
        return Scene(picture, self.size, self._orders)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.state = press(self.scene, self.state, key)

    @property
    def lines(self) -> list[Line]:
        """As the terminal gets them: it has room for all of them."""
        lines = frame(self.scene, self.state)
        assert len(lines) <= self.size.rows, lines
        for line in lines:
            assert width_of(line) <= self.size.columns, line
        return lines

    @property
    def text(self) -> str:
        return "\n".join(text_of(line).rstrip() for line in self.lines)
