"""Bugs of the event log's writer."""

from __future__ import annotations

import json

from ottla.broker.observability.event_log import EventLogWriter
from ottla.events import Event
from ottla.sim.engine.patches import Patch
from ottla.sim.mutations.base import mutation
from ottla.sim.run.profiles import EVENT_LOG


@mutation("own", likely=EVENT_LOG)
def event_log_numbers_an_entry_at_each_try() -> list[Patch]:
    """A writer that got no answer writes its entries again under new ids, so that readers cannot tell the repeat."""
    original = EventLogWriter._write

    async def write(self: EventLogWriter) -> bool:
        done = await original(self)
        if not done:
            for waiting in self._entries:
                self._sequence += 1
                members = json.loads(waiting.value)
                members["id"] = f"{self._node}-{self.incarnation}-{self._sequence}"
                waiting.value = json.dumps(members).encode()
        self._entries_bytes = sum(waiting.size for waiting in self._entries)
        return done

    return [Patch(EventLogWriter, "_write", write)]


@mutation("own", likely=EVENT_LOG)
def event_log_drops_in_silence() -> list[Patch]:
    """Events that do not fit into the queue are dropped, and no entry says so."""

    def drop(self: EventLogWriter, count: int) -> None:
        self.dropped += count

    return [Patch(EventLogWriter, "_drop", drop)]


@mutation("own", likely=EVENT_LOG)
def event_log_queue_has_no_bound() -> list[Patch]:
    """Without a leader of the topic the queue of a writer grows for ever."""

    def happened(self: EventLogWriter, event: Event) -> None:
        self._events.append((self._runtime.clock.wall_ms(), event))
        if self._news is not None:
            self._news.set()

    return [Patch(EventLogWriter, "_happened", happened)]
