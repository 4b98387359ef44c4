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


def test_without_subscribers_there_is_nothing_to_emit_for() -> None:
    events, heard = Events(), list[Event]()
    assert not events
    events.subscribe(heard.append)
    assert events
    events.unsubscribe(heard.append)
    assert not events
    events.emit(Happened(0))
    assert heard == []
