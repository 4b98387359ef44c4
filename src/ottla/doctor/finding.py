"""A finding of the doctor, the case that its rules look at, and the words that they share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from shlex import quote

from ottla.diagnosis.facts import Facts, NodeProcessFacts, PartitionFacts, Place
from ottla.diagnosis.lost_disks import recovery, replace_commands
from ottla.diagnosis.remedies import UNCLEAN
from ottla.diagnosis.words import command
from ottla.local.cluster import RUNNING

MANY = 4
"""How many names are shown of a longer list."""
DAY_S = 24 * 60 * 60


class FindingSeverity(StrEnum):
    SERIOUS = "serious"
    """Data, writes or reads are at risk or fail now. The doctor's exit code says so."""
    WARNING = "warning"
    """The next failure will hurt, or a limit is near."""
    NOTE = "note"
    """Worth knowing; nothing needs to be done."""


@dataclass(frozen=True)
class HealthFinding:
    rule: str
    severity: FindingSeverity
    what: str
    why: str
    mend: str
    """A command, or several with `&&` or `;` between them; or, for a file of settings, what to set in it."""


@dataclass(frozen=True)
class Case:
    """The facts, and how a command names the cluster: ` --dir …` or ` -b …`."""

    facts: Facts
    target: str = ""

    def ottla(self, words: str, *names: str) -> str:
        return command(words, names, self.target)

    def start(self, broker: int) -> str:
        """The command that brings a broker back: ours, if it is a node of a local cluster. One that runs and is not paused is
        still starting, or cut off: its log says what it waits for."""
        node = self.node(broker)
        if node is None:
            return (
                f"systemctl start kafka  # on the machine of broker {broker}, or as you start it there; if its disk is gone:"
                f" {self.ottla(f'brokers replace {broker}')}"
            )
        is_running = node.state == RUNNING and node.pid is not None
        if node.data is not None and node.data.lost:
            if not self.has_majority:
                return self.start_all()
            stop = [self.ottla(f"nodes stop {broker}")] if is_running else []
            return " && ".join((*stop, *replace_commands(node.data, self.ottla)))
        if is_running:
            return (
                f"kill -CONT {node.pid}"
                if node.paused
                else self.ottla(f"explain --broker {broker}")
            )
        return self.ottla(f"nodes start {broker}")

    def start_each(self, brokers: Iterable[int]) -> str:
        return " && ".join(dict.fromkeys(self.start(id) for id in brokers))

    def has_lost_its_disk(self, broker: int) -> bool:
        node = self.node(broker)
        return node is not None and node.data is not None and bool(node.data.lost)

    @property
    def has_majority(self) -> bool:
        """Of controllers. A leader that has just lost it still says that it leads."""
        return self.facts.quorum is not None and not self.lack_of_controllers

    @property
    def lack_of_controllers(self) -> str:
        """How many nodes of this machine vote and run, if these are too few and voters are static; else empty."""
        nodes = () if self.facts.machine is None else self.facts.machine.nodes
        voters = [each for each in nodes if each.data is not None and each.data.vote]
        running = sum(each.state == RUNNING for each in voters)
        if 2 * running > len(voters) or not voters:
            return ""
        return f"{running} of {len(voters)} controllers run{'s' if running == 1 else ''}"

    def start_all(self) -> str:
        """First the brokers whose replica is the only one in sync where whoever comes first may lead."""
        ended = {
            each.node
            for each in (() if self.facts.machine is None else self.facts.machine.nodes)
            if each.state != RUNNING
        }
        first = sorted(id for id in self.sole_replicas() if id in ended)
        nodes = () if self.facts.machine is None else self.facts.machine.nodes
        data = {each.node: each.data for each in nodes if each.data is not None}
        found = recovery(data, sorted(ended, key=lambda id: (id not in first, id)), self.ottla)
        if found is not None:
            return f"{' && '.join(found.commands)}  # {found.text}".strip()
        up = self.ottla("up --detach")
        if not first:
            return up
        names = ", ".join(name for id in first for name in self.sole_replicas()[id][:MANY])
        return (
            f"{' && '.join(self.ottla(f'nodes start {id}') for id in first)} && {up}  # in this order: {names} allows unclean"
            f" elections, and only broker {ids(first)} has every record"
        )

    def sole_replicas(self) -> dict[int, list[str]]:
        """By broker: partitions that allow unclean elections, and whose only replica in sync it has."""
        found: dict[int, list[str]] = {}
        for topic in self.facts.topics:
            for each in topic.partitions if topic.configs.get(UNCLEAN) == "true" else ():
                complete = {*each.isr, *each.elr}
                if len(complete) == 1 < len(each.replicas):
                    found.setdefault(complete.pop(), []).append(each.name)
        return found

    def node(self, broker: int) -> NodeProcessFacts | None:
        """Its process, if it is a node of a local cluster."""
        nodes = () if self.facts.machine is None else self.facts.machine.nodes
        return next((each for each in nodes if each.node == broker), None)


Rule = Callable[[Case], Iterator[HealthFinding]]


def bootstrap(facts: Facts) -> str:
    return next((quote(f"{each.host}:{each.port}") for each in facts.brokers), "HOST:PORT")


def unset(case: Case, broker: int, names: str) -> str:
    """Deletes what a command has set on one broker."""
    return (
        f"ottla kafka-configs --bootstrap-server {bootstrap(case.facts)} --alter --entity-type brokers"
        f" --entity-name {broker} --delete-config {names}"
    )


def ids(ids: Iterable[int]) -> str:
    return ", ".join(map(str, ids))


def names(partitions: list[PartitionFacts]) -> str:
    return names_of(each.place for each in partitions)


def names_of(places: Iterable[Place]) -> str:
    names = [f"{topic}-{number}" for topic, number in places]
    more = f" and {len(names) - MANY} more" if len(names) > MANY else ""
    return ", ".join(names[:MANY]) + more


def have(partitions: list[PartitionFacts]) -> str:
    return "has" if len(partitions) == 1 else "have"


def duration(seconds: float) -> str:
    for length, unit in ((DAY_S, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}s"
    return f"{seconds:.0f} s"
