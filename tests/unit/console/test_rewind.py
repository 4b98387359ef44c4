"""What the event log's entries did to a cluster can be undone: forwards and back again is where one began."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.console.model.cluster_model import problems_of
from ottla.console.model.rewind import before, rewind
from ottla.console.model.rows import BrokerRow, BrokerStanding, EventRow, PartitionRow, Place
from ottla.console.model.structure import after

BROKERS = (1, 2, 3, 4)


def an_event(at_ms: int, kind: str, partition: str | None = None, **fields: Any) -> EventRow:
    about = f"partition:{partition}" if partition else f"broker:{fields.get('broker')}"
    if kind == "controller_change":
        about = "cluster"
    return EventRow(
        f"1-x-{at_ms}-{kind}", at_ms, kind, 0, 1, about, partition, f"cause {at_ms}", "", fields
    )


class ToyCluster:
    """Decides as a controller does, and writes down what it decided as the event log does."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.brokers = {id: BrokerRow(id) for id in BROKERS}
        self.rows: dict[Place, PartitionRow] = {}
        self.controller = 1
        self.events: list[EventRow] = []
        self.now = 1000
        for number in range(3):
            replicas = tuple(self.chance.sample(BROKERS, 3))
            row = PartitionRow("orders", number, replicas[0], 5, replicas, replicas)
            self.rows[row.place] = row
        self.adding: dict[Place, tuple[tuple[int, ...], tuple[int, ...]]] = {}

    def step(self) -> None:
        self.now += self.chance.randrange(1, 5)
        place = self.chance.choice(sorted(self.rows))
        self.chance.choice([self._fence, self._unfence, self._isr, self._move, self._controller])(
            place
        )

    def _tell(self, kind: str, place: Place | None = None, **fields: Any) -> None:
        name = None if place is None else f"{place[0]}-{place[1]}"
        self.events.append(an_event(self.now, kind, name, **fields))

    def _decide(self, place: Place, leader: int, isr: tuple[int, ...], how: str = "clean") -> None:
        """As `controller.committed_events`: the election first, then who left, then who joined."""
        was = self.rows[place]
        epoch = was.epoch + (leader != was.leader)
        now = was._replace(leader=leader, isr=isr, epoch=epoch)
        self.rows[place] = now
        if leader != was.leader and leader < 0:
            self._tell("offline", place, previous_leader=was.leader, leader_epoch=epoch)
        elif leader != was.leader:
            fields = {"leader": leader, "previous_leader": was.leader, "leader_epoch": epoch}
            self._tell("election", place, **fields, isr=list(isr), how=how)
        state = {"leader": leader, "leader_epoch": epoch, "isr": list(isr)}
        state["previous_isr"] = list(was.isr)
        left = [id for id in was.isr if id not in isr]
        for id in left:  # one entry for each cause: as if each had its own
            self._tell("isr_shrink", place, **state, brokers=[id])
        joined = [id for id in isr if id not in was.isr and not (id == leader != was.leader)]
        if joined:
            self._tell("isr_expand", place, **state, brokers=joined)

    def _fence(self, place: Place) -> None:
        up = [id for id in BROKERS if self.brokers[id].standing is BrokerStanding.UP]
        if not up:
            return
        id = self.chance.choice(up)
        self.brokers[id] = self.brokers[id]._replace(standing=BrokerStanding.FENCED)
        self._tell("fenced", broker=id)
        for each, row in list(self.rows.items()):
            if id not in row.isr and id != row.leader:
                continue
            isr = tuple(other for other in row.isr if other != id)
            if not isr and self.chance.random() < 0.5:
                isr = row.isr  # the last one stays, unless there are eligible leader replicas
            leader = row.leader if row.leader != id else next((o for o in isr if o != id), -1)
            self._decide(each, leader, isr)

    def _unfence(self, place: Place) -> None:
        down = [id for id in BROKERS if self.brokers[id].standing is BrokerStanding.FENCED]
        if not down:
            return
        id = self.chance.choice(down)
        self.brokers[id] = self.brokers[id]._replace(standing=BrokerStanding.UP)
        self._tell("unfenced", broker=id)
        for each, row in list(self.rows.items()):
            if row.leader < 0 and id in row.isr:
                self._decide(each, id, row.isr)
            elif row.leader < 0 and id in row.replicas and self.chance.random() < 0.5:
                self._decide(each, id, (id,), "unclean" if row.isr else "elr")

    def _isr(self, place: Place) -> None:
        row = self.rows[place]
        if row.leader < 0:
            return
        may = [id for id in row.replicas if id != row.leader]
        isr = (row.leader, *(id for id in may if self.chance.random() < 0.5))
        if set(isr) != set(row.isr):
            self._decide(place, row.leader, isr)

    def _move(self, place: Place) -> None:
        row = self.rows[place]
        if place not in self.adding:
            new = [id for id in BROKERS if id not in row.replicas]
            adding, removing = tuple(new[:1]), row.replicas[-1:]
            replicas = (*row.replicas, *adding)
            self.adding[place] = (adding, removing)
            self.rows[place] = row._replace(replicas=replicas)
            lists = {"adding": list(adding), "removing": list(removing)}
            self._tell("reassignment", place, step="started", replicas=list(replicas), **lists)
            return
        adding, removing = self.adding[place]
        cancelled = self.chance.random() < 0.5
        gone = adding if cancelled else removing
        if set(gone) & {*row.isr, row.leader}:
            return
        del self.adding[place]
        replicas = tuple(id for id in row.replicas if id not in gone)
        self.rows[place] = row._replace(replicas=replicas)
        step = "cancelled" if cancelled else "completed"
        self._tell(
            "reassignment", place, step=step, replicas=list(replicas), adding=[], removing=[]
        )

    def _controller(self, place: Place) -> None:
        self.controller = self.chance.choice([id for id in BROKERS if id != self.controller])
        self._tell("controller_change", controller=self.controller, epoch=self.now)


