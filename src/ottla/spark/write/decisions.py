"""How the driver of an exactly-once sink commits a batch: the procedure, without a network.

Tasks leave their rows in open transactions. Which of them count is decided by one record in the log. The steps that
write it, read the log behind it and commit it are yielded here and carried out in `ottla.spark.write.sink`. A driver
may die between any two steps: the next driver begins with the first one, and the failure table in docs/SPARK-SINK.md says
what it finds.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Generator, Iterable, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

from ottla.client.transaction_admin import ProducerIdentity
from ottla.spark.errors import SparkSourceError

log = logging.getLogger(__name__)

FIRST_BATCH: Final = "firstBatch"
"""The option that allows a query to begin with transactions at a later batch than 0."""


class TaskTransaction(NamedTuple):
    """What one task wrote: its transaction, and enough to tell whether another one holds the same."""

    task: int
    identity: ProducerIdentity
    rows: int
    checksum: int
    """Over topic, key, value and headers of all rows, in any order."""
    topic: str
    partition: int
    first_offset: int
    """One place that it wrote to, where the log tells how the transaction ended."""

    def holds_the_same_as(self, other: TaskTransaction) -> bool:
        return (self.rows, self.checksum) == (other.rows, other.checksum)

    def __str__(self) -> str:
        return (
            f"task {self.task} ({self.rows} rows, from offset {self.first_offset} of "
            f"{self.topic}-{self.partition} on)"
        )


class BatchDecision(NamedTuple):
    """The transactions that are the batch. Of each query only the newest record counts."""

    query: str
    run: str
    batch: int
    transactions: tuple[TaskTransaction, ...]
    is_done: bool = False
    """All of them are committed."""
    topic: str | None = None
    """The one for all rows, if an option names it."""

    @property
    def targets(self) -> frozenset[str]:
        """Topics that the batch is for, as far as it is known."""
        if self.topic is not None:
            return frozenset([self.topic])
        return frozenset(each.topic for each in self.transactions)

    @property
    def contents(self) -> tuple[int, int]:
        """How many rows, and their checksum: the same however they are spread over tasks."""
        checksum = sum(each.checksum for each in self.transactions) % (1 << 64)
        return sum(each.rows for each in self.transactions), checksum

    def to_json(self) -> str:
        return json.dumps(
            {
                "batch": self.batch,
                "run": self.run,
                "done": self.is_done,
                "topic": self.topic,
                "transactions": [
                    [each.task, *each.identity, *each[2:]] for each in self.transactions
                ],
            }
        )

    @classmethod
    def from_json(cls, query: str, text: str | bytes) -> BatchDecision:
        found: Mapping[str, Any] = json.loads(text)
        transactions = tuple(
            TaskTransaction(task, ProducerIdentity(*rest[:4]), *rest[4:])
            for task, *rest in found["transactions"]
        )
        return cls(
            query, found["run"], found["batch"], transactions, found["done"], found.get("topic")
        )


class TransactionOutcome(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


# What a driver does. Each is carried out before the next is asked for; where there is an answer, it is noted.


class ListOpen(NamedTuple):
    """Which task transactions of the query are open? Transactional ids, as far as their coordinators answer."""

    query: str


class CheckOpen(NamedTuple):
    """Is each of these open? Those that are not: somebody ended them, or another attempt under the same id did."""

    transactions: tuple[TaskTransaction, ...]


class Propose(NamedTuple):
    """Fence every earlier driver, write the decision in a transaction that stays open, and read behind it. The
    newest decision that was there before, or None."""

    decision: BatchDecision


class Confirm(NamedTuple):
    """Commit the proposal: now it is decided."""


class Withdraw(NamedTuple):
    """Abort the proposal."""


class RecordDecision(NamedTuple):
    """Write another decision in the place of the last, and commit it."""

    decision: BatchDecision


class CommitTransactions(NamedTuple):
    """The transactions of tasks. A TransactionOutcome for each; it is UNKNOWN only if `is_last_chance` and their coordinator
    does not answer for as long as they can be open."""

    transactions: tuple[TaskTransaction, ...]
    is_last_chance: bool = False
    """No later attempt will repeat this."""


class Abort(NamedTuple):
    """By transactional id; their producers are fenced."""

    transactional_ids: tuple[str, ...]


Step: TypeAlias = (
    ListOpen
    | CheckOpen
    | Propose
    | Confirm
    | Withdraw
    | RecordDecision
    | CommitTransactions
    | Abort
)
Procedure: TypeAlias = Generator[Step, Any, None]


class CommitRefused(SparkSourceError):
    """The sink stops: otherwise it would lose rows or write them twice."""


def prefix(query: str, run: str | None = None) -> str:
    return f"ottla-sink/{query}/" if run is None else f"ottla-sink/{query}/{run}/"


def transactional_id(query: str, run: str, task: int, attempt: int) -> str:
    return f"{prefix(query, run)}{task}/{attempt}"


def driver_id(query: str) -> str:
    return f"{prefix(query)}driver"


def committing(
    query: str,
    run: str,
    batch: int,
    written: Iterable[TaskTransaction],
    *,
    first_batch: int = 0,
    topic: str | None = None,
) -> Procedure:
    """Make the batch visible: these rows, or those of an earlier run if that has decided already."""
    ours = BatchDecision(query, run, batch, _in_order(written), topic=topic)
    is_open: Collection[str] = yield ListOpen(query)
    last: BatchDecision | None = yield Propose(ours)
    try:
        _check_order(last, ours, first_batch)
        if last is not None and last.batch == batch:
            _check_target(last, ours)
        else:
            if last is not None and not last.is_done:
                yield from _finish_earlier(last)
            # Now and not before: reading behind the proposal may have taken as long as a transaction's timeout.
            yield from _check_open(ours)
    except SparkSourceError:
        yield Withdraw()
        raise
    if last is None or last.batch < batch:
        yield Confirm()
        decided = ours
    else:
        yield Withdraw()
        decided = last
    if not decided.is_done:
        decided = yield from _finish(decided, ours)
        yield RecordDecision(decided._replace(is_done=True))
    yield _sweep(decided, is_open, run, last)


def withdrawing(query: str, run: str, batch: int) -> Procedure:
    """Spark gives the batch up. It does so too when `committing` failed, be it after the decision: what is decided
    must stay. What this run has open and no decision names is aborted."""
    is_open: Collection[str] = yield ListOpen(query)
    last: BatchDecision | None = yield Propose(BatchDecision(query, run, batch, ()))
    yield Withdraw()
    yield Abort(_unnamed([last], is_open, prefix(query, run)))


def committing_once(query: str, run: str, written: Iterable[TaskTransaction]) -> Procedure:
    """The rows of a batch job, which nobody will run again under the same name: without a decision."""
    ours = BatchDecision(query, run, 0, _in_order(written))
    is_open: Collection[str] = yield ListOpen(query)
    yield from _check_open(ours)
    outcomes: list[TransactionOutcome] = yield CommitTransactions(
        ours.transactions, is_last_chance=True
    )
    if set(outcomes) - {TransactionOutcome.COMMITTED}:
        told = "; ".join(
            f"{outcome.value}: {', '.join(map(str, group))}"
            for outcome in TransactionOutcome
            if (
                group := [
                    w for w, o in zip(ours.transactions, outcomes, strict=True) if o is outcome
                ]
            )
        )
        raise SparkSourceError(
            f"the job is neither done nor undone, and run again it would write what is committed twice. {told}"
        )
    yield Abort(_unnamed([ours], is_open, prefix(query)))


def withdrawing_once(query: str) -> Procedure:
    is_open: Collection[str] = yield ListOpen(query)
    yield Abort(_unnamed([], is_open, prefix(query)))


def _in_order(written: Iterable[TaskTransaction]) -> tuple[TaskTransaction, ...]:
    ordered = tuple(sorted(written))
    assert len({each.task for each in ordered}) == len(ordered), "one message from each task"
    return ordered


def _check_order(last: BatchDecision | None, ours: BatchDecision, first_batch: int) -> None:
    if last is None:
        if ours.batch > first_batch:
            raise CommitRefused(
                f"query {ours.query} comes to batch {ours.batch}, and there is no decision about any batch of it in the "
                "decision topic. Was the topic deleted, or did the query write elsewhere before? Batch "
                f"{ours.batch} may have been written already. If it was not, set the option '{FIRST_BATCH}' to "
                f"{ours.batch}; else begin with a new checkpoint"
            )
    elif last.batch > ours.batch:
        raise CommitRefused(
            f"query {ours.query} comes to batch {ours.batch}, but batch {last.batch} is written: its checkpoint is older "
            "than its output, or another run of it is ahead. Nothing was written"
        )


def _check_target(last: BatchDecision, ours: BatchDecision) -> None:
    """The query's id lies in its checkpoint. Two copies of it are two queries, and what one decided says nothing about
    the other's rows."""
    theirs, mine = last.targets, ours.targets
    if theirs and mine and theirs.isdisjoint(mine):
        raise CommitRefused(
            f"batch {ours.batch} of query {ours.query} was written to {_names(theirs)} by run {last.run}, and now run "
            f"{ours.run} would write it to {_names(mine)}. Was the checkpoint copied? Two queries cannot share one: give "
            "the copy a checkpoint of its own. If the query only changed its topic, start it once with the old one. "
            "Nothing was written"
        )
    if last.contents != ours.contents:
        log.warning(
            "batch %d of query %s was written already: %d rows by run %s. They count, and the %d other rows that run %s wrote "
            "now do not. Unless the query gives other rows each time, its checkpoint is in use twice",
            *(ours.batch, ours.query, last.contents[0], last.run, ours.contents[0], ours.run),
        )


