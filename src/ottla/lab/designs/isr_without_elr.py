"""The ISR as it was before KIP-966, to show what the eligible leader replicas are for."""

from __future__ import annotations

from ottla.broker.design import NodeDesign
from ottla.lab.commit.design import CommitDesign
from ottla.lab.commit.rules import change_without_elr
from ottla.lab.commit.without_elr import NodeWithoutElr
from ottla.lab.design import Design, Seam

DESIGN = Design(
    name="isr-without-elr",
    seam=Seam.COMMIT,
    promise="P42",
    summary="As isr, but only members of the ISR are electable, and the last of them is waited for (before KIP-966).",
    part=CommitDesign(NodeDesign(change=change_without_elr), NodeWithoutElr),
)
