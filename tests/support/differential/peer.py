"""One side of a conversation: a connection to a node, whosever programme it runs, and what the node has named so far."""

from __future__ import annotations

import dataclasses
import datetime
import socket
import time
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final
from uuid import UUID

from ottla.records.record import Record, build
from ottla.wire import messages
from ottla.wire.apis import ApiKey
from ottla.wire.errors import InvalidFrame
from ottla.wire.headers import read_response_header, request_frame
from support.cluster import HOST, receive
from support.differential.controller_stories import Enveloped
from support.differential.conversations import YEAR_2020_MS, At, Step
from support.differential.stories import Batch, Known

ANSWER_S_MAX: Final = 8.0
NAMED: Final = {
    "producer_id": "producer_id",
    "member_id": "member_id",
    "leader": "member_id",
    "session_id": "session_id",
    "cluster_id": "cluster_id",
    "cursor_topic_id": "topic",
    "member_epoch": "group_epoch",  # the first one is 1, or 2
    "group_epoch": "group_epoch",
    "assignment_epoch": "group_epoch",
}
"""Fields of answers whose values a side chooses by itself, and what kind of thing they are. They are compared by the order in which they
came up."""
NAMED_BY_CONTROLLERS: Final = {
    "leader_epoch": "quorum_epoch",
    "broker_epoch": "broker_epoch",
    "producer_id_start": "producer_id",
}
NAMES: Final = (
    "name",
    "topic",
    "topic_name",
    "group_id",
    "transactional_id",
    "resource_name",
    "user",
    "entity_name",
    "partition_index",
)
EMPTY: Final = (None, "", 0, -1, -2)
CLOSED, SILENT, UNREADABLE = (
    "the connection is closed",
    "no answer",
    "an answer that cannot be read",
)


