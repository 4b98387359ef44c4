"""Loads over a minute, an hour and a day, and when they are acted upon."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.balance.load import (
    DAY,
    HOUR,
    MINUTE,
    BrokerLoad,
    ClusterLoads,
    LoadCounters,
    LoadHistory,
    LoadRates,
    PartitionTraffic,
    read_load,
    read_loads,
    summed,
)
from ottla.balance.pace import LEAST, MEGABYTE, MOST, START, Copied, CopyPace
from ottla.balance.patience import Patience
from ottla.wire import messages
from ottla.wire.apis import ApiKey


def counters(at: float, bytes_in: int) -> LoadCounters:
    return LoadCounters(at, bytes_in, 2 * bytes_in, 0, 0, 0, at / 2, 0)


def load(leaders: int = 1, rate: float = 0.0) -> BrokerLoad:
    rates = {window: LoadRates(bytes_in=rate) for window in (MINUTE, HOUR, DAY)}
    return BrokerLoad(leaders, 2, 3, 4, 5, rates)


def test_P38_each_window_has_its_own_average() -> None:
    """A day at 100 bytes a second, then an hour at 1,000, then a minute of silence."""
    history = LoadHistory()
    total, at = 0, 0.0
    for rate, seconds in ((100, 86_400), (1000, 3600), (0, 60)):
        for _ in range(seconds // 10):
            at += 10
            total += rate * 10
            history.add(counters(at, total))
    rates = history.rates(counters(at, total))
    assert rates[MINUTE].bytes_in == 0
    assert rates[HOUR].bytes_in == pytest.approx(1000 * 3540 / 3600, rel=0.02)
    assert rates[DAY].bytes_in == pytest.approx((100 * 82_740 + 1000 * 3600) / 86_400, rel=0.02)
    assert rates[DAY].bytes_out == pytest.approx(2 * rates[DAY].bytes_in)
    assert rates[MINUTE].cpu == pytest.approx(0.5)


def test_P38_a_young_broker_says_what_it_knows() -> None:
    history = LoadHistory()
    assert history.rates(counters(5.0, 100))[DAY] == LoadRates()
    history.add(counters(5.0, 0))
    assert history.rates(counters(7.0, 100))[DAY].bytes_in == 50
    assert history.seconds(counters(7.0, 100)) == 2.0, "and for how long it has looked"


def test_P38_a_history_of_a_month_is_short() -> None:
    history = LoadHistory()
    for sample in range(30 * 8640):
        history.add(counters(sample * 10.0, sample))
    assert sum(len(kept) for kept in history._kept.values()) < 200


@given(st.integers(0, 1 << 60), st.floats(0, 1e12))
def test_P38_a_load_travels_as_text(leaders: int, rate: float) -> None:
    sent = load(leaders, rate)
    got = read_load(sent.as_text())
    assert got is not None
    assert got.leaders == leaders
    assert got.rates[HOUR].bytes_in == pytest.approx(rate, abs=0.001)


@pytest.mark.parametrize("text", ["", "[]", "{}", "[1,2,3,4,5,[]]", "[1,2,3,4,5,[[1],[1],[0,0,0,0,0,0,0,0]]]", "\x00", "[Infinity,2,3,4,5,[]]", "[" * 2000])  # fmt: skip
def test_P38_what_is_no_load_is_none(text: str) -> None:
    assert read_load(text) is None


def test_P38_a_new_controller_knows_all_after_the_next_heartbeats() -> None:
    first, second = ClusterLoads(), ClusterLoads()
    for broker in (1, 2):
        first.heard(broker, load(broker, 100.0 * broker).as_text(), 1.0)
    for broker in (1, 2):
        second.heard(broker, load(broker, 100.0 * broker).as_text(), 3.0)
    assert first.of([1, 2, 3]) == second.of([1, 2, 3])
    assert read_loads(second.as_text([2], 4.0)) == {2: load(2, 200.0)}


def test_P38_what_a_thousand_brokers_carry_fits_into_one_answer() -> None:
    loads = ClusterLoads()
    for broker in range(1000):
        loads.heard(broker, load(broker, 1e9).as_text(), 1.0)
    key, version = ApiKey.BROKER_HEARTBEAT, 2
    text = loads.as_text(range(1000), 2.0)
    data = messages.write_response(key, version, {"ottla_loads": text.encode()})
    answer = messages.read_response(key, version, memoryview(data), 0)
    assert len(read_loads(answer.ottla_loads.decode())) == 1000


def test_P38_what_is_too_long_for_a_load_is_not_kept() -> None:
    loads = ClusterLoads()
    loads.heard(1, "x" * 30_000, 1.0)
    assert loads.as_text([1], 2.0) == "[]"


def test_P38_a_rack_carries_what_its_brokers_carry() -> None:
    both = summed([load(1, 10.0), load(5, 20.0)])
    assert both.leaders == 6
    assert both.rates[DAY].bytes_in == 30


def test_P38_the_traffic_of_a_partition_forgets_slowly() -> None:
    traffic = PartitionTraffic(0.0, 1000, 0)
    traffic.add(60.0, 7000, 600)
    assert (traffic.rate_in, traffic.rate_out) == pytest.approx((100.0, 10.0))
    for minute in range(2, 600):
        traffic.add(60.0 * minute, 7000, 600)
    assert traffic.rate_in < 0.001


def test_P38_a_partition_that_was_idle_is_as_if_it_had_been_looked_at() -> None:
    looked_at, let_alone = PartitionTraffic(0.0, 0, 0), PartitionTraffic(0.0, 0, 0)
    for minute in range(1, 20):
        looked_at.add(60.0 * minute, 0, 0)
    for traffic in (looked_at, let_alone):
        traffic.add(1200.0, 1_200_000, 0)
    assert let_alone.rate_in == pytest.approx(1000.0)
    assert looked_at.rate_in == pytest.approx(1000.0, rel=0.5)


# Patience and pace


def test_P39_only_what_stays_out_of_balance_is_acted_upon() -> None:
    patience = Patience(100.0)
    seen = [(0, True), (60, True), (90, False), (95, True), (150, True), (195, True), (196, True)]
    assert [at for at, is_out in seen if patience.look(at, is_out=is_out)] == [195]


def test_P39_copying_slows_down_when_producers_wait_and_speeds_up_again() -> None:
    pace = CopyPace(quiet_s=0.01)
    assert pace.read(0.05) == START // 2
    assert pace.read(0.018) == START // 2, "a little more than the quiet one is allowed"
    assert pace.read(0.011) > START // 2
    for _ in range(5):
        pace.read(0.05)
    assert pace.rate == LEAST
    for _ in range(100):
        pace.read(None)
    assert pace.rate == MOST


def test_P39_copying_that_was_once_too_fast_becomes_faster_slowly() -> None:
    pace = CopyPace(quiet_s=0.01)
    assert pace.read(0.01) == pytest.approx(1.5 * START)
    assert pace.read(0.01, is_settled=False) == pytest.approx(1.5 * START), "it has to settle first"
    assert pace.read(0.05, is_settled=False) == pytest.approx(0.75 * START), (
        "and slows down at once"
    )
    assert pace.read(0.01) == pytest.approx(0.75 * 1.1 * START)


@dataclass
class Moving:
    """Copying to one broker, with producers that write meanwhile. Copying beyond `harmless` makes them wait."""

    pace: CopyPace
    left: float
    seconds: float = 0.0
    moved: float = 0.0

    def go_on(
        self, *, written: float, harmless: float, possible: float = MOST, longest: float = 600.0
    ) -> Iterator[int]:
        """Half a second after the other. All in bytes per second."""
        until = self.seconds + longest
        while self.left > 0 and self.seconds < until:
            copied = min(self.pace.rate, possible) / 2
            self.seconds += 0.5
            self.moved += copied
            self.left += written / 2 - copied
            told = Copied(self.seconds, int(self.moved), int(self.left))
            yield self.pace.read(0.02 if 2 * copied > harmless else 0.004, told)


def test_P39_copying_that_does_not_come_nearer_to_its_end_gets_more_whatever_the_latency() -> None:
    moving = Moving(CopyPace(quiet_s=0.005), 2000 * MEGABYTE)
    for rate in moving.go_on(written=15 * MEGABYTE, harmless=4 * MEGABYTE):
        assert rate <= 40 * MEGABYTE, "no more than it takes"
    assert moving.left <= 0, "it never ends"


def test_P39_a_rate_that_is_not_used_is_not_what_is_too_low() -> None:
    """A disk copies 12 MB in a second, and producers write 15."""
    moving = Moving(CopyPace(quiet_s=0.005), 2000 * MEGABYTE)
    for rate in moving.go_on(
        written=15 * MEGABYTE, harmless=4 * MEGABYTE, possible=12 * MEGABYTE, longest=120
    ):
        assert rate <= 24 * MEGABYTE


def test_P39_a_rate_that_producers_made_necessary_falls_when_they_are_calm_again() -> None:
    moving = Moving(CopyPace(quiet_s=0.005), 1e12)
    *_, rate = moving.go_on(written=60 * MEGABYTE, harmless=20 * MEGABYTE, longest=60)
    assert rate > 60 * MEGABYTE
    *_, rate = moving.go_on(written=1 * MEGABYTE, harmless=20 * MEGABYTE, longest=60)
    assert rate <= 22 * MEGABYTE


def test_P39_the_rate_stays_while_nothing_arrives_at_all() -> None:
    """Its destination is down, or has no room: then no latency tells whether a higher rate would do."""
    pace = CopyPace(quiet_s=0.005)
    while pace.rate < 4 * START:
        pace.read(0.005)
    found = pace.read(0.05, Copied(1.0, 1000, 1))
    for second in range(2, 200):
        pace.read(0.005, Copied(second, 1000, 1))
    assert pace.rate == found


def test_P39_a_wait_that_copying_does_not_cause_is_not_held_against_it() -> None:
    pace = CopyPace(quiet_s=0.001)
    for _ in range(5):
        pace.read(0.048)
    assert pace.rate == LEAST
    assert "producers wait 48 ms, more than the 10 ms that are allowed" in (pace.held_by or "")
    for _ in range(40):
        pace.read(0.048)
    assert pace.rate > LEAST, "so long are the waits at the lowest rate, too"
    assert pace.held_by is None
    for _ in range(10):
        pace.read(0.2)
    assert pace.rate == LEAST, "and more than that is too much again"
