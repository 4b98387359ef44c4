"""The whole screen: what is wrong now, where we are, the list or the page, and what keys do there."""

from __future__ import annotations

from typing import NamedTuple

from ottla.console.model.flow import CLUSTER, FlowRates
from ottla.console.model.problems import count
from ottla.console.model.rows import BrokerStanding
from ottla.console.model.structure import THE
from ottla.console.top.figures import age, amount, sparkline
from ottla.console.top.lines import (
    Cell,
    Line,
    Span,
    Style,
    apart,
    cut,
    cut_in_the_middle,
    line,
    text_of,
    width_of,
)
from ottla.console.top.picture import Picture, Scene, Size
from ottla.console.top.screens import SCREENS, TABS, screen_of
from ottla.console.top.views import TopState, View
from ottla.console.top.wrong import ALL_IS_WELL, MARKS, worst
from ottla.console.watch.asking import Interest
from ottla.diagnosis.words import clock

PROBLEMS_SHOWN = 3
IN, OUT = 2, 3
"""Where they are in a point of the rates of the cluster."""
SPARKS = 10
WHOLE_ROWS = 18
"""A terminal with fewer has room for one problem only."""
WAY = " › "


class Framed(NamedTuple):
    above: list[Line]
    height: int
    """Of what is between the head and the foot."""


def frame(scene: Scene, state: TopState) -> list[Line]:
    """As many lines as the terminal has rows, none wider than it."""
    columns, rows = scene.size
    framed = framing(scene, state)
    body = screen_of(state).drawn(scene, state.view, framed.height)
    body += [()] * (framed.height - len(body))
    lines = [*framed.above, *body[: framed.height], _foot(scene, state, framed.height)]
    return [cut(each, columns) for each in lines[:rows]]


def framing(scene: Scene, state: TopState) -> Framed:
    picture, (columns, rows) = scene.picture, scene.size
    shown = PROBLEMS_SHOWN if rows >= WHOLE_ROWS else 1
    above = [
        _title(picture, columns),
        *_wrong_now(picture, columns, shown),
        _way(picture, state, columns),
    ]
    return Framed(above, max(1, rows - len(above) - 1))


def interests(scene: Scene, state: TopState) -> set[Interest]:
    """What must be asked often for this screen."""
    height = framing(scene, state).height
    return set(screen_of(state).interests(scene, state.view, height))


# The head


def _title(picture: Picture, width: int) -> Line:
    parts: list[tuple[int, Cell]] = [(0, Span("ottla top", Style.STRONG)), *_facts(picture)]
    time = Span(clock(picture.now_ms, picture.now_ms).partition(".")[0], Style.DIM)

    def whole() -> Line:
        return line(
            *(cell for at, (_, part) in enumerate(parts) for cell in ("   " * (at > 0), part))
        )

    while width_of(whole()) + width_of(line(time)) + 1 > width and len(parts) > 1:
        parts.remove(max(parts, key=lambda each: each[0]))
    return apart(whole(), line(time), width)


def _facts(picture: Picture) -> list[tuple[int, Cell]]:
    """What fits goes into the title; of two, the one with the lower number."""
    model = picture.model
    if not len(model.brokers):
        return [(1, picture.target)]
    facts: list[tuple[int, Cell]] = [(5, f"cluster {model.cluster[THE].cluster_id or '?'}")]
    up = sum(row.standing is BrokerStanding.UP for row in model.brokers.values())
    style = Style.PLAIN if up == len(model.brokers) else Style.BAD
    facts.append((1, Span(f"{up} of {len(model.brokers)} brokers", style)))
    if model.cluster[THE].answers is False:  # all else is what was once so
        return facts
    quorum = model.quorum.get(THE)
    if quorum is not None:
        who = f"controller {quorum.leader}" if quorum.leader >= 0 else "no controller"
        facts.append((2, Span(who, Style.PLAIN if quorum.leader >= 0 else Style.BAD)))
    totals = model.structure.totals.get(THE)
    if totals is not None:
        told = f"{count(totals.topics, 'topic')}, {count(totals.partitions, 'partition')}"
        facts.append((4, told))
    points = model.flow.rates.points(CLUSTER)
    now = _rates(picture)
    for name, rate, at in (("in", now.bytes_in, IN), ("out", now.bytes_out, OUT)):
        if rate is not None:
            facts.append((3, f"{name} {amount(rate)}/s"))
            if spark := sparkline([point[at] for point in points], SPARKS).strip():
                facts.append((6, Span(spark, Style.ACCENT)))
    return facts


