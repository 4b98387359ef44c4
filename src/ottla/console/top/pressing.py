"""What keys do: from where somebody is to where he is then."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.console.top.frame import framing
from ottla.console.top.picture import Scene
from ottla.console.top.screen import MOVES
from ottla.console.top.screens import TABS, screen_of
from ottla.console.top.views import TopState, View

ALSO = {
    "k": "up",
    "j": "down",
    "g": "home",
    "G": "end",
    " ": "pgdn",
    "left": "backtab",
    "right": "tab",
    "h": "?",
    "f1": "?",
    "backspace": "esc",
}
"""Keys that do the same as others, unless words are typed."""


def press(scene: Scene, state: TopState, key: str) -> TopState:
    """An unknown key does nothing."""
    if key in MOVES:
        return _moved(scene, state, key)
    if state.is_typing:
        return _typed(state, key)
    key = ALSO.get(key, key)
    if key in MOVES:
        return _moved(scene, state, key)
    if key.isdecimal() and 0 < int(key) <= len(TABS):
        return state.to_tab(int(key) - 1)
    act = _KEYS.get(key)
    return state if act is None else act(scene, state)


def _moved(scene: Scene, state: TopState, key: str) -> TopState:
    height = framing(scene, state).height
    return state.with_view(screen_of(state).moved(scene, state.view, height, key))


def _enter(scene: Scene, state: TopState) -> TopState:
    height = framing(scene, state).height
    opened = screen_of(state).opens(scene, state.view, height)
    return state if opened is None else state.open(opened)


def _explain(scene: Scene, state: TopState) -> TopState:
    height = framing(scene, state).height
    about = screen_of(state).about(scene, state.view, height)
    return state.open(View("explain", about)) if about else state


def _back(scene: Scene, state: TopState) -> TopState:
    if state.opened:
        return state.back()
    return state.with_view(state.view._replace(words="", wrong_only=False))


def _type(scene: Scene, state: TopState) -> TopState:
    return state._replace(words_before=state.view.words)


def _typed(state: TopState, key: str) -> TopState:
    words = state.view.words
    match key:
        case "enter":
            return state._replace(words_before=None)
        case "esc":
            before = state.words_before or ""
            return state.with_view(state.view._replace(words=before))._replace(words_before=None)
        case "backspace":
            words = words[:-1]
        case "clear":
            words = ""
        case _ if len(key) == 1 and key.isprintable():
            words += key
    return state.with_view(state.view._replace(words=words, top=0))


def _sort(scene: Scene, state: TopState) -> TopState:
    return state.with_view(screen_of(state).sorted_next(state.view))


def _reverse(scene: Scene, state: TopState) -> TopState:
    return state.with_view(state.view._replace(reverse=not state.view.reverse))


def _wrong_only(scene: Scene, state: TopState) -> TopState:
    return state.with_view(state.view._replace(wrong_only=not state.view.wrong_only, top=0))


_KEYS: Mapping[str, Callable[[Scene, TopState], TopState]] = {
    "tab": lambda scene, state: state.to_tab(state.tab + 1),
    "backtab": lambda scene, state: state.to_tab(state.tab - 1),
    "enter": _enter,
    "esc": _back,
    "e": _explain,
    "/": _type,
    "s": _sort,
    "r": _reverse,
    "w": _wrong_only,
    "?": lambda scene, state: state.open(View("help")),
    "q": lambda scene, state: state._replace(is_over=True),
}
