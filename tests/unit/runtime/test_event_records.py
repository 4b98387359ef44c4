"""Events are frozen records: positional or named fields, defaults, equality by value."""

from __future__ import annotations

import pytest

from ottla.events import Event


class Opened(Event):
    name: str
    size: int = 0


class OpenedTwice(Opened):
    by: str = ""


def test_fields_are_given_by_place_or_by_name_and_have_defaults() -> None:
    assert Opened("a", 3) == Opened(size=3, name="a")
    assert Opened("a") == Opened("a", 0)
    assert (Opened("a").size, OpenedTwice("a", 1, "me").by) == (0, "me")
    assert repr(Opened("a", 3)) == "Opened(name='a', size=3)"
    assert len({Opened("a"), Opened("a", 0), Opened("b")}) == 2


def test_events_of_two_kinds_are_never_equal() -> None:
    class Closed(Event):
        name: str
        size: int

    assert Opened("a", 1) != Closed("a", 1)


@pytest.mark.parametrize("values", [(), ("a", 1, 2)])
def test_a_missing_or_extra_field_is_an_error(values: tuple[object, ...]) -> None:
    with pytest.raises(AssertionError):
        Opened(*values)  # type: ignore[arg-type]


def test_an_event_does_not_change() -> None:
    with pytest.raises(AttributeError):
        Opened("a").name = "b"  # type: ignore[misc]
