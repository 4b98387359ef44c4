"""Each partition's leader is whoever creates an ephemeral znode, and every replica watches it (v1)."""

from __future__ import annotations

from ottla.lab.design import Design, Seam
from ottla.lab.propagation.node import Propagation
from ottla.lab.propagation.watchers import WatchingMember

DESIGN = Design(
    name="zk-watchers",
    seam=Seam.PROPAGATION,
    promise="P45",
    summary="Each partition's leader is whoever creates an ephemeral znode, and every replica watches it (v1).",
    part=Propagation(WatchingMember),
)
