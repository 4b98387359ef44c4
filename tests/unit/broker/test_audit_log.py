"""The audit: Kafka's lines about what was decided, each at most once in ten seconds."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from test_server_connection import FakeConnection, Kept, frame, server_with

from ottla.broker.server.audit_log import (
    AUDIT_LOGGER,
    DENIALS_MAX,
    LINES_MAX,
    REPEATS_MAX,
    AuditLog,
)
from ottla.broker.server.connections import ServerConnection
from ottla.events import Events
from ottla.events.audit import Audited as AuditEvent
from ottla.security.acls import Acl
from ottla.security.authorizer import Authorizer, Via
from ottla.security.needs import CREATE_TOPIC
from ottla.security.operations import AclOperation, PatternType, Permission, ResourceType
from ottla.security.principals import USER, TokenPrincipal, user
from ottla.security.rights import Rights
from ottla.wire.apis import ApiKey

READ, WRITE, TOPIC = AclOperation.READ, AclOperation.WRITE, ResourceType.TOPIC


def acl(permission: Permission, operation: AclOperation, name: str) -> Acl:
    return Acl(TOPIC, PatternType.LITERAL, name, "User:alice", "*", operation, permission)


class Audited:
    """Alice's rights, and a clock that stands still."""

    def __init__(self, caplog: pytest.LogCaptureFixture, level: int = logging.INFO) -> None:
        caplog.set_level(level, AUDIT_LOGGER)
        self.now = 0.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.authorizer = Authorizer(["User:admin"])
        self.authorizer.audit = AuditLog(
            lambda: self.now, lambda delay, call: self.timers.append((self.now + delay, call))
        )
        self.authorizer.change(
            (), [acl(Permission.ALLOW, READ, "orders"), acl(Permission.DENY, WRITE, "orders")]
        )
        self.rights = self.rights_of("alice")
        self._caplog = caplog

    def rights_of(self, name: str) -> Rights:
        rights = Rights(self.authorizer, user(name), "10.0.0.7")
        rights.api_key = ApiKey.PRODUCE
        return rights

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        due = [call for at, call in self.timers if at <= self.now]
        self.timers = [(at, call) for at, call in self.timers if at > self.now]
        for call in due:
            call()

    def lines(self) -> list[tuple[int, str]]:
        """Those since the last call."""
        found = [(each.levelno, each.getMessage()) for each in self._caplog.records]
        self._caplog.clear()
        return found


DENIED = (
    "Principal = User:alice is Denied operation = WRITE from host = 10.0.0.7 on resource = "
    "Topic:LITERAL:payments for request = Produce with resourceRefCount = 1 based on rule DefaultDeny"
)


def test_a_denial_is_told_in_kafkas_words(caplog: pytest.LogCaptureFixture) -> None:
    audited = Audited(caplog)
    assert not audited.rights.may(WRITE, TOPIC, "payments")
    assert audited.lines() == [(logging.INFO, DENIED)]
    assert not audited.rights.may(WRITE, TOPIC, "orders")
    [(_, line)] = audited.lines()
    assert line.endswith(
        "based on rule MatchingAcl(acl=StandardAcl(resourceType=TOPIC, resourceName=orders,"
        " patternType=LITERAL, principal=User:alice, host=*, operation=WRITE, permissionType=DENY))"
    )


def test_what_is_allowed_is_told_each_time_at_debug_only(caplog: pytest.LogCaptureFixture) -> None:
    audited = Audited(caplog)
    assert audited.rights.may(READ, TOPIC, "orders")
    assert audited.lines() == []
    caplog.set_level(logging.DEBUG, AUDIT_LOGGER)
    audited.authorizer.ask_again()
    assert audited.rights.may(READ, TOPIC, "orders")
    [(level, line)] = audited.lines()
    assert level == logging.DEBUG
    assert line.startswith("Principal = User:alice is Allowed operation = READ")
    assert audited.rights_of("admin").may_cluster(AclOperation.ALTER)
    [(_, line)] = audited.lines()
    assert "on resource = Cluster:LITERAL:kafka-cluster" in line
    assert line.endswith("based on rule SuperUser")


def test_what_a_list_leaves_out_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    audited = Audited(caplog, logging.DEBUG)
    assert not audited.rights.sees(READ, TOPIC, "payments")
    assert audited.rights.authorized_operations(TOPIC, "orders")
    assert not audited.rights.may_some(WRITE, TOPIC)
    assert audited.lines() == []
    assert audited.rights.sees(READ, TOPIC, "orders")
    assert [level for level, _ in audited.lines()] == [logging.DEBUG]


def test_of_several_rights_that_would_do_only_the_last_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    audited = Audited(caplog)
    assert not CREATE_TOPIC.met(audited.rights, "payments")
    [(_, line)] = audited.lines()
    assert "on resource = Topic:LITERAL:payments" in line


def test_equal_lines_are_counted_for_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    audited = Audited(caplog)
    for _ in range(100):
        assert not audited.rights.may(WRITE, TOPIC, "payments")
    assert audited.lines() == [(logging.INFO, DENIED)]
    audited.pass_time(9.9)
    assert audited.lines() == []
    audited.pass_time(0.1)
    assert audited.lines() == [(logging.INFO, f"{DENIED} (99 more times within 10 s)")]
    audited.pass_time(10)
    assert audited.lines() == [], "nothing came in the meantime"
    assert not audited.rights.may(WRITE, TOPIC, "payments")
    assert audited.lines() == [(logging.INFO, DENIED)]


