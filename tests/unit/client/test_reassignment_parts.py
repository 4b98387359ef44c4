"""The parts of moves that need no cluster: files, who copies from whom, latencies in metrics, throttles as people write them."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest

from ottla.balance.pace import CopyPace
from ottla.cli.errors import Failure
from ottla.cli.reassign import parse_throttle
from ottla.client.admin import BROKER, DescribedPartition
from ottla.client.client import Client
from ottla.client.http_pages import metrics_address
from ottla.client.model import Metadata, Reassignment
from ottla.client.move_pace import TOLD_AFTER_S, patiently
from ottla.client.produce_latency import p99, read_buckets
from ottla.client.reassigning import MoveHistory, MoveProgress, PartitionMove, leaderless
from ottla.client.reassignment_file import BadReassignmentFile, read, written
from ottla.client.throttled_moves import Copying, MoveThrottle, NamedReplicas, copying
from ottla.wire.errors import ErrorCode, KafkaError


def test_P39_what_is_written_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(written({("t", 1): [2, 3], ("t", 0): (1,)}, {(2, "t", 1): "/data"}))
    plan = read(str(file))
    assert plan.targets == {("t", 0): [1], ("t", 1): [2, 3]}
    assert plan.directories == {(2, "t", 1): "/data"}
    plan.check()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nothing", "not valid JSON"),
        ("[]", "not a valid JSON"),
        ('{"version":2}', "Not supported version"),
        ('{"version":1,"partitions":[{"topic":"t"}]}', "cannot be read"),
        ('{"version":1,"partitions":[]}', "cannot be empty"),
        ('{"partitions":[{"topic":"t","partition":0,"replicas":[]}]}', "cannot be empty"),
        ('{"partitions":[{"topic":"t","partition":0,"replicas":[1,1]}]}', "multiple entries for 1"),
        (
            '{"partitions":[{"topic":"t","partition":0,"replicas":[1],"log_dirs":[]}]}',
            "different from size",
        ),
    ],
)
def test_P39_a_file_that_cannot_be_done_is_refused_in_words(
    tmp_path: Path, text: str, why: str
) -> None:
    file = tmp_path / "plan.json"
    file.write_text(text)
    with pytest.raises(BadReassignmentFile, match=why):
        read(str(file)).check()


def test_P39_the_new_replicas_are_throttled_and_those_that_have_the_records() -> None:
    active = {("t", 1): Reassignment("t", 1, (4, 1, 2), (4,), (2,))}
    moves = copying({("t", 0): [2, 3]}, active, {("t", 0): [1, 2]})
    assert moves == {("t", 0): Copying({1, 2}, {3}), ("t", 1): Copying({1, 2}, {4})}


def test_P39_the_latency_is_that_of_what_was_answered_since() -> None:
    page = [
        'ottla_request_seconds_bucket{api="Produce",phase="total",le="0.001"} 100',
        'ottla_request_seconds_bucket{api="Produce",phase="total",le="0.05"} 198',
        'ottla_request_seconds_bucket{api="Produce",phase="total",le="+Inf"} 200',
        'ottla_request_seconds_bucket{api="Produce",phase="queue",le="0.001"} 7',
        'ottla_request_seconds_bucket{api="Fetch",phase="total",le="0.001"} 9',
    ]
    now = read_buckets(page)
    assert now == {0.001: 100, 0.05: 198, float("inf"): 200}
    assert p99({}, {1: now}) == 0.05
    before = {0.001: 100, 0.05: 190, float("inf"): 190}
    assert p99({1: before}, {1: now}) == 0.05, "slower than the last bound that is known"
    assert p99({1: now}, {1: now}) is None
    assert p99({}, {1: now}, enough=201) is None


def test_P39_the_latency_is_that_of_all_brokers_and_lies_between_two_bounds() -> None:
    fast = {0.01: 1000, 0.02: 1000, math.inf: 1000}
    slow = {0.01: 0, 0.02: 100, math.inf: 100}
    assert p99({}, {1: fast}) == pytest.approx(0.0099)
    assert p99({}, {1: fast, 2: slow}) == pytest.approx(0.01 + 0.01 * 89 / 100)
    assert p99({2: slow}, {1: fast, 2: slow}) == pytest.approx(0.0099), "long ago"
    restarted = {0.01: 0, 0.02: 50, math.inf: 50}
    assert p99({2: slow}, {2: restarted}) == pytest.approx(0.01 + 0.01 * 49.5 / 50)


@pytest.mark.parametrize(
    ("setting", "address"),
    [
        ("HTTP://127.0.0.1:9404", ("127.0.0.1", 9404)),
        ("HTTP://0.0.0.0:9404,HTTP://h:1", ("broker", 9404)),
        ("", None),
        (None, None),
    ],
)
def test_the_address_of_metrics_is_read_from_the_setting(
    setting: str | None, address: tuple[str, int] | None
) -> None:
    assert metrics_address(setting, "broker") == address


def test_P39_throttles_are_written_as_people_write_them() -> None:
    assert parse_throttle("500000") == 500_000
    assert parse_throttle("20M") == parse_throttle("20MB/s") == 20_000_000
    assert parse_throttle("1.5g") == 1_500_000_000
    assert parse_throttle("none") is None
    assert isinstance(parse_throttle("auto"), CopyPace)
    for wrong in ("", "fast", "-1", "0", "1e999"):
        with pytest.raises(Failure, match="give auto, none or bytes"):
            parse_throttle(wrong)


def test_P39_the_end_of_a_move_is_not_nearer_than_its_throttle_allows() -> None:
    """Lately is no measure: a throttle lets a burst through first."""
    megabyte = 1_000_000
    move = {("t", 0): PartitionMove(10 * megabyte, 100 * megabyte, False)}
    coming = {4: 90 * megabyte}
    burst = MoveProgress(move, 1.0, 10.0 * megabyte, megabyte, None, None, coming)
    assert burst.seconds_left == 90
    assert burst._replace(rate=0.5 * megabyte).seconds_left == 180
    assert burst._replace(throttle=None).seconds_left == 9
    assert burst._replace(rate=0.0).seconds_left is None


def test_P39_what_producers_add_to_a_replica_that_has_arrived_is_no_progress() -> None:
    history, facts = MoveHistory(), {"throttle": None, "latency_s": None}
    for second in range(3):
        done = PartitionMove(1000 + 50 * second, 1000 + 50 * second, True)
        stands = PartitionMove(10, 500, False)
        found = history.report({("t", 0): done, ("t", 1): stands}, {}, float(second), facts)
    assert not history.progress
    assert (found.rate, found.moved, found.total) == (0.0, 1010, 1500)


def test_P39_who_waits_for_longer_than_a_moment_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def answered_after(seconds: float) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()

        async def attempt() -> None:
            if loop.time() < began + seconds:
                raise ConnectionError("nobody listens")

        await patiently(attempt)

    asyncio.run(answered_after(0.3))
    assert caplog.messages == []
    asyncio.run(answered_after(TOLD_AFTER_S + 0.5))
    assert caplog.messages == ["the cluster does not answer, asking it again why=nobody listens"]


def test_P39_a_throttle_names_pairs_of_partition_and_broker() -> None:
    moves = {
        ("t", 0): Copying({1, 2}, {3}),
        ("t", 10): Copying({1}, {3, 4}),
        ("u", 0): Copying({1}, {2}),
    }
    names = NamedReplicas.of("t", moves)
    assert names == NamedReplicas(
        frozenset({"0:1", "0:2", "10:1"}), frozenset({"0:3", "10:3", "10:4"})
    )
    assert (names.destinations(0), names.destinations(10), names.destinations(1)) == (
        {3},
        {3, 4},
        set(),
    )
    assert names.without(names.of_partitions([10])) == NamedReplicas.of(
        "t", {("t", 0): moves["t", 0]}
    )
    assert not names.without(names)
    assert NamedReplicas(frozenset({"*"}), frozenset()).has_all


def test_P39_a_move_leads_from_the_old_replicas_to_the_new_ones() -> None:
    """Both are its replicas meanwhile, and neither a plan nor the way back may take all of them."""
    move = Reassignment("t", 0, (3, 4, 1, 2), (3, 4), (1, 2))
    assert (move.start, move.goal) == ((1, 2), (3, 4))


def test_P39_a_partition_that_nobody_can_copy_is_named_with_the_broker_that_has_its_records() -> (
    None
):
    led = DescribedPartition(0, 1, (1, 4), (1,), (), ())
    by_isr = DescribedPartition(1, -1, (4, 2), (4,), None, None)
    by_elr = DescribedPartition(2, -1, (4, 2), (), (4,), ())
    unknown = DescribedPartition(3, -1, (4, 2), (), (), ())
    assert leaderless({("t", 0): led}) is None
    for each in (by_isr, by_elr):
        why = leaderless({("t", 0): led, ("t", each.partition): each})
        assert why is not None
        assert f"t-{each.partition} has no leader to copy from until broker 4" in why
    assert leaderless({("t", 3): unknown}) == "t-3 has no leader to copy from (ottla explain t-3)"


class Configs:
    """An admin that notes whose rates it takes away; through a broker that answers so."""

    def __init__(self, answer: ErrorCode) -> None:
        self._answer = answer
        self.removed: list[str] = []

    async def alter_configs(
        self, changes: dict[tuple[int, str], Any], *, through_others: bool = False
    ) -> None:
        ((kind, name),) = changes
        assert kind == BROKER and through_others
        if self._answer is not ErrorCode.NONE:
            raise KafkaError(self._answer)
        self.removed.append(name)


@pytest.mark.parametrize(
    ("answer", "stays"),
    [
        (ErrorCode.NONE, []),
        (ErrorCode.INVALID_REQUEST, [4]),
        (ErrorCode.BROKER_ID_NOT_REGISTERED, []),
    ],
)
def test_P39_the_rates_of_a_dead_broker_are_removed_through_others_where_these_take_it(
    monkeypatch: pytest.MonkeyPatch, answer: ErrorCode, stays: list[int]
) -> None:
    """ottla's brokers do, Apache Kafka's do not."""

    async def nobody(topics: object) -> Metadata:
        return Metadata(None, (), ())

    async def removed() -> list[int]:
        client: Any = Client.__new__(Client)
        monkeypatch.setattr(client, "metadata", nobody, raising=False)
        throttle = MoveThrottle.__new__(MoveThrottle)
        monkeypatch.setattr(throttle, "_client", client, raising=False)
        monkeypatch.setattr(throttle, "_admin", configs, raising=False)
        assert await throttle.limited_brokers([4]) == [4], "it cannot be asked, and had a rate"
        assert await throttle.limited_brokers() == []
        return await throttle.unlimit([4])

    configs = Configs(answer)
    assert asyncio.run(removed()) == stays
    assert configs.removed == (["4"] if answer is ErrorCode.NONE else [])
