"""SCRAM against the RFCs' examples, against another implementation, and against those who cheat."""

from __future__ import annotations

import base64
import hashlib
import itertools
import string
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scramp import ScramClient as TheirClient
from scramp import ScramMechanism as TheirMechanism

from ottla.security import scram
from ottla.security.login import Accepted, Challenge, LoginRefused
from ottla.security.scram import SHA_256, SHA_512, Credential, KnownUser, Mechanism, ScramClient
from ottla.security.secrets import Secret

MECHANISMS = pytest.mark.parametrize("mechanism", [SHA_256, SHA_512], ids=lambda each: each.name)
PASSWORD = Secret("pencil")
SALT = b"0123456789abcdef"


def stored(
    mechanism: Mechanism, password: Secret = PASSWORD, iterations: int = 4096, salt: bytes = SALT
) -> Credential:
    salted = scram.salt_password(mechanism, password, salt, iterations)
    return scram.credential_of(mechanism, salted, salt, iterations)


STORED = {mechanism: stored(mechanism) for mechanism in (SHA_256, SHA_512)}


def server(
    mechanism: Mechanism = SHA_256,
    user: str = "user",
    credential: Credential | None = None,
    nonce: str = "theServersNonce",
) -> scram.ScramServer:
    def lookup(name: str, by_token: bool) -> KnownUser:
        exists = name == user and not by_token
        return KnownUser(credential or STORED[mechanism], exists, name)

    return scram.ScramServer(mechanism, lookup, nonce)


def challenge(login: scram.ScramServer, message: bytes) -> bytes:
    answer = login.evaluate(message)
    assert isinstance(answer, Challenge)
    return answer.message


def login(client: ScramClient, at: scram.ScramServer) -> Accepted:
    accepted = at.evaluate(client.final(challenge(at, client.first())))
    assert isinstance(accepted, Accepted)
    client.check(accepted.message)
    return accepted


def test_the_example_of_rfc_7677() -> None:
    client = ScramClient(SHA_256, "user", PASSWORD, "rOprNGfwEbeRWgbNEkqO")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = scram.salt_password(SHA_256, PASSWORD, salt, 4096)
    credential = scram.credential_of(SHA_256, salted, salt, 4096)
    at = server(credential=credential, nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    told = challenge(at, client.first())
    assert told == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    final = client.final(told)
    assert final == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    accepted = at.evaluate(final)
    assert isinstance(accepted, Accepted)
    assert accepted.message == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    client.check(accepted.message)


@MECHANISMS
def test_who_knows_the_password_is_let_in(mechanism: Mechanism) -> None:
    accepted = login(ScramClient(mechanism, "user", PASSWORD, "n0nce"), server(mechanism))
    assert accepted.user == "user"
    assert accepted.rests_on == ("user", mechanism.number)
    assert accepted.expires_ms is None


def test_a_credential_that_kafka_stored_with_a_short_salt_counts() -> None:
    """Nobody can store one here. Kafka takes any salt, and its metadata may have such a credential."""
    at = server(credential=stored(SHA_256, salt=b"salt"))
    assert login(ScramClient(SHA_256, "user", PASSWORD, "n0nce"), at).user == "user"


@MECHANISMS
def test_another_implementation_logs_in_here(mechanism: Mechanism) -> None:
    theirs = TheirClient([mechanism.name], "user", "pencil")
    at = server(mechanism)
    theirs.set_server_first(challenge(at, theirs.get_client_first().encode()).decode())
    accepted = at.evaluate(theirs.get_client_final().encode())
    assert isinstance(accepted, Accepted)
    theirs.set_server_final(accepted.message.decode())


@MECHANISMS
def test_we_log_in_at_another_implementation(mechanism: Mechanism) -> None:
    theirs = TheirMechanism(mechanism.name)
    stored_there = theirs.make_auth_info("pencil", iteration_count=4096, salt=SALT)
    at = theirs.make_server(lambda _user: stored_there)
    client = ScramClient(mechanism, "user", PASSWORD, "n0nce")
    at.set_client_first(client.first().decode())
    at.set_client_final(client.final(at.get_server_first().encode()).decode())
    client.check(at.get_server_final().encode())
    # The keys that we store are those that they store.
    assert stored_there[1:3] == (STORED[mechanism].stored_key, STORED[mechanism].server_key)


@pytest.mark.parametrize("name", ["a,b", "a=b", "=2C", "älice", "用户", "a b", '"'])
def test_a_name_may_have_any_character(name: str) -> None:
    assert login(ScramClient(SHA_256, name, PASSWORD, "n0nce"), server(user=name)).user == name


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1))
def test_escaping_is_undone(name: str) -> None:
    assert "," not in scram.escaped(name)
    assert scram.unescaped(scram.escaped(name)) == name


