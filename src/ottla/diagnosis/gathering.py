"""Facts from a running cluster, over Kafka's protocol alone.

Each kind of fact is asked for by itself, all at the same time. What fails is noted in `Facts.unknown`, so that a
cluster in trouble still tells the rest. Nothing is written: no record, no setting, no group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ottla.client import Client
from ottla.client.client import EARLIEST, LATEST
from ottla.client.cluster_admin import EligibleReplicas, LogDirFacts, values_of
from ottla.client.group_admin import GroupAdmin
from ottla.client.loads import own_load
from ottla.client.model import BrokerInfo, Config, QuorumInfo, Reassignment, Topic
from ottla.client.transaction_admin import (
    UNFINISHED,
    OpenTransaction,
    TransactionAdmin,
    TransactionDescription,
)
from ottla.client.unclean_election import Candidate, unclean_choices
from ottla.diagnosis.facts import (
    BETWEEN_S,
    ELIGIBLE_REPLICAS,
    AdvertisedEndpoint,
    ClockReading,
    DiskGrowth,
    Facts,
    GroupFacts,
    PartitionFacts,
    Place,
    TopicFacts,
)
from ottla.diagnosis.metrics_pages import metrics_clocks
from ottla.diagnosis.questions import LOST, Questions, keeps_records, reason_of
from ottla.runtime.seams import Clock
from ottla.wire.errors import ErrorCode, KafkaError

CONNECT_S = 3.0


class Gathering:
    """One look at a cluster. `facts` is complete when `all` or `for_clients` returns."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._unknown: dict[str, str] = {}
        self._questions = Questions(client, self._unknown.__setitem__)
        self._admin = self._questions.admin

    async def for_clients(self) -> Facts:
        """Only what a client needs: names, addresses, versions, the controller's clock. Unreachable if no broker answers."""
        facts = await self._brokers()
        quorum, clocks = await self._questions.ask(
            "the metadata quorum", self._quorum(), (None, ())
        )
        return replace(facts, quorum=quorum, clocks=clocks, unknown=dict(self._unknown))

    async def all(self) -> Facts:
        """Everything. Unreachable if no broker answers."""
        facts = await self.for_clients()
        reachable = [each.broker for each in facts.endpoints if each.error is None]
        found = await self._client.metadata()
        topics, groups, transactions, log_dirs, configs, moves = await asyncio.gather(
            self._topics(found.topics, reachable),
            self._questions.ask("consumer groups", self._groups(), ()),
            self._questions.ask("transactions", self._transactions(), ()),
            self._log_dirs(reachable),
            self._questions.ask_each(reachable, "settings of broker", self._admin.broker_configs),
            self._questions.ask("reassignments", self._moves(facts.quorum), []),
        )
        opened = await self._open_transactions(topics, reachable)
        ours = [broker for broker, each in configs.items() if keeps_records(each)]
        losses = await self._questions.losses(ours, "lost records that are kept by broker")
        before: dict[int, list[LogDirFacts]] = {}
        if moves:
            before = log_dirs
            await asyncio.sleep(BETWEEN_S)
            log_dirs = await self._log_dirs(reachable)
        facts = replace(
            facts,
            topics=topics,
            groups=groups,
            transactions=transactions,
            open_in=opened,
            log_dirs=_flat(log_dirs),
            before=_flat(before),
            growth=await self._growth(ours),
            broker_configs={broker: tuple(each) for broker, each in configs.items()},
            reassignments=tuple(moves),
            losses=tuple(losses),
            endpoints=(*facts.endpoints, *await self._other_listeners(facts.endpoints, configs)),
            unknown=dict(self._unknown),
        )
        told = {each.node for each in facts.clocks}
        more = await metrics_clocks(facts, self._clock, CONNECT_S)
        return replace(
            facts, clocks=(*facts.clocks, *(each for each in more if each.node not in told))
        )

    async def _log_dirs(self, brokers: Iterable[int]) -> dict[int, list[LogDirFacts]]:
        return await self._questions.ask_each(
            brokers, "log directories of broker", self._admin.log_dirs
        )

    async def _growth(self, ours: Iterable[int]) -> dict[int, DiskGrowth]:
        """Asked of ottla's brokers only: another closes the connection."""
        ask = self._questions.ask_each
        found = await ask(ours, "load of broker", lambda id: own_load(self._client, id))
        return {id: DiskGrowth(*own.disk_growth, own.history_s) for id, own in found.items()}

    # Brokers

    async def _brokers(self) -> Facts:
        metadata, described, known = await self._questions.brokers("fenced brokers")
        endpoints = await asyncio.gather(
            *(self._endpoint(each) for each in known.values() if not each.fenced)
        )
        channel = await self._client.connections.to_any()
        return Facts(
            at_ms=self._clock.wall_ms(),
            cluster_id=metadata.cluster_id,
            controller=None if described is None else described.controller,
            brokers=tuple(sorted(known.values())),
            endpoints=tuple(endpoints),
            features=dict(channel.features),
        )

    async def _endpoint(self, broker: BrokerInfo) -> AdvertisedEndpoint:
        """Connect as a client does, and let the broker say which versions it serves."""
        resolved = await addresses_of(broker.host)
        found = AdvertisedEndpoint(broker.id, "", broker.host, broker.port, resolved, None, None)
        if not resolved:
            return replace(found, error="the name is unknown here")
        try:
            channel = await self._client.connections.at((broker.host, broker.port))
            began = self._clock.monotonic()
            await channel.negotiate(CONNECT_S)
        except LOST as error:
            return replace(found, error=reason_of(error))
        took_ms = (self._clock.monotonic() - began) * 1000
        return replace(found, round_trip_ms=took_ms, apis=dict(channel.versions))

    async def _other_listeners(
        self, known: Iterable[AdvertisedEndpoint], configs: Mapping[int, list[Config]]
    ) -> list[AdvertisedEndpoint]:
        """The addresses that brokers advertise on listeners other than the one that this client uses."""
        seen = {(each.host, each.port) for each in known}
        asked = [
            self._knock(broker, *listener)
            for broker, settings in sorted(configs.items())
            for listener in advertised(values_of(settings))
            if listener[1:] not in seen
        ]
        return list(await asyncio.gather(*asked))

    async def _knock(self, broker: int, listener: str, host: str, port: int) -> AdvertisedEndpoint:
        """Whether anything accepts a connection there. It may speak TLS, so nothing is sent."""
        resolved = await addresses_of(host)
        found = AdvertisedEndpoint(broker, listener, host, port, resolved, None, None)
        if not resolved:
            return replace(found, error="the name is unknown here")
        began = self._clock.monotonic()
        try:
            async with asyncio.timeout(CONNECT_S):
                _, writer = await asyncio.open_connection(host, port)
        except OSError as error:
            return replace(found, error=reason_of(error))
        writer.close()
        return replace(found, round_trip_ms=(self._clock.monotonic() - began) * 1000)

    async def _quorum(self) -> tuple[QuorumInfo, tuple[ClockReading, ...]]:
        """The quorum's leader gives its own time as that of its last fetch. The first request also builds codecs and
        connections, so the second one is timed."""
        await self._client.describe_quorum()
        sent_ms, began = self._clock.wall_ms(), self._clock.monotonic()
        quorum = await self._client.describe_quorum()
        took_ms = (self._clock.monotonic() - began) * 1000
        own = [
            each for each in quorum.voters if each.id == quorum.leader and each.last_fetch_ms > 0
        ]
        return quorum, tuple(
            ClockReading(
                each.id,
                each.last_fetch_ms - (sent_ms + took_ms / 2),
                took_ms / 2,
                "metadata quorum",
            )
            for each in own
        )

    async def _moves(self, quorum: QuorumInfo | None) -> list[Reassignment]:
        """Only the active controller knows them. Whoever waited for it already need not wait again."""
        may_not_ask = "AUTHORIZATION_FAILED" in self._unknown.get("the metadata quorum", "")
        if quorum is None and not may_not_ask:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "no active controller answers")
        return await self._client.reassignments()

    # Topics

    async def _topics(
        self, topics: tuple[Topic, ...], reachable: list[int]
    ) -> tuple[TopicFacts, ...]:
        names = [topic.name for topic in topics]
        led: dict[int, list[Place]] = {}
        for topic in topics:
            for each in topic.partitions:
                if each.leader in reachable:
                    led.setdefault(each.leader, []).append((topic.name, each.partition))

        async def offsets(
            what: str, timestamp: int, *, committed: bool = False
        ) -> dict[Place, int]:
            async def at(broker: int) -> dict[Place, int]:
                return await self._admin.offsets(
                    broker, led[broker], timestamp, committed=committed
                )

            answers = await self._questions.ask_each(led, f"{what} of the partitions of broker", at)
            return {place: offset for each in answers.values() for place, offset in each.items()}

        eligible, configs, starts, ends, stable = await asyncio.gather(
            self._questions.ask(ELIGIBLE_REPLICAS, self._admin.eligible_replicas(names), {}),
            self._questions.ask("settings of topics", self._admin.topics_configs(names), {}),
            offsets("starts", EARLIEST),
            offsets("ends", LATEST),
            offsets("stable ends", LATEST, committed=True),
        )
        nobody = EligibleReplicas((), ())
        living = await self._living(topics)

        def partition(topic: Topic, number: int) -> PartitionFacts:
            each = topic.partitions[number]
            place = (topic.name, each.partition)
            may_lead = eligible.get(place, nobody)
            return PartitionFacts(
                topic.name,
                each.partition,
                each.leader,
                each.leader_epoch,
                each.replicas,
                each.isr,
                each.offline,
                may_lead.elr,
                may_lead.last_known,
                starts.get(place),
                ends.get(place),
                stable.get(place),
                living.get(place, ()),
            )

        return tuple(
            TopicFacts(
                topic.name,
                topic.id,
                topic.internal,
                tuple(
                    sorted(
                        (partition(topic, number) for number in range(len(topic.partitions))),
                        key=lambda each: each.partition,
                    )
                ),
                values_of(configs.get(topic.name, ())),
                tuple(each.name for each in configs.get(topic.name, ()) if not each.is_default),
            )
            for topic in sorted(topics, key=lambda topic: topic.name)
        )

    async def _living(self, topics: Iterable[Topic]) -> dict[Place, tuple[Candidate, ...]]:
        """Of partitions without a leader: what their living replicas have."""
        found = {}
        for topic in topics:
            numbers = [each.partition for each in topic.partitions if each.leader < 0]
            if numbers:
                asked = unclean_choices(self._client, topic.name, numbers)
                choices = await self._questions.ask(f"living replicas of {topic.name}", asked, [])
                found.update({(topic.name, each.partition): each.candidates for each in choices})
        return found

    # Groups and transactions

    async def _groups(self) -> tuple[GroupFacts, ...]:
        admin = GroupAdmin(self._client)
        listed = await admin.all()
        for broker in listed.silent:
            self._unknown[f"groups of broker {broker}"] = "it does not answer"
        found = []
        for group in listed.answers:
            facts = await self._questions.ask(
                f"group {group.id}", self._group(admin, group.id), None
            )
            if facts is not None:
                found.append(facts)
        return tuple(found)

    async def _group(self, admin: GroupAdmin, id: str) -> GroupFacts:
        described = await admin.describe(id)
        assigned = tuple(place for member in described.members for place in member.assigned)
        lags = await self._questions.ask(f"lag of group {id}", admin.lags(id, assigned), [])
        return GroupFacts(described, tuple(lags))

    async def _transactions(self) -> tuple[TransactionDescription, ...]:
        admin = TransactionAdmin(self._client)
        listed = await admin.all(states=UNFINISHED)
        for broker in listed.silent:
            self._unknown[f"transactions of broker {broker}"] = "it does not answer"
        found = []
        for each in listed.answers:
            what = f"transactional id {each.id}"
            description = await self._questions.ask(what, admin.describe(each.id), None)
            if description is not None:
                found.append(description)
        return tuple(found)

    async def _open_transactions(
        self, topics: Iterable[TopicFacts], reachable: list[int]
    ) -> dict[Place, tuple[OpenTransaction, ...]]:
        """Asked of the leaders of those partitions alone whose committed part ends before the log does."""
        led: dict[int, list[Place]] = {}
        for topic in topics:
            for each in topic.partitions:
                is_held = each.stable_end != each.log_end or each.stable_end is None
                if is_held and each.leader in reachable:
                    led.setdefault(each.leader, []).append(each.place)

        async def at(broker: int) -> dict[Place, tuple[OpenTransaction, ...]]:
            return await self._admin.open_transactions(broker, led[broker])

        answers = await self._questions.ask_each(led, "open transactions at broker", at)
        return {place: each for answer in answers.values() for place, each in answer.items()}


