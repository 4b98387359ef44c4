"""A node of the product with a membership through ZooKeeper: it has no quorum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ottla.broker.cluster.membership import Membership
from ottla.broker.node import Node
from ottla.config import Settings
from ottla.lab.propagation.member import NoControllerChannel, SessionLifecycle, ZooKeeperMember
from ottla.runtime import Runtime


@dataclass(frozen=True)
class Propagation:
    """The part that a design of the propagation seam replaces."""

    member: type[ZooKeeperMember] | None = None
    """None for the product, whose brokers learn from the quorum."""


class ZooKeeperNode(Node):
    def __init__(
        self,
        settings: Settings,
        runtime: Runtime,
        *,
        member: type[ZooKeeperMember],
        ensemble: Sequence[tuple[str, int]],
        session_timeout_s: float,
    ) -> None:
        super().__init__(settings, runtime)
        self._make_member = member
        self._ensemble = ensemble
        self._session_timeout_s = session_timeout_s
        self.member: ZooKeeperMember | None = None

    async def _join(self, cluster_id: str) -> Membership:
        settings, runtime, logs = self.settings, self.runtime, self.logs
        assert logs is not None, "nodes of these designs are brokers"
        self.member = member = self._make_member(
            settings,
            runtime,
            logs,
            self.endpoints,
            cluster_id,
            self._ensemble,
            self._session_timeout_s,
        )
        channel = NoControllerChannel(member, settings, runtime)
        lifecycle = SessionLifecycle(member, settings, runtime, logs, channel, self.endpoints)
        return Membership(member.source, channel, channel, lifecycle)
