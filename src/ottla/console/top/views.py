"""Where somebody is, and how he came there."""

from __future__ import annotations

from typing import Any, NamedTuple


class View(NamedTuple):
    """A screen as somebody looks at it."""

    screen: str
    scope: Any = None
    """What it is limited to, or about: see the screen."""
    cursor: Any = None
    """The key of the row that was chosen. The cursor stays on it wherever it goes; None: on the first row, whichever that is."""
    at: int = 0
    """Where the cursor was last, in case its row goes away."""
    top: int = 0
    """The first line or row that is seen."""
    sort: str = ""
    """The head of a column; empty: the order that the screen finds best."""
    reverse: bool = False
    words: str = ""
    """Only rows with all these words."""
    wrong_only: bool = False


class TopState(NamedTuple):
    tabs: tuple[View, ...]
    """The lists, each as it was left."""
    tab: int = 0
    opened: tuple[View, ...] = ()
    """What was opened from there, each from the one before."""
    words_before: str | None = None
    """While words to look for are typed: those that were there before."""
    is_over: bool = False

    @property
    def view(self) -> View:
        return self.opened[-1] if self.opened else self.tabs[self.tab]

    @property
    def is_typing(self) -> bool:
        return self.words_before is not None

    def with_view(self, view: View) -> TopState:
        """The same place, looked at in another way."""
        if self.opened:
            return self._replace(opened=(*self.opened[:-1], view))
        return self._replace(tabs=(*self.tabs[: self.tab], view, *self.tabs[self.tab + 1 :]))

    def open(self, view: View) -> TopState:
        same = (view.screen, view.scope)
        if any((each.screen, each.scope) == same for each in self.opened[-1:]):
            return self
        return self._replace(opened=(*self.opened, view))

    def back(self) -> TopState:
        return self._replace(opened=self.opened[:-1])

    def to_tab(self, tab: int) -> TopState:
        return self._replace(tab=tab % len(self.tabs), opened=())