def _plain(rows: dict[Place, PartitionRow]) -> dict[Place, Any]:
    """Without since when and why."""
    return {
        place: (row.leader, row.epoch, frozenset(row.isr), frozenset(row.replicas))
        for place, row in rows.items()
    }


def _standings(brokers: dict[int, BrokerRow]) -> dict[int, BrokerStanding]:
    return {id: row.standing for id, row in brokers.items()}


@settings(max_examples=200)
@given(st.integers(), st.integers(0, 60), st.integers(0, 60))
def test_a_rewound_cluster_is_what_it_was(seed: int, until: int, more: int) -> None:
    cluster = ToyCluster(seed)
    for _ in range(until):
        cluster.step()
    rows, brokers = _plain(cluster.rows), _standings(cluster.brokers)
    controller, at_ms = cluster.controller, cluster.now
    for _ in range(more):
        cluster.step()
    past = rewind(cluster.rows, cluster.brokers, cluster.controller, cluster.events, at_ms)
    assert _plain(past.partitions) == rows
    assert _standings(past.brokers) == brokers
    # Who led the quorum before the first change is told by nobody.
    told = any(e.kind == "controller_change" and e.at_ms <= at_ms for e in cluster.events)
    changed = any(e.kind == "controller_change" and e.at_ms > at_ms for e in cluster.events)
    assert past.controller == (controller if told or not changed else None)


@settings(max_examples=200)
@given(st.integers(), st.integers(1, 40))
def test_forwards_and_back_again_is_where_one_began(seed: int, steps: int) -> None:
    """With the two functions that apply and undo one entry."""
    cluster = ToyCluster(seed)
    begin = dict(cluster.rows)
    for _ in range(steps):
        cluster.step()
    rows = dict(begin)
    told = [e for e in cluster.events if e.place is not None and e.kind != "reassignment"]
    for event in told:
        assert event.place is not None
        rows[event.place] = after(rows[event.place], event)
    forwards = {place: (r.leader, r.epoch, set(r.isr)) for place, r in rows.items()}
    assert forwards == {p: (r.leader, r.epoch, set(r.isr)) for p, r in cluster.rows.items()}
    for event in reversed(told):
        assert event.place is not None
        rows[event.place] = before(rows[event.place], event)
    back = {place: (r.leader, r.epoch, set(r.isr)) for place, r in rows.items()}
    assert back == {place: (r.leader, r.epoch, set(r.isr)) for place, r in begin.items()}


def test_since_when_and_why_is_that_of_the_last_entry_before() -> None:
    row = PartitionRow("orders", 0, 2, 7, (1, 2, 3), (2,), since_ms=300, cause="silent")
    fields = {"leader": 2, "leader_epoch": 7}
    events = [
        an_event(100, "election", "orders-0", previous_leader=1, isr=[2, 3], how="clean", **fields),
        an_event(300, "isr_shrink", "orders-0", isr=[2], previous_isr=[2, 3], **fields),
    ]
    past = rewind({row.place: row}, {}, 1, events, 200)
    assert past.partitions[row.place] == row._replace(isr=(2, 3), since_ms=100, cause="cause 100")


def test_a_partition_was_not_there_before_its_first_leader() -> None:
    row = PartitionRow("orders", 0, 1, 0, (1,), (1,))
    events = [an_event(100, "leader_start", "orders-0", leader=1, leader_epoch=0)]
    assert rewind({row.place: row}, {}, 1, events, 99).partitions == {}
    assert rewind({row.place: row}, {}, 1, events, 100).partitions == {row.place: row}


def test_what_was_wrong_then_is_said_in_the_same_words() -> None:
    row = PartitionRow("orders", 0, 1, 8, (1, 2), (1, 2))
    brokers = {1: BrokerRow(1), 2: BrokerRow(2)}
    isr = {"leader": 1, "leader_epoch": 7, "isr": [1], "previous_isr": [1, 2]}
    events = [
        an_event(100, "fenced", broker=2),
        an_event(101, "isr_shrink", "orders-0", **isr),
        an_event(110, "fenced", broker=1),
        an_event(111, "offline", "orders-0", previous_leader=1, leader_epoch=7),
        an_event(200, "unfenced", broker=1),
        an_event(
            201, "election", "orders-0", leader=1, leader_epoch=8, previous_leader=-1, isr=[1],
            how="clean",
        ),
        an_event(202, "unfenced", broker=2),
        an_event(
            203, "isr_expand", "orders-0", leader=1, leader_epoch=8, isr=[1, 2], previous_isr=[1]
        ),
    ]  # fmt: skip
    past = rewind({row.place: row}, brokers, 1, events, 150)
    texts = [each.text for each in problems_of(past)]
    assert texts[0] == "orders-0 has no leader: nobody can write or read there."
    assert "Broker 1 is down." in texts
    assert problems_of(rewind({row.place: row}, brokers, 1, events, 99)) == []


@pytest.mark.parametrize("fields", [{}, {"leader": None, "leader_epoch": "x"}, {"broker": []}])
def test_a_bad_entry_hides_nothing(fields: dict[str, Any]) -> None:
    row = PartitionRow("orders", 0, 2, 7, (1, 2), (2,))
    isr = {"leader": 2, "leader_epoch": 7, "isr": [2], "previous_isr": [1, 2]}
    events = [
        an_event(100, "isr_shrink", "orders-0", **isr),
        an_event(101, "election", "orders-0", **fields),
        an_event(102, "fenced", **fields),
    ]
    assert rewind({row.place: row}, {}, 1, events, 50).partitions[row.place].isr == (1, 2)
