"""Which metrics a client is to push, and when: as Kafka's ClientMetricsManager answers."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.config.client_metrics_settings import RefusedSubscription, subscription_of
from ottla.config.values import ConfigError
from ottla.metrics.families import shortened
from ottla.telemetry.instances import (
    EXPIRY_MIN_MS,
    INSTANCES_MAX,
    ClientInstances,
    PushPace,
)
from ottla.wire.errors import ErrorCode, KafkaError

ALICE, EVE = "User:alice", "User:eve"
ID = UUID("12345678-1234-4234-8234-123456789abc")
JAVA = {
    "client_id": "billing-1",
    "client_software_name": "apache-kafka-java",
    "client_software_version": "3.9.0",
}
INTERVAL = 1000


def subscribed(**configs: str) -> ClientInstances:
    instances = ClientInstances()
    named = {name.replace("_", "."): value for name, value in configs.items()}
    instances.subscribe([subscription_of("s", {"interval.ms": str(INTERVAL), **named})])
    return instances


def push(
    instances: ClientInstances,
    now_ms: float,
    *,
    id: UUID | None = ID,
    pace: PushPace | None = None,
    **changed: int,
) -> ErrorCode:
    """Over a connection of its own, unless one is given."""
    given = {"subscription_id": 0, "codec": 0, "terminating": False, **changed}
    try:
        instances.push(id, ALICE, JAVA, now_ms=now_ms, pace=pace or PushPace(), **given)  # type: ignore[arg-type]
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def test_a_client_is_told_the_metrics_of_all_subscriptions_that_match_it() -> None:
    instances = ClientInstances()
    instances.subscribe(
        [
            subscription_of("all", {"metrics": "a.,b.", "interval.ms": "5000"}),
            subscription_of(
                "java",
                {
                    "metrics": "c.",
                    "interval.ms": "200",
                    "match": "client_software_name=apache-.*,client_id=bill.*",
                },
            ),
            subscription_of("others", {"metrics": "d.", "match": "client_id=other"}),
        ]
    )
    wanted = instances.ask(ID, ALICE, JAVA, 0).wanted
    assert (wanted.metrics, wanted.interval_ms) == (("a.", "b.", "c."), 200)
    other = instances.ask(UUID(int=5), ALICE, {**JAVA, "client_id": "x"}, 0).wanted
    assert (other.metrics, other.interval_ms) == (("a.", "b."), 5000)


def test_a_star_stands_for_all_metrics() -> None:
    assert subscribed(metrics="a.,*").ask(ID, ALICE, JAVA, 0).wanted.metrics == ("*",)


def test_the_subscription_id_is_another_one_for_each_client_and_each_set() -> None:
    instances = subscribed(metrics="a.")
    first = instances.ask(ID, ALICE, JAVA, 0).wanted.subscription_id
    assert -(2**31) <= first < 2**31
    assert instances.ask(UUID(int=7), ALICE, JAVA, 0).wanted.subscription_id != first
    instances.subscribe([subscription_of("s", {"metrics": "b."})])
    changed = instances.ask(
        ID, ALICE, JAVA, 1
    ).wanted.subscription_id  # at once: what it knows is old
    assert changed != first
    assert push(instances, 2, subscription_id=first) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert instances.unknown_subscriptions == 1


def test_pushes_and_questions_before_their_time_are_throttled() -> None:
    instances = subscribed(metrics="a.")
    id = instances.ask(ID, ALICE, JAVA, 0).wanted.subscription_id
    with pytest.raises(KafkaError) as early:
        instances.ask(ID, ALICE, JAVA, INTERVAL - 1)
    assert early.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert push(instances, 10, subscription_id=id) is ErrorCode.NONE  # the first comes at any time
    assert push(instances, INTERVAL, subscription_id=id) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert push(instances, 10 + INTERVAL, subscription_id=id) is ErrorCode.NONE
    assert instances.throttled == 2


def test_the_last_push_comes_at_any_time_and_is_the_last() -> None:
    instances = subscribed(metrics="a.")
    id = instances.ask(ID, ALICE, JAVA, 0).wanted.subscription_id
    assert push(instances, 1, subscription_id=id) is ErrorCode.NONE
    assert push(instances, 2, subscription_id=id, terminating=True) is ErrorCode.NONE
    assert push(instances, 5000, subscription_id=id) is ErrorCode.INVALID_REQUEST


def test_a_push_without_an_instance_or_with_an_unknown_codec_is_refused() -> None:
    instances = subscribed(metrics="a.")
    id = instances.ask(ID, ALICE, JAVA, 0).wanted.subscription_id
    for nobody in (None, UUID(int=0), UUID(int=1)):
        assert push(instances, 1, id=nobody) is ErrorCode.INVALID_REQUEST
    refused = push(instances, 1, subscription_id=id, codec=5)
    assert refused is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_a_fresh_id_does_not_let_a_connection_push_more_often() -> None:
    instances, pace = subscribed(metrics="a."), PushPace()

    def push_anew(number: int, now_ms: float, *, terminating: bool = False) -> ErrorCode:
        id = UUID(int=number)
        wanted = instances.ask(id, ALICE, JAVA, now_ms).wanted.subscription_id
        return push(
            instances, now_ms, id=id, pace=pace, subscription_id=wanted, terminating=terminating
        )

    early = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert push_anew(10, 0) is ErrorCode.NONE
    assert push_anew(11, 1) is early
    assert push_anew(12, INTERVAL / 2) is ErrorCode.NONE  # clients spread theirs
    assert push_anew(13, INTERVAL / 2 + 1, terminating=True) is ErrorCode.NONE
    assert push_anew(14, INTERVAL / 2 + 2, terminating=True) is early
    assert push_anew(15, 5 * INTERVAL) is early  # it was the last of this connection


def test_a_long_client_id_is_not_kept_whole() -> None:
    instances = subscribed(metrics="a.", match="client_id=x+")
    instance = instances.ask(ID, ALICE, {"client_id": 30_000 * "x"}, 0)
    assert instance.wanted.metrics == ("a.",)
    assert instance.attributes == {"client_id": shortened(30_000 * "x")}


def test_an_instance_belongs_to_who_asked_first() -> None:
    instances = subscribed(metrics="a.")
    subscription = instances.ask(ID, ALICE, JAVA, 0).wanted.subscription_id
    for refused in (
        lambda: instances.ask(ID, EVE, JAVA, 2 * INTERVAL),
        lambda: instances.push(
            ID, EVE, JAVA, subscription, 0, terminating=True, pace=PushPace(), now_ms=2 * INTERVAL
        ),
    ):
        with pytest.raises(KafkaError) as error:
            refused()
        assert error.value.code is ErrorCode.INVALID_REQUEST
    assert push(instances, 3 * INTERVAL, subscription_id=subscription) is ErrorCode.NONE


def test_instances_expire_and_are_limited() -> None:
    instances = subscribed(metrics="a.")
    instances.ask(ID, ALICE, JAVA, 0)
    instances.ask(UUID(int=9), ALICE, JAVA, EXPIRY_MIN_MS)
    assert len(instances) == 1
    for number in range(INSTANCES_MAX + 5):
        instances.ask(UUID(int=100 + number), ALICE, JAVA, EXPIRY_MIN_MS)
    assert len(instances) == INSTANCES_MAX


@pytest.mark.parametrize(
    ("configs", "kind"),
    [
        ({"metric": "a"}, RefusedSubscription),
        ({"interval.ms": "99"}, RefusedSubscription),
        ({"interval.ms": "3600001"}, RefusedSubscription),
        ({"interval.ms": "soon"}, ConfigError),
        ({"match": "client_id"}, ConfigError),
        ({"match": "client_id="}, ConfigError),
        ({"match": "client_id=a=b"}, ConfigError),
        ({"match": "host=a"}, ConfigError),
        ({"match": "client_id=("}, ConfigError),
    ],
)
def test_a_wrong_subscription_is_refused(configs: dict[str, str], kind: type[Exception]) -> None:
    with pytest.raises(kind) as refused:
        subscription_of("s", configs)
    assert type(refused.value) is kind
