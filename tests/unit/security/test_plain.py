"""PLAIN: exactly one shape, and the same work for whoever is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.security import plain, scram
from ottla.security.login import Accepted, LoginRefused, Outcome, Work
from ottla.security.scram import SHA_512, Credential, Mechanism
from ottla.security.secrets import Secret

SALT = b"0123456789abcdef"
STORED = scram.credential_of(
    SHA_512, scram.salt_password(SHA_512, Secret("pencil"), SALT, 4096), SALT, 4096
)


def lookup(user: str) -> tuple[Mechanism, Credential, bool]:
    return SHA_512, STORED, user in ("alice", "both")


def server() -> plain.PlainServer:
    return plain.PlainServer({"admin": Secret("geheim"), "both": Secret("here")}, lookup)


def finished(outcome: Outcome) -> Accepted | None:
    if isinstance(outcome, Work):
        return outcome.run()
    assert isinstance(outcome, Accepted)
    return outcome


def test_an_account_of_the_listener_is_let_in_at_once() -> None:
    assert server().evaluate(b"\0admin\0geheim") == Accepted("admin")
    assert server().evaluate(b"admin\0admin\0geheim") == Accepted("admin")


def test_a_scram_user_is_let_in_after_some_work() -> None:
    outcome = server().evaluate(b"\0alice\0pencil")
    assert isinstance(outcome, Work)
    assert outcome.run() == Accepted("alice", rests_on=("alice", SHA_512.number))


@pytest.mark.parametrize(
    "message",
    [
        b"\0alice\0wrong",
        b"\0nobody\0pencil",
        b"\0nobody\0wrong",
        b"\0admin\0wrong",
        b"\0admin\0pencil",
        b"\0both\0pencil",
    ],
)
def test_whoever_is_refused_has_cost_the_same_work(message: bytes) -> None:
    outcome = server().evaluate(message)
    assert isinstance(outcome, Work)
    assert outcome.run() is None


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\0",
        b"alice\0pencil",
        b"\0alice\0pencil\0",
        b"\0\0pencil",
        b"\0alice\0",
        b"\0\0",
        b"admin\0alice\0pencil",
        b"alice\0admin\0geheim",
        b"\0\xff\0pencil",
        b"\0alice\0\xff",
        b"\0" + 1001 * b"u" + b"\0pencil",
        b"\0" + 501 * "ü".encode() + b"\0pencil",
    ],
)
def test_any_other_shape_and_any_other_identity_are_refused(message: bytes) -> None:
    with pytest.raises(LoginRefused):
        server().evaluate(message)


def test_our_own_message_is_understood() -> None:
    user, password = plain.parse(plain.message("älice", Secret("geheim")))
    assert (user, password.reveal()) == ("älice", "geheim")


@given(st.binary(max_size=100))
def test_arbitrary_bytes_let_nobody_in(message: bytes) -> None:
    try:
        outcome = server().evaluate(message)
    except LoginRefused:
        return
    assert finished(outcome) is None


def test_a_message_that_no_client_would_send_is_not_looked_at() -> None:
    password = "x" * 7000
    assert plain.parse(f"alice\0alice\0{password}".encode())[1].reveal() == password
    for message in (b"\0alice\0" + b"x" * 8192, b"\0" * 9000):
        with pytest.raises(LoginRefused, match="bytes"):
            server().evaluate(message)
