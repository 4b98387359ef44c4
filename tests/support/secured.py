"""A cluster of real processes that speak TLS: clients at one listener, nodes and controllers with certificates among them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import trustme

from ottla.local.ports import free_ports
from support.cluster import ProcessCluster


class Certificates:
    """Two authorities, one for nodes and one for clients, and what they signed, as PEM files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.nodes = trustme.CA(organization_name="nodes")
        self.clients = trustme.CA(organization_name="clients")
        self.nodes_file = self.write("nodes-ca.pem", self.nodes.cert_pem.bytes())
        self.clients_file = self.write("clients-ca.pem", self.clients.cert_pem.bytes())

    def write(self, name: str, data: bytes) -> Path:
        """In one step, as an administrator should."""
        file = self.directory / name
        new = file.with_name(f"{name}.new")
        new.write_bytes(data)
        new.rename(file)
        return file

    def issue(self, ca: trustme.CA, name: str, *hosts: str) -> Path:
        """Key and certificate chain in one file."""
        made = ca.issue_cert(
            *(hosts or ("127.0.0.1", "localhost")),
            common_name=name,
            organization_name="test",
            organization_unit_name="tests",
        )
        return self.write(f"{name}.pem", made.private_key_and_cert_chain_pem.bytes())


class SecuredCluster(ProcessCluster):
    """Three listeners for brokers: CLIENTS with TLS, INTERNAL with certificates required, and PLAINTEXT, at which the test's own
    questions are asked. CONTROLLER requires certificates."""

    def __init__(
        self,
        directory: Path,
        brokers: int = 3,
        overrides: Mapping[str, str] | None = None,
        *,
        client_auth: str = "none",
        local: bool = False,
    ) -> None:
        """`local`: nodes use Unix sockets among themselves."""
        super().__init__(directory / "cluster", brokers, overrides)
        self.certificates = made = Certificates(directory / "certificates")
        self.client_ports: dict[int, int] = {}
        for node in self.nodes.values():
            clients, internal = free_ports(2)
            self.client_ports[node.id] = clients
            store = made.issue(made.nodes, f"node-{node.id}")
            file = directory / "cluster" / f"node-{node.id}" / "server.properties"
            plain = f"listeners=PLAINTEXT://127.0.0.1:{node.port},"
            text = file.read_text()
            assert plain in text
            new = f"{plain}CLIENTS://127.0.0.1:{clients},INTERNAL://127.0.0.1:{internal},"
            lines = {
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SSL,INTERNAL:SSL,CONTROLLER:SSL",
                "inter.broker.listener.name": "INTERNAL",
                "ssl.keystore.location": store,
                "ssl.truststore.location": made.nodes_file,
                "ssl.client.auth": "required",
                "listener.name.clients.ssl.client.auth": client_auth,
                "listener.name.clients.ssl.truststore.location": made.clients_file,
            }
            if local:
                lines["ottla.local.sockets.enable"] = "true"
            added = "".join(f"{name}={value}\n" for name, value in lines.items())
            file.write_text(text.replace(plain, new) + added)

    @property
    def secured_bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.client_ports.values())

    def log_of(self, node: int) -> str:
        return (self.certificates.directory.parent / "cluster" / f"node-{node}" / "node.log").read_text()  # fmt: skip
