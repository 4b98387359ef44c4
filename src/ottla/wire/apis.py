"""The table of the APIs and versions that ottla serves, and on which listener.

ApiVersions answers, header layouts, dispatch and the documentation all derive from it. A row without a
handler fails a test. A version that is not listed is not supported.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, unique
from typing import Final


class ApiKey(IntEnum):
    """Every request of Kafka 4.3 under Kafka's names, served by ottla or not."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


_FROM_BROKERS: Final = frozenset(
    {
        ApiKey.FETCH,
        ApiKey.ALTER_PARTITION,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ENVELOPE,
    }
)
"""Requests in which brokers report about all of their partitions at once."""

CLIENT_BYTES_MAX: Final = 2 * 1024 * 1024
"""The size limit of a client's request, but for records. A list of small elements takes a quarter of a second per megabyte to
read and answer, during which all other requests wait. Two megabytes name 50,000 topics with names of usual length."""
CLIENT_ELEMENTS_MAX: Final = 50_000
"""How many elements one list in a client's request may have. Two megabytes of very short names would be 300,000, and each of
them is looked up, decided and answered."""
FORWARDED_ELEMENTS_MAX: Final = 20_000
"""The same for what a broker passes on to the controller: there is only one, and each name costs both of them. Kafka's controller
takes no change of more than 10,000 records."""


