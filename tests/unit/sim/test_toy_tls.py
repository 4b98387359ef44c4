"""Certificates of simulated hosts: who is let in, as whom, and who is not."""

from __future__ import annotations

import pytest

from ottla.runtime import Identity, Tls
from ottla.runtime.tls_options import KeyStore, TlsOptions, TrustStore
from ottla.security.names import name_of
from ottla.security.secrets import Secret
from ottla.sim import SimHost, World
from ottla.sim.engine.toy_tls import ToyCertificate
from ottla.sim.engine.world import WALL_START_MS

PORT = 9
SERVER = ToyCertificate("server", "s", "ours")
CLIENT = ToyCertificate("client", "c", "ours")


def tls(host: SimHost, certificate: ToyCertificate | None, client_auth: str = "required") -> Tls:
    keys = None
    if certificate is not None:
        keys = KeyStore("PEM", certificate_chain=Secret(certificate.text()))
    trust = TrustStore("PEM", certificates=Secret("ours"))
    assert host.runtime.make_tls is not None
    return host.runtime.make_tls(TlsOptions("L", keys, trust, client_auth))  # type: ignore[arg-type]


class Peer:
    """Either end: it keeps what it gets."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.lost: str | None = None

    def frame_received(self, frame: memoryview) -> None:
        self.frames.append(bytes(frame))

    def connection_lost(self, reason: str) -> None:
        self.lost = reason


def meet(
    shown: ToyCertificate | None,
    own: ToyCertificate = SERVER,
    *,
    client_auth: str = "required",
    plain: bool = False,
) -> tuple[Identity | None, list[bytes]]:
    """What a server knows of a client that connects and sends a frame; and the frames that it got. OSError if the client does
    not believe the server."""
    with World(1) as world:
        server, client, accepted = world.node("s"), world.node("c"), Peer()
        found: list[Identity | None] = []

        def accept(connection: object) -> Peer:
            found.append(getattr(connection, "identity", None))
            return accepted

        async def serve() -> None:
            secured = tls(server, own, client_auth)
            network = server.runtime.network
            await network.listen("s", PORT, accept, frame_bytes_max=100, tls=secured)

        async def connect() -> None:
            secured = None if plain else tls(client, shown)
            network = client.runtime.network
            connection = await network.connect("s", PORT, lambda _: Peer(), tls=secured)
            connection.send([b"\0\0\0\5hello"])

        server.complete(serve())
        client.complete(connect())
        world.run_for(30.0)
        return (found[0] if found else None), accepted.frames


def test_a_server_knows_who_has_a_certificate() -> None:
    identity, frames = meet(CLIENT)
    assert identity is not None and identity.certificate is not None
    assert name_of(identity.certificate) == "CN=client"
    assert frames == [b"hello"]


@pytest.mark.parametrize(
    "shown",
    [
        None,
        CLIENT._replace(authority="another"),
        CLIENT._replace(not_after_ms=WALL_START_MS - 1),
    ],
)
def test_a_server_takes_nothing_from_a_client_that_it_does_not_believe(
    shown: ToyCertificate | None,
) -> None:
    assert meet(shown) == (None, [])


def test_a_server_that_only_asks_for_certificates_serves_a_client_without_one() -> None:
    identity, frames = meet(None, client_auth="requested")
    assert identity is not None and identity.certificate is None
    assert frames == [b"hello"]


def test_a_client_without_tls_is_not_served() -> None:
    assert meet(None, plain=True) == (None, [])


@pytest.mark.parametrize(
    ("own", "why"),
    [
        (SERVER._replace(authority="another"), "unknown authority"),
        (SERVER._replace(not_after_ms=WALL_START_MS - 1), "expired"),
        (SERVER._replace(host="elsewhere"), "is for elsewhere, not for s"),
    ],
)
def test_a_client_says_why_it_does_not_believe_a_server(own: ToyCertificate, why: str) -> None:
    with pytest.raises(ConnectionError, match=why):
        meet(CLIENT, own)
