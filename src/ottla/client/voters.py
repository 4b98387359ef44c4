"""Changing the voters of the metadata quorum (KIP-853), of any Kafka.

A request that was carried out and not answered is asked again, and then refused because there is nothing left to do. So what
counts is who votes afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.model import QuorumInfo
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError

Listener = tuple[str, str, int]
"""(name, host, port)"""


async def are_dynamic(client: Client, quorum: QuorumInfo) -> bool:
    """Whether the voters can change."""
    return quorum.can_change((await client.connections.to_any()).features)


async def add_voter(
    client: Client, id: int, directory: UUID, listeners: Sequence[Listener]
) -> None:
    """Returns when the voter is committed."""
    fields = {
        "cluster_id": None,
        "timeout": int(client.connections.timeout_s * 1000),
        "voter_id": id,
        "voter_directory_id": directory,
        "listeners": [{"name": n, "host": h, "port": p} for n, h, p in listeners],
        "ack_when_committed": True,
    }
    try:
        await Admin(client).ask(ApiKey.ADD_RAFT_VOTER, fields)
    except KafkaError as error:
        if error.code is not ErrorCode.DUPLICATE_VOTER:
            raise
        voter = (await client.describe_quorum()).voter(id)
        if voter is None or voter.directory != directory:
            raise


async def remove_voter(client: Client, id: int, directory: UUID) -> None:
    """Returns when the removal is committed."""
    fields = {"cluster_id": None, "voter_id": id, "voter_directory_id": directory}
    try:
        await Admin(client).ask(ApiKey.REMOVE_RAFT_VOTER, fields)
    except KafkaError as error:
        if error.code is not ErrorCode.VOTER_NOT_FOUND:
            raise
        voter = (await client.describe_quorum()).voter(id)
        if voter is not None and voter.directory == directory:
            raise
