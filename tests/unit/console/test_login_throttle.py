"""Who guesses passwords waits, longer and longer; who knows one does not."""

from __future__ import annotations

from ottla.console.web.login_throttle import (
    FORGOTTEN_AFTER_S,
    FREE,
    KEPT_MAX,
    WAIT_MAX_S,
    LoginThrottle,
)


def refuse(throttle: LoginThrottle, times: int, address: str = "a", name: str = "alice") -> None:
    for _ in range(times):
        throttle.tries(address, name, 0.0)


def test_people_may_mistype_a_few_times() -> None:
    throttle = LoginThrottle()
    refuse(throttle, FREE - 1)
    assert throttle.wait_s("a", "alice", 0.0) == 0


def test_each_refusal_doubles_the_wait_up_to_a_limit() -> None:
    throttle = LoginThrottle()
    refuse(throttle, FREE)
    assert throttle.wait_s("a", "alice", 0.0) == 2
    refuse(throttle, 1)
    assert throttle.wait_s("a", "alice", 0.0) == 4
    assert throttle.wait_s("a", "alice", 3.5) == 0.5
    assert throttle.wait_s("a", "alice", 4.0) == 0
    refuse(throttle, 50)
    assert throttle.wait_s("a", "alice", 0.0) == WAIT_MAX_S


def test_one_name_from_many_addresses_and_many_names_from_one_address_wait_too() -> None:
    throttle = LoginThrottle()
    for number in range(FREE):
        throttle.tries(f"a{number}", "alice", 0.0)
        throttle.tries("b", f"user{number}", 0.0)
    assert throttle.wait_s("elsewhere", "alice", 0.0) > 0
    assert throttle.wait_s("b", "somebody", 0.0) > 0
    assert throttle.wait_s("elsewhere", "somebody", 0.0) == 0


def test_whoever_is_let_in_need_not_wait_but_his_address_stays_counted() -> None:
    throttle = LoginThrottle()
    refuse(throttle, FREE)
    throttle.let_in("b", "alice")
    assert throttle.wait_s("elsewhere", "alice", 0.0) == 0
    assert throttle.wait_s("a", "bob", 0.0) > 0


def test_refusals_are_forgotten_after_a_while() -> None:
    throttle = LoginThrottle()
    refuse(throttle, FREE + 5)
    later = FORGOTTEN_AFTER_S + 1
    assert throttle.wait_s("a", "alice", later) == 0
    throttle.tries("a", "alice", later)
    assert throttle.wait_s("a", "alice", later) == 0


def test_any_number_of_refusals_can_be_counted() -> None:
    throttle = LoginThrottle()
    refuse(throttle, 3000)
    assert throttle.wait_s("a", "alice", 0.0) == WAIT_MAX_S


def test_what_is_under_way_is_a_refusal_until_it_is_let_in() -> None:
    throttle = LoginThrottle()
    for _ in range(100):
        throttle.tries("office", "alice", 0.0)
        throttle.let_in("office", "alice")
    assert throttle.wait_s("office", "alice", 0.0) == 0
    refuse(throttle, FREE - 1, "office")
    throttle.tries("office", "alice", 0.0)
    throttle.not_tried("office", "alice")  # the cluster was down
    assert throttle.wait_s("office", "alice", 0.0) == 0


def test_where_most_are_let_in_nobody_waits_for_those_who_mistype() -> None:
    throttle = LoginThrottle()
    for number in range(50):
        throttle.tries("office", f"user{number}", 0.0)
        throttle.tries("office", f"user{number}", 0.0)
        throttle.let_in("office", f"user{number}")
    assert throttle.wait_s("office", "alice", 0.0) == 0
    for number in range(FREE + 1):
        throttle.tries("office", f"guess{number}", 0.0)
    assert throttle.wait_s("office", "alice", 0.0) > 0


def test_who_was_let_in_here_does_not_wait_for_guesses_elsewhere() -> None:
    throttle = LoginThrottle()
    throttle.tries("home", "alice", 0.0)
    throttle.let_in("home", "alice")
    refuse(throttle, 20, "far")
    assert throttle.wait_s("home", "alice", 0.0) == 0
    throttle.tries("home", "alice", 0.0)
    throttle.let_in("home", "alice")
    assert throttle.wait_s("far2", "alice", 0.0) > 0, "what was guessed elsewhere stays counted"


def test_it_remembers_a_bounded_number() -> None:
    throttle = LoginThrottle()
    for number in range(KEPT_MAX):
        throttle.tries(f"a{number}", f"u{number}", 0.0)
        throttle.let_in(f"a{number}", f"v{number}")
        throttle.let_in(f"b{number}", f"v{number}")
        throttle.tries(f"a{number}", f"u{number}", 0.0)
    assert len(throttle._refusals) == KEPT_MAX
    assert len(throttle._known) == KEPT_MAX
