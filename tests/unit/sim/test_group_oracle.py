"""What the oracle of groups and transactions objects to, and what it lets pass."""

from __future__ import annotations

from ottla.sim.oracle.group_oracle import OFFSETS, TRANSACTIONS, GroupOracle
from ottla.sim.oracle.ledger import RecordedLoss
from ottla.sim.oracle.offset_register import OffsetRegister
from ottla.wire.types import TopicPartition

IN, OUT = TopicPartition("in", 0), TopicPartition("out", 0)
PLACE = "g", IN


def committed(register: OffsetRegister, name: str, offset: int, begun: float, ended: float) -> None:
    register.done(register.begin(name, offset, begun), ended)


def test_nothing_was_committed_at_first() -> None:
    assert OffsetRegister().read("", -1, 1.0, 2.0) is None


def test_an_acknowledged_commit_is_read() -> None:
    register = OffsetRegister()
    committed(register, "a", 5, 1.0, 2.0)
    assert register.read("a", 5, 3.0, 4.0) is None
    assert "was read" in str(register.read("", -1, 5.0, 6.0))


def test_an_older_commit_may_be_read_only_while_the_newer_is_under_way() -> None:
    register = OffsetRegister()
    committed(register, "a", 5, 1.0, 2.0)
    committed(register, "b", 6, 3.0, 4.0)
    assert register.read("a", 5, 3.5, 3.6) is None
    assert "had replaced it" in str(register.read("a", 5, 4.5, 5.0))


def test_a_rewind_is_a_commit_like_any_other() -> None:
    register = OffsetRegister()
    committed(register, "a", 5, 1.0, 2.0)
    committed(register, "b", 0, 3.0, 4.0)
    assert register.read("b", 0, 5.0, 6.0) is None


def test_a_commit_without_an_answer_may_happen_late_but_only_once() -> None:
    register = OffsetRegister()
    register.begin("lost", 9, 1.0)
    committed(register, "a", 5, 2.0, 3.0)
    assert register.read("a", 5, 4.0, 5.0) is None
    assert register.read("lost", 9, 6.0, 7.0) is None
    assert "had replaced it" in str(register.read("a", 5, 8.0, 9.0))


def test_what_one_reader_saw_no_later_one_may_miss() -> None:
    register = OffsetRegister()
    register.begin("a", 5, 1.0)
    register.begin("b", 6, 1.0)
    assert register.read("a", 5, 2.0, 3.0) is None
    assert register.read("b", 6, 4.0, 5.0) is None
    assert "had replaced it" in str(register.read("a", 5, 6.0, 7.0))


def test_a_refused_commit_is_never_read() -> None:
    register = OffsetRegister()
    register.refuse(register.begin("a", 5, 1.0), "ILLEGAL_GENERATION")
    assert "ILLEGAL_GENERATION" in str(register.read("a", 5, 2.0, 3.0))
    assert "no client committed" in str(register.read("x", 1, 2.0, 3.0))


def oracle() -> GroupOracle:
    return GroupOracle(lambda: 1.0)


def test_one_owner_in_each_generation() -> None:
    watched = oracle()
    watched.assigned("g", 1, "m1", [IN])
    watched.assigned("g", 2, "m2", [IN])
    watched.assigned("g", 1, "m1", [IN])
    assert not watched.violations
    watched.assigned("g", 2, "m1", [IN])
    assert watched.violations[0].rule == "C4"


def shown(watched: GroupOracle, name: str, *, asked: bool, committed: bool | None) -> None:
    value = f"in/0/7={name}".encode()
    transaction = watched.begin_transaction(name, "id", "1/0")
    transaction.values[value] = OUT
    transaction.asked_to_commit = asked
    if committed is not None:
        watched.ended(transaction, committed=committed)
    watched.saw("g", OUT, 3, 0, value)


def test_a_committed_transaction_is_shown() -> None:
    watched = oracle()
    shown(watched, "a", asked=True, committed=True)
    watched.check_end("g", {})
    assert not watched.violations


def test_nobody_is_shown_what_nobody_asked_to_commit() -> None:
    watched = oracle()
    shown(watched, "a", asked=False, committed=None)
    assert "no client asked to commit" in watched.violations[0].what


def test_nobody_is_shown_what_was_aborted() -> None:
    watched = oracle()
    shown(watched, "a", asked=True, committed=False)
    assert any("aborted" in violation.what for violation in watched.violations)


def test_an_input_has_one_output() -> None:
    watched = oracle()
    shown(watched, "a", asked=True, committed=True)
    shown(watched, "b", asked=True, committed=True)
    assert "processed twice" in watched.violations[0].what


def test_a_transaction_is_shown_as_a_whole_and_every_input_has_an_output() -> None:
    watched = oracle()
    shown(watched, "a", asked=True, committed=True)
    watched.transactions["a"].values[b"in/0/8=a"] = OUT
    watched.check_end("g", {IN: 8})
    assert [violation.what.split(",")[0] for violation in watched.violations] == [
        "committed",
        "offset 0 and 6 more have no output",
    ]


