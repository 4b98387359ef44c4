"""Groups and transactions, checked from outside of the cluster (C3, C4).

A committed offset is a register (`offset_register`).

A transaction turns records of one topic into records of another. Each output names its input and the attempt that wrote
it. So a reader with read_committed shows whether an input was processed twice, whether it read what no client asked to
commit, and, at the end, whether an output is missing.

A recorded loss excuses only what it explains (`excuse`); everything else is checked as before.
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
from ottla.sim.oracle.offset_register import ABORTED, OffsetCommit, OffsetRegister
from ottla.wire.internal_topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.wire.types import TopicPartition

NOTES_KEPT = 1000
NOTES_SHOWN = 40
OFFSETS, TRANSACTIONS = (
    TopicPartition(GROUP_METADATA_TOPIC, 0),
    TopicPartition(TRANSACTION_STATE_TOPIC, 0),
)
"""Where the coordinators write: one partition each, in every run."""
COORDINATED_BY = {"C3": (TRANSACTIONS, OFFSETS), "C4": (OFFSETS,)}
"""The partitions whose leaders are the coordinators that a rule is about."""

GroupPartition = tuple[str, TopicPartition]
"""A group, and a partition that it reads."""


def text(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def input_of(value: bytes) -> tuple[TopicPartition, int]:
    """The input record of an output."""
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
    """The offsets at which they were acknowledged."""
    commits: list[tuple[GroupPartition, OffsetCommit]] = field(default_factory=list)
    asked_to_commit: bool = False
    is_committed: bool = False
    is_aborted: bool = False
    seen: dict[bytes, int] = field(default_factory=dict)
    """The values that readers with read_committed have read, and at which offset."""
    may_be_partial: bool = False
    """Some of its outputs, or its decision, may be lost."""
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
        """The subjects of notes that help to understand it."""
        places = [part for (group, source), _ in self.commits for part in (group, text(source))]
        return [self.transactional_id, *places, *map(text, self.values.values())]

    def __str__(self) -> str:
        return f"transaction {self.name} of {self.transactional_id} (producer {self.producer})"


class Note(NamedTuple):
    line: str
    about: tuple[str, ...]
    """Groups, partitions, transactional ids."""


class GroupOracle:
    """Clients and observers report what happened; each broken rule is added to `violations`."""

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
        """By group and input partition, then by offset: the transaction whose output was read."""
        self.losses: dict[TopicPartition, list[tuple[float, RecordedLoss]]] = {}
        """Recorded losses, each with its time."""
        self.read_up_to: dict[TopicPartition, int] = {}
        """The position of readers with read_committed: below it every transaction is decided."""
        self._now = now
        self._end_of = end_of
        self._standing = standing
        """Which nodes believe that they lead a partition, and the controller's last decision."""
        self._registers: dict[GroupPartition, OffsetRegister] = {}
        self._owners: dict[tuple[str, int, TopicPartition], str] = {}
        self._notes: deque[Note] = deque(maxlen=NOTES_KEPT)
        self._newest: dict[str, tuple[str, float]] = {}
        """By transactional id: its newest producer instance, and since when."""
        self._generations: dict[str, int] = {}
        self._epochs: dict[int, int] = {}
        """The highest generation of each group and epoch of each producer id that coordinators have decided."""
        self._lost_generations: dict[str, int] = {}
        self._lost_epochs: dict[int, int] = {}
        """Up to these the coordinators may count again, because they lost their records."""

    def note(self, what: str, *about: str) -> None:
        self._notes.append(Note(f"{self._now():.6f} {what}", about))

    def decided(self, _: int, __: MetadataImage, after: MetadataImage, delta: Delta) -> None:
        """Note the controller's decisions about the partitions of the coordinators."""
        for topic_id, number in delta.changed_partitions:
            topic = after.topics_by_id.get(topic_id)
            if topic is not None and TopicPartition(topic.name, number) in (OFFSETS, TRANSACTIONS):
                where = f"{topic.name}-{number}"
                self.note(f"controller: {where} {decision(topic.partitions[number])}", where)

    def fail(self, rule: str, who: str, what: str, about: Iterable[str], by: str = "") -> None:
        """Record a violation, with the notes about `about` and the coordinators. `by`: the host that answered."""
        partitions = COORDINATED_BY[rule]
        subjects = {*about, *map(text, partitions)}
        notes = [note.line for note in self._notes if subjects.issuperset(note.about)]
        coordinator = f"{by} answered as coordinator" if by else ""
        standing = [self._standing(partition) for partition in partitions]
        what = "; ".join(filter(None, (what, coordinator, *standing)))
        where = f"{who}, at {self._now():.6f}"
        self.violations.append(Violation(rule, where, what, notes[-NOTES_SHOWN:]))

    # What losses explain

    def excuse(self, partition: TopicPartition, loss: RecordedLoss) -> None:
        """The cluster recorded a loss in this partition."""
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
            # A transaction that is undecided again may be aborted, whatever its client was answered, or committed,
            # though a newer instance had aborted it. And a fenced producer may get the epoch of the newer instance, and
            # write as if it were that one.
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
        """Whether readers have passed all that it wrote (in this partition) below `first`: they never fetch it again."""
        return all(
            transaction.placed.get(value, inf) < min(first, self.read_up_to.get(target, 0))
            for value, target in transaction.values.items()
            if partition in (None, target)
        )

    def is_lost(self, partition: TopicPartition, offset: int, epoch: int) -> bool:
        """Whether a recorded loss covers what a leader of this epoch had at this offset."""
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
        """A coordinator decided on this generation."""
        self._generations[group] = max(generation, self._generations.get(group, 0))

    def decided_epoch(self, producer_id: int, epoch: int) -> None:
        self._epochs[producer_id] = max(epoch, self._epochs.get(producer_id, 0))

    # Groups

    def assigned(
        self, group: str, generation: int, who: str, partitions: Iterable[TopicPartition]
    ) -> None:
        """C4: in each generation a partition has one owner."""
        partitions = list(partitions)
        owned = " ".join(map(text, partitions)) or "nothing"
        self.note(f"{group}: {who} has {owned} in generation {generation}", group)
        for partition in partitions:
            owner = self._owners.setdefault((group, generation, partition), who)
            if owner != who and generation > self._lost_generations.get(group, -1):
                self.fail(
                    "C4",
                    f"group {group}",
                    f"generation {generation} assigns {text(partition)} to both {owner} and {who}",
                    [group, text(partition)],
                )

    def _register(self, place: GroupPartition) -> OffsetRegister:
        found = self._registers.get(place)
        if found is None:
            found = self._registers[place] = OffsetRegister()
        return found

    def begin_commit(self, place: GroupPartition, name: str, offset: int) -> OffsetCommit:
        self.commits += 1
        return self._register(place).begin(name, offset, self._now())

    def committed(
        self, place: GroupPartition, commit: OffsetCommit, *, by_marker: bool = False
    ) -> None:
        """The commit of a transaction takes effect with its marker, of which its client is not informed."""
        self._note_of(place, f"{commit.offset} is committed ({commit.name})")
        below = inf if by_marker else self._end_of(OFFSETS)
        self._register(place).done(commit, self._now(), below)

    def not_committed(self, place: GroupPartition, commit: OffsetCommit, why: str) -> None:
        """It was refused, so it will never take effect."""
        self._note_of(place, f"{commit.name} is refused: {why}")
        self._register(place).refuse(commit, why)

    def _note_of(self, place: GroupPartition, what: str) -> None:
        group, partition = place[0], text(place[1])
        self.note(f"{group}, {partition}: {what}", group, partition)

    def read(
        self, place: GroupPartition, name: str, offset: int, begun: float, by: str = ""
    ) -> None:
        """C4: a committed offset is a register that loses nothing. `by`: the host that answered."""
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
            self.fail("C4", f"group {group}", f"accepted a commit of {who}, which {what}", [group])

    # Transactions

    def initialized(self, transactional_id: str, producer: str, instance: str) -> None:
        self.note(f"{transactional_id}: {instance} is producer {producer}", transactional_id)
        self._newest[transactional_id] = instance, self._now()

    def check_fenced(
        self,
        transactional_id: str,
        instance: str,
        begun: float,
        what: str,
        producer: str,
        at: TopicPartition,
    ) -> None:
        """C3: a request that began after a newer instance had taken over the transactional id must not succeed. `at`: the
        partition whose leader has to know."""
        newest, since = self._newest.get(transactional_id, (instance, inf))
        excused = self._lost_since(since, at) or self._may_be_shared(producer)
        if newest != instance and since <= begun and not excused:
            self.fail(
                "C3",
                f"transactional id {transactional_id}",
                f"{what} of {instance} (producer {producer}), begun at {begun:.6f}, succeeded, though "
                f"{newest} had taken over by {since:.6f}",
                [transactional_id, text(at)],
            )

    def _may_be_shared(self, producer: str) -> bool:
        """Whether another producer may have the same id and epoch, because the coordinator lost the first."""
        id, epoch = map(int, producer.split("/"))
        return epoch <= self._lost_epochs.get(id, -1)

    def begin_transaction(self, name: str, transactional_id: str, producer: str) -> Transaction:
        found = self.transactions[name] = Transaction(name, transactional_id, producer)
        found.may_be_partial = found.may_be_repeated = self._may_be_shared(producer)
        return found

    def placed(
        self, transaction: Transaction, values: Iterable[bytes], base_offset: int, epoch: int
    ) -> None:
        """They were acknowledged by a leader of this epoch."""
        for offset, value in enumerate(values, base_offset):
            transaction.placed[value] = offset
            if self.is_lost(transaction.values[value], offset, epoch):
                transaction.may_be_partial = True

    def ended(self, transaction: Transaction, *, committed: bool) -> None:
        end = "committed" if committed else "aborted"
        self.note(f"{transaction} is {end}", transaction.transactional_id)
        transaction.is_committed, transaction.is_aborted = committed, not committed
        if self._may_be_shared(transaction.producer):
            # A producer that shares it and asks for the same end gets the same next epoch.
            id, epoch = map(int, transaction.producer.split("/"))
            self._lost_epochs[id] = max(self._lost_epochs[id], epoch + 1)
        for place, commit in transaction.commits:
            if transaction.may_be_repeated:
                continue  # the outcome cannot be known
            if committed:
                self.committed(place, commit, by_marker=True)
            else:
                self.not_committed(place, commit, ABORTED)
        if transaction.is_aborted and transaction.seen and not transaction.may_be_partial:
            what = "was aborted, but its records have been read with read_committed"
            self.fail("C3", str(transaction), what, transaction.subjects)

    def saw(
        self, group: str, partition: TopicPartition, offset: int, epoch: int, value: bytes
    ) -> None:
        """C3: a reader with read_committed read this value, which a leader of this epoch wrote."""
        transaction = self.transactions[value.decode().split("=")[1]]
        where, about = f"{text(partition)} at {offset}", [*transaction.subjects, text(partition)]
        if transaction.values.get(value) != partition:
            self.fail(
                "C3",
                where,
                f"{value!r} was read, but not sent to this partition: {transaction}",
                about,
            )
        if self.is_lost(partition, offset, epoch):
            transaction.may_be_partial = True
        if transaction.may_be_partial:
            return
        transaction.placed.setdefault(value, offset)
        if transaction.seen.setdefault(value, offset) != offset:
            what = f"{value!r} was read, and before at {transaction.seen[value]}: {transaction}"
            self.fail("C3", where, what, about)
        if not transaction.asked_to_commit:
            what = f"{value!r} was read, but no client asked to commit it: {transaction}"
            self.fail("C3", where, what, about)
        if transaction.is_aborted:
            what = f"{value!r} was read, but it was aborted: {transaction}"
            self.fail("C3", where, what, about)
        self._check_once(group, value, transaction, where)

    def _check_once(self, group: str, value: bytes, transaction: Transaction, where: str) -> None:
        """C3: an input is processed once, unless the input, or the offset committed with it, may be lost."""
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
        """C3: a transaction was read as a whole or not at all, and each input has one output. Everything has been read,
        except in `unread`, where a transaction hangs whose end is lost."""
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
                what = f"{what}, but {seen} of its {total} records were read"
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
                    f"offset {missing[0]} and {len(missing) - 1} more have no output, but the group has "
                    f"committed offset {end}",
                    [group, text(partition)],
                )
