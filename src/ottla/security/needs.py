"""What each API needs: one table for brokers, one for controllers. Handlers ask with its words, and tests check them row by row.

A row has an entry for each form of the request that needs something else. The needs of a form are looked at from left to right, before
anything is said about whether the resource exists. So a stranger gets the same answer for what exists and for what does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.security.operations import CLUSTER_NAME, SUPPORTED, AclOperation, ResourceType
from ottla.security.rights import CHANGES, Rights
from ottla.wire.apis import ApiKey, PrivateApi
from ottla.wire.errors import ErrorCode
from ottla.wire.internal_topics import INTERNAL_TOPICS, UNLISTED_TOPICS


class Right(NamedTuple):
    resource_type: ResourceType
    operation: AclOperation
    of_some: bool = False
    """On some resource of the type, whichever."""


@dataclass(frozen=True, slots=True)
class Need:
    any_of: tuple[Right, ...]
    """One of them is enough."""
    denied: ErrorCode
    """What whoever has none of them reads."""

    def met(self, rights: Rights | None, name: str = CLUSTER_NAME) -> bool:
        """`name`: of the resource, where it is not the cluster."""
        if rights is None:
            return True
        last = len(self.any_of) - 1
        resource_type, operation, of_some = self.any_of[last]
        if last == 0 and not of_some:  # what hot paths ask
            return rights.may(
                operation, resource_type, CLUSTER_NAME if resource_type is _C else name
            )
        for number, (resource_type, operation, of_some) in enumerate(self.any_of):
            if of_some:
                if rights.may_some(operation, resource_type):
                    return True
                continue
            ask = rights.may if number == last else rights.sees  # one denial is told, not several
            cluster = resource_type is ResourceType.CLUSTER
            if ask(operation, resource_type, CLUSTER_NAME if cluster else name):
                return True
        return False

    def sees(self, rights: Rights | None, name: str) -> bool:
        """The same for what nobody asked for by its name, as in a list of everything: no denial is told."""
        if rights is None:
            return True
        for resource_type, operation, _ in self.any_of:
            if rights.sees(operation, resource_type, CLUSTER_NAME if resource_type is _C else name):
                return True
        return False


@dataclass(frozen=True, slots=True)
class RequestForm:
    when: str
    needs: tuple[Need, ...]
    left_out: bool = False
    """A denied resource is left out of the answer, without a word."""


Needs = tuple[RequestForm, ...]


def _need(*any_of: Right, denied: ErrorCode | None = None) -> Need:
    """Unless said otherwise, the denied one reads the code of the last resource that was looked at."""
    return Need(any_of, _DENIED[any_of[-1].resource_type] if denied is None else denied)


def _always(*needs: Need, left_out: bool = False) -> Needs:
    return (RequestForm("always", needs, left_out),)


_DENIED: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
_T, _G, _C = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
_X = ResourceType.TRANSACTIONAL_ID
_O = AclOperation

READ_TOPIC: Final = _need(Right(_T, _O.READ))
WRITE_TOPIC: Final = _need(Right(_T, _O.WRITE))
DELETE_FROM_TOPIC: Final = _need(Right(_T, _O.DELETE))
ALTER_TOPIC: Final = _need(Right(_T, _O.ALTER))
DESCRIBE_TOPIC: Final = _need(Right(_T, _O.DESCRIBE))
DESCRIBE_TOPIC_CONFIGS: Final = _need(Right(_T, _O.DESCRIBE_CONFIGS))
ALTER_TOPIC_CONFIGS: Final = _need(Right(_T, _O.ALTER_CONFIGS))
CREATE_TOPIC: Final = _need(Right(_C, _O.CREATE), Right(_T, _O.CREATE))
DELETE_TOPIC: Final = _need(Right(_C, _O.DELETE), Right(_T, _O.DELETE))
FOLLOW_TOPIC: Final = _need(Right(_C, _O.CLUSTER_ACTION), denied=_DENIED[_T])
"""To fetch as a replica. It is refused with the code of topics, as Kafka does."""
DESCRIBE_TOPIC_OR_FOLLOW: Final = _need(Right(_C, _O.CLUSTER_ACTION), Right(_T, _O.DESCRIBE))
WRITE_TOPIC_AS_BROKER: Final = _need(Right(_C, _O.CLUSTER_ACTION), Right(_T, _O.WRITE))
WRITE_INTERNAL_TOPIC: Final = _need(
    Right(_C, _O.CLUSTER_ACTION), Right(_C, _O.ALTER), denied=_DENIED[_T]
)
"""The topics that brokers write themselves are written by brokers, and by operators that may write the topic as well. Kafka
believes the client id instead."""
CHANGE_AUDIT: Final = _need(Right(_C, _O.ALTER), denied=_DENIED[_T])
"""To change or delete the audit or the event log, besides the right to the topic (`Rights` asks for it) or to all topics."""

READ_GROUP: Final = _need(Right(_G, _O.READ))
DELETE_GROUP: Final = _need(Right(_G, _O.DELETE))
DESCRIBE_GROUP: Final = _need(Right(_G, _O.DESCRIBE))
DESCRIBE_GROUP_CONFIGS: Final = _need(Right(_G, _O.DESCRIBE_CONFIGS))
ALTER_GROUP_CONFIGS: Final = _need(Right(_G, _O.ALTER_CONFIGS))
SEE_GROUP: Final = _need(Right(_C, _O.DESCRIBE), Right(_G, _O.DESCRIBE))

WRITE_TRANSACTION: Final = _need(Right(_X, _O.WRITE))
DESCRIBE_TRANSACTION: Final = _need(Right(_X, _O.DESCRIBE))
TWO_PHASE_COMMIT: Final = _need(Right(_X, _O.TWO_PHASE_COMMIT))
WRITE_IDEMPOTENTLY: Final = _need(Right(_T, _O.WRITE, of_some=True), Right(_C, _O.IDEMPOTENT_WRITE))

ALTER_CLUSTER: Final = _need(Right(_C, _O.ALTER))
DESCRIBE_CLUSTER: Final = _need(Right(_C, _O.DESCRIBE))
DESCRIBE_CLUSTER_CONFIGS: Final = _need(Right(_C, _O.DESCRIBE_CONFIGS))
ALTER_CLUSTER_CONFIGS: Final = _need(Right(_C, _O.ALTER_CONFIGS))
CLUSTER_ACTION: Final = _need(Right(_C, _O.CLUSTER_ACTION))
WRITE_MARKERS: Final = _need(Right(_C, _O.ALTER), Right(_C, _O.CLUSTER_ACTION))

CREATE_TOKENS_OF_USER: Final = _need(Right(ResourceType.USER, _O.CREATE_TOKENS))
DESCRIBE_TOKEN: Final = _need(
    Right(ResourceType.DELEGATION_TOKEN, _O.DESCRIBE),
    Right(ResourceType.USER, _O.DESCRIBE_TOKENS),
)
"""The token by its id, or the tokens of its owner."""


def besides(operation: AclOperation, topic: str) -> Need | None:
    """What clients need for this besides the right to the topic, if it is one of the cluster's own."""
    is_all = operation is _O.ALL
    if topic in UNLISTED_TOPICS and (is_all or operation in CHANGES):
        return CHANGE_AUDIT
    if topic in UNLISTED_TOPICS and operation is _O.CREATE:
        return WRITE_INTERNAL_TOPIC
    if topic in INTERNAL_TOPICS and (is_all or operation is _O.WRITE):
        return WRITE_INTERNAL_TOPIC
    return None