def refused_first(message: bytes) -> str:
    with pytest.raises(LoginRefused) as caught:
        server().evaluate(message)
    return str(caught.value)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n",
        b"n,",
        b"n,,",
        b"n,,n=user",
        b"n,,r=nonce,n=user",
        b"n,,n=,r=nonce",
        b"n,,n=user,r=",
        b"n,,n=user,r=no nce",
        b"n,,n=us=er,r=nonce",
        b"n,,n=us=2cer,r=nonce",
        b"n,,n=us\0er,r=nonce",
        b"n,,n=\xff,r=nonce",
        b"n,user,n=user,r=nonce",
        b"n,,n=user,r=nonce,x",
        b"n,,n=user,r=nonce,x=1,x=2",
        b"x,,n=user,r=nonce",
        b"N,,n=user,r=nonce",
        b"n,,n=" + 1001 * b"u" + b",r=nonce",
        b"n,,n=" + 501 * "ü".encode() + b",r=nonce",
        b"n,,n=user,r=" + 257 * b"x",
        b"n,,n=user,r=nonce" + b"".join(b",%c=" % letter for letter in range(97, 106)),
        b"n,,n=user,r=nonce,x=" + 8192 * b"x",
    ],
)
def test_a_first_message_that_is_none_is_refused(message: bytes) -> None:
    refused_first(message)


@pytest.mark.parametrize(
    "binding", ["y", "p=tls-unique", "p=tls-exporter", "p=tls-server-end-point"]
)
def test_channel_binding_is_refused(binding: str) -> None:
    assert "binding" in refused_first(f"{binding},,n=user,r=nonce".encode())


def test_the_reserved_extension_is_refused() -> None:
    assert "mandatory" in refused_first(b"n,,m=x,n=user,r=nonce")


def test_nobody_logs_in_as_somebody_else() -> None:
    """CVE-2017-12610."""
    assert "another user" in refused_first(b"n,a=admin,n=user,r=nonce")
    challenge(server(), b"n,a=user,n=user,r=nonce")
    challenge(server(user="a,b"), b"n,a=a=2Cb,n=a=2Cb,r=nonce")


def test_extensions_that_nobody_knows_are_signed_and_ignored() -> None:
    theirs = ScramClient(SHA_256, "user", PASSWORD, "nonce")
    theirs._bare += ",trace=abc"
    assert login(theirs, server()).user == "user"


def test_the_longest_messages_of_clients_are_taken() -> None:
    """A name of a thousand commas, also as the authorization id, and every extension that may be."""
    name, escaped = "," * 1000, "=2C" * 1000
    extensions = "".join(f",{letter}=1" for letter in "abcdefgh")
    challenge(server(user=name), f"n,a={escaped},n={escaped},r={'x' * 256}{extensions}".encode())


def test_of_a_message_full_of_extensions_nothing_is_kept() -> None:
    """Half a megabyte, which the size of frames allows: 87,000 extensions, of ten megabytes of memory."""
    names = ("".join(each) for each in itertools.product(string.ascii_letters, repeat=4))
    many = ",".join(f"{name}=" for name in itertools.islice(names, 87_000))
    tracemalloc.start()
    try:
        login = server()
        with pytest.raises(LoginRefused):
            login.evaluate(f"n,,n=user,r=nonce,{many}".encode())
        assert tracemalloc.get_traced_memory()[1] < 3_000_000, "the message itself, and no more"
    finally:
        tracemalloc.stop()


def test_tokenauth_asks_for_a_token_of_that_name() -> None:
    asked: list[tuple[str, bool]] = []

    def lookup(name: str, by_token: bool) -> KnownUser:
        asked.append((name, by_token))
        return KnownUser(STORED[SHA_256], True, "owner", expires_ms=5)

    at = scram.ScramServer(SHA_256, lookup, "servers")
    accepted = login(ScramClient(SHA_256, "id", PASSWORD, "nonce", by_token=True), at)
    assert asked == [("id", True)]
    assert (accepted.user, accepted.expires_ms) == ("owner", 5)


