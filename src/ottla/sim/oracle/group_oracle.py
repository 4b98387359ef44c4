"""What groups and transactions were promised, written down outside of the cluster (C3, C4).

A committed offset is a register: whoever reads it sees the newest of the commits that are over, or one that was
under way meanwhile. Every commit carries a name as its metadata, so a read tells which commit it saw.

A transaction turns records of one topic into records of another. Each output says which input it is of, and
which attempt made it; so readers of what is committed can tell whether an input was processed twice, whether
they see what nobody asked to commit, and, at the end, whether anything is missing.

Where the cluster itself recorded a loss, only what it explains is excused (`excuse`); the rest is judged as before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from ottla.metadata.image import Delta, MetadataImage
from ottla.sim.oracle.evidence import decision
from ottla.sim.oracle.ledger import RecordedLoss, Violation
from ottla.wire.internal_topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.wire.types import TopicPartition

NOTES_KEPT = 1000
NOTES_TOLD = 40
NO_OFFSET = -1
ABORTED = "its transaction was aborted"
OFFSETS, TRANSACTIONS = (
    TopicPartition(GROUP_METADATA_TOPIC, 0),
    TopicPartition(TRANSACTION_STATE_TOPIC, 0),
)
"""Where the coordinators write: one partition each, in every run."""
COORDINATED_BY = {"C3": (TRANSACTIONS, OFFSETS), "C4": (OFFSETS,)}
"""Whose leaders decide what the rule is about."""

GroupPartition = tuple[str, TopicPartition]
"""A group, and a partition that it reads."""


def text(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


@dataclass(eq=False, slots=True)
class OffsetCommit:
    """An offset that a client wants to be committed."""

    name: str
    offset: int
    begun: float
    ended: float = inf
    """From then on it has surely happened."""
    replaced: float = inf
    """From then on another has surely taken its place."""
    replaced_by: str = ""
    """The name of the first that is known to have done so."""
    replaced_below: float = inf
    """Where the log of offsets ended when that was known: the other lies below, if it is known to be there at all."""
    refused: str = ""
    """Why it will never happen."""


class Register:
    """One group's offset of one partition."""

    def __init__(self) -> None:
        first = OffsetCommit("", NO_OFFSET, -inf, ended=-inf)
        self._commits = {first.name: first}
        self._current = [first]
        """Those that may still be read, for all we know."""
        self._replaced: list[OffsetCommit] = []
        """Those that are past, and nobody knows below which offset it is written."""
        self._lost_at = -inf
        """When commits were last lost."""

    def begin(self, name: str, offset: int, now: float) -> OffsetCommit:
        assert name not in self._commits
        commit = self._commits[name] = OffsetCommit(name, offset, now)
        self._current.append(commit)
        return commit

    def refuse(self, commit: OffsetCommit, why: str) -> None:
        commit.refused = why
        if commit in self._current:
            self._current.remove(commit)

    def done(self, commit: OffsetCommit, now: float, below: float = inf) -> None:
        """It was acknowledged. `below`: where the log ended that has it."""
        commit.ended = min(commit.ended, now)
        self._replaced_by(commit, commit.begun, now, below)

    def read(
        self, name: str, offset: int, begun: float, now: float, below: float = inf
    ) -> str | None:
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
                f"at {commit.replaced:.6f} it was no longer there: {commit.replaced_by!r} had replaced "
                f"it; the newest is {newest.offset} ({newest.name!r})"
            )
        commit.ended = min(commit.ended, now)
        self._replaced_by(commit, begun, now, below)
        return None

    def lost(self, now: float, first: float) -> None:
        """What was written at `first` or above may be gone: what it replaced may be there again."""
        self._lost_at = now
        for commit in self._commits.values():
            stays = commit in self._current or commit.refused not in ("", ABORTED)
            if commit.replaced_below > first and not stays:
                commit.replaced, commit.replaced_by, commit.refused = inf, "", ""
                self._current.append(commit)
        self._replaced.clear()

    def _replaced_by(self, commit: OffsetCommit, since: float, now: float, below: float) -> None:
        """`commit` was current at some time between `since` and `now`: all that was over by then is past. Of one
        that may be lost nothing follows: a coordinator that does not know yet may still tell of it."""
        if commit.begun < self._lost_at:
            return
        for other in self._current[:]:
            if other is not commit and other.ended <= since:
                if now < other.replaced:
                    other.replaced, other.replaced_by = now, commit.name
                self._current.remove(other)
                self._replaced.append(other)
        if below < inf:
            for other in self._replaced[:]:
                if other.ended <= since:
                    other.replaced_below = below
                    self._replaced.remove(other)


