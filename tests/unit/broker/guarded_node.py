"""A real node with an authorizer in the test's own process, and clients of it with any principal."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from one_node import alone, create

from ottla.broker.node import Node
from ottla.broker.server.connections import ServerConnection
from ottla.records.record import Record, build
from ottla.runtime.real import real_runtime
from ottla.security.acls import Acl
from ottla.security.needs import Right
from ottla.security.operations import CLUSTER_NAME, PatternType, Permission, ResourceType
from ottla.security.principals import Principal, user
from ottla.wire import fetch, messages, produce
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.channel import Channel
from ottla.wire.fetch_messages import FetchPartition, FetchRequest, FetchResponse

ANN = user("ann")
BOB = user("bob")
TOPIC = "orders"
"""It exists, with one partition and some records."""
ABSENT = "absent"
"""As long as the other's name: answers about both can be compared byte by byte."""
NAMES = {
    ResourceType.TOPIC: TOPIC,
    ResourceType.GROUP: "billing",
    ResourceType.TRANSACTIONAL_ID: "txn",
    ResourceType.CLUSTER: CLUSTER_NAME,
}
FETCH_VERSION = 12
RECORDS = 3


def acl(right: Right, name: str | None = None, principal: Principal = ANN) -> Acl:
    resource = NAMES[right.resource_type] if name is None else name
    return Acl(
        right.resource_type,
        PatternType.LITERAL,
        resource,
        str(principal),
        "*",
        right.operation,
        Permission.ALLOW,
    )


class GuardedNode:
    def __init__(self, node: Node, operator: Channel) -> None:
        self.node = node
        self.operator = operator
        """Of a super user, as the node itself."""
        assert node.authorizer is not None and node.broker is not None
        self.authorizer = node.authorizer
        self.broker = node.broker
        self._channels = [operator]

    @classmethod
    async def start(cls, directory: Path) -> GuardedNode:
        node, operator = await alone(
            directory,
            authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            super_users="User:ANONYMOUS",
        )
        guarded = cls(node, operator)
        await create(operator, TOPIC, [[1]])
        await produced(operator, TOPIC)
        return guarded

    async def stop(self) -> None:
        for channel in self._channels:
            channel.close()
        await self.node.stop()

    def allow(self, *acls: Acl) -> None:
        """These, and no others."""
        self.authorizer.replace_all(acls)
        self.broker.fetches.rights_changed()

    async def client(self, principal: Principal = ANN, client_id: str = "client") -> Channel:
        runtime = real_runtime(asyncio.get_running_loop(), seed=1)
        port = self.node.endpoints["PLAINTEXT"].port
        channel = await Channel.open(runtime.network, "127.0.0.1", port, client_id)
        await channel.negotiate()
        self._channels.append(channel)
        self.connection_of(channel).authenticated(principal)
        return channel

    def connection_of(self, channel: Channel) -> ServerConnection:
        (connection,) = [
            each
            for each in self.node.servers["PLAINTEXT"].connections
            if each.peer.endswith(f":{channel.local[1]}")
        ]
        return connection

    @property
    def topic_id(self) -> Any:
        return self.broker.cluster.image.topics[TOPIC].id

    def log_end(self, topic: str = TOPIC) -> int:
        return self.broker.replicas.get(topic, 0).log.log_end


HUNG_S = 60.0
"""A request without an answer for so long hangs. It bounds no speed: other work may have the machine."""


async def raw(channel: Channel, key: ApiKey, fields: Mapping[str, Any], version: int) -> bytes:
    """The body of the answer."""
    body = messages.write_request(key, version, fields)
    return await channel.answer(
        key, version, body, lambda frame, at: bytes(frame[at:]), timeout_s=HUNG_S
    )


async def asked(
    channel: Channel, key: ApiKey, fields: Mapping[str, Any], version: int | None = None
) -> Any:
    return await channel.request(
        key, fields, version=APIS[key].max_version if version is None else version, timeout_s=HUNG_S
    )


def batch(*, transactional: bool = False) -> memoryview:
    records = [Record(0, 1_700_000_000_000, None, b"paid")]
    if not transactional:
        return memoryview(build(records))
    return memoryview(
        build(records, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    )


async def produced(
    channel: Channel,
    *topics: str,
    records: memoryview | None = None,
    transactional_id: str | None = None,
    acks: int = -1,
    version: int = 9,
    topic_id: Any = None,
) -> list[int]:
    """The error of each partition."""
    data = [
        produce.PartitionData(topic, topic_id, 0, batch() if records is None else records)
        for topic in topics
    ]
    if version >= 13:
        data = [each._replace(topic=None) for each in data]
    body = produce.write_request(
        version, produce.ProduceRequest(transactional_id, acks, 5_000, data)
    )
    answer = await channel.answer(
        ApiKey.PRODUCE,
        version,
        body,
        lambda frame, at: produce.read_response(version, frame, at),
        timeout_s=HUNG_S,
    )
    return [int(result.error) for result in answer.results]


def partition(
    topic: str | None = TOPIC, *, topic_id: Any = None, offset: int = 0
) -> FetchPartition:
    return FetchPartition(topic, topic_id, 0, -1, offset, -1, -1, 1 << 20)


def fetch_request(
    partitions: Iterable[FetchPartition], *, replica: int = -1, wait_ms: int = 0, **more: Any
) -> FetchRequest:
    return FetchRequest(
        replica_id=replica,
        max_wait_ms=wait_ms,
        min_bytes=1,
        partitions=list(partitions),
        **more,
    )


async def fetched(
    channel: Channel, request: FetchRequest, version: int = FETCH_VERSION
) -> FetchResponse:
    return await channel.answer(
        ApiKey.FETCH,
        version,
        fetch.write_request(version, request),
        lambda frame, at: fetch.read_response(version, memoryview(bytes(frame)), at),
        timeout_s=30,
    )
