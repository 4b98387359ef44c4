"""A running cluster on which the exchanges of `rights_table` are tried: each by a user who logs in and has exactly the rights of the
case. Nothing here depends on whose programme runs: the same settings start ottla and Apache Kafka."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from typing import Any, Protocol

from ottla.config.values import STANDARD_AUTHORIZER
from ottla.security import plain
from ottla.security.operations import PatternType, Permission
from ottla.security.secrets import Secret
from ottla.wire import messages, schema
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.errors import ErrorCode, InvalidFrame
from ottla.wire.internal_topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.wire.types import ZERO_UUID
from support.cluster import HOST, receive, wait_until
from support.rights.exchange import (
    GROUP,
    MEMBER,
    MEMBERS,
    OLD_GROUPS,
    OPEN_TXN,
    OTHER_TOPIC,
    OWNER,
    SUBSCRIBED,
    TOPIC,
    TXN,
    Exchange,
    Fields,
    Given,
    Known,
    Listener,
    Outcome,
    filled,
    outcome,
)
from support.rights.table import CASES
from support.sasl import WithLogins, cluster_with_logins

_REQUEST = Struct(">ihhih")
_PASSWORD = "the-password-of-all"
_NODE = "node"
_WAIT_S = 30
_TXN_TIMEOUT_MS = 600_000
"""A transaction stays open, and a group keeps its members, for as long as the tests take."""


def _users() -> dict[frozenset[Given], str]:
    held = {rights: None for _, each in CASES for rights, _, _ in each.right_sets()}
    return {rights: f"user-{number}" for number, rights in enumerate(held)}


USERS: Mapping[frozenset[Given], str] = _users()


def _logins(*more: str) -> str:
    words = [*more, *(f'user_{name}="{_PASSWORD}"' for name in (_NODE, OWNER, *USERS.values()))]
    return f"org.apache.kafka.common.security.plain.PlainLoginModule required {' '.join(words)};"


SETTINGS: Mapping[str, str] = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": f"User:ANONYMOUS;User:{_NODE}",
    "listener.security.protocol.map": (
        "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT"
    ),
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.clients.plain.sasl.jaas.config": _logins(),
    "listener.name.controller.plain.sasl.jaas.config": _logins(
        f'username="{_NODE}" password="{_PASSWORD}"'
    ),
    "sasl.mechanism.controller.protocol": "PLAIN",
    "delegation.token.secret.key": "known to all nodes",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.consumer.session.timeout.ms": str(_TXN_TIMEOUT_MS),
    "group.consumer.max.session.timeout.ms": str(_TXN_TIMEOUT_MS),
    "ottla.event.log.enable": "false",  # it would make its topic at any time
}


class Ask(Protocol):
    def __call__(self, key: ApiKey, fields: Fields, version: int | None = None) -> Any: ...


def set_stage(ask: Ask, node: int) -> dict[Known, object]:
    """What the exchanges are about. `ask` is a super user's, of the broker `node`, which then leads every partition that matters."""

    def topic(name: str, **configs: str) -> Fields:
        return {
            "name": name,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": 0, "broker_ids": [node]}],
            "configs": [
                {"name": each.replace("_", "."), "value": value} for each, value in configs.items()
            ],
        }

    def until_taken(key: ApiKey, fields: Fields, version: int | None = None) -> Any:
        """Until the coordinator has loaded, and knows the topic."""

        def taken() -> Any:
            answer = ask(key, fields, version)
            return None if outcome(answer, (), {}) else answer

        return wait_until(taken, _WAIT_S, f"{key.name} {fields}")

    internal = {"min_insync_replicas": "1", "cleanup_policy": "compact"}
    made = ask(
        ApiKey.CREATE_TOPICS,
        {
            "topics": [
                topic(TOPIC, min_insync_replicas="1"),
                topic(OTHER_TOPIC, min_insync_replicas="1"),
                topic(GROUP_METADATA_TOPIC, **internal),
                topic(TRANSACTION_STATE_TOPIC, **internal),
            ],
            "timeout": 10_000,
            "validate_only": False,
        },
    )
    assert not outcome(made, (), {}), made
    for group in (GROUP, *OLD_GROUPS):
        until_taken(
            ApiKey.OFFSET_COMMIT,
            {
                "group_id": group,
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "topics": [
                    {"name": name, "partitions": [{"partition_index": 0, "committed_offset": at}]}
                    for at, name in enumerate((TOPIC, OTHER_TOPIC), 1)
                ],
            },
            9,
        )
    for group, member in ((MEMBERS, MEMBER), (SUBSCRIBED, "m")):
        joining = {
            "group_id": group,
            "member_id": member,
            "member_epoch": 0,
            "rebalance_timeout": 10_000,
            "subscribed_topic_names": [TOPIC],
            "topic_partitions": [],
        }
        until_taken(ApiKey.CONSUMER_GROUP_HEARTBEAT, joining)

    def assigned() -> bool:
        described = ask(ApiKey.CONSUMER_GROUP_DESCRIBE, {"group_ids": [MEMBERS]})
        (member,) = described.groups[0].members
        return bool(member.target_assignment.topic_partitions)

    wait_until(assigned, _WAIT_S, f"{TOPIC} is assigned to {MEMBER}")
    for id in (TXN, OPEN_TXN):
        asked = {"transactional_id": id, "transaction_timeout": _TXN_TIMEOUT_MS}
        producer = until_taken(ApiKey.INIT_PRODUCER_ID, asked)
    begun = {
        "transactional_id": OPEN_TXN,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "topics": [{"name": name, "partitions": [0]} for name in (TOPIC, OTHER_TOPIC)],
    }
    fields = {f"v3_and_below_{name}": value for name, value in begun.items()}
    until_taken(ApiKey.ADD_PARTITIONS_TO_TXN, fields, 3)
    by_name = [{"name": name, "topic_id": ZERO_UUID} for name in (TOPIC, OTHER_TOPIC)]
    shown = ask(ApiKey.METADATA, {"topics": by_name, "allow_auto_topic_creation": False})
    ids = {each.name: each.topic_id for each in shown.topics}
    return {
        Known.TOPIC_ID: ids[TOPIC],
        Known.OTHER_ID: ids[OTHER_TOPIC],
        Known.NODE: node,
        Known.NODE_NAME: str(node),
    }


