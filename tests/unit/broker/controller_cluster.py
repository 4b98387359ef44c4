"""Controllers and brokers on simulated hosts around one metadata log that is simply there.

The quorum is a stand-in: a list of batches that commit a few milliseconds after they were appended, and a
leader that the test appoints. Everything else (connections, heartbeats, the controller) is the real thing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from ottla.broker.apis.describe import ApiVersionsHandler
from ottla.broker.cluster.controller_channel import ControllerChannel
from ottla.broker.cluster.controller_service import ControllerService
from ottla.broker.cluster.lifecycle import BrokerLifecycle
from ottla.broker.cluster.node_channels import DialledNode
from ottla.broker.server.connections import ServerConnection
from ottla.broker.server.registration import handlers_of
from ottla.broker.server.server import Server
from ottla.config import ListenerAddress, Settings
from ottla.metadata.image import Delta, MetadataImage
from ottla.metadata.records import MetadataRecord, NoOpRecord
from ottla.raft.messages import AddVoter, RemoveVoter, VoterChangeAnswer
from ottla.runtime import AcceptedConnection
from ottla.security.authorizer import Authorizer
from ottla.security.principals import user
from ottla.security.rights import Rights
from ottla.sim.engine.world import SimHost, World
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError

CONTROLLER_PORT, BROKER_PORT = 9093, 9092
COMMIT_S = 0.003


class MetadataLogOfAll:
    """The log, its image, and who leads."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.end = 0
        self.image = MetadataImage()
        self.epoch = 0
        self.leader: View | None = None
        self.views: list[View] = []

    def appoint(self, view: View) -> None:
        """A new leader; the former one learns of it, too."""
        former, self.leader = self.leader, view
        self.epoch += 1
        if former is not None and former.host.running:
            for callback in former.on_leadership:
                callback(False, self.epoch)
        self._apply([NoOpRecord()], self.end, self.epoch)
        self.end += 1
        for each in self.views:
            for told in list(each.on_leader):
                told(view.node_id, self.epoch)
        for callback in view.on_leadership:
            callback(True, self.epoch)

    def append(
        self, view: View, records: Sequence[MetadataRecord]
    ) -> tuple[int, asyncio.Future[int]]:
        if view is not self.leader:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        loop = asyncio.get_running_loop()
        done: asyncio.Future[int] = loop.create_future()
        first, epoch = self.end, self.epoch
        self.end += len(records)

        def commit() -> None:
            if view is not self.leader or epoch != self.epoch:
                done.set_exception(KafkaError(ErrorCode.NOT_CONTROLLER))
                return
            self._apply(records, first + len(records) - 1, epoch)
            done.set_result(first)

        loop.call_later(COMMIT_S, commit)
        return first, done

    def _apply(self, records: Sequence[MetadataRecord], offset: int, epoch: int) -> None:
        self.image, delta = self.image.apply(records, offset, epoch)
        for view in self.views:
            for callback in list(view.on_image):
                callback(self.image, delta)


class View:
    """One node's share of the quorum, as `RaftDriver` offers it."""

    cluster_id = "a-cluster-of-tests-000"

    def __init__(self, log: MetadataLogOfAll, host: SimHost, node_id: int) -> None:
        self.log = log
        self.host = host
        self.node_id = node_id
        self.on_image: list[Callable[[MetadataImage, Delta], None]] = []
        self.on_leadership: list[Callable[[bool, int], None]] = []
        self.on_leader: list[Callable[[int | None, int], None]] = []
        log.views.append(self)

    @property
    def image(self) -> MetadataImage:
        return self.log.image

    @property
    def next_offset(self) -> int:
        return self.log.end

    @property
    def leader_id(self) -> int | None:
        return None if self.log.leader is None else self.log.leader.node_id

    def leader_endpoint(self) -> DialledNode | None:
        leader = self.log.leader
        if leader is None:
            return None
        return DialledNode(leader.node_id, leader.host.address, CONTROLLER_PORT)

    def append(self, records: Sequence[MetadataRecord]) -> tuple[int, asyncio.Future[int]]:
        return self.log.append(self, records)

    kraft_version = 1
    refusal = None

    def check_kraft_version(self, version: int) -> None:
        assert version == self.kraft_version

    def upgrade_kraft_version(self, version: int) -> asyncio.Future[int]:
        raise AssertionError("it is upgraded already")

    def describe(self) -> Mapping[str, Any]:
        return {"error_code": 0, "topics": ()}

    async def change_voters(self, request: AddVoter | RemoveVoter) -> VoterChangeAnswer:
        return VoterChangeAnswer(ErrorCode.UNSUPPORTED_VERSION, "these voters do not change")


def settings_of(node_id: int, role: str, host: SimHost, extra: Mapping[str, str]) -> Settings:
    name, port = ("CONTROLLER", CONTROLLER_PORT)
    if role == "broker":
        name, port = ("PLAINTEXT", BROKER_PORT)
    return Settings.of(
        {
            "node.id": str(node_id),
            "process.roles": role,
            "listeners": f"{name}://{host.address}:{port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "c1:9093",
            "log.dirs": "/data",
            **extra,
        }
    )


