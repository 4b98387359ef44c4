"""The records of `__cluster_metadata`: Kafka's schemas as frozen dataclasses, and their framing.

A record's value is: frame version 1, api key, record version (unsigned varints), then the body. We read
every version that Kafka has written, and write the one that Kafka writes at metadata.version 4.3-IV0. Names are
Kafka's. Arrays are tuples. An absent nullable array is None, which differs from an empty one.
"""

from __future__ import annotations

from functools import cache
from typing import ClassVar
from uuid import UUID

from ottla.wire.primitives import uvarint
from ottla.wire.record_codec import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    NULLABLE_STRING,
    STRING,
    UINT16,
    UUID_TYPE,
    MalformedRecord,
    Message,
    Reader,
    Writer,
    array,
    fits,
    message,
    read_message,
    struct_of,
    wire,
    write_message,
)

FRAME_VERSION = 1

NO_LEADER = -1
LEADER_UNCHANGED = -2

RECOVERED = 0
RECOVERING = 1

# Reserved directory ids.
DIRECTORY_MIGRATING = UUID(int=0)
DIRECTORY_UNASSIGNED = UUID(int=1)
DIRECTORY_LOST = UUID(int=2)

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
BROKER_LOGGER_RESOURCE = 8
CLIENT_METRICS_RESOURCE = 16
GROUP_RESOURCE = 32


@message
class MetadataRecord(Message):
    """One metadata record. `KEY` is its api key; `VERSION` is the newest version, which is the one written."""

    KEY: ClassVar[int]
    VERSION: ClassVar[int] = 0

    def written_version(self) -> int:
        return self.VERSION


@message
class Endpoint(Message):
    """The address of a broker or controller. `security_protocol` is Kafka's security protocol id (0 PLAINTEXT)."""

    name: str = wire(STRING)
    host: str = wire(STRING)
    port: int = wire(UINT16)
    security_protocol: int = wire(INT16, default=0)


@message
class FeatureRange(Message):
    name: str = wire(STRING)
    min_supported_version: int = wire(INT16)
    max_supported_version: int = wire(INT16)


@message
class RegisterBrokerRecord(MetadataRecord):
    KEY: ClassVar[int] = 0
    VERSION: ClassVar[int] = 4

    broker_id: int = wire(INT32)
    is_migrating_zk_broker: bool = wire(BOOL, since=2, default=False)
    incarnation_id: UUID = wire(UUID_TYPE)
    broker_epoch: int = wire(INT64)
    end_points: tuple[Endpoint, ...] = wire(array(struct_of(Endpoint)))
    features: tuple[FeatureRange, ...] = wire(array(struct_of(FeatureRange)))
    rack: str | None = wire(NULLABLE_STRING)
    fenced: bool = wire(BOOL, default=True)
    in_controlled_shutdown: bool = wire(BOOL, since=1, default=False)
    log_dirs: tuple[UUID, ...] = wire(array(UUID_TYPE), since=3, tag=0, default=())
    cordoned_log_dirs: tuple[UUID, ...] | None = wire(
        array(UUID_TYPE, nullable=True), since=4, tag=1, default=None
    )


@message
class UnregisterBrokerRecord(MetadataRecord):
    KEY: ClassVar[int] = 1

    broker_id: int = wire(INT32)
    broker_epoch: int = wire(INT64)


@message
class TopicRecord(MetadataRecord):
    KEY: ClassVar[int] = 2

    name: str = wire(STRING)
    topic_id: UUID = wire(UUID_TYPE)


@message
class PartitionRecord(MetadataRecord):
    KEY: ClassVar[int] = 3
    VERSION: ClassVar[int] = 2

    partition_id: int = wire(INT32)
    topic_id: UUID = wire(UUID_TYPE)
    replicas: tuple[int, ...] = wire(array(INT32))
    isr: tuple[int, ...] = wire(array(INT32))
    removing_replicas: tuple[int, ...] = wire(array(INT32), default=())
    adding_replicas: tuple[int, ...] = wire(array(INT32), default=())
    leader: int = wire(INT32)
    leader_recovery_state: int = wire(INT8, tag=0, default=RECOVERED)
    leader_epoch: int = wire(INT32)
    partition_epoch: int = wire(INT32)
    directories: tuple[UUID, ...] = wire(array(UUID_TYPE), since=1, default=())
    eligible_leader_replicas: tuple[int, ...] | None = wire(
        array(INT32, nullable=True), since=2, tag=1, default=None
    )
    last_known_elr: tuple[int, ...] | None = wire(
        array(INT32, nullable=True), since=2, tag=2, default=None
    )


