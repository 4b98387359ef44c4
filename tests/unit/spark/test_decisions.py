"""The decision procedure against a small model of a cluster: a driver dies between any two steps, and each row of the
failure table in docs/SPARK-SINK.md is shown."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pytest

from ottla.client.transaction_admin import ProducerIdentity
from ottla.spark.errors import SparkSourceError
from ottla.spark.write.decisions import (
    Abort,
    BatchDecision,
    CheckOpen,
    CommitRefused,
    CommitTransactions,
    Confirm,
    ListOpen,
    Procedure,
    Propose,
    RecordDecision,
    TaskTransaction,
    TransactionOutcome,
    Withdraw,
    committing,
    committing_once,
    transactional_id,
    withdrawing,
)

ROWS = {0: ["a", "b"], 1: ["c"], 2: ["d", "e", "f"]}
"""Of each task of batch 0."""


class Died(Exception):
    """The driver, before a step."""


class Fenced(Exception):
    pass


@dataclass
class Transaction:
    rows: list[str]
    identity: ProducerIdentity
    state: str = "open"


@dataclass
class World:
    """What is true of the cluster; a driver is a number, and only the newest one can write decisions."""

    transactions: dict[str, Transaction] = field(default_factory=dict)
    """The newest of each transactional id."""
    settled: list[str] = field(default_factory=list)
    """Rows of committed transactions whose ids have been used again since."""
    last: BatchDecision | None = None
    proposal: BatchDecision | None = None
    driver: int = 0
    producer_ids: int = 0

    @property
    def visible(self) -> list[str]:
        committed = [each for each in self.transactions.values() if each.state == "committed"]
        return sorted([*self.settled, *(row for each in committed for row in each.rows)])

    @property
    def is_open(self) -> list[str]:
        return [id for id, each in self.transactions.items() if each.state == "open"]

    def write(
        self,
        run: str,
        rows: dict[int, list[str]] = ROWS,
        attempt: int = 0,
        query: str = "q",
        topic: str = "t",
    ) -> list[TaskTransaction]:
        """Tasks leave open transactions."""
        written = []
        for task, values in rows.items():
            id = transactional_id(query, run, task, attempt)
            before = self.transactions.get(id)
            if before is None:
                self.producer_ids += 1
                identity = ProducerIdentity(id, self.producer_ids, 0, 2)
            else:
                if before.state == "committed":
                    self.settled += before.rows
                identity = before.identity._replace(
                    producer_epoch=before.identity.producer_epoch + 1
                )
            self.transactions[id] = Transaction(values, identity)
            checksum = hash(frozenset(Counter(values).items()))
            written.append(TaskTransaction(task, identity, len(values), checksum, topic, task, 0))
        return written

    def time_out(self) -> None:
        for each in self.transactions.values():
            if each.state == "open":
                each.state = "aborted"

    def run(
        self,
        procedure: Procedure,
        *,
        dies_before: int | None = None,
        between: Callable[[int], None] = lambda number: None,
    ) -> list[str]:
        """The names of the steps. Within a Commit the driver may die after each transaction, so that is a step too."""
        driver: int | None = None
        steps: list[str] = []
        answer: Any = None

        def reached(name: str) -> None:
            between(len(steps))
            if dies_before == len(steps):
                raise Died(name)
            steps.append(name)

        try:
            step = next(procedure)
            while True:
                name = type(step).__name__
                if isinstance(step, Propose):
                    reached(name)
                    self.driver += 1
                    driver = self.driver
                    self.proposal = step.decision
                    answer = self.last
                elif isinstance(step, CommitTransactions):
                    answer = []
                    for each in step.transactions:
                        reached(name)
                        answer.append(self._commit(each))
                else:
                    reached(name)
                    answer = self._do(step, driver)
                step = procedure.send(answer)
        except StopIteration:
            return steps

    def _commit(self, written: TaskTransaction) -> TransactionOutcome:
        found = self.transactions[written.identity.transactional_id]
        if found.identity != written.identity:
            return TransactionOutcome.ABORTED  # whoever came later has fenced it
        if found.state == "open":
            found.state = "committed"
        return TransactionOutcome(found.state)

    def _is_open(self, written: TaskTransaction) -> bool:
        found = self.transactions[written.identity.transactional_id]
        return found.identity == written.identity and found.state == "open"

    def _do(self, step: Any, driver: int | None) -> Any:
        match step:
            case ListOpen():
                return self.is_open
            case CheckOpen(transactions):
                return [each for each in transactions if not self._is_open(each)]
            case Abort(ids):
                for id in ids:
                    assert self.transactions[id].state != "committed"
                    self.transactions[id].state = "aborted"
                return None
        if driver != self.driver:
            raise Fenced
        match step:
            case Confirm():
                self.last, self.proposal = self.proposal, None
            case Withdraw():
                self.proposal = None
            case RecordDecision(decision):
                self.last = decision
        return None


def all_rows(rows: dict[int, list[str]] = ROWS) -> list[str]:
    return sorted(row for each in rows.values() for row in each)


def commit(
    world: World,
    run: str,
    written: Iterable[TaskTransaction],
    batch: int = 0,
    topic: str | None = None,
    **how: Any,
) -> list[str]:
    return world.run(committing("q", run, batch, written, topic=topic), **how)


def number_of_steps() -> int:
    world = World()
    return len(commit(world, "run", world.write("run")))


STEPS = range(number_of_steps())


def test_a_batch_becomes_visible_and_is_done() -> None:
    world = World()
    steps = commit(world, "run", world.write("run"))
    assert world.visible == all_rows()
    assert world.last is not None
    assert world.last.is_done
    assert steps == [
        *("ListOpen", "Propose", "CheckOpen", "Confirm"),
        *(["CommitTransactions"] * 3),
        *("RecordDecision", "Abort"),
    ]


@pytest.mark.parametrize("step", STEPS)
def test_the_driver_dies_before_a_step_and_the_next_run_makes_it_whole(step: int) -> None:
    world = World()
    with pytest.raises(Died):
        commit(world, "one", world.write("one"), dies_before=step)
    decided = world.last is not None
    if not decided:
        assert world.visible == []
    commit(world, "two", world.write("two"))
    assert world.visible == all_rows()
    assert world.is_open == []
    assert world.last is not None
    assert world.last.is_done
    assert world.last.run == ("one" if decided else "two")


@pytest.mark.parametrize("gives_up", [True, False])
@pytest.mark.parametrize("step", STEPS)
def test_the_driver_dies_in_a_later_batch_that_uses_the_same_ids(step: int, gives_up: bool) -> None:
    world = World()
    first, second = {0: ["x"], 1: ["y"], 2: ["z"]}, ROWS
    commit(world, "one", world.write("one", first))
    with pytest.raises(Died):
        commit(world, "one", world.write("one", second), batch=1, dies_before=step)
    if gives_up:
        world.run(withdrawing("q", "one", 1))
        assert world.last is not None
        assert world.last.batch == 1 or world.is_open == []
    commit(world, "two", world.write("two", second), batch=1)
    assert world.visible == sorted([*all_rows(first), *all_rows(second)])
    assert world.is_open == []


@pytest.mark.parametrize(("first", "second"), list(product(STEPS, STEPS)))
def test_two_drivers_die_one_after_the_other(first: int, second: int) -> None:
    world = World()
    with pytest.raises(Died):
        commit(world, "one", world.write("one"), dies_before=first)
    with contextlib.suppress(Died):
        commit(world, "two", world.write("two"), dies_before=second)
    commit(world, "three", world.write("three"))
    assert world.visible == all_rows()
    assert world.is_open == []


@pytest.mark.parametrize(("first", "second"), list(product(STEPS, range(len(STEPS) + 6))))
def test_everything_stands_still_for_longer_than_the_timeout_twice(first: int, second: int) -> None:
    """What was decided and not committed is aborted; the next runs take it from what they wrote."""
    world = World()
    with pytest.raises(Died):
        commit(world, "one", world.write("one"), dies_before=first)
    world.time_out()
    try:
        commit(world, "two", world.write("two"), dies_before=second)
    except Died:
        world.time_out()
    commit(world, "three", world.write("three"))
    assert world.visible == all_rows()
    assert world.is_open == []


def test_what_is_written_again_after_the_timeout_must_be_the_same() -> None:
    world = World()
    with pytest.raises(Died):
        commit(world, "one", world.write("one"), dies_before=5)
    assert world.visible == ["a", "b"]
    world.time_out()
    others = {0: ["a", "b"], 1: ["c"], 2: ["d", "e", "X"]}
    with pytest.raises(CommitRefused, match=r"task 2 \(3 rows, from offset 0 of t-2 on\)"):
        commit(world, "two", world.write("two", others))
    assert world.visible == ["a", "b"]
    with pytest.raises(CommitRefused, match="no task 1"):
        commit(world, "three", world.write("three", {0: ROWS[0], 2: ROWS[2]}))
    commit(world, "four", world.write("four"))
    assert world.visible == all_rows()


def test_a_decision_of_which_nothing_became_visible_gives_way_to_whatever_is_written_then() -> None:
    world = World()
    with pytest.raises(Died):
        commit(world, "one", world.write("one"), dies_before=4)
    world.time_out()
    others = {0: ["other"], 1: ["rows"]}
    commit(world, "two", world.write("two", others))
    assert world.visible == ["other", "rows"]


@pytest.mark.parametrize("step", STEPS)
def test_a_later_driver_fences_an_earlier_one_wherever_it_is(step: int) -> None:
    """The earlier one goes on afterwards, or is told that it is fenced; there is one decision."""
    world = World()
    begun = False

    def overtake(number: int) -> None:
        nonlocal begun
        if number == step and not begun:
            begun = True
            commit(world, "two", world.write("two"))

    with contextlib.suppress(Fenced, SparkSourceError):
        commit(world, "one", world.write("one"), between=overtake)
    assert world.visible == all_rows()
    assert world.last is not None
    assert world.last.is_done


@pytest.mark.parametrize("step", STEPS)
def test_a_driver_that_was_replaced_does_not_abort_what_its_successor_has_begun(step: int) -> None:
    """In later batches than its first, in which it also clears up after earlier runs."""
    world = World()
    commit(world, "one", world.write("one"))
    written = world.write(
        "one", {task: [row.upper() for row in rows] for task, rows in ROWS.items()}
    )
    begun = False

    def overtake(number: int) -> None:
        nonlocal begun
        if number == step and not begun:
            begun = True
            world.write("two")

    commit(world, "one", written, batch=1, between=overtake)
    assert {id for id in world.is_open if "/two/" in id} == {
        transactional_id("q", "two", task, 0) for task in ROWS
    }


def test_twins_failed_attempts_and_earlier_runs_are_aborted_after_the_decision() -> None:
    world = World()
    world.write("earlier")
    written = world.write("run")
    world.write("run", {1: ["c"]}, attempt=1)
    others = world.write("run", query="another")
    commit(world, "run", written)
    assert world.visible == all_rows()
    assert world.is_open == [each.identity.transactional_id for each in others]


def test_a_zombie_that_writes_after_the_commit_is_aborted_by_the_next() -> None:
    world = World()
    commit(world, "run", world.write("run"))
    world.write("run", {1: ["c"]}, attempt=1)
    assert world.visible == all_rows()
    commit(world, "run", world.write("run", {0: ["g"]}), batch=1)
    assert world.visible == sorted([*all_rows(), "g"])
    assert world.is_open == []


def test_a_batch_whose_transaction_is_gone_is_not_decided() -> None:
    world = World()
    written = world.write("run")
    world.transactions[written[1].identity.transactional_id].state = "aborted"
    with pytest.raises(SparkSourceError, match="task 1"):
        commit(world, "run", written)
    assert world.last is None
    assert world.proposal is None
    assert world.visible == []


def test_a_transaction_aborted_between_decision_and_commit_is_taken_from_the_next_run() -> None:
    world = World()
    written = world.write("one")

    def abort(number: int) -> None:
        if number == 5:  # the first is committed
            world.time_out()

    with pytest.raises(SparkSourceError, match="Start the query again"):
        commit(world, "one", written, between=abort)
    assert world.visible == ["a", "b"]
    commit(world, "two", world.write("two"))
    assert world.visible == all_rows()


@pytest.mark.parametrize("step", [*STEPS, None])
def test_spark_gives_up_a_batch_of_which_the_commit_failed(step: int | None) -> None:
    """It calls abort then, be it after the decision: nothing that was decided is aborted."""
    world = World()
    written = world.write("one")
    with contextlib.suppress(Died):
        commit(world, "one", written, dies_before=step)
    world.run(withdrawing("q", "one", 0))
    if world.last is None:
        assert world.is_open == []
    commit(world, "two", world.write("two"))
    assert world.visible == all_rows()
    assert world.is_open == []


def test_without_a_decision_about_an_earlier_batch_the_query_does_not_go_on() -> None:
    world = World()
    with pytest.raises(CommitRefused, match="set the option 'firstBatch' to 7"):
        commit(world, "run", world.write("run"), batch=7)
    assert world.visible == []
    assert world.last is None
    world.run(committing("q", "run", 7, world.write("run"), first_batch=7))
    assert world.visible == all_rows()


def test_a_checkpoint_older_than_the_output_is_refused() -> None:
    world = World()
    commit(world, "run", world.write("run"))
    commit(world, "run", world.write("run", {0: ["g"]}), batch=1)
    with pytest.raises(CommitRefused, match="older than its output"):
        commit(world, "run", world.write("run"), batch=0)


def test_an_empty_batch_is_decided_too() -> None:
    world = World()
    commit(world, "run", [])
    assert world.last == BatchDecision("q", "run", 0, (), True)
    commit(world, "run", world.write("run"), batch=1)
    assert world.visible == all_rows()


def test_the_batch_before_is_finished_first_if_it_was_not() -> None:
    world = World()
    with pytest.raises(Died):
        commit(world, "one", world.write("one"), dies_before=5)
    commit(world, "two", world.write("two", {0: ["g"]}), batch=1)
    assert world.visible == sorted([*all_rows(), "g"])


def test_the_batch_before_that_cannot_be_finished_stops_the_query() -> None:
    world = World()
    with pytest.raises(Died):
        commit(world, "one", world.write("one"), dies_before=5)
    world.time_out()
    with pytest.raises(CommitRefused, match="task 1"):
        commit(world, "two", world.write("two", {0: ["g"]}), batch=1)
    assert world.proposal is None


def test_a_copied_checkpoint_that_writes_to_another_topic_is_refused() -> None:
    """Whoever comes second to a batch must not take the other's decision for its own."""
    world = World()
    commit(world, "one", world.write("one"), topic="x")
    for batch in (0, 1):
        written = world.write("copy", topic="y")
        with pytest.raises(
            CommitRefused, match=r"to topic x by run one, and now run copy .* topic y"
        ):
            commit(world, "copy", written, batch, topic="y")
        commit(world, "one", world.write("one"), batch + 1, topic="x")
    assert world.proposal is None


