"""Events reach whoever subscribes, at once and in order, and cost nothing where nobody does."""

from __future__ import annotations

from ottla.events import Event, Events


class Happened(Event):
    number: int


def test_a_subscriber_hears_every_event_at_once_and_in_order() -> None:
    events, heard = Events(), list[Event]()
    events.subscribe(heard.append)
    for number in range(3):
        events.emit(Happened(number))
        assert heard[-1] == Happened(number)
    assert heard == [Happened(0), Happened(1), Happened(2)]


class Other(Event):
    number: int


class Special(Happened):
    pass


def test_a_subscriber_to_some_kinds_hears_those_and_no_others() -> None:
    events, heard = Events(), list[Event]()
    events.subscribe(heard.append, Happened)
    assert Happened in events and Other not in events and Special not in events
    for event in (Other(1), Happened(2), Special(3)):
        events.emit(event)
    assert heard == [Happened(2)]


def test_a_subscriber_to_everything_makes_every_kind_wanted() -> None:
    events, heard = Events(), list[Event]()
    events.subscribe(heard.append)
    assert Happened in events and Other in events


def test_without_subscribers_there_is_nothing_to_emit_for() -> None:
    events, heard, others = Events(), list[Event](), list[Event]()
    assert Happened not in events
    events.subscribe(heard.append)
    events.subscribe(heard.append, Happened)
    events.subscribe(others.append, Other)
    assert Happened in events
    events.unsubscribe(heard.append)
    assert Happened not in events and Other in events
    events.emit(Happened(0))
    assert heard == [] == others