@message
class ConfigRecord(MetadataRecord):
    """`resource_type` 2 is a topic, 4 a broker. The broker "" is the default of all brokers. Value None deletes."""

    KEY: ClassVar[int] = 4

    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    name: str = wire(STRING)
    value: str | None = wire(NULLABLE_STRING)


@message
class PartitionChangeRecord(MetadataRecord):
    """The changes of one partition. None (leader: -2, state: -1) means unchanged."""

    KEY: ClassVar[int] = 5
    VERSION: ClassVar[int] = 2

    partition_id: int = wire(INT32)
    topic_id: UUID = wire(UUID_TYPE)
    isr: tuple[int, ...] | None = wire(array(INT32, nullable=True), tag=0, default=None)
    leader: int = wire(INT32, tag=1, default=LEADER_UNCHANGED)
    replicas: tuple[int, ...] | None = wire(array(INT32, nullable=True), tag=2, default=None)
    removing_replicas: tuple[int, ...] | None = wire(
        array(INT32, nullable=True), tag=3, default=None
    )
    adding_replicas: tuple[int, ...] | None = wire(array(INT32, nullable=True), tag=4, default=None)
    leader_recovery_state: int = wire(INT8, tag=5, default=-1)
    eligible_leader_replicas: tuple[int, ...] | None = wire(
        array(INT32, nullable=True), since=2, tag=6, default=None
    )
    last_known_elr: tuple[int, ...] | None = wire(
        array(INT32, nullable=True), since=2, tag=7, default=None
    )
    directories: tuple[UUID, ...] | None = wire(
        array(UUID_TYPE, nullable=True), since=1, tag=8, default=None
    )


@message
class FenceBrokerRecord(MetadataRecord):
    KEY: ClassVar[int] = 7

    id: int = wire(INT32)
    epoch: int = wire(INT64)


@message
class UnfenceBrokerRecord(MetadataRecord):
    KEY: ClassVar[int] = 8

    id: int = wire(INT32)
    epoch: int = wire(INT64)


@message
class RemoveTopicRecord(MetadataRecord):
    KEY: ClassVar[int] = 9

    topic_id: UUID = wire(UUID_TYPE)


@message
class DelegationTokenRecord(MetadataRecord):
    KEY: ClassVar[int] = 10

    owner: str = wire(STRING)
    requester: str = wire(STRING)
    renewers: tuple[str, ...] = wire(array(STRING))
    issue_timestamp: int = wire(INT64)
    max_timestamp: int = wire(INT64)
    expiration_timestamp: int = wire(INT64)
    token_id: str = wire(STRING)


@message
class UserScramCredentialRecord(MetadataRecord):
    KEY: ClassVar[int] = 11

    name: str = wire(STRING)
    mechanism: int = wire(INT8)
    salt: bytes = wire(BYTES)
    stored_key: bytes = wire(BYTES)
    server_key: bytes = wire(BYTES)
    iterations: int = wire(INT32)


@message
class FeatureLevelRecord(MetadataRecord):
    KEY: ClassVar[int] = 12

    name: str = wire(STRING)
    feature_level: int = wire(INT16)


@message
class QuotaEntity(Message):
    entity_type: str = wire(STRING)
    entity_name: str | None = wire(NULLABLE_STRING)


@message
class ClientQuotaRecord(MetadataRecord):
    KEY: ClassVar[int] = 14

    entity: tuple[QuotaEntity, ...] = wire(array(struct_of(QuotaEntity)))
    key: str = wire(STRING)
    value: float = wire(FLOAT64)
    remove: bool = wire(BOOL)


@message
class ProducerIdsRecord(MetadataRecord):
    KEY: ClassVar[int] = 15

    broker_id: int = wire(INT32)
    broker_epoch: int = wire(INT64)
    next_producer_id: int = wire(INT64)


@message
class BrokerRegistrationChangeRecord(MetadataRecord):
    """`fenced`: 1 fences, -1 unfences, 0 means unchanged; `in_controlled_shutdown`: 1 begins it, 0 means unchanged."""

    KEY: ClassVar[int] = 17
    VERSION: ClassVar[int] = 3

    broker_id: int = wire(INT32)
    broker_epoch: int = wire(INT64)
    fenced: int = wire(INT8, tag=0, default=0)
    in_controlled_shutdown: int = wire(INT8, since=1, tag=1, default=0)
    log_dirs: tuple[UUID, ...] = wire(array(UUID_TYPE), since=2, tag=2, default=())
    cordoned_log_dirs: tuple[UUID, ...] | None = wire(
        array(UUID_TYPE, nullable=True), since=3, tag=3, default=None
    )

    def written_version(self) -> int:
        """The lowest version that can carry the record, as in Kafka."""
        return next(version for version in range(self.VERSION + 1) if fits(self, version))