def _names(topics: Collection[str]) -> str:
    return "topic " + ", ".join(sorted(topics))


def _check_open(ours: BatchDecision) -> Generator[Step, Any, None]:
    lost: list[TaskTransaction] = yield CheckOpen(ours.transactions)
    if lost:
        raise SparkSourceError(
            f"the transaction of {lost[0]} is not open any more, so batch {ours.batch} is not committed: it took "
            "longer than 'kafka.transaction.timeout.ms', somebody aborted it, or Spark ran the task once more under the "
            "same attempt number. Nothing of the batch is visible, and it can be run again"
        )


def _finish_earlier(last: BatchDecision) -> Generator[Step, Any, None]:
    """Spark has noted the batch before as done, so that it should be."""
    outcomes: list[TransactionOutcome] = yield CommitTransactions(last.transactions)
    for each, outcome in zip(last.transactions, outcomes, strict=True):
        if outcome is TransactionOutcome.ABORTED:
            raise CommitRefused(
                f"batch {last.batch} was decided, but the transaction of {each} was aborted, and Spark does not write "
                "that batch again: these rows are missing"
            )


def _finish(decided: BatchDecision, ours: BatchDecision) -> Generator[Step, Any, BatchDecision]:
    """Commit what is decided. What was aborted meanwhile is replaced by what this run wrote, if it is the same."""
    outcomes: list[TransactionOutcome] = yield CommitTransactions(decided.transactions)
    if TransactionOutcome.ABORTED not in outcomes:
        return decided
    amended = _amended(decided, outcomes, ours)
    yield RecordDecision(amended)
    outcomes = yield CommitTransactions(amended.transactions)
    if TransactionOutcome.ABORTED in outcomes:
        raise _aborted_after_decision(
            amended.transactions[outcomes.index(TransactionOutcome.ABORTED)]
        )
    return amended