class RightsCluster:
    """Who is asked: one broker, which is not the active controller if there are several, and the active controller."""

    def __init__(self, logins: WithLogins) -> None:
        cluster = logins.cluster
        controller = wait_until(cluster.active_controller, _WAIT_S, "an active controller")
        node = min(cluster.nodes, key=lambda id: (id == controller, id))
        ports = dict(zip(cluster.nodes, logins.bootstrap.split(","), strict=True))
        controller_port = cluster.nodes[controller].controller_port
        assert controller_port is not None
        self._admin_port = cluster.nodes[node].port
        self._ports = {
            Listener.BROKER: int(ports[node].rpartition(":")[2]),
            Listener.CONTROLLER: controller_port,
        }
        known = set_stage(self._ask_as_admin, node)
        self._known = {
            Listener.BROKER: known,
            Listener.CONTROLLER: known | {Known.NODE: controller, Known.NODE_NAME: str(controller)},
        }
        self._give_rights()
        self._make_token()

    def differences(self, listener: Listener, each: Exchange, *, kafka: bool) -> list[str]:
        """Where the answers are not those of the table."""
        found = []
        for held, ours, kafkas in each.right_sets():
            expected = kafkas if kafka else ours
            user = each.user or USERS[held]
            said = self._outcome(listener, each, user)
            if said != expected:
                rights = ", ".join(sorted(f"{kind.name} {name} {operation.name}" for kind, name, operation in held))  # fmt: skip
                found.append(
                    f"{listener.value}: {each}: with {rights or 'nothing'}:\n"
                    f"  expected {dict(expected)}\n  answered {dict(said)}"
                )
        return found

    def _outcome(self, listener: Listener, each: Exchange, user: str) -> Outcome:
        known = self._known[listener]
        with _Connection(self._ports[listener], each.client_id) as connection:
            connection.log_in(user)
            try:
                answer = connection.ask(each.key, each.version, filled(each.fields, known))
            except (ConnectionError, InvalidFrame) as error:
                return {"connection": str(error)}
        return outcome(answer, each.looks_at, known)

    def _ask_as_admin(self, key: ApiKey, fields: Fields, version: int | None = None) -> Any:
        with _Connection(self._admin_port, "admin") as connection:
            return connection.ask(
                key, APIS[key].max_version if version is None else version, fields
            )

    def _ask_as(self, listener: Listener, user: str, key: ApiKey, fields: Fields) -> Any:
        with _Connection(self._ports[listener], "client") as connection:
            connection.log_in(user)
            return connection.ask(key, APIS[key].max_version, fields)

    def _give_rights(self) -> None:
        acls = [
            {
                "resource_type": int(kind),
                "resource_name": name,
                "resource_pattern_type": int(PatternType.LITERAL),
                "principal": f"User:{user}",
                "host": "*",
                "operation": int(operation),
                "permission_type": int(Permission.ALLOW),
            }
            for rights, user in USERS.items()
            for kind, name, operation in rights
        ]
        made = self._ask_as_admin(ApiKey.CREATE_ACLS, {"creations": acls})
        assert not outcome(made, (), {}), made
        everything = {
            "resource_type_filter": 1,
            "resource_name_filter": None,
            "pattern_type_filter": 1,
            "principal_filter": None,
            "host_filter": None,
            "operation": 1,
            "permission_type": 1,
        }

        def are_known() -> bool:
            answers = (
                self._ask_as_admin(ApiKey.DESCRIBE_ACLS, everything),
                self._ask_as(Listener.CONTROLLER, _NODE, ApiKey.DESCRIBE_ACLS, everything),
            )
            return all(
                sum(len(resource.acls) for resource in answer.resources) == len(acls)
                for answer in answers
            )

        wait_until(are_known, _WAIT_S, "broker and controller have the ACLs")

    def _make_token(self) -> None:
        fields = {"renewers": [], "max_lifetime": -1}
        made = self._ask_as(Listener.BROKER, OWNER, ApiKey.CREATE_DELEGATION_TOKEN, fields)
        assert not outcome(made, (), {}), made
        wait_until(
            lambda: (
                self._ask_as(
                    Listener.BROKER, OWNER, ApiKey.DESCRIBE_DELEGATION_TOKEN, {"owners": None}
                ).tokens
            ),
            _WAIT_S,
            "the broker has the token",
        )
        for known in self._known.values():
            known[Known.TOKEN] = bytes(made.hmac)


