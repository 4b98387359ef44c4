"""Who a node is, and where it listens."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.config.security_settings import SECURITY_PROTOCOL
from ottla.config.setting import setting
from ottla.config.values import (
    AUTHORIZER,
    BOOLEAN,
    INT_MAX,
    LIST,
    LISTENERS,
    OPTIONAL_TEXT,
    PER_ADDRESS,
    PROTOCOL_MAP,
    ROLES,
    SUPER_USERS,
    ListenerAddress,
    integer,
    long,
)


@dataclass(frozen=True, eq=False, repr=False)
class IdentitySettings:
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