def no_answers(at_ms: int, cluster_id: str, why: str) -> Facts:
    """What is known of a cluster of which no node answers."""
    return Facts(at_ms, cluster_id, None, (), unknown={"the cluster": why})


def with_machine(facts: Facts) -> Facts:
    """Nodes of this machine have its clock. The clock of any other node is unknown, unless the node told it."""
    machine = facts.machine
    here = (
        set() if machine is None else {each.node for each in machine.nodes if each.pid is not None}
    )
    told = {each.node for each in facts.clocks}
    same = tuple(ClockReading(node, 0.0, 0.0, "same machine") for node in sorted(here - told))
    silent = [id for id in facts.live if id not in here | told]
    unknown = {
        f"clock of broker {id}": "Kafka's protocol tells only the clock of the active controller"
        for id in silent
    }
    return replace(facts, clocks=(*facts.clocks, *same), unknown={**facts.unknown, **unknown})


async def addresses_of(host: str) -> tuple[str, ...]:
    """The addresses of a name on this machine; empty if it has none."""
    loop = asyncio.get_running_loop()
    try:
        found = await asyncio.wait_for(loop.getaddrinfo(host, None), CONNECT_S)
    except OSError:
        return ()
    return tuple(dict.fromkeys(str(address[0]) for *_, address in found))


def advertised(settings: Mapping[str, str | None]) -> list[tuple[str, str, int]]:
    """Name, host and port of each listener that a broker tells its clients."""
    text = settings.get("advertised.listeners") or settings.get("listeners") or ""
    controllers = (settings.get("controller.listener.names") or "").split(",")
    found = []
    for part in text.split(","):
        name, _, address = part.strip().partition("://")
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        # Without a host, or with 0.0.0.0, the broker advertises its own name, which the settings do not say.
        is_named = port.isdigit() and int(port) and host not in ("", "0.0.0.0", "::")
        if is_named and name not in controllers:
            found.append((name, host, int(port)))
    return found


def _flat(log_dirs: Mapping[int, list[LogDirFacts]]) -> tuple[LogDirFacts, ...]:
    return tuple(each for _, found in sorted(log_dirs.items()) for each in found)
