"""Ranges become tasks: all offsets once, not too large, balanced."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.spark.read.splits import Range, split


def ranges(*sizes: int) -> list[Range]:
    return [Range("t", None, i, 10, 10 + size) for i, size in enumerate(sizes)]


def sizes(pieces: list[Range]) -> list[tuple[int, int]]:
    return [(piece.partition, piece.size) for piece in pieces]


def test_one_task_per_partition_unless_asked_otherwise() -> None:
    assert split(ranges(5, 0, 7), at_least=None, most_records=None) == [
        Range("t", None, 0, 10, 15),
        Range("t", None, 2, 10, 17),
    ]


def test_a_skewed_partition_is_cut_into_more_pieces_than_others() -> None:
    pieces = split(ranges(10, 90), at_least=10, most_records=None)
    assert sizes(pieces) == [(0, 10)] + [(1, 10)] * 9


def test_no_piece_has_more_records_than_allowed() -> None:
    pieces = split(ranges(10, 25), at_least=None, most_records=10)
    assert sizes(pieces) == [(0, 10), (1, 8), (1, 8), (1, 9)]


def test_enough_pieces_are_left_as_they_are() -> None:
    assert split(ranges(5, 7), at_least=2, most_records=None) == ranges(5, 7)


@given(
    st.lists(st.integers(0, 60), max_size=5),
    st.one_of(st.none(), st.integers(1, 40)),
    st.one_of(st.none(), st.integers(1, 20)),
)
def test_every_offset_is_read_once(
    lengths: list[int], at_least: int | None, most_records: int | None
) -> None:
    wanted = ranges(*lengths)
    pieces = split(wanted, at_least=at_least, most_records=most_records)
    read = [(each.partition, offset) for each in pieces for offset in range(each.start, each.end)]
    assert read == [(e.partition, offset) for e in wanted for offset in range(e.start, e.end)]
    assert all(piece.size > 0 for piece in pieces)
    if most_records is not None:
        assert all(piece.size <= most_records for piece in pieces)
    if at_least is not None:
        assert len(pieces) >= min(at_least, sum(lengths))
