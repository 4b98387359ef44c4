"""Facts about the security of a cluster: from its own answers, and from the files of one on this machine."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from ottla.client.admin import BROKER, Admin
from ottla.client.client import Client
from ottla.client.security_admin import SecurityAdmin
from ottla.diagnosis.security_check import (
    CertificateFacts,
    OpenFile,
    SecurityFacts,
    Succession,
)
from ottla.local.certificates import RollStep, read_certificates
from ottla.local.client_files import clients_directory
from ottla.local.cluster import LocalCluster
from ottla.local.secure import authorities, certificate_file
from ottla.wire.errors import KafkaError


async def asked_facts(client: Client) -> SecurityFacts:
    """What the cluster itself says."""
    unknown: dict[str, str] = {}
    admin = SecurityAdmin(client)
    brokers: dict[int, dict[str, str]] = {}
    for broker in (await client.metadata([])).brokers:
        resource = (BROKER, str(broker.id))
        try:
            described = await Admin(client).describe_configs([resource])
        except (KafkaError, OSError) as error:
            unknown[f"settings of broker {broker.id}"] = str(error)
        else:
            brokers[broker.id] = {
                each.name: each.value for each in described[resource] if each.value is not None
            }
    facts = SecurityFacts(brokers=brokers, unknown=unknown)
    try:
        users = await admin.users()
        least = [(each.name, min((i for _, i in each.credentials), default=0)) for each in users]
        facts = facts._replace(users=least)
    except KafkaError as error:
        unknown["users"] = str(error)
    try:
        facts = facts._replace(acls=await admin.acls())
    except KafkaError as error:
        unknown["ACLs"] = str(error)
    return facts


def local_facts(cluster: LocalCluster, facts: SecurityFacts, now: datetime.datetime) -> SecurityFacts:  # fmt: skip
    """The same, with what the cluster's directory shows."""
    return facts._replace(
        certificates=list(_certificates(cluster, now)),
        open_files=list(_open_files(cluster)),
        successions=list(_successions(cluster)),
    )


def _successions(cluster: LocalCluster) -> Iterator[Succession]:
    for each in authorities(cluster.directory) if cluster.secure else ():
        step = each.latest_step
        if step is not None:
            again = f"ottla security rotate {each.name} --ca --dir {cluster.directory}"
            yield Succession(each.name, step is RollStep.SIGNS, str(each.trust), again)


def _certificates(cluster: LocalCluster, now: datetime.datetime) -> Iterator[CertificateFacts]:
    if not cluster.secure:
        return
    wanted = frozenset(("127.0.0.1", *cluster.hosts))
    renew = f"ottla security rotate nodes --dir {cluster.directory}"
    for id in cluster.nodes:
        file = certificate_file(cluster, id)
        yield _facts(file, f"node {id}", now, wanted, renew)
    for name in ("nodes", "clients"):
        file = cluster.directory / "secrets" / f"{name}-ca.crt"
        yield _facts(file, f"the {name}' CA", now, frozenset(), f"ottla security rotate {name} --ca --dir {cluster.directory}")  # fmt: skip


def _facts(
    file: Path, whose: str, now: datetime.datetime, wanted: frozenset[str], renew: str
) -> CertificateFacts:
    certificate = read_certificates(file)[0]
    key = certificate.public_key()
    kind, bits = "EC", 0
    if isinstance(key, ec.EllipticCurvePublicKey):
        bits = key.curve.key_size
    elif isinstance(key, rsa.RSAPublicKey):
        kind, bits = "RSA", key.key_size
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    day = datetime.timedelta(days=1)
    return CertificateFacts(
        str(file),
        whose,
        (end - now) / day,
        (end - begin) / day,
        kind,
        bits,
        frozenset(_names(certificate)),
        wanted,
        renew,
    )


def _names(certificate: x509.Certificate) -> Iterator[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return
    yield from found.get_values_for_type(x509.DNSName)
    for address in found.get_values_for_type(x509.IPAddress):
        yield str(address)


def _open_files(cluster: LocalCluster) -> Iterator[OpenFile]:
    places = [
        cluster.directory / "secrets",
        clients_directory(cluster.directory),
        *(certificate_file(cluster, id).parent for id in cluster.nodes),
    ]
    for place in places:
        for path in [place, *sorted(place.rglob("*"))] if place.is_dir() else ():
            yield from _open(path)
    if cluster.secure:
        for id in cluster.nodes:
            yield from _open(cluster.config_file(id))


def _open(path: Path) -> Iterator[OpenFile]:
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        yield OpenFile(f"{path}/" if path.is_dir() else str(path), mode)
