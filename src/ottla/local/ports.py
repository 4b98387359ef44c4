"""Free ports on this machine that are still free when a node binds them, now or at a later start.

Between the choice of a port and its use, and while a node is down, the system would give the port to whoever asks. So a process
that chooses a port keeps the others of its user from choosing it, too, until the process ends: by a lock on one byte of a file
that they share.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
from collections import deque
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

LOWEST: Final = 10_000
EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
TRIES_MAX: Final = 10_000
SHARED: Final = Path("/tmp/ottla-ports")
"""Not in TMPDIR: processes that have different ones take their ports from the same range."""
RESERVED_MAX: Final = 4096
"""Of one process. The oldest are given back, since a process that tests for days would use up all."""
_reserved: Final[deque[int]] = deque()


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Ports below the range that the system gives to outgoing connections. A port of that range may be in use by such a
    connection when the node listens, at its first start or at any later one."""
    chosen: list[int] = []
    choose = random.SystemRandom()
    for _ in range(TRIES_MAX):
        if len(chosen) == count:
            return chosen
        port = choose.randrange(LOWEST, _highest() + 1)
        if reserve([port], host):
            chosen.append(port)
    raise OSError(f"found only {len(chosen)} free ports of {count} on {host}")


def reserve(ports: Iterable[int], host: str = "127.0.0.1") -> bool:
    """Whether all of them were free, and nobody has chosen them. Then they are ours."""
    taken: list[int] = []
    for port in ports:
        if port in _reserved or not _is_free(port, host) or not _lock(port):
            for each in taken:
                _give_back(each)
            return False
        _reserved.append(port)
        taken.append(port)
    while len(_reserved) > RESERVED_MAX:
        _give_back(_reserved[0])
    return True


def _is_free(port: int, host: str = "127.0.0.1") -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _lock(port: int) -> bool:
    file = _shared_file(os.getpid())
    if file is None:
        return True
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


def _give_back(port: int) -> None:
    _reserved.remove(port)
    file = _shared_file(os.getpid())
    if file is not None:
        fcntl.lockf(file, fcntl.LOCK_UN, 1, port)


@cache
def _shared_file(_pid: int) -> int | None:
    """Locks belong to a process, and end with it. None: without such a file, only this process knows what it chose."""
    try:
        file = os.open(
            SHARED.with_name(f"{SHARED.name}-{os.getuid()}"),
            os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
            0o600,
        )
    except OSError:
        return None
    if os.fstat(file).st_uid == os.getuid():
        return file
    os.close(file)
    return None


def _highest() -> int:
    try:
        lowest_ephemeral = int(EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        lowest_ephemeral = 32_768
    return max(lowest_ephemeral, LOWEST + 1_000) - 1
