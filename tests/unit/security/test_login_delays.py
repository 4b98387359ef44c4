"""Delays of failed logins: they double for an address that goes on failing, and the table of addresses is bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.security.failures import FORGOTTEN_S, FailureDelays

FIRST_S, LONGEST_S = 0.1, 10.0
SIZE = 5

HOSTS = st.sampled_from([f"10.0.0.{n}" for n in range(12)])
STEPS = st.lists(st.tuples(HOSTS, st.floats(0.0, 2 * FORGOTTEN_S)), max_size=200)


def test_the_delay_doubles_from_the_first_to_the_longest() -> None:
    delays = FailureDelays(LONGEST_S)
    found = [delays.failed("10.0.0.7", FIRST_S, float(n)) for n in range(10)]
    assert found == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0, 10.0]


def test_another_address_is_not_delayed_for_it() -> None:
    delays = FailureDelays(LONGEST_S)
    for _ in range(10):
        delays.failed("10.0.0.7", FIRST_S, 0.0)
    assert delays.failed("10.0.0.8", FIRST_S, 0.0) == FIRST_S


def test_who_was_quiet_for_a_minute_begins_anew() -> None:
    delays = FailureDelays(LONGEST_S)
    for _ in range(10):
        delays.failed("10.0.0.7", FIRST_S, 0.0)
    assert delays.failed_lately("10.0.0.7", FORGOTTEN_S - 0.1)
    assert not delays.failed_lately("10.0.0.7", FORGOTTEN_S)
    assert not delays.failed_lately("10.0.0.8", 0.0)
    assert delays.failed("10.0.0.7", FIRST_S, FORGOTTEN_S - 0.1) == LONGEST_S
    assert delays.failed("10.0.0.7", FIRST_S, 2 * FORGOTTEN_S) == FIRST_S


def test_the_addresses_of_one_ipv6_network_count_as_one() -> None:
    delays = FailureDelays(LONGEST_S)
    assert delays.failed("2001:db8::1", FIRST_S, 0.0) == 0.1
    assert delays.failed("2001:db8::ffff:2", FIRST_S, 0.0) == 0.2
    assert delays.failed("2001:db8:0:1::1", FIRST_S, 0.0) == 0.1
    assert delays.failed("::ffff:10.0.0.7", FIRST_S, 0.0) == 0.1
    assert delays.failed("::ffff:10.0.0.8", FIRST_S, 0.0) == 0.1
    assert delays.failed("10.0.0.7", FIRST_S, 0.0) == 0.2


def test_no_delay_stays_none_however_often_somebody_fails() -> None:
    delays = FailureDelays(LONGEST_S)
    assert {delays.failed("10.0.0.7", 0.0, 0.0) for _ in range(3000)} == {0.0}


@given(STEPS)
def test_it_is_what_a_list_of_all_failures_says(steps: list[tuple[str, float]]) -> None:
    """The model remembers everything; the table forgets only whoever failed longest ago."""
    delays = FailureDelays(LONGEST_S, SIZE)
    model: dict[str, tuple[int, float]] = {}
    now = 0.0
    for host, passed in steps:
        now += passed
        times, last = model.pop(host, (0, now))
        times = times if now - last < FORGOTTEN_S else 0
        if len(model) == SIZE:
            del model[min(model, key=lambda each: model[each][1])]
        model[host] = times + 1, now
        delay = delays.failed(host, FIRST_S, now)
        assert FIRST_S <= delay <= LONGEST_S
        assert delay == min(FIRST_S * 2**times, LONGEST_S)
        assert len(delays) == len(model) <= SIZE
