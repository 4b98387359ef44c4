"""The metrics pages of brokers that serve them (`metrics.listeners`). The time in the answer's head is a node's clock."""

from __future__ import annotations

import asyncio
from email.utils import parsedate_to_datetime

from ottla.client.http_pages import http_page, metrics_address
from ottla.diagnosis.facts import ClockReading, Facts
from ottla.runtime.seams import Clock

DATE_ERROR_MS = 500.0
"""The head has whole seconds: the middle of that second is right to within half a second."""


async def metrics_pages(facts: Facts, timeout_s: float) -> dict[int, str]:
    """By broker; without those that serve none, or do not answer."""
    found = {}
    for broker, host, port in metrics_addresses(facts):
        try:
            async with asyncio.timeout(timeout_s):
                _, found[broker] = await http_page(host, port, "/metrics")
        except OSError:
            continue
    return found


async def metrics_clocks(facts: Facts, clock: Clock, timeout_s: float) -> list[ClockReading]:
    """What the heads of the answers say of the brokers' clocks, without those that do not say it."""
    found = []
    for broker, host, port in metrics_addresses(facts):
        sent_ms, began = clock.wall_ms(), clock.monotonic()
        try:
            async with asyncio.timeout(timeout_s):
                heads, _ = await http_page(host, port, "/livez")
            told = parsedate_to_datetime(heads["date"])
        except (OSError, KeyError, ValueError):  # nobody there, no date, or no right one
            continue
        took_ms = (clock.monotonic() - began) * 1000
        ahead = told.timestamp() * 1000 + DATE_ERROR_MS - (sent_ms + took_ms / 2)
        found.append(ClockReading(broker, ahead, DATE_ERROR_MS + took_ms / 2, "metrics page"))
    return found


def metrics_addresses(facts: Facts) -> list[tuple[int, str, int]]:
    """Broker, host and port, from the brokers' settings."""
    hosts = {each.id: each.host for each in facts.brokers}
    found = []
    for broker in facts.broker_configs:
        at = metrics_address(facts.setting(broker, "metrics.listeners"), hosts.get(broker, ""))
        if at is not None:
            found.append((broker, *at))
    return found
