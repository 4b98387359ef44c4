"""Nodes of one machine talk over a socket of the machine, not over TCP.

Between two processes of one kernel a batch needs neither packets nor their acknowledgements: a node that leads sends
its files' pages to a follower's socket in a fifth of the time, and three brokers take a fifth less for a gigabyte
(docs/BENCHMARKS.md).

A listener that a loopback address reaches has a second door, under a name in Linux's abstract namespace. That
namespace belongs to the same network namespace as the loopback device: whoever finds the name is where TCP would have
found the listener. Only nodes use it, and only for each other; clients, our own among them, come by TCP, so that what
works for them works for everybody.
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
"""The caller's end has no name."""
SEND_BUFFER_BYTES = 256 * 1024
"""The system doubles it. With its own default an answer leaves in twice as many pieces, each of which costs both ends a
turn; with megabytes, what was just read is no longer in the processor's cache when the other end takes it."""
CREDENTIALS = Struct("3i")
"""Process, user, group."""


def name_of(address: str, port: int) -> str | None:
    """The second door of whoever listens here; None where there is none."""
    if not IS_SERVED or not (address.startswith("127.") or address == "::1"):
        return None
    return f"{PREFIX}{address}:{port}"


def address_of(name: str | bytes) -> tuple[str, int]:
    """What TCP would have said of this end of a connection."""
    if not name:
        return UNNAMED
    host, _, port = os.fsdecode(name).removeprefix(PREFIX).rpartition(":")
    return host, int(port)


def listen(reached: socket.socket, backlog: int) -> socket.socket | None:
    """The second door of a listener; None where it has none, or where the name is taken: then TCP it is."""
    address, port = reached.getsockname()[:2]
    if address == "0.0.0.0":
        address = "127.0.0.1"
    elif address == "::":
        # Somebody else may listen at 127.0.0.1 beside one that takes only IPv6.
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
        logger.warning("other nodes reach %s:%d by TCP only: %s", address, port, problem)
        listening.close()
        return None
    return listening


def connect(address: str, port: int) -> socket.socket | None:
    """A connection to whoever listens there, if it is a node of our own user: a name is free to whoever takes it first,
    also while another owns the port."""
    name = name_of(address, port)
    if name is None:
        return None
    connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connecting.setblocking(False)
        connecting.connect(name)  # there at once or not at all: it waits for nobody
        told = connecting.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
        _process, user, _group = CREDENTIALS.unpack(told)
        if user == os.geteuid():
            return connecting
    except OSError:
        pass
    connecting.close()
    return None
