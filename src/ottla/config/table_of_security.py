"""TLS and SASL. All of these may also be given for one listener: `listener.name.<name>.<setting>`."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.config.security_settings import (
    CIPHER_SUITES,
    CLIENT_AUTH,
    IDENTIFICATION,
    JWKS_ADDRESS,
    MECHANISM,
    MECHANISM_LIST,
    SECRET,
    STORE_TYPE,
    TLS_VERSIONS,
)
from ottla.config.setting import setting
from ottla.config.values import BOOLEAN, HOUR_MS, LIST, OPTIONAL_TEXT, TEXT, WEEK_MS, integer, long
from ottla.security.secrets import Secret


@dataclass(frozen=True, eq=False, repr=False)
class SecuritySettings:
    # TLS
    ssl_keystore_type: str = setting(
        "ssl.keystore.type", STORE_TYPE, "PEM", "What holds a listener's key: PEM or PKCS12."
    )
    ssl_keystore_location: str | None = setting(
        "ssl.keystore.location",
        OPTIONAL_TEXT,
        None,
        "The file with a listener's private key and certificate chain.",
    )
    ssl_keystore_password: Secret | None = setting(
        "ssl.keystore.password", SECRET, None, "The password of a PKCS12 file."
    )
    ssl_keystore_key: Secret | None = setting(
        "ssl.keystore.key", SECRET, None, "The private key as PEM text, in place of a file."
    )
    ssl_keystore_certificate_chain: Secret | None = setting(
        "ssl.keystore.certificate.chain",
        SECRET,
        None,
        "The certificate chain as PEM text, in place of a file.",
    )
    ssl_key_password: Secret | None = setting(
        "ssl.key.password", SECRET, None, "The password of a private key that is encrypted."
    )
    ssl_truststore_type: str = setting(
        "ssl.truststore.type",
        STORE_TYPE,
        "PEM",
        "What holds the certificate authorities: PEM or PKCS12.",
    )
    ssl_truststore_location: str | None = setting(
        "ssl.truststore.location",
        OPTIONAL_TEXT,
        None,
        "The file with the certificate authorities that are believed.",
    )
    ssl_truststore_password: Secret | None = setting(
        "ssl.truststore.password", SECRET, None, "The password of a PKCS12 file."
    )
    ssl_truststore_certificates: Secret | None = setting(
        "ssl.truststore.certificates",
        SECRET,
        None,
        "The certificate authorities as PEM text, in place of a file.",
    )
    ssl_client_auth: str = setting(
        "ssl.client.auth",
        CLIENT_AUTH,
        "none",
        "Whether clients of an SSL listener need a certificate: none, requested, required. For SASL_SSL it must be given "
        "with the listener's name.",
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        "ssl.enabled.protocols", TLS_VERSIONS, ("TLSv1.2", "TLSv1.3"), "Versions of TLS."
    )
    ssl_cipher_suites: tuple[str, ...] = setting(
        "ssl.cipher.suites",
        CIPHER_SUITES,
        (),
        "Cipher suites by IANA's names (empty: all that are good). A version of TLS without a suite here is turned off.",
    )
    ssl_endpoint_identification_algorithm: str = setting(
        "ssl.endpoint.identification.algorithm",
        IDENTIFICATION,
        "https",
        "Whether the certificate of another node must name its host: https, or empty for no.",
    )
    ssl_principal_mapping_rules: str = setting(
        "ssl.principal.mapping.rules",
        TEXT,
        "DEFAULT",
        "How a certificate's name becomes a principal's: RULE:pattern/replacement/[LU] or DEFAULT, separated by commas.",
    )
    ssl_allow_dn_changes: bool = setting(
        "ssl.allow.dn.changes",
        BOOLEAN,
        False,
        "Take a new certificate while the node runs even if its name is another.",
    )
    ssl_allow_san_changes: bool = setting(
        "ssl.allow.san.changes",
        BOOLEAN,
        False,
        "Take a new certificate while the node runs even if it names fewer hosts.",
    )
    ottla_trust_removed_grace_ms: int = setting(
        "ottla.trust.removed.grace.ms",
        long(0),
        0,
        "How long connections live on whose certificate authority was removed from the trust store.",
    )

    # SASL
    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        "sasl.enabled.mechanisms",
        MECHANISM_LIST,
        (),
        "Mechanisms of a SASL listener: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER.",
    )
    sasl_mechanism_inter_broker_protocol: str | None = setting(
        "sasl.mechanism.inter.broker.protocol",
        MECHANISM,
        None,
        "With what brokers log in at each other, if their listener has SASL.",
    )
    sasl_mechanism_controller_protocol: str | None = setting(
        "sasl.mechanism.controller.protocol",
        MECHANISM,
        None,
        "With what nodes log in at controllers, if their listener has SASL. SCRAM cannot be used there.",
    )
    sasl_jaas_config: Secret | None = setting(
        "sasl.jaas.config",
        SECRET,
        None,
        "Users, or this node's own login, as a JAAS text. Best given as listener.name.<name>.<mechanism>.sasl.jaas.config.",
    )
    sasl_server_max_receive_size: int = setting(
        "sasl.server.max.receive.size", integer(1), 524_288, "Largest frame before a login."
    )
    connections_max_reauth_ms: int = setting(
        "connections.max.reauth.ms",
        long(0),
        0,
        "How long a login counts before the client must log in again (0: no limit).",
    )
    connection_failed_authentication_delay_ms: int = setting(
        "connection.failed.authentication.delay.ms",
        integer(0),
        100,
        "How long the answer to a failed login is held back.",
    )
    ottla_authentication_timeout_ms: int = setting(
        "ottla.authentication.timeout.ms",
        integer(1),
        10_000,
        "How long a new connection may take for TLS and login together.",
    )
    ottla_unauthenticated_connections_max: int = setting(
        "ottla.unauthenticated.connections.max",
        integer(1),
        1_000,
        "Connections of a listener that have not finished TLS and login. The oldest gives way to one more.",
    )
    ottla_failed_authentication_delay_max_ms: int = setting(
        "ottla.failed.authentication.delay.max.ms",
        integer(0),
        10_000,
        "The delay of failed logins doubles with each further one from the same address, up to this.",
    )
    ottla_allow_plain_without_tls: bool = setting(
        "ottla.allow.plain.without.tls",
        BOOLEAN,
        False,
        "Serve the mechanism PLAIN without TLS: whoever sees the network sees the passwords.",
    )
    ottla_sessions_end_with_credentials: bool = setting(
        "ottla.sessions.end.with.credentials",
        BOOLEAN,
        True,
        "Whether a changed or removed SCRAM credential ends the sessions that began with it.",
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = setting(
        "sasl.oauthbearer.jwks.endpoint.url",
        JWKS_ADDRESS,
        None,
        "Where the public keys lie that tokens of OAUTHBEARER are signed by: https://… or file:///path.",
    )
    sasl_oauthbearer_expected_issuer: str | None = setting(
        "sasl.oauthbearer.expected.issuer",
        OPTIONAL_TEXT,
        None,
        "Who issues tokens: their claim iss.",
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = setting(
        "sasl.oauthbearer.expected.audience",
        LIST,
        (),
        "For whom tokens are issued: one of these must be in their claim aud.",
    )
    sasl_oauthbearer_allow_unverified_issuer: bool = setting(
        "sasl.oauthbearer.allow.unverified.issuer",
        BOOLEAN,
        False,
        "Start without sasl.oauthbearer.expected.issuer.",
    )
    sasl_oauthbearer_allow_unverified_audience: bool = setting(
        "sasl.oauthbearer.allow.unverified.audience",
        BOOLEAN,
        False,
        "Start without sasl.oauthbearer.expected.audience: tokens for other services count here, too.",
    )
    ottla_allow_unsecured_jwt: bool = setting(
        "ottla.allow.unsecured.jwt",
        BOOLEAN,
        False,
        "Believe tokens that nobody has signed: then everybody can be everybody. For tests only.",
    )
    sasl_oauthbearer_clock_skew_seconds: int = setting(
        "sasl.oauthbearer.clock.skew.seconds",
        integer(0),
        30,
        "How much the issuer's clock may be ahead of this node's.",
    )
    sasl_oauthbearer_scope_claim_name: str = setting(
        "sasl.oauthbearer.scope.claim.name", TEXT, "scope", "The claim of tokens with their scope."
    )
    sasl_oauthbearer_sub_claim_name: str = setting(
        "sasl.oauthbearer.sub.claim.name", TEXT, "sub", "The claim of tokens with the user's name."
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        long(1),
        HOUR_MS,
        "How often the issuer's keys are read again.",
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = setting(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        long(1),
        100,
        "How soon that is tried again if it fails; twice as long each time.",
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = setting(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        long(1),
        10_000,
        "The longest time between two such tries.",
    )
    delegation_token_secret_key: Secret | None = setting(
        "delegation.token.secret.key",
        SECRET,
        None,
        "What delegation tokens are made with, the same on all nodes. Without it there are no tokens.",
    )
    delegation_token_secret_key_previous: Secret | None = setting(
        "delegation.token.secret.key.previous",
        SECRET,
        None,
        "The delegation.token.secret.key of before: tokens that were made with it count until this is removed. Not in Kafka.",
    )
    delegation_token_max_lifetime_ms: int = setting(
        "delegation.token.max.lifetime.ms",
        long(1),
        WEEK_MS,
        "How long a delegation token can live, however often it is renewed.",
    )
    delegation_token_expiry_time_ms: int = setting(
        "delegation.token.expiry.time.ms",
        long(1),
        24 * HOUR_MS,
        "How long a delegation token counts before it must be renewed.",
    )
    delegation_token_expiry_check_interval_ms: int = setting(
        "delegation.token.expiry.check.interval.ms",
        long(1),
        HOUR_MS,
        "How often tokens that are over are removed. They do not count before that either.",
    )
    ottla_decoy_secret: Secret | None = setting(
        "ottla.decoy.secret",
        SECRET,
        None,
        "The same on all brokers: then all answer alike about users that do not exist. Without it each broker makes its own.",
    )