def _rates(picture: Picture) -> FlowRates:
    """As in the newest point of the history; where there is none, as they are added up now."""
    flow = picture.model.flow
    newest = flow.rates.newest(CLUSTER)
    if newest is None or newest[IN] is None:
        return flow.now
    return FlowRates(*newest[1:])


def _wrong_now(picture: Picture, width: int, most: int) -> list[Line]:
    model = picture.model
    problems = worst(picture)
    if not problems:
        if model.structure.totals.get(THE) is None:
            return [line(Span(f" Asking {picture.target} …", Style.DIM))]
        return [line(Span(f" ✓ {ALL_IS_WELL}", Style.GOOD))]
    shown = problems[:most]
    more = len(problems) - len(shown)
    lines = []
    for at, row in enumerate(shown):
        since = age(row.since_ms, picture.now_ms)
        if more and at == len(shown) - 1:
            since = f"{since}   and {more} more (6)"
        left = line(" ", MARKS[row.severity], " ", Span(row.text, Style.STRONG), f" {row.why}")
        lines.append(apart(left, line(Span(since, Style.DIM)), width))
    return lines


def _way(picture: Picture, state: TopState, width: int) -> Line:
    """The lists that there are; of what was opened from them, the way there."""
    if state.opened:
        way = WAY.join(_named(view) for view in (state.tabs[state.tab], *state.opened))
        return cut_in_the_middle(line(Span(f" {way}", Style.ACCENT)), width)
    wrong = len(picture.model.problems)
    names = [f"{name} {wrong}" if name == "wrong" and wrong else name for name in TABS]
    texts = [f" {at} {name} " for at, name in enumerate(names, 1)]
    if sum(map(len, texts)) > width:
        texts = [f"{at} {name} " for at, name in enumerate(names, 1)]
    styles = [Style.CHOSEN if at == state.tab else Style.DIM for at in range(len(TABS))]
    return line(*map(Span, texts, styles))


def _named(view: View) -> str:
    return SCREENS[view.screen].title(view.scope)


# The foot


def _foot(scene: Scene, state: TopState, height: int) -> Line:
    view, width = state.view, scene.size.columns
    standing = screen_of(state).standing(scene, view, height)
    right = line(Span(standing, Style.DIM))
    if state.is_typing:
        return apart(
            line(Span(f"/{view.words}", Style.STRONG), Span(" ", Style.CHOSEN)), right, width
        )
    if scene.picture.note:
        return apart(line(Span(scene.picture.note, Style.WARN)), right, width)
    limits = [
        f"words: {view.words}" if view.words else "",
        "only what is wrong" if view.wrong_only else "",
    ]
    if any(limits):
        limited = Span("  ".join(each for each in limits if each) + "   ", Style.WARN)
        return apart(line(limited, _keys(state)), right, width)
    return apart(line(_keys(state)), right, width)


def _keys(state: TopState) -> Span:
    keys = "? help   q end   / words   w wrong only   s sort   e explain   Enter more"
    return Span(f"Esc back   {keys}" if state.opened else keys, Style.DIM)


# Elsewhere than on a terminal


def as_text(scene: Scene, state: TopState) -> str:
    """One screen with all its rows."""
    picture, width = scene.picture, scene.size.columns
    rows = 1 << 30
    wrong = _wrong_now(picture, width, rows)
    whole = scene._replace(size=Size(width, rows), cursor=False)
    body = screen_of(state).drawn(whole, state.view, rows)
    lines = [_title(picture, width), *wrong, (), *body]
    return "\n".join(text_of(each).rstrip() for each in lines)
