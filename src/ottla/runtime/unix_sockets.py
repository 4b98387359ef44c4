"""Unix sockets between the nodes of one machine, instead of TCP.

Between two processes of one kernel a batch needs neither packets nor their acknowledgements. A leader sends its files'
pages to a follower's socket in a fifth of the time, and three brokers take a fifth less for a gigabyte
(docs/BENCHMARKS.md).

A listener on a loopback address has a Unix socket too, under a name in Linux's abstract namespace. That namespace belongs
to the same network namespace as the loopback device. So the name is found exactly where TCP would find the listener. Only
nodes use it, and only for each other. Clients, ours included, use TCP, so that they all use the same path.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from struct import Struct

logger = logging.getLogger(__name__)

IS_SERVED = sys.platform == "linux"
PREFIX = "\0ottla/"
UNNAMED = ("127.0.0.1", 0)
"""The address of the connecting end, which has no name."""
SEND_BUFFER_BYTES = 256 * 1024
"""The system doubles it. With the system's default an answer leaves in twice as many pieces, and each piece costs both
ends a turn of the loop. With megabytes, the data is no longer in the processor's cache when the other end reads it."""
CREDENTIALS = Struct("3i")
"""Process, user, group."""
OVERFLOW_USER = 65534


def name_of(address: str, port: int) -> str | None:
    """The name of the Unix socket of a listener at this address. None where there is none."""
    if not IS_SERVED or not (address.startswith("127.") or address == "::1"):
        return None
    return f"{PREFIX}{address}:{port}"


def address_of(name: str | bytes) -> tuple[str, int]:
    """The address that TCP would have for this end of a connection."""
    if not name:
        return UNNAMED
    host, _, port = os.fsdecode(name).removeprefix(PREFIX).rpartition(":")
    return host, int(port)


def listen(reached: socket.socket, backlog: int) -> socket.socket | None:
    """The Unix socket beside a listener. None where there is none, or where the name is taken: then only TCP is used."""
    address, port = reached.getsockname()[:2]
    if address == "0.0.0.0":
        address = "127.0.0.1"
    elif address == "::":
        # Another process may listen at 127.0.0.1 beside a listener for IPv6 only.
        only_v6 = reached.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
        address = "::1" if only_v6 else "127.0.0.1"
    name = name_of(address, port)
    if name is None:
        return None
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        listening.bind(name)
        listening.listen(backlog)
    except OSError as problem:
        logger.warning(
            "no Unix socket, other nodes use TCP address=%s:%d error=%s", address, port, problem
        )
        listening.close()
        return None
    return listening


def is_of_our_user(connected: socket.socket) -> bool:
    """Whether the process at the other end runs as our own user. In a namespace of users, all whom it does not know are one
    and the same: nobody. So nobody is not believed."""
    credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    _process, user, _group = CREDENTIALS.unpack(credentials)
    return bool(user == os.geteuid() and user != OVERFLOW_USER)


def connect(address: str, port: int) -> socket.socket | None:
    """A connection to the listener there, if it is a process of our own user. Any user may take a free name, also while
    another user owns the port."""
    name = name_of(address, port)
    if name is None:
        return None
    connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connecting.setblocking(False)
        connecting.connect(name)  # succeeds or fails at once
        if is_of_our_user(connecting):
            return connecting
    except OSError:
        pass
    connecting.close()
    return None
