"""The simulator: an event loop with virtual time, a network and disks that fail as a seed decides.

The broker that runs here is the one that runs on real sockets and files. `engine` is the machine, `cluster` the nodes,
`clients` and `faults` act, `oracle` judges, `run` draws and runs seeds, `scripts` plays golden scripts, `mutations` puts
known bugs back. Nothing in the product imports it.
"""

from ottla.sim.engine.borrowed_time import borrowed_time
from ottla.sim.engine.disk import SimDisk
from ottla.sim.engine.loop import Deadlock, Livelock, SimLoop
from ottla.sim.engine.network import SimNetwork
from ottla.sim.engine.tcp import NetworkConditions
from ottla.sim.engine.trace import first_difference
from ottla.sim.engine.world import SimHost, World

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
