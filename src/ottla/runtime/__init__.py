"""The seams between ottla and the machine: clock, disk, network, randomness.

Everything that decides (log, replica, metadata, controller) uses the outside world only through these protocols. So the
same code runs on real sockets and files, and in the simulator.
"""

from ottla.runtime.framed_connection import QUEUED_BYTES_MAX
from ottla.runtime.seams import (
    AcceptedConnection,
    Buffer,
    Chunk,
    Clock,
    Connection,
    Disk,
    File,
    FileRange,
    FrameReceiver,
    Identity,
    Listener,
    Network,
    Runtime,
    TimedConnection,
    Tls,
    TlsRefused,
)

__all__ = [
    "QUEUED_BYTES_MAX",
    "AcceptedConnection",
    "Buffer",
    "Chunk",
    "Clock",
    "Connection",
    "Disk",
    "File",
    "FileRange",
    "FrameReceiver",
    "Identity",
    "Listener",
    "Network",
    "Runtime",
    "TimedConnection",
    "Tls",
    "TlsRefused",
]