@dataclass(frozen=True, slots=True)
class Api:
    key: ApiKey
    name: str
    min_version: int
    max_version: int
    flexible_from: int
    """The first version with compact lengths and tagged fields (KIP-482)."""
    on_broker: bool
    on_controller: bool
    forwarded: bool
    """A broker forwards it to the active controller in an Envelope instead of answering itself."""

    @property
    def advertised_min_version(self) -> int:
        """The minimum that ApiVersions announces. Kafka announces Produce from 0 although it serves from 3,
        because librdkafka would otherwise treat its compression codecs as unsupported."""
        return 0 if self.key is ApiKey.PRODUCE else self.min_version

    @property
    def request_bytes_max(self) -> int:
        """The size limit of a request. Only records are long. Eight megabytes are a broker's fetch of 200,000 partitions."""
        if self.key is ApiKey.PRODUCE:
            return 2**31 - 1
        return 8 * 1024 * 1024 if self.key in _FROM_BROKERS else CLIENT_BYTES_MAX

    @property
    def request_elements_max(self) -> int:
        """How many elements one list in a request may have."""
        if self.key in _FROM_BROKERS:
            return self.request_bytes_max
        return FORWARDED_ELEMENTS_MAX if self.forwarded else CLIENT_ELEMENTS_MAX

    @property
    def request_elements_together_max(self) -> int:
        """How many elements all lists in a request may have together. Lists that are in the elements of other lists could
        have 700,000, of 150 bytes of memory each, in two megabytes."""
        return 2 * self.request_elements_max

    def serves(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version

    def flexible(self, version: int) -> bool:
        return version >= self.flexible_from


def _row(
    key: ApiKey,
    versions: tuple[int, int],
    flexible_from: int,
    *,
    broker: bool = False,
    controller: bool = False,
    forwarded: bool = False,
) -> Api:
    name = "".join(word.capitalize() for word in key.name.split("_"))
    return Api(key, name, *versions, flexible_from, broker, controller, forwarded)


NEVER_FLEXIBLE: Final = 1 << 15

_ROWS: Final = (
    _row(ApiKey.PRODUCE, (3, 13), 9, broker=True),
    _row(ApiKey.FETCH, (4, 18), 12, broker=True, controller=True),
    _row(ApiKey.LIST_OFFSETS, (1, 11), 6, broker=True),
    _row(ApiKey.METADATA, (0, 13), 9, broker=True),
    _row(ApiKey.OFFSET_COMMIT, (2, 10), 8, broker=True),
    _row(ApiKey.OFFSET_FETCH, (1, 10), 6, broker=True),
    _row(ApiKey.FIND_COORDINATOR, (0, 6), 3, broker=True),
    _row(ApiKey.JOIN_GROUP, (0, 9), 6, broker=True),
    _row(ApiKey.HEARTBEAT, (0, 4), 4, broker=True),
    _row(ApiKey.LEAVE_GROUP, (0, 5), 4, broker=True),
    _row(ApiKey.SYNC_GROUP, (0, 5), 4, broker=True),
    _row(ApiKey.DESCRIBE_GROUPS, (0, 6), 5, broker=True),
    _row(ApiKey.LIST_GROUPS, (0, 5), 3, broker=True),
    _row(ApiKey.SASL_HANDSHAKE, (0, 1), NEVER_FLEXIBLE, broker=True, controller=True),
    _row(ApiKey.API_VERSIONS, (0, 4), 3, broker=True, controller=True),
    _row(ApiKey.CREATE_TOPICS, (2, 7), 5, broker=True, controller=True, forwarded=True),
    _row(ApiKey.DELETE_TOPICS, (1, 6), 4, broker=True, controller=True, forwarded=True),
    _row(ApiKey.DELETE_RECORDS, (0, 2), 2, broker=True),
    _row(ApiKey.INIT_PRODUCER_ID, (0, 5), 2, broker=True),
    _row(ApiKey.OFFSET_FOR_LEADER_EPOCH, (2, 4), 4, broker=True),
    _row(ApiKey.ADD_PARTITIONS_TO_TXN, (0, 5), 3, broker=True),
    _row(ApiKey.ADD_OFFSETS_TO_TXN, (0, 4), 3, broker=True),
    _row(ApiKey.END_TXN, (0, 5), 3, broker=True),
    _row(ApiKey.WRITE_TXN_MARKERS, (1, 2), 1, broker=True),
    _row(ApiKey.TXN_OFFSET_COMMIT, (0, 5), 3, broker=True),
    _row(ApiKey.DESCRIBE_ACLS, (1, 3), 2, broker=True, controller=True),
    _row(ApiKey.CREATE_ACLS, (1, 3), 2, broker=True, controller=True, forwarded=True),
    _row(ApiKey.DELETE_ACLS, (1, 3), 2, broker=True, controller=True, forwarded=True),
    _row(ApiKey.DESCRIBE_CONFIGS, (1, 4), 4, broker=True, controller=True),
    _row(ApiKey.ALTER_CONFIGS, (0, 2), 2, broker=True, controller=True, forwarded=True),
    _row(ApiKey.ALTER_REPLICA_LOG_DIRS, (1, 2), 2, broker=True),
    _row(ApiKey.DESCRIBE_LOG_DIRS, (1, 5), 2, broker=True),
    _row(ApiKey.SASL_AUTHENTICATE, (0, 2), 2, broker=True, controller=True),
    _row(ApiKey.CREATE_PARTITIONS, (0, 3), 2, broker=True, controller=True, forwarded=True),
    _row(ApiKey.CREATE_DELEGATION_TOKEN, (1, 3), 2, broker=True, controller=True, forwarded=True),
    _row(ApiKey.RENEW_DELEGATION_TOKEN, (1, 2), 2, broker=True, controller=True, forwarded=True),
    _row(ApiKey.EXPIRE_DELEGATION_TOKEN, (1, 2), 2, broker=True, controller=True, forwarded=True),
    _row(ApiKey.DESCRIBE_DELEGATION_TOKEN, (1, 3), 2, broker=True, controller=True),
    _row(ApiKey.DELETE_GROUPS, (0, 2), 2, broker=True),
    _row(ApiKey.ELECT_LEADERS, (0, 2), 2, broker=True, controller=True, forwarded=True),
    _row(ApiKey.INCREMENTAL_ALTER_CONFIGS, (0, 1), 1, broker=True, controller=True, forwarded=True),
    _row(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        (0, 1),
        0,
        broker=True,
        controller=True,
        forwarded=True,
    ),
    _row(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        (0, 0),
        0,
        broker=True,
        controller=True,
        forwarded=True,
    ),
    _row(ApiKey.OFFSET_DELETE, (0, 0), NEVER_FLEXIBLE, broker=True),
    _row(ApiKey.DESCRIBE_CLIENT_QUOTAS, (0, 1), 1, broker=True),
    _row(ApiKey.ALTER_CLIENT_QUOTAS, (0, 1), 1, broker=True, controller=True, forwarded=True),
    _row(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, (0, 0), 0, broker=True),
    _row(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        (0, 0),
        0,
        broker=True,
        controller=True,
        forwarded=True,
    ),
    _row(ApiKey.VOTE, (0, 2), 0, controller=True),
    _row(ApiKey.BEGIN_QUORUM_EPOCH, (0, 1), 1, controller=True),
    _row(ApiKey.END_QUORUM_EPOCH, (0, 1), 1, controller=True),
    _row(ApiKey.DESCRIBE_QUORUM, (0, 2), 0, broker=True, controller=True, forwarded=True),
    _row(ApiKey.ALTER_PARTITION, (2, 3), 0, controller=True),
    _row(ApiKey.UPDATE_FEATURES, (0, 2), 0, broker=True, controller=True, forwarded=True),
    _row(ApiKey.ENVELOPE, (0, 0), 0, controller=True),
    _row(ApiKey.FETCH_SNAPSHOT, (0, 1), 0, controller=True),
    _row(ApiKey.DESCRIBE_CLUSTER, (0, 2), 0, broker=True, controller=True),
    _row(ApiKey.DESCRIBE_PRODUCERS, (0, 0), 0, broker=True),
    _row(ApiKey.BROKER_REGISTRATION, (0, 4), 0, controller=True),
    _row(ApiKey.BROKER_HEARTBEAT, (0, 2), 0, controller=True),
    _row(ApiKey.UNREGISTER_BROKER, (0, 0), 0, broker=True, controller=True, forwarded=True),
    _row(ApiKey.DESCRIBE_TRANSACTIONS, (0, 0), 0, broker=True),
    _row(ApiKey.LIST_TRANSACTIONS, (0, 2), 0, broker=True),
    _row(ApiKey.ALLOCATE_PRODUCER_IDS, (0, 0), 0, controller=True),
    _row(ApiKey.CONSUMER_GROUP_HEARTBEAT, (0, 1), 0, broker=True),
    _row(ApiKey.CONSUMER_GROUP_DESCRIBE, (0, 1), 0, broker=True),
    _row(ApiKey.CONTROLLER_REGISTRATION, (0, 0), 0, controller=True),
    _row(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, (0, 0), 0, broker=True),
    _row(ApiKey.PUSH_TELEMETRY, (0, 0), 0, broker=True),
    _row(ApiKey.ASSIGN_REPLICAS_TO_DIRS, (0, 0), 0, controller=True),
    _row(ApiKey.LIST_CONFIG_RESOURCES, (0, 1), 0, broker=True),
    _row(ApiKey.DESCRIBE_TOPIC_PARTITIONS, (0, 0), 0, broker=True),
    _row(ApiKey.ADD_RAFT_VOTER, (0, 1), 0, broker=True, controller=True, forwarded=True),
    _row(ApiKey.REMOVE_RAFT_VOTER, (0, 0), 0, broker=True, controller=True, forwarded=True),
    _row(ApiKey.UPDATE_RAFT_VOTER, (0, 0), 0, controller=True),
)

APIS: Final[dict[ApiKey, Api]] = {api.key: api for api in _ROWS}


@unique
class PrivateApi(IntEnum):
    """Requests that Kafka does not have: far above Kafka's keys, in one version, never flexible. ApiVersions does not
    announce them, because clients may take a key that they do not know for an error. Other brokers close the connection
    when they get one. `broker.apis` says how to add one."""

    KEPT_RECORDS = 20_000
    """Lists and reads the records that a broker keeps aside (`wire.kept_records`)."""
    LOAD = 20_001
    """What a broker carries, and what the active controller knows that all carry (`balance.load`)."""


PRIVATE_APIS: Final[dict[int, str]] = {key: key.name.title().replace("_", "") for key in PrivateApi}
"""Their names."""
PRIVATE_VERSION: Final = 0
PRIVATE_BYTES_MAX: Final = 64 * 1024
