"""The hosts of the simulated ZooKeeper: a leader that clients talk to, and a follower that has a copy of every write."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.lab.wire_counts import WireCounts, WireProtocol
from ottla.lab.zookeeper.counts import ZooKeeperCounts
from ottla.lab.zookeeper.follower import FOLLOWER_PORT, FollowerServer
from ottla.lab.zookeeper.leader import CLIENT_PORT, LeaderServer
from ottla.lab.zookeeper.wire import event_kind, request_kind
from ottla.sim.engine.world import SimHost, World

LEADER = "zk1"
FOLLOWER = "zk2"
PROTOCOL = WireProtocol(request_kind, event_kind)


class ZooKeeperEnsemble:
    def __init__(self, world: World, counts: WireCounts | None = None) -> None:
        """`counts`: those of the hosts that talk to it. What the leader sends to its follower is counted there too."""
        self.leader: SimHost = world.node(LEADER)
        self.follower: SimHost = world.node(FOLLOWER)
        self.addresses: Sequence[tuple[str, int]] = [(LEADER, CLIENT_PORT)]
        self.counts = ZooKeeperCounts()
        self.server: LeaderServer | None = None
        """Of the leader, while it runs and since it was started last."""
        if counts is not None:
            counts.protocols[CLIENT_PORT] = counts.protocols[FOLLOWER_PORT] = PROTOCOL
            self.leader.runtime = counts.counted(LEADER, self.leader.runtime)

    def start(self) -> None:
        """Start what does not run: both hosts, or one that was killed. Clients are let in when both run."""
        if not self.follower.running:
            self.follower.run(self._follow(), name="ZooKeeper follower")
        if not self.leader.running:
            self.leader.run(self._lead(), name="ZooKeeper leader")

    async def _follow(self) -> None:
        await FollowerServer(self.follower.runtime).run()

    async def _lead(self) -> None:
        self.server = LeaderServer(self.leader.runtime, FOLLOWER, self.counts)
        await self.server.run()

    @property
    def watches(self) -> int:
        """Registered now."""
        return len(self.server.watches) if self.server is not None else 0
