"""What a user without rights may learn from answers: nothing but the names that it asked for."""

from __future__ import annotations

import pytest

from ottla.sim.clients.snoop import HiddenNames, shape, tells_apart

NAMES = HiddenNames("in", "processors", "p1")


@pytest.mark.parametrize(
    ("there", "absent", "told"),
    [
        (b"\x02in\0\x1d", b"\x02i-\0\x1d", False),
        (b"\x02in\0\0", b"\x02i-\0\x03", True),
        (b"\x02in\0\0\0", b"\x02i-\0\0", True),
        (b"not in here", b"not in here", False),
        (b"\x02p1 denied", b"\x02p- denied", False),
        (b"\x02on", b"\x02o-", True),
        (b"", b"", False),
    ],
)
def test_answers_may_differ_in_the_names_that_were_asked_for_only(
    there: bytes, absent: bytes, told: bool
) -> None:
    assert tells_apart(there, absent, NAMES) is told


def test_names_that_nobody_has_are_as_long() -> None:
    absent = NAMES.absent()
    assert [len(each) for each in absent] == [len(each) for each in NAMES]
    assert not set(absent) & set(NAMES)


def test_a_challenge_shows_lengths_and_iterations() -> None:
    one, other = shape(b"r=abc,s=QUJD,i=4096"), shape(b"r=xyz,s=REVG,i=4096")
    assert one == other
    assert shape(b"r=abc,s=QUJD,i=8192") != one
    assert shape(b"r=abc,s=QUJDRA==,i=4096") != one
