"""The handlers of a node with TLS see no request of somebody who says to be a node that its certificate does not name."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker.server.connections import Request
from ottla.broker.server.node_claims import holding_claims
from ottla.wire import fetch, messages
from ottla.wire.apis import ApiKey
from ottla.wire.fetch_messages import FetchRequest
from ottla.wire.headers import RequestHeader


class FakeConnection:
    peer, listener, timed = "127.0.0.1:1", "INTERNAL", None

    def __init__(self, nodes: frozenset[int] | None) -> None:
        self.certified_nodes = nodes
        self.on_close: list[Callable[[], None]] = []
        self.aborted = False
        self.answers: list[bytes] = []

    def answered(self, request: Request) -> None:
        assert request._answer is not None
        self.answers.append(b"".join(bytes(each) for each in request._answer))  # type: ignore[arg-type]

    def abort(self) -> None:
        self.aborted = True


def sent(connection: FakeConnection, key: ApiKey, version: int, body: bytes) -> bool:
    """Whether the handler saw it."""
    seen: list[Request] = []
    handler = holding_claims({key: seen.append})[key]
    header = RequestHeader(key, version, 7, "c", 0)
    handler(Request(connection, header, memoryview(body)))  # type: ignore[arg-type]
    return bool(seen)


def heartbeat(node: int) -> bytes:
    return messages.write_request(ApiKey.BROKER_HEARTBEAT, 1, {"broker_id": node})


@pytest.mark.parametrize(("nodes", "is_seen"), [({2}, False), (set(), False), ({3}, True), ({2, 3}, True), (None, True)])  # fmt: skip
def test_a_handler_sees_what_the_certificate_allows(nodes: set[int] | None, is_seen: bool) -> None:
    connection = FakeConnection(None if nodes is None else frozenset(nodes))
    assert sent(connection, ApiKey.BROKER_HEARTBEAT, 1, heartbeat(3)) is is_seen
    assert len(connection.answers) == (0 if is_seen else 1)


def test_a_registration_is_told_why() -> None:
    connection = FakeConnection(frozenset((2,)))
    key = ApiKey.CONTROLLER_REGISTRATION
    assert not sent(connection, key, 0, messages.write_request(key, 0, {"controller_id": 3}))
    assert b"certificate of this connection is of another node" in connection.answers[0]


@pytest.mark.parametrize("version", [4, 6, 7, 12, 18])
def test_a_false_replica_gets_no_record_by_any_version(version: int) -> None:
    connection = FakeConnection(frozenset((2,)))
    body = fetch.write_request(version, FetchRequest(replica_id=3))
    assert not sent(connection, ApiKey.FETCH, version, body)
    # Old versions have no place for an error of the whole.
    assert connection.aborted is (version < 7)
    assert len(connection.answers) == (0 if version < 7 else 1)


def test_other_requests_do_not_pass_here() -> None:
    def handler(request: Request) -> None: ...

    handlers: dict[int, Any] = {ApiKey.PRODUCE: handler, ApiKey.VOTE: handler}
    held = holding_claims(handlers)
    assert held[ApiKey.PRODUCE] is handler
    assert held[ApiKey.VOTE] is not handler


def test_the_log_tells_it_once_for_each_connection(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    handlers = holding_claims({ApiKey.BROKER_HEARTBEAT: lambda _: None})
    header = RequestHeader(ApiKey.BROKER_HEARTBEAT, 1, 7, "c", 0)

    def ask(connection: FakeConnection) -> None:
        request = Request(connection, header, memoryview(heartbeat(3)))  # type: ignore[arg-type]
        handlers[ApiKey.BROKER_HEARTBEAT](request)

    one, other = FakeConnection(frozenset((2,))), FakeConnection(frozenset())
    for connection in (one, one, other, one):
        ask(connection)
    assert len(one.answers) == 3
    (first, second) = [record.getMessage() for record in caplog.records]
    assert "api=BrokerHeartbeat claimed=3 certificate_of=2" in first
    assert "certificate_of=nobody" in second
