"""Known bugs, to be found: whoever trusts the simulator's silence must know what it would have heard.

Each mutation brings back one mistake, those that Kafka made and mended first of all, by replacing a function
of the product while a run lasts. The product carries nothing of it. `python -m ottla.sim.mutate` runs random
seeds against each until the checkers object.
"""

from ottla.sim.mutations import cluster, coordinators, disks, image, logs, quorum, replication
from ottla.sim.mutations.base import MUTATIONS, Mutation

__all__ = [
    "MUTATIONS",
    "Mutation",
    "cluster",
    "coordinators",
    "disks",
    "image",
    "logs",
    "quorum",
    "replication",
]
