"""Mutations: known bugs that are put back into the product for one run. The simulator must find each of them.

A simulator that finds nothing proves something only if it would find a bug. Each mutation brings back one bug, above
all those that Kafka had and fixed, by replacing a function of the product during a run. The product itself does not
contain mutations. `python -m ottla.sim.mutate` runs seeds against each mutation until a checker reports it.

How to add a mutation:

1. Write a function with `@mutation(bug)` in the module of its theme (`logs`, `replication`, `quorum`, `cluster`,
   `coordinators`, `image`, `disks`, `directories`, `moves`, `event_log`, `access`). Its name is the name of the mutation, its docstring says what it breaks, and it
   returns the patches. Take the original method before you return, and call it from the replacement:

       @mutation("KAFKA-13194")
       def retention_deletes_above_the_high_watermark() -> list[Patch]:
           '''Retention deletes segments that hold uncommitted records.'''
           original = Log._expired
           ...
           return [Patch(Log, "_expired", expired)]

   `likely` names a profile or a kind of fault: seeds that have it are tried first.
2. Run `python -m ottla.sim.mutate --only NAME`: it prints which seed found it, and by which rule.
3. If the first ten seeds find it within three virtual seconds, add it to `QUICK` in `tests/sim/test_mutations.py`.
"""

from ottla.sim.mutations import (
    access,
    cluster,
    coordinators,
    directories,
    disks,
    event_log,
    image,
    logs,
    moves,
    quorum,
    replication,
)
from ottla.sim.mutations.base import MUTATIONS, Mutation

__all__ = [
    "MUTATIONS",
    "Mutation",
    "access",
    "cluster",
    "coordinators",
    "directories",
    "disks",
    "event_log",
    "image",
    "logs",
    "moves",
    "quorum",
    "replication",
]
