"""From a node's settings to the gates of its listeners. Imported only where a listener has SASL."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.broker.server.credentials import KnownUsers
from ottla.broker.server.gate import GatedListener, GateLimits, Logins
from ottla.config.node_settings import Settings
from ottla.metadata.image import Delta, MetadataImage
from ottla.runtime.seams import Runtime
from ottla.security import jaas
from ottla.security.failures import FailureDelays
from ottla.security.scram import Decoys
from ottla.security.secrets import Secret

DECOY_SECRET_BYTES = 32


class NodeLogins:
    def __init__(
        self, settings: Settings, runtime: Runtime, image: Callable[[], MetadataImage]
    ) -> None:
        self._settings = settings
        longest_s = settings.ottla_failed_authentication_delay_max_ms / 1000
        self._sessions = Logins(runtime.clock, FailureDelays(longest_s))
        secret = settings.ottla_decoy_secret
        if secret is None:
            secret = Secret(runtime.random.randbytes(DECOY_SECRET_BYTES).hex())
        random_bytes = runtime.random.randbytes
        self._known = KnownUsers(lambda: image().scram, Decoys(secret, random_bytes), random_bytes)

    def listener(self, name: str) -> GatedListener | None:
        """What lets clients into this listener; None if nobody logs in there."""
        security = self._settings.security[name]
        if security.sasl is None:
            return None
        sasl = security.sasl
        limits = GateLimits(
            frame_bytes_max=sasl.frame_bytes_max,
            timeout_s=security.authentication_timeout_ms / 1000,
            failure_delay_s=sasl.failed_delay_ms / 1000,
            waiting_max=security.unauthenticated_max,
        )
        rules = self._known.rules(
            sasl.mechanisms, _accounts(sasl.jaas.get("PLAIN")), sasl.reauth_ms
        )
        return GatedListener(self._sessions, rules, limits)

    def image_changed(self, _image: MetadataImage, delta: Delta) -> None:
        """A session does not outlive the credential that it rests on."""
        if delta.changed_scram and self._settings.ottla_sessions_end_with_credentials:
            self._sessions.credentials_changed(delta.changed_scram)


def _accounts(text: Secret | None) -> Mapping[str, Secret]:
    return {} if text is None else jaas.parse(text.reveal()).accounts
