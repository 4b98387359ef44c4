"""The metrics pages of brokers that serve them (`metrics.listeners`). The time in the answer's head is a node's clock."""

from __future__ import annotations

import asyncio
from email.utils import parsedate_to_datetime

from ottla.diagnosis.facts import ClockReading, Facts
from ottla.runtime.seams import Clock

PAGE_BYTES_MAX = 16 << 20
DATE_ERROR_MS = 500.0
"""The head has whole seconds: the middle of that second is right to within half a second."""


async def metrics_pages(facts: Facts, timeout_s: float) -> dict[int, str]:
    """By broker; without those that serve none, or do not answer."""
    found = {}
    for broker, host, port in metrics_addresses(facts):
        try:
            async with asyncio.timeout(timeout_s):
                _, found[broker] = await _page(host, port, "/metrics")
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
                heads, _ = await _page(host, port, "/livez")
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
        first = (facts.setting(broker, "metrics.listeners") or "").split(",")[0]
        host, _, port = first.partition("://")[2].rpartition(":")
        if port.isdigit():
            is_any = host in ("", "0.0.0.0", "[::]", "::")
            found.append((broker, hosts.get(broker, host) if is_any else host, int(port)))
    return found


async def _page(host: str, port: int, path: str) -> tuple[dict[str, str], str]:
    """Heads and body of an HTTP answer. OSError if nobody answers."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
        answer = bytearray()
        while (piece := await reader.read(1 << 16)) and len(answer) < PAGE_BYTES_MAX:
            answer += piece
    finally:
        writer.close()
    head, _, body = bytes(answer).partition(b"\r\n\r\n")
    pairs = (line.partition(":") for line in head.decode("latin-1").splitlines()[1:])
    heads = {name.strip().lower(): value.strip() for name, _, value in pairs}
    return heads, body.decode(errors="replace")
