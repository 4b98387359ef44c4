"""A broker's membership in a cluster that ZooKeeper keeps together: its session, its znode, and what it learns.

Watches are handled one after the other, each to its end, as by the event thread of the ZooKeeper client that Kafka used
then: a broker's operations on ZooKeeper are serial.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from ottla.broker.cluster.controller_channel import ControllerChannel
from ottla.broker.cluster.lifecycle import BrokerLifecycle, BrokerState
from ottla.config import ListenerAddress, Settings
from ottla.lab.propagation.published import PublishedDecisions
from ottla.lab.propagation.znodes import (
    BROKER_IDS,
    TOPICS,
    PartitionDecision,
    RegisteredBroker,
    TopicAssignment,
    assignment,
    broker_data,
    broker_path,
    decision_in,
    registered_broker,
    topic_path,
    undecided,
)
from ottla.lab.zookeeper.client import ZooKeeperClient
from ottla.lab.zookeeper.errors import (
    BadVersion,
    ConnectionLoss,
    NodeExists,
    NoNode,
    SessionExpired,
)
from ottla.lab.zookeeper.model import CreateNode, SessionState, WatchEvent
from ottla.log.manager import LogManager
from ottla.metadata.image import TopicImage
from ottla.metadata.records import FenceBrokerRecord, MetadataRecord, TopicRecord
from ottla.runtime import Runtime
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.types import TopicPartition

logger = logging.getLogger(__name__)

RETRY_S = 0.05

Work = Callable[[], Awaitable[None]]


class SerialWork:
    """Work with ZooKeeper, one piece after the other, each until the connection holds through it."""

    def __init__(self, is_connected: asyncio.Event) -> None:
        self._is_connected = is_connected
        self._waiting: deque[Work] = deque()
        self._worker: asyncio.Task[None] | None = None

    def do(self, work: Work) -> None:
        """After all that was asked for before it. It may be done twice."""
        self._waiting.append(work)
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._run())
            self._worker.add_done_callback(self._ended)

    def stop(self) -> None:
        """With what is under way, and what waits."""
        self._waiting.clear()
        if self._worker is not None:
            self._worker.cancel()
            self._worker = None

    async def _run(self) -> None:
        while self._waiting:
            work = self._waiting.popleft()
            try:
                await work()
            except ConnectionLoss:
                self._waiting.appendleft(work)
                await self._is_connected.wait()
            except SessionExpired:
                pass  # the member has asked for a new session

    def _ended(self, worker: asyncio.Task[None]) -> None:
        if worker is self._worker:
            self._worker = None
        if not worker.cancelled():
            worker.result()  # a defect of the design: the simulator reports it


class ZooKeeperMember(ABC):
    """One broker's process in ZooKeeper. A design says what it does there with `take_part`."""

    def __init__(
        self,
        settings: Settings,
        runtime: Runtime,
        logs: LogManager,
        endpoints: Mapping[str, ListenerAddress],
        cluster_id: str,
        ensemble: Sequence[tuple[str, int]],
        session_timeout_s: float,
    ) -> None:
        self.id = settings.node_id
        self.settings = settings
        self.runtime = runtime
        self.source = PublishedDecisions(cluster_id)
        self.client: ZooKeeperClient
        self.broker_epoch = -1
        self.is_stopped = False
        self._logs = logs
        self._endpoints = [
            at for name, at in endpoints.items() if name not in settings.controller_listener_names
        ]
        self._ensemble = ensemble
        self._session_timeout_s = session_timeout_s
        self._is_connected = asyncio.Event()
        self.work = SerialWork(self._is_connected)

    # -- what a design does ------------------------------------------------------------------------

    @staticmethod
    def znodes_of(key: TopicPartition, replicas: tuple[int, ...]) -> list[CreateNode]:
        """What is created for a partition together with its topic."""
        return []

    @abstractmethod
    async def take_part(self) -> None:
        """Begin to decide or to learn, in a new session."""

    @abstractmethod
    async def write_isr(self, decision: PartitionDecision) -> int:
        """A leader's new ISR, if the znode still has the version that the decision names. Returns the new version."""

    def close(self) -> None:  # noqa: B027 (most designs open nothing)
        """Close what the design opened."""

    # -- the session -------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Begin a session, register, and learn which topics there are: their logs must not count as strays."""
        self._is_connected.clear()
        self.client = await ZooKeeperClient.connect(
            self.runtime.network, self._ensemble, f"broker {self.id}", self._session_timeout_s
        )
        client = self.client
        client.on_state.append(lambda state: self._session_changed(client, state))
        self._is_connected.set()
        await self._register()
        await self.learn_brokers()
        await self.learn_topics()

    async def _register(self) -> None:
        path = broker_path(self.id)
        while True:
            try:
                await self.client.create(path, broker_data(self._endpoints), ephemeral=True)
                break
            except NodeExists:  # of the previous process, whose session is not over yet
                await asyncio.sleep(RETRY_S)
        stat = await self.client.exists(path)
        assert stat is not None
        self.broker_epoch = stat.czxid

    def _session_changed(self, client: ZooKeeperClient, state: SessionState) -> None:
        if client is not self.client or self.is_stopped:
            return
        if state is SessionState.CONNECTED:
            self._is_connected.set()
        else:
            self._is_connected.clear()
        if state is SessionState.EXPIRED:
            self.work.stop()
            self.work.do(self._begin_again)

    async def _begin_again(self) -> None:
        """Kafka's handleNewSession. Until it has read otherwise, this broker acts on what it knew before."""
        logger.warning("the session expired, registering again broker=%d", self.id)
        await self.connect()
        await self.take_part()

    @property
    def is_in_session(self) -> bool:
        return self._is_connected.is_set()

    async def stop(self) -> None:
        """Close the session: its ephemeral znodes go at once."""
        self.is_stopped = True
        self.work.stop()
        self.close()
        if self.broker_epoch >= 0:
            await self.client.close()

    def when(self, work: Work, by: SerialWork | None = None) -> Callable[[WatchEvent], None]:
        """A watch that has `work` done when it fires."""
        client, worker = self.client, by or self.work

        def fired(event: WatchEvent) -> None:
            if client is self.client and not self.is_stopped:
                worker.do(work)

        return fired

    # -- what is learnt from znodes ----------------------------------------------------------------

    async def learn_brokers(
        self, watch: Callable[[WatchEvent], None] | None = None
    ) -> dict[int, RegisteredBroker]:
        """The brokers that are there, and publish them."""
        there: dict[int, RegisteredBroker] = {}
        for name in sorted(await self.client.children(BROKER_IDS, watch)):
            try:
                data, stat = await self.client.get(broker_path(int(name)))
            except NoNode:
                continue  # gone since; the watch fires
            there[int(name)] = registered_broker(int(name), stat.czxid, data)
        self.publish_brokers(there)
        return there

    def publish_brokers(self, there: Mapping[int, RegisteredBroker]) -> None:
        known = self.source.image.brokers
        records: list[MetadataRecord] = [
            FenceBrokerRecord(id=id, epoch=broker.epoch)
            for id, broker in known.items()
            if id not in there and not broker.fenced
        ]
        # What is old news names an earlier registration of a broker that came back.
        records += [
            each.record()
            for id, each in there.items()
            if id not in known or (known[id].epoch, not known[id].fenced) < (each.epoch, True)
        ]
        if records:
            self.source.publish(records)

    async def learn_topics(
        self, watch: Callable[[WatchEvent], None] | None = None
    ) -> list[TopicAssignment]:
        """The topics that this broker did not know, and publish them."""
        new = [
            await self.read_topic(name)
            for name in sorted(await self.client.children(TOPICS, watch))
            if name not in self.source.image.topics
        ]
        self.publish_topics(new)
        return new

    async def read_topic(self, name: str) -> TopicAssignment:
        data, _ = await self.client.get(topic_path(name))
        return assignment(name, data)

    def publish_topics(self, new: Iterable[TopicAssignment]) -> None:
        """Topics whose partitions nobody leads yet."""
        self.publish_decisions(each for topic in new for each in undecided(topic))

    def publish_decisions(self, decisions: Iterable[PartitionDecision]) -> None:
        """Those of a topic that was unknown begin with its first partition."""
        records: list[MetadataRecord] = []
        topics = set(self.source.image.topics)
        for each in decisions:
            if each.key.topic not in topics:
                topics.add(each.key.topic)
                records.append(TopicRecord(name=each.key.topic, topic_id=each.topic_id))
            records.append(each.record(self.id, self._directory))
        if records:
            self.source.publish(records)

    @property
    def _directory(self) -> UUID:
        """Brokers of the lab have one log directory."""
        return next(iter(self._logs.directory_ids.values()))

    def known(self, key: TopicPartition) -> PartitionDecision:
        """What this broker acts upon."""
        return decision_in(self.source.image.topics[key.topic], key.partition)

    # -- the ISR -----------------------------------------------------------------------------------

    async def alter_partition(self, fields: Mapping[str, Any]) -> Any:
        """In place of AlterPartition: each leader wrote the ISR into ZooKeeper itself, until Kafka 2.7."""
        topics = []
        for asked in fields["topics"]:
            topic = self.source.image.topics_by_id[asked["topic_id"]]
            results = [await self._alter(topic, each) for each in asked["partitions"]]
            topics.append(SimpleNamespace(topic_id=topic.id, partitions=results))
        return SimpleNamespace(error_code=ErrorCode.NONE, topics=topics)

    async def _alter(self, topic: TopicImage, asked: Mapping[str, Any]) -> Any:
        number = asked["partition_index"]
        isr = tuple(each["broker_id"] for each in asked["new_isr_with_epochs"])
        known = decision_in(topic, number)
        error = ErrorCode.NONE
        if (asked["leader_epoch"], asked["partition_epoch"]) != (known.leader_epoch, known.version):
            error = ErrorCode.INVALID_UPDATE_VERSION
        else:
            try:
                known = known._replace(isr=isr)
                known = known._replace(version=await self.write_isr(known))
            except BadVersion:
                error = ErrorCode.INVALID_UPDATE_VERSION
            except (ConnectionLoss, SessionExpired) as lost:
                raise ConnectionError(str(lost)) from lost
            else:
                self.publish_decisions([known])
        return SimpleNamespace(
            partition_index=number, error_code=error, isr=isr, partition_epoch=known.version
        )


