"""Which security each listener has: `ListenerSecurity`, from settings that are given bare or for one listener.

A setting may be given as `listener.name.<name>.<setting>`, and one of SASL as
`listener.name.<name>.<mechanism>.<setting>`. The longest form wins. What cannot work, or is not served, is refused here with
a sentence that says what to do, before a node takes its first port.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

from ottla.config.values import SettingKind, choice
from ottla.runtime.tls_options import KeyStore, TlsOptions, TrustStore
from ottla.security.secrets import Secret

if TYPE_CHECKING:
    from ottla.config.node_settings import Settings

PROTOCOL_NUMBERS: Final[Mapping[str, int]] = {
    "PLAINTEXT": 0,
    "SSL": 1,
    "SASL_PLAINTEXT": 2,
    "SASL_SSL": 3,
}
"""Kafka's security protocols, with their numbers on the wire."""
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PREFIX: Final = "listener.name."

CIPHERS: Final[Mapping[str, str]] = {
    f"TLS_ECDHE_{key}_WITH_{suite}": f"ECDHE-{key}-{short}"
    for key in ("ECDSA", "RSA")
    for suite, short in (
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
    )
}
"""IANA's and OpenSSL's names of what TLS 1.2 may use: forward secrecy, and ciphers that also authenticate."""
CIPHERS_1_3: Final = frozenset(
    ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
)

STORE_SETTINGS: Final = frozenset(
    (
        "ssl.keystore.type",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "ssl.key.password",
        "ssl.truststore.type",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.certificates",
    )
)
"""What may change while a node runs, in the form for one listener."""
OAUTH_SETTINGS: Final = frozenset(
    (
        "ottla.allow.unsecured.jwt",
        "sasl.oauthbearer.allow.unverified.audience",
        "sasl.oauthbearer.allow.unverified.issuer",
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.scope.claim.name",
        "sasl.oauthbearer.sub.claim.name",
    )
)
SASL_SETTINGS: Final = OAUTH_SETTINGS | frozenset(
    (
        "connections.max.reauth.ms",
        "sasl.jaas.config",
        "sasl.server.max.receive.size",
    )
)
"""What may also be given for one mechanism."""
LISTENER_SETTINGS: Final = (
    STORE_SETTINGS
    | SASL_SETTINGS
    | {
        "connection.failed.authentication.delay.ms",
        "max.connection.creation.rate",
        "max.connections",
        "ottla.allow.plain.without.tls",
        "ottla.authentication.timeout.ms",
        "ottla.trust.removed.grace.ms",
        "ottla.unauthenticated.connections.max",
        "sasl.enabled.mechanisms",
        "ssl.allow.dn.changes",
        "ssl.allow.san.changes",
        "ssl.cipher.suites",
        "ssl.client.auth",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.principal.mapping.rules",
    }
)
"""What may be given for one listener."""
TLS_WITHOUT_EFFECT: Final = frozenset(
    (
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    )
)
"""They choose among Java's own implementations of TLS."""


# Kinds of settings


def _parse_secret(text: str) -> Secret | None:
    return Secret(text) if text else None


