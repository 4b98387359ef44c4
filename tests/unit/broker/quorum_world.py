"""Quorum shells on simulated hosts: real frames, real files, virtual time."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from ottla.broker.apis.describe import ApiVersionsHandler
from ottla.broker.apis.quorum import QuorumHandlers
from ottla.broker.cluster.raft_driver import RaftDriver
from ottla.broker.server.registration import handlers_of
from ottla.broker.server.server import Server
from ottla.config import Settings
from ottla.raft.format import format_directory, is_formatted
from ottla.raft.voters import QuorumEndpoint, Voter, VoterSet
from ottla.sim.engine.world import SimHost, World

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
PORT = 9093


class QuorumNode:
    """One node and its shell, which is a new one after every start."""

    def __init__(self, cluster: QuorumWorld, node: int) -> None:
        self.cluster = cluster
        self.node = node
        self.cluster_id = CLUSTER
        self.host: SimHost = cluster.world.node(f"n{node}")
        self.quorum: RaftDriver | None = None
        self.leadership: list[tuple[bool, int]] = []
        self.directory_life = 0
        self.on_quorum: Callable[[RaftDriver], None] = lambda quorum: None
        """Called before a start, for a test that wants to hear of all that follows."""

    @property
    def directory_id(self) -> UUID:
        return UUID(int=500 + self.node + 100 * self.directory_life)

    @property
    def running(self) -> RaftDriver:
        assert self.quorum is not None
        return self.quorum

    def settings(self) -> Settings:
        is_voter = self.node in self.cluster.voter_ids
        values = {
            "node.id": str(self.node),
            "process.roles": "controller" if is_voter else "broker",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://{self.host.address}:{PORT}"
            if is_voter
            else f"PLAINTEXT://{self.host.address}:9092",
            "log.dirs": "/data",
            **self.cluster.options,
        }
        if self.cluster.is_dynamic:
            values["controller.quorum.bootstrap.servers"] = ",".join(
                f"{self.cluster.address(n)}:{PORT}" for n in self.cluster.voter_ids
            )
        else:
            values["controller.quorum.voters"] = ",".join(
                f"{n}@{self.cluster.address(n)}:{PORT}" for n in self.cluster.voter_ids
            )
        return Settings.of(values)

    def start(self) -> None:
        self.host.run(self._run())

    async def _run(self) -> None:
        runtime = self.host.runtime
        if not is_formatted(runtime.disk, "/data"):
            voters = None
            if self.cluster.is_dynamic and self.node in self.cluster.voter_ids:
                voters = self.cluster.voters() if self.directory_life == 0 else None
            format_directory(
                runtime.disk,
                "/data",
                cluster_id=CLUSTER,
                node_id=self.node,
                directory_id=self.directory_id,
                voters=voters,
            )
        quorum = RaftDriver(self.settings(), runtime, self.cluster_id)
        quorum.on_leadership.append(lambda *what: self.leadership.append(what))
        self.on_quorum(quorum)
        server = Server(
            "CONTROLLER",
            handlers_of(
                QuorumHandlers(quorum),
                ApiVersionsHandler(lambda: quorum.image, listener_is_controller=True),
            ),
            frame_bytes_max=1 << 26,
            idle_max_s=600,
        )
        await server.listen(runtime.network, self.host.address, PORT)
        self.quorum = quorum
        await quorum.start()

    def kill(self, *, power_loss: bool = False) -> None:
        self.host.kill(power_loss=power_loss)
        self.quorum = None


class QuorumWorld:
    def __init__(
        self,
        seed: int = 1,
        voters: int = 3,
        observers: int = 0,
        *,
        is_dynamic: bool = True,
        options: dict[str, str] | None = None,
    ) -> None:
        self.world = World(seed)
        self.is_dynamic = is_dynamic
        self.options = options or {}
        self.voter_ids = list(range(1, voters + 1))
        self.nodes = {n: QuorumNode(self, n) for n in range(1, voters + observers + 1)}

    def __enter__(self) -> QuorumWorld:
        self.world.__enter__()
        for node in self.nodes.values():
            node.start()
        return self

    def __exit__(self, *what: object) -> None:
        self.world.__exit__(*what)

    def address(self, node: int) -> str:
        return self.world.node(f"n{node}").address

    def voters(self) -> VoterSet:
        return VoterSet.of(
            Voter(
                n,
                self.nodes[n].directory_id,
                (QuorumEndpoint("CONTROLLER", self.address(n), PORT),),
            )
            for n in self.voter_ids
        )

    def until(self, condition: object, timeout_s: float = 20) -> None:
        assert callable(condition)
        assert self.world.run_until(condition, timeout_s), f"not within {timeout_s} s"

    def active(self) -> QuorumNode | None:
        active = [n for n in self.nodes.values() if n.quorum is not None and n.quorum.is_active]
        return max(active, key=lambda n: n.running.epoch) if active else None

    def elect(self) -> QuorumNode:
        self.until(lambda: self.active() is not None)
        node = self.active()
        assert node is not None
        return node

    def all_at(self, offset: int) -> bool:
        return all(n.quorum is None or n.quorum.image.offset >= offset for n in self.nodes.values())
