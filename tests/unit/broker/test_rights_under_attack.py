"""What a client without rights tries: to be a replica, to write in somebody's transaction or into the brokers' own topics, to
take over a fetch session, to read on after its right was taken away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from guarded_node import (
    ABSENT,
    ANN,
    BOB,
    TOPIC,
    GuardedNode,
    acl,
    asked,
    batch,
    fetch_request,
    fetched,
    partition,
    produced,
)

from ottla.broker.apis.describe import CACHED_BYTES_MAX
from ottla.broker.apis.fetch import REFUSED_PARTITIONS_MAX
from ottla.broker.apis.kept_records import REFUSAL
from ottla.broker.apis.load import REFUSAL as LOAD_REFUSAL
from ottla.replica.partition import Partition
from ottla.replica.sessions import FINAL_EPOCH, INITIAL_EPOCH
from ottla.security.needs import Right
from ottla.security.operations import (
    WILDCARD,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from ottla.wire import produce
from ottla.wire.apis import ApiKey, PrivateApi
from ottla.wire.channel import Channel
from ottla.wire.errors import ErrorCode
from ottla.wire.internal_topics import ADMIN_CLIENT_ID, GROUP_METADATA_TOPIC, INTERNAL_TOPICS
from support.private_requests import PRIVATE_QUESTIONS, asked_privately

READ = Right(ResourceType.TOPIC, AclOperation.READ)
WRITE = Right(ResourceType.TOPIC, AclOperation.WRITE)
OF_TXN = Right(ResourceType.TRANSACTIONAL_ID, AclOperation.WRITE)
CLUSTER_ACTION = Right(ResourceType.CLUSTER, AclOperation.CLUSTER_ACTION)
ALTER = Right(ResourceType.CLUSTER, AclOperation.ALTER)
DESCRIBE = Right(ResourceType.CLUSTER, AclOperation.DESCRIBE)
DESCRIBE_TOPIC = Right(ResourceType.TOPIC, AclOperation.DESCRIBE)
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NOT_THEIR_TRANSACTION = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
LONG_MS = 20_000


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


# -- Produce ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("transactional_id", [None, "somebody-elses"])
def test_a_transactional_batch_needs_the_right_to_its_transaction(
    running: Running, transactional_id: str | None
) -> None:
    """CVE-2018-17196: without the id, or with another's, records could be put into any open transaction."""

    async def run() -> None:
        node = running.node
        node.allow(acl(WRITE, WILDCARD), acl(OF_TXN))
        channel = await node.client()
        before = node.log_end()
        codes = await produced(
            channel,
            TOPIC,
            ABSENT,
            records=batch(transactional=True),
            transactional_id=transactional_id,
        )
        assert codes == [NOT_THEIR_TRANSACTION] * 2
        assert node.log_end() == before

    running.runner.run(run())


def test_without_acknowledgement_a_refusal_closes_the_connection(running: Running) -> None:
    async def run() -> None:
        node = running.node
        node.allow()
        channel = await node.client()
        before = node.log_end()
        data = produce.PartitionData(TOPIC, None, 0, batch())
        body = produce.write_request(9, produce.ProduceRequest(None, 0, 1_000, [data]))
        channel.call(ApiKey.PRODUCE, 9, body, None)
        with pytest.raises(ConnectionError):
            await asked(channel, ApiKey.DESCRIBE_LOG_DIRS, {"topics": None})
        assert node.log_end() == before

    running.runner.run(run())


def test_an_id_that_no_topic_has_is_unknown_before_anything_is_refused(running: Running) -> None:
    async def run() -> None:
        node = running.node
        node.allow()
        channel = await node.client()
        unknown = await produced(channel, TOPIC, version=13, topic_id=UUID(int=99))
        hidden = await produced(channel, TOPIC, version=13, topic_id=node.topic_id)
        assert unknown == [ErrorCode.UNKNOWN_TOPIC_ID] and hidden == [REFUSED]
        wanted = [
            partition(None, topic_id=UUID(int=99)),
            partition(None, topic_id=node.topic_id),
        ]
        answer = await fetched(channel, fetch_request(wanted), version=13)
        assert [each.error for each in answer.partitions] == [100, REFUSED]

    running.runner.run(run())