NOT_ALLOWED: Final = "Authorization failed."
"""What an answer that has room for a sentence says, in Kafka's words: nothing that a stranger could learn from."""

_NOTHING: Final[Needs] = ()
_THE_CONTROLLER_DECIDES: Final[Needs] = ()
"""Brokers pass it on with the principal of the client."""

_CONFIGS_READ: Final = (
    RequestForm("a topic", (DESCRIBE_TOPIC_CONFIGS,)),
    RequestForm("a group", (DESCRIBE_GROUP_CONFIGS,)),
    RequestForm("a broker, its loggers, or client metrics", (DESCRIBE_CLUSTER_CONFIGS,)),
)
_CONFIGS_WRITTEN: Final = (
    RequestForm("a topic", (ALTER_TOPIC_CONFIGS,)),
    RequestForm("a group", (ALTER_GROUP_CONFIGS,)),
    RequestForm("a broker or client metrics", (ALTER_CLUSTER_CONFIGS,)),
)

ON_BROKER: Final[Mapping[int, Needs]] = {
    ApiKey.API_VERSIONS: _NOTHING,
    ApiKey.SASL_HANDSHAKE: _NOTHING,
    ApiKey.SASL_AUTHENTICATE: _NOTHING,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: _NOTHING,
    ApiKey.PUSH_TELEMETRY: _NOTHING,
    ApiKey.DESCRIBE_CLUSTER: _NOTHING,
    # Records
    ApiKey.PRODUCE: (
        RequestForm("no batch is transactional", (WRITE_TOPIC,)),
        # Without a transactional id it is denied.
        RequestForm("a batch is transactional", (WRITE_TRANSACTION, WRITE_TOPIC)),
        RequestForm("a topic that brokers write", (WRITE_TOPIC_AS_BROKER, WRITE_INTERNAL_TOPIC)),
    ),
    ApiKey.FETCH: (
        RequestForm("replica id < 0", (READ_TOPIC,)),
        RequestForm("replica id >= 0", (FOLLOW_TOPIC,)),
    ),
    # Followers ask, too. In Kafka they need DESCRIBE of every topic for it.
    ApiKey.LIST_OFFSETS: _always(DESCRIBE_TOPIC_OR_FOLLOW),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _always(DESCRIBE_TOPIC_OR_FOLLOW),
    ApiKey.DELETE_RECORDS: _always(DELETE_FROM_TOPIC),
    ApiKey.DESCRIBE_PRODUCERS: _always(READ_TOPIC),
    # What is kept may be of a topic that was deleted, and made again by somebody else. So READ of the name is not enough.
    PrivateApi.KEPT_RECORDS: (
        RequestForm("list", (DESCRIBE_CLUSTER,)),
        RequestForm("read", (ALTER_CLUSTER, READ_TOPIC)),
        RequestForm("recovered", (ALTER_CLUSTER,)),
    ),
    PrivateApi.LOAD: _always(DESCRIBE_CLUSTER),
    # Metadata
    ApiKey.METADATA: (
        RequestForm("named topics, or ids", (DESCRIBE_TOPIC,)),
        RequestForm("a topic is missing and may be created", (DESCRIBE_TOPIC, CREATE_TOPIC)),
        RequestForm("all topics", (DESCRIBE_TOPIC,), left_out=True),
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (
        RequestForm("named topics", (DESCRIBE_TOPIC,)),
        RequestForm("all topics", (DESCRIBE_TOPIC,), left_out=True),
    ),
    ApiKey.DESCRIBE_CONFIGS: _CONFIGS_READ,
    ApiKey.LIST_CONFIG_RESOURCES: _always(DESCRIBE_CLUSTER_CONFIGS),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _always(DESCRIBE_CLUSTER_CONFIGS),
    ApiKey.DESCRIBE_LOG_DIRS: _always(DESCRIBE_CLUSTER),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _always(ALTER_CLUSTER),
    # Transactions
    ApiKey.INIT_PRODUCER_ID: (
        RequestForm("a transactional id", (WRITE_TRANSACTION,)),
        RequestForm(
            "a transactional id and two-phase commit", (WRITE_TRANSACTION, TWO_PHASE_COMMIT)
        ),
        RequestForm("no transactional id", (WRITE_IDEMPOTENTLY,)),
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        RequestForm("version 0-3; internal topics never", (WRITE_TRANSACTION, WRITE_TOPIC)),
        RequestForm("version 4 and later", (CLUSTER_ACTION,)),
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: _always(WRITE_TRANSACTION, READ_GROUP),
    ApiKey.TXN_OFFSET_COMMIT: _always(WRITE_TRANSACTION, READ_GROUP, READ_TOPIC),
    ApiKey.END_TXN: _always(WRITE_TRANSACTION),
    ApiKey.WRITE_TXN_MARKERS: _always(WRITE_MARKERS),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        RequestForm("always", (DESCRIBE_TRANSACTION,)),
        RequestForm("its topics", (DESCRIBE_TOPIC,), left_out=True),
    ),
    ApiKey.LIST_TRANSACTIONS: _always(DESCRIBE_TRANSACTION, left_out=True),
    # Groups
    ApiKey.FIND_COORDINATOR: (
        RequestForm("a group", (DESCRIBE_GROUP,)),
        RequestForm("a transaction", (DESCRIBE_TRANSACTION,)),
        RequestForm("a share group", (CLUSTER_ACTION,)),
    ),
    ApiKey.JOIN_GROUP: _always(READ_GROUP),
    ApiKey.SYNC_GROUP: _always(READ_GROUP),
    ApiKey.HEARTBEAT: _always(READ_GROUP),
    ApiKey.LEAVE_GROUP: _always(READ_GROUP),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (
        RequestForm("always", (READ_GROUP,)),
        RequestForm("subscribed names", (READ_GROUP, DESCRIBE_TOPIC)),
        RequestForm("a subscribed pattern", (READ_GROUP, DESCRIBE_TOPIC), left_out=True),
    ),
    ApiKey.OFFSET_COMMIT: _always(READ_GROUP, READ_TOPIC),
    ApiKey.OFFSET_FETCH: (
        RequestForm("named topics", (DESCRIBE_GROUP, DESCRIBE_TOPIC)),
        RequestForm("all topics", (DESCRIBE_GROUP, DESCRIBE_TOPIC), left_out=True),
    ),
    ApiKey.OFFSET_DELETE: _always(DELETE_GROUP, READ_TOPIC),
    ApiKey.DELETE_GROUPS: _always(DELETE_GROUP),
    ApiKey.DESCRIBE_GROUPS: _always(DESCRIBE_GROUP),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _always(DESCRIBE_GROUP, DESCRIBE_TOPIC),
    ApiKey.LIST_GROUPS: _always(SEE_GROUP, left_out=True),
    # Security
    ApiKey.DESCRIBE_ACLS: _always(DESCRIBE_CLUSTER),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _always(DESCRIBE_CLUSTER),
    ApiKey.CREATE_DELEGATION_TOKEN: (RequestForm("another owner", (CREATE_TOKENS_OF_USER,)),),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (RequestForm("of others", (DESCRIBE_TOKEN,), left_out=True),),
    ApiKey.RENEW_DELEGATION_TOKEN: _THE_CONTROLLER_DECIDES,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _THE_CONTROLLER_DECIDES,
    ApiKey.CREATE_ACLS: _THE_CONTROLLER_DECIDES,
    ApiKey.DELETE_ACLS: _THE_CONTROLLER_DECIDES,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _THE_CONTROLLER_DECIDES,
    # Changes of the cluster
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        RequestForm(
            "loggers of this broker; the rest is the controller's", (ALTER_CLUSTER_CONFIGS,)
        ),
    ),
    ApiKey.CREATE_TOPICS: _THE_CONTROLLER_DECIDES,
    ApiKey.DELETE_TOPICS: _THE_CONTROLLER_DECIDES,
    ApiKey.CREATE_PARTITIONS: _THE_CONTROLLER_DECIDES,
    ApiKey.ALTER_CONFIGS: _THE_CONTROLLER_DECIDES,
    ApiKey.ALTER_CLIENT_QUOTAS: _THE_CONTROLLER_DECIDES,
    ApiKey.ELECT_LEADERS: _THE_CONTROLLER_DECIDES,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _THE_CONTROLLER_DECIDES,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _THE_CONTROLLER_DECIDES,
    ApiKey.DESCRIBE_QUORUM: _THE_CONTROLLER_DECIDES,
    ApiKey.UPDATE_FEATURES: _THE_CONTROLLER_DECIDES,
    ApiKey.UNREGISTER_BROKER: _THE_CONTROLLER_DECIDES,
    ApiKey.ADD_RAFT_VOTER: _THE_CONTROLLER_DECIDES,
    ApiKey.REMOVE_RAFT_VOTER: _THE_CONTROLLER_DECIDES,
}

