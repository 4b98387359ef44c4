"""Asks which records the cluster lost: what its brokers keep aside, and unclean elections whose cost nobody knows yet."""

from __future__ import annotations

import asyncio
from typing import Any

from ottla.client.client import EARLIEST, LATEST
from ottla.client.kept_records import list_kept
from ottla.client.opening import Opening
from ottla.console.model.flow import CLUSTER
from ottla.console.watch.asking import Asking
from ottla.console.watch.polling import LOST, Poll, lacks_right
from ottla.event_log.entry import EntryReader
from ottla.losses.manifest import Manifest
from ottla.losses.merge import merge
from ottla.losses.open_elections import ElectionReader, OpenElection
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.internal_topics import EVENT_LOG_TOPIC

TELLING = (b"election", b"isr_", b"leader_start")
"""What is in every entry that tells of elections and ISRs. All others need not be decoded, and the log has many."""


class LossQuestions:
    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._model = asking.model
        self._kept: dict[int, list[Manifest]] = {}
        """By broker. What a broker told that is down now still holds."""
        self._elections: list[OpenElection] = []
        self._begin_anew()

    def polls(self) -> list[Poll]:
        return [Poll("losses", self._ask_losses, lambda: 10.0, after=self._asking.known)]

    async def _ask_losses(self) -> None:
        if not self._model.cluster[CLUSTER].is_ottla:
            return
        self._kept = {id: kept for id, kept in self._kept.items() if id in self._model.brokers}
        for broker in self._asking.living():
            try:
                self._kept[broker] = await list_kept(self._asking.client, broker)
            except LOST as error:
                if lacks_right(error):
                    self._kept.pop(broker, None)
        self._tell()  # to read a long log for the first time takes a while
        await self._read_elections()
        self._tell()

    def _tell(self) -> None:
        found: list[dict[str, Any]] = [
            loss.as_json() for loss in merge(each for kept in self._kept.values() for each in kept)
        ]
        found += (each.as_json() for each in self._elections)
        self._model.happenings.losses_told(found)

    # Elections

    def _begin_anew(self) -> None:
        self._position: int | None = None
        self._entries = EntryReader()
        self._reader = ElectionReader()

    async def _read_elections(self) -> None:
        """In the whole event log, as `ottla losses` does: an election is open until a former replica returns, however much has
        happened since. The first question reads all of it, the next ones read on."""
        if not self._model.cluster[CLUSTER].has_event_log:
            self._begin_anew()
            self._elections = []
            return
        try:
            await self._read_on()
        except LOST as error:
            # What is known stays, also while nobody can read more.
            if lacks_right(error):
                self._begin_anew()
                self._elections = []
            elif isinstance(error, KafkaError) and error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                self._begin_anew()
        else:
            self._elections = self._reader.open()

    async def _read_on(self) -> None:
        client = self._asking.client
        end = await client.offset(EVENT_LOG_TOPIC, 0, LATEST)
        if self._position is not None and end < self._position:  # it is another log
            self._begin_anew()
        if self._position is None:
            self._position = await client.offset(EVENT_LOG_TOPIC, 0, EARLIEST)
        while self._position < end:
            fetched = await client.fetch(
                EVENT_LOG_TOPIC, 0, self._position, max_wait_ms=0, opening=Opening()
            )
            if fetched.next_offset <= self._position:
                break
            told = (r for r in fetched.records if any(word in (r.value or b"") for word in TELLING))
            for entry in self._entries.entries(told):
                self._reader.take(entry.members())
            self._position = fetched.next_offset
            await asyncio.sleep(0)
