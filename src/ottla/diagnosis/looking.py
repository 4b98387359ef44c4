"""The state that an explanation needs, from a running cluster: only what concerns its subject, of whoever answers.

A cluster that needs an explanation is often half dead. So every question has a short time, each broker is asked by itself,
and what nobody answered is noted in `unknown` instead of being an error.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ottla.client import Client, Unreachable
from ottla.client.all_brokers import newest_view
from ottla.client.client import LATEST
from ottla.client.cluster_admin import values_of
from ottla.client.connections import Address, check
from ottla.client.group_admin import GroupAdmin, GroupDescription, PartitionLag
from ottla.client.model import BrokerInfo, PartitionInfo, Reassignment, ReplicaInfo
from ottla.client.transaction_admin import OpenTransaction, TransactionAdmin
from ottla.diagnosis import words
from ottla.diagnosis.explain_broker import DutiesNow
from ottla.diagnosis.lost_disks import NodeData
from ottla.diagnosis.now import (
    BrokerNow,
    ClusterNow,
    DirectoryNow,
    GroupNow,
    LagNow,
    MemberNow,
    PartitionNow,
    QuorumNow,
    QuotaNow,
    Reach,
    ReplicaNow,
    TransactionNow,
)
from ottla.diagnosis.questions import LOST, Questions
from ottla.diagnosis.remedies import KEPT_RETENTION
from ottla.runtime.seams import Clock
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.internal_topics import EVENT_LOG_TOPIC, TRANSACTION_STATE_TOPIC

Place = tuple[str, int]

PROBE_S = 2.0
BETWEEN_LAGS_S = 1.0
BETWEEN_OFFSETS_S = 1.0
LAG_TIME = "replica.lag.time.max.ms"
UNTHROTTLED = 1 << 62
ROLES = ("leader", "follower")
NO_QUORUM = (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST)
"""A cluster that has no metadata quorum (ZooKeeper) says so."""


@dataclass(frozen=True)
class NodeHere:
    """A node of a cluster in a directory of this machine."""

    address: str
    running: bool
    config: str = ""
    pid: int | None = None
    ended_ms: int | None = None
    paused: bool = False
    data: NodeData | None = None


class Look:
    """One look at a cluster. `unknown` grows with each question that nobody answered."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        bootstrap: Sequence[Address],
        nodes: Mapping[int, NodeHere] | None = None,
        voters: tuple[int, ...] = (),
    ) -> None:
        """`nodes` and `voters`: what the directory of a local cluster says; empty for any other."""
        self._client = client
        self._clock = clock
        self._bootstrap = bootstrap
        self._nodes = nodes or {}
        self._voters = voters
        self.unknown: list[str] = []
        self._questions = Questions(
            client, lambda what, why: self.unknown.append(f"{what}: {why}.")
        )
        self._admin = self._questions.admin

    # The cluster

    async def cluster(self) -> ClusterNow:
        """Unreachable if no broker answers. All addresses are tried at once, so that one that is silent delays nobody."""
        answering = await asyncio.gather(*(self._reach(each) for each in self._bootstrap))
        known = (await self._questions.brokers("Which brokers are fenced")).brokers
        advertised = {(each.host, each.port) for each in known.values()}
        found = await asyncio.gather(*(self._broker(each) for each in known.values()))
        brokers = {each.id: each for each in sorted(found, key=lambda each: each.id)}
        silent = [id for id, each in brokers.items() if not each.answers]
        if silent:
            they = "it does" if len(silent) == 1 else "they do"
            self.unknown.append(
                f"What {words.brokers(silent)} could tell: {they} not answer this command."
            )
        alone, quotas = await asyncio.gather(
            self._questions.ask("", self._alone(), None),
            self._questions.ask("", self._quotas(), None),
        )
        return ClusterNow(
            self._clock.wall_ms(),
            brokers,
            await self._quorum(brokers),
            alone=alone,
            quotas=quotas,
            data={id: node.data for id, node in self._nodes.items() if node.data is not None},
            stray_answers=tuple(
                f"{host}:{port}"
                for (host, port), reach in zip(self._bootstrap, answering, strict=True)
                if reach is Reach.ANSWERS and (host, port) not in advertised
            ),
        )

    async def _alone(self) -> dict[int, tuple[str, ...]]:
        """For the caution before a restart: whose replica is the only one in sync."""
        found: dict[int, tuple[str, ...]] = {}
        for topic in (await self._client.metadata()).topics:
            for each in topic.partitions:
                if len(each.isr) == 1:
                    name = f"{each.topic}-{each.partition}"
                    found[each.isr[0]] = (*found.get(each.isr[0], ()), name)
        return found

    async def _quotas(self) -> tuple[QuotaNow, ...]:
        fields = {"components": [], "strict": False}
        answer = await self._client.connections.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, fields)
        check(answer.error_code, "client quotas")
        return tuple(
            QuotaNow(
                {part.entity_type: part.entity_name for part in entry.entity},
                {each.key: float(each.value) for each in entry.values},
            )
            for entry in answer.entries or ()
        )

    async def _broker(self, broker: BrokerInfo) -> BrokerNow:
        address = (broker.host, broker.port)
        node = self._nodes.get(broker.id)
        found = BrokerNow(
            broker.id,
            f"{broker.host}:{broker.port}",
            await self._reach(address),
            broker.fenced,
            process=None if node is None else node.running,
            pid=None if node is None else node.pid,
            ended_ms=None if node is None else node.ended_ms,
            paused=None if node is None else node.paused,
            listens_at="" if node is None else node.address,
            config="" if node is None else node.config,
        )
        if not found.answers or broker.fenced:
            return found
        directories, configs = await asyncio.gather(
            self._questions.ask(
                f"The disks of broker {broker.id}", self._admin.log_dirs(broker.id), []
            ),
            self._questions.ask(
                f"The settings of broker {broker.id}", self._admin.broker_configs(broker.id), []
            ),
        )
        settings = values_of(configs)
        rates = {
            role: int(value)
            for role in ROLES
            if (value := settings.get(f"{role}.replication.throttled.rate"))
        }
        kept_ms, lag_time_ms = settings.get(KEPT_RETENTION), settings.get(LAG_TIME)
        return replace(
            found,
            directories=tuple(
                DirectoryNow(
                    each.path,
                    each.error is not None,
                    -1 if each.total_bytes is None else each.total_bytes,
                    -1 if each.usable_bytes is None else each.usable_bytes,
                    each.refuses_records,
                )
                for each in directories
            ),
            throttled_rates={role: rate for role, rate in rates.items() if rate < UNTHROTTLED},
            sizes={
                (each.topic, each.partition): each.size_bytes
                for directory in directories
                for each in directory.replicas
                if not each.is_future
            },
            kept_ms=None if kept_ms is None else int(kept_ms),
            lag_time_ms=None if lag_time_ms is None else int(lag_time_ms),
        )

    async def _reach(self, address: Address) -> Reach:
        """Also on a connection that is open already: its process may be paused since."""
        try:
            async with asyncio.timeout(PROBE_S):
                channel = await self._client.connections.at(address)
                await channel.negotiate(PROBE_S)
        except ConnectionRefusedError:
            return Reach.REFUSED
        except socket.gaierror:
            return Reach.UNRESOLVED
        except LOST:
            return Reach.SILENT
        return Reach.ANSWERS

    async def _quorum(self, brokers: Mapping[int, BrokerNow]) -> QuorumNow | None:
        """Asked last: a broker answers a connection in order, and without a controller it does not answer this one."""
        if _is_minority(self._voters, brokers):
            return QuorumNow(None, self._voters)
        try:
            found = await self._client.describe_quorum()
        except KafkaError as error:
            if error.code in NO_QUORUM:
                self.unknown.append(f"Who the active controller is: {error}.")
                return None
            return QuorumNow(None, self._voters)
        except (OSError, Unreachable):
            return QuorumNow(None, self._voters)
        voters = tuple(each.id for each in found.voters)
        # A leader notices only after a while that it has lost its majority.
        return QuorumNow(None if _is_minority(voters, brokers) else found.leader, voters)

    # A topic

    async def _view(self, topic: str, cluster: ClusterNow) -> list[PartitionInfo]:
        """The newest view of all brokers that answer; empty if there is no such topic."""
        known = self._client.connections.addresses
        answering = [
            known[id] for id, each in cluster.brokers.items() if each.answers and id in known
        ]
        addresses = answering or self._bootstrap
        try:
            return await newest_view(self._client, addresses, topic, PROBE_S)
        except KafkaError as error:
            if error.code in (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.INVALID_TOPIC_EXCEPTION,
            ):
                return []
            raise

    async def partitions(
        self, topic: str, wanted: int | None, cluster: ClusterNow
    ) -> list[PartitionNow]:
        """Of one partition, or of all. Empty if there is none."""
        infos = [
            each for each in await self._view(topic, cluster) if wanted in (None, each.partition)
        ]
        if not infos:
            return []
        keepers = [id for id, each in cluster.brokers.items() if each.kept_ms is not None]
        moves, configs, eligible, losses, replicas = await asyncio.gather(
            self._moves(cluster),
            self._questions.ask(
                f"The settings of topic {topic}", self._admin.topics_configs([topic]), {}
            ),
            self._questions.ask("", self._admin.eligible_replicas([topic]), {}),
            self._questions.losses(keepers, "The lost records that are kept by broker"),
            self._questions.ask(
                f"The offsets of the replicas of {topic}",
                self._client.replicas(topic, unasked=cluster.unreachable),
                [],
            ),
        )
        settings = values_of(configs.get(topic, ()))
        own = values_of(each for each in configs.get(topic, ()) if not each.is_default)
        unclean = settings.get("unclean.leader.election.enable")
        result = []
        for each in infos:
            place = (topic, each.partition)
            move = moves.get(place)
            found = PartitionNow(
                topic,
                each.partition,
                each.leader,
                each.leader_epoch,
                each.replicas,
                each.isr,
                eligible[place].elr if place in eligible else (),
                () if move is None else move.adding,
                () if move is None else move.removing,
                int(settings.get("min.insync.replicas") or 1),
                _offsets(replicas, each.partition),
                throttled=_throttled(settings, each),
                unclean=None if unclean is None else unclean == "true",
                own_settings=own,
                losses=tuple(loss for loss in losses if (loss.topic, loss.partition) == place),
            )
            is_led = each.leader >= 0 and cluster.broker(each.leader).answers
            if is_led:
                opened = self._transactions(each.leader, place)
                transactions = await self._questions.ask(
                    f"Open transactions in {found.name}", opened, ()
                )
                found = replace(found, transactions=transactions)
            result.append(found)
        return await self._with_standing(result, cluster)

    async def _with_standing(
        self, partitions: list[PartitionNow], cluster: ClusterNow
    ) -> list[PartitionNow]:
        """Under load the high watermark is always a little behind. So where it is, it is looked at again."""
        behind = [each for each in partitions if _is_behind(each)]
        if not behind:
            return partitions
        await asyncio.sleep(BETWEEN_OFFSETS_S)
        again = await self._questions.ask(
            "", self._client.replicas(behind[0].topic, unasked=cluster.unreachable), []
        )
        result = []
        for each in partitions:
            now = _offsets(again, each.partition)
            leader = now.get(each.leader)
            if each in behind and leader is not None:
                stood = leader.high_watermark == each.offsets[each.leader].high_watermark
                each = replace(each, offsets=now, stands=stood)
            result.append(each)
        return result

    async def _moves(self, cluster: ClusterNow) -> dict[Place, Reassignment]:
        if cluster.has_no_controller:
            self.unknown.append(
                "Whether partitions are being moved: only the active controller says it."
            )
            return {}
        moves = await self._questions.ask(
            "Which partitions are being moved", self._client.reassignments(), []
        )
        return {(each.topic, each.partition): each for each in moves}

    async def _transactions(self, leader: int, place: Place) -> tuple[TransactionNow, ...]:
        """Those that are open in this partition, the oldest first; only the oldest is looked up at its coordinator."""
        end = (await self._admin.offsets(leader, [place], LATEST)).get(place)
        stable = (await self._admin.offsets(leader, [place], LATEST, committed=True)).get(place)
        if end is None or stable is None or stable >= end:
            return ()
        opened = (await self._admin.open_transactions(leader, [place])).get(place, ())
        return tuple(
            [await self._known_by_coordinator(place, each) if number == 0 else _transaction(each)
             for number, each in enumerate(opened)]
        )  # fmt: skip

    async def _known_by_coordinator(self, place: Place, opened: OpenTransaction) -> TransactionNow:
        transactions = TransactionAdmin(self._client)
        found = _transaction(opened)
        cared = await transactions.cared_for(*place, opened.producer_id)
        led = await self._questions.ask("", self._coordinators_led(), False)
        found = replace(found, asked_all=led and not cared.silent)
        for each in cared.answers:
            described = await transactions.describe(each.id)
            started = described.started
            return replace(
                found,
                transactional_id=each.id,
                state=described.state,
                started_ms=None if started is None else round(started.timestamp() * 1000),
                timeout_ms=described.timeout_ms,
            )
        return found

    async def _coordinators_led(self) -> bool:
        """A partition of their topic that nobody leads has no coordinator who could list its transactions. (Who is loading
        them is asked again until it has.)"""
        try:
            (topic,) = (await self._client.metadata([TRANSACTION_STATE_TOPIC])).topics
        except KafkaError as error:
            return error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return all(each.leader >= 0 for each in topic.partitions)

    # A group

    async def group(self, id: str, cluster: ClusterNow) -> GroupNow | None:
        """None if there is no such group. Only a listed group is described: to ask for the coordinator of any other name would
        create the topic of the coordinators."""
        groups = GroupAdmin(self._client)
        listed = await self._questions.ask("Which groups there are", groups.all(), None)
        if listed is None:
            return None
        if all(each.id != id for each in listed.answers):
            for broker in listed.silent:
                self.unknown.append(f"Groups that broker {broker} coordinates: it does not answer.")
            return None
        described = await self._questions.ask(f"What group {id} does", groups.describe(id), None)
        if described is None:
            return None
        assigned = tuple(place for member in described.members for place in member.assigned)
        before = await self._lags(groups, id, assigned)
        began = self._clock.monotonic()
        if any(lag.lag for lag in before):
            await asyncio.sleep(BETWEEN_LAGS_S)
        after = await self._lags(groups, id, assigned)
        between_ms = (self._clock.monotonic() - began) * 1000
        known = {(each.topic, each.partition): each for each in before}
        lags = [
            await self._lag(each, known.get((each.topic, each.partition)), cluster)
            for each in after
        ]
        return _group(described, lags, between_ms)

    async def _lags(
        self, groups: GroupAdmin, id: str, assigned: tuple[Place, ...]
    ) -> list[PartitionLag]:
        return await self._questions.ask(f"How far group {id} is", groups.lags(id, assigned), [])

    async def _lag(
        self, lag: PartitionLag, before: PartitionLag | None, cluster: ClusterNow
    ) -> LagNow:
        place = (lag.topic, lag.partition)
        leader = await self._questions.ask("", self._client.leader(*place), -1)
        transactions: tuple[TransactionNow, ...] = ()
        if lag.lag and leader >= 0:
            transactions = await self._questions.ask("", self._transactions(leader, place), ())
        seconds = None if lag.next_timestamp_ms is None else lag.seconds(cluster.now_ms)
        return LagNow(
            *place,
            lag.committed,
            lag.log_end,
            lag.lag,
            None if seconds is None else seconds * 1000,
            None if before is None else before.committed,
            None if before is None else before.log_end,
            transactions[0] if transactions else None,
            leader >= 0,
        )

    # A broker

    async def duties(self, broker: int) -> DutiesNow:
        """All topics are counted. The event log is not listed among them: it is named where something is wrong with it."""
        found = await self._questions.ask("What the broker holds", self._client.metadata(), None)
        events = await self._questions.ask("", self._client.metadata([EVENT_LOG_TOPIC]), None)
        topics = {
            topic.name: topic
            for each in (found, events)
            if each is not None
            for topic in each.topics
        }
        partitions = [p for topic in topics.values() for p in topic.partitions]
        held = [each for each in partitions if broker in each.replicas]
        # Below the minimum of replicas in sync there are others that may lead (KIP-966).
        few = dict.fromkeys(each.topic for each in held if len(each.isr) < 2)
        eligible = (
            await self._questions.ask("", self._admin.eligible_replicas([*few]), {}) if few else {}
        )

        def is_only_copy(each: PartitionInfo) -> bool:
            place = (each.topic, each.partition)
            elr = eligible[place].elr if place in eligible else ()
            return each.replicas == (broker,) or {*each.isr, *elr} == {broker}

        counted = [each for each in held if each.topic != EVENT_LOG_TOPIC]
        return DutiesNow(
            len(counted),
            sum(each.leader == broker for each in counted),
            tuple(f"{each.topic}-{each.partition}" for each in held if broker not in each.isr),
            tuple(f"{each.topic}-{each.partition}" for each in held if each.leader < 0),
            tuple(f"{each.topic}-{each.partition}" for each in held if is_only_copy(each)),
        )


