"""Leaders, ISRs and brokers as they were: the entries of the event log undone, the newest first.

An entry says what was before it, or leaves it to be inferred: an epoch is one more than the one before, a leader that was not
in sync when it was elected was not in the ISR before. Topics that were deleted since are not known. A partition did not exist
before its first leader began.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.console.model.rows import BrokerRow, BrokerStanding, EventRow, PartitionRow, Place

FROM_OUTSIDE = ("elr", "last_known_leader", "unclean")
"""How a leader is elected that is not in the ISR."""
BEGINS = ("started", "changed")
CHANGES = ("election", "offline", "isr_shrink", "isr_expand")


class Past(NamedTuple):
    """A cluster at one moment."""

    at_ms: int
    partitions: dict[Place, PartitionRow]
    brokers: dict[int, BrokerRow]
    controller: int | None
    """None: unknown."""


def rewind(
    partitions: Mapping[Place, PartitionRow],
    brokers: Mapping[int, BrokerRow],
    controller: int | None,
    events: Iterable[EventRow],
    at_ms: int,
) -> Past:
    """As it was at this time. `events`: in the order of the log, up to now, at least all since then."""
    past = Past(at_ms, dict(partitions), dict(brokers), controller)
    # The order of the log is the order of decisions: it counts where clocks differ.
    earlier: list[EventRow] = []
    later: list[EventRow] = []
    for event in events:
        (later if event.at_ms > at_ms else earlier).append(event)
    under_way = _replicas_under_way([*earlier, *later])
    for event in reversed(later):
        try:
            past = _undone(past, event, under_way)
        except (KeyError, TypeError, ValueError):
            continue  # a bad entry must not hide what the others say
    return _with_reasons(past, earlier, later)


def _replicas_under_way(events: Iterable[EventRow]) -> dict[str, tuple[int, ...]]:
    """By the end of a reassignment: all replicas that the partition had until then, from the step before."""
    moving: dict[str | None, tuple[int, ...]] = {}
    found = {}
    for event in events:
        if event.kind == "reassignment":
            if event.fields.get("step") in BEGINS:
                with contextlib.suppress(KeyError, TypeError):
                    moving[event.partition] = event.ids("replicas")
            elif event.partition in moving:
                found[event.id] = moving.pop(event.partition)
    return found


def _undone(past: Past, event: EventRow, under_way: Mapping[str, tuple[int, ...]]) -> Past:
    fields = event.fields
    if event.kind == "controller_change":
        return past._replace(controller=None)
    if event.kind in ("fenced", "unfenced"):
        broker = None if event.broker is None else past.brokers.get(event.broker)
        if broker is not None:
            was = BrokerStanding.UP if event.kind == "fenced" else BrokerStanding.FENCED
            past.brokers[broker.id] = broker._replace(standing=was, since_ms=0, cause=None)
        return past
    place = event.place
    row = None if place is None else past.partitions.get(place)
    if place is None or row is None:
        return past
    if event.kind == "leader_start" and fields["leader_epoch"] == 0:
        del past.partitions[place]
    elif event.kind == "reassignment" and event.id in under_way:
        past.partitions[place] = row._replace(replicas=under_way[event.id])
    else:
        past.partitions[place] = before(row, event)
    return past


def before(row: PartitionRow, event: EventRow) -> PartitionRow:
    """A partition before an entry about it."""
    fields = event.fields
    if event.kind in ("election", "offline"):
        isr = row.isr
        if fields.get("how") in FROM_OUTSIDE:
            isr = tuple(id for id in isr if id != fields["leader"])
        return row._replace(
            leader=event.number("previous_leader"), epoch=event.number("leader_epoch") - 1, isr=isr
        )
    if event.kind in ("isr_shrink", "isr_expand"):
        return row._replace(isr=event.ids("previous_isr"))
    if event.kind == "reassignment" and fields["step"] in BEGINS:
        adding = event.ids("adding")
        return row._replace(replicas=tuple(id for id in event.ids("replicas") if id not in adding))
    return row


def _with_reasons(past: Past, earlier: list[EventRow], later: list[EventRow]) -> Past:
    """Since when it had been so, and why, from the last entry before. Only what was undone needs that."""
    places = {event.place for event in later if event.place is not None and event.kind in CHANGES}
    brokers = {event.broker for event in later if event.kind in ("fenced", "unfenced")}
    controller = past.controller
    for event in reversed(earlier):
        if not places and not brokers and controller is not None:
            break
        if event.kind in CHANGES and event.place in places:
            places.discard(event.place)
            _note(past, event.place, event.at_ms, event.cause)
        elif event.kind in ("fenced", "unfenced") and event.broker in brokers:
            brokers.discard(event.broker)
            if event.broker is not None and (row := past.brokers.get(event.broker)) is not None:
                cause = event.cause if event.kind == "fenced" else None
                past.brokers[row.id] = row._replace(since_ms=event.at_ms, cause=cause)
        elif event.kind == "controller_change" and controller is None:
            with contextlib.suppress(KeyError, TypeError):
                controller = event.number("controller")
    for place in places:
        _note(past, place, 0, None)
    return past._replace(controller=controller)


def _note(past: Past, place: Place | None, at_ms: int, cause: str | None) -> None:
    if place is not None and (row := past.partitions.get(place)) is not None:
        past.partitions[place] = row._replace(since_ms=at_ms, cause=cause)
