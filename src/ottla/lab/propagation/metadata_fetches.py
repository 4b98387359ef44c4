"""Counts the fetches with which controllers and brokers of the product learn decisions, by their cause.

A quiet quorum fetches too: its active controller writes a no-op record twice a second. So the number of fetches says little
about one decision. What counts is what the answer brings: the records of decisions, or the high watermark that commits them.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace
from struct import Struct

from ottla.metadata.records import NoOpRecord, decode
from ottla.records.batch import Batch, batches
from ottla.records.record import records as records_of
from ottla.runtime import Network, Runtime
from ottla.sim.cluster.nodes import CONTROLLER_PORT
from ottla.sim.engine.watched_connection import WatchedConnection, WatchedNetwork
from ottla.wire import fetch
from ottla.wire.apis import ApiKey
from ottla.wire.headers import read_response_header

API_AND_VERSION = Struct(">hh")


class MetadataFetches:
    """How many fetches brought each host something of a decision."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._uncommitted: dict[str, int] = {}
        """Host → the end of the decisions that it has, and of which it does not know that they are committed."""

    def counted(self, name: str, runtime: Runtime) -> Runtime:
        return replace(runtime, network=FollowingNetwork(self, name, runtime.network))

    def answered(self, host: str, decided_end: int | None, high_watermark: int) -> None:
        """A fetch of this host was answered, with decisions up to that offset or with none."""
        if decided_end is not None:
            self._uncommitted[host] = decided_end
        end = self._uncommitted.get(host)
        commits = end is not None and high_watermark >= end
        if commits:
            del self._uncommitted[host]
        self.counts[host] += decided_end is not None or commits


def decisions_end(data: memoryview) -> int | None:
    """The offset after the last decision in this piece of the metadata log. None if there is none."""
    ends = [batch.last_offset + 1 for batch in batches(data) if _has_decision(data, batch)]
    return max(ends, default=None)


def _has_decision(data: memoryview, batch: Batch) -> bool:
    return not batch.is_control and any(
        not isinstance(decode(record.value or b""), NoOpRecord)
        for record in records_of(data, batch)
    )


class FollowingConnection(WatchedConnection):
    """A connection to a controller. Its fetches are answered in their order, among the answers to other requests."""

    def __init__(self, fetches: MetadataFetches, client: str) -> None:
        self._fetches = fetches
        self._client = client
        self._outstanding: deque[tuple[int, int]] = deque()
        """Api keys and versions."""

    def request_sent(self, frame: bytes) -> None:
        self._outstanding.append(API_AND_VERSION.unpack_from(frame))
        super().request_sent(frame)

    def frame_received(self, frame: memoryview) -> None:
        api, version = self._outstanding.popleft()
        if api == ApiKey.FETCH:
            self._read(version, frame)
        super().frame_received(frame)

    def _read(self, version: int, frame: memoryview) -> None:
        _, body = read_response_header(ApiKey.FETCH, version, frame)
        for answer in fetch.read_response(version, frame, body).partitions:
            if not answer.error:
                data = answer.records
                assert data is None or isinstance(data, memoryview)
                end = None if data is None else decisions_end(data)
                self._fetches.answered(self._client, end, answer.high_watermark)


class FollowingNetwork(WatchedNetwork):
    def __init__(self, fetches: MetadataFetches, name: str, network: Network) -> None:
        super().__init__(network)
        self._fetches = fetches
        self._name = name

    def watch(self, host: str, port: int) -> FollowingConnection | None:
        return FollowingConnection(self._fetches, self._name) if port == CONTROLLER_PORT else None