def forged_final(change: str) -> None:
    """A final message of somebody who knows the password, but not the rules."""
    client = ScramClient(SHA_256, "user", PASSWORD, "clientNonce")
    at = server()
    final = client.final(challenge(at, client.first())).decode()
    forged = {
        "nonce of another login": final.replace("theServersNonce", "theServersOther"),
        "nonce cut": final.replace("theServersNonce", "theServersNonc"),
        "only its end": final.replace("r=clientNoncetheServersNonce", "r=theServersNonce"),
        "only its beginning": final.replace("r=clientNoncetheServersNonce", "r=clientNonce"),
        "nonce empty": final.replace("r=clientNoncetheServersNonce", "r="),
        "binding of another header": final.replace("c=biws", "c=eSws"),
        "no binding": final.replace("c=biws,", ""),
        "proof missing": final.partition(",p=")[0],
        "proof empty": final.partition(",p=")[0] + ",p=",
        "proof cut": final.partition(",p=")[0] + ",p=" + base64.b64encode(bytes(31)).decode(),
        "proof long": final.partition(",p=")[0] + ",p=" + base64.b64encode(bytes(64)).decode(),
        "proof no base64": final.partition(",p=")[0] + ",p=****",
        "proof wrong": final.partition(",p=")[0] + ",p=" + base64.b64encode(bytes(32)).decode(),
        "not UTF-8": final + "\udcff",
    }[change]
    with pytest.raises(LoginRefused):
        at.evaluate(forged.encode("utf-8", "surrogateescape"))
    with pytest.raises(LoginRefused):  # and the right one comes too late
        at.evaluate(final.encode())


@pytest.mark.parametrize(
    "change",
    [
        "nonce of another login",
        "nonce cut",
        "only its end",
        "only its beginning",
        "nonce empty",
        "binding of another header",
        "no binding",
        "proof missing",
        "proof empty",
        "proof cut",
        "proof long",
        "proof no base64",
        "proof wrong",
        "not UTF-8",
    ],
)
def test_a_final_message_of_another_login_is_refused(change: str) -> None:
    """CVE-2024-56128 among them: Kafka compared the nonce not at all, then only its end."""
    forged_final(change)


def with_signed_nonce(nonce: str) -> object:
    """The client signs what it sends, so that only the comparison of nonces can refuse it."""
    at = server()
    client = ScramClient(SHA_256, "user", PASSWORD, "c")
    told = challenge(at, client.first())
    salted = scram.salt_password(SHA_256, PASSWORD, SALT, 4096)
    key = SHA_256.mac(salted, b"Client Key")
    unproved = f"c=biws,r={nonce}"
    said = b"n=user,r=c," + told + b"," + unproved.encode()
    signature = SHA_256.mac(hashlib.sha256(key).digest(), said)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
    return at.evaluate(f"{unproved},p={proof}".encode())


@pytest.mark.parametrize(
    "nonce",
    ["theServersNonceX", "xtheServersNonce", "theServersNonce", "xctheServersNonce", "ccctheServersNonce"],
)  # fmt: skip
def test_a_signed_nonce_that_is_not_ours_is_refused(nonce: str) -> None:
    with pytest.raises(LoginRefused, match="nonce"):
        with_signed_nonce(nonce)


def test_librdkafka_may_say_its_part_of_the_nonce_twice() -> None:
    """Until the end of 2024 it did (its pull request 4895), and Debian's kcat still does."""
    for nonce in ("ctheServersNonce", "cctheServersNonce"):
        assert isinstance(with_signed_nonce(nonce), Accepted)


def test_a_login_cannot_be_replayed() -> None:
    client = ScramClient(SHA_256, "user", PASSWORD, "n0nce")
    at = server(nonce="first")
    final = client.final(challenge(at, client.first()))
    at.evaluate(final)
    again = server(nonce="second")
    challenge(again, client.first())
    with pytest.raises(LoginRefused, match="nonce"):
        again.evaluate(final)
    with pytest.raises(LoginRefused, match="over"):
        at.evaluate(final)