class Side:
    """`tell` takes a step and returns its answer as plain values, in which what this side named itself stands as `#kind 0`."""

    def __init__(self, port: int, at: At = At.BROKER) -> None:
        self._port = port
        self._kinds = NAMED if at is At.BROKER else NAMED | NAMED_BY_CONTROLLERS
        self._inside: Enveloped | None = None
        """The request that was sent in the last envelope."""
        self._connection: socket.socket | None = None
        self._named: dict[str, dict[Any, int]] = {}
        self._topics: dict[str, UUID] = {}
        self._epoch = 0
        """That a producer was told last."""
        self._is_others: Callable[[str], bool] = lambda name: False

    def begin(self, is_others: Callable[[str], bool]) -> None:
        """A new conversation. Topics keep their names and ids. What other conversations left, by their names, is not seen."""
        self.close()
        self._named = {}
        self._epoch = 0
        self._is_others = is_others

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def tell(self, step: Step) -> Any:
        try:
            body = messages.write_request(step.key, step.version, self._filled(step.fields))
            frame = self._exchange(step, body)
        except TimeoutError:
            self.close()
            return SILENT
        except OSError:
            self.close()
            return CLOSED
        try:
            _, start = read_response_header(step.key, step.version, frame)
            answer = messages.read_response(step.key, step.version, frame, start)
        except InvalidFrame as problem:
            return f"{UNREADABLE}: {problem}"
        return self._plain(answer, "")

    def ask(self, key: ApiKey, version: int, fields: Mapping[str, Any]) -> Any:
        """Outside of a conversation; the answer as it is."""
        body = messages.write_request(key, version, fields)
        frame = self._exchange(Step(key, version, fields), body)
        _, start = read_response_header(key, version, frame)
        return messages.read_response(key, version, frame, start)

    def _exchange(self, step: Step, body: bytes) -> memoryview:
        if self._connection is None:
            self._connection = socket.create_connection((HOST, self._port), 5)
        self._connection.settimeout(ANSWER_S_MAX)
        self._connection.sendall(request_frame(step.key, step.version, 1, "differential", body))
        size = int.from_bytes(receive(self._connection, 4), "big")
        return memoryview(bytearray(receive(self._connection, size)))

    # What only this side knows

    def _filled(self, value: Any) -> Any:
        if isinstance(value, Known):
            return self._known(value)
        if isinstance(value, Batch):
            return self._written(value)
        if isinstance(value, Enveloped):
            self._inside = value
            body = messages.write_request(value.key, value.version, self._filled(value.fields))
            return request_frame(value.key, value.version, 1, "differential", body)[4:]
        if isinstance(value, Mapping):
            return {name: self._filled(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self._filled(each) for each in value]
        return value

    def _written(self, batch: Batch) -> bytes:
        records = [
            Record(number, YEAR_2020_MS + number, b"k", b"v%d" % number)
            for number in range(batch.size)
        ]
        return bytes(
            build(
                records,
                producer_id=self._filled(batch.producer_id),
                producer_epoch=self._filled(batch.epoch),
                base_sequence=batch.sequence,
                transactional=batch.transactional,
            )
        )

    def _known(self, wanted: Known) -> Any:
        if wanted.kind == "topic":
            assert isinstance(wanted.which, str)
            return self._topics.get(wanted.which, UUID(int=1))
        if wanted.kind == "producer_epoch":
            return self._epoch
        seen = list(self._named.get(wanted.kind, ()))
        assert isinstance(wanted.which, int)
        if wanted.which < len(seen):
            return seen[wanted.which]
        return "" if wanted.kind == "member_id" else -1 if wanted.kind == "producer_id" else 0

    def _plain(self, value: Any, name: str) -> Any:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            self._learn_topic(value)
            return {
                each.name: self._plain(getattr(value, each.name), each.name)
                for each in dataclasses.fields(value)
                if not each.name.startswith("ottla_")
            }
        if isinstance(value, tuple | list):
            own = [each for each in value if not self._belongs_to_others(each)]
            return [self._plain(each, name) for each in sorted(own, key=_own_name)]
        if isinstance(value, Enum):
            value = value.value
        if isinstance(value, datetime.timedelta):
            return round(value / datetime.timedelta(milliseconds=1))
        if isinstance(value, datetime.datetime):
            value = round(value.timestamp() * 1000)
        if isinstance(value, UUID):
            return next(
                (f"#id of {topic}" for topic, id in self._topics.items() if id == value),
                f"#id {value}" if value.int < 2**8 else "#id",
            )
        if name == "response_data" and value and self._inside is not None:
            key, version, _ = self._inside
            frame = memoryview(bytes(value))
            _, start = read_response_header(key, version, frame)
            return self._plain(messages.read_response(key, version, frame, start), "")
        if isinstance(value, memoryview | bytes):
            return _timeless(bytes(value)) if name == "records" else bytes(value)
        if name == "producer_epoch" and value >= 0:
            self._epoch = int(value)
        if name in self._kinds and value not in EMPTY:
            kind = self._named.setdefault(self._kinds[name], {})
            return f"#{self._kinds[name]} {kind.setdefault(value, len(kind))}"
        if isinstance(value, int) and not isinstance(value, bool):
            return "#now" if abs(value - time.time() * 1000) < 86_400_000 * 8 else int(value)
        return value

    def _belongs_to_others(self, value: Any) -> bool:
        if isinstance(value, str):
            return self._is_others(value)
        names = [getattr(value, field, None) for field in NAMES]
        names += [getattr(each, "entity_name", None) for each in getattr(value, "entity", ())]
        return any(isinstance(name, str) and self._is_others(name) for name in names)

    def _learn_topic(self, struct: Any) -> None:
        id = getattr(struct, "topic_id", None)
        name = getattr(struct, "name", None) or getattr(struct, "topic_name", None)
        if isinstance(id, UUID) and id.int and isinstance(name, str):
            self._topics[name] = id


def _own_name(value: Any) -> str:
    """What numbers are given by, so that they do not depend on the order in an answer."""
    return repr([getattr(value, field, None) for field in NAMES])


_LENGTH, _CHECKSUM, _ATTRIBUTES, _TIMES = slice(8, 12), slice(17, 21), 22, slice(27, 43)
_CONTROL: Final = 0x20


def _timeless(records: bytes) -> bytes:
    """A node writes its own time into the batches that end transactions."""
    found, at = bytearray(records), 0
    while at + _TIMES.stop <= len(found):
        size = 12 + int.from_bytes(found[at:][_LENGTH], "big")
        if found[at + _ATTRIBUTES] & _CONTROL:
            for part in (_CHECKSUM, _TIMES):
                found[at + part.start : at + part.stop] = bytes(part.stop - part.start)
        at += size
    return bytes(found)