@contextmanager
def cluster_of_rights(directory: Path, nodes: int) -> Iterator[WithLogins]:
    with cluster_with_logins(directory, nodes, SETTINGS) as running:
        yield running


class _Connection:
    """Any request of Kafka's protocol, also those that ottla does not serve."""

    def __init__(self, port: int, client_id: str) -> None:
        self._client_id = client_id.encode()
        self._socket = socket.create_connection((HOST, port), 5)
        self._socket.settimeout(_WAIT_S)

    def __enter__(self) -> _Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def log_in(self, user: str) -> None:
        chosen = self.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
        assert chosen.error_code == ErrorCode.NONE, chosen
        said = plain.message(user, Secret(_PASSWORD))
        answer = self.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": said})
        assert answer.error_code == ErrorCode.NONE, answer

    def ask(self, key: ApiKey, version: int, fields: Fields) -> Any:
        flexible = schema.message(key, version, "request").flexible
        body = messages.write_request(key, version, fields)
        client_id = self._client_id + (b"\0" if flexible else b"")
        header = _REQUEST.pack(
            _REQUEST.size - 4 + len(client_id) + len(body), key, version, 1, len(self._client_id)
        )
        self._socket.sendall(header + client_id + body)
        size = int.from_bytes(receive(self._socket, 4), "big")
        answer = memoryview(bytearray(receive(self._socket, size)))
        has_tags = flexible and key is not ApiKey.API_VERSIONS
        return messages.read_response(key, version, answer, 5 if has_tags else 4)