@pytest.mark.parametrize("topic", sorted(INTERNAL_TOPICS))
def test_the_name_of_the_admin_client_is_not_enough_for_the_brokers_topics(
    running: Running, topic: str
) -> None:
    async def run() -> None:
        node = running.node
        node.allow(acl(WRITE, WILDCARD))
        channel = await node.client(client_id=ADMIN_CLIENT_ID)
        assert await produced(channel, topic) == [REFUSED]

    running.runner.run(run())


def test_an_operator_may_write_into_the_brokers_topics(running: Running) -> None:
    async def run() -> None:
        node = running.node
        await asked(
            node.operator, ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": ["g"]}
        )
        by_name = await node.client(client_id=ADMIN_CLIENT_ID)
        node.allow(acl(ALTER))
        assert await produced(by_name, GROUP_METADATA_TOPIC) == [REFUSED]
        node.allow(acl(WRITE, GROUP_METADATA_TOPIC), acl(ALTER))
        other = await node.client(client_id="other")
        assert REFUSED not in await produced(by_name, GROUP_METADATA_TOPIC)
        assert REFUSED not in await produced(other, GROUP_METADATA_TOPIC)

    running.runner.run(run())


# -- Fetch as a replica ----------------------------------------------------------------------------


def test_a_client_that_calls_itself_a_replica_is_refused_and_not_believed(running: Running) -> None:
    """CVE-2018-1288. Neither quotas nor the sessions of others change, and no partition moves."""

    async def run() -> None:
        node = running.node
        node.allow(acl(READ))
        channel = await node.client()
        connection = node.connection_of(channel)
        leadership = node.broker.replicas.get(TOPIC, 0).leadership
        assert leadership is not None
        followers = dict(leadership.followers)
        for replica in (1, 2):
            answer = await fetched(
                channel,
                fetch_request([partition()], replica=replica, session_epoch=INITIAL_EPOCH),
            )
            assert [each.error for each in answer.partitions] == [REFUSED]
            assert not any(each.records for each in answer.partitions)
            assert not connection.is_follower
        own = node.broker.fetches._cache.sessions()
        assert not any(session.is_follower for session in own)
        assert dict(leadership.followers) == followers

    running.runner.run(run())


def test_a_session_of_a_consumer_does_not_go_on_as_a_replica(running: Running) -> None:
    async def run() -> None:
        node = running.node
        node.allow(acl(READ))
        channel = await node.client()
        begun = await fetched(channel, fetch_request([partition()], session_epoch=INITIAL_EPOCH))
        assert begun.partitions[0].error == 0 and begun.session_id
        answer = await fetched(
            channel,
            fetch_request([partition()], replica=1, session_id=begun.session_id, session_epoch=1),
        )
        assert [each.error for each in answer.partitions] == [REFUSED]
        assert not node.connection_of(channel).is_follower

    running.runner.run(run())


def test_who_may_act_for_the_cluster_is_a_follower(running: Running) -> None:
    async def run() -> None:
        node = running.node
        node.allow(acl(CLUSTER_ACTION))
        channel = await node.client()
        answer = await fetched(channel, fetch_request([partition()], replica=1))
        assert answer.partitions[0].error != REFUSED
        assert node.connection_of(channel).is_follower

    running.runner.run(run())


# -- sessions --------------------------------------------------------------------------------------


