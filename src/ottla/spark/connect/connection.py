"""One blocking connection to a broker, for tasks and planners of Spark, which have no event loop.

Requests may be pipelined: `send` several, then `receive` their answers in order. A large answer is read straight into a
buffer that the caller owns, so that a fetch costs no copy and no allocation.
"""

from __future__ import annotations

import re
import socket
from collections import deque
from collections.abc import Mapping
from struct import Struct
from typing import Any, Final, NamedTuple

import ottla
from ottla.client.connections import Address, check
from ottla.client.security import Security
from ottla.spark.connect.secured import security_of
from ottla.spark.errors import OptionError
from ottla.spark.options import KAFKA, Options
from ottla.wire import messages
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.errors import ErrorCode, InvalidFrame, KafkaError
from ottla.wire.headers import read_response_header, request_frame

CONNECT_TIMEOUT_S: Final = 5.0
_SIZE: Final = Struct(">i")
_CORRELATION_ID_MAX: Final = 2**31 - 1
_FRAME_BYTES_MAX: Final = 1 << 30


class ConnectionOptions(NamedTuple):
    """How brokers are talked to; the same in the driver and in every task."""

    bootstrap: tuple[Address, ...]
    client_id: str
    request_timeout_s: float
    api_timeout_s: float
    """How long a transient error is retried."""
    retry_backoff_s: float
    receive_buffer_bytes: int
    """-1: the system's default."""
    security: Security

    @classmethod
    def of(cls, options: Options) -> ConnectionOptions:
        def seconds(name: str, default_ms: int) -> float:
            return options.number(KAFKA + name, default_ms, least=0) / 1000

        return cls(
            bootstrap=_bootstrap(options),
            client_id=options.text(KAFKA + "client.id") or "ottla-spark",
            request_timeout_s=seconds("request.timeout.ms", 30_000),
            api_timeout_s=seconds("default.api.timeout.ms", 60_000),
            retry_backoff_s=seconds("retry.backoff.ms", 100),
            receive_buffer_bytes=options.number(KAFKA + "receive.buffer.bytes", -1, least=-1),
            security=security_of(options),
        )


def _bootstrap(options: Options) -> tuple[Address, ...]:
    name = KAFKA + "bootstrap.servers"
    addresses = []
    for part in (options.text(name) or "").split(","):
        if not part.strip():
            continue
        # As Kafka's clients, with or without a protocol in front and brackets around an IPv6 address.
        match = re.fullmatch(r"(?:\w+://)?\[?([0-9A-Za-z\-%._:]+?)\]?:(\d{1,5})", part.strip())
        if match is None or not 0 < int(match[2]) < 1 << 16:
            raise OptionError(name, f"'{part.strip()}' is no address such as host:9092")
        addresses.append((match[1], int(match[2])))
    if not addresses:
        raise OptionError(name, "is missing: it names one or more brokers, such as host:9092")
    return tuple(addresses)


class Answer(NamedTuple):
    frame: memoryview
    body: int
    """Where it begins in the frame."""
    version: int


class _Asked(NamedTuple):
    key: int
    version: int
    correlation_id: int


