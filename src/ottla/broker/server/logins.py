"""From a node's settings to the gates of its listeners. Imported only where a listener has SASL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ottla.broker.server.credentials import KnownUsers
from ottla.broker.server.gate import GatedListener, GateLimits, Logins
from ottla.config.node_settings import Settings
from ottla.config.security_settings import OAuthSecurity
from ottla.config.values import ConfigError
from ottla.metadata.image import Delta, MetadataImage
from ottla.runtime.seams import Runtime
from ottla.security import jaas
from ottla.security.failures import FailureDelays
from ottla.security.login import Conversation
from ottla.security.scram import Decoys
from ottla.security.secrets import Secret
from ottla.security.tokens import TOKEN, TokenKeys, ends_ms

if TYPE_CHECKING:
    from ottla.broker.server.jwks import IssuerKeys

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
        token_secret = settings.delegation_token_secret_key
        self._known = KnownUsers(
            lambda: image().scram,
            Decoys(secret, random_bytes),
            random_bytes,
            lambda: image().delegation_tokens,
            None
            if token_secret is None
            else TokenKeys(token_secret, settings.delegation_token_secret_key_previous),
        )
        self._token_ends: dict[str, int] = {}
        """When each token is over, by its id."""
        self._clock = runtime.clock
        self._issuers: list[IssuerKeys] = []

    async def start(self) -> None:
        """Read the keys of all issuers. An issuer may be away for a while; a file that is not there is a mistake."""
        found = await asyncio.gather(*(issuer.start() for issuer in self._issuers))
        for issuer, succeeded in zip(self._issuers, found, strict=True):
            if not succeeded and issuer.address.startswith("file:"):
                raise ConfigError(
                    f"sasl.oauthbearer.jwks.endpoint.url: {issuer.address} cannot be used; the log says why"
                )

    def stop(self) -> None:
        for issuer in self._issuers:
            issuer.stop()

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
            sasl.mechanisms,
            _accounts(sasl.jaas.get("PLAIN")),
            sasl.reauth_ms,
            {} if sasl.oauth is None else {"OAUTHBEARER": self._oauth(sasl.oauth)},
        )
        return GatedListener(self._sessions, rules, limits)

    def _oauth(self, oauth: OAuthSecurity) -> Callable[[], Conversation]:
        from ottla.security.oauth import OAuthRules, OAuthServer

        rules = OAuthRules(
            oauth.expected_issuer,
            oauth.expected_audience,
            oauth.clock_skew_seconds,
            oauth.sub_claim_name,
            oauth.scope_claim_name,
            oauth.allow_unsecured,
        )
        verifier = None
        if oauth.jwks_endpoint_url is not None:
            from ottla.broker.server.jwks import IssuerKeys, JwksTimes
            from ottla.runtime.documents import read_document

            times = JwksTimes(
                oauth.refresh_ms / 1000,
                oauth.retry_backoff_ms / 1000,
                oauth.retry_backoff_max_ms / 1000,
            )
            verifier = IssuerKeys(oauth.jwks_endpoint_url, times, self._clock, read_document)
            self._issuers.append(verifier)
        return lambda: OAuthServer(rules, verifier, self._clock.wall_ms)

    def image_changed(self, image: MetadataImage, delta: Delta) -> None:
        """A session does not outlive the credential that it rests on."""
        if delta.changed_scram and self._settings.ottla_sessions_end_with_credentials:
            self._sessions.credentials_changed(delta.changed_scram)
        for token_id in delta.changed_tokens:
            token = image.delegation_tokens.get(token_id)
            ended_ms = self._token_ends.pop(token_id, None)
            if token is not None:
                self._token_ends[token_id] = ends_ms(token)
            # Who has only renewed it disturbs nobody.
            if ended_ms is not None and (token is None or ends_ms(token) < ended_ms):
                self._sessions.credentials_changed([(token_id, TOKEN)])


def _accounts(text: Secret | None) -> Mapping[str, Secret]:
    return {} if text is None else jaas.parse(text.reveal()).accounts