def _is_minority(voters: tuple[int, ...], brokers: Mapping[int, BrokerNow]) -> bool:
    """Whether too few controllers answer, as far as they are brokers, too. Others cannot be asked."""
    gone = [id for id in voters if id in brokers and not brokers[id].answers]
    return bool(voters) and len(voters) - len(gone) <= len(voters) // 2


def _is_behind(now: PartitionNow) -> bool:
    """Whether all of the ISR have more than the high watermark of the leader."""
    leader = now.offsets.get(now.leader)
    if leader is None or leader.high_watermark is None or len(now.isr) < now.min_insync:
        return False
    known = [now.offsets[id] for id in now.isr if id in now.offsets]
    return (
        len(known) == len(now.isr) and min(each.log_end for each in known) > leader.high_watermark
    )


def _offsets(replicas: Iterable[ReplicaInfo], partition: int) -> dict[int, ReplicaNow]:
    return {
        each.broker: ReplicaNow(each.log_start, each.log_end, each.high_watermark, each.last_epoch)
        for each in replicas
        if each.partition == partition and each.log_start is not None and each.log_end is not None
    }


def _throttled(
    settings: Mapping[str, str | None], info: PartitionInfo
) -> dict[str, tuple[int, ...]]:
    """The replicas that the topic's settings name, `*` or `PARTITION:BROKER,…`, as leaders and as followers."""
    found = {}
    for role in ROLES:
        text = (settings.get(f"{role}.replication.throttled.replicas") or "").strip()
        pairs = (part.split(":") for part in text.split(",") if ":" in part)
        named = {int(id) for number, id in pairs if int(number) == info.partition}
        found[role] = tuple(id for id in info.replicas if text == "*" or id in named)
    return found


def _transaction(opened: OpenTransaction) -> TransactionNow:
    return TransactionNow(opened.start_offset, opened.producer_id, opened.last_timestamp_ms)


def _group(described: GroupDescription, lags: Sequence[LagNow], between_ms: float) -> GroupNow:
    return GroupNow(
        described.id,
        described.state,
        described.type,
        described.coordinator,
        tuple(
            MemberNow(each.id, each.client_id, each.host, len(each.assigned))
            for each in described.members
        ),
        tuple(lags),
        between_ms,
        described.hold_up,
    )
