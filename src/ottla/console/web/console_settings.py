"""What a console was told when it was started."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote

from ottla.client.command_config import is_secured
from ottla.client.connections import Address
from ottla.diagnosis.explaining import Here
from ottla.diagnosis.now import Commands

TIMEOUT_S = 5.0
"""Of one question: the next one is asked anyway."""


def _nowhere() -> tuple[Here, Commands]:
    return Here(), Commands()


@dataclass(frozen=True)
class ConsoleSettings:
    bootstrap: Sequence[Address]
    properties: Mapping[str, str] = field(default_factory=dict)
    """How the cluster is reached, as Kafka's clients are told (--command-config)."""
    allow_writes: bool = False
    look_around: Callable[[], tuple[Here, Commands]] = _nowhere
    """What is known of a cluster on this machine, and how commands for the cluster are typed."""
    host: str = "127.0.0.1"
    port: int = 8080
    names: tuple[str, ...] = ()
    """Of this machine, under which browsers reach the console, beside its addresses."""
    tls_certificate: str | None = None
    """Paths of PEM files."""
    tls_key: str | None = None
    origin: str | None = None
    """Where browsers reach it through a proxy, as in their header: https://console.example."""
    proxies: frozenset[str] = frozenset()
    """Addresses whose X-Forwarded-For is believed."""

    @property
    def wants_login(self) -> bool:
        """Whether the cluster is secured, so that only its own users may look."""
        return is_secured(self.properties)

    def told_of_it(self, is_open: bool) -> tuple[Here, Commands]:
        """What this machine knows of the cluster, and how to type commands. Users of a secured cluster are told neither of the
        nodes' processes nor of directories: they may be elsewhere, and may have no rights."""
        if is_open:
            return self.look_around()
        bootstrap = ",".join(f"{host}:{port}" for host, port in self.bootstrap)
        return Here(), Commands(f" --bootstrap {quote(bootstrap)}", bootstrap)

    @property
    def tls(self) -> bool:
        return self.tls_certificate is not None

    @property
    def is_reached_by_tls(self) -> bool:
        """Whether browsers speak TLS, with the console or with a proxy before it."""
        return self.tls if self.origin is None else self.origin.startswith("https:")

    @property
    def url(self) -> str:
        host = self.host if self.host not in ("0.0.0.0", "::", "") else "127.0.0.1"
        shown = f"[{host}]" if ":" in host else host
        return f"{'https' if self.tls else 'http'}://{shown}:{self.port}"
