"""What groups and transactions were promised, written down outside of the cluster (C3, C4).

A committed offset is a register: whoever reads it sees the newest of the commits that are over, or one that was
under way meanwhile. Every commit carries a name as its metadata, so a read tells which commit it saw.

A transaction turns records of one topic into records of another. Each output says which input it is of, and
which attempt made it; so readers of what is committed can tell whether an input was processed twice, whether
they see what nobody asked to commit, and, at the end, whether anything is missing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf

from ottla.sim.oracle import Violation
from ottla.wire.types import TopicPartition

NOTES_KEPT = 40
NO_OFFSET = -1

Place = tuple[str, TopicPartition]
"""A group, and a partition that it reads."""


def text(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


@dataclass(eq=False, slots=True)
class Commit:
    """An offset that a client wants to be committed."""

    name: str
    offset: int
    begun: float
    ended: float = inf
    """From then on it has surely happened."""
    replaced: float = inf
    """From then on another has surely taken its place."""
    refused: str = ""
    """Why it will never happen."""


class Register:
    """One group's offset of one partition."""

    def __init__(self) -> None:
        first = Commit("", NO_OFFSET, -inf, ended=-inf)
        self._commits = {first.name: first}
        self._current = [first]
        """Those that may still be read, for all we know."""

    def begin(self, name: str, offset: int, now: float) -> Commit:
        assert name not in self._commits
        commit = self._commits[name] = Commit(name, offset, now)
        self._current.append(commit)
        return commit

    def refuse(self, commit: Commit, why: str) -> None:
        commit.refused = why
        if commit in self._current:
            self._current.remove(commit)

    def done(self, commit: Commit, now: float) -> None:
        """It was acknowledged."""
        commit.ended = min(commit.ended, now)
        self._replaced_by(commit, commit.begun, now)

    def read(self, name: str, offset: int, begun: float, now: float) -> str | None:
        """What is wrong with that answer, if anything is."""
        commit = self._commits.get(name)
        if commit is None or commit.offset != offset:
            return f"{offset} ({name!r}) was read, which nobody committed"
        if commit.refused:
            return f"{offset} ({name!r}) was read, whose commit was refused: {commit.refused}"
        if begun > commit.replaced:
            newest = max(self._current, key=lambda each: each.begun)
            return (
                f"{offset} ({name!r}, committed at {commit.begun:.6f}) was read at {begun:.6f}, and "
                f"at {commit.replaced:.6f} it was no longer there; "
                f"the newest is {newest.offset} ({newest.name!r})"
            )
        commit.ended = min(commit.ended, now)
        self._replaced_by(commit, begun, now)
        return None

    def _replaced_by(self, commit: Commit, since: float, now: float) -> None:
        """`commit` was current at some time between `since` and `now`: all that was over by then is past."""
        for other in self._current[:]:
            if other is not commit and other.ended <= since:
                other.replaced = min(other.replaced, now)
                self._current.remove(other)


@dataclass(eq=False)
class Transaction:
    """One attempt to process some records."""

    name: str
    transactional_id: str
    producer: str
    """Producer id and epoch."""
    values: dict[bytes, TopicPartition] = field(default_factory=dict)
    commits: list[tuple[Place, Commit]] = field(default_factory=list)
    asked_to_commit: bool = False
    is_committed: bool = False
    is_aborted: bool = False
    seen: int = 0
    """How many of its values readers of what is committed were shown."""

    def __str__(self) -> str:
        return f"transaction {self.name} of {self.transactional_id} (producer {self.producer})"


