"""The product's propagation: brokers follow the log of the controller quorum."""

from __future__ import annotations

from ottla.lab.design import Design, Seam
from ottla.lab.propagation.node import Propagation

DESIGN = Design(
    name="kraft",
    seam=Seam.PROPAGATION,
    promise="P48",
    summary="The quorum's log is the state; brokers and standby controllers follow it (the product).",
    part=Propagation(),
    is_product=True,
)
