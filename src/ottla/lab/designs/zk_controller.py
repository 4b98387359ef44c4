"""One elected broker decides, writes to ZooKeeper, then sends each broker one request for all partitions (v3)."""

from __future__ import annotations

from ottla.lab.design import Design, Seam
from ottla.lab.propagation.leader_and_isr import DirectMember
from ottla.lab.propagation.node import Propagation

DESIGN = Design(
    name="zk-controller",
    seam=Seam.PROPAGATION,
    promise="P47",
    summary="One elected broker decides, writes to ZooKeeper, then sends each broker one request for all partitions (v3).",
    part=Propagation(DirectMember),
)
