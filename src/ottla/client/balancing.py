"""Balance of a running cluster: what would move now, and watching it until something has to."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from ottla.balance.model import BalancePlan, Tolerance
from ottla.balance.patience import Patience
from ottla.balance.planner import plan
from ottla.client.client import Client
from ottla.client.cluster_picture import cluster_picture
from ottla.client.loads import partition_rates
from ottla.client.reassigning import Reassigner


class BalanceLook(NamedTuple):
    plan: BalancePlan
    is_out: bool
    """Out of balance, something can be done about it, and nobody is doing it."""
    waited_s: float
    """How long it has been so."""
    acts: bool
    """Whether the plan is to be carried out now, before the next look."""


async def balance_plan(client: Client, tolerance: Tolerance) -> BalancePlan:
    """Of all topics. Raises `planner.Impossible`."""
    rates = await partition_rates(client)
    picture = await cluster_picture(client, None, rates)
    return plan(picture.brokers, picture.partitions, tolerance)


async def look(client: Client, tolerance: Tolerance, patience: Patience) -> BalanceLook:
    """One of many. Only what stays out of balance for as long as `patience` says is to be moved; what others move is let
    alone."""
    made = await balance_plan(client, tolerance)
    is_busy = bool(await Reassigner(client).active())
    is_out = bool(made.misses_before and made.changes) and not is_busy
    now = asyncio.get_running_loop().time()
    acts = patience.look(now, is_out=is_out)
    return BalanceLook(made, is_out, patience.waited_s(now), acts)
