"""Everybody who is in a run only because it is secure: who they are, and when they begin and stop."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from ottla.metadata.image import MetadataImage
from ottla.sim.clients.access import (
    MOLE,
    VISITORS,
    WORKER,
    AccessOperator,
    AccessPlan,
    Leaders,
    PatientReader,
    Visitor,
)
from ottla.sim.clients.connections import ClientConnections
from ottla.sim.clients.intruder import Intruder
from ottla.sim.clients.logins import ADMINISTRATOR, SimUser
from ottla.sim.clients.snoop import Snoop
from ottla.sim.cluster.nodes import BROKER_PORT
from ottla.sim.engine.world import SimHost
from ottla.sim.oracle.access_checker import AccessChecker

OPERATORS = ("admin", "operator")
"""Clients that log in as the administrator."""


class AccessWorkload:
    def __init__(
        self,
        plan: AccessPlan,
        host: SimHost,
        nodes: Sequence[int],
        checker: AccessChecker,
        leader_of: Leaders,
        image: Callable[[], MetadataImage],
        random_for: Callable[[str], random.Random],
    ) -> None:
        self.worker = SimUser(WORKER, "worker secret", plan.mechanism)
        self._host = host
        addresses = [(f"n{node}", BROKER_PORT) for node in nodes]
        connections = ClientConnections(host, addresses, "access", ADMINISTRATOR)
        self._operator = AccessOperator(plan, host, connections, self.worker, random_for("access"))

        def visitor(kind: type[Visitor], name: str, chance: str) -> Visitor:
            return kind(
                name,
                plan,
                host,
                nodes,
                checker,
                self._operator.passwords,
                leader_of,
                random_for(f"{chance} {name}"),
            )

        visitors = [visitor(Visitor, name, "visitor") for name in VISITORS]
        for each in visitors:
            each.others = [other for other in visitors if other is not each]
        self._visitors = [*visitors, *(visitor(PatientReader, name, "reader") for name in VISITORS)]
        mole = self.worker._replace(name=MOLE)
        self._intruder = Intruder(
            host, nodes, checker, (self.worker, mole), image, random_for("intruder")
        )
        self._snoop = Snoop(host, nodes, checker, (self.worker, mole), image, random_for("snoop"))

    def user_of(self, client: str) -> SimUser:
        """As whom the client of this name logs in."""
        return ADMINISTRATOR if client in OPERATORS else self.worker

    async def prepare(self) -> None:
        """Users, and the rights of the worker."""
        await self._operator.prepare()

    def begin(self) -> None:
        self._host.run(self._operator.run(), name="access")
        self._host.run(self._operator.write(), name="writer of private topics")
        for visitor in self._visitors:
            self._host.run(visitor.run(), name=visitor.name)
        self._host.run(self._intruder.run(), name="intruder")
        self._host.run(self._snoop.run(), name="snoop")

    def stop(self) -> None:
        self._operator.is_stopping = self._intruder.is_stopping = self._snoop.is_stopping = True
        for visitor in self._visitors:
            visitor.is_stopping = True
