"""The product's transfer, as a design to compare the others with."""

from __future__ import annotations

from ottla.broker.design import PRODUCT
from ottla.lab.design import Design, Seam

DESIGN = Design(
    name="pull",
    seam=Seam.TRANSFER,
    promise="P07",
    summary="Each follower fetches from its leader; the position that its next fetch names is the acknowledgement"
    " (the product).",
    part=PRODUCT,
    is_product=True,
)
