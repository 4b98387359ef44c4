"""What a cluster is made of: brokers, topics, partitions with their leaders and ISRs, the quorum, moves.

Two sources tell of leaders and ISRs: the event log, at once, and answers to Metadata, which may be of a broker that knows
less. So an answer counts only where nothing newer is known: no later epoch, and no change since it was asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ottla.client.model import (
    ClusterDescription,
    PartitionInfo,
    QuorumInfo,
    QuorumReplica,
    Reassignment,
    Topic,
)
from ottla.console.model.rows import (
    BrokerRow,
    BrokerStanding,
    ClusterRow,
    EventRow,
    MoveRow,
    PartitionRow,
    Place,
    QuorumRow,
    TopicRow,
    TotalsRow,
    VoterRow,
    place_text,
)
from ottla.console.model.tables import RowTable, Versions

THE = "cluster"
"""The key of tables with one row."""
NO_LEADER = -1


class Structure:
    def __init__(self, versions: Versions) -> None:
        self._versions = versions
        self.cluster: RowTable[str, ClusterRow] = RowTable(versions, str)
        self.totals: RowTable[str, TotalsRow] = RowTable(versions, str)
        self.brokers: RowTable[int, BrokerRow] = RowTable(versions, str)
        self.topics: RowTable[str, TopicRow] = RowTable(versions, str)
        self.partitions: RowTable[Place, PartitionRow] = RowTable(versions, place_text)
        self.quorum: RowTable[str, QuorumRow] = RowTable(versions, str)
        self.moves: RowTable[Place, MoveRow] = RowTable(versions, place_text)
        self.unwell: dict[Place, None] = {}
        """Partitions that lack a leader or a replica in the ISR: what is wrong is looked for among these only."""
        self.eligible: dict[Place, tuple[int, ...]] = {}
        """Of partitions whose ISR is empty: who may lead all the same (KIP-966), as soon as somebody has asked."""
        self._counts: dict[int, list[int]] = {}
        """By broker: leaders, replicas, replicas out of sync."""
        self._not_preferred = 0
        self._replicas = 0
        self._led = (NO_LEADER, -1, 0)
        """The quorum's leader, its epoch, and when that was first seen."""
        self._registered: dict[int, BrokerRow] = {}
        """As the cluster described them, without counts."""
        self._silent: dict[int, int] = {}
        """Since when brokers do not answer us."""
        self.cluster.put(THE, ClusterRow())
        self._is_known = False
        """Whether anybody has told what topics there are: before that, zeros would look like a cluster that is well."""

    # What is observed

    def answers(self, now_ms: int, trouble: str | None) -> None:
        """Whether the cluster answers; `trouble` says why not."""
        row = self.cluster[THE]
        does = trouble is None
        if row.answers is not does:
            row = row._replace(answers=does, since_ms=now_ms)
        self.cluster.put(THE, row._replace(trouble=trouble))

    def kind(
        self,
        *,
        is_ottla: bool | None = None,
        has_event_log: bool | None = None,
        has_metrics: bool | None = None,
    ) -> None:
        """What sort of cluster it is; None leaves what is known."""
        row = self.cluster[THE]
        if is_ottla is not None:
            row = row._replace(is_ottla=is_ottla)
        if has_event_log is not None:
            row = row._replace(has_event_log=has_event_log)
        if has_metrics is not None:
            row = row._replace(has_metrics=has_metrics)
        self.cluster.put(THE, row)

    def described(self, found: ClusterDescription, now_ms: int) -> None:
        """All registered brokers, also fenced ones where the cluster names them."""
        self.cluster.put(THE, self.cluster[THE]._replace(cluster_id=found.cluster_id))
        self._registered = {
            each.id: self._standing(
                self._registered.get(each.id, BrokerRow(each.id))._replace(
                    host=each.host, port=each.port, rack=each.rack
                ),
                BrokerStanding.FENCED if each.fenced else BrokerStanding.UP,
                now_ms,
                is_first=each.id not in self._registered,
            )
            for each in found.brokers
        }
        self._show_brokers()

    def silent(self, since_ms: Mapping[int, int]) -> None:
        """Brokers that do not answer us, and since when."""
        if since_ms != self._silent:
            self._silent = dict(since_ms)
            self._show_brokers()

    def all_topics(self, found: Sequence[Topic], asked_at: int, now_ms: int) -> None:
        """There are no others. `asked_at`: the model's version when they were asked for."""
        self._is_known = True
        names = {topic.name for topic in found}
        for name in [name for name in self.topics if name not in names]:
            if self.topics.version_of(name) <= asked_at:
                self._forget_topic(name)
        for topic in found:
            self.topic(topic, asked_at, now_ms)
        self._show_brokers()

    def topic(self, found: Topic, asked_at: int, now_ms: int) -> None:
        id = None if found.id is None else str(found.id)
        known = self.topics.get(found.name)
        is_first = known is None
        if known is not None and known.id != id:
            self._forget_topic(found.name)  # deleted, and made again
        elif known is not None and len(found.partitions) < known.partitions:
            return  # the number of partitions only rises: this broker knows less
        factor = len(found.partitions[0].replicas) if found.partitions else 0
        row = TopicRow(found.name, id, found.internal, len(found.partitions), factor)
        self.topics.put(found.name, row)
        for each in found.partitions:
            self._observe(each, asked_at, now_ms, is_first=is_first)

    def eligible_told(self, found: Mapping[Place, tuple[int, ...]]) -> None:
        """Replicas that have every committed record though they are in no ISR."""
        for place, elr in found.items():
            if place in self.unwell:
                self.eligible[place] = elr

    def quorum_described(self, found: QuorumInfo, now_ms: int) -> None:
        before = self.quorum.get(THE)
        since_ms = 0
        if before is not None:
            is_same = (before.leader, before.epoch) == (found.leader, found.epoch)
            since_ms = before.since_ms if is_same else now_ms
        if self._led[:2] != (found.leader, found.epoch):
            self._led = (found.leader, found.epoch, now_ms)
        led_ms = now_ms - self._led[2]
        end = max((each.log_end for each in found.voters), default=0)
        leader = found.voter(found.leader)
        at_ms = -1 if leader is None else leader.last_fetch_ms
        self.quorum.put(
            THE,
            QuorumRow(
                found.leader,
                found.epoch,
                found.high_watermark,
                tuple(_voter(each, end, at_ms, led_ms) for each in found.voters),
                tuple(
                    _voter(each, end, at_ms, led_ms, is_observer=True) for each in found.observers
                ),
                since_ms,
            ),
        )

    def no_quorum(self, now_ms: int) -> None:
        """Nobody says who leads it."""
        row = self.quorum.get(THE)
        if row is not None and row.leader != NO_LEADER:
            self.quorum.put(THE, row._replace(leader=NO_LEADER, since_ms=now_ms))

    def forget_quorum(self) -> None:
        """We may not know it: that says nothing of who leads it."""
        self.quorum.drop(THE)

    def reassignments(self, found: Iterable[Reassignment], now_ms: int) -> None:
        rows = {}
        for each in found:
            place = (each.topic, each.partition)
            before = self.moves.get(place)
            lists = (each.replicas, each.adding, each.removing)
            if before is None or (before.adding, before.removing) != lists[1:]:
                before = MoveRow(*place, *lists, now_ms)
            rows[place] = before._replace(replicas=each.replicas)
        self.moves.replace(rows)

    def copied(self, found: Mapping[Place, tuple[int, int]], now_ms: int) -> None:
        """Of partitions that move: bytes that are on their new brokers, and that will be."""
        for place, (copied, total) in found.items():
            row = self.moves.get(place)
            if row is None:
                continue
            moved_ms = now_ms if copied != row.copied else row.moved_ms
            rate = None
            if now_ms > row.since_ms:
                rate = round(copied * 1000 / (now_ms - row.since_ms), 1)
            self.moves.put(
                place, row._replace(copied=copied, total=total, rate=rate, moved_ms=moved_ms)
            )

    def event(self, event: EventRow) -> None:
        """What an entry of the event log changes. Entries come in the order of the log."""
        if event.kind in ("election", "offline", "isr_shrink", "isr_expand", "reassignment"):
            self._partition_event(event)
        elif event.kind in ("fenced", "unfenced"):
            row = None if event.broker is None else self._registered.get(event.broker)
            if row is not None:
                is_fenced = event.kind == "fenced"
                standing = BrokerStanding.FENCED if is_fenced else BrokerStanding.UP
                cause = event.cause if is_fenced else None
                self._registered[row.id] = row._replace(
                    standing=standing, since_ms=event.at_ms, cause=cause
                )
                self._show_brokers()
        elif event.kind == "controller_change":
            quorum = self.quorum.get(THE)
            leader, epoch = event.number("controller"), event.number("epoch")
            if quorum is not None and epoch >= quorum.epoch:
                self.quorum.put(
                    THE, quorum._replace(leader=leader, epoch=epoch, since_ms=event.at_ms)
                )

    # Partitions

    def _observe(self, found: PartitionInfo, asked_at: int, now_ms: int, *, is_first: bool) -> None:
        place = (found.topic, found.partition)
        row = self.partitions.get(place)
        since_ms, cause = 0 if is_first else now_ms, None
        offline = found.offline
        if row is not None:
            if found.leader_epoch < row.epoch:
                return
            is_newer = found.leader_epoch > row.epoch
            if not is_newer and self.partitions.version_of(place) > asked_at:
                return
            if not is_newer and row.leader == found.leader and set(row.isr) == set(found.isr):
                since_ms, cause = row.since_ms, row.cause
        self._put(
            PartitionRow(
                *place,
                found.leader,
                found.leader_epoch,
                found.replicas,
                found.isr,
                offline,
                since_ms,
                cause,
            )
        )

    def _partition_event(self, event: EventRow) -> None:
        row = None if event.place is None else self.partitions.get(event.place)
        if row is None:
            return
        changed = after(row, event)
        if changed != row:
            self._put(changed)

    def _put(self, row: PartitionRow) -> None:
        before = self.partitions.get(row.place)
        if before == row:
            return
        if before is not None:
            self._count(before, -1)
        self._count(row, +1)
        self.partitions.put(row.place, row)
        self.eligible.pop(row.place, None)
        if row.is_well:
            self.unwell.pop(row.place, None)
        else:
            self.unwell[row.place] = None

    def _forget_topic(self, name: str) -> None:
        topic = self.topics[name]
        self.topics.drop(name)
        for number in range(topic.partitions):
            place = (name, number)
            row = self.partitions.get(place)
            if row is not None:
                self._count(row, -1)
                self.partitions.drop(place)
                self.unwell.pop(place, None)
                self.eligible.pop(place, None)

    def _count(self, row: PartitionRow, sign: int) -> None:
        for id in row.replicas:
            counts = self._counts.setdefault(id, [0, 0, 0])
            counts[0] += sign * (row.leader == id)
            counts[1] += sign
            counts[2] += sign * (id not in row.isr)
        self._replicas += sign * len(row.replicas)
        if row.replicas and row.leader not in (NO_LEADER, row.replicas[0]):
            self._not_preferred += sign

    # Brokers

    def _standing(
        self, row: BrokerRow, standing: BrokerStanding, now_ms: int, *, is_first: bool
    ) -> BrokerRow:
        if is_first:
            return row._replace(standing=standing)
        if row.standing is standing:
            return row
        return row._replace(standing=standing, since_ms=now_ms, cause=None)

    def _show_brokers(self) -> None:
        """The rows of brokers and the totals, from what is counted. Cheap: there are few brokers."""
        rows: dict[int, BrokerRow] = {}
        for id in {*self._registered, *(id for id, counts in self._counts.items() if counts[1])}:
            row = self._registered.get(id, BrokerRow(id, standing=BrokerStanding.GONE))
            if row.standing is BrokerStanding.UP and id in self._silent:
                row = row._replace(standing=BrokerStanding.SILENT, since_ms=self._silent[id])
            leaders, replicas, out_of_sync = self._counts.get(id, (0, 0, 0))
            rows[id] = row._replace(leaders=leaders, replicas=replicas, out_of_sync=out_of_sync)
        self.brokers.replace(rows)

    def settle(self) -> None:
        """Bring what is counted up to date, after a round of observations."""
        self._show_brokers()
        if not self._is_known:
            return
        offline = sum(self.partitions[place].leader == NO_LEADER for place in self.unwell)
        under = sum(bool(self.partitions[place].out_of_sync) for place in self.unwell)
        self.totals.put(
            THE,
            TotalsRow(
                len(self.topics),
                len(self.partitions),
                self._replicas,
                offline,
                under,
                self._not_preferred,
            ),
        )


def after(row: PartitionRow, event: EventRow) -> PartitionRow:
    """A partition after an entry about it; as it is, if it is known to be newer."""
    if event.kind == "reassignment":
        return row._replace(replicas=event.ids("replicas"))
    epoch = event.number("leader_epoch")
    if epoch < row.epoch:
        return row
    row = row._replace(epoch=epoch, since_ms=event.at_ms, cause=event.cause)
    if event.kind == "offline":
        return row._replace(leader=NO_LEADER)
    return row._replace(leader=event.number("leader"), isr=event.ids("isr"))


def _voter(
    found: QuorumReplica, end: int, at_ms: int, led_ms: int, *, is_observer: bool = False
) -> VoterRow:
    """`led_ms`: for how long this leader has been seen. Whoever had nothing of it is behind for so long."""
    caught_up_ms = found.last_caught_up_ms if found.last_caught_up_ms >= 0 else at_ms - led_ms
    return VoterRow(
        found.id,
        found.log_end,
        max(0, end - found.log_end),
        max(0, at_ms - caught_up_ms) if at_ms >= 0 else None,
        is_observer,
    )