def _parse_mechanisms(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    for name in found:
        _mechanism(name)
    if len(set(found)) != len(found):
        raise ValueError("a mechanism is given twice")
    return found


def _mechanism(name: str) -> str:
    if name == "GSSAPI":
        raise ValueError("GSSAPI (Kerberos) is not served; use SCRAM-SHA-512, or certificates")
    if name not in MECHANISMS:
        raise ValueError(f"'{name}' is not one of {', '.join(MECHANISMS)}")
    return name


def _parse_jwks_address(text: str) -> str | None:
    """http could be changed on its way, and then anybody could be anybody."""
    if text and not text.startswith(("https://", "file:///")):
        raise ValueError("is neither https://… nor file:///path")
    return text or None


def _parse_store_type(text: str) -> str:
    if text == "JKS":
        raise ValueError(
            "JKS stores are not read; convert it: keytool -importkeystore -srckeystore STORE.jks"
            " -destkeystore STORE.p12 -deststoretype PKCS12, and give the type PKCS12"
        )
    if text not in ("PEM", "PKCS12"):
        raise ValueError(f"'{text}' is neither PEM nor PKCS12")
    return text


def _parse_tls_versions(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    for name in found:
        if name not in ("TLSv1.2", "TLSv1.3"):
            raise ValueError(f"'{name}' is neither TLSv1.2 nor TLSv1.3; older ones are not safe")
    if not found:
        raise ValueError("is empty; give TLSv1.2,TLSv1.3")
    return found


def _parse_ciphers(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    for name in found:
        if name not in CIPHERS and name not in CIPHERS_1_3:
            allowed = ", ".join([*sorted(CIPHERS_1_3), *sorted(CIPHERS)])
            raise ValueError(f"'{name}' is not one of {allowed}")
    if CIPHERS_1_3 & set(found) and not set(found) >= CIPHERS_1_3:
        raise ValueError(
            "names only some suites of TLS 1.3, which OpenSSL turns on and off together: name"
            f" all of {', '.join(sorted(CIPHERS_1_3))}, or none"
        )
    return found


def _parse_identification(text: str) -> str:
    if text.lower() not in ("", "https"):
        raise ValueError(f"'{text}' is neither https nor empty")
    return text.lower()


SECRET: SettingKind[Secret | None] = SettingKind("PASSWORD", _parse_secret)
SECURITY_PROTOCOL: SettingKind[str] = choice(*PROTOCOL_NUMBERS)
MECHANISM_LIST: SettingKind[tuple[str, ...]] = SettingKind("LIST", _parse_mechanisms)
MECHANISM: SettingKind[str | None] = SettingKind(
    "STRING", lambda text: _mechanism(text) if text else None
)
JWKS_ADDRESS: SettingKind[str | None] = SettingKind("STRING", _parse_jwks_address)
STORE_TYPE: SettingKind[str] = SettingKind("STRING", _parse_store_type)
TLS_VERSIONS: SettingKind[tuple[str, ...]] = SettingKind("LIST", _parse_tls_versions)
CIPHER_SUITES: SettingKind[tuple[str, ...]] = SettingKind("LIST", _parse_ciphers)
IDENTIFICATION: SettingKind[str] = SettingKind("STRING", _parse_identification)
CLIENT_AUTH: SettingKind[str] = choice("none", "requested", "required")


# Settings of one listener


class ListenerSetting(NamedTuple):
    """`listener.name.<listener>.[<mechanism>.]<setting>`, taken apart. Listener and mechanism are in upper case."""

    listener: str
    mechanism: str | None
    setting: str


def take_apart(name: str, listeners: Collection[str]) -> ListenerSetting:
    """ValueError says why this can be no setting of one of these listeners."""
    rest = name.removeprefix(PREFIX)
    # A listener's name may contain dots, so the longest one that fits is meant.
    for listener in sorted(listeners, key=len, reverse=True):
        if rest.startswith(listener.lower() + "."):
            break
    else:
        raise ValueError(f"no listener has this name; there are {', '.join(sorted(listeners))}")
    setting = rest[len(listener) + 1 :]
    for mechanism in MECHANISMS:
        if setting.startswith(mechanism.lower() + "."):
            setting = setting[len(mechanism) + 1 :]
            of_another = setting in OAUTH_SETTINGS and mechanism != "OAUTHBEARER"
            if setting not in SASL_SETTINGS or of_another:
                raise ValueError(f"{setting} is not a setting of one mechanism")
            return ListenerSetting(listener, mechanism, setting)
    if setting not in LISTENER_SETTINGS and setting not in TLS_WITHOUT_EFFECT:
        raise ValueError(f"{setting} is not a setting of one listener")
    return ListenerSetting(listener, None, setting)


class OAuthSecurity(NamedTuple):
    """Which tokens count on one listener with OAUTHBEARER. Each field is the setting of its name."""

    jwks_endpoint_url: str | None
    expected_issuer: str | None
    expected_audience: tuple[str, ...]
    allow_unverified_issuer: bool
    allow_unverified_audience: bool
    allow_unsecured: bool
    clock_skew_seconds: int
    scope_claim_name: str
    sub_claim_name: str
    refresh_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int


@dataclass(frozen=True, slots=True, eq=False)
class SaslSecurity:
    """SASL on one listener."""

    mechanisms: tuple[str, ...]
    jaas: Mapping[str, Secret | None]
    """The JAAS text of each mechanism."""
    reauth_ms: Mapping[str, int]
    """connections.max.reauth.ms of each mechanism; 0: a login has no end."""
    receive_bytes_max: Mapping[str, int]
    """Of each mechanism."""
    failed_delay_ms: int
    node_mechanism: str | None
    """With what nodes log in here, if it is a listener that nodes use for each other."""
    decoy_secret: Secret | None
    """For the answers about users that do not exist."""
    oauth: OAuthSecurity | None
    """None without OAUTHBEARER."""

    @property
    def frame_bytes_max(self) -> int:
        """The largest frame before somebody is logged in."""
        return max(self.receive_bytes_max.values())


@dataclass(frozen=True, slots=True, eq=False)
class ListenerSecurity:
    """What one listener demands of who connects, and what it shows of itself. Also of a listener that only other nodes
    have, if this node connects to it."""

    name: str
    protocol: str
    tls: TlsOptions | None
    sasl: SaslSecurity | None
    mapping_rules: str
    """ssl.principal.mapping.rules: how a certificate's name becomes a principal's."""
    authentication_timeout_ms: int
    """TLS and SASL together."""
    unauthenticated_max: int

    @property
    def number(self) -> int:
        """The protocol's number on the wire."""
        return PROTOCOL_NUMBERS[self.protocol]

    @property
    def is_plain(self) -> bool:
        return self.protocol == "PLAINTEXT"


def protocol_faults(settings: Settings) -> Iterator[tuple[str, str]]:
    """Names of settings, and what is wrong with them, in what says which listener has which protocol."""
    protocols = protocols_of(settings)
    if any(protocol != "PLAINTEXT" for protocol in protocols.values()):
        for name in _names(settings):
            if name not in protocols:
                yield (
                    "listener.security.protocol.map",
                    f"does not say what {name} speaks; add {name}:SSL, for example",
                )
    if {"inter.broker.listener.name", "security.inter.broker.protocol"} <= settings.given.keys():
        yield (
            "security.inter.broker.protocol",
            "is given together with inter.broker.listener.name; give one of them",
        )


def protocols_of(settings: Settings) -> dict[str, str]:
    """The security protocol of each listener that has one. While no listener has security, all others are PLAINTEXT."""
    mapped = {name: name for name in PROTOCOL_NUMBERS} | dict(
        settings.listener_security_protocol_map
    )
    found = {name: mapped[name] for name in _names(settings) if name in mapped}
    if all(protocol == "PLAINTEXT" for protocol in found.values()):
        return dict.fromkeys(_names(settings), "PLAINTEXT")
    return found


def _names(settings: Settings) -> list[str]:
    names = [listener.name for listener in settings.listeners]
    return [*names, *(x for x in settings.controller_listener_names if x not in names)]


def listener_security(settings: Settings) -> dict[str, ListenerSecurity]:
    """Of every listener of this node, and of those that it connects to."""
    return {
        name: _ListenerValues(settings, name, protocol).security()
        for name, protocol in protocols_of(settings).items()
    }


def security_faults(settings: Settings) -> Iterator[tuple[str, str]]:
    """What is wrong with the security of the listeners, by the name of a setting."""
    own = {listener.name for listener in settings.listeners}
    asked = asked_listeners(settings)
    for security in settings.security.values():
        values = _ListenerValues(settings, security.name, security.protocol)
        if security.tls is not None:
            yield from values.tls_faults(
                security.tls, serves=security.name in own, asks=security.name in asked
            )
        if security.sasl is not None:
            yield from values.sasl_faults(
                security.sasl, serves=security.name in own, asks=security.name in asked
            )
    if _sasl_is_used(settings) and settings.connections_max_idle_ms >= 0:
        delay = settings.connection_failed_authentication_delay_ms
        if delay >= settings.connections_max_idle_ms:
            yield (
                "connection.failed.authentication.delay.ms",
                f"{delay} is not below connections.max.idle.ms, {settings.connections_max_idle_ms}",
            )


def asked_listeners(settings: Settings) -> set[str]:
    """The listeners of other nodes that this node connects to."""
    found = {settings.controller_listener_names[0]} if settings.controller_listener_names else set()
    if settings.is_broker and settings.inter_broker_listener_name is not None:
        found.add(settings.inter_broker_listener_name)
    return found


def _sasl_is_used(settings: Settings) -> bool:
    return any(security.sasl is not None for security in settings.security.values())


class _ListenerValues:
    """Reads the settings of one listener."""

    def __init__(self, settings: Settings, name: str, protocol: str) -> None:
        self._settings = settings
        self._name = name
        self._protocol = protocol

    def security(self) -> ListenerSecurity:
        return ListenerSecurity(
            self._name,
            self._protocol,
            self._tls() if self._protocol in ("SSL", "SASL_SSL") else None,
            self._sasl() if self._protocol.startswith("SASL") else None,
            self._value("ssl.principal.mapping.rules"),
            self._value("ottla.authentication.timeout.ms"),
            self._value("ottla.unauthenticated.connections.max"),
        )

    def _value(self, setting: str, mechanism: str | None = None) -> Any:
        per_listener = self._settings.per_listener
        begin = f"{PREFIX}{self._name.lower()}."
        if mechanism is not None:
            full = f"{begin}{mechanism.lower()}.{setting}"
            if full in per_listener:
                return per_listener[full]
        full = f"{begin}{setting}"
        if full in per_listener:
            return per_listener[full]
        return getattr(self._settings, setting.replace(".", "_"))

    def _is_own(self, setting: str) -> bool:
        return f"{PREFIX}{self._name.lower()}.{setting}" in self._settings.per_listener

    # TLS

    def _tls(self) -> TlsOptions:
        client_auth = self._value("ssl.client.auth")
        if self._protocol == "SASL_SSL" and not self._is_own("ssl.client.auth"):
            client_auth = "none"  # as in Kafka: the bare setting is for SSL listeners
        suites = self._value("ssl.cipher.suites")
        versions = self._value("ssl.enabled.protocols")
        if suites:
            with_1_2 = any(name in CIPHERS for name in suites)
            versions = tuple(
                version
                for version in versions
                if (with_1_2 if version == "TLSv1.2" else set(suites) >= CIPHERS_1_3)
            )
        return TlsOptions(
            self._name,
            self._key_store(),
            self._trust_store(),
            cast(Literal["none", "requested", "required"], client_auth),
            versions,
            tuple(CIPHERS[name] for name in suites if name in CIPHERS),
            self._value("ssl.endpoint.identification.algorithm") == "https",
            self._value("ssl.allow.dn.changes"),
            self._value("ssl.allow.san.changes"),
            self._value("ottla.authentication.timeout.ms") / 1000,
            self._value("ottla.unauthenticated.connections.max"),
            self._value("ottla.trust.removed.grace.ms"),
        )

    def _key_store(self) -> KeyStore | None:
        store = KeyStore(
            self._value("ssl.keystore.type"),
            self._value("ssl.keystore.location"),
            self._value("ssl.keystore.password"),
            self._value("ssl.keystore.key"),
            self._value("ssl.keystore.certificate.chain"),
            self._value("ssl.key.password"),
        )
        given = (store.location, store.key, store.certificate_chain)
        return None if all(each is None for each in given) else store

    def _trust_store(self) -> TrustStore | None:
        store = TrustStore(
            self._value("ssl.truststore.type"),
            self._value("ssl.truststore.location"),
            self._value("ssl.truststore.password"),
            self._value("ssl.truststore.certificates"),
        )
        return None if store.location is None and store.certificates is None else store

    def tls_faults(self, tls: TlsOptions, *, serves: bool, asks: bool) -> Iterator[tuple[str, str]]:
        """`serves`: this node has the listener. `asks`: it connects to that of others."""
        rules = self._value("ssl.principal.mapping.rules")
        if rules != "DEFAULT":
            from ottla.security.names import MappingRules

            try:
                MappingRules(rules)
            except ValueError as error:
                yield "ssl.principal.mapping.rules", str(error)
        if not tls.protocols:
            yield (
                "ssl.cipher.suites",
                f"leaves no version of TLS that ssl.enabled.protocols of {self._name} allows",
            )
        if serves and tls.key_store is None:
            yield (
                "ssl.keystore.location",
                f"is missing: listener {self._name} speaks {self._protocol} and needs a certificate;"
                " give a PEM file with key and certificate chain",
            )
        if tls.trust_store is None and (asks or (serves and tls.client_auth != "none")):
            yield (
                "ssl.truststore.location",
                f"is missing: {'other nodes' if asks else 'clients'} at listener {self._name} are"
                " believed by it; give a PEM file with their certificate authority",
            )
        if tls.key_store is not None:
            yield from self._key_store_faults(tls.key_store)
        if tls.trust_store is not None:
            yield from self._trust_store_faults(tls.trust_store)

    def _key_store_faults(self, store: KeyStore) -> Iterator[tuple[str, str]]:
        inline = store.key is not None or store.certificate_chain is not None
        if store.location is not None and inline:
            yield (
                "ssl.keystore.location",
                "is given together with a key or certificates as text; give one of them",
            )
        elif inline and (store.key is None or store.certificate_chain is None):
            yield (
                "ssl.keystore.key",
                "and ssl.keystore.certificate.chain belong together; one is missing",
            )
        if store.kind == "PEM" and store.store_password is not None:
            yield (
                "ssl.keystore.password",
                "is given for a PEM store, which has none; ssl.key.password is the key's",
            )
        if store.kind == "PKCS12" and inline:
            yield "ssl.keystore.type", "is PKCS12, and key and certificates as text are PEM"

    def _trust_store_faults(self, store: TrustStore) -> Iterator[tuple[str, str]]:
        if store.location is not None and store.certificates is not None:
            yield (
                "ssl.truststore.location",
                "is given together with ssl.truststore.certificates; give one of them",
            )
        if store.kind == "PEM" and store.store_password is not None:
            yield "ssl.truststore.password", "is given for a PEM store, which has none"
        if store.kind == "PKCS12" and store.certificates is not None:
            yield "ssl.truststore.type", "is PKCS12, and certificates as text are PEM"

    # SASL

    def _sasl(self) -> SaslSecurity:
        settings = self._settings
        mechanisms: tuple[str, ...] = self._value("sasl.enabled.mechanisms")
        node_mechanism = None
        if self._name == settings.inter_broker_listener_name:
            node_mechanism = settings.sasl_mechanism_inter_broker_protocol
        elif self._name in settings.controller_listener_names:
            node_mechanism = settings.sasl_mechanism_controller_protocol
        every = dict.fromkeys((*mechanisms, *([node_mechanism] if node_mechanism else [])))
        return SaslSecurity(
            mechanisms,
            {name: self._value("sasl.jaas.config", name) for name in every},
            {name: self._value("connections.max.reauth.ms", name) for name in every},
            {name: self._value("sasl.server.max.receive.size", name) for name in every}
            or {"": self._value("sasl.server.max.receive.size")},
            self._value("connection.failed.authentication.delay.ms"),
            node_mechanism,
            settings.ottla_decoy_secret,
            self._oauth() if "OAUTHBEARER" in mechanisms else None,
        )

    def _oauth(self) -> OAuthSecurity:
        def value(setting: str) -> Any:
            return self._value(f"sasl.oauthbearer.{setting}", "OAUTHBEARER")

        return OAuthSecurity(
            value("jwks.endpoint.url"),
            value("expected.issuer"),
            value("expected.audience"),
            value("allow.unverified.issuer"),
            value("allow.unverified.audience"),
            self._value("ottla.allow.unsecured.jwt", "OAUTHBEARER"),
            value("clock.skew.seconds"),
            value("scope.claim.name"),
            value("sub.claim.name"),
            value("jwks.endpoint.refresh.ms"),
            value("jwks.endpoint.retry.backoff.ms"),
            value("jwks.endpoint.retry.backoff.max.ms"),
        )

    def _oauth_faults(self, oauth: OAuthSecurity) -> Iterator[tuple[str, str]]:
        """Tokens of anybody, or for anybody, are no proof of anything (CVE-2026-33557)."""
        needed = f"is missing: clients log in by OAUTHBEARER at listener {self._name}; "
        if oauth.allow_unsecured:
            return  # then tokens prove nothing, and the operator has said that this is wanted
        if oauth.jwks_endpoint_url is None:
            yield (
                "sasl.oauthbearer.jwks.endpoint.url",
                needed + "give the https address of the issuer's keys, or a file:///path",
            )
        if oauth.expected_issuer is None and not oauth.allow_unverified_issuer:
            yield (
                "sasl.oauthbearer.expected.issuer",
                needed + "give what tokens have as iss, or set"
                " sasl.oauthbearer.allow.unverified.issuer=true",
            )
        if not oauth.expected_audience and not oauth.allow_unverified_audience:
            yield (
                "sasl.oauthbearer.expected.audience",
                needed + "give what tokens have as aud, or set"
                " sasl.oauthbearer.allow.unverified.audience=true",
            )

    def sasl_faults(
        self, sasl: SaslSecurity, *, serves: bool, asks: bool
    ) -> Iterator[tuple[str, str]]:
        if serves and not sasl.mechanisms:
            yield (
                "sasl.enabled.mechanisms",
                f"is missing: listener {self._name} speaks {self._protocol}; for example SCRAM-SHA-512",
            )
        plain = "PLAIN" in sasl.mechanisms or (asks and sasl.node_mechanism == "PLAIN")
        if (
            plain
            and self._protocol == "SASL_PLAINTEXT"
            and not self._value("ottla.allow.plain.without.tls")
        ):
            yield (
                "sasl.enabled.mechanisms",
                f"PLAIN would send passwords without encryption at listener {self._name}; use SASL_SSL"
                " or SCRAM-SHA-512, or set ottla.allow.plain.without.tls=true",
            )
        is_controller = self._name in self._settings.controller_listener_names
        if is_controller and any(
            name is not None and name.startswith("SCRAM")
            for name in (*sasl.mechanisms, sasl.node_mechanism)
        ):
            yield (
                "sasl.mechanism.controller.protocol",
                f"SCRAM cannot be used at the controllers' listener {self._name}: its passwords are in the"
                " metadata, which controllers have only after they found each other. Use SSL with certificates,"
                " or PLAIN",
            )
        if sasl.oauth is not None:
            yield from self._oauth_faults(sasl.oauth)
        if asks and sasl.node_mechanism == "OAUTHBEARER":
            yield (
                "sasl.mechanism.inter.broker.protocol",
                f"nodes cannot log in by OAUTHBEARER at listener {self._name}; use SSL with"
                " certificates, or SCRAM-SHA-512",
            )
        for mechanism, text in sasl.jaas.items():
            if text is not None:
                yield from self._jaas_faults(
                    mechanism, text, logs_in=asks and mechanism == sasl.node_mechanism
                )
        if not asks:
            return
        setting = (
            "sasl.mechanism.controller.protocol"
            if is_controller
            else "sasl.mechanism.inter.broker.protocol"
        )
        if sasl.node_mechanism is None:
            yield setting, f"is missing: nodes log in at listener {self._name}"
        elif serves and sasl.node_mechanism not in sasl.mechanisms:
            yield setting, f"{sasl.node_mechanism} is not enabled at listener {self._name}"
        elif sasl.jaas.get(sasl.node_mechanism) is None:
            yield (
                "sasl.jaas.config",
                f"is missing: with it this node logs in at listener {self._name}; give"
                f" {PREFIX}{self._name.lower()}.{sasl.node_mechanism.lower()}.sasl.jaas.config",
            )

    def _jaas_faults(
        self, mechanism: str, text: Secret, *, logs_in: bool
    ) -> Iterator[tuple[str, str]]:
        """`logs_in`: this node itself uses the text at another node."""
        from ottla.security import jaas

        try:
            module = jaas.parse(text.reveal())
        except jaas.JaasError as error:
            yield "sasl.jaas.config", f"of {mechanism} at listener {self._name} {error}"
            return
        wanted = {"PLAIN": jaas.PLAIN, "OAUTHBEARER": jaas.OAUTHBEARER}.get(mechanism, jaas.SCRAM)
        if module.name != wanted:
            yield (
                "sasl.jaas.config",
                f"of {mechanism} at listener {self._name} names another login module than {wanted}",
            )
        elif logs_in and (not module.username or module.password is None):
            yield (
                "sasl.jaas.config",
                f"of {mechanism} at listener {self._name} has no username or no password, with which"
                " this node is to log in at others",
            )