@message
class AccessControlEntryRecord(MetadataRecord):
    KEY: ClassVar[int] = 18

    id: UUID = wire(UUID_TYPE)
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    pattern_type: int = wire(INT8)
    principal: str = wire(STRING)
    host: str = wire(STRING)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@message
class RemoveAccessControlEntryRecord(MetadataRecord):
    KEY: ClassVar[int] = 19

    id: UUID = wire(UUID_TYPE)


@message
class NoOpRecord(MetadataRecord):
    KEY: ClassVar[int] = 20


@message
class ZkMigrationStateRecord(MetadataRecord):
    KEY: ClassVar[int] = 21

    zk_migration_state: int = wire(INT8)


@message
class RemoveUserScramCredentialRecord(MetadataRecord):
    KEY: ClassVar[int] = 22

    name: str = wire(STRING)
    mechanism: int = wire(INT8)


@message
class BeginTransactionRecord(MetadataRecord):
    KEY: ClassVar[int] = 23

    name: str | None = wire(NULLABLE_STRING, tag=0, default=None)


@message
class EndTransactionRecord(MetadataRecord):
    KEY: ClassVar[int] = 24


@message
class AbortTransactionRecord(MetadataRecord):
    KEY: ClassVar[int] = 25

    reason: str | None = wire(NULLABLE_STRING, tag=0, default=None)


@message
class RemoveDelegationTokenRecord(MetadataRecord):
    KEY: ClassVar[int] = 26

    token_id: str = wire(STRING)


@message
class RegisterControllerRecord(MetadataRecord):
    KEY: ClassVar[int] = 27

    controller_id: int = wire(INT32)
    incarnation_id: UUID = wire(UUID_TYPE)
    zk_migration_ready: bool = wire(BOOL, default=False)
    end_points: tuple[Endpoint, ...] = wire(array(struct_of(Endpoint)))
    features: tuple[FeatureRange, ...] = wire(array(struct_of(FeatureRange)))


@message
class ClearElrRecord(MetadataRecord):
    """Clears ELR and last known ELR of one topic's partitions; the topic "" means every topic."""

    KEY: ClassVar[int] = 28

    topic_name: str = wire(STRING)


SEPARABLE = (
    PartitionChangeRecord,
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
"""Of a decision that consists of such records, any first part is a state that the cluster may be in: a dead broker leaves
the ISRs of its partitions one after another, and is fenced when it is in none. All others stand or fall together."""

RECORD_TYPES: dict[int, type[MetadataRecord]] = {
    cls.KEY: cls
    for cls in (
        RegisterBrokerRecord,
        UnregisterBrokerRecord,
        TopicRecord,
        PartitionRecord,
        ConfigRecord,
        PartitionChangeRecord,
        FenceBrokerRecord,
        UnfenceBrokerRecord,
        RemoveTopicRecord,
        DelegationTokenRecord,
        UserScramCredentialRecord,
        FeatureLevelRecord,
        ClientQuotaRecord,
        ProducerIdsRecord,
        BrokerRegistrationChangeRecord,
        AccessControlEntryRecord,
        RemoveAccessControlEntryRecord,
        NoOpRecord,
        ZkMigrationStateRecord,
        RemoveUserScramCredentialRecord,
        BeginTransactionRecord,
        EndTransactionRecord,
        AbortTransactionRecord,
        RemoveDelegationTokenRecord,
        RegisterControllerRecord,
        ClearElrRecord,
    )
}


def encode(record: MetadataRecord) -> bytes:
    version = record.written_version()
    writer = Writer(version=version)
    writer.data += _frame(record.KEY, version)
    write_message(writer, record)
    return bytes(writer.data)


@cache
def _frame(key: int, version: int) -> bytes:
    return uvarint(FRAME_VERSION) + uvarint(key) + uvarint(version)


def decode(value: bytes | memoryview) -> MetadataRecord:
    reader = Reader(value)
    frame_version = reader.uvarint()
    if frame_version != FRAME_VERSION:
        raise MalformedRecord(f"frame version {frame_version}, only {FRAME_VERSION} is known")
    key = reader.uvarint()
    cls = RECORD_TYPES.get(key)
    if cls is None:
        raise MalformedRecord(f"unknown metadata record type {key}")
    version = reader.uvarint()
    if version > cls.VERSION:
        raise MalformedRecord(f"{cls.__name__} version {version}, newest known is {cls.VERSION}")
    reader.version = version
    record = read_message(cls, reader)
    reader.expect_end(cls.__name__)
    return record