def input_of(value: bytes) -> tuple[TopicPartition, int]:
    """Which record an output is of."""
    topic, number, position = value.decode().split("=")[0].split("/")
    return TopicPartition(topic, int(number)), int(position)


@dataclass(eq=False)
class Transaction:
    """One attempt to process some records."""

    name: str
    transactional_id: str
    producer: str
    """Producer id and epoch."""
    values: dict[bytes, TopicPartition] = field(default_factory=dict)
    placed: dict[bytes, int] = field(default_factory=dict)
    """Where they were acknowledged."""
    commits: list[tuple[GroupPartition, OffsetCommit]] = field(default_factory=list)
    asked_to_commit: bool = False
    is_committed: bool = False
    is_aborted: bool = False
    seen: dict[bytes, int] = field(default_factory=dict)
    """The values that readers of what is committed were shown, and at which offset."""
    may_be_partial: bool = False
    """Some of its outputs, or what decided them, may be lost."""
    may_be_repeated: bool = False
    """The offset that it committed may be lost."""

    @property
    def is_excused(self) -> bool:
        return self.may_be_partial or self.may_be_repeated

    @property
    def inputs(self) -> Iterator[tuple[TopicPartition, int]]:
        return map(input_of, self.values)

    @property
    def subjects(self) -> list[str]:
        """What a note may be about that helps to understand what became of it."""
        places = [part for (group, source), _ in self.commits for part in (group, text(source))]
        return [self.transactional_id, *places, *map(text, self.values.values())]

    def __str__(self) -> str:
        return f"transaction {self.name} of {self.transactional_id} (producer {self.producer})"


class Note(NamedTuple):
    line: str
    about: tuple[str, ...]
    """Groups, partitions, transactional ids."""


