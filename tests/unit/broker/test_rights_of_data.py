"""Every row of `security.needs` about data and its description: who has nothing is refused, who lacks one right is refused
with its code, and who has exactly the rights is served."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from guarded_node import (
    ABSENT,
    ANN,
    NAMES,
    TOPIC,
    GuardedNode,
    acl,
    asked,
    batch,
    fetch_request,
    fetched,
    partition,
    produced,
    raw,
)

from ottla.security.needs import DESCRIBE_TOPIC, ON_BROKER, Need, RequestForm, Right
from ottla.security.operations import AclOperation, ResourceType
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.channel import Channel
from ottla.wire.errors import ErrorCode
from ottla.wire.internal_topics import ADMIN_CLIENT_ID, GROUP_METADATA_TOPIC
from ottla.wire.types import ZERO_UUID

REFUSALS = {29, 30, 31, 53}
NOT_SHOWN = -99
MINE = (
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.METADATA,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ApiKey.DELETE_RECORDS,
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.LIST_CONFIG_RESOURCES,
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
)

Ask = Callable[[Channel, str], Awaitable[int]]


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


# -- one request for each form ---------------------------------------------------------------------


async def _produce(channel: Channel, topic: str) -> int:
    return (await produced(channel, topic))[0]


async def _produce_in_transaction(channel: Channel, topic: str) -> int:
    records = batch(transactional=True)
    return (await produced(channel, topic, records=records, transactional_id="txn"))[0]


async def _fetch(channel: Channel, topic: str) -> int:
    return (await fetched(channel, fetch_request([partition(topic)]))).partitions[0].error


async def _fetch_as_replica(channel: Channel, topic: str) -> int:
    request = fetch_request([partition(topic)], replica=1)
    return (await fetched(channel, request)).partitions[0].error


async def _list_offsets(channel: Channel, topic: str) -> int:
    answer = await asked(channel, ApiKey.LIST_OFFSETS, offsets_of(topic))
    return int(answer.topics[0].partitions[0].error_code)


def offsets_of(topic: str, timestamp: int = -1) -> dict[str, Any]:
    wanted = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
    return {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": topic, "partitions": [wanted]}],
        "timeout": 1000,
    }


async def _epoch_end(channel: Channel, topic: str) -> int:
    answer = await asked(channel, ApiKey.OFFSET_FOR_LEADER_EPOCH, epoch_end_of(topic))
    return int(answer.topics[0].partitions[0].error_code)


def epoch_end_of(topic: str) -> dict[str, Any]:
    wanted = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    return {"replica_id": -1, "topics": [{"topic": topic, "partitions": [wanted]}]}


def named(*topics: str, create: bool = False) -> dict[str, Any]:
    return {
        "topics": [{"name": topic, "topic_id": ZERO_UUID} for topic in topics],
        "allow_auto_topic_creation": create,
        "include_topic_authorized_operations": True,
    }


async def _metadata(channel: Channel, topic: str) -> int:
    return int((await asked(channel, ApiKey.METADATA, named(topic))).topics[0].error_code)


async def _create_by_metadata(channel: Channel, topic: str) -> int:
    answer = await asked(channel, ApiKey.METADATA, named(topic, create=True))
    return int(answer.topics[0].error_code)


async def _all_metadata(channel: Channel, topic: str) -> int:
    everything = {"topics": None, "allow_auto_topic_creation": True}
    answer = await asked(channel, ApiKey.METADATA, everything)
    return 0 if topic in [each.name for each in answer.topics] else NOT_SHOWN


def topic_partitions(*topics: str) -> dict[str, Any]:
    return {
        "topics": [{"name": topic} for topic in topics],
        "response_partition_limit": 100,
        "cursor": None,
    }


async def _topic_partitions(channel: Channel, topic: str) -> int:
    answer = await asked(channel, ApiKey.DESCRIBE_TOPIC_PARTITIONS, topic_partitions(topic))
    return int(answer.topics[0].error_code)


async def _all_topic_partitions(channel: Channel, topic: str) -> int:
    answer = await asked(channel, ApiKey.DESCRIBE_TOPIC_PARTITIONS, topic_partitions())
    return 0 if topic in [each.name for each in answer.topics] else NOT_SHOWN


async def _delete_records(channel: Channel, topic: str) -> int:
    wanted = {"partition_index": 0, "offset": 0}
    fields = {"topics": [{"name": topic, "partitions": [wanted]}], "timeout": 1000}
    answer = await asked(channel, ApiKey.DELETE_RECORDS, fields)
    return int(answer.topics[0].partitions[0].error_code)


async def _producers(channel: Channel, topic: str) -> int:
    fields = {"topics": [{"name": topic, "partition_indexes": [0]}]}
    answer = await asked(channel, ApiKey.DESCRIBE_PRODUCERS, fields)
    return int(answer.topics[0].partitions[0].error_code)


def configs_of(kind: int, name: str) -> dict[str, Any]:
    return {
        "resources": [{"resource_type": kind, "resource_name": name, "configuration_keys": None}],
        "include_synonyms": False,
        "include_documentation": False,
    }


def _configs(kind: int, name: str | None = None) -> Ask:
    async def ask(channel: Channel, topic: str) -> int:
        fields = configs_of(kind, topic if name is None else name)
        result = (await asked(channel, ApiKey.DESCRIBE_CONFIGS, fields)).results[0]
        assert bool(result.configs) == (int(result.error_code) == 0)
        return int(result.error_code)

    return ask


async def _config_resources(channel: Channel, topic: str) -> int:
    answer = await asked(channel, ApiKey.LIST_CONFIG_RESOURCES, {"resource_types": []})
    assert bool(answer.config_resources) == (int(answer.error_code) == 0)
    return int(answer.error_code)


async def _client_quotas(channel: Channel, topic: str) -> int:
    fields = {"components": [], "strict": False}
    return int((await asked(channel, ApiKey.DESCRIBE_CLIENT_QUOTAS, fields)).error_code)


async def _log_dirs(channel: Channel, topic: str) -> int:
    answer = await asked(channel, ApiKey.DESCRIBE_LOG_DIRS, {"topics": None})
    assert bool(answer.results) == (int(answer.error_code) == 0)
    return int(answer.error_code)


async def _alter_logger(channel: Channel, topic: str) -> int:
    config = {"name": "ottla", "config_operation": 0, "value": "INFO"}
    resource = {"resource_type": 8, "resource_name": "1", "configs": [config]}
    fields = {"resources": [resource], "validate_only": True}
    answer = await asked(channel, ApiKey.INCREMENTAL_ALTER_CONFIGS, fields)
    return int(answer.responses[0].error_code)


REQUESTS: dict[tuple[ApiKey, str], Ask] = {
    (ApiKey.PRODUCE, "no batch is transactional"): _produce,
    (ApiKey.PRODUCE, "a batch is transactional"): _produce_in_transaction,
    (ApiKey.PRODUCE, "a topic that brokers write"): _produce,
    (ApiKey.FETCH, "replica id < 0"): _fetch,
    (ApiKey.FETCH, "replica id >= 0"): _fetch_as_replica,
    (ApiKey.LIST_OFFSETS, "always"): _list_offsets,
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, "always"): _epoch_end,
    (ApiKey.METADATA, "named topics, or ids"): _metadata,
    (ApiKey.METADATA, "a topic is missing and may be created"): _create_by_metadata,
    (ApiKey.METADATA, "all topics"): _all_metadata,
    (ApiKey.DESCRIBE_TOPIC_PARTITIONS, "named topics"): _topic_partitions,
    (ApiKey.DESCRIBE_TOPIC_PARTITIONS, "all topics"): _all_topic_partitions,
    (ApiKey.DELETE_RECORDS, "always"): _delete_records,
    (ApiKey.DESCRIBE_PRODUCERS, "always"): _producers,
    (ApiKey.DESCRIBE_CONFIGS, "a topic"): _configs(2),
    (ApiKey.DESCRIBE_CONFIGS, "a group"): _configs(32, NAMES[ResourceType.GROUP]),
    (ApiKey.DESCRIBE_CONFIGS, "a broker, its loggers, or client metrics"): _configs(4, "1"),
    (ApiKey.LIST_CONFIG_RESOURCES, "always"): _config_resources,
    (ApiKey.DESCRIBE_CLIENT_QUOTAS, "always"): _client_quotas,
    (ApiKey.DESCRIBE_LOG_DIRS, "always"): _log_dirs,
    (
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        "loggers of this broker; the rest is the controller's",
    ): _alter_logger,
}

_fresh = (f"new-{number}" for number in itertools.count())


def topic_for(key: ApiKey, form: RequestForm) -> str:
    if form.when == "a topic that brokers write":
        return GROUP_METADATA_TOPIC
    return next(_fresh) if form.when == "a topic is missing and may be created" else TOPIC


FORMS = [
    pytest.param(key, form, id=f"{APIS[key].name}: {form.when}")
    for key in MINE
    for form in ON_BROKER[key]
]


def test_every_form_has_a_request() -> None:
    assert set(REQUESTS) == {(key, form.when) for key in MINE for form in ON_BROKER[key]}


def _name(right: Right, topic: str) -> str | None:
    return topic if right.resource_type is ResourceType.TOPIC else None


@pytest.mark.parametrize(("key", "form"), FORMS)
def test_a_request_needs_exactly_what_its_row_says(
    running: Running, key: ApiKey, form: RequestForm
) -> None:
    async def code(*rights: Right) -> int:
        topic = topic_for(key, form)
        node.allow(*(acl(right, _name(right, topic)) for right in rights))
        client_id = ADMIN_CLIENT_ID if topic == GROUP_METADATA_TOPIC else "client"
        channel = await node.client(ANN, client_id)
        try:
            return await REQUESTS[key, form.when](channel, topic)
        finally:
            channel.close()

    def refused(need: Need) -> int:
        return NOT_SHOWN if form.left_out else int(need.denied)

    async def run() -> None:
        assert await code() == refused(form.needs[0])
        for place, lacking in enumerate(form.needs):
            others = [need.any_of[0] for need in form.needs if need is not lacking]
            if not _implied(others, lacking):
                assert await code(*others) == refused(lacking), f"without need {place}"
            for enough in lacking.any_of:
                seen = await code(*others, enough)
                assert seen not in REFUSALS | {NOT_SHOWN}, f"{seen} with {enough}"

    node = running.node
    running.runner.run(run())


def _implied(held: list[Right], need: Need) -> bool:
    """WRITE of a topic lets one DESCRIBE it, and CLUSTER_ACTION may be enough for both."""
    if set(held) & set(need.any_of):
        return True
    return need is DESCRIBE_TOPIC and any(
        right.resource_type is ResourceType.TOPIC and right.operation is not AclOperation.CREATE
        for right in held
    )


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
