"""Keys of `ottla top`: what a terminal sends, where they lead, and that none of them ever breaks anything."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.client.group_admin import ListedGroup
from ottla.console.top.frame import interests
from ottla.console.top.keys import keys_in
from ottla.console.top.lines import text_of
from ottla.console.top.painting import COLOURS, Painter, colours
from ottla.console.top.partitions import PartitionList
from ottla.console.top.pressing import ALSO
from ottla.console.top.screen import MOVES
from ottla.console.top.screens import TABS
from ottla.console.watch.asking import GROUPS, TOPICS, listed, partition_of
from support.terminal import Screen
from support.top_scenes import (
    NOW,
    TopUser,
    apache_kafka,
    gone,
    large,
    nothing,
    well,
    without_broker_2,
)

CLUSTERS = [nothing(), well(), without_broker_2(), apache_kafka(), gone()]
SPECIAL = sorted({*MOVES, *ALSO, "enter", "esc", "tab", "backtab", "clear", "redraw", ""} - {"q"})
KEYS = st.one_of(st.sampled_from(SPECIAL), st.sampled_from("123456/srwe?gGkj o"), st.characters())
SIZES = st.tuples(st.integers(1, 200), st.integers(1, 60))


# What a terminal sends


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        ("a1/", ["a", "1", "/"]),
        ("\x1b[A\x1b[B\x1bOA", ["up", "down", "up"]),
        ("\x1b[5~\x1b[6~\x1b[H\x1b[F\x1b[1~\x1b[4~", ["pgup", "pgdn", "home", "end", "home", "end"]),
        ("\r\n\t\x1b[Z", ["enter", "enter", "tab", "backtab"]),
        ("\x7f\b\x15\x0c", ["backspace", "backspace", "clear", "redraw"]),
        ("\x1b[1;5A", ["up"]),
        ("\x1b[200~x", ["", "x"]),
        ("é支", ["é", "支"]),
    ],
)  # fmt: skip
def test_keys_are_known_by_what_terminals_send(sent: str, keys: list[str]) -> None:
    assert keys_in(sent) == (keys, "")


def test_an_escape_waits_for_what_may_follow() -> None:
    assert keys_in("x\x1b") == (["x"], "\x1b")
    assert keys_in("\x1b[") == ([], "\x1b[")
    assert keys_in("\x1b", is_all=True) == (["esc"], "")


@given(
    st.lists(st.sampled_from(["a", "\x1b[A", "\x1b[5~", "\x1bOP", "\r", "支"])), st.integers(0, 40)
)
def test_keys_that_arrive_in_pieces_are_the_same(sent: list[str], at: int) -> None:
    text = "".join(sent)
    first, rest = keys_in(text[:at])
    second, left = keys_in(rest + text[at:])
    assert (first + second, left) == keys_in(text)


# Where they lead


def test_a_tab_is_as_it_was_left() -> None:
    user = TopUser(well())
    user.press("2", "down", "down", "s", "1", "2")
    assert (user.state.view.screen, user.state.view.at, user.state.view.sort) == (
        "partitions",
        2,
        "partition",
    )
    user.press("backtab", "backtab")
    assert TABS[user.state.tab] == "wrong", "they go round"


def test_the_cursor_stays_on_its_row_when_others_come_before_it() -> None:
    model = well()
    user = TopUser(model)
    user.press("2", "down", "down")
    chosen = next(line for line in user.text.split("\n") if line.startswith(">"))
    user.model = without_broker_2()
    user.model.structure.all_topics([], user.model.version, NOW)
    assert ">" not in user.text, "a list without rows has no cursor"
    user.model = model
    user.press("s", "r")
    assert next(line for line in user.text.split("\n") if line.startswith(">")) == chosen


def test_words_are_typed_and_no_letter_is_a_command_then() -> None:
    user = TopUser(well())
    user.press("2", "/", *"quit")
    assert user.state.view.words == "quit"
    assert not user.state.is_over
    user.press("esc", "q")
    assert (user.state.view.words, user.state.is_over) == ("", True)


def test_what_is_looked_at_is_asked_for() -> None:
    user = TopUser(well())
    wanted = {}
    for tab in "1234":
        user.press(tab)
        wanted[tab] = interests(user.scene, user.state)
    assert wanted["1"] == set()
    assert listed(("orders", 0)) in wanted["2"]
    assert (wanted["3"], wanted["4"]) == ({GROUPS}, {TOPICS})
    user.press("2", "down", "enter")
    assert interests(user.scene, user.state) == {partition_of(("orders", 0))}


def test_of_many_partitions_only_those_are_looked_at_that_are_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = 0
    row = PartitionList.row

    def counting(*args: object) -> object:
        nonlocal looked
        looked += 1
        return row(*args)  # type: ignore[arg-type]

    user = TopUser(large(), 120, 40)
    user.press("2")
    assert "1 to 35 of 15,000" in user.text
    monkeypatch.setattr(PartitionList, "row", counting)
    for key in ("down", "pgdn", "end", "up", "home"):
        user.press(key)
        assert user.lines
    assert 0 < looked <= 5 * 35
    user.press("s", "G")
    assert "14,966 to 15,000 of 15,000" in user.text


# Nothing breaks


@given(SIZES, st.lists(st.tuples(st.sampled_from(range(len(CLUSTERS))), KEYS), max_size=25))
@example(
    (80, 24), [(2, "2"), (2, "end"), (2, "enter"), (0, "enter"), (1, "e"), (3, "esc"), (0, "down")]
)
def test_no_keys_break_it_whatever_happens_to_the_cluster_meanwhile(
    size: tuple[int, int], pressed: list[tuple[int, str]]
) -> None:
    user = TopUser(CLUSTERS[0], *size)
    for cluster, key in pressed:
        user.model = CLUSTERS[cluster]
        user.press(key)
        assert user.lines  # asserts that they fit


@given(st.lists(st.tuples(st.sampled_from(range(len(CLUSTERS))), KEYS), max_size=12))
def test_what_is_written_again_makes_the_same_picture_as_all_of_it(
    pressed: list[tuple[int, str]],
) -> None:
    user, painter, screen = TopUser(CLUSTERS[1], 90, 20), Painter(256), Screen(90, 20)
    for cluster, key in pressed:
        user.model = CLUSTERS[cluster]
        user.press(key)
        screen.feed(painter.paint(user.lines))
        assert screen.lines == [text_of(line).rstrip() for line in user.lines]


def test_only_lines_that_changed_are_written() -> None:
    user, painter = TopUser(well(), 90, 20), Painter(256)
    whole = painter.paint(user.lines)
    assert painter.paint(user.lines) == ""
    user.press("down")
    assert 0 < len(painter.paint(user.lines)) < len(whole) / 2
    painter.forget()
    assert len(painter.paint(user.lines)) >= len(whole)


def test_a_name_rules_no_terminal() -> None:
    model = well()
    model.consumers.listed(
        [ListedGroup("\x1b[2J\x9b1m\r\nevil", "Stable", "consumer", "consumer", 1)]
    )
    user = TopUser(model)
    user.press("3")
    assert "evil" in user.text
    assert not [char for char in user.text.replace("\n", "") if not char.isprintable()]
    user.press("enter")
    assert not [char for char in user.text.replace("\n", "") if not char.isprintable()]


# Colours


def test_without_colours_there_are_none_but_all_is_told() -> None:
    user = TopUser(without_broker_2())
    assert colours({"NO_COLOR": "1", "TERM": "xterm-256color"}) == 0
    assert colours({"TERM": "xterm-256color"}) == 256
    assert colours({"TERM": "vt100"}) == 8
    seen = {}
    for many in (0, 8, 256):
        screen = Screen(100, 24)
        screen.feed(Painter(many).paint(user.lines))
        seen[many] = screen
    assert seen[0].lines == seen[256].lines
    assert seen[0].colours <= {"0", "1", "2", "7"}, "bold, dim, reversed"
    assert [code for code in seen[256].colours if "38;5" in code]


def test_colours_can_be_read_on_dark_and_on_light_terminals() -> None:
    for style, number in COLOURS.items():
        light = _luminance(number)
        contrasts = (light + 0.05) / 0.05, 1.05 / (light + 0.05)
        assert min(contrasts) >= 4 - 0.1, (style, contrasts)


def _luminance(number: int) -> float:
    """Of one of the 256 colours of xterm, as WCAG counts it."""
    levels = (0, 95, 135, 175, 215, 255)
    parts = [levels[(number - 16) // step % 6] / 255 for step in (36, 6, 1)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return sum(factor * part for factor, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
