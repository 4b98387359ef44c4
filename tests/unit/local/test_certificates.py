"""The certificates of a secure cluster: what is in them, what OpenSSL accepts, and how a new CA takes over."""

from __future__ import annotations

import datetime
import os
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from ottla.local.certificates import (
    CLIENT_DAYS,
    CLIENTS,
    NODE_DAYS,
    NODES,
    AuthorityFiles,
    RollStep,
    issue_client,
    issue_node,
    new_authority,
    node_principal,
    read_certificates,
)
from ottla.local.private_files import private_directory, write_private

NOW = datetime.datetime.now(datetime.UTC).replace(microsecond=0)


def names_of(certificate: x509.Certificate) -> x509.SubjectAlternativeName:
    return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value


def test_a_nodes_certificate_names_its_addresses_and_its_id_for_thirty_days() -> None:
    (made,) = x509.load_pem_x509_certificates(
        issue_node(new_authority("a", NOW), 2, ["broker.example", "10.0.0.7"], NOW)
    )
    names = names_of(made)
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "broker.example"]
    addresses = [str(each) for each in names.get_values_for_type(x509.IPAddress)]
    assert addresses == ["127.0.0.1", "::1", "10.0.0.7"]
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == ["urn:ottla:node:2"]
    assert made.not_valid_after_utc - NOW == datetime.timedelta(days=NODE_DAYS)
    assert f"User:{made.subject.rfc4514_string()}" == node_principal(2)
    key = made.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name == "secp256r1"


def test_a_clients_certificate_is_good_for_clients_only() -> None:
    (made,) = x509.load_pem_x509_certificates(issue_client(new_authority("a", NOW), "alice", NOW))
    usage = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert made.not_valid_after_utc - NOW == datetime.timedelta(days=CLIENT_DAYS)
    assert made.subject.rfc4514_string() == "CN=alice"


def shakes_hands(server_pem: Path, server_trust: Path, client_pem: Path, client_trust: Path) -> str:
    """Whether both sides accept each other's certificate; the reason, if not."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(server_pem)
    server.load_verify_locations(server_trust)
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cafile=client_trust)
    client.load_cert_chain(client_pem)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    waiting = list(sides)
    for _ in range(10):
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                return str(error)
    assert not waiting
    return "yes"


def test_who_accepts_whom(tmp_path: Path) -> None:
    nodes, clients = (AuthorityFiles(tmp_path, name) for name in (NODES, CLIENTS))
    for each in (nodes, clients):
        each.make("the-cluster", NOW)
    for id in (1, 2):
        write_private(tmp_path / f"node-{id}.pem", issue_node(nodes.load(), id, [], NOW))
    write_private(tmp_path / "alice.pem", issue_client(clients.load(), "alice", NOW))
    one, two, alice = (tmp_path / f"{name}.pem" for name in ("node-1", "node-2", "alice"))
    assert shakes_hands(one, nodes.trust, two, nodes.trust) == "yes"
    assert shakes_hands(one, clients.trust, alice, nodes.trust) == "yes"
    assert "CERTIFICATE_VERIFY_FAILED" in shakes_hands(one, nodes.trust, alice, nodes.trust)
    assert "CERTIFICATE_VERIFY_FAILED" in shakes_hands(one, nodes.trust, two, clients.trust)
    assert "unsuitable certificate purpose" in shakes_hands(
        alice, clients.trust, alice, clients.trust
    )


def test_a_new_ca_takes_over_in_steps_in_which_old_and_new_nodes_accept_each_other(
    tmp_path: Path,
) -> None:
    nodes = AuthorityFiles(tmp_path, NODES)
    nodes.make("the-cluster", NOW)
    old_trust = tmp_path / "old-trust.crt"
    old_trust.write_bytes(nodes.trust.read_bytes())
    old, new = tmp_path / "old.pem", tmp_path / "new.pem"
    write_private(old, issue_node(nodes.load(), 1, [], NOW))

    assert nodes.roll("the-cluster", NOW) is RollStep.TRUSTED
    both_trust = tmp_path / "both-trust.crt"
    both_trust.write_bytes(nodes.trust.read_bytes())
    # Some nodes trust both, some only the old one; all still show what the old one signed.
    assert shakes_hands(old, both_trust, old, old_trust) == "yes"

    assert nodes.roll("the-cluster", NOW) is RollStep.SIGNS
    write_private(new, issue_node(nodes.load(), 2, [], NOW))
    assert sorted(read_certificates(nodes.trust), key=str) == sorted(
        read_certificates(both_trust), key=str
    )
    assert shakes_hands(old, both_trust, new, both_trust) == "yes"

    assert nodes.roll("the-cluster", NOW) is RollStep.FORGOTTEN
    assert len(read_certificates(nodes.trust)) == 1
    assert shakes_hands(new, nodes.trust, new, nodes.trust) == "yes"
    assert "CERTIFICATE_VERIFY_FAILED" in shakes_hands(new, nodes.trust, old, both_trust)

    assert nodes.roll("the-cluster", NOW) is RollStep.TRUSTED


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_files_with_secrets_are_for_their_owner_only(tmp_path: Path, umask: int) -> None:

    before = os.umask(umask)
    try:
        directory = private_directory(tmp_path / "secrets")
        AuthorityFiles(directory, NODES).make("the-cluster", NOW)
    finally:
        os.umask(before)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    found = {each.name: stat.S_IMODE(each.stat().st_mode) for each in directory.iterdir()}
    assert found == dict.fromkeys(("nodes-ca.crt", "nodes-ca.key", "nodes-trust.crt"), 0o600)
