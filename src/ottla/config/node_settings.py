"""A node's settings: Kafka's names, Kafka's defaults, from a properties file and the environment.

`Settings` is at once the table and the typed result. Each field states its Kafka name, its kind, its
default and one sentence of documentation, so `settings.broker_session_timeout_ms` is an `int` for the
type checker, and the same line answers DescribeConfigs. Keys of our own begin with `ottla.`.

Whatever is not in the table is refused with the nearest right name. Kafka has many settings for
machinery that we do not have: those that cannot change what a user sees (thread counts, buffer
sizes) are accepted and named once in the log; those that promise something we do not do yet (TLS,
tiered storage, plug-in classes) are refused, because a silently ignored promise is worse than a
node that does not start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, NoReturn, TypeVar

from ottla.config.inert import INERT
from ottla.config.names import HARMLESS, TOPIC_TO_SERVER, refuse_unknown
from ottla.config.security_settings import (
    CIPHER_SUITES,
    CLIENT_AUTH,
    IDENTIFICATION,
    JWKS_ADDRESS,
    MECHANISM,
    MECHANISM_LIST,
    PREFIX,
    SECRET,
    SECURITY_PROTOCOL,
    STORE_TYPE,
    TLS_VERSIONS,
    TLS_WITHOUT_EFFECT,
    ListenerSecurity,
    listener_security,
    protocol_faults,
    security_faults,
    take_apart,
)
from ottla.config.sources import Entry, entries_from_environment, read_properties
from ottla.config.values import (
    ADDRESSES,
    ASSIGNORS,
    AUTHORIZER,
    BOOLEAN,
    CODECS,
    FLOAT_MAX,
    HOUR_MS,
    HTTP_LISTENERS,
    INT_MAX,
    LIST,
    LISTENERS,
    LONG_MAX,
    OPTIONAL_TEXT,
    PER_ADDRESS,
    POLICIES,
    PROTOCOL_MAP,
    PROTOCOLS,
    RATE,
    RATIO,
    ROLES,
    SELECTOR,
    SUPER_USERS,
    TEXT,
    TIMESTAMP_TYPES,
    VOTERS,
    WEEK_MS,
    Address,
    ConfigError,
    ListenerAddress,
    QuorumVoter,
    SettingKind,
    choice,
    integer,
    long,
    text_of,
)
from ottla.security.secrets import HIDDEN, Secret

T = TypeVar("T")


@dataclass(frozen=True)
class Setting:
    """One row of the table, as found in the metadata of a field of `Settings`."""

    name: str
    kind: SettingKind[Any]
    doc: str
    also: tuple[tuple[str, int], ...] = ()
    """Older or coarser names, best first, each with the factor that makes it the main unit."""

    @property
    def names(self) -> tuple[str, ...]:
        """All names of the setting."""
        return (self.name, *(other for other, _ in self.also))

    @property
    def is_optional(self) -> bool:
        """Whether it may have no value."""
        return self.kind in (OPTIONAL_TEXT, SELECTOR, SECRET, MECHANISM, JWKS_ADDRESS)

    @property
    def is_secret(self) -> bool:
        return self.kind is SECRET

    @property
    def attribute(self) -> str:
        return self.name.replace(".", "_")


def setting(
    name: str,
    kind: SettingKind[T],
    default: T,
    doc: str,
    *,
    also: tuple[tuple[str, int], ...] = (),
) -> T:
    """A field of `Settings`. Typed as the value, because that is what reading the field gives."""
    row = Setting(name, kind, doc, also)
    return field(default=default, metadata={"setting": row})


@dataclass(frozen=True, eq=False, repr=False)
class Settings:
    """All settings of one node. Build with `Settings.load` or `Settings.of`, which validate."""

    given: Mapping[str, str]
    """Name and text of what the operator set, by Kafka's main names; everything else is default."""
    ignored: tuple[str, ...]
    """Settings of Kafka that the operator set and that have no effect here."""
    per_listener: Mapping[str, Any]
    """What is set for one listener, by its whole name: `listener.name.<name>.<setting>`."""

    # Who this node is
    node_id: int = setting(
        "node.id",
        integer(0),
        -1,
        "This node's id, unique in the cluster.",
        also=(("broker.id", 1),),
    )
    process_roles: frozenset[str] = setting(
        "process.roles", ROLES, frozenset(), "What this node is: broker, controller, or both."
    )
    cluster_id: str | None = setting(
        "cluster.id",
        OPTIONAL_TEXT,
        None,
        "The cluster's id for a directory that has none yet; otherwise it must agree.",
    )
    broker_rack: str | None = setting(
        "broker.rack", OPTIONAL_TEXT, None, "The rack (or zone) that replicas are spread over."
    )

    # Where it listens
    listeners: tuple[ListenerAddress, ...] = setting(
        "listeners", LISTENERS, (ListenerAddress("PLAINTEXT", "", 9092),), "Addresses to listen on."
    )
    advertised_listeners: tuple[ListenerAddress, ...] = setting(
        "advertised.listeners",
        LISTENERS,
        (),
        "Addresses that clients are told; default: listeners.",
    )
    listener_security_protocol_map: tuple[tuple[str, str], ...] = setting(
        "listener.security.protocol.map", PROTOCOL_MAP, (), "Security protocol of each listener."
    )
    inter_broker_listener_name: str | None = setting(
        "inter.broker.listener.name",
        OPTIONAL_TEXT,
        None,
        "The listener that brokers use among each other.",
    )
    security_inter_broker_protocol: str = setting(
        "security.inter.broker.protocol",
        SECURITY_PROTOCOL,
        "PLAINTEXT",
        "Security protocol between brokers: that of the listener with the same name. Or give inter.broker.listener.name.",
    )
    authorizer_class_name: str = setting(
        "authorizer.class.name",
        AUTHORIZER,
        "",
        "Kafka's StandardAuthorizer: requests need ACLs. Empty: everything is allowed.",
    )
    super_users: tuple[str, ...] = setting(
        "super.users",
        SUPER_USERS,
        (),
        "Principals that may do everything, separated by semicolons: User:admin;User:node-1.",
    )
    allow_everyone_if_no_acl_found: bool = setting(
        "allow.everyone.if.no.acl.found",
        BOOLEAN,
        False,
        "Whether everybody may do everything with a resource that has no ACL.",
    )
    controller_listener_names: tuple[str, ...] = setting(
        "controller.listener.names", LIST, (), "Names of the listeners that controllers use."
    )
    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes", integer(1), 104_857_600, "Largest request that is accepted."
    )
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms", long(-1), 600_000, "Idle connections are closed after this time."
    )
    max_connections: int = setting(
        "max.connections",
        integer(0),
        INT_MAX,
        "Connections of all listeners that have logged in, or need not. Further ones wait to be accepted. May also be given "
        "for one listener.",
    )
    max_connections_per_ip: int = setting(
        "max.connections.per.ip",
        integer(0),
        INT_MAX,
        "Connections from one address. Further ones are closed at once.",
    )
    max_connections_per_ip_overrides: tuple[tuple[str, int], ...] = setting(
        "max.connections.per.ip.overrides",
        PER_ADDRESS,
        (),
        "Other limits than max.connections.per.ip for these addresses: 10.0.0.7:200,10.0.0.8:50.",
    )
    max_connection_creation_rate: int = setting(
        "max.connection.creation.rate",
        integer(0),
        INT_MAX,
        "New connections a second. Further ones wait to be accepted. May also be given for one listener.",
    )

    # TLS. All of these, and those of SASL, may also be given for one listener: listener.name.<name>.<setting>.
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

    # The controller quorum
    controller_quorum_voters: tuple[QuorumVoter, ...] = setting(
        "controller.quorum.voters",
        VOTERS,
        (),
        "The static voters: id@host:port of each controller.",
    )
    controller_quorum_bootstrap_servers: tuple[Address, ...] = setting(
        "controller.quorum.bootstrap.servers",
        ADDRESSES,
        (),
        "Controllers to ask first, where voters are dynamic.",
    )
    controller_quorum_election_timeout_ms: int = setting(
        "controller.quorum.election.timeout.ms",
        integer(1),
        1_000,
        "How long a voter waits for a leader before it starts an election.",
    )
    controller_quorum_fetch_timeout_ms: int = setting(
        "controller.quorum.fetch.timeout.ms",
        integer(1),
        2_000,
        "How long a follower, or a leader's majority, may go without a successful fetch.",
    )
    controller_quorum_election_backoff_max_ms: int = setting(
        "controller.quorum.election.backoff.max.ms",
        integer(1),
        1_000,
        "Longest pause after a lost election.",
    )
    controller_quorum_request_timeout_ms: int = setting(
        "controller.quorum.request.timeout.ms", integer(1), 2_000, "Limit of one quorum request."
    )
    controller_quorum_retry_backoff_ms: int = setting(
        "controller.quorum.retry.backoff.ms", integer(0), 20, "Pause before a quorum request again."
    )
    controller_quorum_auto_join_enable: bool = setting(
        "controller.quorum.auto.join.enable",
        BOOLEAN,
        False,
        "A controller that is no voter becomes one by itself, where voters are dynamic.",
    )
    metadata_log_dir: str = setting(
        "metadata.log.dir", TEXT, "", "Where the cluster metadata lies; default: the first log dir."
    )
    metadata_log_segment_bytes: int = setting(
        "metadata.log.segment.bytes", integer(12), 1 << 30, "Size of a metadata log segment."
    )
    metadata_log_segment_ms: int = setting(
        "metadata.log.segment.ms", long(1), WEEK_MS, "Age at which a metadata segment is rolled."
    )
    metadata_log_max_record_bytes_between_snapshots: int = setting(
        "metadata.log.max.record.bytes.between.snapshots",
        long(1),
        20 << 20,
        "Bytes of new metadata after which a snapshot is written.",
    )
    metadata_log_max_snapshot_interval_ms: int = setting(
        "metadata.log.max.snapshot.interval.ms",
        long(0),
        HOUR_MS,
        "Longest time between snapshots while there is new metadata (0: no limit).",
    )
    metadata_max_retention_bytes: int = setting(
        "metadata.max.retention.bytes",
        long(-1),
        100 << 20,
        "Metadata log and snapshots kept, bytes.",
    )
    metadata_max_retention_ms: int = setting(
        "metadata.max.retention.ms", long(-1), WEEK_MS, "Metadata log and snapshots kept, time."
    )
    metadata_max_idle_interval_ms: int = setting(
        "metadata.max.idle.interval.ms",
        integer(0),
        500,
        "How often the active controller writes a no-op when idle (0: never).",
    )

    # Liveness
    broker_heartbeat_interval_ms: int = setting(
        "broker.heartbeat.interval.ms",
        integer(1),
        2_000,
        "How often a broker reports to the controller.",
    )
    broker_session_timeout_ms: int = setting(
        "broker.session.timeout.ms", integer(1), 9_000, "Silence after which a broker is fenced."
    )
    initial_broker_registration_timeout_ms: int = setting(
        "initial.broker.registration.timeout.ms",
        integer(1),
        60_000,
        "How long a starting broker tries to register before it gives up.",
    )
    controlled_shutdown_enable: bool = setting(
        "controlled.shutdown.enable", BOOLEAN, True, "Move leaders away before stopping."
    )
    ottla_broker_reconnect_grace_ms: int = setting(
        "ottla.broker.reconnect.grace.ms",
        integer(0),
        100,
        "After a broker's connection to the controller closed: time to reconnect before it is fenced.",
    )
    ottla_controlled_shutdown_timeout_ms: int = setting(
        "ottla.controlled.shutdown.timeout.ms",
        integer(0),
        10_000,
        "Longest controlled shutdown; after it the node stops anyway.",
    )

    ottla_event_log_enable: bool = setting(
        "ottla.event.log.enable",
        BOOLEAN,
        True,
        "Write what happens (elections, ISR changes, truncations and more) to the topic __ottla_events.",
    )
    ottla_event_log_queue_max: int = setting(
        "ottla.event.log.queue.max",
        integer(1),
        20_000,
        "Events that wait while the event log cannot be written. More are dropped, and counted.",
    )
    ottla_event_log_retention_ms: int = setting(
        "ottla.event.log.retention.ms",
        long(-1),
        WEEK_MS,
        "How long the event log keeps its entries; -1: for ever. Counts when the topic is created.",
    )
    ottla_event_log_retention_bytes: int = setting(
        "ottla.event.log.retention.bytes",
        long(-1),
        256 << 20,
        "How large the event log may become; -1: no limit. Counts when the topic is created.",
    )

    ottla_audit_topic: str = setting(
        "ottla.audit.topic",
        choice("__ottla_audit", ""),
        "__ottla_audit",
        "Where logins, denials and changes are recorded, if there is an authorizer or SASL. Empty: in the node's log only.",
    )
    ottla_audit_queue_max: int = setting(
        "ottla.audit.queue.max",
        integer(1),
        20_000,
        "Entries of the audit that wait while its topic cannot be written. More are dropped, and counted.",
    )
    ottla_audit_retention_ms: int = setting(
        "ottla.audit.retention.ms",
        long(-1),
        30 * 24 * 3_600_000,
        "How long the audit keeps its entries; -1: for ever. Counts when the topic is created.",
    )
    ottla_audit_retention_bytes: int = setting(
        "ottla.audit.retention.bytes",
        long(-1),
        1 << 30,
        "How large the audit may become; -1: no limit. Counts when the topic is created.",
    )

    ottla_local_sockets_enable: bool = setting(
        "ottla.local.sockets.enable",
        BOOLEAN,
        True,
        "Nodes that find each other at a loopback address talk over Unix sockets (Linux); false: over TCP, to be watched "
        "or disturbed. With TLS or SASL on a listener: only if it is set to true. There is no TLS and no login on them then; only "
        "processes of the node's own user are let in, and count as the node itself.",
    )

    # Seeing into it
    ottla_metrics_without_login: bool = setting(
        "ottla.metrics.without.login",
        BOOLEAN,
        False,
        "Whether a node with an authorizer, TLS or SASL shows /metrics to everybody who reaches metrics.listeners. Else only "
        "on loopback addresses.",
    )
    metrics_listeners: tuple[ListenerAddress, ...] = setting(
        "metrics.listeners",
        HTTP_LISTENERS,
        (),
        "Where metrics and health are served, as HTTP://host:port (empty: nowhere). Paths: /metrics, /livez, /readyz.",
    )
    ottla_metrics_topics_max: int = setting(
        "ottla.metrics.topics.max",
        integer(0),
        1_000,
        "Topics with metrics of their own. The others count in the sums.",
    )
    ottla_metrics_partitions_max: int = setting(
        "ottla.metrics.partitions.max",
        integer(0),
        2_000,
        "Replicas with metrics of their own (size, offsets, ISR). The others count in the sums.",
    )
    ottla_metrics_group_partitions_max: int = setting(
        "ottla.metrics.group.partitions.max",
        integer(0),
        10_000,
        "Committed offsets (a group's in a partition) whose lag one scrape may ask for. The others are counted.",
    )

    telemetry_max_bytes: int = setting(
        "telemetry.max.bytes", integer(1), 1_048_576, "Largest push of a client's metrics."
    )
    ottla_client_metrics_clients_max: int = setting(
        "ottla.client.metrics.clients.max",
        integer(0),
        1_000,
        "Clients whose pushed metrics one broker shows. What others push is counted and dropped.",
    )

    # The node's log
    ottla_log_format: str = setting(
        "ottla.log.format",
        choice("text", "json"),
        "text",
        "Lines of the node's log: a text and key=value, or one JSON object each.",
    )
    ottla_log_file_max_bytes: int = setting(
        "ottla.log.file.max.bytes",
        long(0),
        10 << 20,
        "Size at which node.log is rotated; 0: never. Of nodes that ottla up starts.",
    )
    ottla_log_file_backups: int = setting(
        "ottla.log.file.backups", integer(0), 5, "Rotated files to keep: node.log.1 is the newest."
    )

    # Replication
    default_replication_factor: int = setting(
        "default.replication.factor", integer(1), 1, "Replicas of a topic that names no factor."
    )
    num_partitions: int = setting(
        "num.partitions", integer(1), 1, "Partitions of a topic that names no number."
    )
    replica_lag_time_max_ms: int = setting(
        "replica.lag.time.max.ms", long(1), 30_000, "A follower behind for longer leaves the ISR."
    )
    replica_fetch_max_bytes: int = setting(
        "replica.fetch.max.bytes", integer(0), 1 << 20, "Bytes per partition in a follower's fetch."
    )
    replica_fetch_response_max_bytes: int = setting(
        "replica.fetch.response.max.bytes", integer(0), 10 << 20, "Bytes in a follower's fetch."
    )
    replica_fetch_min_bytes: int = setting(
        "replica.fetch.min.bytes", integer(0), 1, "Bytes a follower's fetch waits for."
    )
    replica_fetch_wait_max_ms: int = setting(
        "replica.fetch.wait.max.ms", integer(0), 500, "Longest wait of a follower's fetch."
    )
    replica_fetch_backoff_ms: int = setting(
        "replica.fetch.backoff.ms", integer(0), 1_000, "Pause of a follower after a failed fetch."
    )
    replica_socket_timeout_ms: int = setting(
        "replica.socket.timeout.ms", integer(1), 30_000, "Limit of one follower request."
    )
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        "replica.high.watermark.checkpoint.interval.ms",
        long(1),
        5_000,
        "How often high watermarks are written to disk.",
    )
    replica_selector_class: str | None = setting(
        "replica.selector.class",
        SELECTOR,
        None,
        "Let consumers that name their rack read from a replica there (RackAwareReplicaSelector).",
    )
    auto_leader_rebalance_enable: bool = setting(
        "auto.leader.rebalance.enable", BOOLEAN, True, "Give leadership back to preferred replicas."
    )
    leader_imbalance_check_interval_seconds: int = setting(
        "leader.imbalance.check.interval.seconds", long(1), 300, "How often that is checked."
    )
    unclean_leader_election_interval_ms: int = setting(
        "unclean.leader.election.interval.ms",
        long(1),
        300_000,
        "How often leaderless partitions are checked where unclean election is allowed.",
    )

    # Serving clients
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable", BOOLEAN, True, "Create a topic when a client names it."
    )
    delete_topic_enable: bool = setting(
        "delete.topic.enable", BOOLEAN, True, "Allow topics to be deleted."
    )
    fetch_max_bytes: int = setting(
        "fetch.max.bytes", integer(1024), 55 << 20, "Most bytes in one answer to a fetch."
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        "max.incremental.fetch.session.cache.slots", integer(0), 1_000, "Fetch sessions kept."
    )
    max_request_partition_size_limit: int = setting(
        "max.request.partition.size.limit",
        integer(1),
        2_000,
        "Most partitions in one answer to DescribeTopicPartitions.",
    )
    quota_window_num: int = setting(
        "quota.window.num", integer(1), 11, "Samples over which a client's rate is measured."
    )
    quota_window_size_seconds: int = setting(
        "quota.window.size.seconds", integer(1), 1, "Length of one of these samples."
    )
    controller_quota_window_num: int = setting(
        "controller.quota.window.num",
        integer(1),
        11,
        "Samples over which a client's changes to the cluster are measured.",
    )
    controller_quota_window_size_seconds: int = setting(
        "controller.quota.window.size.seconds", integer(1), 1, "Length of one of these samples."
    )
    replication_quota_window_num: int = setting(
        "replication.quota.window.num",
        integer(1),
        11,
        "Samples that measure throttled replication.",
    )
    replication_quota_window_size_seconds: int = setting(
        "replication.quota.window.size.seconds", integer(1), 1, "Length of one of these samples."
    )
    leader_replication_throttled_rate: int = setting(
        "leader.replication.throttled.rate",
        long(0),
        LONG_MAX,
        "Bytes a second that a leader sends to its throttled replicas.",
    )
    follower_replication_throttled_rate: int = setting(
        "follower.replication.throttled.rate",
        long(0),
        LONG_MAX,
        "Bytes a second that a broker fetches for its throttled replicas.",
    )
    request_timeout_ms: int = setting(
        "request.timeout.ms", integer(1), 30_000, "Limit of a request from this node to another."
    )
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms",
        integer(1),
        86_400_000,
        "Sequence numbers of a silent producer are forgotten after this time.",
    )

    # Logs on disk
    log_dirs: tuple[str, ...] = setting(
        "log.dirs", LIST, ("/tmp/kafka-logs",), "Directories of the logs.", also=(("log.dir", 1),)
    )
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms", long(1), 300_000, "How often retention is applied."
    )
    log_flush_scheduler_interval_ms: int = setting(
        "log.flush.scheduler.interval.ms", long(1), LONG_MAX, "How often a due flush is looked for."
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        "log.flush.offset.checkpoint.interval.ms",
        integer(0),
        60_000,
        "How often recovery points are written to disk.",
    )
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        "log.flush.start.offset.checkpoint.interval.ms",
        integer(0),
        60_000,
        "How often log start offsets are written to disk.",
    )

    log_cleaner_enable: bool = setting(
        "log.cleaner.enable",
        BOOLEAN,
        True,
        "Whether topics with cleanup.policy=compact are compacted.",
    )
    log_cleaner_threads: int = setting(
        "log.cleaner.threads", integer(0), 1, "Logs that are compacted at the same time."
    )
    log_cleaner_backoff_ms: int = setting(
        "log.cleaner.backoff.ms", long(0), 15_000, "Pause when no log is dirty enough."
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        "log.cleaner.dedupe.buffer.size",
        long(0),
        128 << 20,
        "Bytes for the keys that compaction remembers, over all threads.",
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        "log.cleaner.io.max.bytes.per.second",
        RATE,
        FLOAT_MAX,
        "Bytes that compaction reads and writes at most.",
    )
    ottla_disk_watermark_percent: int = setting(
        "ottla.disk.watermark.percent",
        integer(1, at_most=100),
        95,
        "A log directory whose disk is used to more than this refuses records, before the disk is full; 100 never does.",
    )
    ottla_disk_headroom_max_bytes: int = setting(
        "ottla.disk.headroom.max.bytes",
        long(0),
        5 << 30,
        "A disk with more free bytes than this is never too full, whatever its percent.",
    )
    ottla_kept_records_max_bytes: int = setting(
        "ottla.kept.records.max.bytes",
        long(0),
        1 << 30,
        "Bytes of lost records that each log directory keeps aside, the newest; 0 keeps none.",
    )
    ottla_kept_records_retention_ms: int = setting(
        "ottla.kept.records.retention.ms",
        long(0),
        WEEK_MS,
        "How long lost records are kept aside.",
    )

    # Defaults of topic settings
    log_segment_bytes: int = setting(
        "log.segment.bytes", integer(14), 1 << 30, "Size of a segment file."
    )
    log_roll_ms: int = setting(
        "log.roll.ms",
        long(1),
        WEEK_MS,
        "Age at which a segment is rolled.",
        also=(("log.roll.hours", HOUR_MS),),
    )
    log_roll_jitter_ms: int = setting(
        "log.roll.jitter.ms",
        long(0),
        0,
        "Random part taken off that age, so that not all segments roll at once.",
        also=(("log.roll.jitter.hours", HOUR_MS),),
    )
    log_index_size_max_bytes: int = setting(
        "log.index.size.max.bytes", integer(4), 10 << 20, "Size of an index file."
    )
    log_index_interval_bytes: int = setting(
        "log.index.interval.bytes", integer(0), 4096, "Bytes of log per index entry."
    )
    log_flush_interval_messages: int = setting(
        "log.flush.interval.messages", long(1), LONG_MAX, "Records after which a log is flushed."
    )
    log_flush_interval_ms: int = setting(
        "log.flush.interval.ms", long(0), LONG_MAX, "Time after which a log is flushed."
    )
    log_retention_ms: int = setting(
        "log.retention.ms",
        long(-1),
        WEEK_MS,
        "Age at which a segment is deleted (-1: never).",
        also=(("log.retention.minutes", 60_000), ("log.retention.hours", HOUR_MS)),
    )
    log_retention_bytes: int = setting(
        "log.retention.bytes", long(-1), -1, "Size of a partition kept (-1: no limit)."
    )
    log_cleanup_policy: tuple[str, ...] = setting(
        "log.cleanup.policy", POLICIES, ("delete",), "What happens to old segments."
    )
    log_cleaner_delete_retention_ms: int = setting(
        "log.cleaner.delete.retention.ms", long(0), 24 * HOUR_MS, "How long delete markers stay."
    )
    log_cleaner_min_compaction_lag_ms: int = setting(
        "log.cleaner.min.compaction.lag.ms", long(0), 0, "Time a record stays uncompacted at least."
    )
    log_cleaner_max_compaction_lag_ms: int = setting(
        "log.cleaner.max.compaction.lag.ms", long(1), LONG_MAX, "… and at most."
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        "log.cleaner.min.cleanable.ratio",
        RATIO,
        0.5,
        "Share of a log that is dirty before cleaning.",
    )
    log_segment_delete_delay_ms: int = setting(
        "log.segment.delete.delay.ms", long(0), 60_000, "Pause before a deleted file is removed."
    )
    log_message_timestamp_type: str = setting(
        "log.message.timestamp.type", TIMESTAMP_TYPES, "CreateTime", "Whose clock stamps a record."
    )
    log_message_timestamp_before_max_ms: int = setting(
        "log.message.timestamp.before.max.ms", long(0), LONG_MAX, "How old a timestamp may be."
    )
    log_message_timestamp_after_max_ms: int = setting(
        "log.message.timestamp.after.max.ms", long(0), HOUR_MS, "How far ahead it may be."
    )
    message_max_bytes: int = setting(
        "message.max.bytes", integer(0), (1 << 20) + 12, "Largest record batch that is accepted."
    )
    compression_type: str = setting(
        "compression.type", choice(*CODECS), "producer", "Codec of the log, or the producer's own."
    )
    min_insync_replicas: int = setting(
        "min.insync.replicas", integer(1), 1, "In-sync replicas that acks=all needs."
    )
    unclean_leader_election_enable: bool = setting(
        "unclean.leader.election.enable",
        BOOLEAN,
        False,
        "Let a replica that is not in sync lead when no other is left (loses records).",
    )

    # Internal topics (groups and transactions create them)
    offsets_topic_replication_factor: int = setting(
        "offsets.topic.replication.factor", integer(1), 3, "Replicas of __consumer_offsets."
    )
    offsets_topic_num_partitions: int = setting(
        "offsets.topic.num.partitions", integer(1), 50, "Partitions of __consumer_offsets."
    )
    offsets_topic_segment_bytes: int = setting(
        "offsets.topic.segment.bytes", integer(1), 100 << 20, "Segments of __consumer_offsets."
    )
    transaction_state_log_replication_factor: int = setting(
        "transaction.state.log.replication.factor",
        integer(1),
        3,
        "Replicas of __transaction_state.",
    )
    transaction_state_log_num_partitions: int = setting(
        "transaction.state.log.num.partitions", integer(1), 50, "Partitions of __transaction_state."
    )
    transaction_state_log_min_isr: int = setting(
        "transaction.state.log.min.isr",
        integer(1),
        2,
        "min.insync.replicas of __transaction_state.",
    )
    transaction_state_log_segment_bytes: int = setting(
        "transaction.state.log.segment.bytes",
        integer(1),
        100 << 20,
        "Segment size of __transaction_state.",
    )

    # Transactions
    transaction_max_timeout_ms: int = setting(
        "transaction.max.timeout.ms",
        integer(1),
        15 * 60 * 1000,
        "The longest transaction.timeout.ms that a producer may ask for.",
    )
    transactional_id_expiration_ms: int = setting(
        "transactional.id.expiration.ms",
        integer(1),
        7 * 24 * 60 * 60 * 1000,
        "A transactional id without any transaction for this time is forgotten.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        integer(1),
        10_000,
        "How often transactions are looked for that are open beyond their timeout.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        integer(1),
        60 * 60 * 1000,
        "How often transactional ids are looked for that have expired.",
    )

    # Groups
    group_initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms",
        integer(0),
        3_000,
        "How long a new group waits for more members.",
    )
    group_min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms", integer(0), 6_000, "Shortest session a member may ask for."
    )
    group_max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms", integer(0), 1_800_000, "Longest session it may ask for."
    )
    group_max_size: int = setting(
        "group.max.size", integer(1), INT_MAX, "Members that a group may have."
    )
    group_consumer_session_timeout_ms: int = setting(
        "group.consumer.session.timeout.ms",
        integer(1),
        45_000,
        "Silence after which a member of a consumer group is removed.",
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        "group.consumer.heartbeat.interval.ms",
        integer(1),
        5_000,
        "How often members of consumer groups are told to report.",
    )
    group_consumer_min_session_timeout_ms: int = setting(
        "group.consumer.min.session.timeout.ms",
        integer(1),
        45_000,
        "Shortest session timeout that may be set for one consumer group.",
    )
    group_consumer_max_session_timeout_ms: int = setting(
        "group.consumer.max.session.timeout.ms",
        integer(1),
        60_000,
        "Longest session timeout that may be set for one consumer group.",
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        "group.consumer.min.heartbeat.interval.ms",
        integer(1),
        5_000,
        "Shortest heartbeat interval that may be set for one consumer group.",
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        "group.consumer.max.heartbeat.interval.ms",
        integer(1),
        15_000,
        "Longest heartbeat interval that may be set for one consumer group.",
    )
    group_coordinator_rebalance_protocols: tuple[str, ...] = setting(
        "group.coordinator.rebalance.protocols",
        PROTOCOLS,
        ("classic", "consumer"),
        "Protocols that groups may use.",
    )
    group_consumer_max_size: int = setting(
        "group.consumer.max.size", integer(1), INT_MAX, "Members that a consumer group may have."
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        "group.consumer.assignors",
        ASSIGNORS,
        ("uniform", "range"),
        "Server-side assignors of consumer groups, the default one first.",
    )
    group_consumer_migration_policy: str = setting(
        "group.consumer.migration.policy",
        choice("bidirectional", "upgrade", "downgrade", "disabled"),
        "bidirectional",
        "Which way groups in use may go between the classic and the consumer protocol.",
    )
    offset_metadata_max_bytes: int = setting(
        "offset.metadata.max.bytes", integer(0), 4_096, "Longest note to a committed offset."
    )
    offsets_commit_timeout_ms: int = setting(
        "offsets.commit.timeout.ms",
        integer(1),
        5_000,
        "How long a group's change may wait for its replicas before the client is told to try again.",
    )
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes",
        integer(1),
        10_080,
        "How long offsets stay after their group became empty.",
    )
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms", long(1), 600_000, "How often that is checked."
    )

    # -- building one

    @classmethod
    def load(cls, path: str | None, environ: Mapping[str, str]) -> Settings:
        """From a properties file (or none) and Kafka's environment variables, which win."""
        entries = read_properties(path) if path is not None else []
        return cls._build([*entries, *entries_from_environment(environ)], path or "the environment")

    @classmethod
    def of(cls, values: Mapping[str, str], source: str = "settings") -> Settings:
        """From a mapping of Kafka's names to texts."""
        entries = [Entry(name, value, source) for name, value in values.items()]
        return cls._build(entries, source)

    @classmethod
    def _build(cls, entries: Iterable[Entry], source: str) -> Settings:
        given: dict[str, Entry] = {}
        ignored: list[str] = []
        inert: dict[str, str] = {}
        prefixed: list[Entry] = []
        for entry in entries:
            if entry.name in NAMES:
                given[entry.name] = entry
            elif entry.name.startswith(PREFIX) and entry.marked:
                prefixed.append(entry)
            elif entry.name in HARMLESS:
                ignored.append(entry.name)
                inert |= {entry.name: entry.value} if entry.name in INERT else {}
            else:
                refuse_unknown(entry, NAMES)
        values: dict[str, Any] = {}
        texts: dict[str, str] = {}
        places: dict[str, str] = {}
        for row in TABLE:
            for name, factor in ((row.name, 1), *row.also):
                if (found := given.get(name)) is not None:
                    values[row.attribute] = value = _parse(row, found, factor)
                    texts[row.name] = (
                        HIDDEN
                        if row.is_secret
                        else found.value
                        if name == row.name
                        else text_of(value)
                    )
                    places[row.name] = f"{found.where}: {name}"
                    break
        derived = _derived(values)
        per_listener = {}
        for entry in prefixed:
            of_listener = _row_of_listener(entry, derived)
            if of_listener is None:
                ignored.append(entry.name)
                continue
            per_listener[entry.name] = _parse(of_listener, entry, 1)
            texts[entry.name] = HIDDEN if of_listener.is_secret else entry.value
            places[entry.name] = f"{entry.where}: {entry.name}"
        settings = cls(
            given=texts | inert, ignored=tuple(ignored), per_listener=per_listener, **derived
        )
        settings._check(places, source)
        return settings

    @cached_property
    def security(self) -> Mapping[str, ListenerSecurity]:
        """Of each listener of this node, and of those of other nodes that it connects to."""
        return listener_security(self)

    def _check(self, places: Mapping[str, str], source: str) -> None:
        """Checks that concern several settings."""

        def wrong(name: str, why: str) -> NoReturn:
            raise ConfigError(f"{places.get(name, f'{source}: {name}')}: {why}")

        if self.node_id < 0:
            wrong("node.id", "is missing")
        if not self.process_roles:
            wrong("process.roles", "is missing; use broker, controller, or broker,controller")
        if not self.controller_quorum_voters and not self.controller_quorum_bootstrap_servers:
            wrong("controller.quorum.voters", "is missing (or controller.quorum.bootstrap.servers)")
        if not self.controller_listener_names:
            wrong("controller.listener.names", "is missing")
        for name, why in self._listener_faults():
            wrong(name, why)
        voters = [voter.id for voter in self.controller_quorum_voters]
        if self.is_controller and voters and self.node_id not in voters:
            wrong("controller.quorum.voters", f"does not name this controller, node {self.node_id}")
        if self.controller_quorum_auto_join_enable and (voters or not self.is_controller):
            wrong(
                "controller.quorum.auto.join.enable",
                "is for controllers whose voters are dynamic: process.roles must have controller, and"
                " controller.quorum.bootstrap.servers must stand in place of controller.quorum.voters",
            )
        if not self.is_controller and self.node_id in voters:
            wrong("controller.quorum.voters", f"names node {self.node_id}, which is no controller")
        previous = "delegation.token.secret.key.previous"
        if self.delegation_token_secret_key_previous and not self.delegation_token_secret_key:
            wrong(previous, "is given without delegation.token.secret.key, the one of now")
        if self.broker_heartbeat_interval_ms * 2 > self.broker_session_timeout_ms:
            wrong(
                "broker.heartbeat.interval.ms",
                f"{self.broker_heartbeat_interval_ms} is more than half of"
                f" broker.session.timeout.ms, {self.broker_session_timeout_ms}",
            )
        if self.replica_fetch_wait_max_ms > self.replica_lag_time_max_ms:
            wrong("replica.fetch.wait.max.ms", "is longer than replica.lag.time.max.ms")
        if not self.log_dirs:
            wrong("log.dirs", "is empty")
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            wrong("group.min.session.timeout.ms", "is longer than group.max.session.timeout.ms")
        for kind in ("session.timeout.ms", "heartbeat.interval.ms"):
            low, value, high = (
                getattr(self, f"group.consumer.{bound}{kind}".replace(".", "_"))
                for bound in ("min.", "", "max.")
            )
            if not low <= value <= high:
                wrong(
                    f"group.consumer.{kind}",
                    f"{value} is not between group.consumer.min.{kind}, {low}, and"
                    f" group.consumer.max.{kind}, {high}",
                )
        if "classic" not in self.group_coordinator_rebalance_protocols:
            wrong("group.coordinator.rebalance.protocols", "must contain classic")
        if not self.group_consumer_assignors:
            wrong("group.consumer.assignors", "is empty")
        if self.group_consumer_heartbeat_interval_ms >= self.group_consumer_session_timeout_ms:
            wrong(
                "group.consumer.heartbeat.interval.ms",
                "must be shorter than group.consumer.session.timeout.ms",
            )

    def _listener_faults(self) -> Iterable[tuple[str, str]]:
        names = [listener.name for listener in self.listeners]
        wanted = set(self.controller_listener_names)
        if self.is_controller and not wanted & set(names):
            yield "listeners", f"has no controller listener {self.controller_listener_names[0]}"
        if self.is_broker and not set(names) - wanted:
            yield "listeners", "has no listener for clients beside the controller's"
        if not self.is_controller and wanted & set(names):
            yield "listeners", "has a controller listener, but this node is no controller"
        used = [listener.port for listener in self.listeners if listener.port]
        if len(set(used)) != len(used):
            yield "listeners", "uses a port twice"
        for listener in self.advertised_listeners:
            if listener.name not in names:
                yield "advertised.listeners", f"names {listener.name}, which is not in listeners"
            if listener.host in ("0.0.0.0", "::"):
                yield (
                    "advertised.listeners",
                    f"would tell clients to connect to {listener.host}; name an address they can reach",
                )
        if self.is_broker and self.inter_broker_listener_name not in set(names) - wanted:
            yield (
                "inter.broker.listener.name",
                f"{self.inter_broker_listener_name} is not one of the broker's listeners",
            )
        yield from protocol_faults(self)
        yield from security_faults(self)

    # -- reading one

    @property
    def is_broker(self) -> bool:
        return "broker" in self.process_roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.process_roles

    @property
    def rack(self) -> str | None:
        return self.broker_rack

    @property
    def broker_listeners(self) -> tuple[ListenerAddress, ...]:
        """The listeners for clients and other brokers."""
        return tuple(x for x in self.listeners if x.name not in self.controller_listener_names)

    @property
    def controller_listeners(self) -> tuple[ListenerAddress, ...]:
        return tuple(x for x in self.listeners if x.name in self.controller_listener_names)

    @property
    def uses_local_sockets(self) -> bool:
        """With security only where it was asked for: over a Unix socket, a process of the node's own user counts as the node."""
        if all(security.is_plain for security in self.security.values()):
            return self.ottla_local_sockets_enable
        return self.ottla_local_sockets_enable and "ottla.local.sockets.enable" in self.given

    def topic_defaults(self) -> dict[str, str]:
        """This node's default of every topic setting, by the topic's names."""
        texts = self.texts()
        return {name: texts[server_name] for name, server_name in TOPIC_TO_SERVER.items()}

    @staticmethod
    def defaults() -> dict[str, str]:
        """The default of every setting as text."""
        return {
            f.metadata["setting"].name: text_of(f.default) for f in fields(Settings) if f.metadata
        }

    def changed(self, texts: Mapping[str, str]) -> Settings:
        """With other values of settings of listeners, as the metadata has them. ConfigError if they cannot be."""
        entries = [Entry(name, text, "metadata") for name, text in texts.items()]
        per_listener = {**self.per_listener}
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        for entry in entries:
            row = _row_of_listener(entry, values)
            if row is not None:
                per_listener[entry.name] = _parse(row, entry, 1)
        changed = replace(self, per_listener=per_listener)
        for name, why in security_faults(changed):
            raise ConfigError(f"{name}: {why}")
        return changed

    def texts(self) -> dict[str, str]:
        """Every setting as text, as DescribeConfigs shows it."""
        return {row.name: text_of(getattr(self, row.attribute)) for row in TABLE}

    def derived_cluster_id(self) -> str:
        """The cluster id of an unformatted node that was given none: all nodes that name the same
        controllers derive the same one, so that several machines agree without a format step."""
        from base64 import urlsafe_b64encode
        from hashlib import sha256

        controllers = self.controller_quorum_voters or self.controller_quorum_bootstrap_servers
        text = ",".join(sorted(str(controller) for controller in controllers))
        digest = sha256(b"ottla cluster " + text.encode()).digest()
        # The first bit is cleared so that the text never begins with "-", which tools take for an option.
        return urlsafe_b64encode(bytes([digest[0] & 0x7F]) + digest[1:16]).decode().rstrip("=")