def test_without_the_option_the_topics_of_the_rows_tell_of_a_copied_checkpoint() -> None:
    world = World()
    commit(world, "one", world.write("one"))
    with pytest.raises(CommitRefused, match="Was the checkpoint copied"):
        commit(world, "copy", world.write("copy", topic="y"))


def test_a_query_may_change_its_topic_from_one_batch_to_the_next() -> None:
    world = World()
    commit(world, "one", world.write("one"), topic="x")
    commit(world, "two", world.write("two", topic="y"), 1, topic="y")
    assert world.visible == sorted(2 * all_rows())


def test_a_replay_with_other_rows_is_told(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    commit(world, "one", world.write("one"))
    commit(world, "two", world.write("two"))
    assert not caplog.records
    commit(world, "three", world.write("three", {0: ["other"]}))
    assert "6 rows by run one. They count, and the 1 other rows that run three wrote" in caplog.text


def test_another_attempt_under_the_same_id_is_noticed_before_the_decision() -> None:
    """Spark counts attempts from 0 again in each attempt of a stage: the later one has fenced the one that was chosen."""
    world = World()
    written = world.write("one")
    world.write("one", {1: ["c"]})
    with pytest.raises(SparkSourceError, match="task 1"):
        commit(world, "one", written)
    assert world.last is None
    assert world.visible == []
    world.run(withdrawing("q", "one", 0))
    assert world.is_open == []


def test_another_attempt_that_comes_while_the_proposal_is_read_behind_is_noticed_too() -> None:
    world = World()
    written = world.write("one")

    def fence(number: int) -> None:
        if number == 2:
            world.write("one", {1: ["c"]})

    with pytest.raises(SparkSourceError, match="task 1"):
        commit(world, "one", written, between=fence)
    assert world.last is None


def test_an_attempt_that_fenced_a_decided_one_is_swept_by_the_next_run() -> None:
    world = World()
    written = world.write("one")

    def fence(number: int) -> None:
        if number == 4 and all(each.identity.producer_epoch == 0 for each in world_transactions()):
            world.write("one", {1: ["c"]})

    def world_transactions() -> list[Transaction]:
        return list(world.transactions.values())

    with pytest.raises(SparkSourceError, match="Start the query again"):
        commit(world, "one", written, between=fence)
    commit(world, "two", world.write("two"))
    assert world.visible == all_rows()
    assert world.is_open == []


def test_a_batch_job_that_is_neither_done_nor_undone_says_what_is_visible() -> None:
    written = World().write("job")
    procedure = committing_once("q", "job", written)
    assert isinstance(next(procedure), ListOpen)
    assert isinstance(procedure.send([]), CheckOpen)
    step = procedure.send([])
    assert isinstance(step, CommitTransactions) and step.is_last_chance
    with pytest.raises(SparkSourceError, match=r"committed: task 0 .*; unknown: task 1 .*task 2"):
        procedure.send(
            [TransactionOutcome.COMMITTED, TransactionOutcome.UNKNOWN, TransactionOutcome.UNKNOWN]
        )


def test_a_decision_is_read_as_it_was_written() -> None:
    decision = BatchDecision("q", "run", 3, tuple(World().write("run")), topic="t")
    assert BatchDecision.from_json("q", decision.to_json()) == decision
    done = decision._replace(is_done=True)
    assert BatchDecision.from_json("q", done.to_json().encode()) == done