def test_a_session_belongs_to_its_principal(running: Running) -> None:
    async def run() -> None:
        node = running.node
        node.allow(acl(READ), acl(READ, principal=BOB))
        owner, thief = await node.client(), await node.client(BOB)
        begun = await fetched(owner, fetch_request([partition()], session_epoch=INITIAL_EPOCH))
        session = begun.session_id
        stolen = await fetched(thief, fetch_request([], session_id=session, session_epoch=1))
        assert stolen.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND and not stolen.partitions
        for epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            await fetched(
                thief, fetch_request([partition()], session_id=session, session_epoch=epoch)
            )
        goes_on = await fetched(
            owner, fetch_request([partition()], session_id=session, session_epoch=1)
        )
        assert (goes_on.error, goes_on.session_id) == (0, session)
        again = await node.client()
        resumed = await fetched(
            again, fetch_request([partition()], session_id=session, session_epoch=2)
        )
        assert (resumed.error, resumed.session_id) == (0, session)

    running.runner.run(run())


# -- a right that is taken away --------------------------------------------------------------------


async def parked(node: GuardedNode, channel: Channel, **more: Any) -> asyncio.Task[Any]:
    """A fetch that waits at the end of the log."""
    request = fetch_request([partition(offset=node.log_end())], wait_ms=LONG_MS, **more)
    waiting = asyncio.ensure_future(fetched(channel, request))
    connection = node.connection_of(channel)
    async with asyncio.timeout(10):
        while connection.parked_fetch is None:  # noqa: ASYNC110  # the node's doing
            await asyncio.sleep(0.001)
    return waiting


@pytest.mark.parametrize("epoch", [INITIAL_EPOCH, FINAL_EPOCH])
def test_a_parked_fetch_is_refused_at_once_when_its_right_is_taken_away(
    running: Running, epoch: int
) -> None:
    """With a session and without one."""

    async def run() -> None:
        node = running.node
        node.allow(acl(READ))
        channel = await node.client()
        waiting = await parked(node, channel, session_epoch=epoch)
        node.allow()
        async with asyncio.timeout(1):
            answer = await waiting
        assert [(each.error, bytes(each.records or b"")) for each in answer.partitions] == [
            (REFUSED, b"")
        ]

    running.runner.run(run())


def test_records_that_come_after_the_right_is_gone_do_not_go_out(running: Running) -> None:
    """Even if nobody has told the parked fetch yet."""

    async def run() -> None:
        node = running.node
        node.allow(acl(READ))
        channel = await node.client()
        waiting = await parked(node, channel)
        node.authorizer.replace_all(())
        assert await produced(node.operator, TOPIC) == [0]
        answer = await waiting
        assert [(each.error, bytes(each.records or b"")) for each in answer.partitions] == [
            (REFUSED, b"")
        ]

    running.runner.run(run())


def test_a_parked_fetch_waits_on_when_other_rights_change(running: Running) -> None:
    async def run() -> None:
        node = running.node
        node.allow(acl(READ), acl(WRITE))
        channel = await node.client()
        waiting = await parked(node, channel)
        node.allow(acl(READ))
        await asyncio.sleep(0)
        assert node.connection_of(channel).parked_fetch is not None
        assert await produced(node.operator, TOPIC) == [0]
        answer = await waiting
        assert answer.partitions[0].error == 0 and answer.partitions[0].records

    running.runner.run(run())


def test_answers_about_impossible_names_are_kept_up_to_a_number_of_bytes(running: Running) -> None:
    async def check() -> None:
        node = running.node
        node.allow()
        channel = await node.client()
        handler = node.node.servers["PLAINTEXT"].handlers[ApiKey.METADATA].__self__
        for number in range(50):
            names = [{"name": f"{number}-{i}-" + "x" * 32_000} for i in range(60)]
            answer = await asked(channel, ApiKey.METADATA, {"topics": names}, 12)
            assert {int(topic.error_code) for topic in answer.topics} == {REFUSED}
        kept = sum(len(each) for each in handler._answers.values())
        assert 0 < kept < CACHED_BYTES_MAX + 2 * 1024 * 1024

    running.runner.run(check())


