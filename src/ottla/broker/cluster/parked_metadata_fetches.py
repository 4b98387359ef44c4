"""Fetches of the metadata log that wait at the leader for something new."""

from __future__ import annotations

import asyncio

from ottla.broker.cluster import raft_wire
from ottla.broker.server.connections import Request
from ottla.raft.messages import Fetch, FetchAnswer, Park
from ottla.raft.raft import Raft


class ParkedMetadataFetches:
    def __init__(self, raft: Raft) -> None:
        self._raft = raft
        self._parked: dict[Request, _ParkedMetadataFetch] = {}

    def park(self, request: Request, asked: Fetch, park: Park, now: float) -> None:
        _ParkedMetadataFetch(self._parked, request, asked, park, self._state(), now)

    def serve(self, now: float) -> None:
        """Look again at every parked fetch if anything moved that one could wait for."""
        for parked in list(self._parked.values()):
            if parked.seen != (state := self._state()):
                parked.seen = state
                answer = self._raft.handle_fetch(parked.asked, now)
                if not isinstance(answer, Park):
                    parked.answer(answer)

    def drop_all(self) -> None:
        for parked in list(self._parked.values()):
            parked.drop()

    def _state(self) -> tuple[int, ...]:
        raft = self._raft
        return raft.journal.log_end, raft.high_watermark, raft.epoch, raft.is_leader


class _ParkedMetadataFetch:
    """A metadata fetch that waits for something new."""

    def __init__(
        self,
        parked: dict[Request, _ParkedMetadataFetch],
        request: Request,
        asked: Fetch,
        park: Park,
        seen: tuple[int, ...],
        now: float,
    ) -> None:
        self.asked = asked
        self.seen = seen
        """The state of the log when it was last looked at."""
        self._parked = parked
        self._request = request
        self._empty = park.answer
        parked[request] = self
        request.connection.parked_fetch = self
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(0.0, park.until - now), self.complete)

    def complete(self) -> None:
        """Its time is over, or the same connection asks for something else."""
        self.answer(self._empty)

    def answer(self, answer: FetchAnswer) -> None:
        self.drop()
        self._request.respond_chunks(raft_wire.fetch_chunks(self._request.version, answer))

    def drop(self) -> None:
        self._timer.cancel()
        self._parked.pop(self._request, None)
        if self._request.connection.parked_fetch is self:
            self._request.connection.parked_fetch = None