class GroupOracle:
    def __init__(self, now: Callable[[], float]) -> None:
        self.violations: list[Violation] = []
        self.transactions: dict[str, Transaction] = {}
        self.commits = 0
        self.reads = 0
        self.outputs: dict[Place, dict[int, Transaction]] = {}
        """By input partition and offset: whose output was seen."""
        self._now = now
        self._registers: dict[Place, Register] = {}
        self._owners: dict[tuple[str, int, TopicPartition], str] = {}
        self._notes: deque[str] = deque(maxlen=NOTES_KEPT)
        self.lossy: dict[TopicPartition, None] = {}
        self._heirs: dict[str, tuple[str, float]] = {}
        """By transactional id: its newest producer, and since when it is."""

    def note(self, what: str) -> None:
        self._notes.append(f"{self._now():.6f} {what}")

    def excuse(self, partition: TopicPartition) -> None:
        """Records of it were lost, and the cluster says so: nothing can be told from what is left."""
        self.lossy[partition] = None

    @property
    def is_excused(self) -> bool:
        return bool(self.lossy)

    def fail(self, rule: str, who: str, what: str) -> None:
        if not self.is_excused:
            where = f"{who}, at {self._now():.6f}"
            self.violations.append(Violation(rule, where, what, list(self._notes)))

    # Groups

    def assigned(
        self, group: str, generation: int, who: str, partitions: Iterable[TopicPartition]
    ) -> None:
        """C4: each generation gives a partition to one member."""
        partitions = list(partitions)
        owned = " ".join(map(text, partitions)) or "nothing"
        self.note(f"{group}: {who} has {owned} in generation {generation}")
        for partition in partitions:
            owner = self._owners.setdefault((group, generation, partition), who)
            if owner != who:
                self.fail(
                    "C4",
                    f"group {group}",
                    f"generation {generation} gives {text(partition)} to {owner} and to {who}",
                )

    def _register(self, place: Place) -> Register:
        found = self._registers.get(place)
        if found is None:
            found = self._registers[place] = Register()
        return found

    def begin_commit(self, place: Place, name: str, offset: int) -> Commit:
        self.commits += 1
        return self._register(place).begin(name, offset, self._now())

    def committed(self, place: Place, commit: Commit) -> None:
        self.note(f"{place[0]}: {commit.offset} of {text(place[1])} is committed ({commit.name})")
        self._register(place).done(commit, self._now())

    def not_committed(self, place: Place, commit: Commit, why: str) -> None:
        """For good: it was refused."""
        self.note(f"{place[0]}: {commit.name} is refused: {why}")
        self._register(place).refuse(commit, why)

    def read(self, place: Place, name: str, offset: int, begun: float) -> None:
        """C4: a committed offset is a register that loses nothing."""
        self.reads += 1
        problem = self._register(place).read(name, offset, begun, self._now())
        self.note(f"{place[0]}: read {offset} of {text(place[1])} ({name})")
        if problem is not None:
            self.fail("C4", f"group {place[0]}, {text(place[1])}", problem)

    def took_a_stale_commit(self, group: str, who: str, what: str) -> None:
        self.fail("C4", f"group {group}", f"took a commit of {who}, which {what}")

    # Transactions

    def initialized(self, transactional_id: str, producer: str, instance: str) -> None:
        self.note(f"{transactional_id}: {instance} is producer {producer}")
        self._heirs[transactional_id] = instance, self._now()

    def check_fenced(
        self, transactional_id: str, instance: str, begun: float, what: str, producer: str
    ) -> None:
        """C3: a request that was begun when its producer had an heir already must not succeed."""
        heir, since = self._heirs.get(transactional_id, (instance, inf))
        if heir != instance and since <= begun:
            self.fail(
                "C3",
                f"transactional id {transactional_id}",
                f"{instance} (producer {producer}) had its {what} done, begun at {begun:.6f}, "
                f"though {heir} had taken over by {since:.6f}",
            )

    def begin_transaction(self, name: str, transactional_id: str, producer: str) -> Transaction:
        found = self.transactions[name] = Transaction(name, transactional_id, producer)
        return found

    def ended(self, transaction: Transaction, *, committed: bool) -> None:
        self.note(f"{transaction} is {'committed' if committed else 'aborted'}")
        transaction.is_committed, transaction.is_aborted = committed, not committed
        for place, commit in transaction.commits:
            if committed:
                self.committed(place, commit)
            else:
                self.not_committed(place, commit, "its transaction was aborted")
        if transaction.is_aborted and transaction.seen:
            self.fail("C3", str(transaction), "was aborted, after readers had been shown it")

    def saw(self, group: str, partition: TopicPartition, offset: int, value: bytes) -> None:
        """A reader of what is committed was shown it (C3)."""
        source, name = value.decode().split("=")
        topic, number, position = source.split("/")
        transaction = self.transactions[name]
        where = f"{text(partition)} at {offset}"
        transaction.seen += 1
        if not transaction.asked_to_commit:
            self.fail(
                "C3", where, f"{value!r} is shown, which nobody asked to commit: {transaction}"
            )
        if transaction.is_aborted:
            self.fail("C3", where, f"{value!r} is shown, which was aborted: {transaction}")
        if transaction.values.get(value) != partition:
            self.fail("C3", where, f"{value!r} was not sent there: {transaction}")
        key = group, TopicPartition(topic, int(number))
        first = self.outputs.setdefault(key, {}).setdefault(int(position), transaction)
        if first is not transaction:
            self.fail("C3", where, f"{source} was processed twice: by {first} and {transaction}")

    # The end

    def check_end(self, group: str, ends: dict[TopicPartition, int]) -> None:
        """C3: all or nothing of each transaction, one output of each input. All has been read."""
        for transaction in self.transactions.values():
            total = len(transaction.values)
            if transaction.seen not in ((total,) if transaction.is_committed else (0, total)):
                what = "committed" if transaction.is_committed else "perhaps committed"
                self.fail(
                    "C3", str(transaction), f"{what}, and {transaction.seen} of {total} are shown"
                )
        for partition, end in sorted(ends.items()):
            outputs = self.outputs.get((group, partition), {})
            missing = [offset for offset in range(end) if offset not in outputs]
            if missing:
                self.fail(
                    "C3",
                    f"group {group}, {text(partition)}",
                    f"offset {missing[0]} and {len(missing) - 1} more have no output, though the "
                    f"group has committed {end}",
                )
