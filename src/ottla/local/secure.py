"""What makes a cluster on this machine secure: certificates, listeners, the authorizer, and its first user.

DIR/secrets/             both CAs, and what is trusted (only the commands read the CAs' keys)
DIR/node-1/tls/          the node's certificate and key, and what it trusts
DIR/clients/NAME/        settings for the clients of a user: `local.client_files`

Clients come by TLS and SCRAM to the listener CLIENTS. Nodes know each other by their certificates, on INTERNAL and
CONTROLLER. Nobody but `admin` and the nodes may do anything that no ACL allows.

Only commands import this module, for `cryptography`.
"""

from __future__ import annotations

import datetime
import secrets
import socket
import ssl
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cryptography.hazmat.primitives import serialization

from ottla.local.certificates import (
    CLIENTS,
    NODE_DAYS,
    NODES,
    AuthorityFiles,
    issue_node,
    node_principal,
    read_certificates,
)
from ottla.local.client_files import (
    ADMIN,
    UserLogin,
    clients_directory,
    user_directory,
    write_client_files,
)
from ottla.local.private_files import FILE_MODE, private_directory, write_private

if TYPE_CHECKING:
    from ottla.local.cluster import LocalCluster

AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256")
ITERATIONS: Final = 16384
PASSWORD_BYTES: Final = 24
PROBE_S: Final = 2.0
SALT_BYTES: Final = 24


def new_password() -> str:
    return secrets.token_urlsafe(PASSWORD_BYTES)


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def authorities(directory: Path) -> tuple[AuthorityFiles, AuthorityFiles]:
    """Of nodes, and of clients."""
    where = directory / "secrets"
    return AuthorityFiles(where, NODES), AuthorityFiles(where, CLIENTS)


def certificate_file(cluster: LocalCluster, node: int) -> Path:
    return cluster.node_directory(node) / "tls" / "node.pem"


def trust_file(cluster: LocalCluster, node: int, of: str = NODES) -> Path:
    return cluster.node_directory(node) / "tls" / f"{of}-trust.crt"


def make_secure(cluster: LocalCluster) -> None:
    """Everything but the nodes' settings, which `LocalCluster` writes."""
    private_directory(cluster.directory)
    for id in cluster.nodes:
        private_directory(cluster.node_directory(id))
    if (lock := cluster.directory / ".lock").exists():
        lock.chmod(FILE_MODE)
    for each in authorities(cluster.directory):
        each.make(cluster.cluster_id, now())
    write_private(_decoy_file(cluster), new_decoy_secret())
    renew_nodes(cluster)
    password = new_password()
    write_login(cluster, ADMIN, password)
    _format(cluster, password)


def renew_nodes(cluster: LocalCluster, ids: Sequence[int] | None = None) -> None:
    """New certificates for these nodes, or all, and what nodes trust. Running nodes take them without a restart."""
    nodes, clients = authorities(cluster.directory)
    signer = nodes.load()
    for id in cluster.nodes:
        private_directory(certificate_file(cluster, id).parent)
        # What is trusted first: a node must not meet a certificate whose CA it has not heard of.
        write_private(trust_file(cluster, id), nodes.trust.read_bytes())
        write_private(trust_file(cluster, id, CLIENTS), clients.trust.read_bytes())
    for id in cluster.nodes if ids is None else ids:
        write_private(certificate_file(cluster, id), issue_node(signer, id, cluster.hosts, now()))


def renew_in_time(cluster: LocalCluster, ids: Iterable[int]) -> list[int]:
    """New certificates for those of the nodes, which are about to start, whose own are more than a day old, or not readable. So they
    do not end within the next 29 days. Which ones they are."""
    late = now() + datetime.timedelta(days=NODE_DAYS - 1)
    renewed = [id for id in ids if not _is_valid_at(certificate_file(cluster, id), late)]
    if renewed:
        renew_nodes(cluster, renewed)
    return renewed


def _is_valid_at(file: Path, time: datetime.datetime) -> bool:
    try:
        return read_certificates(file)[0].not_valid_after_utc > time
    except (OSError, ValueError):
        return False


