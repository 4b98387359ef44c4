"""The product's truncation rule, as a design to compare the others with."""

from __future__ import annotations

from ottla.broker.design import PRODUCT
from ottla.lab.design import Design, Seam

DESIGN = Design(
    name="leader-epochs",
    seam=Seam.TRUNCATION,
    promise="P24",
    summary="A follower compares leader epochs with its leader and truncates to the point of agreement (the product).",
    part=PRODUCT,
    is_product=True,
)
