"""Nodes with two log directories, and an operator who moves replicas between them while everything else goes wrong."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

from ottla.sim.cluster.nodes import BROKER_PORT, DATA
from ottla.sim.faults.context import FaultContext
from ottla.wire.types import TopicPartition

if TYPE_CHECKING:
    from ottla.sim.faults.plan import FaultPlan

RATE = 0.12
"""The share of seeds whose nodes have two log directories; of those without security, full disks and changes of voters."""
DIRECTORIES = (f"{DATA}/1", f"{DATA}/2")
OF_ONE_DISK = ("disk_fault", "full_disk", "rot", "misdirect")
"""Faults for nodes with one log directory: they end with it, and one with two goes on without half of its replicas."""
BYTES_PER_S = ("1000", "10000", str(2**63 - 1))


def give_two(settings: dict[str, str], faults: FaultPlan, chance: random.Random) -> None:
    settings |= {
        "log.dirs": ",".join(DIRECTORIES),
        "replica.alter.log.dirs.io.max.bytes.per.second": chance.choice(BYTES_PER_S),
    }
    faults.leave_out(*OF_ONE_DISK)
    others = ("kill", "die_midway", "reassign", "delete_records")
    faults.include("move_directory", *chance.sample(others, 2))
    faults.weights["move_directory"] = max(2, sum(faults.weights.values()) // 2)


class DirectoryFaults(FaultContext):
    def move_directory(self) -> bool:
        """Of one replica, perhaps to where it lies; in four of ten cases it is wanted elsewhere soon, and in half of these
        there again soon after that."""
        found = self._some_partition()
        if found is None:
            return False
        key, partition = found
        broker = self._random.choice(partition.replicas)
        directory = self._random.choice(DIRECTORIES)
        self._move(key, broker, directory)
        when = 0.0
        for chance, wanted in ((0.4, directory_beside(directory)), (0.5, directory)):
            if self._random.random() >= chance:
                break
            shortest, longest = when + 0.001, when + self._random.choice((0.02, 0.2, 3.0))
            when = self._random.uniform(shortest, longest)
            self._later(when, when, partial(self._move, key, broker, wanted))
        return True

    def _move(self, key: TopicPartition, broker: int, directory: str) -> None:
        self._announce(f"moves {key} on node {broker} to {directory}")
        address = (self._cluster.nodes[broker].host.name, BROKER_PORT)
        done = partial(self._count, "move_directory")
        self._operator.move_to_directory(key, address, directory, done)


def directory_beside(directory: str) -> str:
    return DIRECTORIES[1 - DIRECTORIES.index(directory)]
