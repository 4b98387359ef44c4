"""A cluster of whole nodes in a simulated world: each host runs what a real machine runs, `Node.run`.

What can happen to a machine is a method here: start, kill, power loss, controlled stop. The checkers read the live
`Node` objects; nothing inside a node knows that it is observed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from uuid import UUID

from ottla.broker.node import Node
from ottla.config import Settings
from ottla.events import Event, Events
from ottla.raft.format import format_directory
from ottla.raft.voters import QuorumEndpoint, Voter, VoterSet
from ottla.runtime import Runtime
from ottla.sim.cluster.security import NODES_PORT, ClusterSecurity
from ottla.sim.engine.process import SimProcess
from ottla.sim.engine.world import SimHost, World

BROKER_PORT, CONTROLLER_PORT = 9092, 9093
CLUSTER_ID = "c2ltdWxhdGVkLWNsdXN0ZQ"
DATA = "/data"
"""The log directory of partitions; the metadata log has its own."""
METADATA = "/metadata"
WATERMARK = "ottla.disk.watermark.percent"


def voter_endpoint(id: int) -> QuorumEndpoint:
    return QuorumEndpoint("CONTROLLER", f"n{id}", CONTROLLER_PORT)


class SimNode:
    """One machine of the cluster, whether its process runs or not."""

    def __init__(self, cluster: SimCluster, id: int, settings: Settings, host: SimHost) -> None:
        self.id = id
        self.settings = settings
        self.host = host
        self.node: Node | None = None
        """The process that runs now; None while there is none."""
        self.is_ready = False
        """It has been unfenced since it was started."""
        self.is_stopping = False
        self.subscribers: list[tuple[Callable[[Event], None], tuple[type[Event], ...]]] = []
        """To the events of each of its processes, with the kinds that they want."""
        self._cluster = cluster
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<node {self.id}: {self.state}>"

    @property
    def state(self) -> str:
        process = self.host.process
        if process is None:
            return "down"
        if process.paused:
            return "paused"
        if self.is_stopping:
            return "stopping"
        return "up" if self.is_ready else "starting"

    @property
    def is_up(self) -> bool:
        return self.host.process is not None

    @property
    def process(self) -> SimProcess | None:
        return self.host.process

    @property
    def has_failed_disk(self) -> bool:
        if self.node is None:
            return False
        broker, quorum = self.node.broker, self.node.quorum
        return (broker is not None and bool(broker.logs.offline_directories)) or (
            quorum is not None and quorum.failed is not None
        )

    def start(self) -> None:
        assert not self.is_up
        events = Events()
        for subscriber, kinds in self.subscribers:
            events.subscribe(subscriber, *kinds)
        node = self._cluster.make_node(self.settings, replace(self.host.runtime, events=events))
        self.is_ready = self.is_stopping = False
        self.node = node
        self._task = self.host.run(node.run(self._ready), name=f"node {self.id}")
        self._task.add_done_callback(self._ended)
        self._cluster.changed(self)

    def _ready(self) -> None:
        self.is_ready = True

    def _ended(self, task: asyncio.Task[None]) -> None:
        """The process ended by itself: after a controlled stop, or because it failed."""
        if task is not self._task:
            return
        failure = None if task.cancelled() else task.exception()
        self._cluster.ended(self, failure)

    def kill(self, *, power_loss: bool = False) -> None:
        """kill -9, or the machine loses its power."""
        self._task = None
        self.node = None
        self.is_ready = self.is_stopping = False
        self.host.kill(power_loss=power_loss)
        self._cluster.changed(self)

    def stop(self) -> None:
        """SIGTERM: the process gives up its leaderships and ends."""
        assert self._task is not None
        self.is_stopping = True
        self._task.cancel()


class SimCluster:
    def __init__(
        self,
        world: World,
        nodes: int = 3,
        overrides: Mapping[str, str] | None = None,
        *,
        controllers: int = 0,
        security: ClusterSecurity | None = None,
        first_voters: int = 0,
        upgrades_voters: bool = False,
        make_node: Callable[[Settings, Runtime], Node] = Node,
    ) -> None:
        """Combined nodes, all of them voters; `overrides` are further settings of every node (the event log and the
        watermark of disks are off unless they turn them on). With
        `controllers`, the last so many nodes are controllers only, and all others are brokers only. With `security`,
        clients log in, and nodes have certificates.
        With `first_voters`, voters may change: the first so many nodes are formatted as voters, and all others are
        controllers that observe. With `upgrades_voters`, voters are static, and may be upgraded.
        `make_node` is called at each start of a machine; another design makes another node."""
        self.world = world
        self.make_node = make_node
        self.on_change: list[Callable[[SimNode], None]] = []
        """A process was started, or has ended."""
        self.on_end: list[Callable[[SimNode, BaseException | None], None]] = []
        """A process ended by itself; with which exception, if any."""
        ids = range(1, nodes + 1)
        voting = ids[nodes - controllers :] if controllers else ids
        voters = ",".join(f"{id}@n{id}:{CONTROLLER_PORT}" for id in voting)
        if first_voters:
            voters = ",".join(f"n{id}:{CONTROLLER_PORT}" for id in voting)
        self.nodes: dict[int, SimNode] = {}
        for id in ids:
            listeners = {"broker": f"PLAINTEXT://n{id}:{BROKER_PORT}"}
            if security is not None:
                listeners["broker"] = f"CLIENTS://n{id}:{BROKER_PORT},NODES://n{id}:{NODES_PORT}"
            if id in voting:
                listeners["controller"] = f"CONTROLLER://n{id}:{CONTROLLER_PORT}"
                if controllers:
                    del listeners["broker"]
            settings = Settings.of(
                {
                    "node.id": str(id),
                    "process.roles": ",".join(listeners),
                    "listeners": ",".join(listeners.values()),
                    "controller.listener.names": "CONTROLLER",
                    **(
                        {"controller.quorum.bootstrap.servers": voters}
                        if first_voters
                        else {"controller.quorum.voters": voters}
                    ),
                    "cluster.id": CLUSTER_ID,
                    "log.dirs": DATA,
                    "metadata.log.dir": METADATA,
                    "ottla.event.log.enable": "false",
                    WATERMARK: "100",
                    **({} if security is None else security.settings(id, nodes)),
                    **(overrides or {}),
                }
            )
            self.nodes[id] = SimNode(self, id, settings, world.node(f"n{id}"))
        self.first_voters = self._format(ids[:first_voters]) if first_voters else None
        """None: they are static."""
        self.upgrades_voters = upgrades_voters

    def _format(self, ids: Sequence[int]) -> VoterSet:
        chance = self.world.loop.random_for("voters")
        voters = VoterSet.of(
            Voter(id, UUID(int=chance.getrandbits(128), version=4), (voter_endpoint(id),))
            for id in ids
        )
        for voter in voters.voters:
            assert voter.directory is not None
            format_directory(
                self.nodes[voter.id].host.disk,
                METADATA,
                cluster_id=CLUSTER_ID,
                node_id=voter.id,
                directory_id=voter.directory,
                voters=voters,
            )
        return voters

    def subscribe(self, subscriber: Callable[[SimNode, Event], None], *kinds: type[Event]) -> None:
        """To these kinds of events, or to all, of every node: of its process that runs, and of each that it will start."""
        for node in self.nodes.values():
            to_node = partial(subscriber, node)
            node.subscribers.append((to_node, kinds))
            if node.node is not None:
                node.node.runtime.events.subscribe(to_node, *kinds)

    @property
    def bootstrap(self) -> list[tuple[str, int]]:
        return [(node.host.name, BROKER_PORT) for node in self.nodes.values()]

    @property
    def up(self) -> list[SimNode]:
        return [node for node in self.nodes.values() if node.is_up]

    def start(self) -> None:
        for node in self.nodes.values():
            if not node.is_up:
                node.start()

    def wait_ready(self, timeout_s: float) -> bool:
        """Until every node that was started serves."""
        return self.world.run_until(
            lambda: all(node.is_ready for node in self.nodes.values() if node.is_up), timeout_s
        )

    def changed(self, node: SimNode) -> None:
        for callback in self.on_change:
            callback(node)

    def ended(self, node: SimNode, failure: BaseException | None) -> None:
        """Then the rest of the process goes as well: its system closes its sockets."""
        self.world.loop.after_s(0, node.kill)
        for callback in self.on_end:
            callback(node, failure)
