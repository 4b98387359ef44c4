"""Counts of everything that the hosts of a simulated cluster send each other: requests, responses and bytes.

A `CountedNetwork` is between a host and its network. It counts what goes through the connections that the host opens, so
each request and each response is counted once, on the side of the client.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ottla.runtime import Network, Runtime
from ottla.sim.engine.watched_connection import SIZE_BYTES, WatchedConnection, WatchedNetwork
from ottla.wire.apis import ApiKey

API_KEY = slice(0, 2)


class Line(NamedTuple):
    """One kind of request, from one host to another."""

    api: str
    """Kafka's name of the request in lower case (`fetch`), or what `kind` says for another protocol."""
    client: str
    server: str
    port: int


class WireProtocol(NamedTuple):
    """What a counter must know of a protocol. Both functions get a frame without its length."""

    request_kind: Callable[[memoryview], str]
    event_kind: Callable[[memoryview], str | None]
    """The kind of a message that a server sends without a request. None: it is the next response."""
    records_in_request: Callable[[str, memoryview], int] = lambda kind, frame: 0
    """How many records a request of that kind carries. Only an experiment that asks for them pays for the decoding."""
    records_in_response: Callable[[str, memoryview], int] = lambda kind, frame: 0
    """The same for the response to a request of that kind."""


def kafka_request_kind(frame: memoryview) -> str:
    """By its api key."""
    return ApiKey(int.from_bytes(frame[API_KEY], "big", signed=True)).name.lower()


KAFKA = WireProtocol(kafka_request_kind, lambda frame: None)


@dataclass
class WireCounts:
    requests: Counter[Line] = field(default_factory=Counter)
    responses: Counter[Line] = field(default_factory=Counter)
    request_bytes: Counter[Line] = field(default_factory=Counter)
    response_bytes: Counter[Line] = field(default_factory=Counter)
    events: Counter[Line] = field(default_factory=Counter)
    """Messages of servers that answer no request."""
    event_bytes: Counter[Line] = field(default_factory=Counter)
    carriers: Counter[Line] = field(default_factory=Counter)
    """Requests and responses in which the protocol found records."""
    records: Counter[Line] = field(default_factory=Counter)
    """In the carriers."""
    protocols: dict[int, WireProtocol] = field(default_factory=dict, kw_only=True)
    """By port. On all other ports it is Kafka's."""

    def counted(self, name: str, runtime: Runtime) -> Runtime:
        """The runtime of the host of that name, with a counter between the host and its network."""
        return replace(runtime, network=CountedNetwork(self, name, runtime.network))

    @property
    def _counters(self) -> tuple[Counter[Line], ...]:
        return (
            self.requests,
            self.responses,
            self.request_bytes,
            self.response_bytes,
            self.events,
            self.event_bytes,
            self.carriers,
            self.records,
        )

    def copy(self) -> WireCounts:
        return WireCounts(*map(Counter, self._counters), protocols=self.protocols)

    def since(self, before: WireCounts) -> WireCounts:
        """What was sent after `before` was copied."""
        both = zip(self._counters, before._counters, strict=True)
        return WireCounts(*(now - then for now, then in both), protocols=self.protocols)

    def where(self, is_wanted: Callable[[Line], bool]) -> WireCounts:
        """Only the lines that are wanted."""
        wanted = (
            Counter({line: n for line, n in counter.items() if is_wanted(line)})
            for counter in self._counters
        )
        return WireCounts(*wanted, protocols=self.protocols)

    def number_of(self, api: str, port: int | None = None) -> int:
        """Requests of that kind, to that port if one is given."""
        return sum(
            count
            for line, count in self.requests.items()
            if line.api == api and port in (None, line.port)
        )

    @property
    def messages(self) -> int:
        return self.requests.total() + self.responses.total() + self.events.total()

    @property
    def bytes(self) -> int:
        sizes = (self.request_bytes, self.response_bytes, self.event_bytes)
        return sum(each.total() for each in sizes)


class CountedConnection(WatchedConnection):
    def __init__(self, counts: WireCounts, client: str, server: str, port: int) -> None:
        self._counts = counts
        self._client, self._server, self._port = client, server, port
        self._protocol = counts.protocols.get(port, KAFKA)
        self._outstanding: deque[Line] = deque()

    def request_sent(self, frame: bytes) -> None:
        content = memoryview(frame)
        line = self._line(self._protocol.request_kind(content))
        self._counts.requests[line] += 1
        self._counts.request_bytes[line] += len(frame) + SIZE_BYTES
        self._count_records(line, self._protocol.records_in_request(line.api, content))
        self._outstanding.append(line)
        super().request_sent(frame)

    def _line(self, kind: str) -> Line:
        return Line(kind, self._client, self._server, self._port)

    def _count_records(self, line: Line, records: int) -> None:
        if records:
            self._counts.carriers[line] += 1
            self._counts.records[line] += records

    def frame_received(self, frame: memoryview) -> None:
        event = self._protocol.event_kind(frame)
        if event is not None:
            line = self._line(event)
            self._counts.events[line] += 1
            self._counts.event_bytes[line] += len(frame) + SIZE_BYTES
        else:
            line = self._outstanding.popleft()
            self._counts.responses[line] += 1
            self._counts.response_bytes[line] += len(frame) + SIZE_BYTES
            self._count_records(line, self._protocol.records_in_response(line.api, frame))
        super().frame_received(frame)


class CountedNetwork(WatchedNetwork):
    def __init__(self, counts: WireCounts, name: str, network: Network) -> None:
        super().__init__(network)
        self._counts = counts
        self._name = name

    def watch(self, host: str, port: int) -> CountedConnection:
        return CountedConnection(self._counts, self._name, host, port)
