"""One elected broker decides, and each state change goes through a queue in ZooKeeper per broker (v2)."""

from __future__ import annotations

from ottla.lab.design import Design, Seam
from ottla.lab.propagation.node import Propagation
from ottla.lab.propagation.state_queue import QueueMember

DESIGN = Design(
    name="zk-queue",
    seam=Seam.PROPAGATION,
    promise="P46",
    summary="One elected broker decides, and each state change goes through a queue in ZooKeeper per broker (v2).",
    part=Propagation(QueueMember),
)
