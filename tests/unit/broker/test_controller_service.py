"""The controller and brokers' lives with it, on simulated hosts and in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from controller_cluster import BROKER_PORT, CONTROLLER_PORT, BrokerNode, Cluster, ControllerNode

from ottla.broker.cluster.controller_commands import CONTROLLER_APIS
from ottla.broker.cluster.controller_service import ControllerService
from ottla.broker.cluster.lifecycle import BrokerState, RegistrationRefused
from ottla.broker.server.large_requests import LARGE_RECORDS
from ottla.broker.server.registration import handlers_of
from ottla.metadata.records import BROKER_RESOURCE
from ottla.security.principal_data import principal_to_bytes
from ottla.security.principals import ANONYMOUS, user
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.channel import Channel
from ottla.wire.errors import ErrorCode
from ottla.wire.headers import read_response_header, request_frame
from ottla.wire.messages import read_response, write_request
from ottla.wire.types import ZERO_UUID

TOPIC = {
    "topics": [{"name": "t", "num_partitions": 3, "replication_factor": 2}],
    "timeout": 1000,
}

FORWARDED = request_frame(
    ApiKey.CREATE_TOPICS, 7, 5, "client", write_request(ApiKey.CREATE_TOPICS, 7, TOPIC)
)[4:]


def envelope(data: bytes, **changed: bytes) -> dict[str, bytes]:
    return {
        "request_data": data,
        "request_principal": principal_to_bytes(ANONYMOUS),
        "client_host_address": bytes([10, 0, 0, 7]),
        **changed,
    }


def leaders(cluster: Cluster) -> list[int]:
    return [partition.leader for partition in cluster.log.image.topics["t"].partitions]


def create_topic(cluster: Cluster, broker: BrokerNode, **fields: Any) -> Any:
    answer = cluster.ask(
        broker.host.address, BROKER_PORT, ApiKey.CREATE_TOPICS, {**TOPIC, **fields}, version=7
    )
    return answer.topics[0]


def test_the_first_active_controller_writes_the_bootstrap_records_once() -> None:
    with Cluster(min_insync_replicas="2") as cluster:
        first, second = cluster.controller(100), cluster.controller(101)
        first.lead()
        cluster.until(lambda: bool(cluster.log.image.features), 1)
        assert cluster.log.image.features["metadata.version"] == 30
        assert cluster.log.image.config(BROKER_RESOURCE, "") == {"min.insync.replicas": "2"}
        features = cluster.log.image.features
        second.lead()
        cluster.until(lambda: len(cluster.log.image.controllers) == 2, 5)
        assert cluster.log.image.features is features


def test_P10_brokers_register_and_are_unfenced_within_milliseconds() -> None:
    with Cluster() as cluster:
        cluster.controller().lead()
        (broker,) = [BrokerNode(cluster, 1).start()]
        assert cluster.until(lambda: broker.lifecycle.ready.is_set(), 5) < 0.2
        assert broker.lifecycle.state is BrokerState.RUNNING
        assert cluster.log.image.brokers[1].epoch == broker.lifecycle.broker_epoch


def test_a_live_broker_keeps_its_session_and_its_one_connection() -> None:
    with Cluster() as cluster:
        cluster.controller().lead()
        brokers = cluster.brokers(1, 2)
        epochs = [broker.lifecycle.broker_epoch for broker in brokers]
        cluster.world.run_for(60)
        assert all(broker.alive for broker in brokers)
        assert [cluster.log.image.brokers[i].epoch for i in (1, 2)] == epochs


def test_a_killed_broker_is_fenced_within_tens_of_milliseconds_and_P32_its_leaders_move() -> None:
    with Cluster() as cluster:
        cluster.controller().lead()
        one, two = cluster.brokers(1, 2)
        create_topic(cluster, one)
        assert leaders(cluster) == [1, 2, 1]
        one.host.kill()
        assert cluster.until(lambda: not one.alive, 5) < 0.05
        assert leaders(cluster) == [2, 2, 2] and two.alive


def test_a_silent_machine_costs_the_session_timeout() -> None:
    with Cluster() as cluster:
        cluster.controller().lead()
        one, two = cluster.brokers(1, 2)
        one.host.kill(power_loss=True)
        assert 6.9 < cluster.until(lambda: not one.alive, 20) < 9.2
        assert two.alive


def test_a_paused_broker_is_fenced_after_its_session_and_returns_when_it_goes_on() -> None:
    with Cluster() as cluster:
        cluster.controller().lead()
        one, _ = cluster.brokers(1, 2)
        one.host.pause()
        cluster.until(lambda: not one.alive, 20)
        one.host.resume()
        cluster.until(lambda: one.alive and one.lifecycle.ready.is_set(), 5)


def test_a_broker_whose_connection_is_reset_comes_back_within_the_grace() -> None:
    with Cluster() as cluster:
        cluster.controller().lead()
        (one,) = cluster.brokers(1)
        epoch = one.lifecycle.broker_epoch
        fenced: list[bool] = []
        one.view.on_image.append(lambda image, delta: fenced.append(image.brokers[1].fenced))
        one.host.reset_connections()
        cluster.world.run_for(3)
        assert True not in fenced and one.lifecycle.broker_epoch == epoch


def test_a_restarted_broker_registers_anew_without_waiting_for_its_old_session() -> None:
    with Cluster() as cluster:
        cluster.controller().lead()
        (one,) = cluster.brokers(1)
        epoch = one.lifecycle.broker_epoch
        one.host.kill()
        one.start()
        assert cluster.until(lambda: one.lifecycle.ready.is_set(), 5) < 0.5
        assert one.lifecycle.broker_epoch > epoch


def test_P35_brokers_follow_a_new_controller_at_once_and_nothing_is_lost() -> None:
    with Cluster() as cluster:
        first, second = cluster.controller(100), cluster.controller(101)
        first.lead()
        one, two = cluster.brokers(1, 2)
        create_topic(cluster, one)
        first.host.kill()
        second.lead()
        cluster.world.run_for(12)
        assert one.alive and two.alive
        create_topic(
            cluster, one, topics=[{"name": "u", "num_partitions": 1, "replication_factor": 1}]
        )
        assert sorted(cluster.log.image.topics) == ["t", "u"]


def test_a_new_controller_fences_a_broker_that_died_with_the_old_one_at_once() -> None:
    with Cluster() as cluster:
        first, second = cluster.controller(100), cluster.controller(101)
        first.lead()
        one, two = cluster.brokers(1, 2)
        first.host.kill()
        one.host.kill()
        second.lead()
        assert cluster.until(lambda: not one.alive, 5) < 0.05
        assert two.alive


def test_a_controller_that_is_not_active_says_so_in_each_apis_shape() -> None:
    with Cluster() as cluster:
        host = cluster.controller().host.address
        cases: list[tuple[ApiKey, dict[str, Any], Any]] = [
            (ApiKey.BROKER_HEARTBEAT, {"broker_id": 1}, lambda a: a.error_code),
            (ApiKey.ALTER_PARTITION, {"broker_id": 1}, lambda a: a.error_code),
            (ApiKey.CREATE_TOPICS, TOPIC, lambda a: a.topics[0].error_code),
            (
                ApiKey.DELETE_TOPICS,
                {"topics": [{"name": "t"}]},
                lambda a: a.responses[0].error_code,
            ),
            (
                ApiKey.CREATE_PARTITIONS,
                {"topics": [{"name": "t", "count": 2, "assignments": None}]},
                lambda a: a.results[0].error_code,
            ),
            (
                ApiKey.INCREMENTAL_ALTER_CONFIGS,
                {"resources": [{"resource_type": 2, "resource_name": "t", "configs": ()}]},
                lambda a: a.responses[0].error_code,
            ),
            (
                ApiKey.ELECT_LEADERS,
                {"topic_partitions": [{"topic": "t", "partitions": [0]}]},
                lambda a: a.replica_election_results[0].partition_result[0].error_code,
            ),
            (
                ApiKey.ALTER_PARTITION_REASSIGNMENTS,
                {"topics": [{"name": "t", "partitions": [{"partition_index": 0}]}]},
                lambda a: a.error_code,
            ),
            (ApiKey.LIST_PARTITION_REASSIGNMENTS, {"topics": None}, lambda a: a.error_code),
            (ApiKey.ENVELOPE, envelope(FORWARDED), lambda a: a.error_code),
        ]
        for key, fields, code in cases:
            answer = cluster.ask(host, CONTROLLER_PORT, key, fields)
            assert code(answer) == ErrorCode.NOT_CONTROLLER, key


def test_P34_a_client_is_answered_only_after_the_decision_is_committed() -> None:
    with Cluster() as cluster:
        cluster.controller().lead()
        (one,) = cluster.brokers(1)
        row = create_topic(
            cluster, one, topics=[{"name": "t", "num_partitions": 1, "replication_factor": 1}]
        )
        assert row.error_code == ErrorCode.NONE
        assert cluster.log.image.topics["t"].id == row.topic_id
        again = create_topic(
            cluster, one, topics=[{"name": "t", "num_partitions": 1, "replication_factor": 1}]
        )
        assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_requests_are_forwarded_in_every_version_that_is_served() -> None:
    with Cluster() as cluster:
        cluster.controller().lead()
        (one,) = cluster.brokers(1)
        for version in range(2, 8):
            fields = {
                "topics": [{"name": f"v{version}", "num_partitions": 1, "replication_factor": 1}]
            }
            answer = cluster.ask(
                one.host.address, BROKER_PORT, ApiKey.CREATE_TOPICS, fields, version=version
            )
            assert answer.topics[0].error_code == ErrorCode.NONE
        quorum = cluster.ask(one.host.address, BROKER_PORT, ApiKey.DESCRIBE_QUORUM, {})
        assert quorum.error_code == ErrorCode.NONE


def test_an_envelope_carries_the_clients_request_and_brings_back_its_whole_response() -> None:
    with Cluster() as cluster:
        controller = cluster.controller()
        controller.lead()
        cluster.brokers(1, 2)
        answer = cluster.ask(
            controller.host.address, CONTROLLER_PORT, ApiKey.ENVELOPE, envelope(FORWARDED)
        )
        frame = memoryview(answer.response_data)
        correlation_id, body = read_response_header(ApiKey.CREATE_TOPICS, 7, frame)
        inner = read_response(ApiKey.CREATE_TOPICS, 7, frame, body)
        assert correlation_id == 5 and inner.topics[0].error_code == ErrorCode.NONE


def test_an_envelope_with_anything_else_inside_is_refused_for_what_is_wrong() -> None:
    heartbeat = write_request(ApiKey.BROKER_HEARTBEAT, 2, {"broker_id": 1})
    not_forwarded = request_frame(ApiKey.BROKER_HEARTBEAT, 2, 5, None, heartbeat)[4:]
    again = write_request(ApiKey.ENVELOPE, 0, envelope(FORWARDED))
    nested = request_frame(ApiKey.ENVELOPE, 0, 5, None, again)[4:]
    unreadable, invalid = ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST
    nobody = ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE
    newer = b"\x00\x01" + principal_to_bytes(ANONYMOUS)[2:]
    with Cluster() as cluster:
        controller = cluster.controller()
        controller.lead()
        for fields, error in [
            (envelope(b""), unreadable),
            (envelope(b"nonsense"), unreadable),
            (envelope(FORWARDED[:-1]), unreadable),
            (envelope(not_forwarded), invalid),
            (envelope(nested), invalid),
            (envelope(FORWARDED, request_principal=b""), nobody),
            (envelope(FORWARDED, request_principal=b"\x00\x00\x05User"), nobody),
            (envelope(FORWARDED, request_principal=newer), nobody),
            (envelope(FORWARDED, client_host_address=b""), invalid),
            (envelope(FORWARDED, client_host_address=bytes(5)), invalid),
            # The principal is looked at first, then the address, then what is inside.
            (envelope(b"", request_principal=b"", client_host_address=b""), nobody),
            (envelope(b"", client_host_address=b""), invalid),
        ]:
            answer = cluster.ask(controller.host.address, CONTROLLER_PORT, ApiKey.ENVELOPE, fields)
            assert answer.error_code == error, fields


def test_a_controllers_listener_describes_the_controllers_only() -> None:
    with Cluster() as cluster:
        controller = cluster.controller()
        controller.lead()
        cluster.until(lambda: bool(cluster.log.image.controllers), 5)
        host = controller.host.address
        found = cluster.ask(host, CONTROLLER_PORT, ApiKey.DESCRIBE_CLUSTER, {"endpoint_type": 2})
        assert [(b.broker_id, b.host, b.port) for b in found.brokers] == [
            (100, host, CONTROLLER_PORT)
        ]
        other = cluster.ask(host, CONTROLLER_PORT, ApiKey.DESCRIBE_CLUSTER, {"endpoint_type": 1})
        assert other.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


def test_a_controlled_shutdown_hands_over_and_is_granted_quickly() -> None:
    with Cluster() as cluster:
        cluster.controller().lead()
        one, two = cluster.brokers(1, 2)
        create_topic(cluster, one)
        began = cluster.world.loop.time()
        assert one.host.complete(one.lifecycle.controlled_shutdown())
        assert cluster.world.loop.time() - began < 0.5
        assert leaders(cluster) == [2, 2, 2] and not one.alive and two.alive


def test_a_shutdown_without_any_controller_does_not_take_for_ever() -> None:
    with Cluster() as cluster:
        controller = cluster.controller()
        controller.lead()
        (one,) = cluster.brokers(1)
        controller.host.kill()
        began = cluster.world.loop.time()
        assert not one.host.complete(one.lifecycle.controlled_shutdown())
        assert cluster.world.loop.time() - began < 3


def test_a_failed_disk_is_reported_at_once() -> None:
    with Cluster() as cluster:
        cluster.controller().lead()
        one, _ = cluster.brokers(1, 2)

        async def fail() -> None:
            one.logs.offline_directories["/data"] = OSError("gone")
            for callback in one.logs.on_offline:
                callback("/data", [])

        one.host.complete(fail())
        assert cluster.until(lambda: not one.alive, 5) < 0.1


def test_a_broker_of_another_cluster_is_refused_for_good() -> None:
    with Cluster() as cluster:
        cluster.controller().lead()
        stranger = BrokerNode(cluster, 1)
        stranger.view.cluster_id = "another-cluster-000000"
        stranger.start()
        cluster.until(lambda: stranger.lifecycle.failed.done(), 5)
        assert isinstance(stranger.lifecycle.failed.exception(), RegistrationRefused)


def test_the_same_seed_gives_the_same_history() -> None:
    def history(seed: int) -> str:
        with Cluster(seed) as cluster:
            cluster.controller().lead()
            one, _ = cluster.brokers(1, 2)
            create_topic(cluster, one)
            one.host.kill()
            cluster.world.run_for(5)
            return cluster.world.digest()

    assert history(3) == history(3)


ONE_REPLICA = {"name": "t", "num_partitions": 1, "replication_factor": 1}
TOKEN = {"renewers": (), "max_lifetime": -1}
ALICE = SimpleNamespace(
    client_id="client", connection=SimpleNamespace(principal=user("alice"), peer_host="10.0.0.9")
)
"""A request of hers, as far as it is looked at when another one is made for her."""


def two_controllers(cluster: Cluster) -> tuple[ControllerNode, ControllerNode, BrokerNode]:
    first, second = cluster.controller(100), cluster.controller(101)
    first.lead()
    (broker,) = cluster.brokers(1)
    return first, second, broker


def test_only_a_new_token_is_made_twice_by_asking_twice() -> None:
    assert [key for key, api in CONTROLLER_APIS.items() if not api.is_repeatable] == [
        ApiKey.CREATE_DELEGATION_TOKEN
    ]


def test_a_request_whose_answer_is_lost_is_repeated_unless_that_doubles_it() -> None:
    with Cluster(delegation_token_secret_key="secret") as cluster:
        first, second, broker = two_controllers(cluster)
        topic = {**TOPIC, "topics": [ONE_REPLICA]}

        def ask(key: ApiKey, fields: dict[str, Any], done: Callable[[], bool]) -> Any:
            """The first controller does it, and is cut off before it can say so."""
            asked = broker.to_controller.request_for(cast(Any, ALICE), key, fields, timeout_s=5)
            answers: list[Any] = []

            async def collect() -> None:
                try:
                    answers.append(await asked)
                except TimeoutError as error:
                    answers.append(error)

            create_topic(cluster, broker)  # so it has a connection to the first controller
            cluster.world.network.block("c100", "b1")
            broker.host.run(collect(), name="asks")
            cluster.until(done, 2)
            second.lead()
            cluster.until(lambda: bool(answers), 4)
            cluster.world.network.heal()
            first.lead()
            return answers[0]

        image = cluster.log
        again = ask(ApiKey.CREATE_TOPICS, topic, lambda: "t" in image.image.topics)
        assert again.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        lost = ask(
            ApiKey.CREATE_DELEGATION_TOKEN, TOKEN, lambda: bool(image.image.delegation_tokens)
        )
        assert isinstance(lost, TimeoutError) and "may have done this" in str(lost)
        assert len(image.image.delegation_tokens) == 1


def test_a_controller_that_loses_its_place_does_not_ask_for_a_second_token() -> None:
    """What it did not commit, its successor may have."""
    with Cluster(delegation_token_secret_key="secret") as cluster:
        first, second, _ = two_controllers(cluster)
        for key, fields, outside in (
            (ApiKey.CREATE_TOPICS, {**TOPIC, "topics": [ONE_REPLICA]}, ErrorCode.NOT_CONTROLLER),
            (ApiKey.CREATE_DELEGATION_TOKEN, TOKEN, ErrorCode.NONE),
        ):
            version = APIS[key].max_version
            inner = request_frame(key, version, 5, "client", write_request(key, version, fields))[
                4:
            ]
            answers: list[Any] = []

            async def ask(data: bytes, answers: list[Any]) -> None:
                client = cluster.world.node("client").runtime
                channel = await Channel.open(
                    client.network, first.host.address, CONTROLLER_PORT, "client"
                )
                answers.append(await channel.request(ApiKey.ENVELOPE, envelope(data)))

            end = cluster.log.end
            cluster.world.node("client").run(ask(inner, answers), name="asks")
            cluster.until(lambda before=end: cluster.log.end > before, 1)
            second.lead()
            cluster.until(lambda given=answers: bool(given), 2)
            assert answers[0].error_code == outside
            if outside == ErrorCode.NONE:
                frame = memoryview(answers[0].response_data)
                _, body = read_response_header(key, version, frame)
                told = read_response(key, version, frame, body)
                assert told.error_code == ErrorCode.REQUEST_TIMED_OUT
            first.lead()


@pytest.mark.parametrize(("partitions", "asked_of"), [(LARGE_RECORDS - 1, 4), (LARGE_RECORDS, 2)])
def test_of_controllers_that_lose_their_place_two_are_asked_for_a_large_request(
    partitions: int, asked_of: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Perhaps that request is why. A small one is repeated until one of them has done it."""
    asked: list[ControllerService] = []
    execute = ControllerService._execute

    def noted(self: ControllerService, key: ApiKey, *all: Any) -> Any:
        if key is ApiKey.CREATE_TOPICS:
            asked.append(self)
        return execute(self, key, *all)

    monkeypatch.setattr(ControllerService, "_execute", noted)
    with Cluster() as cluster:
        controllers = [cluster.controller(100 + number) for number in range(4)]
        controllers[0].lead()
        (broker,) = cluster.brokers(1)
        rows = [{"name": "t", "num_partitions": partitions, "replication_factor": 1}]
        answers: list[Any] = []

        async def ask() -> None:
            client = cluster.world.node("client").runtime
            channel = await Channel.open(client.network, broker.host.address, BROKER_PORT, "client")
            fields = {"topics": rows, "timeout": 1000}
            answers.append(await channel.request(ApiKey.CREATE_TOPICS, fields))

        cluster.world.node("client").run(ask(), name="asks")
        for number, following in enumerate(controllers[1:]):
            cluster.world.run_until(lambda n=number: len(asked) > n or bool(answers), 2)
            if not answers:
                following.lead()
        cluster.until(lambda: bool(answers), 5)
        assert asked == [each.service for each in controllers[:asked_of]]
        outcome = ErrorCode.NONE if asked_of == 4 else ErrorCode.REQUEST_TIMED_OUT
        assert answers[0].topics[0].error_code == outcome


