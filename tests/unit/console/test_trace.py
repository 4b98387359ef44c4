"""A trace of the simulator, as steps of one partition."""

from __future__ import annotations

from ottla.console.model.trace import (
    PARTS_MAX,
    REPLICAS_MAX,
    SPANS_MAX,
    EpochSpan,
    partitions_in,
    steps_of,
)

TRACE = """
1000.000000 start n1 1
1000.110000 controller: in-0 leader 1 epoch 0/0 ISR [1, 2] ELR [] last known []
1000.120000 node 1: in-0 leader epoch 0 start 0 HW 0 LEO 5 ISR [1, 2]
1000.130000 node 2: in-0 follower epoch 0 start 0 HW 0 LEO 5 ISR [1, 2]
1000.140000 node 2: other-3 follower epoch 0 start 0 HW 0 LEO 9 ISR [1, 2]
1000.150000 node 1: in-0 leader epoch 0 start 0 HW 5 LEO 8 ISR [1, 2]
1000.160000 node 1: __cluster_metadata-0 Leader epoch 1 leader 1 voted for 1 HW 10 LEO 10
1001.000000 nemesis: kills node 1
1001.000001 kill n1 1
1001.100000 controller: in-0 leader 2 epoch 1/1 ISR [2] ELR [] last known []
1001.200000 node 2: in-0 leader epoch 1 start 0 HW 5 LEO 7 ISR [2]
1002.000000 node 1: in-0 follower epoch 1 start 0 HW 5 LEO 8 ISR [2]
1002.100000 node 1: in-0 follower epoch 1 start 0 HW 5 LEO 5 ISR [2]
1002.200000 node 1: in-0 follower epoch 1 start 0 HW 7 LEO 7 ISR [2]
""".strip().splitlines()


def test_the_partitions_of_a_trace_are_found() -> None:
    assert partitions_in(TRACE) == {"in-0": 9, "other-3": 1}


def test_each_step_has_all_replicas_as_they_are_after_it() -> None:
    steps = steps_of(TRACE, "in-0").steps
    assert steps[0].what == "The controller decides: broker 1 leads, epoch 0, ISR 1, 2."
    assert steps[0].at_s == 0.11
    last = {each.broker: each for each in steps[-1].replicas}
    # A follower that truncated has the new leader's records behind the old ones.
    assert last[1].spans == last[2].spans == (EpochSpan(0, 0, 5), EpochSpan(1, 5, 7))
    assert steps[-1].what == "Broker 1 copies up to 7."
    assert steps[-2].what == "Broker 1 truncates its log from 8 to 5."


def test_a_dead_broker_is_down_until_it_opens_its_log_again() -> None:
    steps = steps_of(TRACE, "in-0").steps
    ends = next(at for at, step in enumerate(steps) if step.what == "Broker 1 ends.")
    assert {each.broker: each.role for each in steps[ends].replicas} == {1: "down", 2: "follower"}
    assert steps[ends - 1].what == "The nemesis kills node 1."
    back = next(step for step in steps[ends:] if step.what.startswith("Broker 1 has the log"))
    assert {each.broker: each.role for each in back.replicas}[1] == "follower"


def test_what_was_committed_and_is_cut_off_is_lost_and_what_was_not_is_not() -> None:
    assert all(step.lost is None for step in steps_of(TRACE, "in-0").steps)
    unclean = [line.replace("HW 5 LEO 8 ISR [2]", "HW 7 LEO 8 ISR [2]") for line in TRACE]
    lost = [step.lost for step in steps_of(unclean, "in-0").steps if step.lost]
    assert lost == [(5, 7)]


def test_what_is_no_trace_has_no_partitions() -> None:
    assert partitions_in(["hello", "", "1.0 nonsense", "\x00\xff"]) == {}
    assert steps_of(["hello"], "in-0").steps == ()


def told_of(node: int, epoch: int, end: int) -> str:
    return f"1.0 node {node}: in-0 leader epoch {epoch} start 0 HW 0 LEO {end} ISR [{node}]"


def test_a_small_trace_of_many_replicas_and_epochs_does_not_become_a_huge_one() -> None:
    """Each step tells all replicas and their epochs: what is kept grew with the square of the file."""
    nodes = steps_of([told_of(node, 1, 1) for node in range(3_000)], "in-0")
    assert len(nodes.steps[-1].replicas) == REPLICAS_MAX
    epochs = steps_of([told_of(1, epoch, epoch) for epoch in range(1, 20_000)], "in-0")
    assert [len(each.spans) for each in epochs.steps[-1].replicas] == [SPANS_MAX]
    assert sum(1 + len(r.spans) for step in epochs.steps for r in step.replicas) <= PARTS_MAX
    assert len(epochs.steps) + epochs.left_out == 19_999


def test_numbers_of_thousands_of_digits_are_no_trace() -> None:
    digits = "9" * 5_000
    assert steps_of([told_of(1, 1, 1).replace("epoch 1", f"epoch {digits}")], "in-0").steps == ()
    assert steps_of([f"{digits}.0 node 1: in-0"], "in-0").steps == ()
