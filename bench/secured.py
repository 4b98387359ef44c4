"""How clients come to the brokers of a run with `--tls` or `--acls`.

`--tls`: one certificate authority, a certificate for each node, and what clients have to believe. Both sides read the same
PEM files, and clients show no certificate themselves. `--acls`: clients log in, at both sides, so that there is somebody
whose rights are asked for; the brokers have a listener of their own.

Clients of all cases get the settings through `bench.clients.COMMON`.
"""

from __future__ import annotations

import atexit
import datetime
import shutil
import tempfile
from pathlib import Path
from typing import Protocol

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from cryptography.hazmat.primitives.serialization import Encoding

from bench import clients
from ottla.local.certificates import issue_node, new_authority
from ottla.local.ports import free_ports

USER, ADMIN, PASSWORD = "bench", "admin", "geheim"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
USERS = 100
"""Who has the ACLs, besides the user of the clients."""
ACLS_AT_ONCE = 1000


class Access(Protocol):
    def configure(self, file: Path, node: int) -> None:
        """Change the properties of this node."""

    def java_client(self) -> dict[str, str]:
        """What a client of Kafka's own kind is told."""


class Certificates:
    """In a directory that is removed with this process."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="bench-tls-"))
        atexit.register(shutil.rmtree, self._directory, ignore_errors=True)
        self._now = datetime.datetime.now(datetime.UTC)
        self._authority = new_authority("bench", self._now)
        self._trust = self._directory / "ca.crt"
        self._trust.write_bytes(self._authority.certificate.public_bytes(Encoding.PEM))
        clients.use({"security.protocol": "ssl", "ssl.ca.location": str(self._trust)})

    def configure(self, file: Path, node: int) -> None:
        """The listeners of this node's properties speak TLS, to clients, brokers and controllers."""
        store = self._directory / f"node-{node}.pem"
        if not store.exists():
            store.write_bytes(issue_node(self._authority, node, [], self._now))
        settings = {
            "listener.security.protocol.map": "SSL:SSL,CONTROLLER:SSL",
            "security.inter.broker.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": store,
            **self.java_client(),
        }
        del settings["security.protocol"]
        plain, text = "PLAINTEXT://", file.read_text()
        assert plain in text
        added = "".join(f"{name}={value}\n" for name, value in settings.items())
        file.write_text(text.replace(plain, "SSL://") + added)

    def java_client(self) -> dict[str, str]:
        """What a client of Kafka's own kind is told."""
        return {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._trust),
        }


class Logins:
    """Clients log in by PLAIN, without TLS: that costs a connection something, and a request nothing."""

    def __init__(self) -> None:
        clients.use(_login_of(USER))

    def configure(self, file: Path, node: int) -> None:
        accounts = " ".join(f'user_{name}="{PASSWORD}"' for name in (USER, ADMIN))
        settings = {
            "listener.security.protocol.map": (
                "CLIENTS:SASL_PLAINTEXT,NODES:PLAINTEXT,CONTROLLER:PLAINTEXT"
            ),
            "inter.broker.listener.name": "NODES",
            "sasl.enabled.mechanisms": "PLAIN",
            "ottla.allow.plain.without.tls": "true",
            "listener.name.clients.plain.sasl.jaas.config": f"{PLAIN_MODULE} {accounts};",
        }
        plain, text = "listeners=PLAINTEXT://", file.read_text()
        assert plain in text
        (port,) = free_ports(1)
        listeners = f"listeners=NODES://127.0.0.1:{port},CLIENTS://"
        added = "".join(f"{name}={value}\n" for name, value in settings.items())
        file.write_text(text.replace(plain, listeners) + added)

    def java_client(self) -> dict[str, str]:
        jaas = f'{PLAIN_MODULE} username="{USER}" password="{PASSWORD}";'
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": jaas,
        }


AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # Nodes come to each other without a login. The clients' user is none of these: its ACLs are asked for.
    "super.users": f"User:ANONYMOUS;User:{ADMIN}",
}


def _login_of(user: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": PASSWORD,
    }


def add_acls(bootstrap: str, count: int) -> None:
    """So many, those of the clients' user among them."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **_login_of(ADMIN)})
    everything, prefixed = AclOperation.ALL, ResourcePatternType.PREFIXED
    wanted = [
        _allowed(USER, ResourceType.TOPIC, "bench", prefixed, everything),
        _allowed(USER, ResourceType.GROUP, "bench", prefixed, everything),
        _allowed(USER, ResourceType.BROKER, "kafka-cluster", operation=everything),
    ]
    wanted += [_of_others(number) for number in range(count - len(wanted))]
    for begin in range(0, len(wanted), ACLS_AT_ONCE):
        for made in admin.create_acls(wanted[begin : begin + ACLS_AT_ONCE]).values():
            made.result(60)


def _of_others(number: int) -> AclBinding:
    """Every user has some on names of his own, and one that covers the topics of the cases."""
    round, user = divmod(number, USERS)
    name = f"user-{user}"
    if round == 0:
        return _allowed(name, ResourceType.TOPIC, "bench", ResourcePatternType.PREFIXED)
    kind = ResourceType.GROUP if round % 3 == 0 else ResourceType.TOPIC
    pattern = ResourcePatternType.PREFIXED if round % 2 else ResourcePatternType.LITERAL
    return _allowed(name, kind, f"{name}-{round}", pattern)


def _allowed(
    user: str,
    kind: ResourceType,
    name: str,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
    operation: AclOperation = AclOperation.READ,
) -> AclBinding:
    return AclBinding(kind, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