def test_a_request_for_too_many_records_is_refused_by_the_broker() -> None:
    with Cluster() as cluster:
        cluster.controller().lead()
        (broker,) = cluster.brokers(1)
        end = cluster.log.end

        def ask(key: ApiKey, **fields: Any) -> Any:
            address = broker.host.address
            return cluster.ask(address, BROKER_PORT, key, {"timeout": 1000, **fields})

        passed_on: list[Any] = []
        broker.to_controller._passed_on = lambda *all, **more: passed_on.append(all)
        names = [f"t{number}" for number in range(10_001)]
        answer = ask(
            ApiKey.CREATE_TOPICS,
            topics=[
                {"name": name, "num_partitions": 1, "replication_factor": 1}
                for name in names[:5_001]
            ],
        )
        rows = [*answer.topics]
        answer = ask(ApiKey.CREATE_TOPICS, topics=[{"name": "t", "num_partitions": 10_000, "replication_factor": 1}])  # fmt: skip
        rows += answer.topics
        answer = ask(
            ApiKey.DELETE_TOPICS, topics=[{"name": name, "topic_id": ZERO_UUID} for name in names]
        )
        rows += answer.responses
        answer = ask(ApiKey.CREATE_PARTITIONS, topics=[{"name": name, "count": 2, "assignments": None} for name in names], validate_only=True)  # fmt: skip
        rows += answer.results
        assert len(rows) == 5_001 + 1 + 2 * 10_001
        assert {each.error_code for each in rows} == {ErrorCode.POLICY_VIOLATION}
        assert not passed_on and cluster.log.end - end < 10