def test_somebody_who_asks_about_everything_does_not_fill_the_memory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    audited = Audited(caplog)
    for _ in range(2):
        assert not audited.rights.may(WRITE, TOPIC, "payments")
    for number in range(LINES_MAX):
        assert not audited.rights_of(f"user-{number % 20}").may(WRITE, TOPIC, f"topic-{number}")
    lines = audited.lines()
    assert (logging.INFO, f"{DENIED} (1 more times within 10 s)") in lines
    assert len(lines) == LINES_MAX + 2


def test_a_name_cannot_look_like_a_line_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    audited = Audited(caplog)
    assert not audited.rights_of("eve\nPrincipal = User:eve is Allowed").may(READ, TOPIC, "x")
    [(_, line)] = audited.lines()
    assert "\n" not in line
    assert line.startswith("Principal = User:eve\\nPrincipal = User:eve is Allowed is Denied")


def test_the_line_names_the_request_that_asked(caplog: pytest.LogCaptureFixture) -> None:
    audited = Audited(caplog)
    kept = Kept()
    server = server_with(kept)
    server.authorizer = audited.authorizer
    connection = ServerConnection(server, FakeConnection())
    connection.frame_received(memoryview(bytearray(frame(1)[4:])))
    connection.rights.api_key = ApiKey.FETCH  # type: ignore[union-attr]  # of a later request
    rights = kept.requests[0].rights
    assert rights is not None
    assert not rights.may(READ, TOPIC, "orders")
    [(_, line)] = audited.lines()
    assert "for request = ApiVersions with" in line


def test_one_principal_is_told_of_a_hundred_times_and_then_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    audited = Audited(caplog)
    for number in range(50_000):
        assert not audited.rights.may(WRITE, TOPIC, f"topic-{number}")
    assert len(audited.lines()) == DENIALS_MAX
    assert not audited.rights_of("bob").may(WRITE, TOPIC, "payments")
    assert len(audited.lines()) == 1, "others are told of as before"
    audited.pass_time(10)
    assert audited.lines() == [
        (
            logging.INFO,
            f"Principal = User:alice is Denied {50_000 - DENIALS_MAX} more operations within 10 s,"
            " which are not told one by one",
        )
    ]
    audited.pass_time(10)
    assert audited.lines() == [] and audited.timers == []
    assert not audited.rights.may(WRITE, TOPIC, "payments")
    assert audited.lines() == [(logging.INFO, DENIED)]


def test_of_a_name_that_can_be_nothings_only_the_beginning_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    audited = Audited(caplog)
    assert not audited.rights.may(WRITE, TOPIC, "x" * 32_000)
    [(_, line)] = audited.lines()
    assert len(line) < 600
    assert "Topic:LITERAL:xxx" in line and "xxx... (32000 characters) for request" in line


def test_what_was_told_already_is_counted_up_to_a_limit(caplog: pytest.LogCaptureFixture) -> None:
    """Each repeat makes a line to compare it with: a request may have 50,000 of them."""
    audited = Audited(caplog)
    for _ in range(REPEATS_MAX + 500):
        assert not audited.rights.may(WRITE, TOPIC, "orders")
    assert len(audited.lines()) == 1
    audited.pass_time(10)
    told = " ".join(line for _, line in audited.lines())
    assert f"({REPEATS_MAX} more times within 10 s)" in told
    assert "Denied 499 more operations" in told


def test_of_one_network_a_hundred_failed_logins_are_told_and_then_counted() -> None:
    told: list[AuditEvent] = []
    timers: list[Callable[[], None]] = []
    events = Events()
    events.subscribe(told.append, AuditEvent)  # type: ignore[arg-type]
    audit = AuditLog(lambda: 0.0, lambda _, call: timers.append(call), events)
    via = Via("CLIENTS", "PLAIN")
    for number in range(500):
        host = f"2001:db8::{number:x}"
        audit.login_ended("login_failure", f"user-{number}", host, via, "wrong")
    assert len(told) == DENIALS_MAX
    audit.login_ended("login_failure", "alice", "10.0.0.7", via, "wrong")
    audit.login_ended("session_end", "alice", "2001:db8::1", via, "over")
    assert [each.kind for each in told[DENIALS_MAX:]] == ["login_failure", "session_end"]
    told.clear()
    for call in list(timers):
        call()
    [rest] = [each for each in told if each.cause == "not told one by one"]
    assert (rest.kind, rest.repeated, rest.host) == ("login_failure", 400, "2001:db8::0")


def test_a_login_by_token_is_told_apart_from_one_by_password() -> None:
    told: list[Any] = []
    log = AuditLog(lambda: 0.0, lambda delay, call: None, events := Events())
    events.subscribe(told.append, AuditEvent)
    via = Via("CLIENTS", "SCRAM-SHA-512")
    log.logged_in(user("alice"), "10.0.0.7", via)
    log.logged_in(TokenPrincipal(USER, "alice"), "10.0.0.7", via)
    assert [(each.principal, each.cause) for each in told] == [
        ("User:alice", None),
        ("User:alice", "delegation token"),
    ]
