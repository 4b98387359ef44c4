"""TLS for a run with `--tls`: one certificate authority, a certificate for each node, and what clients have to believe.

Both sides read the same PEM files. Clients of all cases get the settings through `bench.clients.COMMON`; they show no
certificate themselves.
"""

from __future__ import annotations

import atexit
import datetime
import shutil
import tempfile
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding

from bench import clients
from ottla.local.certificates import issue_node, new_authority


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
