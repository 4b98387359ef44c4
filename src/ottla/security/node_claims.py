"""Which node somebody may say that it is: the one in its certificate.

A certificate may name nodes as URIs (`urn:ottla:node:2`). Whoever shows it speaks for these nodes only: all requests by which
nodes tell each other who they are must name one of them. Then node 2, or whoever has taken its key, cannot vote, replicate or register as
node 3. A certificate without such a URI is not bound to a node: those of an operator's own authority, and of Apache Kafka's
nodes, have none.

ListOffsets and OffsetForLeaderEpoch name a replica as well. They change nothing, and every replica is told the same, so they are not
looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from ottla.security.names import InvalidName, alternative_uris
from ottla.wire import fetch, messages
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.headers import RequestHeader

NODE_URI: Final = "urn:ottla:node:"
"""Followed by the node's id."""


def certified_nodes(certificate: bytes) -> frozenset[int] | None:
    """The nodes that a certificate (in DER) names. None: it is bound to none. Empty: what it names can be no node, so it
    speaks for nobody."""
    try:
        uris = alternative_uris(certificate)
    except InvalidName:
        return frozenset()
    named = [uri.removeprefix(NODE_URI) for uri in uris if uri.startswith(NODE_URI)]
    if not named:
        return None
    return frozenset(
        int(text) for text in named if text.isascii() and text.isdecimal() and len(text) <= 10
    )


# Where each request says who sends it


def _in_partitions(name: str) -> Callable[[Any], Iterable[int]]:
    return lambda message: (
        getattr(partition, name) for topic in message.topics for partition in topic.partitions
    )


def _field(name: str) -> Callable[[Any], Iterable[int]]:
    return lambda message: (getattr(message, name),)


CLAIMS: Final[Mapping[int, Callable[[Any], Iterable[int]]]] = {
    ApiKey.BROKER_REGISTRATION: _field("broker_id"),
    ApiKey.CONTROLLER_REGISTRATION: _field("controller_id"),
    ApiKey.BROKER_HEARTBEAT: _field("broker_id"),
    ApiKey.ALTER_PARTITION: _field("broker_id"),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: _field("broker_id"),
    ApiKey.ALLOCATE_PRODUCER_IDS: _field("broker_id"),
    ApiKey.FETCH: _field("replica_id"),
    ApiKey.FETCH_SNAPSHOT: _field("replica_id"),
    ApiKey.VOTE: _in_partitions("replica_id"),
    ApiKey.BEGIN_QUORUM_EPOCH: _in_partitions("leader_id"),
    ApiKey.END_QUORUM_EPOCH: _in_partitions("leader_id"),
    ApiKey.UPDATE_RAFT_VOTER: _field("voter_id"),
}
"""By api key: the ids that a request claims. One below zero claims nothing: consumers fetch as -1."""

_REGISTRATIONS: Final = (ApiKey.BROKER_REGISTRATION, ApiKey.CONTROLLER_REGISTRATION)


class FalseClaim(NamedTuple):
    claimed: int
    error: ErrorCode


def false_claim(
    nodes: frozenset[int], header: RequestHeader, frame: memoryview
) -> FalseClaim | None:
    """What a request says that its certificate does not. InvalidFrame if it cannot be read."""
    key, version = header.api_key, header.api_version
    message: Any
    if key == ApiKey.FETCH:
        read = fetch.read_request if nodes else fetch.read_long_request
        message = read(version, frame, header.body)
    else:
        message = messages.read_request(key, version, frame, header.body)
    for claimed in CLAIMS[key](message):
        if claimed >= 0 and claimed not in nodes:
            registers = key in _REGISTRATIONS
            error = (
                ErrorCode.INVALID_REGISTRATION
                if registers
                else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            )
            return FalseClaim(int(claimed), error)
    return None
