"""A real node with an authorizer, in the test's own process. A test opens connections in anybody's name, and gives and takes rights.

The node itself is a super user: it logs in nowhere, so it is ANONYMOUS.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

from one_node import alone

from ottla.runtime.real import real_runtime
from ottla.security.acls import Acl
from ottla.security.operations import (
    CLUSTER_NAME,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from ottla.security.principals import user
from ottla.wire.apis import ApiKey
from ottla.wire.channel import Channel

BROKER, CONTROLLER = "PLAINTEXT", "CONTROLLER"
T, G, X, C = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.TRANSACTIONAL_ID,
    ResourceType.CLUSTER,
)
Given = tuple[ResourceType, str, AclOperation]
Result = TypeVar("Result")
DENIALS = {29, 30, 31, 53}


def on_cluster(operation: AclOperation) -> Given:
    return C, CLUSTER_NAME, operation


class RuledNode:
    def __init__(self, directory: Path, **settings: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.names = 0
        self.node, self.admin = self.run(
            alone(
                directory,
                authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                super_users="User:ANONYMOUS",
                offsets_topic_num_partitions="1",
                transaction_state_log_num_partitions="1",
                offsets_topic_replication_factor="1",
                transaction_state_log_replication_factor="1",
                transaction_state_log_min_isr="1",
                group_initial_rebalance_delay_ms="0",
                ottla_event_log_enable="false",  # it would make its topic at any time
                **settings,
            )
        )
        assert self.node.authorizer is not None
        self.authorizer = self.node.authorizer
        self._runtime = real_runtime(self.loop, seed=2)
        self.run(self._registered())

    async def _registered(self) -> None:
        """Until the node's controller has registered, too: from then on nobody changes the metadata but tests."""
        quorum = self.node.quorum
        assert quorum is not None
        registered = asyncio.Event()
        quorum.on_image.append(lambda image, _: registered.set() if image.controllers else None)
        if not quorum.image.controllers:
            await registered.wait()

    def close(self) -> None:
        self.admin.close()
        self.run(self.node.stop())
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self.loop.run_until_complete(asyncio.wait_for(work, 30))

    def ask(self, channel: Channel, key: ApiKey, fields: dict[str, Any], **options: Any) -> Any:
        return self.run(channel.request(key, fields, timeout_s=20, **options))

    def log_in(self, name: str, listener: str = BROKER, client_id: str = "client") -> Channel:
        """A connection of this user."""

        async def open_channel() -> Channel:
            server = self.node.servers[listener]
            host, port = "127.0.0.1", self.node.endpoints[listener].port
            channel = await Channel.open(self._runtime.network, host, port, client_id)
            await channel.negotiate(20)
            mine = f":{channel.local[1]}"
            (connection,) = [each for each in server.connections if each.peer.endswith(mine)]
            connection.authenticated(user(name))
            return channel

        return self.run(open_channel())

    def somebody(self, *given: Given) -> str:
        """A user with exactly these rights."""
        self.names += 1
        name = f"user-{self.names}"
        for each in given:
            self.allow(name, each)
        return name

    def allow(self, name: str, given: Given) -> Acl:
        acl = _acl(name, given, Permission.ALLOW)
        self.authorizer.change((), [acl])
        return acl

    def deny(self, name: str, given: Given) -> Acl:
        acl = _acl(name, given, Permission.DENY)
        self.authorizer.change((), [acl])
        return acl

    def take_away(self, acl: Acl) -> None:
        self.authorizer.change([acl], ())


def _acl(name: str, given: Given, permission: Permission) -> Acl:
    resource_type, resource, operation = given
    return Acl(
        resource_type,
        PatternType.LITERAL,
        resource,
        f"User:{name}",
        "*",
        operation,
        permission,
    )


def codes(answer: Any) -> Iterator[int]:
    """All error codes of an answer, at whatever depth."""
    if isinstance(answer, tuple):
        for each in answer:
            yield from codes(each)
    elif dataclasses.is_dataclass(answer):
        for field in dataclasses.fields(answer):
            value = getattr(answer, field.name)
            if field.name.endswith("error_code"):
                yield int(value)
            else:
                yield from codes(value)


def denials(answer: Any) -> set[int]:
    return set(codes(answer)) & DENIALS