ON_CONTROLLER: Final[Mapping[int, Needs]] = {
    ApiKey.API_VERSIONS: _NOTHING,
    ApiKey.SASL_HANDSHAKE: _NOTHING,
    ApiKey.SASL_AUTHENTICATE: _NOTHING,
    # For clients
    ApiKey.CREATE_TOPICS: (
        RequestForm("always", (CREATE_TOPIC,)),
        RequestForm("the audit or the event log", (CREATE_TOPIC, WRITE_INTERNAL_TOPIC)),
        RequestForm("the settings in the answer", (DESCRIBE_TOPIC_CONFIGS,)),
    ),
    ApiKey.DELETE_TOPICS: (
        RequestForm("always", (DELETE_TOPIC,)),
        RequestForm("the audit or the event log", (DELETE_TOPIC, CHANGE_AUDIT)),
        RequestForm("to learn whether it exists, and its name", (DESCRIBE_TOPIC,)),
    ),
    ApiKey.CREATE_PARTITIONS: _always(ALTER_TOPIC),
    ApiKey.DESCRIBE_CONFIGS: _CONFIGS_READ,
    ApiKey.ALTER_CONFIGS: _CONFIGS_WRITTEN,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        *_CONFIGS_WRITTEN,
        RequestForm("loggers of this controller", (CLUSTER_ACTION,)),
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: _always(ALTER_CLUSTER_CONFIGS),
    ApiKey.ELECT_LEADERS: _always(ALTER_CLUSTER),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _always(ALTER_CLUSTER),
    ApiKey.UPDATE_FEATURES: _always(ALTER_CLUSTER),
    ApiKey.UNREGISTER_BROKER: _always(ALTER_CLUSTER),
    ApiKey.CREATE_ACLS: _always(ALTER_CLUSTER),
    ApiKey.DELETE_ACLS: _always(ALTER_CLUSTER),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _always(ALTER_CLUSTER),
    ApiKey.ADD_RAFT_VOTER: _always(ALTER_CLUSTER),
    ApiKey.REMOVE_RAFT_VOTER: _always(ALTER_CLUSTER),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _always(DESCRIBE_CLUSTER),
    ApiKey.DESCRIBE_QUORUM: _always(DESCRIBE_CLUSTER),
    ApiKey.DESCRIBE_ACLS: _always(DESCRIBE_CLUSTER),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _always(DESCRIBE_CLUSTER),
    ApiKey.DESCRIBE_CLUSTER: _always(ALTER_CLUSTER),
    ApiKey.CREATE_DELEGATION_TOKEN: (RequestForm("another owner", (CREATE_TOKENS_OF_USER,)),),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (RequestForm("of others", (DESCRIBE_TOKEN,), left_out=True),),
    # Owners and renewers only: no ACL says who they are.
    ApiKey.RENEW_DELEGATION_TOKEN: _NOTHING,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _NOTHING,
    # For nodes
    ApiKey.FETCH: _always(CLUSTER_ACTION),
    ApiKey.FETCH_SNAPSHOT: _always(CLUSTER_ACTION),
    ApiKey.VOTE: _always(CLUSTER_ACTION),
    ApiKey.BEGIN_QUORUM_EPOCH: _always(CLUSTER_ACTION),
    ApiKey.END_QUORUM_EPOCH: _always(CLUSTER_ACTION),
    ApiKey.UPDATE_RAFT_VOTER: _always(CLUSTER_ACTION),
    ApiKey.ALTER_PARTITION: _always(CLUSTER_ACTION),
    ApiKey.BROKER_REGISTRATION: _always(CLUSTER_ACTION),
    ApiKey.BROKER_HEARTBEAT: _always(CLUSTER_ACTION),
    ApiKey.CONTROLLER_REGISTRATION: _always(CLUSTER_ACTION),
    ApiKey.ALLOCATE_PRODUCER_IDS: _always(CLUSTER_ACTION),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: _always(CLUSTER_ACTION),
    ApiKey.ENVELOPE: _always(CLUSTER_ACTION),
}


_ASKED_FOR: Final = frozenset(
    right[:2]
    for table in (ON_BROKER, ON_CONTROLLER)
    for forms in table.values()
    for form in forms
    for need in form.needs
    for right in need.any_of
)


def is_asked_for(operation: AclOperation, resource_type: ResourceType) -> bool:
    """Whether some request needs it. DELETE on the cluster is such a right, though Kafka's tools cannot give it."""
    return (
        operation is AclOperation.ALL
        or operation in SUPPORTED.get(resource_type, ())
        or (resource_type, operation) in _ASKED_FOR
    )
