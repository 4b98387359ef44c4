"""What the controller decides for clients, asked directly or through a broker, and who may pass requests on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from ruled_node import BROKER, CONTROLLER, RuledNode, T, on_cluster

from ottla.security.operations import AclOperation as O
from ottla.security.principal_data import principal_from_bytes, principal_to_bytes
from ottla.security.principals import ANONYMOUS, Principal, user
from ottla.wire.apis import ApiKey
from ottla.wire.channel import Channel
from ottla.wire.errors import ErrorCode
from ottla.wire.headers import read_response_header, request_frame
from ottla.wire.internal_topics import AUDIT_TOPIC, EVENT_LOG_TOPIC
from ottla.wire.messages import read_response, write_request
from ottla.wire.types import ZERO_UUID

LISTENERS = pytest.mark.parametrize("listener", [BROKER, CONTROLLER])
"""Through a broker, and directly."""


@pytest.fixture(scope="module")
def ruled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RuledNode]:
    ruled = RuledNode(tmp_path_factory.mktemp("ruled"))
    yield ruled
    ruled.close()


def create(ruled: RuledNode, channel: Channel, *names: str, **fields: Any) -> dict[str, Any]:
    topics = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
    asked = {"topics": topics, "timeout": 10_000, **fields}
    return {each.name: each for each in ruled.ask(channel, ApiKey.CREATE_TOPICS, asked).topics}


def topic_names(ruled: RuledNode) -> set[str]:
    assert ruled.node.quorum is not None
    return set(ruled.node.quorum.image.topics)


def topic_id(ruled: RuledNode, name: str) -> UUID:
    assert ruled.node.quorum is not None
    return ruled.node.quorum.image.topics[name].id


def delete(ruled: RuledNode, channel: Channel, *topics: str | UUID) -> list[tuple[Any, UUID, int]]:
    asked = [
        {"name": None, "topic_id": each}
        if isinstance(each, UUID)
        else {"name": each, "topic_id": ZERO_UUID}
        for each in topics
    ]
    answer = ruled.ask(channel, ApiKey.DELETE_TOPICS, {"topics": asked, "timeout": 10_000})
    return [
        (each.name, each.topic_id or ZERO_UUID, int(each.error_code)) for each in answer.responses
    ]


@LISTENERS
def test_each_topic_of_a_request_is_made_or_refused(ruled: RuledNode, listener: str) -> None:
    mine, theirs = f"mine-{listener}", f"theirs-{listener}"
    channel = ruled.log_in(ruled.somebody((T, mine, O.CREATE)), listener)
    made = create(ruled, channel, mine, theirs)
    assert (made[mine].error_code, made[theirs].error_code) == (0, 29)
    assert made[theirs].error_message == "Authorization failed."
    assert topic_names(ruled) >= {mine} and theirs not in topic_names(ruled)


def test_the_settings_of_a_new_topic_are_shown_to_who_may_describe_them(ruled: RuledNode) -> None:
    hidden, shown = (
        create(ruled, ruled.log_in(ruled.somebody(on_cluster(O.CREATE), *given)), name)[name]
        for name, given in (
            ("hides-settings", ()),
            ("shows-settings", [(T, "shows-settings", O.DESCRIBE_CONFIGS)]),
        )
    )
    assert (hidden.error_code, hidden.topic_config_error_code) == (0, 29)
    assert (hidden.configs, hidden.num_partitions, hidden.replication_factor) == ((), -1, -1)
    assert hidden.topic_id == topic_id(ruled, "hides-settings")
    assert (shown.topic_config_error_code, shown.num_partitions) == (0, 1) and shown.configs


def test_nobody_makes_the_topic_of_the_metadata(ruled: RuledNode) -> None:
    channel = ruled.log_in(ruled.somebody())
    made = create(ruled, channel, "__cluster_metadata", "__cluster_metadata")
    assert made["__cluster_metadata"].error_code == ErrorCode.INVALID_REQUEST
    assert "__cluster_metadata" not in topic_names(ruled)


@LISTENERS
@pytest.mark.parametrize("name", [AUDIT_TOPIC, EVENT_LOG_TOPIC])
def test_who_may_make_and_delete_all_topics_cannot_make_or_remove_what_is_recorded_about_him(
    ruled: RuledNode, listener: str, name: str
) -> None:
    everything = (on_cluster(O.DELETE), on_cluster(O.CREATE), (T, "*", O.ALL))
    channel = ruled.log_in(ruled.somebody(*everything), listener)
    assert create(ruled, channel, name)[name].error_code == 29
    assert name not in topic_names(ruled)
    operator = ruled.log_in(ruled.somebody(on_cluster(O.ALTER), *everything), listener)
    assert create(ruled, operator, name)[name].error_code == 0
    id = topic_id(ruled, name)
    assert delete(ruled, channel, name) == [(name, ZERO_UUID, 29)]
    assert delete(ruled, channel, id) == [(name, id, 29)]
    by_cluster = ruled.log_in(ruled.somebody(on_cluster(O.DELETE)), listener)
    assert delete(ruled, by_cluster, name) == [(name, ZERO_UUID, 29)]
    assert name in topic_names(ruled)
    assert delete(ruled, operator, id) == [(name, id, 0)]


@LISTENERS
def test_a_topic_that_one_may_not_see_looks_the_same_whether_it_exists_or_not(
    ruled: RuledNode, listener: str
) -> None:
    there, seen = f"there-{listener}", f"seen-{listener}"
    create(ruled, ruled.admin, there, seen)
    name = ruled.somebody((T, seen, O.DESCRIBE), (T, "seen-absent", O.DESCRIBE))
    answers = delete(ruled, ruled.log_in(name, listener), there, "not-there", seen, "seen-absent")
    assert {each[0]: each[1:] for each in answers} == {
        there: (ZERO_UUID, 29),
        "not-there": (ZERO_UUID, 29),
        seen: (ZERO_UUID, 29),
        "seen-absent": (ZERO_UUID, 3),
    }
    by_id = delete(
        ruled,
        ruled.log_in(name, listener),
        topic_id(ruled, there),
        topic_id(ruled, seen),
        UUID(int=5),
    )
    assert {each[1]: (each[0], each[2]) for each in by_id} == {
        topic_id(ruled, there): (None, 29),
        topic_id(ruled, seen): (seen, 29),
        UUID(int=5): (None, 100),
    }
    assert topic_names(ruled) >= {there, seen}


def test_who_may_delete_a_topic_does_by_name_and_by_id(ruled: RuledNode) -> None:
    create(ruled, ruled.admin, "by-name", "by-id", "stays")
    given = [(T, name, O.DELETE) for name in ("by-name", "by-id")]
    channel = ruled.log_in(ruled.somebody(*given))
    answers = delete(ruled, channel, "by-name", topic_id(ruled, "by-id"), "stays")
    assert sorted((each[0], each[2]) for each in answers) == [
        ("by-id", 0),
        ("by-name", 0),
        ("stays", 29),
    ]
    assert topic_names(ruled) & {"by-name", "by-id", "stays"} == {"stays"}


def test_the_order_of_answers_about_deleted_topics_tells_nothing(ruled: RuledNode) -> None:
    create(ruled, ruled.admin, "hidden")
    channel = ruled.log_in(ruled.somebody())
    orders = {
        tuple(each[0] for each in delete(ruled, channel, "hidden", "absent-1", "absent-2"))
        for _ in range(40)
    }
    assert len(orders) > 1 and {order[0] for order in orders} > {"hidden"}


def test_named_twice_is_refused_for_that(ruled: RuledNode) -> None:
    channel = ruled.log_in(ruled.somebody())
    assert [each[2] for each in delete(ruled, channel, "double", "double")] == [42]


def test_settings_are_changed_where_one_may_and_refused_elsewhere(ruled: RuledNode) -> None:
    create(ruled, ruled.admin, "tuned", "untouched")
    channel = ruled.log_in(ruled.somebody((T, "tuned", O.ALTER_CONFIGS)))
    changes = [{"name": "retention.ms", "config_operation": 0, "value": "5"}]
    asked = [
        {"resource_type": kind, "resource_name": name, "configs": changes}
        for kind, name in ((2, "tuned"), (2, "untouched"), (2, "absent"), (4, ""), (99, "odd"))
    ]
    answer = ruled.ask(channel, ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": asked})
    assert {each.resource_name: int(each.error_code) for each in answer.responses} == {
        "tuned": 0,
        "untouched": 29,
        "absent": 29,
        "": 31,
        "odd": 42,
    }


def test_a_controller_changes_its_own_log_levels(ruled: RuledNode) -> None:
    module = "ottla.broker.server.connections"
    channel = ruled.log_in(ruled.somebody(on_cluster(O.CLUSTER_ACTION)), CONTROLLER)

    def alter(operation: int, value: str | None, node: str = "1") -> int:
        change = {"name": module, "config_operation": operation, "value": value}
        resource = {"resource_type": 8, "resource_name": node, "configs": [change]}
        fields = {"resources": [resource], "validate_only": False}
        answer = ruled.ask(channel, ApiKey.INCREMENTAL_ALTER_CONFIGS, fields)
        return int(answer.responses[0].error_code)

    logger = logging.getLogger(module)
    assert alter(0, "ERROR") == 0 and logger.level == logging.ERROR
    assert alter(1, None) == 0 and logger.level == logging.NOTSET
    assert alter(0, "ERROR", node="2") == 42 and logger.level == logging.NOTSET


def test_a_controller_says_what_one_may_do_with_the_cluster(ruled: RuledNode) -> None:
    channel = ruled.log_in(ruled.somebody(on_cluster(O.ALTER)), CONTROLLER)
    asked = {"endpoint_type": 2, "include_cluster_authorized_operations": True}
    answer = ruled.ask(channel, ApiKey.DESCRIBE_CLUSTER, asked)
    assert answer.cluster_authorized_operations == 1 << O.ALTER | 1 << O.DESCRIBE


# -- Envelopes


def envelope(principal: Principal, name: str) -> dict[str, bytes]:
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
    body = write_request(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout": 10_000})
    return {
        "request_data": request_frame(ApiKey.CREATE_TOPICS, 7, 5, "client", body)[4:],
        "request_principal": principal_to_bytes(principal),
        "client_host_address": bytes([10, 0, 0, 7]),
    }


def test_a_client_may_not_speak_for_others(ruled: RuledNode) -> None:
    """It calls itself a broker, and names a super user."""
    strong = ruled.somebody(on_cluster(O.ALTER), on_cluster(O.CREATE))
    for name in (ruled.somebody(), strong):
        channel = ruled.log_in(name, CONTROLLER)
        answer = ruled.ask(channel, ApiKey.ENVELOPE, envelope(ANONYMOUS, "forged"))
        assert (answer.error_code, answer.response_data) == (31, None)
    assert "forged" not in topic_names(ruled)


def test_a_broker_speaks_for_the_client_and_not_for_itself(ruled: RuledNode) -> None:
    alice = ruled.somebody((T, "passed-on", O.CREATE))
    broker = ruled.log_in(ruled.somebody(on_cluster(O.CLUSTER_ACTION)), CONTROLLER)

    def passed_on(principal: Principal) -> int:
        answer = ruled.ask(broker, ApiKey.ENVELOPE, envelope(principal, "passed-on"))
        assert answer.error_code == 0
        frame = memoryview(answer.response_data)
        _, body = read_response_header(ApiKey.CREATE_TOPICS, 7, frame)
        return int(read_response(ApiKey.CREATE_TOPICS, 7, frame, body).topics[0].error_code)

    assert passed_on(user("nobody")) == 29
    assert passed_on(Principal("Group", alice)) == 29, "a name of another type is another principal"
    assert passed_on(user(alice)) == 0
    assert passed_on(ANONYMOUS) == ErrorCode.TOPIC_ALREADY_EXISTS


def test_the_address_of_a_passed_on_request_is_that_of_the_client(ruled: RuledNode) -> None:
    alice = ruled.somebody()
    acl = ruled.allow(alice, (T, "from-there", O.CREATE))
    ruled.take_away(acl)
    ruled.authorizer.change((), [acl._replace(host="10.0.0.7")])
    fields = envelope(user(alice), "from-there")

    def code(address: bytes) -> int:
        asked = {**fields, "client_host_address": address}
        answer = ruled.ask(broker, ApiKey.ENVELOPE, asked)
        frame = memoryview(answer.response_data)
        _, body = read_response_header(ApiKey.CREATE_TOPICS, 7, frame)
        return int(read_response(ApiKey.CREATE_TOPICS, 7, frame, body).topics[0].error_code)

    broker = ruled.log_in(ruled.somebody(on_cluster(O.CLUSTER_ACTION)), CONTROLLER)
    assert code(bytes([10, 0, 0, 8])) == 29
    assert code(bytes(10) + b"\xff\xff" + bytes([10, 0, 0, 7])) == 0, "the same, written as IPv6"


@pytest.mark.parametrize(
    ("principal", "raw"),
    [
        (ANONYMOUS, b"\x00\x00\x05User\x0aANONYMOUS\x00\x00"),
        (user(""), b"\x00\x00\x05User\x01\x00\x00"),
        (user("é"), b"\x00\x00\x05User\x03\xc3\xa9\x00\x00"),
    ],
)
def test_principals_have_the_bytes_that_kafka_gives_them(principal: Principal, raw: bytes) -> None:
    assert principal_to_bytes(principal) == raw
    assert principal_from_bytes(raw) == principal


def test_a_principal_of_a_login_with_a_token_is_the_same_principal() -> None:
    assert principal_from_bytes(b"\x00\x00\x05User\x02a\x01\x00") == user("a")


# -- Topics that are made on use, quotas


def test_a_topic_is_made_on_use_for_who_may_make_it(ruled: RuledNode) -> None:
    def code(name: str, *given: O) -> int:
        channel = ruled.log_in(ruled.somebody(*((T, name, each) for each in given)))
        asked = {"topics": [{"name": name}], "allow_auto_topic_creation": True}
        answer = ruled.ask(channel, ApiKey.METADATA, asked, version=9)
        return int(answer.topics[0].error_code)

    assert code("used-1", O.DESCRIBE) == 29
    assert "used-1" not in topic_names(ruled)
    assert code("used-2", O.DESCRIBE, O.CREATE) == 0
    assert "used-2" in topic_names(ruled)


def limit_changes(ruled: RuledNode, name: str) -> None:
    """One change for now."""
    quota = {
        "entity": [{"entity_type": "user", "entity_name": name}],
        "ops": [{"key": "controller_mutation_rate", "value": 0.01, "remove": False}],
    }
    asked = {"entries": [quota], "validate_only": False}
    assert ruled.ask(ruled.admin, ApiKey.ALTER_CLIENT_QUOTAS, asked).entries[0].error_code == 0


def test_a_topic_made_on_use_is_charged_to_the_client(ruled: RuledNode) -> None:
    name = ruled.somebody(on_cluster(O.CREATE), (T, "*", O.DESCRIBE))
    limit_changes(ruled, name)
    channel = ruled.log_in(name)
    for topic in ("charged-1", "charged-2"):
        asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": True}
        ruled.ask(channel, ApiKey.METADATA, asked, version=9)
    assert topic_names(ruled) & {"charged-1", "charged-2"} == {"charged-1"}


def test_changes_are_charged_to_the_client_whose_request_was_passed_on(ruled: RuledNode) -> None:
    busy, idle = ruled.somebody(on_cluster(O.CREATE)), ruled.somebody(on_cluster(O.CREATE))
    limit_changes(ruled, busy)

    def made(name: str, *topics: str) -> list[int]:
        answers = create(ruled, ruled.log_in(name), *topics)
        return [int(answers[topic].error_code) for topic in topics]

    exceeded = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert made(busy, "q1", "q2") == [0, exceeded]
    assert made(busy, "q3") == [exceeded]
    assert made(idle, "q4", "q5") == [0, 0]
