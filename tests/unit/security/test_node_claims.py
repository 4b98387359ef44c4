"""Which node somebody may say that it is, by its certificate."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ottla.local.certificates import issue_client, issue_node, new_authority
from ottla.security.node_claims import CLAIMS, FalseClaim, certified_nodes, false_claim
from ottla.wire import fetch, messages
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.fetch_messages import FetchRequest
from ottla.wire.headers import RequestHeader

NOW = datetime.datetime.now(datetime.UTC)
AUTHORITY = new_authority("nodes", NOW)


def der(pem: bytes) -> bytes:
    return x509.load_pem_x509_certificate(pem).public_bytes(serialization.Encoding.DER)


def with_names(*names: x509.GeneralName, critical: bool = False) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "node")])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    )
    if names:
        made = made.add_extension(x509.SubjectAlternativeName(names), critical=critical)
    return made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def uri(text: str) -> x509.GeneralName:
    return x509.UniformResourceIdentifier(text)


def test_our_own_certificates_name_one_node() -> None:
    assert certified_nodes(der(issue_node(AUTHORITY, 12, ["broker.example"], NOW))) == frozenset(
        {12}
    )
    assert certified_nodes(der(issue_client(AUTHORITY, "alice", NOW))) is None


@pytest.mark.parametrize(
    ("names", "nodes"),
    [
        ((), None),
        ((x509.DNSName("urn:ottla:node:3"), x509.DNSName("localhost")), None),
        ((uri("spiffe://cluster/node/3"),), None),
        ((uri("spiffe://cluster/a"), uri("urn:ottla:node:3")), {3}),
        ((uri("urn:ottla:node:3"), uri("urn:ottla:node:4")), {3, 4}),
        ((uri("urn:ottla:node:"),), set()),
        ((uri("urn:ottla:node:-1"),), set()),
        ((uri("urn:ottla:node:" + 5000 * "1"),), set()),
        ((uri("urn:ottla:node:3 "),), set()),
        ((uri("urn:ottla:node:x"), uri("urn:ottla:node:2")), {2}),
    ],
)
def test_only_uris_bind_a_certificate_and_what_is_no_id_speaks_for_nobody(
    names: tuple[x509.GeneralName, ...], nodes: set[int] | None
) -> None:
    found = certified_nodes(with_names(*names))
    assert (None if found is None else set(found)) == nodes


def test_it_does_not_matter_whether_the_extension_is_critical() -> None:
    assert certified_nodes(with_names(uri("urn:ottla:node:3"), critical=True)) == frozenset({3})


def test_a_certificate_that_cannot_be_read_speaks_for_nobody() -> None:
    whole = with_names(uri("urn:ottla:node:3"))
    for end in range(len(whole)):
        assert certified_nodes(whole[:end]) == frozenset()


def quorum(**partition: Any) -> dict[str, Any]:
    topic = {
        "topic_name": "__cluster_metadata",
        "partitions": [{"partition_index": 0, **partition}],
    }
    return {"topics": [topic]}


def claiming(key: int, version: int, node: int) -> memoryview:
    """A request by which somebody says to be this node."""
    if key == ApiKey.FETCH:
        return memoryview(fetch.write_request(version, FetchRequest(replica_id=node)))
    fields: dict[str, Any]
    match key:
        case ApiKey.VOTE:
            fields = quorum(replica_id=node)
        case ApiKey.BEGIN_QUORUM_EPOCH | ApiKey.END_QUORUM_EPOCH:
            fields = quorum(leader_id=node)
        case ApiKey.CONTROLLER_REGISTRATION:
            fields = {"controller_id": node}
        case ApiKey.FETCH_SNAPSHOT:
            fields = {"replica_id": node}
        case ApiKey.UPDATE_RAFT_VOTER:
            fields = {"voter_id": node}
        case _:
            fields = {"broker_id": node}
    return memoryview(messages.write_request(key, version, fields))


VERSIONS = [
    (ApiKey(key), version)
    for key in CLAIMS
    for version in range(APIS[ApiKey(key)].min_version, APIS[ApiKey(key)].max_version + 1)
]


@pytest.mark.parametrize(("key", "version"), VERSIONS, ids=lambda each: str(getattr(each, "name", each)))  # fmt: skip
def test_each_claim_of_each_version_is_held_against_the_certificate(
    key: ApiKey, version: int
) -> None:
    header = RequestHeader(key, version, 0, "c", 0)
    registers = key in (ApiKey.BROKER_REGISTRATION, ApiKey.CONTROLLER_REGISTRATION)
    error = ErrorCode.INVALID_REGISTRATION if registers else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    foreign = claiming(key, version, 3)
    assert false_claim(frozenset((2,)), header, foreign) == FalseClaim(3, error)
    assert false_claim(frozenset(), header, foreign) == FalseClaim(3, error)
    assert false_claim(frozenset((2, 3)), header, foreign) is None
    assert false_claim(frozenset((2,)), header, claiming(key, version, 2)) is None
    assert false_claim(frozenset((2,)), header, claiming(key, version, -1)) is None


def test_of_many_partitions_each_is_looked_at() -> None:
    header = RequestHeader(ApiKey.VOTE, 2, 0, "c", 0)
    fields = quorum(replica_id=2)
    fields["topics"][0]["partitions"].append({"partition_index": 1, "replica_id": 3})
    frame = memoryview(messages.write_request(ApiKey.VOTE, 2, fields))
    found = false_claim(frozenset((2,)), header, frame)
    assert found is not None and found.claimed == 3