class GroupOracle:
    def __init__(
        self,
        now: Callable[[], float],
        end_of: Callable[[TopicPartition], int] = lambda _: 0,
        standing: Callable[[TopicPartition], str] = lambda _: "",
    ) -> None:
        self.violations: list[Violation] = []
        self.transactions: dict[str, Transaction] = {}
        self.commits = 0
        self.reads = 0
        self.outputs: dict[GroupPartition, dict[int, Transaction]] = {}
        """By input partition and offset: whose output was seen."""
        self.losses: dict[TopicPartition, list[tuple[float, RecordedLoss]]] = {}
        """What the cluster says that it has lost, and when it did."""
        self.read_up_to: dict[TopicPartition, int] = {}
        """How far readers of what is committed have got: below, everything is decided."""
        self._now = now
        self._end_of = end_of
        self._standing = standing
        """Who takes itself for the leader of a partition, and what the controller says."""
        self._registers: dict[GroupPartition, Register] = {}
        self._owners: dict[tuple[str, int, TopicPartition], str] = {}
        self._notes: deque[Note] = deque(maxlen=NOTES_KEPT)
        self._heirs: dict[str, tuple[str, float]] = {}
        """By transactional id: its newest producer, and since when it is."""
        self._generations: dict[str, int] = {}
        self._epochs: dict[int, int] = {}
        """The highest that coordinators have decided on, of each group and of each producer id."""
        self._lost_generations: dict[str, int] = {}
        self._lost_epochs: dict[int, int] = {}
        """Up to there the coordinators may count once more, having lost what they knew."""

    def note(self, what: str, *about: str) -> None:
        self._notes.append(Note(f"{self._now():.6f} {what}", about))

    def decided(self, _: int, __: MetadataImage, after: MetadataImage, delta: Delta) -> None:
        """What the controller did: of the coordinators' partitions it belongs to the story."""
        for topic_id, number in delta.changed_partitions:
            topic = after.topics_by_id.get(topic_id)
            if topic is not None and TopicPartition(topic.name, number) in (OFFSETS, TRANSACTIONS):
                where = f"{topic.name}-{number}"
                self.note(f"controller: {where} {decision(topic.partitions[number])}", where)

    def fail(self, rule: str, who: str, what: str, about: Iterable[str], by: str = "") -> None:
        """With the notes about nothing but `about` and the coordinators. `by`: the host that said so."""
        partitions = COORDINATED_BY[rule]
        subjects = {*about, *map(text, partitions)}
        story = [note.line for note in self._notes if subjects.issuperset(note.about)]
        coordinator = f"{by} answered as coordinator" if by else ""
        standing = [self._standing(partition) for partition in partitions]
        what = "; ".join(filter(None, (what, coordinator, *standing)))
        where = f"{who}, at {self._now():.6f}"
        self.violations.append(Violation(rule, where, what, story[-NOTES_TOLD:]))

    # What losses explain

    def excuse(self, partition: TopicPartition, loss: RecordedLoss) -> None:
        """Records of it were lost, and the cluster says so."""
        self.note(f"{text(partition)} has lost {loss.first} to {loss.end - 1}", text(partition))
        self.losses.setdefault(partition, []).append((self._now(), loss))
        if partition == OFFSETS:
            self._lost_generations |= self._generations
            for register in self._registers.values():
                register.lost(self._now(), loss.first)
            for transaction in self.transactions.values():
                transaction.may_be_repeated |= any(
                    commit.replaced_below > loss.first for _, commit in transaction.commits
                )
        elif partition == TRANSACTIONS:
            # Whoever is thought to be undecided again may be aborted, whatever its client was told, or committed,
            # though an heir had aborted it; and a producer that has an heir may get the epoch of that heir, and
            # write as if it were it.
            self._lost_epochs |= self._epochs
            for transaction in self.transactions.values():
                ended = transaction.is_committed or transaction.is_aborted
                if not ended or not self._is_settled(transaction):
                    transaction.may_be_partial = transaction.may_be_repeated = True
                for place, _ in transaction.commits:
                    self._register(place).lost(self._now(), self._end_of(OFFSETS))
        else:
            for transaction in self.transactions.values():
                if not self._is_settled(transaction, partition, loss.first):
                    transaction.may_be_partial = True

    def _is_settled(
        self, transaction: Transaction, partition: TopicPartition | None = None, first: float = inf
    ) -> bool:
        """Whether readers have passed all that it wrote (there), below `first`: they never ask for it again."""
        return all(
            transaction.placed.get(value, inf) < min(first, self.read_up_to.get(target, 0))
            for value, target in transaction.values.items()
            if partition in (None, target)
        )

    def is_lost(self, partition: TopicPartition, offset: int, epoch: int) -> bool:
        """Whether what a leader of this epoch had there may be lost."""
        return any(
            offset >= loss.first and epoch < loss.epoch
            for _, loss in self.losses.get(partition, ())
        )

    def lost_from(self, partition: TopicPartition) -> float:
        """The first offset that may be lost there."""
        return min((loss.first for _, loss in self.losses.get(partition, ())), default=inf)

    def _lost_since(self, when: float, *partitions: TopicPartition) -> bool:
        return any(at >= when for each in partitions for at, _ in self.losses.get(each, ()))

    def decided_generation(self, group: str, generation: int) -> None:
        """A coordinator did."""
        self._generations[group] = max(generation, self._generations.get(group, 0))

    def decided_epoch(self, producer_id: int, epoch: int) -> None:
        self._epochs[producer_id] = max(epoch, self._epochs.get(producer_id, 0))

    # Groups

    def assigned(
        self, group: str, generation: int, who: str, partitions: Iterable[TopicPartition]
    ) -> None:
        """C4: each generation gives a partition to one member."""
        partitions = list(partitions)
        owned = " ".join(map(text, partitions)) or "nothing"
        self.note(f"{group}: {who} has {owned} in generation {generation}", group)
        for partition in partitions:
            owner = self._owners.setdefault((group, generation, partition), who)
            if owner != who and generation > self._lost_generations.get(group, -1):
                self.fail(
                    "C4",
                    f"group {group}",
                    f"generation {generation} gives {text(partition)} to {owner} and to {who}",
                    [group, text(partition)],
                )

    def _register(self, place: GroupPartition) -> Register:
        found = self._registers.get(place)
        if found is None:
            found = self._registers[place] = Register()
        return found

    def begin_commit(self, place: GroupPartition, name: str, offset: int) -> OffsetCommit:
        self.commits += 1
        return self._register(place).begin(name, offset, self._now())

    def committed(
        self, place: GroupPartition, commit: OffsetCommit, *, by_marker: bool = False
    ) -> None:
        """That of a transaction counts when its marker is there, which its client does not hear of."""
        self._note_of(place, f"{commit.offset} is committed ({commit.name})")
        below = inf if by_marker else self._end_of(OFFSETS)
        self._register(place).done(commit, self._now(), below)

    def not_committed(self, place: GroupPartition, commit: OffsetCommit, why: str) -> None:
        """For good: it was refused."""
        self._note_of(place, f"{commit.name} is refused: {why}")
        self._register(place).refuse(commit, why)

    def _note_of(self, place: GroupPartition, what: str) -> None:
        group, partition = place[0], text(place[1])
        self.note(f"{group}, {partition}: {what}", group, partition)

    def read(
        self, place: GroupPartition, name: str, offset: int, begun: float, by: str = ""
    ) -> None:
        """C4: a committed offset is a register that loses nothing. `by`: the host that said so."""
        self.reads += 1
        end = self._end_of(OFFSETS)
        problem = self._register(place).read(name, offset, begun, self._now(), end)
        self._note_of(place, f"read {offset} ({name}){' from ' + by if by else ''}")
        if problem is not None:
            committing = self.transactions.get(name)
            about = [place[0], text(place[1]), *(committing.subjects if committing else ())]
            self.fail("C4", f"group {place[0]}, {text(place[1])}", problem, about, by)

    def took_a_stale_commit(self, group: str, who: str, generation: int, what: str) -> None:
        if generation > self._lost_generations.get(group, -1):
            self.fail("C4", f"group {group}", f"took a commit of {who}, which {what}", [group])

    # Transactions

    def initialized(self, transactional_id: str, producer: str, instance: str) -> None:
        self.note(f"{transactional_id}: {instance} is producer {producer}", transactional_id)
        self._heirs[transactional_id] = instance, self._now()

    def check_fenced(
        self,
        transactional_id: str,
        instance: str,
        begun: float,
        what: str,
        producer: str,
        at: TopicPartition,
    ) -> None:
        """C3: a request that was begun when its producer had an heir already must not succeed. `at`: whose leader
        has to know of the heir."""
        heir, since = self._heirs.get(transactional_id, (instance, inf))
        excused = self._lost_since(since, at) or self._may_be_shared(producer)
        if heir != instance and since <= begun and not excused:
            self.fail(
                "C3",
                f"transactional id {transactional_id}",
                f"{instance} (producer {producer}) had its {what} done, begun at {begun:.6f}, "
                f"though {heir} had taken over by {since:.6f}",
                [transactional_id, text(at)],
            )

    def _may_be_shared(self, producer: str) -> bool:
        """Whether another producer may have the same id and epoch, the first of them being forgotten."""
        id, epoch = map(int, producer.split("/"))
        return epoch <= self._lost_epochs.get(id, -1)

    def begin_transaction(self, name: str, transactional_id: str, producer: str) -> Transaction:
        found = self.transactions[name] = Transaction(name, transactional_id, producer)
        found.may_be_partial = found.may_be_repeated = self._may_be_shared(producer)
        return found

    def placed(
        self, transaction: Transaction, values: Iterable[bytes], base_offset: int, epoch: int
    ) -> None:
        """They were acknowledged, by a leader of this epoch."""
        for offset, value in enumerate(values, base_offset):
            transaction.placed[value] = offset
            if self.is_lost(transaction.values[value], offset, epoch):
                transaction.may_be_partial = True

    def ended(self, transaction: Transaction, *, committed: bool) -> None:
        end = "committed" if committed else "aborted"
        self.note(f"{transaction} is {end}", transaction.transactional_id)
        transaction.is_committed, transaction.is_aborted = committed, not committed
        if self._may_be_shared(transaction.producer):
            # Whoever shares it and asks for the same end is told the same next epoch.
            id, epoch = map(int, transaction.producer.split("/"))
            self._lost_epochs[id] = max(self._lost_epochs[id], epoch + 1)
        for place, commit in transaction.commits:
            if transaction.may_be_repeated:
                continue  # nobody can tell
            if committed:
                self.committed(place, commit, by_marker=True)
            else:
                self.not_committed(place, commit, ABORTED)
        if transaction.is_aborted and transaction.seen and not transaction.may_be_partial:
            what = "was aborted, after readers had been shown it"
            self.fail("C3", str(transaction), what, transaction.subjects)

    def saw(
        self, group: str, partition: TopicPartition, offset: int, epoch: int, value: bytes
    ) -> None:
        """A reader of what is committed was shown it, as a leader of this epoch wrote it (C3)."""
        transaction = self.transactions[value.decode().split("=")[1]]
        where, about = f"{text(partition)} at {offset}", [*transaction.subjects, text(partition)]
        if transaction.values.get(value) != partition:
            self.fail("C3", where, f"{value!r} was not sent there: {transaction}", about)
        if self.is_lost(partition, offset, epoch):
            transaction.may_be_partial = True
        if transaction.may_be_partial:
            return
        transaction.placed.setdefault(value, offset)
        if transaction.seen.setdefault(value, offset) != offset:
            what = f"{value!r} is shown, and was at {transaction.seen[value]}: {transaction}"
            self.fail("C3", where, what, about)
        if not transaction.asked_to_commit:
            what = f"{value!r} is shown, which nobody asked to commit: {transaction}"
            self.fail("C3", where, what, about)
        if transaction.is_aborted:
            what = f"{value!r} is shown, which was aborted: {transaction}"
            self.fail("C3", where, what, about)
        self._check_once(group, value, transaction, where)

    def _check_once(self, group: str, value: bytes, transaction: Transaction, where: str) -> None:
        """C3: an input is processed once, unless it, or the offset that was to tell, may be lost."""
        source, position = input_of(value)
        outputs = self.outputs.setdefault((group, source), {})
        first = outputs.get(position, transaction)
        outputs[position] = transaction
        excused = (
            first.is_excused or transaction.may_be_repeated or position >= self.lost_from(source)
        )
        if first is not transaction and not excused:
            what = f"{text(source)} at {position} was processed twice: by {first} and {transaction}"
            self.fail("C3", where, what, [*first.subjects, *transaction.subjects])

    # The end

    def check_end(
        self, group: str, ends: dict[TopicPartition, int], unread: Collection[TopicPartition] = ()
    ) -> None:
        """C3: all or nothing of each transaction, one output of each input. All has been read, but where a
        transaction hangs whose end is lost."""
        excused: set[tuple[TopicPartition, int]] = set()
        for transaction in self.transactions.values():
            if transaction.may_be_partial or any(
                target in unread for target in transaction.values.values()
            ):
                excused.update(transaction.inputs)
                continue
            total, seen = len(transaction.values), len(transaction.seen)
            if seen not in ((total,) if transaction.is_committed else (0, total)):
                what = "committed" if transaction.is_committed else "perhaps committed"
                what = f"{what}, and {seen} of {total} are shown"
                self.fail("C3", str(transaction), what, transaction.subjects)
        for partition, end in sorted(ends.items()):
            outputs = self.outputs.get((group, partition), {})
            missing = [
                offset
                for offset in range(int(min(end, self.lost_from(partition))))
                if offset not in outputs and (partition, offset) not in excused
            ]
            if missing:
                self.fail(
                    "C3",
                    f"group {group}, {text(partition)}",
                    f"offset {missing[0]} and {len(missing) - 1} more have no output, though the "
                    f"group has committed {end}",
                    [group, text(partition)],
                )
