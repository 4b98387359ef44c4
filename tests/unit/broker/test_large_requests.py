"""Clients without rights send the longest lists that there may be, on many connections: nodes go on with everything else."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial as later_with
from typing import Any

import pytest
from guarded_node import (
    ANN,
    BOB,
    TOPIC,
    GuardedNode,
    acl,
    asked,
    fetch_request,
    fetched,
    partition,
    produced,
)

from ottla.broker.apis.produce import DENIED_PARTITIONS_MAX
from ottla.broker.cluster.controller_channel import UNDER_WAY_MAX, ControllerChannel
from ottla.broker.cluster.controller_service import ControllerService
from ottla.broker.server import connections, large_requests
from ottla.broker.server.large_requests import (
    BURST_S,
    LARGE_BYTES,
    PAUSE,
    PRINCIPALS_MAX,
    SHARE,
    WAITING_BYTES_MAX,
    LargeRequests,
    Used,
)
from ottla.security.needs import Right
from ottla.security.operations import AclOperation, ResourceType
from ottla.security.principal_data import principal_to_bytes
from ottla.security.principals import Principal
from ottla.wire import fetch, messages, produce
from ottla.wire.apis import CLIENT_ELEMENTS_MAX, FORWARDED_ELEMENTS_MAX, ApiKey
from ottla.wire.errors import ErrorCode, InvalidFrame
from ottla.wire.primitives import uvarint
from ottla.wire.produce import PARTITIONS_MAX
from ottla.wire.types import ZERO_UUID

READ = Right(ResourceType.TOPIC, AclOperation.READ)
ALTER_CONFIGS = Right(ResourceType.TOPIC, AclOperation.ALTER_CONFIGS)
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
INCREMENTAL = ApiKey.INCREMENTAL_ALTER_CONFIGS
MANY = 5_000


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


def config_changes(*names: str) -> dict[str, Any]:
    resources = [{"resource_type": 2, "resource_name": name, "configs": []} for name in names]
    return {"resources": resources, "validate_only": False}


# -- Turns -----------------------------------------------------------------------------------------


def test_one_large_request_at_a_time_and_a_pause_after_each() -> None:
    at = 0.0
    scheduled: list[tuple[float, Callable[[], None]]] = []
    done: list[str] = []

    def work(name: str) -> None:
        nonlocal at
        done.append(name)
        at += 0.5

    turns = LargeRequests(lambda: at, lambda seconds, then: scheduled.append((seconds, then)))
    for owner, name in (("eve", "eve 1"), ("eve", "eve 2"), ("eve", "eve 3"), ("bob", "bob 1")):
        turns.add(owner, 10, later_with(work, name))
    assert not done and len(scheduled) == 1, "the first one waits for the next turn of the loop"
    pauses = []
    while scheduled:
        ((pause, then),) = scheduled
        scheduled.clear()
        pauses.append(pause)
        then()
    assert done == ["eve 1", "bob 1", "eve 2", "eve 3"], "nobody waits for all that eve has sent"
    assert pauses == [0.0, *[PAUSE * 0.5] * 4]


def test_work_that_fails_does_not_stop_the_others() -> None:
    scheduled: list[Callable[[], None]] = []
    turns = LargeRequests(lambda: 0.0, lambda _, then: scheduled.append(then))
    done: list[int] = []

    def fail() -> None:
        raise ValueError

    turns.add("eve", 10, fail)
    turns.add("eve", 10, lambda: done.append(1))
    with pytest.raises(ValueError):
        scheduled.pop()()
    scheduled.pop()()
    assert done == [1]


def test_what_waits_of_one_principal_is_bounded() -> None:
    turns = LargeRequests(lambda: 0.0, lambda _, then: None)
    turns.add("eve", WAITING_BYTES_MAX - 100, lambda: None)
    assert not turns.has_room("eve", 101)
    assert turns.has_room("eve", 100)
    assert turns.has_room("bob", WAITING_BYTES_MAX)


def test_a_connection_is_not_read_while_its_large_request_waits(running: Running) -> None:
    """Five at once on one connection, as of one that pipelines: others are answered in between."""

    async def run() -> None:
        node = running.node
        node.allow()
        eve, ann = await node.client(BOB), await node.client(ANN)
        names = [partition(f"t{number}") for number in range(MANY)]
        large = [asyncio.ensure_future(fetched(eve, fetch_request(names))) for _ in range(5)]
        answered_between = 0
        while not large[-1].done():
            await asked(ann, ApiKey.API_VERSIONS, {}, 0)
            answered_between += any(each.done() for each in large) and not large[-1].done()
        assert answered_between >= 4
        for answer in await asyncio.gather(*large):
            assert len(answer.partitions) == MANY

    running.runner.run(run())


def test_more_than_may_wait_closes_the_connection(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        node = running.node
        node.allow()
        channel = await node.client()
        monkeypatch.setattr(large_requests, "WAITING_BYTES_MAX", LARGE_BYTES)
        with pytest.raises(ConnectionError):
            await asked(channel, INCREMENTAL, config_changes(*map(str, range(MANY))))

    running.runner.run(run())


# -- Much time -------------------------------------------------------------------------------------


def test_what_a_principal_has_used_runs_out() -> None:
    used = Used()
    used.add(10.0, 10.0 + BURST_S)
    assert not used.is_much(10.0 + BURST_S)
    used.add(11.0, 11.0 + 2 * BURST_S)
    end = 11.0 + 2 * BURST_S
    assert used.is_much(end)
    assert used.is_much(end + 0.9 * BURST_S / SHARE)
    assert not used.is_much(end + 1.1 * BURST_S / SHARE)


def test_a_turn_is_counted_and_idle_principals_are_forgotten() -> None:
    at = 0.0
    scheduled: list[Callable[[], None]] = []
    turns = LargeRequests(lambda: at, lambda _, then: scheduled.append(then))

    def work() -> None:
        nonlocal at
        at += 100.0

    turns.add("eve", 10, work)
    scheduled.pop()()
    assert turns.used_by("eve").is_much(at)
    for number in range(3 * PRINCIPALS_MAX):
        turns.used_by(number)
    assert turns.used_by("eve").is_much(at) and len(turns._used) <= PRINCIPALS_MAX


NAMES = 1300
"""In a request that is not large."""


def metadata_request() -> dict[str, Any]:
    topics = [{"name": f"{number:x}", "topic_id": ZERO_UUID} for number in range(NAMES)]
    flags = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": True}
    return {"topics": topics, **flags}


@dataclass
class Turns:
    """Who took turns in a node."""

    owners: list[Any]


@pytest.fixture
def turns(running: Running, monkeypatch: pytest.MonkeyPatch) -> Turns:
    """Nobody has used anything before."""
    noted = Turns([])
    large = running.node.node.servers["PLAINTEXT"].large
    assert large is not None
    large._used.clear()
    add = LargeRequests.add

    def note(self: LargeRequests, owner: Any, size: int, work: Callable[[], None]) -> None:
        noted.owners.append(owner)
        add(self, owner, size, work)

    monkeypatch.setattr(LargeRequests, "add", note)
    return noted


def test_who_uses_much_time_takes_turns_with_all_but_records(
    running: Running, turns: Turns
) -> None:
    async def run() -> None:
        node = running.node
        node.allow(acl(READ, principal=BOB), acl(READ))
        large = node.node.servers["PLAINTEXT"].large
        assert large is not None
        bob, ann = await node.client(BOB), await node.client(ANN)
        body = metadata_request()
        assert len(messages.write_request(ApiKey.METADATA, 12, body)) < LARGE_BYTES
        before = large.used_by(BOB).seconds
        await asked(bob, ApiKey.METADATA, body, 12)
        assert large.used_by(BOB).seconds > before, "it is measured"
        assert not turns.owners
        for who in (bob, node.operator):
            now, used = large._now(), node.connection_of(who)._used
            assert used is not None
            used.add(now, now + 1000.0)
        await asked(bob, ApiKey.METADATA, body, 12)
        assert turns.owners == [BOB]
        await fetched(bob, fetch_request([partition()]))
        await produced(bob, "t")
        await asked(ann, ApiKey.METADATA, body, 12)
        await asked(node.operator, ApiKey.METADATA, body, 12)
        assert turns.owners == [BOB], "neither records, nor other principals, nor nodes"
        await fetched(bob, fetch_request([partition(f"t{number}") for number in range(NAMES // 2)]))
        assert turns.owners == [BOB, BOB], "many partitions are no records"

    running.runner.run(run())


def test_others_are_answered_between_many_short_lists(
    running: Running, turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_requests, "BURST_S", 0.0)
    monkeypatch.setattr(connections, "BURST_S", 0.0)

    async def run() -> None:
        node = running.node
        node.allow()
        channels = [await node.client(BOB) for _ in range(4)]
        ann = await node.client(ANN)
        await asked(channels[0], ApiKey.METADATA, metadata_request(), 12)
        many = [
            asyncio.ensure_future(asked(each, ApiKey.METADATA, metadata_request(), 12))
            for each in channels
            for _ in range(5)
        ]
        answered_between = 0
        while not all(each.done() for each in many):
            done = sum(each.done() for each in many)
            await asked(ann, ApiKey.API_VERSIONS, {}, 0)
            answered_between += done < sum(each.done() for each in many)
        assert turns.owners.count(BOB) >= len(many) - len(channels)
        assert answered_between >= len(many) // 2
        await asyncio.gather(*many)

    running.runner.run(run())


def test_who_uses_much_time_of_the_controller_takes_turns_there(
    running: Running, turns: Turns
) -> None:
    async def run() -> None:
        node = running.node
        node.allow(acl(ALTER_CONFIGS), acl(ALTER_CONFIGS, principal=BOB))
        large = node.node.servers["PLAINTEXT"].large
        assert large is not None
        ann, bob = await node.client(ANN), await node.client(BOB)
        used = large.used_by(principal_to_bytes(BOB))
        before = used.seconds
        await asked(bob, INCREMENTAL, config_changes(TOPIC))
        assert used.seconds > before and not turns.owners
        now = large._now()
        used.add(now, now + 1000.0)
        await asked(ann, INCREMENTAL, config_changes(TOPIC))
        answer = await asked(bob, INCREMENTAL, config_changes(TOPIC))
        assert answer.responses[0].error_code == ErrorCode.NONE
        assert turns.owners == [principal_to_bytes(BOB)]

    running.runner.run(run())


# -- Fetch -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [4, 11, 12])
@pytest.mark.parametrize("is_one_topic", [True, False])
def test_only_nodes_name_very_many_partitions(
    running: Running, version: int, is_one_topic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "CLIENT_ELEMENTS_MAX", MANY)

    async def run() -> None:
        node = running.node
        node.allow()
        whole = [
            partition("t" if is_one_topic else f"{number:x}")._replace(
                partition=number if is_one_topic else 0
            )
            for number in range(MANY + 1)
        ]
        channel = await node.client()
        answer = await fetched(channel, fetch_request(whole[:-1]), version)
        assert {int(each.error) for each in answer.partitions} == {REFUSED}
        with pytest.raises(ConnectionError):
            await fetched(channel, fetch_request(whole), version)
        answer = await fetched(node.operator, fetch_request(whole), version)
        assert len(answer.partitions) == MANY + 1

    running.runner.run(run())


def test_forgotten_partitions_and_empty_topics_count_as_well() -> None:
    forgotten = [("t", number) for number in range(CLIENT_ELEMENTS_MAX + 1)]
    body = fetch.write_request(12, fetch_request([], forgotten=forgotten))
    assert len(fetch.read_request(12, memoryview(body), 0).forgotten) == len(forgotten)
    with pytest.raises(InvalidFrame, match="more than a client may name"):
        fetch.read_long_request(12, memoryview(body), 0)
    empty = fetch.write_request(4, fetch_request([]))[:-4]
    topics = (CLIENT_ELEMENTS_MAX + 1).to_bytes(4) + b"\0\1t\0\0\0\0" * (CLIENT_ELEMENTS_MAX + 1)
    fetch.read_request(4, memoryview(empty + topics), 0)
    with pytest.raises(InvalidFrame, match="more than a client may name"):
        fetch.read_long_request(4, memoryview(empty + topics), 0)


def test_of_a_long_fetch_the_allowed_part_is_served_and_the_rest_is_refused(
    running: Running,
) -> None:
    async def run() -> None:
        node = running.node
        node.allow(acl(READ))
        channel = await node.client()
        names = [partition(f"t{number}") for number in range(MANY)]
        answer = await fetched(channel, fetch_request([*names, partition(), *names]))
        assert answer.session_id == 0, "nobody remembers what may not be read"
        errors = {each.topic: int(each.error) for each in answer.partitions}
        assert errors.pop(TOPIC) == ErrorCode.NONE
        assert set(errors.values()) == {REFUSED} and len(errors) == MANY
        assert [each.records for each in answer.partitions if each.topic == TOPIC]
        # Without records to come, the refusals do not wait.
        late = partition(offset=node.log_end())
        answer = await asyncio.wait_for(
            fetched(channel, fetch_request([*names, late], wait_ms=20_000)), 10
        )
        assert len(answer.partitions) == MANY + 1

    running.runner.run(run())


def test_one_denial_is_told_for_all_partitions_of_a_topic(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        node = running.node
        node.allow()
        channel = await node.client()
        told: list[Any] = []
        assert node.authorizer.audit is not None
        monkeypatch.setattr(node.authorizer.audit, "decided", lambda *all: told.append(all))
        of_one = [partition("abc")._replace(partition=number) for number in range(MANY)]
        answer = await fetched(channel, fetch_request(of_one))
        assert len(answer.partitions) == MANY and len(told) == 1

    running.runner.run(run())


# -- Produce ---------------------------------------------------------------------------------------


def test_very_many_denied_partitions_in_one_produce_close_the_connection(running: Running) -> None:
    async def run() -> None:
        node = running.node
        node.allow()
        channel = await node.client()
        names = [f"t{number}" for number in range(DENIED_PARTITIONS_MAX + 1)]
        assert set(await produced(channel, *names[:-1])) == {REFUSED}
        with pytest.raises(ConnectionError):
            await produced(channel, *names)
        assert len(await produced(node.operator, *names)) == len(names)

    running.runner.run(run())


@pytest.mark.parametrize("version", [3, 9])
def test_topics_without_partitions_count_in_a_produce(version: int) -> None:
    """A frame of records may be long: it would have room for thirty million of them."""
    head = produce.write_request(version, produce.ProduceRequest(None, 1, 1000, []))
    head = head[:-4] if version < 9 else head[:-2]
    for count, is_read in ((PARTITIONS_MAX, True), (PARTITIONS_MAX + 1, False)):
        if version < 9:
            body = head + count.to_bytes(4) + b"\0\1t\0\0\0\0" * count
        else:
            body = head + uvarint(count + 1) + b"\2t\1\0" * count + b"\0"
        if is_read:
            assert produce.read_request(version, memoryview(body), 0).partitions == []
        else:
            with pytest.raises(InvalidFrame, match="topics"):
                produce.read_request(version, memoryview(body), 0)


# -- What the controller decides -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "fields"),
    [
        (INCREMENTAL, config_changes(*(f"t{number}" for number in range(MANY)))),
        (ApiKey.ALTER_CONFIGS, config_changes(*(f"t{number}" for number in range(MANY)))),
        (
            ApiKey.CREATE_TOPICS,
            {
                "topics": [
                    {
                        "name": f"topic-{number}",
                        "num_partitions": 1,
                        "replication_factor": 1,
                        "assignments": (),
                        "configs": (),
                    }
                    for number in range(MANY)
                ],
                "timeout": 1000,
                "validate_only": False,
            },
        ),
        (
            ApiKey.CREATE_PARTITIONS,
            {
                "topics": [
                    {"name": f"topic-{number}", "count": 2, "assignments": None}
                    for number in range(MANY)
                ],
                "timeout": 1000,
                "validate_only": False,
            },
        ),
        (
            ApiKey.DELETE_TOPICS,
            {
                "topics": [
                    {"name": f"topic-{number}", "topic_id": ZERO_UUID} for number in range(MANY)
                ],
                "timeout": 1000,
            },
        ),
        (
            ApiKey.ELECT_LEADERS,
            {
                "election_type": 0,
                "topic_partitions": [
                    {"topic": f"topic-{number}", "partitions": [0]} for number in range(MANY)
                ],
                "timeout": 1000,
            },
        ),
    ],
)
def test_a_large_request_without_any_right_is_denied_by_the_broker_in_the_controllers_words(
    running: Running, key: ApiKey, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        node = running.node
        node.allow()
        channel = await node.client()
        passed_on: list[Any] = []
        pass_on = ControllerChannel._passed_on

        async def noted(self: ControllerChannel, *all: Any, **more: Any) -> Any:
            passed_on.append(all)
            return await pass_on(self, *all, **more)

        monkeypatch.setattr(ControllerChannel, "_passed_on", noted)
        by_broker = await asked(channel, key, fields)
        assert not passed_on
        with monkeypatch.context() as patched:
            patched.setattr(ControllerChannel, "_is_denied", lambda *_: False)
            by_controller = await asked(channel, key, fields)
        assert passed_on
        assert _unordered(by_broker) == _unordered(by_controller)

    running.runner.run(run())


def _unordered(answer: Any) -> list[str]:
    """Rows of deleted topics are shuffled."""
    rows = [getattr(answer, name, ()) for name in ("responses", "results", "topics")]
    return [
        str(getattr(answer, "error_code", None)),
        *sorted(str(row) for each in rows for row in each),
    ]


def test_a_large_request_with_one_right_is_decided_piece_by_piece(running: Running) -> None:
    async def run() -> None:
        node = running.node
        node.allow(acl(ALTER_CONFIGS))
        channel = await node.client()
        names = [TOPIC, *(f"t{number}" for number in range(MANY))]
        answer = await asked(channel, INCREMENTAL, config_changes(*names))
        errors = {each.resource_name: int(each.error_code) for each in answer.responses}
        assert errors.pop(TOPIC) == ErrorCode.NONE
        assert set(errors.values()) == {REFUSED} and len(errors) == MANY

    running.runner.run(run())


def test_of_one_principal_one_large_request_is_with_the_controller(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        node = running.node
        node.allow(acl(ALTER_CONFIGS), acl(ALTER_CONFIGS, principal=BOB))
        there: Counter[Principal] = Counter()
        most: Counter[Principal] = Counter()
        both = asyncio.Event()
        pass_on = ControllerChannel._passed_on

        async def noted(
            self: ControllerChannel, key: ApiKey, envelope: Any, wait: float, **more: Any
        ) -> Any:
            who = envelope["request_principal"]
            there[who] += 1
            most[who] = max(most[who], there[who])
            if len(there) == 2:
                both.set()
            await asyncio.wait_for(both.wait(), 10)
            try:
                return await pass_on(self, key, envelope, wait, **more)
            finally:
                there[who] -= 1

        monkeypatch.setattr(ControllerChannel, "_passed_on", noted)
        clients = [await node.client(who) for who in (ANN, ANN, ANN, BOB)]
        names = [TOPIC, *(f"t{number}" for number in range(MANY))]
        answers = [asked(each, INCREMENTAL, config_changes(*names)) for each in clients]
        await asyncio.gather(*answers)
        assert set(most.values()) == {1} and len(most) == 2, (
            "of each one, and nobody waits for others"
        )

    running.runner.run(run())


@pytest.mark.parametrize(
    ("key", "fields", "version"),
    [
        (INCREMENTAL, config_changes("t"), 1),
        (ApiKey.ELECT_LEADERS, {"election_type": 0, "topic_partitions": [], "timeout": 1000}, 2),
    ],
)
def test_a_denial_does_not_wait_for_what_was_decided_before(
    running: Running, key: ApiKey, fields: dict[str, Any], version: int
) -> None:
    """If that failed, the broker would ask the next controller again, for a denial."""

    async def run() -> None:
        node = running.node
        node.allow()
        channel = await node.client()
        controller = node.node.controller
        assert controller is not None
        before = controller._last_append
        controller._last_append = never = asyncio.get_running_loop().create_future()
        try:
            await asked(channel, key, fields, version)  # within ten seconds
        finally:
            if controller._last_append is never:  # and not that of a tick meanwhile
                controller._last_append = before
            never.set_result(0)

    running.runner.run(run())


def test_what_is_passed_on_names_fewer_things_than_other_requests() -> None:
    for count, is_read in ((FORWARDED_ELEMENTS_MAX, True), (FORWARDED_ELEMENTS_MAX + 1, False)):
        fields = config_changes(*(f"{number:x}" for number in range(count)))
        body = memoryview(messages.write_request(INCREMENTAL, 1, fields))
        if is_read:
            assert len(messages.read_request(INCREMENTAL, 1, body, 0).resources) == count
        else:
            with pytest.raises(InvalidFrame):
                messages.read_request(INCREMENTAL, 1, body, 0)


# -- Many that are not large -----------------------------------------------------------------------


def test_a_few_requests_of_one_principal_are_with_the_controller(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are answered in order: whoever comes behind them would wait for all that one has sent."""

    async def run() -> None:
        node = running.node
        node.allow(acl(ALTER_CONFIGS), acl(ALTER_CONFIGS, principal=BOB))
        there = most = 0
        goes_on = asyncio.Event()
        pass_on = ControllerChannel._passed_on

        async def noted(
            self: ControllerChannel, key: ApiKey, envelope: Any, wait: float, **more: Any
        ) -> Any:
            nonlocal there, most
            if envelope["request_principal"] != principal_to_bytes(ANN):
                return await pass_on(self, key, envelope, wait, **more)
            there += 1
            most = max(most, there)
            await goes_on.wait()
            try:
                return await pass_on(self, key, envelope, wait, **more)
            finally:
                there -= 1

        monkeypatch.setattr(ControllerChannel, "_passed_on", noted)
        clients = [await node.client() for _ in range(3)]
        bob = await node.client(BOB)
        answers = [
            asyncio.ensure_future(asked(each, INCREMENTAL, config_changes(TOPIC)))
            for each in clients
            for _ in range(UNDER_WAY_MAX)
        ]
        await asked(bob, INCREMENTAL, config_changes(TOPIC))
        for each in clients:
            assert node.connection_of(each)._holds <= 1
        assert most == UNDER_WAY_MAX
        goes_on.set()
        for answer in await asyncio.gather(*answers):
            assert answer.responses[0].error_code == ErrorCode.NONE
        assert most == UNDER_WAY_MAX
        assert not any(node.connection_of(each)._holds for each in clients)
        assert not node.broker.for_clients._lines

    running.runner.run(run())


