"""The issuer's keys: real signatures, keys that change, and what forgers try."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import http.server
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from ottla.broker.server.jwks import ASKED_EVERY_S, IssuerKeys, JwksTimes, keys_of
from ottla.runtime.documents import DOCUMENT_BYTES_MAX, read_document
from ottla.runtime.real import RealClock
from ottla.security.login import Accepted, LoginRefused
from ottla.security.oauth import ALGORITHMS, OAuthRules, OAuthServer, SignedToken
from support.oauth import (
    AUDIENCE,
    ISSUER,
    Issuer,
    claims,
    handmade,
    jwks,
    private_key,
    public_jwk,
)

SERVED = Issuer()
RULES = OAuthRules(ISSUER, (AUDIENCE,))


class _Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return RealClock().wall_ms()


class _Document:
    """What lies at the address. None: nothing can be had."""

    def __init__(self, content: bytes | None) -> None:
        self.content = content
        self.read_times = 0

    def __call__(self, address: str) -> bytes:
        assert address == "https://issuer.example/keys"
        self.read_times += 1
        if self.content is None:
            raise OSError("nobody answers")
        return self.content


def keys(
    document: _Document, clock: _Clock | None = None, times: JwksTimes | None = None
) -> IssuerKeys:
    address = "https://issuer.example/keys"
    return IssuerKeys(address, times or JwksTimes(), clock or _Clock(), document)


def login(verifier: IssuerKeys, token: str) -> Accepted | str:
    """The user, or why not."""
    server = OAuthServer(RULES, verifier, RealClock().wall_ms)
    outcome = server.evaluate(f"n,,\x01auth=Bearer {token}\x01\x01".encode())
    if isinstance(outcome, Accepted):
        return outcome
    with pytest.raises(LoginRefused) as refusal:
        server.evaluate(b"\x01")
    return str(refusal.value)


def with_keys(content: bytes, check: Callable[[IssuerKeys], None]) -> None:
    async def run() -> None:
        verifier = keys(_Document(content))
        await verifier.start()
        check(verifier)
        verifier.stop()

    asyncio.run(run())


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_a_token_is_believed_with_each_algorithm_of_the_list(algorithm: str) -> None:
    issuer = Issuer(algorithm)

    def check(verifier: IssuerKeys) -> None:
        accepted = login(verifier, issuer.token(claims()))
        assert isinstance(accepted, Accepted) and accepted.user == "alice"

    with_keys(issuer.jwks(), check)


class TestForgers:
    """Each of them has everything but the private key."""

    issuer = Issuer("RS256")

    def refused(self, token: str, why: str, *more: object) -> None:
        public = public_jwk(self.issuer.private, "k1")

        def check(verifier: IssuerKeys) -> None:
            assert isinstance(login(verifier, self.issuer.token(claims())), Accepted)
            found = login(verifier, token)
            assert isinstance(found, str) and why in found

        with_keys(jwks(public, *more), check)

    def test_leave_the_signature_out(self) -> None:
        self.refused(handmade({"alg": "none", "kid": "k1"}, claims()), "not signed")
        self.refused(handmade({"alg": "RS256", "kid": "k1"}, claims()), "signature is wrong")

    @pytest.mark.parametrize("form", [Encoding.PEM, Encoding.DER])
    def test_take_the_public_key_for_a_secret(self, form: Encoding) -> None:
        header = {"alg": "HS256", "kid": "k1"}
        public = self.issuer.private.public_key()
        secret = public.public_bytes(form, PublicFormat.SubjectPublicKeyInfo)
        unsigned = handmade(header, claims())
        signed = unsigned.rpartition(".")[0].encode()
        mac = hmac.digest(secret, signed, hashlib.sha256)
        self.refused(handmade(header, claims(), mac), "algorithm is not allowed")

    def test_bring_their_own_key(self) -> None:
        own = Issuer("RS256")
        elsewhere = "https://evil.example/keys"
        self.refused(own.token(claims()), "signature is wrong")
        self.refused(own.token(claims(), jku=elsewhere, x5u=elsewhere), "signature is wrong")
        self.refused(own.token(claims(), jwk=public_jwk(own.private, "k1")), "signature is wrong")
        self.refused(own.token(claims(), kid="k2"), "none of the issuer's")
        self.refused(own.token(claims(), kid="../../dev/null"), "none of the issuer's")

    def test_use_a_key_for_what_it_is_not(self) -> None:
        header = {"alg": "ES256", "kid": "k1"}
        self.refused(handmade(header, claims(), b"\0" * 64), "not for the token's algorithm")
        pss = Issuer("PS256", "only-rs")
        named = public_jwk(pss.private, "only-rs", alg="RS256")
        self.refused(pss.token(claims()), "not for the token's algorithm", named)

    def test_change_what_was_signed(self) -> None:
        header, _, signature = self.issuer.token(claims()).split(".")
        _, payload, _ = handmade({}, claims("admin")).split(".")
        self.refused(f"{header}.{payload}.{signature}", "signature is wrong")

    def test_use_a_token_for_somebody_else(self) -> None:
        self.refused(self.issuer.token(claims(aud=None)), "audience")
        self.refused(self.issuer.token(claims(iss="https://other.example")), "issuer")
        self.refused(self.issuer.token(claims(lifetime_s=-1)), "expired")
        self.refused(self.issuer.token(claims(iat=claims()["iat"] + 40)), "future")

    @pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 255, 256, 257, 4096])
    def test_guess_signatures_of_any_length(self, size: int) -> None:
        token = self.issuer.token(claims()).rpartition(".")[0]
        forged = SignedToken.parse(f"{token}.{handmade({}, {}, b'x' * size).split('.')[2]}")
        for algorithm in ("RS256", "PS512"):

            def check(verifier: IssuerKeys, algorithm: str = algorithm) -> None:
                with pytest.raises(LoginRefused, match="signature is wrong"):
                    verifier.verify(algorithm, "k1", forged.signed, forged.signature)

            with_keys(self.issuer.jwks(), check)


class TestADocument:
    def test_is_read_key_by_key_and_what_cannot_be_used_is_left_out(self) -> None:
        good = public_jwk(private_key("ES256"), "good")
        private = {**public_jwk(private_key("ES256"), "private"), "d": "AA"}
        found = keys_of(
            jwks(
                good,
                private,
                {"kty": "oct", "kid": "secret", "k": "AAAA"},
                public_jwk(rsa.generate_private_key(65537, 1024), "short"),
                public_jwk(private_key("ES256"), "enc", use="enc"),
                public_jwk(private_key("ES256"), "hs", alg="HS256"),
                public_jwk(private_key("ES256"), "ops", key_ops=["sign"]),
                public_jwk(private_key("ES256"), "curve", crv="secp256k1"),
                public_jwk(private_key("ES256"), "off", x="AAAA"),
                public_jwk(private_key("ES256"), "good"),
                public_jwk(private_key("ES256"), "", x="AAAA"),
                {},
                7,
            )
        )
        assert list(found) == ["good"]
        assert list(found["good"].algorithms) == ["ES256"]

    @pytest.mark.parametrize(
        "content", [b"", b"[]", b"{}", b'{"keys":7}', b'{"keys":[]}', b"[" * 100_000, b"\xff"]
    )
    def test_without_a_usable_key_is_none(self, content: bytes) -> None:
        with pytest.raises(ValueError, match=r"^it "):
            keys_of(content)


class TestKeysThatChange:
    def test_an_unknown_key_asks_for_the_document_at_most_once_a_minute(self) -> None:
        old, new = Issuer(key_id="old"), Issuer(key_id="new")

        async def run() -> None:
            document, clock = _Document(old.jwks()), _Clock()
            verifier = keys(document, clock)
            await verifier.start()
            document.content = new.jwks()
            assert login(verifier, new.token(claims())) == "the token's key is none of the issuer's"
            await until(lambda: document.read_times == 2)
            await until(lambda: isinstance(login(verifier, new.token(claims())), Accepted))
            assert isinstance(login(verifier, old.token(claims())), str)

            for number in range(100):
                login(verifier, Issuer(key_id=f"random {number}").token(claims()))
            await asyncio.sleep(0)
            clock.now += ASKED_EVERY_S - 1
            login(verifier, old.token(claims()))
            assert not verifier._wanted.is_set() and document.read_times == 2
            clock.now += 1
            login(verifier, old.token(claims()))
            await until(lambda: document.read_times == 3)
            verifier.stop()

        asyncio.run(run())

    def test_a_fetch_that_fails_is_repeated_and_leaves_the_keys_as_they_were(self) -> None:
        issuer = Issuer()

        async def run() -> None:
            document = _Document(None)
            times = JwksTimes(refresh_s=0.001, backoff_s=0.001, backoff_max_s=0.002)
            verifier = keys(document, times=times)
            await verifier.start()
            assert isinstance(login(verifier, issuer.token(claims())), str)
            document.content = issuer.jwks()
            await until(lambda: isinstance(login(verifier, issuer.token(claims())), Accepted))
            for broken in (None, b"<html>", jwks()):
                document.content = broken
                enough = document.read_times + 3
                await until(lambda enough=enough: document.read_times >= enough)  # type: ignore[misc]
                assert isinstance(login(verifier, issuer.token(claims())), Accepted)
            verifier.stop()

        asyncio.run(run())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


class TestReadingADocument:
    def test_from_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "the keys.json").write_bytes(b"{}")
        assert read_document(f"file://{tmp_path}/the%20keys.json") == b"{}"
        with pytest.raises(FileNotFoundError):
            read_document(f"file://{tmp_path}/none.json")
        (tmp_path / "large").write_bytes(b" " * (DOCUMENT_BYTES_MAX + 1))
        with pytest.raises(OSError, match="more than"):
            read_document(f"file://{tmp_path}/large")

    def test_by_https_from_a_server_whose_certificate_is_trusted(
        self, https_server: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert json.loads(read_document(f"{https_server}/keys")) == {"keys": []}
        monkeypatch.delenv("SSL_CERT_FILE")
        with pytest.raises(OSError, match="certificate"):
            read_document(f"{https_server}/keys")

    def test_by_https_gives_the_keys_that_tokens_are_verified_by(self, https_server: str) -> None:
        async def run() -> None:
            address = f"{https_server}/issuer"
            verifier = IssuerKeys(address, JwksTimes(), RealClock(), read_document)
            assert await verifier.start()
            assert isinstance(login(verifier, SERVED.token(claims())), Accepted)
            assert isinstance(login(verifier, Issuer().token(claims())), str)
            verifier.stop()

        asyncio.run(run())

    @pytest.mark.parametrize(
        ("path", "why"), [("/moved", "302"), ("/none", "404"), ("/large", "more than")]
    )
    def test_by_https_never_from_elsewhere_and_never_too_much(
        self, https_server: str, path: str, why: str
    ) -> None:
        with pytest.raises(OSError, match=why):
            read_document(https_server + path)


@pytest.fixture
def https_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            large = b" " * (DOCUMENT_BYTES_MAX + 1)
            bodies = {"/keys": b'{"keys":[]}', "/issuer": SERVED.jwks(), "/large": large}
            codes = dict.fromkeys(bodies, 200) | {"/moved": 302}
            self.send_response(codes.get(self.path, 404))
            self.send_header("Location", "/keys")
            self.end_headers()
            self.wfile.write(bodies.get(self.path, b""))

        def log_message(self, format: str, *args: object) -> None:
            pass

    certificate = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def self_signed(directory: Path) -> Path:
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    key = private_key("ES256")
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "issuer")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = directory / "issuer.pem"
    private = key.private_bytes(
        Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + certificate.public_bytes(Encoding.PEM))
    return path