class KnownPeers(Server):
    """A listener that knows each peer by its machine, as if it had logged in under the machine's name."""

    authorizer: Authorizer | None = None
    names: Mapping[str, str] = {}

    def _accept(self, connection: AcceptedConnection) -> ServerConnection:
        accepted = super()._accept(connection)
        accepted.principal = user(self.names.get(accepted.peer_host, accepted.peer_host))
        if self.authorizer is not None:
            accepted.rights = Rights(self.authorizer, accepted.principal, accepted.peer_host)
        return accepted


async def serve(
    host: SimHost,
    name: str,
    port: int,
    handlers: Mapping[ApiKey, Any],
    authorizer: Authorizer | None = None,
    names: Mapping[str, str] | None = None,
) -> Server:
    server = KnownPeers(
        name,
        handlers,
        frame_bytes_max=1 << 20,
        idle_max_s=600,
    )
    server.authorizer = authorizer
    server.names = {} if names is None else names
    await server.listen(host.runtime.network, host.address, port)
    return server


class ControllerNode:
    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self.cluster = cluster
        self.host = cluster.world.node(f"c{node_id}")
        self.view = View(cluster.log, self.host, node_id)
        self.settings = settings_of(node_id, "controller", self.host, cluster.extra)
        self.host.complete(self._start())

    async def _start(self) -> None:
        self.service = ControllerService(self.settings, self.host.runtime, self.view)
        api_versions = ApiVersionsHandler(lambda: self.view.image, listener_is_controller=True)
        handlers = handlers_of(self.service, api_versions)
        cluster = self.cluster
        await serve(
            self.host, "CONTROLLER", CONTROLLER_PORT, handlers, cluster.authorizer, cluster.names
        )
        await self.service.start()

    def lead(self) -> None:
        async def appointed() -> None:
            self.cluster.log.appoint(self.view)

        self.host.complete(appointed())


class BrokerNode:
    """A broker without logs: registered, alive, able to forward."""

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.host = cluster.world.node(f"b{node_id}")
        self.view = View(cluster.log, self.host, node_id)
        self.settings = settings_of(node_id, "broker", self.host, cluster.extra)
        self.logs = SimpleNamespace(
            previous_broker_epoch=-1,
            directory_ids={"/data": UUID(int=node_id << 64)},
            cordoned=(),
            offline_directories={},
            on_offline=[],
            rooms={},
            on_room=[],
        )

    def start(self) -> BrokerNode:
        self.view.on_image.clear()
        self.view.on_leader.clear()
        self.host.complete(self._start())
        return self

    async def _start(self) -> None:
        runtime = self.host.runtime
        self.to_controller = ControllerChannel(self.settings, runtime, self.view)
        endpoints = {"PLAINTEXT": ListenerAddress("PLAINTEXT", self.host.address, BROKER_PORT)}
        self.lifecycle = BrokerLifecycle(
            self.settings, runtime, self.view, self.logs, self.to_controller, endpoints
        )
        handlers = handlers_of(self.to_controller)
        cluster = self.cluster
        await serve(
            self.host, "PLAINTEXT", BROKER_PORT, handlers, cluster.authorizer, cluster.names
        )
        self.lifecycle.start()
        self.lifecycle.logs_are_ready()

    @property
    def alive(self) -> bool:
        return self.cluster.log.image.is_alive(self.node_id)


class Cluster:
    def __init__(self, seed: int = 1, **extra: str) -> None:
        self.world = World(seed)
        self.extra = {name.replace("_", "."): value for name, value in extra.items()}
        self.log = MetadataLogOfAll(self.world)
        self.authorizer: Authorizer | None = None
        """Of all listeners that are opened from now on."""
        self.names: dict[str, str] = {}
        """Of principals, by address. Without a name here, the address is the name."""

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.world.close()

    def controller(self, node_id: int = 100) -> ControllerNode:
        return ControllerNode(self, node_id)

    def brokers(self, *ids: int) -> list[BrokerNode]:
        started = [BrokerNode(self, node_id).start() for node_id in ids]
        self.until(lambda: all(broker.alive for broker in started), 5)
        return started

    def until(self, condition: Callable[[], bool], timeout_s: float) -> float:
        """How long it took."""
        began = self.world.loop.time()
        assert self.world.run_until(condition, timeout_s), "it did not come to pass"
        return self.world.loop.time() - began

    def ask(
        self, at: str, port: int, key: ApiKey, fields: Mapping[str, Any], **options: Any
    ) -> Any:
        """A client's request from a machine of its own."""
        from ottla.wire.channel import Channel

        async def work() -> Any:
            client = self.world.node("client").runtime
            channel = await Channel.open(client.network, at, port, "client")
            answer = await channel.request(key, fields, **options)
            channel.close()
            return answer

        return self.world.node("client").complete(work())