def test_a_session_keeps_no_names_that_can_be_no_topics(running: Running) -> None:
    async def check() -> None:
        node = running.node
        node.allow(acl(READ))
        channel = await node.client()
        begun = await fetched(channel, fetch_request([partition()], session_epoch=INITIAL_EPOCH))
        assert begun.session_id
        answer = await fetched(
            channel,
            fetch_request([partition("x" * 250)], session_id=begun.session_id, session_epoch=1),
        )
        assert [each.error for each in answer.partitions] == [0, REFUSED]
        assert answer.session_id == 0
        assert begun.session_id not in node.broker.fetches._live

    running.runner.run(check())


def test_a_session_keeps_a_bounded_number_of_partitions_that_are_refused(running: Running) -> None:
    async def check() -> None:
        node = running.node
        node.allow(acl(READ))
        channel = await node.client()
        some = [partition(f"topic-{number}") for number in range(REFUSED_PARTITIONS_MAX)]
        begun = await fetched(
            channel, fetch_request([partition(), *some], session_epoch=INITIAL_EPOCH)
        )
        assert begun.session_id, "so many are kept, and are answered once their topics may be read"
        answer = await fetched(
            channel,
            fetch_request([partition("more")], session_id=begun.session_id, session_epoch=1),
        )
        assert answer.session_id == 0
        assert {each.topic for each in answer.partitions} >= {"more", "topic-0"}
        assert begun.session_id not in node.broker.fetches._live

    running.runner.run(check())


def test_a_session_loses_a_resting_partition_and_gets_it_back(running: Running) -> None:
    async def run() -> None:
        node = running.node
        node.allow(acl(READ))
        channel = await node.client()
        begun = await fetched(
            channel,
            fetch_request([partition(offset=node.log_end())], session_epoch=INITIAL_EPOCH),
        )

        async def next_of(epoch: int, wait_ms: int = 1) -> list[int]:
            request = fetch_request(
                [], session_id=begun.session_id, session_epoch=epoch, wait_ms=wait_ms
            )
            return [each.error for each in (await fetched(channel, request)).partitions]

        assert await next_of(1) == []
        node.allow()
        assert await next_of(2, LONG_MS) == [REFUSED]  # at once
        assert await next_of(3) == [REFUSED]  # and whenever it asks
        node.allow(acl(READ))
        assert await produced(node.operator, TOPIC) == [0]
        assert await next_of(4, LONG_MS) == [0]

    running.runner.run(run())


def test_an_acl_that_is_deleted_wakes_the_parked_fetch(running: Running) -> None:
    """The whole way: DeleteAcls, the metadata log, the authorizer, the fetch."""
    entry = {
        "resource_type": ResourceType.TOPIC,
        "resource_name": TOPIC,
        "principal": str(ANN),
        "host": WILDCARD,
        "operation": AclOperation.READ,
        "permission_type": Permission.ALLOW,
    }

    async def run() -> None:
        node = running.node
        node.allow()
        pattern = {"resource_pattern_type": PatternType.LITERAL}
        made = await asked(node.operator, ApiKey.CREATE_ACLS, {"creations": [entry | pattern]})
        assert int(made.results[0].error_code) == 0
        channel = await node.client()
        waiting = await parked(node, channel)
        filters = {
            f"{name}_filter" if name in ("resource_name", "principal", "host") else name: value
            for name, value in entry.items()
        }
        filters |= {
            "resource_type_filter": filters.pop("resource_type"),
            "pattern_type_filter": PatternType.LITERAL,
        }
        gone = await asked(node.operator, ApiKey.DELETE_ACLS, {"filters": [filters]})
        assert len(gone.filter_results[0].matching_acls) == 1
        async with asyncio.timeout(1):
            answer = await waiting
        assert [each.error for each in answer.partitions] == [REFUSED]

    running.runner.run(run())


# -- requests that Kafka does not have ------------------------------------------------------------


