"""Free ports on this machine that are still free when a node binds them."""

from __future__ import annotations

import random
import socket
from pathlib import Path

LOWEST = 10_000
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
TRIES_MAX = 10_000


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Ports below the range that the system gives to outgoing connections. A port of that range may be in use by such a
    connection when the node listens, at its first start or at any later one."""
    chosen: list[int] = []
    choose = random.SystemRandom()
    for _ in range(TRIES_MAX):
        if len(chosen) == count:
            return chosen
        port = choose.randrange(LOWEST, _highest() + 1)
        if port not in chosen and is_free(port, host):
            chosen.append(port)
    raise OSError(f"found only {len(chosen)} free ports of {count} on {host}")


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _highest() -> int:
    try:
        lowest_ephemeral = int(EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        lowest_ephemeral = 32_768
    return max(lowest_ephemeral, LOWEST + 1_000) - 1
