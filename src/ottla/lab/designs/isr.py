"""The product's rules of commit and election, as a design to compare the others with."""

from __future__ import annotations

from ottla.broker.design import PRODUCT
from ottla.broker.node import Node
from ottla.lab.commit.design import CommitDesign
from ottla.lab.design import Design, Seam

DESIGN = Design(
    name="isr",
    seam=Seam.COMMIT,
    promise="P42",
    summary="A record is committed when all in-sync replicas have it; one of ISR or ELR leads next (the product).",
    part=CommitDesign(PRODUCT, Node),
    is_product=True,
)