def _amended(
    decided: BatchDecision, outcomes: list[TransactionOutcome], ours: BatchDecision
) -> BatchDecision:
    if TransactionOutcome.COMMITTED not in outcomes and decided is not ours:
        return ours  # nothing of it can be seen, so that the batch may be decided anew
    by_task = {each.task: each for each in ours.transactions}
    transactions = []
    for each, outcome in zip(decided.transactions, outcomes, strict=True):
        if outcome is TransactionOutcome.COMMITTED:
            transactions.append(each)
            continue
        again = by_task.get(each.task)
        if again == each:
            raise _aborted_after_decision(each)
        if again is None or not again.holds_the_same_as(each):
            raise CommitRefused(
                f"batch {decided.batch} is half visible: the transaction of {each} was aborted before it could be "
                f"committed, and now {again or f'no task {each.task}'} wrote something else. The query gives other rows "
                "when it is run again, so that they can neither be added nor be left out. Nothing was changed"
            )
        transactions.append(again)
    return decided._replace(transactions=tuple(transactions))


def _aborted_after_decision(each: TaskTransaction) -> SparkSourceError:
    return SparkSourceError(
        f"the transaction of {each} was aborted between the decision and its commit. Start the query again: the batch is "
        "written again, and what is missing is taken from there"
    )


def _sweep(
    decided: BatchDecision, is_open: Collection[str], run: str, last: BatchDecision | None
) -> Abort:
    """What twins, failed attempts and, the first time, earlier runs have left behind. Not always all runs': a driver
    that was replaced and does not know it yet would abort what its successor's tasks have begun. What `last` names of
    the same batch and `decided` does not was aborted; whoever is open under its id now is another attempt."""
    is_first = last is None or last.run != run
    within = prefix(decided.query) if is_first else prefix(decided.query, run)
    earlier = last if last is not None and last.batch < decided.batch else None
    return Abort(_unnamed([decided, earlier], is_open, within))


def _unnamed(
    decisions: Iterable[BatchDecision | None], is_open: Collection[str], within: str
) -> tuple[str, ...]:
    """A decision that is done names nothing that is open: the ids may have been used again since."""
    named = {
        each.identity.transactional_id
        for decision in decisions
        if decision is not None and not decision.is_done
        for each in decision.transactions
    }
    return tuple(sorted(id for id in is_open if id.startswith(within) and id not in named))
