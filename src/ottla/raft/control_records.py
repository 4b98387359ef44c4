"""The control records of the quorum: leader changes, voters, and the start and end of a snapshot.

They are in control batches between the metadata records, in the metadata log and in snapshots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar
from uuid import UUID

from ottla.records.record import ControlType
from ottla.wire.record_codec import (
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID_TYPE,
    MalformedRecord,
    Message,
    Reader,
    Writer,
    array,
    message,
    read_message,
    struct_of,
    wire,
    write_message,
)


@message
class VoterId(Message):
    voter_id: int = wire(INT32)


@message
class LeaderChange(Message):
    version: int = wire(INT16, default=0)
    leader_id: int = wire(INT32)
    voters: tuple[VoterId, ...] = wire(array(struct_of(VoterId)))
    granting_voters: tuple[VoterId, ...] = wire(array(struct_of(VoterId)))


@message
class SnapshotHeader(Message):
    version: int = wire(INT16, default=0)
    last_contained_log_timestamp: int = wire(INT64)


@message
class SnapshotFooter(Message):
    version: int = wire(INT16, default=0)


@message
class KRaftVersion(Message):
    version: int = wire(INT16, default=0)
    k_raft_version: int = wire(INT16)


@message
class VoterEndpoint(Message):
    name: str = wire(STRING)
    host: str = wire(STRING)
    port: int = wire(UINT16)


@message
class SupportedRange(Message):
    min_supported_version: int = wire(INT16, default=0)
    max_supported_version: int = wire(INT16, default=1)


@message
class VoterEntry(Message):
    voter_id: int = wire(INT32)
    voter_directory_id: UUID = wire(UUID_TYPE)
    endpoints: tuple[VoterEndpoint, ...] = wire(array(struct_of(VoterEndpoint)))
    k_raft_version_feature: SupportedRange = wire(
        struct_of(SupportedRange), default=SupportedRange()
    )


@message
class KRaftVoters(Message):
    version: int = wire(INT16, default=0)
    voters: tuple[VoterEntry, ...] = wire(array(struct_of(VoterEntry)))


Control = TypeVar("Control", bound=Message)


def encode_control(record: Message) -> bytes:
    writer = Writer()
    write_message(writer, record)
    return bytes(writer.data)


def decode_control(cls: type[Control], value: bytes | None) -> Control:
    """Newer versions add only tagged fields, so they can be read as version 0."""
    if value is None:
        raise MalformedRecord(f"a {cls.__name__} without a value")
    return read_message(cls, Reader(value))


def leader_change(
    leader: int, voters: Sequence[int], granting: Sequence[int]
) -> tuple[ControlType, bytes]:
    """The control record with which an epoch begins."""
    change = LeaderChange(
        leader_id=leader,
        voters=tuple(VoterId(voter_id=voter) for voter in voters),
        granting_voters=tuple(VoterId(voter_id=voter) for voter in granting),
    )
    return ControlType.LEADER_CHANGE, encode_control(change)
