"""From a decision of the controller to its commit, and what the active controller does by itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from controller_cluster import BROKER_PORT, COMMIT_S, CONTROLLER_PORT, Cluster, ControllerNode

from ottla.balance.load import WINDOWS, BrokerLoad, LoadRates, read_loads
from ottla.broker.cluster import controller_service
from ottla.broker.cluster.controller_service import (
    FAILED_TICK_S,
    REFUSED_PAUSE_S,
    REGISTRATION_TIMEOUT_S,
    Asked,
    client_text,
)
from ottla.broker.server.large_requests import LARGE_BYTES
from ottla.broker.server.registration import handlers_of
from ottla.events import Event
from ottla.events.audit import Audited
from ottla.events.controller import (
    BrokerFenced,
    ControllerActivated,
    ControllerDeactivated,
    FenceCause,
    SettingChanged,
)
from ottla.metadata.records import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from ottla.raft.messages import RemoveVoter, VoterChangeAnswer
from ottla.raft.voters import ReplicaKey
from ottla.security.principal_data import principal_to_bytes
from ottla.security.principals import ANONYMOUS, user
from ottla.wire.apis import ApiKey
from ottla.wire.channel import Channel
from ottla.wire.errors import ErrorCode, KafkaError


def topic(name: str, partitions: int = 1, factor: int = 1) -> dict[str, Any]:
    wanted = {"name": name, "num_partitions": partitions, "replication_factor": factor}
    return {"topics": [wanted], "timeout": 1000}


def create(cluster: Cluster, controller: ControllerNode, name: str = "t", **options: Any) -> int:
    """The error code."""
    answer = cluster.ask(
        controller.host.address, CONTROLLER_PORT, ApiKey.CREATE_TOPICS, topic(name, **options)
    )
    return int(answer.topics[0].error_code)


def events_of(controller: ControllerNode, *kinds: type[Event]) -> list[Event]:
    heard: list[Event] = []
    controller.host.runtime.events.subscribe(heard.append, *kinds)
    return heard


def refuse_next_append(controller: ControllerNode, error: KafkaError) -> None:
    append = controller.view.append

    def refused(records: Any) -> Any:
        controller.view.append = append
        raise error

    controller.view.append = refused


def call(node: Any, work: Callable[[], Any]) -> Any:
    async def called() -> Any:
        return work()

    return node.host.complete(called())


# -- decisions and their commit


def test_a_decision_that_no_batch_holds_is_refused_and_never_was() -> None:
    with Cluster() as cluster:
        controller = cluster.controller()
        controller.lead()
        cluster.brokers(1)
        refuse_next_append(controller, KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE))
        assert create(cluster, controller) == ErrorCode.RECORD_LIST_TOO_LARGE
        assert create(cluster, controller) == ErrorCode.NONE, "the controller is still active"
        assert create(cluster, controller) == ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_controller_whose_quorum_takes_no_records_is_one_no_longer() -> None:
    with Cluster() as cluster:
        controller = cluster.controller()
        controller.lead()
        cluster.brokers(1)
        heard = events_of(controller, ControllerActivated, ControllerDeactivated)
        refuse_next_append(controller, KafkaError(ErrorCode.NOT_CONTROLLER))
        for _ in range(2):
            assert create(cluster, controller) == ErrorCode.NOT_CONTROLLER
        assert [type(event) for event in heard] == [ControllerDeactivated]
        controller.lead()
        assert create(cluster, controller) == ErrorCode.NONE
        assert [type(event) for event in heard] == [ControllerDeactivated, ControllerActivated]


def test_an_answer_waits_for_the_commit_of_what_it_tells() -> None:
    """Also one that changes nothing: what it was decided from may still be lost."""
    with Cluster() as cluster:
        controller = cluster.controller()
        controller.lead()
        cluster.brokers(1)
        answers: list[tuple[str, int, float]] = []

        async def ask(channel: Channel, name: str) -> None:
            answer = await channel.request(ApiKey.CREATE_TOPICS, topic("t"))
            answers.append((name, int(answer.topics[0].error_code), cluster.world.loop.time()))

        async def ask_twice() -> None:
            client = cluster.world.node("client").runtime
            for name in ("first", "second"):
                channel = await Channel.open(
                    client.network, controller.host.address, CONTROLLER_PORT, "client"
                )
                cluster.world.node("client").run(ask(channel, name))

        began = cluster.world.loop.time()
        cluster.world.node("client").complete(ask_twice())
        cluster.until(lambda: len(answers) == 2, 1)
        codes = {name: code for name, code, _ in answers}
        assert sorted(codes.values()) == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]
        assert all(at - began >= COMMIT_S for _, _, at in answers)


def test_a_former_controller_does_not_tell_of_what_it_did_not_commit() -> None:
    with Cluster() as cluster:
        first, second = cluster.controller(100), cluster.controller(101)
        first.lead()
        cluster.brokers(1)
        answers: list[Any] = []

        async def ask() -> None:
            client = cluster.world.node("client").runtime
            channel = await Channel.open(
                client.network, first.host.address, CONTROLLER_PORT, "client"
            )
            answers.append(await channel.request(ApiKey.CREATE_TOPICS, topic("t")))

        end = cluster.log.end
        cluster.world.node("client").run(ask())
        cluster.until(lambda: cluster.log.end > end, 1)
        second.lead()
        cluster.until(lambda: bool(answers), 1)
        assert answers[0].topics[0].error_code == ErrorCode.NOT_CONTROLLER
        assert "t" not in cluster.log.image.topics


def test_a_decision_is_told_once_it_is_committed_and_not_if_it_is_lost() -> None:
    with Cluster() as cluster:
        first, second = cluster.controller(100), cluster.controller(101)
        first.lead()
        cluster.brokers(1)
        create(cluster, first)
        heard = events_of(first, SettingChanged)

        async def ask(value: str) -> None:
            client = cluster.world.node("client").runtime
            channel = await Channel.open(
                client.network, first.host.address, CONTROLLER_PORT, "client"
            )
            change = {"name": "retention.ms", "config_operation": 0, "value": value}
            await channel.request(
                ApiKey.INCREMENTAL_ALTER_CONFIGS,
                {"resources": [{"resource_type": 2, "resource_name": "t", "configs": [change]}]},
            )

        for value, is_lost in (("1000", False), ("2000", True)):
            end = cluster.log.end
            cluster.world.node("client").run(ask(value))
            cluster.until(lambda before=end: cluster.log.end > before, 1)
            assert len(heard) == is_lost, "it is not committed yet"
            if is_lost:
                second.lead()
            cluster.world.run_for(0.1)
        (changed,) = heard
        assert isinstance(changed, SettingChanged) and changed.by.startswith("client of ")
        assert (changed.resource, changed.old, changed.new) == ("topic:t", None, "1000")


def test_a_decision_of_another_part_of_the_node_is_taken_by_the_active_controller_only() -> None:
    with Cluster() as cluster:
        first, second = cluster.controller(100), cluster.controller(101)
        first.lead()
        decided: list[ControllerNode] = []

        def decide(node: ControllerNode) -> None:
            def command(_: Any) -> dict[str, Any]:
                decided.append(node)
                return {}

            node.service.decide(command)

        for node in (second, first):
            call(node, partial(decide, node))
        assert decided == [first]


def test_a_periodic_decision_that_fails_is_tried_again_and_sessions_are_watched_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with Cluster() as cluster:
        controller = cluster.controller()
        controller.lead()
        (one,) = cluster.brokers(1)
        core = controller.service._controller
        tick = type(core).tick
        failed: list[float] = []

        def failing(self: Any, now: float) -> Any:
            if len(failed) < 3:
                failed.append(now)
                raise ValueError("a mistake of ours")
            return tick(self, now)

        monkeypatch.setattr(type(core), "tick", failing)
        one.host.kill(power_loss=True)
        cluster.until(lambda: not one.alive, 20)
        pauses = [later - earlier for earlier, later in pairwise(failed)]
        assert len(failed) == 3 and all(pause >= FAILED_TICK_S for pause in pauses)
        assert all(pause < FAILED_TICK_S * 1.1 for pause in pauses)


def test_a_former_controller_decides_nothing_by_the_clock() -> None:
    with Cluster() as cluster:
        first, second = cluster.controller(100), cluster.controller(101)
        first.lead()
        (one,) = cluster.brokers(1)
        second.lead()
        heard = events_of(first, BrokerFenced)
        one.host.kill(power_loss=True)
        cluster.until(lambda: not one.alive, 20)
        cluster.world.run_for(5)
        assert heard == []


def test_a_controller_that_stops_is_active_no_more() -> None:
    with Cluster() as cluster:
        controller = cluster.controller()
        controller.lead()
        (one,) = cluster.brokers(1)
        heard = events_of(controller, ControllerDeactivated, BrokerFenced)
        controller.host.complete(controller.service.stop())
        assert [type(event) for event in heard] == [ControllerDeactivated]
        one.host.kill(power_loss=True)
        cluster.world.run_for(30)
        assert len(heard) == 1 and controller.service.loads() == {}
        call(controller, lambda: cluster.log.appoint(controller.view))
        assert len(heard) == 1, "it hears of no leadership any more"


# -- who is alive


def test_a_broker_that_still_accepts_connections_has_its_grace() -> None:
    with Cluster() as cluster:
        controller = cluster.controller()
        controller.lead()
        (one,) = cluster.brokers(1)
        heard = events_of(controller, BrokerFenced)
        cluster.world.network.block("b1", f"c{controller.view.node_id}")
        one.host.reset_connections()
        lost_at = cluster.world.loop.time()
        cluster.until(lambda: not one.alive, 20)
        grace_s = controller.settings.ottla_broker_reconnect_grace_ms / 1000
        assert cluster.world.loop.time() - lost_at >= grace_s
        (fenced,) = heard
        assert isinstance(fenced, BrokerFenced) and fenced.broker == 1


def test_of_two_connections_of_a_broker_the_loss_of_the_older_means_nothing() -> None:
    with Cluster() as cluster:
        controller = cluster.controller()
        controller.lead()
        (one,) = cluster.brokers(1)
        silent = controller.service._controller.silent_brokers
        channels: list[Channel] = []

        async def beat() -> None:
            channel = await Channel.open(
                one.host.runtime.network, controller.host.address, CONTROLLER_PORT, "broker-1"
            )
            answer = await channel.request(
                ApiKey.BROKER_HEARTBEAT,
                {
                    "broker_id": 1,
                    "broker_epoch": one.lifecycle.broker_epoch,
                    "current_metadata_offset": cluster.log.end,
                },
            )
            assert answer.error_code == ErrorCode.NONE
            channels.append(channel)

        for _ in range(2):
            one.host.complete(beat())
        older, newer = channels
        call(one, older.close)
        cluster.world.run_for(0.01)
        assert 1 not in silent()
        call(one, newer.close)
        cluster.world.run_for(0.01)
        assert 1 in silent(), "until its next heartbeat"
        cluster.until(lambda: 1 not in silent(), 5)
        assert one.alive


def load(leaders: int) -> BrokerLoad:
    return BrokerLoad(leaders, 2, 3, 4, 5, {window: LoadRates() for window in WINDOWS})


def test_what_brokers_carry_is_known_of_those_that_are_not_fenced() -> None:
    with Cluster() as cluster:
        controller, other = cluster.controller(100), cluster.controller(101)
        controller.lead()
        one, two = cluster.brokers(1, 2)

        def beat(broker: Any, leaders: int, asks: bytes = b"") -> Any:
            return cluster.ask(
                controller.host.address,
                CONTROLLER_PORT,
                ApiKey.BROKER_HEARTBEAT,
                {
                    "broker_id": broker.node_id,
                    "broker_epoch": broker.lifecycle.broker_epoch,
                    "current_metadata_offset": cluster.log.end,
                    "ottla_load": load(leaders).as_text().encode(),
                    "ottla_asks": asks,
                },
            )

        assert beat(one, 7).ottla_loads == b""
        told = beat(two, 8, b"loads").ottla_loads
        assert read_loads(told.decode()) == {1: load(7), 2: load(8)}
        assert controller.service.loads() == {1: load(7), 2: load(8)}
        assert other.service.loads() == {}
        two.host.kill()
        cluster.until(lambda: not two.alive, 5)
        assert controller.service.loads() == {1: load(7)}
        other.lead()
        assert controller.service.loads() == {}


@pytest.mark.parametrize("planned", [True, False])
def test_a_fenced_broker_is_told_in_one_line(
    caplog: pytest.LogCaptureFixture, planned: bool
) -> None:
    caplog.set_level(logging.INFO, "ottla.broker.cluster.controller_service")
    with Cluster() as cluster:
        controller = cluster.controller()
        controller.lead()
        one, _ = cluster.brokers(1, 2)
        create(cluster, controller, "both", partitions=4, factor=2)
        one_and_two = cluster.log.image.topics["both"].partitions
        led = sum(partition.leader == 1 for partition in one_and_two)
        create(cluster, controller, "alone", partitions=4, factor=1)
        alone = sum(p.leader == 1 for p in cluster.log.image.topics["alone"].partitions)
        epoch = one.lifecycle.broker_epoch
        shrunk = 4 + alone
        caplog.clear()
        if planned:
            one.host.complete(one.lifecycle.controlled_shutdown())
        else:
            one.host.kill()
            cluster.until(lambda: not one.alive, 5)
        lines = [
            (record.levelno, record.getMessage())
            for record in caplog.records
            if record.getMessage().startswith("broker is fenced")
        ]
        ((level, line),) = lines
        assert level == (logging.INFO if planned else logging.WARNING)
        if planned:
            assert f"broker=1 broker_epoch={epoch} cause={FenceCause.SHUT_DOWN.value} " in line
        else:
            counts = f"leaders_moved={led} partitions_offline={alone} isr_shrunk={shrunk}"
            assert line.endswith(counts), line


# -- what is refused before it is decided


@pytest.mark.parametrize(
    ("resource", "name", "setting", "value", "error"),
    [
        (TOPIC_RESOURCE, "t", "retention.ms", "1000", ErrorCode.NONE),
        (TOPIC_RESOURCE, "t", "retention.ms", "soon", ErrorCode.INVALID_CONFIG),
        (BROKER_RESOURCE, "1", "log.retention.ms", "1000", ErrorCode.NONE),
        (BROKER_RESOURCE, "1", "log.retention.ms", "soon", ErrorCode.INVALID_CONFIG),
        (BROKER_RESOURCE, "1", "node.id", "7", ErrorCode.INVALID_REQUEST),
        (GROUP_RESOURCE, "g", "consumer.session.timeout.ms", "50000", ErrorCode.NONE),
        (GROUP_RESOURCE, "g", "consumer.session.timeout.ms", "1", ErrorCode.INVALID_CONFIG),
        (CLIENT_METRICS_RESOURCE, "m", "interval.ms", "1000", ErrorCode.NONE),
        (CLIENT_METRICS_RESOURCE, "m", "interval.ms", "1", ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_setting_is_refused_by_the_rules_of_its_kind(
    resource: int, name: str, setting: str, value: str, error: ErrorCode
) -> None:
    with Cluster() as cluster:
        controller = cluster.controller()
        controller.lead()
        cluster.brokers(1)
        create(cluster, controller)
        change = {"name": setting, "config_operation": 0, "value": value}
        asked = {"resource_type": resource, "resource_name": name, "configs": [change]}
        answer = cluster.ask(
            controller.host.address,
            CONTROLLER_PORT,
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            {"resources": [asked], "validate_only": False},
        )
        assert answer.responses[0].error_code == error
        found = cluster.log.image.config(resource, name).get(setting)
        assert found == (value if error is ErrorCode.NONE else None)


def test_a_client_is_named_by_what_is_known_of_it() -> None:
    alice = user("alice")
    assert client_text("app", "10.0.0.7") == "app at 10.0.0.7"
    assert client_text("app", "") == "app"
    assert client_text(None, "10.0.0.7") == "a client without id at 10.0.0.7"
    assert client_text(None, "") == client_text("", "") == ""
    assert client_text("app", "10.0.0.7", alice) == "app of User:alice at 10.0.0.7"
    asked = Asked(ApiKey.CREATE_TOPICS, ANONYMOUS, "10.0.0.7", None, "app")
    assert asked.by == "app at 10.0.0.7"


# -- registering itself, voters, envelopes


class Refusing:
    """The way to an active controller that answers as it is told to."""

    def __init__(self, *answers: ErrorCode | None) -> None:
        self.answers = list(answers)
        """None: there is no answer in time."""
        self.asked: list[tuple[float, Any]] = []
        self.is_stopped = False

    def __call__(self, *_: Any) -> Refusing:
        return self

    async def request(self, key: ApiKey, fields: Any, *, timeout_s: float) -> Any:
        assert key is ApiKey.CONTROLLER_REGISTRATION and timeout_s == REGISTRATION_TIMEOUT_S
        self.asked.append((asyncio.get_running_loop().time(), fields))
        answer = self.answers.pop(0)
        if answer is None:
            await asyncio.sleep(timeout_s)
            raise TimeoutError
        return SimpleNamespace(error_code=answer, error_message="no")

    async def stop(self) -> None:
        self.is_stopped = True


def test_a_controller_registers_until_it_is_answered(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    way = Refusing(None, denied, denied, ErrorCode.NONE, ErrorCode.NONE)
    monkeypatch.setattr(controller_service, "ControllerChannel", way)
    with Cluster() as cluster:
        controller = cluster.controller()
        cluster.world.run_for(30)
        assert len(way.answers) == 1, "once it is registered, it asks no more"
        first, second, third, fourth = (at for at, _ in way.asked)
        assert second - first == pytest.approx(REGISTRATION_TIMEOUT_S, abs=0.01)
        for pause in (third - second, fourth - third):
            assert pause == pytest.approx(REFUSED_PAUSE_S, abs=0.01)
        told = [line for line in caplog.messages if "registration refused" in line]
        assert len(told) == 1, "not again and again"
        fields = way.asked[0][1]
        assert fields["controller_id"] == 100 and not fields["zk_migration_ready"]
        assert fields["listeners"] == [
            {
                "name": "CONTROLLER",
                "host": controller.host.address,
                "port": CONTROLLER_PORT,
                "security_protocol": 0,
            }
        ]
        assert "metadata.version" in {feature["name"] for feature in fields["features"]}
        controller.host.complete(controller.service.stop())
        assert way.is_stopped


def test_a_controller_whose_registration_is_refused_for_good_asks_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    way = Refusing(ErrorCode.UNSUPPORTED_VERSION)
    monkeypatch.setattr(controller_service, "ControllerChannel", way)
    with Cluster() as cluster:
        cluster.controller()
        cluster.world.run_for(30)
        assert len(way.asked) == 1


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.VOTER_NOT_FOUND])
def test_a_change_of_voters_is_audited_if_it_was_made(error: ErrorCode) -> None:
    with Cluster() as cluster:
        controller = cluster.controller()
        controller.lead()
        (broker,) = cluster.brokers(1)
        heard = events_of(controller, Audited)
        wanted: list[Any] = []

        async def change_voters(request: Any) -> VoterChangeAnswer:
            wanted.append(request)
            return VoterChangeAnswer(error, None)

        controller.view.change_voters = change_voters
        fields = {
            "cluster_id": controller.view.cluster_id,
            "voter_id": 7,
            "voter_directory_id": UUID(int=70),
        }
        for address, port in (
            (controller.host.address, CONTROLLER_PORT),
            (broker.host.address, BROKER_PORT),
        ):
            answer = cluster.ask(address, port, ApiKey.REMOVE_RAFT_VOTER, fields)
            assert answer.error_code == error
        assert wanted == [RemoveVoter(ReplicaKey(7, UUID(int=70)))] * 2
        told = [(each.listener, each.resource, each.cause) for each in heard]  # type: ignore[attr-defined]
        change = f"Voter:-{wanted[0].key}"
        passed_on = f"passed on by User:{broker.host.address}"
        made = [("CONTROLLER", change, None), (None, change, passed_on)]
        assert told == (made if error is ErrorCode.NONE else [])
        other = cluster.ask(
            controller.host.address,
            CONTROLLER_PORT,
            ApiKey.REMOVE_RAFT_VOTER,
            {**fields, "cluster_id": "another"},
        )
        assert other.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID and len(wanted) == 2


def test_without_a_leader_the_controllers_are_described_as_they_are() -> None:
    with Cluster() as cluster:
        controller = cluster.controller()

        def described(**fields: Any) -> Any:
            fields = {"endpoint_type": 2, **fields}
            return cluster.ask(
                controller.host.address, CONTROLLER_PORT, ApiKey.DESCRIBE_CLUSTER, fields
            )

        found = described(include_cluster_authorized_operations=True)
        assert (found.controller_id, list(found.brokers)) == (-1, [])
        assert found.cluster_authorized_operations == -(2**31), "nobody decides who may do what"
        controller.lead()
        cluster.until(lambda: bool(cluster.log.image.controllers), 5)
        found = described()
        assert found.controller_id == 100 and found.cluster_id == controller.view.cluster_id


@pytest.mark.parametrize("over", [0, 1])
def test_a_large_envelope_waits_for_its_turn_among_those_of_its_client(over: int) -> None:
    with Cluster() as cluster:
        controller = cluster.controller()
        controller.lead()
        added: list[tuple[bytes, int]] = []
        works: list[Callable[[], None]] = []
        answers: list[Any] = []

        def add(client: bytes, size: int, work: Callable[[], None]) -> None:
            added.append((client, size))
            works.append(work)

        envelope = SimpleNamespace(
            request_data=bytes(LARGE_BYTES + over),
            request_principal=principal_to_bytes(ANONYMOUS),
            client_host_address=bytes(4),
        )
        server = SimpleNamespace(large=SimpleNamespace(add=add))
        request: Any = SimpleNamespace(
            message=lambda: envelope,
            connection=SimpleNamespace(server=server, closed=False, principal=ANONYMOUS),
            rights=None,
            respond=answers.append,
            describe=lambda: "an envelope",
        )
        handle = handlers_of(controller.service)[ApiKey.ENVELOPE]
        call(controller, lambda: handle(request))
        if over:
            assert added == [(envelope.request_principal, LARGE_BYTES + over)] and answers == []
            call(controller, works[0])
        assert len(added) == over
        assert answers == [{"error_code": ErrorCode.UNSUPPORTED_VERSION}], "it is no request"
        request.connection.closed = True
        call(controller, lambda: handle(request))
        for work in works[1:]:
            call(controller, work)
        assert len(answers) == 1