def test_each_private_request_is_refused_without_a_right(running: Running) -> None:
    async def run() -> None:
        running.node.allow()
        channel = await running.node.client()
        for key, question in PRIVATE_QUESTIONS.items():
            answer = await asked_privately(channel, key, question)
            assert "authorization failed" in (answer["error"] or ""), key.name

    assert PRIVATE_QUESTIONS.keys() == set(PrivateApi)
    running.runner.run(run())


def test_what_a_broker_keeps_aside_is_for_operators_that_may_read_the_topic(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = running.node.broker.logs
    assert logs.kept is not None
    manifest = SimpleNamespace(topic=TOPIC, as_json=lambda: {"topic": TOPIC})
    monkeypatch.setitem(logs.kept.kept, "1", SimpleNamespace(manifest=manifest))
    monkeypatch.setattr(logs.kept, "files_of", lambda kept: [])
    monkeypatch.setattr(logs.kept, "recovered", lambda id, topic: None)

    async def run() -> None:
        async def error(ask: str, *rights: Right) -> str | None:
            running.node.allow(*(acl(right) for right in rights))
            question = {"ask": ask, "id": "1", "topic": TOPIC}
            answer = await asked_privately(channel, PrivateApi.KEPT_RECORDS, question)
            found: str | None = answer["error"]
            return found

        channel = await running.node.client()
        assert await error("list", READ) == REFUSAL
        assert await error("list", DESCRIBE) is None
        assert await error("read", READ, DESCRIBE) == REFUSAL
        assert await error("read", ALTER) == REFUSAL
        assert await error("read", ALTER, READ) is None
        assert await error("recovered", READ, DESCRIBE) == REFUSAL
        assert await error("recovered", ALTER) is None

    running.runner.run(run())


def test_what_brokers_carry_is_for_operators(running: Running) -> None:
    async def run() -> None:
        async def error(ask: str, *rights: Right) -> str | None:
            running.node.allow(*(acl(right) for right in rights))
            answer = await asked_privately(channel, PrivateApi.LOAD, {"ask": ask})
            found: str | None = answer["error"]
            return found

        channel = await running.node.client()
        for ask in ("own", "cluster"):
            assert await error(ask, READ) == LOAD_REFUSAL
            assert await error(ask, DESCRIBE) is None

    running.runner.run(run())


def test_a_logger_keeps_its_level_if_the_change_is_refused(running: Running) -> None:
    async def run() -> None:
        running.node.allow(acl(DESCRIBE))
        channel = await running.node.client()
        before = logging.getLogger("ottla.broker").level
        config = {"name": "ottla.broker", "config_operation": 0, "value": "TRACE"}
        resource = {"resource_type": 8, "resource_name": "1", "configs": [config]}
        answer = await asked(
            channel,
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            {"resources": [resource], "validate_only": False},
        )
        code = answer.responses[0].error_code
        assert code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert logging.getLogger("ottla.broker").level == before

    running.runner.run(run())


# -- ListOffsets -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("right", "replica_id", "end"),
    [
        (DESCRIBE_TOPIC, -1, "committed"),
        (DESCRIBE_TOPIC, 1, "committed"),
        (DESCRIBE_TOPIC, -2, "log"),
        (CLUSTER_ACTION, 1, "log"),
    ],
)
def test_who_only_says_to_be_a_replica_is_told_what_consumers_are(
    running: Running, right: Right, replica_id: int, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka tells it where the log ends, with what is not committed. The id for debugging says to be nobody."""

    async def run() -> None:
        node = running.node
        node.allow(acl(right))
        ends = {"log": node.log_end(), "committed": node.log_end() - 1}
        monkeypatch.setattr(Partition, "latest_offset", lambda *_: ends["committed"])
        wanted = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
        answer = await asked(
            await node.client(),
            ApiKey.LIST_OFFSETS,
            {
                "replica_id": replica_id,
                "isolation_level": 0,
                "topics": [{"name": TOPIC, "partitions": [wanted]}],
            },
        )
        (found,) = answer.topics[0].partitions
        assert (found.error_code, found.offset) == (ErrorCode.NONE, ends[end])

    running.runner.run(run())