def test_a_producer_with_an_heir_gets_nothing_done() -> None:
    watched = oracle()
    watched.initialized("id", "1/0", "old")
    watched.check_fenced("id", "old", 2.0, "EndTxn", "1/0", TRANSACTIONS)
    watched.initialized("id", "1/1", "new")
    watched.check_fenced("id", "old", 0.5, "EndTxn", "1/0", TRANSACTIONS)  # begun before
    assert not watched.violations
    watched.check_fenced("id", "old", 2.0, "EndTxn", "1/0", TRANSACTIONS)
    assert "though new had taken over" in watched.violations[0].what


def test_a_loss_excuses_the_transactions_that_lay_there_and_no_other() -> None:
    watched = oracle()
    for name, offset in (("a", 3), ("b", 9)):
        value = f"in/0/{offset}={name}".encode()
        transaction = watched.begin_transaction(name, "id", "1/0")
        transaction.values[value] = OUT
        watched.placed(transaction, [value], offset, 0)
    watched.read_up_to[OUT] = 20
    watched.excuse(OUT, RecordedLoss(first=5, end=10, epoch=1))
    watched.saw("g", OUT, 9, 0, b"in/0/9=b")
    assert not watched.violations
    watched.saw("g", OUT, 3, 0, b"in/0/3=a")
    assert "no client asked to commit" in watched.violations[0].what


def test_a_loss_of_inputs_excuses_only_those() -> None:
    watched = oracle()
    watched.excuse(IN, RecordedLoss(first=8, end=10, epoch=1))
    shown(watched, "a", asked=True, committed=True)
    shown(watched, "b", asked=True, committed=True)
    assert "processed twice" in watched.violations[0].what


def test_a_loss_of_decisions_excuses_what_readers_had_not_passed_and_epochs_that_come_again() -> (
    None
):
    watched = oracle()
    watched.decided_epoch(1, 4)
    watched.excuse(TRANSACTIONS, RecordedLoss(first=5, end=10, epoch=1))
    assert watched.begin_transaction("a", "id", "1/4").may_be_partial
    assert not watched.begin_transaction("b", "id", "1/5").may_be_partial


def test_a_generation_that_may_come_again_is_excused_and_the_next_is_not() -> None:
    watched = oracle()
    watched.decided_generation("g", 3)
    watched.excuse(OFFSETS, RecordedLoss(first=5, end=10, epoch=1))
    for generation in (3, 4):
        watched.assigned("g", generation, "m1", [IN])
        assert not watched.violations
        watched.assigned("g", generation, "m2", [IN])
    assert "generation 4" in watched.violations[0].what


def test_after_a_loss_an_older_commit_may_be_read_unless_what_replaced_it_lies_below() -> None:
    register = OffsetRegister()
    register.done(register.begin("a", 5, 1.0), 2.0, below=3)
    register.done(register.begin("b", 6, 3.0), 4.0, below=4)
    register.done(register.begin("c", 7, 5.0), 6.0, below=8)
    register.lost(7.0, first=6)
    assert register.read("c", 7, 8.0, 9.0) is None
    assert register.read("b", 6, 8.0, 9.0) is None
    assert "had replaced it" in str(register.read("a", 5, 8.0, 9.0))
    register.done(register.begin("d", 8, 10.0), 11.0, below=9)
    assert "had replaced it" in str(register.read("b", 6, 12.0, 13.0))


def test_a_failure_says_who_answered_what_replaced_the_value_and_only_what_concerns_it() -> None:
    clock = iter(range(1, 1000))
    oracle = GroupOracle(lambda: float(next(clock)), standing=lambda at: f"n3 says {at} leader")
    for place in (PLACE, ("other", IN), ("g", TopicPartition("in", 1))):
        for name in ("a", "b"):
            oracle.committed(place, oracle.begin_commit(place, name, 5))
    oracle.assigned("g", 1, "m", [IN])
    oracle.note("txn-1: p is producer 7/0", "txn-1")
    oracle.note("controller: __consumer_offsets-0 leader 3", "__consumer_offsets-0")
    oracle.read(PLACE, "a", 5, begun=900.0, by="n2")
    (violation,) = oracle.violations
    assert "'b' had replaced it" in violation.what
    assert violation.what.endswith(
        "n2 answered as coordinator; n3 says __consumer_offsets-0 leader"
    )
    assert [line.partition(" ")[2] for line in violation.history] == [
        "g, in-0: 5 is committed (a)",
        "g, in-0: 5 is committed (b)",
        "g: m has in-0 in generation 1",
        "controller: __consumer_offsets-0 leader 3",
        "g, in-0: read 5 (a) from n2",
    ]


def test_a_failure_of_a_transaction_tells_of_its_transactional_id() -> None:
    oracle = GroupOracle(lambda: 1.0)
    for name in ("x", "y"):
        transaction = oracle.begin_transaction(name, f"txn-{name}", "7/0")
        transaction.values[f"in/0/0={name}".encode()] = OUT
        oracle.ended(transaction, committed=False)
    oracle.saw("g", OUT, 0, 0, b"in/0/0=x")
    assert [line.partition(" ")[2] for line in oracle.violations[-1].history] == [
        "transaction x of txn-x (producer 7/0) is aborted"
    ]
