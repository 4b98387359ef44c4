"""The voters of the metadata quorum, and changing them (KIP-853), of any Kafka.

A request that was carried out and not answered is asked again, and then refused because there is nothing left to do. So what
counts is who votes afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages import field
from ottla.wire.types import ZERO_UUID

Listener = tuple[str, str, int]
"""(name, host, port)"""


class QuorumReplica(NamedTuple):
    """A voter, or a node that observes."""

    id: int
    directory: UUID | None
    """None where voters are static."""
    end_offset: int
    last_fetch_ms: int
    """-1: unknown."""
    listeners: tuple[Listener, ...]
    """Empty for observers."""


class QuorumView(NamedTuple):
    leader: int
    epoch: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]

    def voter(self, id: int) -> QuorumReplica | None:
        return next((voter for voter in self.voters if voter.id == id), None)

    def observer(self, id: int) -> QuorumReplica | None:
        """The one that fetched last, if there are several with this id: a disk may have been replaced twice."""
        found = [each for each in self.observers if each.id == id and each.directory is not None]
        return max(found, key=lambda each: each.last_fetch_ms, default=None)


async def quorum_view(client: Client) -> QuorumView:
    quorum, nodes = await Admin(client).quorum()
    voters, observers = (
        tuple(
            QuorumReplica(
                int(each.replica_id),
                _known(field(each, "replica_directory_id", None)),
                int(each.log_end_offset),
                _ms(field(each, "last_fetch_timestamp", None)),
                tuple(nodes.get(int(each.replica_id), ())) if is_voter else (),
            )
            for each in sorted(group, key=lambda each: int(each.replica_id))
        )
        for group, is_voter in ((quorum.current_voters, True), (quorum.observers, False))
    )
    return QuorumView(int(quorum.leader_id), int(quorum.leader_epoch), voters, observers)


def _ms(value: Any) -> int:
    if value is None:
        return -1
    return value if isinstance(value, int) else round(value.timestamp() * 1000)


def _known(directory: UUID | None) -> UUID | None:
    return None if directory == ZERO_UUID else directory


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
        voter = (await quorum_view(client)).voter(id)
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
        voter = (await quorum_view(client)).voter(id)
        if voter is not None and voter.directory == directory:
            raise