def test_who_has_a_request_with_the_controller_is_denied_others_by_the_broker(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        node = running.node
        node.allow()
        channel = await node.client()
        passed_on = 0
        goes_on = asyncio.Event()
        pass_on = ControllerChannel._passed_on

        async def noted(self: ControllerChannel, *all: Any, **more: Any) -> Any:
            nonlocal passed_on
            passed_on += 1
            await goes_on.wait()
            return await pass_on(self, *all, **more)

        monkeypatch.setattr(ControllerChannel, "_passed_on", noted)
        answers = [
            asyncio.ensure_future(asked(channel, INCREMENTAL, config_changes(TOPIC)))
            for _ in range(5)
        ]
        await asked(await node.client(BOB), ApiKey.API_VERSIONS, {}, 0)
        goes_on.set()
        for answer in await asyncio.gather(*answers):
            assert answer.responses[0].error_code == REFUSED
        assert passed_on == 1, "it may have rights that this broker has not heard of yet"

    running.runner.run(run())


def test_neither_the_broker_nor_others_wait_behind_what_a_client_asks(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large request of one, then a small one of another, then one of the broker: answered the other way round."""

    async def run() -> None:
        node = running.node
        node.allow(acl(ALTER_CONFIGS), acl(ALTER_CONFIGS, principal=BOB))
        ann, bob = await node.client(ANN), await node.client(BOB)
        held: list[Callable[[], None]] = []
        is_there = asyncio.Event()
        decide = ControllerService._decide_for_client

        def hold(*all: Any) -> None:
            held.append(lambda: decide(*all))
            is_there.set()

        monkeypatch.setattr(ControllerService, "_decide_for_client", hold)
        answers = []
        many = [TOPIC, *(f"t{number}" for number in range(MANY))]
        for client, names in ((ann, many), (bob, [TOPIC])):
            is_there.clear()
            answers.append(
                asyncio.ensure_future(asked(client, INCREMENTAL, config_changes(*names)))
            )
            await is_there.wait()
        mine = await node.broker.to_controller.request(
            ApiKey.ALLOCATE_PRODUCER_IDS,
            {"broker_id": 1, "broker_epoch": node.broker.lifecycle.broker_epoch},
            timeout_s=10,
        )
        assert mine.error_code == ErrorCode.NONE and len(held) == 2
        assert not any(answer.done() for answer in answers)
        while held:
            held.pop()()
            last = await asyncio.wait_for(answers.pop(), 10)
            assert last.responses[0].error_code == ErrorCode.NONE

    running.runner.run(run())
