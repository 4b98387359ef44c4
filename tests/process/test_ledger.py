"""The oracle itself: an empty report must mean something."""

from __future__ import annotations

import pytest

from ottla.records.record import Record, build
from support.ledger import compare

ACKNOWLEDGED = {0: (0, 0), 1: (1, 0), 2: (0, 1), 3: (1, None), 4: (0, 2)}
GOOD = {0: [(0, b"0"), (1, b"2"), (2, b"4")], 1: [(0, b"1"), (1, b"3")]}


def test_a_topic_that_holds_what_was_acknowledged_is_clean() -> None:
    compare(ACKNOWLEDGED, GOOD).assert_clean()


def test_a_value_whose_acknowledgement_was_lost_may_be_there() -> None:
    compare(ACKNOWLEDGED, {**GOOD, 1: [*GOOD[1], (2, b"5")]}).assert_clean()


@pytest.mark.parametrize(
    ("problem", "partition", "records"),
    [
        ("lost", 0, [(0, b"0"), (1, b"2")]),
        ("lost", 1, [(0, b"1")]),
        ("doubled", 1, [(0, b"1"), (1, b"3"), (2, b"3")]),
        ("doubled", 1, [(0, b"1"), (1, b"3"), (2, b"4")]),
        ("moved", 0, [(0, b"0"), (1, b"2"), (3, b"4")]),
        ("reordered", 1, [(0, b"1"), (1, b"5"), (2, b"3")]),
    ],
)
def test_each_problem_is_found(
    problem: str, partition: int, records: list[tuple[int, bytes]]
) -> None:
    report = compare(ACKNOWLEDGED, {**GOOD, partition: records})
    found = {name for name in ("lost", "doubled", "reordered", "moved") if getattr(report, name)}
    assert found == {problem}
    with pytest.raises(AssertionError, match=problem):
        report.assert_clean()


@pytest.mark.parametrize(
    ("second", "problems"),
    [((7, 4), set()), ((7, 3), {"doubled"}), ((7, 2), {"doubled"}), ((8, 4), {"doubled"})],
)
def test_only_what_a_producer_wrote_anew_in_a_higher_epoch_of_its_own_is_its_own_doing(
    second: tuple[int, int], problems: set[str]
) -> None:
    def log_of(_partition: int) -> bytes:
        log = b""
        for offset, (producer, epoch) in enumerate([(7, 3), (7, 3), second]):
            record = Record(offset, 0, value=b"")
            log += build([record], base_offset=offset, producer_id=producer, producer_epoch=epoch)
        return log

    read = {0: GOOD[0], 1: [(0, b"1"), (1, b"3"), (2, b"3")]}
    report = compare({**ACKNOWLEDGED, 3: (1, 2)}, read, log_of)
    assert {
        name for name in ("lost", "doubled", "reordered", "moved") if getattr(report, name)
    } == problems
    assert report.sent_again == (not problems)
