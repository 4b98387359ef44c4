"""The ACL APIs of a real node with an authorizer, asked at its broker and at its controller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from one_node import alone

from ottla.broker.apis.broker_loggers import DELETE, SET
from ottla.broker.node import Node
from ottla.broker.server.audit_log import AUDIT_LOGGER
from ottla.config.values import STANDARD_AUTHORIZER
from ottla.metadata.records import BROKER_LOGGER_RESOURCE
from ottla.security.operations import (
    CLUSTER_NAME,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from ottla.wire.apis import ApiKey
from ottla.wire.channel import Channel
from ottla.wire.errors import ErrorCode

Fields = dict[str, Any]
EVERYTHING: Fields = {
    "resource_type_filter": ResourceType.ANY,
    "resource_name_filter": None,
    "pattern_type_filter": PatternType.ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": AclOperation.ANY,
    "permission_type": Permission.ANY,
}


def acl(
    name: str,
    operation: AclOperation = AclOperation.READ,
    kind: ResourceType = ResourceType.TOPIC,
    permission: Permission = Permission.ALLOW,
    principal: str = "User:ANONYMOUS",
) -> Fields:
    return {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": PatternType.LITERAL,
        "principal": principal,
        "host": "*",
        "operation": operation,
        "permission_type": permission,
    }


def on_cluster(operation: AclOperation, permission: Permission = Permission.ALLOW) -> Fields:
    return acl(CLUSTER_NAME, operation, ResourceType.CLUSTER, permission)


async def create(channel: Channel, *acls: Fields, version: int | None = None) -> list[int]:
    answer = await channel.request(ApiKey.CREATE_ACLS, {"creations": acls}, version=version)
    return [int(row.error_code) for row in answer.results]


async def delete(channel: Channel, **changed: object) -> tuple[int, list[str]]:
    fields = {"filters": [{**EVERYTHING, **changed}]}
    [row] = (await channel.request(ApiKey.DELETE_ACLS, fields)).filter_results
    return int(row.error_code), [each.resource_name for each in row.matching_acls]


async def describe(
    channel: Channel, version: int | None = None, **changed: object
) -> tuple[int, list[str]]:
    answer = await channel.request(ApiKey.DESCRIBE_ACLS, {**EVERYTHING, **changed}, version=version)
    return int(answer.error_code), [resource.resource_name for resource in answer.resources]


@asynccontextmanager
async def one_node(
    directory: Path, **settings: str
) -> AsyncIterator[tuple[Node, Channel, Channel]]:
    node, to_broker = await alone(
        directory,
        authorizer_class_name=STANDARD_AUTHORIZER,
        allow_everyone_if_no_acl_found="true",
        **settings,
    )
    at = node.endpoints["CONTROLLER"]
    to_controller = await Channel.open(node.runtime.network, at.host, at.port, "client")
    await to_controller.negotiate(10)
    try:
        yield node, to_broker, to_controller
    finally:
        to_broker.close()
        to_controller.close()
        await node.stop()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_acls_are_created_described_and_deleted_at_both_listeners(
    tmp_path: Path, version: int
) -> None:
    async def story() -> None:
        async with one_node(tmp_path) as (node, to_broker, to_controller):
            assert await create(to_broker, acl("a"), acl("a"), acl(""), version=version) == [
                ErrorCode.NONE,
                ErrorCode.NONE,
                ErrorCode.INVALID_REQUEST,
            ]
            assert await create(to_controller, acl("b"), version=version) == [0]
            for channel in (to_broker, to_controller):
                assert await describe(channel, version) == (0, ["a", "b"])
                only = {"resource_name_filter": "b", "pattern_type_filter": PatternType.MATCH}
                assert await describe(channel, version, **only) == (0, ["b"])
                code, _ = await describe(channel, version, operation=99)
                assert code == ErrorCode.INVALID_REQUEST
            assert await delete(to_broker, resource_name_filter="a") == (0, ["a"])
            assert await delete(to_controller) == (0, ["b"])
            assert await describe(to_broker) == (0, [])
            assert node.authorizer is not None and not node.authorizer.acls

    asyncio.run(story())


def test_who_may_not_describe_the_cluster_sees_no_acls(tmp_path: Path) -> None:
    async def story() -> None:
        async with one_node(tmp_path) as (_, to_broker, to_controller):
            assert await create(
                to_broker,
                on_cluster(AclOperation.ALTER),
                on_cluster(AclOperation.CLUSTER_ACTION),
                on_cluster(AclOperation.DESCRIBE, Permission.DENY),
            ) == [0, 0, 0]
            for channel in (to_broker, to_controller):
                code, resources = await describe(channel)
                assert (code, resources) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
            denial = {"permission_type": Permission.DENY}
            assert await delete(to_broker, **denial) == (0, [CLUSTER_NAME])
            assert (await describe(to_broker))[0] == 0, "ALTER implies DESCRIBE"

    asyncio.run(story())


def test_who_may_not_alter_the_cluster_changes_no_acl(tmp_path: Path) -> None:
    async def story() -> None:
        async with one_node(tmp_path) as (_, to_broker, to_controller):
            assert await create(
                to_broker,
                on_cluster(AclOperation.DESCRIBE),
                on_cluster(AclOperation.CLUSTER_ACTION),
            ) == [0, 0]
            denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            for channel in (to_broker, to_controller):
                assert await create(channel, acl("a"), acl("b")) == [denied, denied]
                assert await delete(channel) == (denied, [])
                assert await describe(channel) == (0, [CLUSTER_NAME])

    asyncio.run(story())


def test_the_audit_of_what_is_allowed_can_be_turned_on_while_a_node_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def told() -> list[str]:
        return [each.getMessage() for each in caplog.records if each.name == AUDIT_LOGGER]

    async def set_level(channel: Channel, operation: int, value: str | None) -> None:
        change = {"name": AUDIT_LOGGER, "config_operation": operation, "value": value}
        resource = {
            "resource_type": BROKER_LOGGER_RESOURCE,
            "resource_name": "1",
            "configs": [change],
        }
        fields = {"resources": [resource], "validate_only": False}
        answer = await channel.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, fields)
        assert [int(row.error_code) for row in answer.responses] == [0]

    async def story() -> None:
        async with one_node(tmp_path) as (_, to_broker, _to_controller):
            for _ in range(2):  # the second time it is remembered
                assert await describe(to_broker) == (0, [])
            assert told() == []
            await set_level(to_broker, SET, "DEBUG")
            try:
                assert await describe(to_broker) == (0, [])
            finally:
                await set_level(to_broker, DELETE, None)
            line = next(line for line in told() if "for request = DescribeAcls" in line)
            assert line.startswith(
                "Principal = User:ANONYMOUS is Allowed operation = DESCRIBE from host = 127.0.0.1 on"
                " resource = Cluster:LITERAL:kafka-cluster"
            )

    asyncio.run(story())


def test_acls_are_there_after_a_restart(tmp_path: Path) -> None:
    async def story() -> None:
        async with one_node(tmp_path) as (_, to_broker, _to_controller):
            assert await create(to_broker, acl("a")) == [0]
        async with one_node(tmp_path) as (_, to_broker, _to_controller):
            assert await describe(to_broker) == (0, ["a"])

    asyncio.run(story())