class BrokerConnection:
    """OSError if nobody answers there. After any error it is closed."""

    def __init__(self, address: Address, options: ConnectionOptions) -> None:
        self.address = address
        self.closed = False
        self.versions: dict[int, tuple[int, int]] = {}
        self._client_id = options.client_id
        self._asked: deque[_Asked] = deque()
        self._next_correlation_id = 0
        timeout_s = min(CONNECT_TIMEOUT_S, options.request_timeout_s)
        plain = socket.create_connection(address, timeout=timeout_s)
        self._socket: socket.socket = plain
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if options.receive_buffer_bytes > 0:
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer_bytes)
            self._socket = options.security.encrypted(plain, address[0])
            self._negotiate()
            options.security.authenticate(self._exchange)
            self._socket.settimeout(options.request_timeout_s)
        except BaseException:
            self.close()
            raise

    @property
    def idle(self) -> bool:
        """Every request has been answered."""
        return not self._asked

    def close(self) -> None:
        self.closed = True
        self._socket.close()

    def version_for(self, key: int, *, most: int | None = None) -> int:
        """The newest version that both sides speak."""
        ours = APIS[ApiKey(key)]
        lowest, highest = self.versions.get(key, (0, -1))
        version = min(highest, ours.max_version if most is None else most)
        if version < max(lowest, ours.min_version):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{self._where()} does not speak {ours.name} {ours.min_version}-{ours.max_version}",
            )
        return version

    def request(self, key: int, fields: Mapping[str, Any], *, most: int | None = None) -> Any:
        """One request and its answer as a message. `most` is the newest version to use."""
        self.ask(key, fields, most=most)
        return self.answer()

    def ask(self, key: int, fields: Mapping[str, Any], *, most: int | None = None) -> None:
        version = self.version_for(key, most=most)
        self.send(key, version, messages.write_request(key, version, fields))

    def answer(self) -> Any:
        """To the oldest request without one, as a message."""
        key = self._asked[0].key
        frame, body, version = self.receive()
        return messages.read_response(key, version, frame, body)

    def send(self, key: int, version: int, body: bytes) -> None:
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & _CORRELATION_ID_MAX
        try:
            self._socket.sendall(request_frame(key, version, correlation_id, self._client_id, body))
        except BaseException:
            self.close()
            raise
        self._asked.append(_Asked(key, version, correlation_id))

    def receive(self, into: bytearray | None = None) -> Answer:
        """The answer to the oldest request without one. It lies in `into` if that is large enough, else in a
        buffer of its own (`frame.obj` in both cases)."""
        asked = self._asked.popleft()
        try:
            frame = self._receive_frame(bytearray() if into is None else into)
            correlation_id, body = read_response_header(asked.key, asked.version, frame)
            if correlation_id != asked.correlation_id:
                raise InvalidFrame(f"answer {correlation_id} to request {asked.correlation_id}")
        except InvalidFrame as error:
            self.close()
            raise ConnectionError(f"{self._where()}: {error}") from error
        except BaseException:
            self.close()
            raise
        return Answer(frame, body, asked.version)

    def _receive_frame(self, buffer: bytearray) -> memoryview:
        size_bytes = bytearray(_SIZE.size)
        self._receive_exactly(memoryview(size_bytes))
        (size,) = _SIZE.unpack(size_bytes)
        if not 0 < size <= _FRAME_BYTES_MAX:
            raise InvalidFrame(f"an answer of {size} bytes")
        frame = memoryview(buffer if len(buffer) >= size else bytearray(size))[:size]
        self._receive_exactly(frame)
        return frame

    def _receive_exactly(self, into: memoryview) -> None:
        done = 0
        while done < len(into):
            count = self._socket.recv_into(into[done:])
            if count == 0:
                raise ConnectionError(f"{self._where()} closed the connection")
            done += count

    def _exchange(self, frame: bytes) -> bytes:
        """Send raw bytes and return the raw answer: for authentication, which precedes ordinary requests."""
        self._socket.sendall(_SIZE.pack(len(frame)) + frame)
        return bytes(self._receive_frame(bytearray()))

    def _negotiate(self) -> None:
        newest = APIS[ApiKey.API_VERSIONS].max_version
        answer = self._api_versions(newest)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            known = {each.api_key: each.max_version for each in answer.api_keys}
            answer = self._api_versions(min(newest - 1, known.get(ApiKey.API_VERSIONS, 0)))
        check(answer.error_code, f"{self._where()} refused ApiVersions")
        self.versions = {
            each.api_key: (each.min_version, each.max_version) for each in answer.api_keys
        }

    def _api_versions(self, version: int) -> Any:
        fields = {
            "client_software_name": "ottla-spark",
            "client_software_version": ottla.__version__,
        }
        body = messages.write_request(ApiKey.API_VERSIONS, version, fields)
        self.send(ApiKey.API_VERSIONS, version, body)
        frame, start, _ = self.receive()
        # A version that the other side does not know is answered in version 0.
        refused = bytes(frame[start : start + 2]) == b"\x00\x23"
        return messages.read_response(ApiKey.API_VERSIONS, 0 if refused else version, frame, start)

    def _where(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"