class SessionLifecycle(BrokerLifecycle):
    """A broker is alive while its session is: registration is an ephemeral znode, heartbeats are the session's."""

    def __init__(
        self,
        member: ZooKeeperMember,
        settings: Settings,
        runtime: Runtime,
        logs: LogManager,
        channel: ControllerChannel,
        endpoints: Mapping[str, ListenerAddress],
    ) -> None:
        self._member = member
        self._may_begin = asyncio.Event()
        super().__init__(settings, runtime, member.source, logs, channel, endpoints)

    @property
    def broker_epoch(self) -> int:
        return self._member.broker_epoch

    @broker_epoch.setter
    def broker_epoch(self, epoch: int) -> None:
        assert epoch == -1, "the epoch of a broker is that of its znode"

    def start(self) -> None:
        self.state = BrokerState.STARTING
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(self._ended)

    async def _run(self) -> None:
        await self._member.connect()
        self.state = BrokerState.RECOVERY
        self.caught_up.set()
        await self._may_begin.wait()
        self._member.work.do(self._member.take_part)
        self.state = BrokerState.RUNNING
        self.ready.set()

    def logs_are_ready(self) -> None:
        self._may_begin.set()

    @property
    def is_in_doubt(self) -> bool:
        return not self._member.is_in_session

    async def controlled_shutdown(self) -> bool:
        """There is nobody to ask: the session ends, and the others see it."""
        await self.stop()
        return True

    async def stop(self) -> None:
        self.state = BrokerState.SHUTTING_DOWN
        self.ready.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        await self._member.stop()


class NoControllerChannel(ControllerChannel):
    """What the product asks its controller, asked of ZooKeeper."""

    def __init__(self, member: ZooKeeperMember, settings: Settings, runtime: Runtime) -> None:
        super().__init__(settings, runtime, member.source)
        self._member = member

    async def request(
        self,
        api_key: ApiKey,
        fields: Mapping[str, Any],
        *,
        version: int | None = None,
        timeout_s: float,
        may_repeat: bool = True,
        is_large: bool = False,
    ) -> Any:
        if api_key is not ApiKey.ALTER_PARTITION:
            raise TimeoutError(f"no controller takes {api_key.name} in this design")
        return await self._member.alter_partition(fields)
