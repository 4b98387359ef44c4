"""What is said about topics to those who may see them and to those who may not: no answer tells a stranger what exists. Which request
needs which right is in `test_rights_by_row`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from guarded_node import (
    ABSENT,
    TOPIC,
    GuardedNode,
    acl,
    asked,
    fetch_request,
    fetched,
    partition,
    produced,
    raw,
)

from ottla.security.needs import Right
from ottla.security.operations import AclOperation, ResourceType
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.types import ZERO_UUID


@dataclass
class Running:
    runner: asyncio.Runner
    node: GuardedNode


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with asyncio.Runner() as runner:
        node = runner.run(GuardedNode.start(tmp_path_factory.mktemp("node")))
        yield Running(runner, node)
        runner.run(node.stop())


def offsets_of(topic: str, timestamp: int = -1) -> dict[str, Any]:
    wanted = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
    return {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": topic, "partitions": [wanted]}],
        "timeout": 1000,
    }


def epoch_end_of(topic: str) -> dict[str, Any]:
    wanted = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    return {"replica_id": -1, "topics": [{"topic": topic, "partitions": [wanted]}]}


def named(*topics: str, create: bool = False) -> dict[str, Any]:
    return {
        "topics": [{"name": topic, "topic_id": ZERO_UUID} for topic in topics],
        "allow_auto_topic_creation": create,
        "include_topic_authorized_operations": True,
    }


def topic_partitions(*topics: str) -> dict[str, Any]:
    return {
        "topics": [{"name": topic} for topic in topics],
        "response_partition_limit": 100,
        "cursor": None,
    }


def configs_of(kind: int, name: str) -> dict[str, Any]:
    return {
        "resources": [{"resource_type": kind, "resource_name": name, "configuration_keys": None}],
        "include_synonyms": False,
        "include_documentation": False,
    }


# -- nobody learns what exists ---------------------------------------------------------------------


PROBES: dict[str, tuple[ApiKey, Callable[[str], dict[str, Any]]]] = {
    "Metadata": (ApiKey.METADATA, named),
    "Metadata that may create": (ApiKey.METADATA, lambda topic: named(topic, create=True)),
    "DescribeTopicPartitions": (ApiKey.DESCRIBE_TOPIC_PARTITIONS, topic_partitions),
    "DescribeConfigs": (ApiKey.DESCRIBE_CONFIGS, lambda topic: configs_of(2, topic)),
    "ListOffsets": (ApiKey.LIST_OFFSETS, offsets_of),
    "ListOffsets of the first unread": (
        ApiKey.LIST_OFFSETS,
        lambda topic: offsets_of(topic, -(2**62)),
    ),
    "OffsetForLeaderEpoch": (ApiKey.OFFSET_FOR_LEADER_EPOCH, epoch_end_of),
    "DescribeProducers": (
        ApiKey.DESCRIBE_PRODUCERS,
        lambda topic: {"topics": [{"name": topic, "partition_indexes": [0]}]},
    ),
    "DeleteRecords": (
        ApiKey.DELETE_RECORDS,
        lambda topic: {
            "topics": [{"name": topic, "partitions": [{"partition_index": 0, "offset": 0}]}],
            "timeout": 1000,
        },
    ),
}


@pytest.mark.parametrize("probe", PROBES)
def test_the_refused_one_cannot_tell_whether_a_topic_exists(running: Running, probe: str) -> None:
    key, fields = PROBES[probe]

    async def run() -> None:
        running.node.allow()
        channel = await running.node.client()
        for version in range(APIS[key].min_version, APIS[key].max_version + 1):
            if version < 10 and key is ApiKey.METADATA:
                continue  # those have no ids; the rest is the same
            there = await raw(channel, key, fields(TOPIC), version)
            gone = await raw(channel, key, fields(ABSENT), version)
            assert ErrorCode.TOPIC_AUTHORIZATION_FAILED.to_bytes(2) in there
            assert gone.replace(ABSENT.encode(), TOPIC.encode()) == there
        channel.close()

    running.runner.run(run())


def test_fetch_and_produce_do_not_tell_whether_a_topic_exists(running: Running) -> None:
    async def run() -> None:
        running.node.allow()
        channel = await running.node.client()
        answers = [
            (await fetched(channel, fetch_request([partition(topic)]))).partitions
            for topic in (TOPIC, ABSENT)
        ]
        assert answers[0] == [answers[1][0]._replace(topic=TOPIC)]
        assert await produced(channel, ABSENT, TOPIC) == [29, 29]
        channel.close()

    running.runner.run(run())


def test_metadata_of_an_unknown_id_says_so_and_of_a_hidden_one_has_no_name(
    running: Running,
) -> None:
    def by_id(id: Any) -> dict[str, Any]:
        return named() | {"topics": [{"name": None, "topic_id": id}]}

    async def run() -> None:
        running.node.allow()
        channel = await running.node.client()
        hidden = (await asked(channel, ApiKey.METADATA, by_id(running.node.topic_id))).topics[0]
        unknown = (await asked(channel, ApiKey.METADATA, by_id(UUID(int=99)))).topics[0]
        assert (hidden.error_code, hidden.name, hidden.topic_id, hidden.partitions) == (
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            None,
            running.node.topic_id,
            (),
        )
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        channel.close()

    running.runner.run(run())


# -- authorized operations -------------------------------------------------------------------------


def test_answers_say_which_operations_are_authorized(running: Running) -> None:
    topic, cluster = ResourceType.TOPIC, ResourceType.CLUSTER
    read_and_describe = 1 << AclOperation.READ | 1 << AclOperation.DESCRIBE
    not_asked = -(2**31)

    async def run() -> None:
        node = running.node
        node.allow(acl(Right(topic, AclOperation.READ)))
        channel = await node.client()
        shown = (await asked(channel, ApiKey.METADATA, named(TOPIC))).topics[0]
        assert shown.topic_authorized_operations == read_and_describe
        plain = named(TOPIC) | {"include_topic_authorized_operations": False}
        shown = (await asked(channel, ApiKey.METADATA, plain)).topics[0]
        assert shown.topic_authorized_operations == not_asked
        pages = await asked(
            channel, ApiKey.DESCRIBE_TOPIC_PARTITIONS, topic_partitions(ABSENT, TOPIC)
        )
        found = {each.name: each for each in pages.topics}
        assert found[TOPIC].topic_authorized_operations == read_and_describe
        assert found[ABSENT].topic_authorized_operations == not_asked
        with_cluster = {"include_cluster_authorized_operations": True}
        cluster_of = {"endpoint_type": 1, "include_fenced_brokers": False} | with_cluster
        old = await asked(channel, ApiKey.METADATA, plain | with_cluster, 8)
        assert old.cluster_authorized_operations == 0
        described = await asked(channel, ApiKey.DESCRIBE_CLUSTER, cluster_of)
        assert described.cluster_authorized_operations == 0 and described.brokers
        node.allow(acl(Right(cluster, AclOperation.CREATE)))  # without DESCRIBE nothing is told
        described = await asked(channel, ApiKey.DESCRIBE_CLUSTER, cluster_of)
        assert described.cluster_authorized_operations == 0
        node.allow(acl(Right(cluster, AclOperation.ALTER)))
        described = await asked(channel, ApiKey.DESCRIBE_CLUSTER, cluster_of)
        assert described.cluster_authorized_operations == (
            1 << AclOperation.ALTER | 1 << AclOperation.DESCRIBE
        )
        described = await asked(
            channel,
            ApiKey.DESCRIBE_CLUSTER,
            cluster_of | {"include_cluster_authorized_operations": False},
        )
        assert described.cluster_authorized_operations == not_asked
        channel.close()

    running.runner.run(run())


def test_a_kept_answer_of_metadata_is_not_given_to_somebody_else(running: Running) -> None:
    async def run() -> None:
        node = running.node
        node.allow()
        everything = {"topics": None, "allow_auto_topic_creation": True}
        all_of_them = await asked(node.operator, ApiKey.METADATA, everything)
        again = await asked(node.operator, ApiKey.METADATA, everything)
        assert TOPIC in [each.name for each in all_of_them.topics] and again == all_of_them
        channel = await node.client()
        assert (await asked(channel, ApiKey.METADATA, everything)).topics == ()
        node.allow(acl(Right(ResourceType.TOPIC, AclOperation.READ)))
        shown = await asked(channel, ApiKey.METADATA, everything)
        assert [each.name for each in shown.topics] == [TOPIC]
        node.allow()
        assert (await asked(channel, ApiKey.METADATA, everything)).topics == ()
        channel.close()

    running.runner.run(run())


def test_a_topic_is_not_created_without_the_right(running: Running) -> None:
    async def run() -> None:
        node = running.node
        channel = await node.client()
        for only in (AclOperation.DESCRIBE, AclOperation.CREATE):
            node.allow(acl(Right(ResourceType.TOPIC, only), "wished"))
            shown = (await asked(channel, ApiKey.METADATA, named("wished", create=True))).topics[0]
            assert shown.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert "wished" not in node.broker.cluster.image.topics
        channel.close()

    running.runner.run(run())


def test_telemetry_needs_no_right(running: Running) -> None:
    async def run() -> None:
        running.node.allow()
        channel = await running.node.client()
        fields = {"client_instance_id": ZERO_UUID}
        answer = await asked(channel, ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, fields)
        assert int(answer.error_code) == 0
        channel.close()

    running.runner.run(run())
