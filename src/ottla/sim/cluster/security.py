"""A simulated cluster with security: where clients log in, and how nodes know each other.

Clients log in on the listener CLIENTS. Nodes show certificates to each other on NODES and CONTROLLER, where nobody else has
any rights. The administrator's account is in the settings, because a new cluster has no users yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ottla.sim.engine.toy_tls import ToyCertificate

NODES_PORT = 9094
AUTHORITY = "cluster"
"""The certificate authority that nodes believe."""
ADMIN, ADMIN_PASSWORD = "admin", "admin secret"
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER")
ISSUER_KEYS = Path(__file__).with_name("issuer.json")
"""Of an issuer of tokens. Nobody has its private key: only tokens that must be refused come by OAUTHBEARER."""


class ClusterSecurity(NamedTuple):
    reauth_ms: int
    """How long a login counts; 0: for ever."""

    def certificate(self, node: int) -> ToyCertificate:
        return ToyCertificate(f"n{node}", f"n{node}", AUTHORITY)

    def super_users(self, nodes: int) -> list[str]:
        return [f"User:{ADMIN}", *(f"User:CN=n{id}" for id in range(1, nodes + 1))]

    def settings(self, node: int, nodes: int) -> Mapping[str, str]:
        return {
            "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,NODES:SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": "NODES",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": ";".join(self.super_users(nodes)),
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "ottla.allow.plain.without.tls": "true",
            "connections.max.reauth.ms": str(self.reauth_ms),
            "listener.name.clients.plain.sasl.jaas.config": (
                "org.apache.kafka.common.security.plain.PlainLoginModule required"
                f' user_{ADMIN}="{ADMIN_PASSWORD}";'
            ),
            "sasl.oauthbearer.jwks.endpoint.url": ISSUER_KEYS.as_uri(),
            "sasl.oauthbearer.expected.issuer": "issuer",
            "sasl.oauthbearer.expected.audience": "cluster",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": "toy key",
            "ssl.keystore.certificate.chain": self.certificate(node).text(),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": AUTHORITY,
            "ssl.client.auth": "required",
        }