def test_a_weak_credential_is_not_used() -> None:
    weak = stored(SHA_256, iterations=4095)
    with pytest.raises(LoginRefused, match="4096"):
        server(credential=weak).evaluate(b"n,,n=user,r=nonce")


def test_an_unknown_user_fails_even_with_the_password_of_the_decoy() -> None:
    client = ScramClient(SHA_256, "nobody", PASSWORD, "n0nce")
    at = server()
    with pytest.raises(LoginRefused):
        at.evaluate(client.final(challenge(at, client.first())))


USUAL = scram.usual_shape([])


def decoys(secret: str = "shared", byte: int = 1) -> scram.Decoys:
    return scram.Decoys(Secret(secret), lambda count: bytes([byte]) * count)


@MECHANISMS
def test_two_brokers_give_an_unknown_user_the_same_salt(mechanism: Mechanism) -> None:
    one = decoys(byte=1).credential(mechanism, "nobody", USUAL)
    other = decoys(byte=2).credential(mechanism, "nobody", USUAL)
    assert (one.salt, one.iterations) == (other.salt, other.iterations)
    assert one.stored_key != other.stored_key
    assert one.salt != decoys().credential(mechanism, "somebody", USUAL).salt
    assert one.salt != decoys("other").credential(mechanism, "nobody", USUAL).salt
    assert len(one.salt) == scram.SALT_BYTES


def test_a_decoy_looks_like_most_of_the_users() -> None:
    def of(iterations: int, size: int) -> Credential:
        return Credential(bytes(size), b"", b"", iterations)

    few, most = of(4096, 16), of(8192, 100)
    for stored_ones in ([most, few, most], [few, most]):
        shape = scram.usual_shape(stored_ones)
        credential = decoys().credential(SHA_256, "nobody", shape)
        assert (credential.iterations, len(credential.salt)) == (8192, 100)


@pytest.mark.parametrize(
    "told",
    [
        b"r=n0nceX,s=c2FsdA==,i=4095",
        b"r=n0nceX,s=c2FsdA==,i=1000001",
        b"r=n0nceX,s=c2FsdA==,i=-1",
        b"r=n0nceX,s=c2FsdA==,i=99999999999999999999",
        b"r=n0nce,s=c2FsdA==,i=4096",
        b"r=other,s=c2FsdA==,i=4096",
        b"r=n0nceX,s=,i=4096",
        b"r=n0nceX,s=?,i=4096",
        b"e=invalid-proof",
        b"m=1,r=n0nceX,s=c2FsdA==,i=4096",
        b"\xff",
        b"",
    ],
)
def test_a_client_does_not_answer_every_challenge(told: bytes) -> None:
    with pytest.raises(LoginRefused):
        ScramClient(SHA_256, "user", PASSWORD, "n0nce").final(told)


@pytest.mark.parametrize("answer", [b"", b"v=", b"v=AAAA", b"e=other-error", b"v=?", b"\xff"])
def test_a_server_that_does_not_know_the_password_is_not_believed(answer: bytes) -> None:
    client = ScramClient(SHA_256, "user", PASSWORD, "n0nce")
    at = server()
    at.evaluate(client.final(challenge(at, client.first())))
    with pytest.raises(LoginRefused):
        client.check(answer)


def test_a_server_that_answers_at_once_is_not_believed() -> None:
    with pytest.raises(LoginRefused):
        ScramClient(SHA_256, "user", PASSWORD, "n0nce").check(b"v=")


def test_a_credential_shows_nothing_of_itself() -> None:
    assert repr(STORED[SHA_256]) == "Credential(iterations=4096)"


@given(st.lists(st.binary(max_size=200), max_size=3))
def test_arbitrary_messages_are_refused_and_nothing_else(sent: list[bytes]) -> None:
    at = server()
    for message in sent:
        with suppress(LoginRefused):
            assert isinstance(at.evaluate(message), Challenge)


TEXT = st.text(alphabet="nyparcsmuser=,2CD3A+/x\0é", max_size=60)


@given(TEXT, TEXT)
def test_almost_right_messages_are_refused_and_nothing_else(first: str, final: str) -> None:
    at = server()
    try:
        at.evaluate(b"n,,n=user,r=nonce" if not first else first.encode())
        accepted = at.evaluate(final.encode())
    except LoginRefused:
        return
    pytest.fail(f"{first!r}, {final!r} were accepted: {accepted}")
