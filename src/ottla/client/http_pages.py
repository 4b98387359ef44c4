"""A page over plain HTTP, as nodes serve their metrics; with asyncio alone."""

from __future__ import annotations

import asyncio

PAGE_BYTES_MAX = 16 << 20


async def http_page(host: str, port: int, path: str) -> tuple[dict[str, str], str]:
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


def metrics_address(listeners: str | None, broker_host: str) -> tuple[str, int] | None:
    """Host and port, from a broker's setting metrics.listeners."""
    host, _, port = (listeners or "").split(",")[0].partition("://")[2].rpartition(":")
    if not port.isdigit():
        return None
    is_any = host in ("", "0.0.0.0", "[::]", "::")
    return broker_host if is_any else host, int(port)