def test_what_asks_for_many_records_is_decided_in_its_turn_however_short_it_is() -> None:
    with Cluster() as cluster:
        controller = cluster.controller()
        controller.lead()
        cluster.brokers(1)
        works: list[Callable[[], None]] = []

        def ask(partitions: int) -> list[Any]:
            answers: list[Any] = []
            topic = {"name": "t", "num_partitions": partitions, "replication_factor": 1}
            body = write_request(
                ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "validate_only": True}
            )
            passed_on = SimpleNamespace(
                **envelope(request_frame(ApiKey.CREATE_TOPICS, 7, 5, "client", body)[4:])
            )
            large = SimpleNamespace(add=lambda owner, size, work: works.append(work))
            request: Any = SimpleNamespace(
                message=lambda: passed_on,
                connection=SimpleNamespace(
                    server=SimpleNamespace(large=large), closed=False, principal=user("b1")
                ),
                rights=None,
                respond=answers.append,
                run=lambda work: answers.append(work.close()),
            )

            async def handle() -> None:
                handlers_of(controller.service)[ApiKey.ENVELOPE](request)

            controller.host.complete(handle())
            return answers

        assert len(ask(900)) == 1 and not works
        later = ask(2000)
        assert not later and len(works) == 1

        async def begin() -> None:
            works[0]()
            assert len(later) == 1, "with the decision and its answer, so all of it is timed"

        controller.host.complete(begin())
