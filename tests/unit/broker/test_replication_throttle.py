"""Which replicas are held back, and for how long."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.replication.throttle import NO_ROOM_REST_S, ReplicationThrottle
from ottla.config import ConfigError, Settings, validate_topic_config
from ottla.log.room import Level, Room

SETTINGS = Settings.of(
    {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@127.0.0.1:9093",
    }
)
NO_LIMIT = 2**63 - 1


def partition(
    isr: tuple[int, ...] = (2,),
    replicas: tuple[str, ...] = ("0:1",),
    proposed: tuple[int, ...] | None = None,
) -> Any:
    config = SimpleNamespace(
        leader_throttled_replicas=replicas, follower_throttled_replicas=replicas
    )
    log = SimpleNamespace(config=config, room=Room("/"))
    leadership = (
        None
        if proposed is None
        else SimpleNamespace(isr_changes=SimpleNamespace(maximal_isr=(*isr, *proposed)))
    )
    return SimpleNamespace(partition=0, isr=isr, log=log, leadership=leadership)


def test_a_follower_that_is_behind_rests_until_its_rate_is_kept() -> None:
    throttle = ReplicationThrottle(SETTINGS)
    assert throttle.rest(partition(), 10_000, 0.0, True) == 0.0, "no rate, no rest"
    throttle.set_rates(NO_LIMIT, 1000)
    assert throttle.rest(partition(), 3000, 0.0, True) == pytest.approx(2.0)
    assert throttle.rest(partition(replicas=("*",)), 1000, 4.0, True) == 0.0
    assert throttle.rest(partition(isr=(1, 2)), 99_000, 4.0, True) == 0.0, "it is in sync"
    assert throttle.rest(partition(replicas=("0:2", "1:1")), 99_000, 4.0, True) == 0.0, "not named"


def test_a_leader_holds_back_whoever_is_behind_and_nobody_else() -> None:
    throttle = ReplicationThrottle(SETTINGS)
    assert not throttle.limits_leaders
    throttle.set_rates(1000, NO_LIMIT)
    assert throttle.limits_leaders
    led = partition(isr=(1, 2))
    assert throttle.allowance(led, 3, 0.0) > 0
    throttle.sent(led, 2, 99_000, 0.0)
    assert throttle.allowance(led, 3, 0.0) > 0, "what those in sync get does not count"
    throttle.sent(led, 3, 3000, 0.0)
    assert throttle.allowance(led, 3, 1.0) == 0 and throttle.allowance(led, 2, 1.0) > 0
    assert throttle.allowance(partition(isr=(1, 2), replicas=()), 3, 1.0) > 0
    assert throttle.allowance(led, 3, 3.0) > 0


def test_P39_whoever_producers_are_about_to_wait_for_is_not_held_back() -> None:
    """The high watermark waits for a follower from its proposal on, long before its own node hears of it."""
    throttle = ReplicationThrottle(SETTINGS)
    throttle.set_rates(1000, 1000)
    follows = partition()
    assert throttle.rest(follows, 9000, 0.0, False) == 0.0, "it has all that is committed"
    assert throttle.rest(follows, 1, 0.0, True) > 0.0, "and yet that counts"
    throttle.sent(partition(proposed=()), 3, 9000, 0.0)
    assert throttle.allowance(partition(proposed=()), 3, 0.0) == 0
    assert throttle.allowance(partition(proposed=(3,)), 3, 0.0) == NO_LIMIT


def test_P39_a_follower_that_is_behind_gets_small_pieces() -> None:
    throttle = ReplicationThrottle(SETTINGS)
    throttle.set_rates(10_000_000, NO_LIMIT)
    led = partition(isr=(1, 2))
    assert throttle.allowance(led, 3, 0.0) == 500_000, "what it may have in a twentieth of a second"
    assert throttle.allowance(led, 2, 0.0) == NO_LIMIT, "who is in sync is not held up"


@pytest.mark.parametrize("rate", [500, 2000])
def test_P39_another_rate_is_kept_from_its_first_second_on(rate: int) -> None:
    """No burst to make up for what was slower before, and no standstill for what was faster."""
    throttle = ReplicationThrottle(SETTINGS)
    throttle.set_rates(1000, 1000)
    led, follows = partition(isr=(1, 2)), partition()
    for second in range(10):
        throttle.sent(led, 3, 1000, second)
        throttle.rest(follows, 1000, second, True)
    throttle.set_rates(rate, rate)
    throttle.sent(led, 3, rate, 10.0)
    assert throttle.rest(follows, rate, 10.0, True) == pytest.approx(1.0)
    assert throttle.allowance(led, 3, 10.9) == 0 and throttle.allowance(led, 3, 11.0) > 0


def test_a_rate_of_nothing_is_very_slow() -> None:
    throttle = ReplicationThrottle(SETTINGS)
    throttle.set_rates(0, 0)
    assert throttle.rest(partition(), 1000, 0.0, True) == pytest.approx(999.0)


@pytest.mark.parametrize("value", ["0", "0:1,2", "*,0:1", "a:b", "0:1:2"])
def test_replicas_are_named_by_partition_and_broker(value: str) -> None:
    for name in ("leader", "follower"):
        key = f"{name}.replication.throttled.replicas"
        for right in ("", "*", "0:1", "0:1,12:3"):
            validate_topic_config({key: right})
        with pytest.raises(ConfigError, match="is not partition:broker"):
            validate_topic_config({key: value})


def test_a_follower_without_room_on_its_disk_rests_whatever_the_rates_are() -> None:
    throttle = ReplicationThrottle(SETTINGS)
    copied = partition()
    assert throttle.rest(copied, 100, 0.0, True) == 0.0
    copied.log.room.level = Level.NONE
    assert throttle.rest(copied, 0, 0.0, True) == NO_ROOM_REST_S
    copied.log.room.level = Level.SCARCE
    assert throttle.rest(copied, 0, 0.0, True) == 0.0