def write_trust(cluster: LocalCluster) -> None:
    """What is trusted, for all nodes and for the clients whose files are here."""
    nodes, clients = authorities(cluster.directory)
    for id in cluster.nodes:
        write_private(trust_file(cluster, id), nodes.trust.read_bytes())
        write_private(trust_file(cluster, id, CLIENTS), clients.trust.read_bytes())
    for user in sorted(clients_directory(cluster.directory).iterdir()):
        if (user / "ca.crt").exists():
            write_private(user / "ca.crt", nodes.trust.read_bytes())


def write_login(cluster: LocalCluster, user: str, password: str) -> Path:
    """The files of a user's clients; where they are."""
    nodes, _ = authorities(cluster.directory)
    directory = user_directory(cluster.directory, user)
    login = UserLogin(cluster.advertised, user, password, directory)
    write_client_files(login, nodes.trust.read_bytes())
    return directory


def shows_its_certificate(cluster: LocalCluster, node: int) -> bool:
    """Whether clients of a running node meet the certificate that is in its file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # it is compared with the file instead
    address = cluster.nodes[node].address.rsplit(":", 1)
    try:
        with (
            socket.create_connection((address[0], int(address[1])), PROBE_S) as plain,
            context.wrap_socket(plain) as secured,
        ):
            shown = secured.getpeercert(binary_form=True)
    except OSError:
        return False
    own = read_certificates(certificate_file(cluster, node))[0]
    return shown == own.public_bytes(serialization.Encoding.DER)


def node_settings(cluster: LocalCluster, node: int) -> Mapping[str, str]:
    """Of security. `LocalCluster` adds the addresses."""
    super_users = [f"User:{ADMIN}", *(node_principal(id) for id in cluster.nodes)]
    return {
        "listener.security.protocol.map": "CLIENTS:SASL_SSL,INTERNAL:SSL,CONTROLLER:SSL",
        "inter.broker.listener.name": "INTERNAL",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificate_file(cluster, node)),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trust_file(cluster, node)),
        "listener.name.clients.ssl.truststore.type": "PEM",
        "listener.name.clients.ssl.truststore.location": str(trust_file(cluster, node, CLIENTS)),
        "listener.name.internal.ssl.client.auth": "required",
        "listener.name.controller.ssl.client.auth": "required",
        "authorizer.class.name": AUTHORIZER,
        "super.users": ";".join(super_users),
        "ottla.decoy.secret": decoy_secret(cluster),
        "max.connections": "10000",
        "max.connections.per.ip": "1000",
        "max.connection.creation.rate": "500",
        # On one machine nodes talk over Unix sockets, where only processes of our own user are let in. Whoever is that
        # user can read the nodes' keys as well.
        "ottla.local.sockets.enable": "true",
    }


def decoy_secret(cluster: LocalCluster) -> str:
    """All nodes have the same, so that they give the same answers about users who do not exist."""
    file = _decoy_file(cluster)
    if file.exists():
        return file.read_text()
    made = new_decoy_secret()
    if (cluster.directory / "cluster.json").exists():  # else the settings are only checked
        private_directory(file.parent)
        write_private(file, made)
    return made


def new_decoy_secret() -> str:
    return secrets.token_urlsafe(32)


def _decoy_file(cluster: LocalCluster) -> Path:
    return cluster.directory / "secrets" / "decoy"


def _format(cluster: LocalCluster, password: str) -> None:
    """The first active controller writes the admin's credentials into the metadata, with the cluster's features."""
    from uuid import uuid4

    from ottla.controller.credentials import scram_record
    from ottla.raft.format import format_directory
    from ottla.runtime.files import RealDisk
    from ottla.security.secrets import Secret

    records = [
        scram_record(name, ADMIN, Secret(password), secrets.token_bytes(SALT_BYTES), ITERATIONS)
        for name in MECHANISMS
    ]
    for node in cluster.nodes.values():
        if node.controller_port is not None:
            format_directory(
                RealDisk(),
                str(cluster.node_directory(node.id) / "data"),
                cluster_id=cluster.cluster_id,
                node_id=node.id,
                directory_id=uuid4(),
                voters=None,
                records=records,
            )
