"""The simulator: an event loop with virtual time, a network and disks that fail as a seed decides.

The broker that runs here is the one that runs on real sockets and files.
"""

from ottla.sim.borrowed_time import borrowed_time
from ottla.sim.disk import SimDisk
from ottla.sim.loop import Deadlock, Livelock, SimLoop
from ottla.sim.network import SimNetwork
from ottla.sim.tcp import NetworkConditions
from ottla.sim.trace import first_difference
from ottla.sim.world import SimHost, World

__all__ = [
    "Deadlock",
    "Livelock",
    "NetworkConditions",
    "SimDisk",
    "SimHost",
    "SimLoop",
    "SimNetwork",
    "World",
    "borrowed_time",
    "first_difference",
]
