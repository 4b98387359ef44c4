"""Every row of the table of states as a conversation: what is sent, what is answered, and what is open afterwards."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.security import sasl, scram
from ottla.security.login import Accepted, Challenge, LoginRefused, Outcome, Work
from ottla.security.sasl import Closed, Compute, Failed, Opened, Reply, SaslState, Serve, Verdict
from ottla.security.scram import SHA_256, KnownUser
from ottla.security.secrets import Secret
from ottla.wire import messages
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.headers import read_response_header, request_frame

WALL_MS = 1_000_000


class Scripted:
    """A mechanism in which `next` asks for more, `work` computes, and a name logs in."""

    claimed: str | None = None

    def evaluate(self, message: bytes) -> Outcome:
        match message:
            case b"next":
                return Challenge(b"more")
            case b"work" | b"work fails":
                return Work(lambda: Accepted("alice") if message == b"work" else None)
            case b"alice's token":
                return Accepted("alice", expires_ms=WALL_MS + 5_000, by_token=True)
            case b"expires":
                return Accepted("alice", expires_ms=WALL_MS + 5_000)
            case b"expired":
                return Accepted("alice", expires_ms=WALL_MS)
            case b"alice" | b"bob":
                return Accepted(message.decode(), b"welcome", rests_on=(message.decode(), 1))
        raise LoginRefused("why")


class Talk:
    """One connection, at a time that the test sets."""

    def __init__(self, reauth_ms: int = 0) -> None:
        rules = sasl.SaslRules({"ONE": Scripted, "TWO": Scripted}, {"ONE": reauth_ms})
        self.server = sasl.SaslServer(rules)
        self.now = 100.0
        self._asked: list[tuple[int, int]] = []

    def send(self, key: int, version: int, fields: Mapping[str, Any]) -> Verdict:
        body = messages.write_request(key, version, fields)
        self._asked.append((key, version))
        return self.raw(request_frame(key, version, len(self._asked), "me", body)[4:])

    def raw(self, frame: bytes) -> Verdict:
        return self.server.received(memoryview(frame), self.now, WALL_MS)

    def handshake(self, mechanism: str = "ONE", version: int = 1) -> Verdict:
        return self.send(ApiKey.SASL_HANDSHAKE, version, {"mechanism": mechanism})

    def token(self, token: bytes, version: int = 1) -> Verdict:
        return self.send(ApiKey.SASL_AUTHENTICATE, version, {"auth_bytes": token})

    def answer(self, verdict: Verdict) -> Any:
        """The response in a verdict: it belongs to the last request."""
        frame = getattr(verdict, "frame", None)
        assert isinstance(frame, bytes), f"{verdict} has no answer"
        assert struct.unpack(">i", frame[:4])[0] == len(frame) - 4
        key, version = self._asked[-1]
        correlation_id, start = read_response_header(key, version, memoryview(frame)[4:])
        assert correlation_id == len(self._asked)
        return messages.read_response(key, version, memoryview(frame)[4:], start)

    def open(self, token: bytes = b"alice") -> Talk:
        self.handshake()
        assert isinstance(self.token(token), Opened)
        return self


API_VERSIONS = {"client_software_name": "me", "client_software_version": "1"}


def test_api_versions_are_served_before_a_login_as_often_as_one_asks() -> None:
    talk = Talk()
    for version in (0, 3, 4, 3):
        fields = API_VERSIONS if version >= 3 else {}
        assert talk.send(ApiKey.API_VERSIONS, version, fields) == Serve()
    assert talk.raw(struct.pack(">hhih", 18, 99, 1, -1)) == Serve()  # an unknown version, too
    assert talk.server.state is SaslState.BEGIN


@pytest.mark.parametrize("version", [0, 1])
def test_a_handshake_names_the_mechanisms(version: int) -> None:
    talk = Talk()
    verdict = talk.handshake("TWO", version)
    assert isinstance(verdict, Reply)
    answer = talk.answer(verdict)
    assert (answer.error_code, answer.mechanisms) == (0, ("ONE", "TWO"))
    assert talk.server.state is (SaslState.TOKENS if version else SaslState.RAW_TOKENS)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("mechanism", ["GSSAPI", "one", "", "ÖNE"])
def test_a_mechanism_that_is_not_enabled_fails(mechanism: str, version: int) -> None:
    talk = Talk()
    verdict = talk.handshake(mechanism, version)
    assert isinstance(verdict, Failed)
    answer = talk.answer(verdict)
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ("ONE", "TWO")
    assert talk.server.state is SaslState.OVER


@pytest.mark.parametrize("key", [key for key in APIS if key not in (17, 18)], ids=str)
def test_any_other_request_before_a_handshake_is_not_answered(key: ApiKey) -> None:
    """And its body is not looked at: this one has none."""
    talk = Talk()
    verdict = talk.raw(request_frame(key, APIS[key].max_version, 1, None, b"")[4:])
    assert isinstance(verdict, Failed)
    assert verdict.frame is None
    assert talk.server.state is SaslState.OVER


@pytest.mark.parametrize(
    "frame",
    [b"", b"\0", b"\x60\x82\x01\x00kerberos", b"\0\x11\0\x02\0\0\0\1\xff\xff", b"\x7f\xff" * 20],
    ids=["empty", "short", "GSSAPI", "handshake v2", "noise"],
)
def test_bytes_that_are_no_request_are_not_answered(frame: bytes) -> None:
    talk = Talk()
    verdict = talk.raw(frame)
    assert isinstance(verdict, Failed)
    assert verdict.frame is None


def test_raw_tokens_have_no_header_and_so_have_their_answers() -> None:
    talk = Talk()
    talk.handshake(version=0)
    assert talk.raw(b"next") == Reply(b"\0\0\0\4more")
    verdict = talk.raw(b"alice")
    assert isinstance(verdict, Opened)
    assert verdict.frame == b"\0\0\0\7welcome"
    assert talk.server.state is SaslState.OPEN


def test_an_empty_answer_to_a_raw_token_is_a_frame() -> None:
    talk = Talk()
    talk.handshake(version=0)
    compute = talk.raw(b"work")
    assert isinstance(compute, Compute)
    verdict = talk.server.worked(compute.work.run(), talk.now, WALL_MS)
    assert isinstance(verdict, Opened)
    assert verdict.frame == b"\0\0\0\0"


def test_a_raw_token_that_is_refused_is_not_answered() -> None:
    talk = Talk()
    talk.handshake(version=0)
    verdict = talk.raw(b"mallory")
    assert isinstance(verdict, Failed)
    assert verdict.frame is None
    assert talk.server.state is SaslState.OVER


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_login_by_requests(version: int) -> None:
    talk = Talk(reauth_ms=60_000)
    talk.handshake()
    verdict = talk.token(b"next", version)
    assert isinstance(verdict, Reply)
    answer = talk.answer(verdict)
    assert (answer.error_code, answer.error_message, answer.auth_bytes) == (0, None, b"more")
    assert lifetime_ms(answer) == 0
    verdict = talk.token(b"alice", version)
    assert isinstance(verdict, Opened)
    assert verdict.login == sasl.Login("alice", "ONE", ("alice", 1), talk.now + 60)
    answer = talk.answer(verdict)
    assert (answer.error_code, answer.auth_bytes) == (0, b"welcome")
    assert lifetime_ms(answer) == (60_000 if version else 0)


def lifetime_ms(answer: Any) -> int:
    lifetime = messages.field(answer, "session_lifetime", None)
    return 0 if lifetime is None else int(lifetime.total_seconds() * 1000)


def test_an_answer_without_bytes_has_empty_bytes() -> None:
    talk = Talk()
    talk.handshake()
    compute = talk.token(b"work")
    assert isinstance(compute, Compute)
    verdict = talk.server.worked(compute.work.run(), talk.now, WALL_MS)
    assert talk.answer(verdict).auth_bytes == b""
    assert isinstance(verdict, Opened)
    assert verdict.login.session_ends is None


@pytest.mark.parametrize("token", [b"mallory", b"", b"\xff" * 100])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_token_that_is_refused_gets_one_text(token: bytes, version: int) -> None:
    talk = Talk()
    talk.handshake()
    verdict = talk.token(token, version)
    assert isinstance(verdict, Failed)
    answer = talk.answer(verdict)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism"
        " ONE"
    )
    assert answer.auth_bytes == b""
    assert verdict.why == "why"
    assert talk.server.state is SaslState.OVER


def test_work_that_fails_gets_the_same_text() -> None:
    told = []
    for token in (b"work fails", b"mallory"):
        talk = Talk()
        talk.handshake()
        verdict = talk.token(token)
        if isinstance(verdict, Compute):
            verdict = talk.server.worked(verdict.work.run(), talk.now, WALL_MS)
        assert isinstance(verdict, Failed)
        told.append(verdict.frame)
    assert told[0] == told[1]


@pytest.mark.parametrize("key", [key for key in APIS if key != 36], ids=str)
def test_any_other_request_between_tokens_is_refused_in_its_own_shape(key: ApiKey) -> None:
    """Where that shape has an error of the whole. The body is not looked at: this one has none."""
    talk = Talk()
    talk.handshake()
    version = APIS[key].max_version
    talk._asked.append((key, version))
    verdict = talk.raw(request_frame(key, version, len(talk._asked), None, b"")[4:])
    assert isinstance(verdict, Failed)
    if verdict.frame is not None:
        assert talk.answer(verdict).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert talk.server.state is SaslState.OVER


def test_which_answers_can_say_that_the_state_is_wrong() -> None:
    for key, says in ((ApiKey.SASL_HANDSHAKE, True), (ApiKey.FETCH, True), (ApiKey.PRODUCE, False)):
        talk = Talk()
        talk.handshake()
        verdict = talk.raw(request_frame(key, APIS[key].max_version, 1, None, b"")[4:])
        assert isinstance(verdict, Failed)
        assert (verdict.frame is not None) == says


def test_a_request_that_cannot_be_read_between_tokens_is_not_answered() -> None:
    talk = Talk()
    talk.handshake()
    verdict = talk.raw(request_frame(36, 1, 1, None, b"\x7f\xff\xff\xff")[4:])
    assert isinstance(verdict, Failed)
    assert verdict.frame is None


def test_a_session_ends_with_its_credential_if_that_is_earlier() -> None:
    talk = Talk(reauth_ms=60_000)
    talk.handshake()
    verdict = talk.token(b"expires")
    assert isinstance(verdict, Opened)
    assert verdict.login.session_ends == talk.now + 5
    assert lifetime_ms(talk.answer(verdict)) == 5_000


def test_a_credential_that_has_expired_is_refused() -> None:
    talk = Talk()
    talk.handshake()
    verdict = talk.token(b"expired")
    assert isinstance(verdict, Failed)
    assert talk.answer(verdict).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


# On an open connection


def test_an_open_connection_serves_everything_else() -> None:
    assert Talk().open().send(ApiKey.METADATA, 12, {"topics": None}) == Serve()


def test_a_login_that_is_not_due_is_refused_and_nothing_ends() -> None:
    talk = Talk().open()
    for ask in (talk.handshake, lambda: talk.handshake(version=0), lambda: talk.token(b"alice")):
        verdict = ask()
        assert isinstance(verdict, Reply)
        assert talk.answer(verdict).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert talk.server.state is SaslState.OPEN


def test_a_session_with_an_end_is_renewed() -> None:
    talk = Talk(reauth_ms=10_000).open()
    talk.now += 8
    verdict = talk.handshake()
    assert isinstance(verdict, Reply)
    assert talk.answer(verdict).error_code == 0
    verdict = talk.token(b"alice")
    assert isinstance(verdict, Opened)
    assert verdict.login.session_ends == talk.now + 10
    assert lifetime_ms(talk.answer(verdict)) == 10_000
    talk.now += 9
    assert talk.send(ApiKey.METADATA, 12, {"topics": None}) == Serve()


def test_logins_follow_each_other_by_a_second_at_least() -> None:
    talk = Talk(reauth_ms=10_000).open()
    talk.handshake()
    assert isinstance(talk.token(b"alice"), Opened)
    talk.now += 0.9
    assert talk.answer(talk.handshake()).error_code == ErrorCode.ILLEGAL_SASL_STATE
    talk.now += 0.2
    assert talk.answer(talk.handshake()).error_code == 0


def test_nobody_becomes_somebody_else() -> None:
    talk = Talk(reauth_ms=10_000).open()
    talk.handshake()
    verdict = talk.token(b"bob")
    assert isinstance(verdict, Failed)
    answer = talk.answer(verdict)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message.startswith("Cannot change principals during re-authentication")


def test_another_mechanism_ends_the_session() -> None:
    talk = Talk(reauth_ms=10_000).open()
    assert talk.answer(talk.handshake("TWO")).error_code == 0
    verdict = talk.token(b"alice")
    assert isinstance(verdict, Failed)
    assert talk.answer(verdict).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize("tokens", [(b"alice", b"alice's token"), (b"alice's token", b"alice")])
def test_a_password_is_not_followed_by_a_delegation_token_nor_the_reverse(
    tokens: tuple[bytes, bytes],
) -> None:
    talk = Talk(reauth_ms=10_000).open(tokens[0])
    talk.handshake()
    verdict = talk.token(tokens[1])
    assert isinstance(verdict, Failed)
    assert talk.answer(verdict).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_failed_renewal_ends_the_session() -> None:
    talk = Talk(reauth_ms=10_000).open()
    talk.handshake()
    verdict = talk.token(b"mallory")
    assert isinstance(verdict, Failed)
    assert "during re-authentication" in talk.answer(verdict).error_message


def test_other_requests_do_not_come_between() -> None:
    talk = Talk(reauth_ms=10_000).open()
    talk.handshake()
    verdict = talk.send(ApiKey.METADATA, 12, {"topics": None})
    assert isinstance(verdict, Failed)


def test_a_session_that_is_over_serves_nothing_but_a_new_login() -> None:
    talk = Talk(reauth_ms=10_000).open()
    talk.now += 10
    assert isinstance(talk.handshake(), Reply)
    talk = Talk(reauth_ms=10_000).open()
    talk.now += 10
    assert isinstance(talk.send(ApiKey.METADATA, 12, {"topics": None}), Closed)
    assert isinstance(talk.handshake(), Closed)
    talk = Talk(reauth_ms=10_000).open()
    talk.now += 10
    assert isinstance(talk.token(b"alice"), Closed)


# Noise

SALT = b"0123456789abcdef"
STORED = scram.credential_of(
    SHA_256, scram.salt_password(SHA_256, Secret("pencil"), SALT, 4096), SALT, 4096
)


def real_server() -> sasl.SaslServer:
    def begin() -> scram.ScramServer:
        return scram.ScramServer(
            SHA_256, lambda name, _: KnownUser(STORED, name == "user", name), "servers"
        )

    return sasl.SaslServer(sasl.SaslRules({"SCRAM-SHA-256": begin}, {}))


def _handshake(version: int) -> bytes:
    body = messages.write_request(17, version, {"mechanism": "SCRAM-SHA-256"})
    return request_frame(17, version, 1, None, body)[4:]


def _authenticate(version: int) -> Callable[[bytes], bytes]:
    return lambda token: request_frame(
        36, version, 1, None, messages.write_request(36, version, {"auth_bytes": token})
    )[4:]


TOKENS = st.one_of(
    st.binary(max_size=60),
    st.sampled_from([b"n,,n=user,r=nonce", b"c=biws,r=nonceservers,p=" + b"A" * 43 + b"="]),
)
FRAMES = st.one_of(
    st.binary(max_size=100),
    TOKENS,
    st.sampled_from([0, 1]).map(_handshake),
    st.sampled_from([0, 1, 2]).flatmap(lambda version: TOKENS.map(_authenticate(version))),
    st.tuples(st.sampled_from(list(APIS)), st.integers(0, 20), st.binary(max_size=40)).map(
        lambda each: struct.pack(">hhih", each[0], each[1], 1, -1) + each[2]
    ),
)


@settings(max_examples=300)
@given(st.lists(FRAMES, max_size=6))
def test_noise_raises_nothing_and_opens_nothing(frames: list[bytes]) -> None:
    server = real_server()
    for frame in frames:
        verdict = server.received(memoryview(frame), 0.0, WALL_MS)
        assert not isinstance(verdict, Opened | Compute)
        assert server.state is not SaslState.OPEN
        if isinstance(verdict, Serve):
            assert frame[:2] == b"\0\x12"  # ApiVersions
        if isinstance(verdict, Failed | Closed):
            break


@given(st.binary(max_size=100), st.integers(0, 99), st.integers(0, 255))
def test_a_changed_byte_opens_nothing(nonce: bytes, place: int, byte: int) -> None:
    """A whole login of somebody who knows the password, but for one byte."""
    server = real_server()
    server.received(memoryview(_handshake(1)), 0.0, WALL_MS)
    client = scram.ScramClient(SHA_256, "user", Secret("pencil"), "n" + nonce.hex())
    first = _authenticate(1)(client.first())
    verdict = server.received(memoryview(first), 0.0, WALL_MS)
    assert isinstance(verdict, Reply)
    start = read_response_header(36, 1, memoryview(verdict.frame)[4:])[1]
    told = messages.read_response(36, 1, memoryview(verdict.frame)[4:], start).auth_bytes
    final = bytearray(client.final(told))
    place %= len(final)
    changed = final[place] != byte
    final[place] = byte
    verdict = server.received(memoryview(_authenticate(1)(bytes(final))), 0.0, WALL_MS)
    assert isinstance(verdict, Failed if changed else Opened)