def _parse(row: Setting, entry: Entry, factor: int) -> Any:
    try:
        value = row.kind.parse(entry.value)
    except ValueError as error:
        raise ConfigError(f"{entry.where}: {entry.name}: {error}") from None
    return value * factor if factor != 1 and value >= 0 else value


def _row_of_listener(entry: Entry, values: Mapping[str, Any]) -> Setting | None:
    """The row of a setting of one listener. None for one without effect."""
    mapped = {name for name, _ in values.get("listener_security_protocol_map", ())}
    names = {x.name for x in values["listeners"]} | set(values["controller_listener_names"])
    try:
        setting_name = take_apart(entry.name, mapped | names).setting
    except ValueError as error:
        raise ConfigError(f"{entry.where}: {entry.name}: {error}") from None
    return None if setting_name in TLS_WITHOUT_EFFECT else _ROWS[setting_name]


def _derived(values: dict[str, Any]) -> dict[str, Any]:
    """Fill in what follows from other settings."""
    values["controller_listener_names"] = tuple(
        name.upper() for name in values.get("controller_listener_names", ())
    )
    controllers = set(values["controller_listener_names"])
    listeners = values.setdefault("listeners", (ListenerAddress("PLAINTEXT", "", 9092),))
    advertised = {x.name: x for x in values.get("advertised_listeners", ())}
    unknown = tuple(x for x in advertised.values() if x.name not in {y.name for y in listeners})
    values["advertised_listeners"] = (
        tuple(_reachable(advertised.get(x.name, x)) for x in listeners) + unknown
    )
    brokers = [x.name for x in listeners if x.name not in controllers]
    name = values.get("inter_broker_listener_name")
    values["inter_broker_listener_name"] = (
        name.upper()
        if name
        else protocol
        if (protocol := values.get("security_inter_broker_protocol"))
        else "PLAINTEXT"
        if "PLAINTEXT" in brokers
        else next(iter(brokers), None)
    )
    _widen(values)
    if not values.get("metadata_log_dir"):
        values["metadata_log_dir"] = next(iter(values.get("log_dirs", ("/tmp/kafka-logs",))), "")
    return values


def _widen(values: dict[str, Any]) -> None:
    """A default bound gives way to a value that the operator set."""
    defaults = {f.name: f.default for f in fields(Settings) if f.metadata}
    for kind in ("session_timeout_ms", "heartbeat_interval_ms"):
        value = values.get(f"group_consumer_{kind}", defaults[f"group_consumer_{kind}"])
        for bound, choose in (("min", min), ("max", max)):
            name = f"group_consumer_{bound}_{kind}"
            values.setdefault(name, choose(value, defaults[name]))


def _reachable(listener: ListenerAddress) -> ListenerAddress:
    if listener.host:
        return listener
    import socket

    return listener._replace(host=socket.getfqdn())


def _table() -> tuple[Setting, ...]:
    rows = [f.metadata["setting"] for f in fields(Settings) if f.metadata]
    assert all(f.default is not MISSING for f in fields(Settings) if f.metadata)
    return tuple(rows)


TABLE: tuple[Setting, ...] = _table()
_ROWS: Mapping[str, Setting] = {row.name: row for row in TABLE}
NAMES: frozenset[str] = frozenset(name for row in TABLE for name in row.names)
