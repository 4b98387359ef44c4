"""Every kind of fault: its name, what it does, how it ends, in which runs it occurs.

The order is part of a seed: plans are drawn from it. The table is grouped by rate, then
roughly by theme. Add a new fault after the last one of the same rate and theme. A new fault of
`Rate.SAMPLED` or `Rate.HALF_OF_RUNS` changes what every seed draws, so the hashes of all seeds change with it; that is
expected. A fault of `Rate.PROFILE` changes no other seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from ottla.sim.faults.administration import Administration
from ottla.sim.faults.directories import DirectoryFaults
from ottla.sim.faults.disks import DiskFaults
from ottla.sim.faults.lines import LineFaults
from ottla.sim.faults.machines import MachineFaults

if TYPE_CHECKING:
    from ottla.sim.faults.nemesis import Nemesis


class Rate(Enum):
    """How often a run has faults of a kind. How often they strike then is drawn with the run (`FaultPlan`)."""

    SAMPLED = auto()
    """A run draws two or more of these kinds, with a weight of 1 to 4 each."""
    HALF_OF_RUNS = auto()
    """Troubles the whole cluster for a while: each run has it with probability 1/2, with a weight of 1 or 2."""
    OPERATED = auto()
    """What an operator does while faults go on: each run has it with probability 1/3 (`RunOptions.operate`)."""
    PROFILE = auto()
    """Only in runs whose profile favours it (`run.profiles`)."""


@dataclass(frozen=True, slots=True)
class FaultKind:
    strike: Callable[[Nemesis], bool]
    """Called when the fault is due. False if there is nothing to strike now, or nothing that it may harm."""
    does: str
    undone: str
    """When and how it ends. Whatever is left of it ends with `Nemesis.end`."""
    rate: Rate = Rate.SAMPLED
    takes_effect_later: bool = False
    """`strike` only prepares it, or sends a request: the fault counts itself (`_count`) when it has taken effect."""


FAULTS: Mapping[str, FaultKind] = {
    "kill": FaultKind(
        MachineFaults.kill, "kill -9 of one node", "the node is started again within 15 s"
    ),
    "power_loss": FaultKind(
        MachineFaults.power_loss,
        "one machine loses its power, and what it had not flushed",
        "the node is started again within 15 s",
    ),
    "stop": FaultKind(
        MachineFaults.stop,
        "controlled shutdown of one node, half of the time the active controller",
        "the node is started again within 15 s of its end",
    ),
    "pause": FaultKind(
        MachineFaults.pause, "one process stands still", "it resumes after 0.05 to 20 s"
    ),
    "isolate": FaultKind(
        LineFaults.isolate,
        "one node is cut off from all others, half of the time from clients too",
        "healed after 0.1 to 20 s",
    ),
    "halves": FaultKind(
        LineFaults.halves, "the nodes are split into two groups", "healed after 0.1 to 20 s"
    ),
    "one_way": FaultKind(
        LineFaults.one_way,
        "one node cannot send to another, which can send to it",
        "healed after 0.1 to 20 s",
    ),
    "bridge": FaultKind(
        LineFaults.bridge,
        "two nodes cannot reach each other, the others reach both",
        "healed after 0.1 to 20 s",
    ),
    "flap": FaultKind(
        LineFaults.flap,
        "the line between two nodes is cut 2 to 6 times",
        "each cut is healed within 2 s",
    ),
    "reset": FaultKind(
        LineFaults.reset, "all connections of one node are reset", "nothing to undo"
    ),
    "slow_line": FaultKind(
        LineFaults.slow_line,
        "one line delays everything by 0.02 to 1 s, half of the time to the active controller",
        "ends after 1 to 15 s",
    ),
    "freeze": FaultKind(
        LineFaults.freeze,
        "one connection of one node carries nothing, half of the time one to the active controller; all others go on",
        "thawed after 0.1 to 20 s",
    ),
    "slow_disk": FaultKind(
        DiskFaults.slow_disk,
        "each job that one node gives to a thread (flushes, recovery, cold reads) takes 0.01 to 2 s",
        "ends after 1 to 10 s",
    ),
    "disk_fault": FaultKind(
        DiskFaults.disk_fault,
        "one operation on one disk fails with EIO or ENOSPC",
        "mended after 1 to 10 s; a node that ended is started again within 15 s",
        takes_effect_later=True,
    ),
    "full_disk": FaultKind(
        DiskFaults.full_disk,
        "one disk has room for 0 to 5000 bytes more",
        "mended after 1 to 10 s; a node that ended is started again within 15 s",
        takes_effect_later=True,
    ),
    "empty_disk": FaultKind(
        DiskFaults.empty_disk,
        "one machine gets an empty disk, when another has all that it had",
        "the node is started again within 15 s",
    ),
    "rot": FaultKind(
        DiskFaults.rot,
        "one bit of a closed and flushed segment changes",
        "the replica is copied anew when the damage is found; at the end the disk is replaced",
    ),
    "misdirect": FaultKind(
        DiskFaults.misdirect,
        "the next append to one log is written elsewhere in its file",
        "as for rot",
        takes_effect_later=True,
    ),
    "die_midway": FaultKind(
        MachineFaults.die_midway,
        "one process dies between two changes of its disk, half of the time with its machine's power",
        "the node is started again within 15 s; disarmed after 1 to 20 s if it did not happen",
        takes_effect_later=True,
    ),
    "clock": FaultKind(
        MachineFaults.clock,
        "one wall clock is set up to 50 minutes back or 6 hours ahead",
        "set right by a later one, or at the end",
    ),
    "elect_preferred": FaultKind(
        Administration.elect_preferred,
        "ElectLeaders for the preferred leader of one partition",
        "nothing to undo",
        takes_effect_later=True,
    ),
    "reassign": FaultKind(
        Administration.reassign,
        "one partition moves to other replicas, perhaps on brokers that are down",
        "cancelled within 3 s in four of ten cases",
        takes_effect_later=True,
    ),
    "min_isr": FaultKind(
        Administration.min_isr,
        "min.insync.replicas of one topic changes",
        "nothing to undo",
        takes_effect_later=True,
    ),
    "retention": FaultKind(
        Administration.retention,
        "retention.bytes of one topic changes",
        "nothing to undo",
        takes_effect_later=True,
    ),
    "delete_records": FaultKind(
        Administration.delete_records,
        "DeleteRecords up to some offset of one partition",
        "nothing to undo",
        takes_effect_later=True,
    ),
    "recreate": FaultKind(
        Administration.recreate,
        "one topic is deleted",
        "created again with the same settings within 2 s of its end",
        takes_effect_later=True,
    ),
    "power_off": FaultKind(
        MachineFaults.power_off,
        "controlled shutdown of one node, and then its machine loses power",
        "the node is started again within 15 s",
        Rate.HALF_OF_RUNS,
    ),
    "relapse": FaultKind(
        MachineFaults.relapse,
        "one machine loses its power 3 to 6 times, each time when it is just back",
        "the node is started again within 3 s of the last",
        Rate.HALF_OF_RUNS,
    ),
    "blackout": FaultKind(
        MachineFaults.blackout,
        "kill -9 of all nodes at once",
        "each node is started again within 15 s",
        Rate.HALF_OF_RUNS,
    ),
    "outage": FaultKind(
        MachineFaults.outage,
        "two machines, or all, lose their power at once",
        "each node is started again within 15 s",
        Rate.HALF_OF_RUNS,
    ),
    "seesaw": FaultKind(
        MachineFaults.seesaw,
        "two nodes are up in turn: each starts when the other is killed, 2 to 5 times",
        "both are started again within 2 s of the last",
        Rate.HALF_OF_RUNS,
    ),
    "hop": FaultKind(
        LineFaults.hop,
        "each leader of one partition is cut off from the other nodes, 2 to 5 times in a row",
        "each cut is healed after 0.5 to 5 s",
        Rate.HALF_OF_RUNS,
    ),
    "swing": FaultKind(
        Administration.swing,
        "the leadership of one partition moves among its in-sync replicas, 2 to 8 times",
        "a line that was slowed for it is mended after 1 to 10 s",
        Rate.HALF_OF_RUNS,
    ),
    "balance": FaultKind(
        Administration.balance,
        "`ottla balance apply`: the planner's moves for all brokers, under a throttle or without one",
        "the command ends by itself, or is killed within 10 s; what it started goes on",
        Rate.OPERATED,
        takes_effect_later=True,
    ),
    "drain": FaultKind(
        Administration.drain,
        "`ottla reassign` of everything that one broker has to the others",
        "the command ends by itself, or is killed within 10 s; what it started goes on",
        Rate.OPERATED,
        takes_effect_later=True,
    ),
    "factor": FaultKind(
        Administration.factor,
        "`ottla reassign` of one topic to another replication factor",
        "the command ends by itself, or is killed within 10 s; what it started goes on",
        Rate.OPERATED,
        takes_effect_later=True,
    ),
    "cancel_moves": FaultKind(
        Administration.cancel_moves,
        "`ottla reassign cancel` of all that is being moved, or has just begun to",
        "nothing to undo",
        Rate.OPERATED,
        takes_effect_later=True,
    ),
    "change_voters": FaultKind(
        Administration.change_voters,
        "AddRaftVoter or RemoveRaftVoter for one controller; a voter whose disk was replaced is removed first",
        "nothing to undo",
        Rate.PROFILE,
        takes_effect_later=True,
    ),
    "move_directory": FaultKind(
        DirectoryFaults.move_directory,
        "AlterReplicaLogDirs for one replica, in four of ten cases again for the other directory soon",
        "nothing to undo",
        Rate.PROFILE,
        takes_effect_later=True,
    ),
    "ambush": FaultKind(
        MachineFaults.ambush,
        "one machine loses its power, and again when it is proposed for an ISR",
        "the node is started again within 0.2 s; slowed lines are mended after 1 to 10 s",
        Rate.PROFILE,
    ),
    "tug": FaultKind(
        LineFaults.tug,
        "two replicas that cannot reach each other lead one partition in turn",
        "they reach each other again after 3 to 7 turns of about a second",
        Rate.PROFILE,
    ),
}


def kinds(rate: Rate) -> tuple[str, ...]:
    return tuple(name for name, fault in FAULTS.items() if fault.rate is rate)
