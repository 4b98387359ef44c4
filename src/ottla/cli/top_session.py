"""A terminal that shows a cluster: keys in, pictures out, and what the system does to a program on a terminal.

What comes from outside (keys, signals, news of the cluster) is noted and wakes one loop, `TopSession.run`. What is shown and what
keys do is decided in `ottla.console.top`.
"""

from __future__ import annotations

import asyncio
import codecs
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial

from ottla.cli.terminal import Keyboard, PictureTerminal
from ottla.console.top.frame import frame, interests
from ottla.console.top.keys import keys_in
from ottla.console.top.painting import ENTER, LEAVE, Painter
from ottla.console.top.picture import Explained, Orders, Picture, Scene, Size
from ottla.console.top.pressing import press
from ottla.console.top.views import TopState
from ottla.console.watch.asking import Interest
from ottla.console.watch.cluster_watch import ClusterWatch
from ottla.runtime.seams import Clock

logger = logging.getLogger(__name__)

ESCAPE_S = 0.05
"""An escape that nothing follows for so long is the key Esc."""
AT_FIRST_S = 2.0
"""So long after somebody came to a screen everything is shown at once."""
NOTHING_TAKEN_S = 0.1
"""How often a terminal that takes nothing is tried."""
LEAVING_S = 0.5
"""How long it may take nothing at the end."""
READ_BYTES = 4096
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Explain = Callable[[str], Awaitable[str]]


class TopSession:
    def __init__(
        self,
        watch: ClusterWatch,
        clock: Clock,
        state: TopState,
        explain: Explain,
        *,
        target: str,
        interval_s: float,
        colours: int,
    ) -> None:
        """`explain` finds the words for `partition:orders-0` and the like."""
        self._watch = watch
        self._clock = clock
        self._state = state
        self._explain = explain
        self._target = target
        self._interval_s = interval_s
        self._keyboard = Keyboard()
        self._terminal = PictureTerminal()
        self._painter = Painter(colours)
        self._orders = Orders()
        self._told: dict[str, Explained] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._looks: dict[Interest, ExitStack] = {}
        self._looked_at: object = None
        self._note = ""
        self._keys: list[str] = []
        self._received = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._wake = asyncio.Event()
        self._is_due = True
        """Whether there is something new to see."""
        self._is_stopping = False
        self._ended_by = 0
        self._came_at = self._drawn_at = 0.0
        self._wrong_drawn = 0

    async def run(self) -> int:
        """Until somebody ends it. Returns the signal that did; 0 for a key."""
        loop = asyncio.get_running_loop()
        handlers: dict[signal.Signals, Callable[[], None]] = {
            **{each: partial(self._end, each) for each in ENDING},
            signal.SIGWINCH: self._begin_anew,
            signal.SIGTSTP: self._stop,
            signal.SIGCONT: self._enter,
        }
        following = asyncio.create_task(self._follow())
        with self._notes():
            self._enter()
            loop.add_reader(self._keyboard.fd, self._read)
            for number, handler in handlers.items():
                loop.add_signal_handler(number, handler)
            try:
                await self._go_on()
            finally:
                loop.remove_reader(self._keyboard.fd)
                for number in handlers:
                    loop.remove_signal_handler(number)
                self._leave()
                await self._forget_all(following)
        return self._ended_by

    async def _go_on(self) -> None:
        while not self._ended_by and not self._state.is_over:
            if self._is_stopping:
                self._is_stopping = False
                self._pause()
            pressed = self._press_all()
            if self._is_due:
                self._draw()
            self._look(at_once=not pressed)
            await self._wake.wait()
            self._wake.clear()

    # What comes from outside

    def _read(self) -> None:
        try:
            data = os.read(self._keyboard.fd, READ_BYTES)
        except OSError:
            data = b""
        if not data:  # the terminal is gone
            self._end(signal.SIGHUP)
            return
        received = self._received + self._decoder.decode(data)
        self._take_keys(received, is_all=False)
        if self._received:
            loop = asyncio.get_running_loop()
            loop.call_later(ESCAPE_S, self._nothing_follows, self._received)

    def _nothing_follows(self, received: str) -> None:
        if self._received == received:
            self._take_keys(received, is_all=True)

    def _take_keys(self, received: str, *, is_all: bool) -> None:
        keys, self._received = keys_in(received, is_all=is_all)
        self._keys += keys
        self._wake.set()

    def _end(self, by: int) -> None:
        self._ended_by = by
        self._wake.set()

    def _stop(self) -> None:
        self._is_stopping = True
        self._wake.set()

    async def _follow(self) -> None:
        """News are shown every so often. What is wrong is shown at once, and so are the first answers for a screen."""
        loop, seen = asyncio.get_running_loop(), 0
        while True:
            left_s = self._drawn_at + self._interval_s - loop.time()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(left_s, 0.01)):
                    seen = await self._watch.changed(seen)
            now = loop.time()
            is_new = now < self._came_at + AT_FIRST_S
            is_time = is_new or now >= self._drawn_at + self._interval_s
            if is_time or self._watch.model.problems.changed != self._wrong_drawn:
                self._show()

    def _show(self) -> None:
        self._is_due = True
        self._wake.set()

    # The terminal

    def _enter(self) -> None:
        self._keyboard.begin()
        self._terminal.write(ENTER)
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Somebody else wrote to the terminal, or its size is another."""
        self._painter.forget()
        self._show()

    def _leave(self) -> None:
        with suppress(OSError):
            if self._terminal.takes(LEAVING_S):
                self._terminal.write(LEAVE)
        self._keyboard.end()

    def _pause(self) -> None:
        """Ctrl-Z: who takes the whole terminal gives it back before he stops."""
        loop = asyncio.get_running_loop()
        self._leave()
        loop.remove_signal_handler(signal.SIGTSTP)
        os.kill(os.getpid(), signal.SIGTSTP)  # here it stops, until somebody continues it
        loop.add_signal_handler(signal.SIGTSTP, self._stop)
        self._enter()

    # What is shown

    def _scene(self) -> Scene:
        model, now_ms = self._watch.model, self._clock.wall_ms()
        picture = Picture(model, now_ms, self._target, self._told, self._note)
        return Scene(picture, Size(*self._terminal.size), self._orders)

    def _draw(self) -> None:
        loop = asyncio.get_running_loop()
        if not self._terminal.takes():
            loop.call_later(NOTHING_TAKEN_S, self._wake.set)
            return
        self._is_due = False
        self._drawn_at = loop.time()
        self._wrong_drawn = self._watch.model.problems.changed
        try:
            self._terminal.write(self._painter.paint(frame(self._scene(), self._state)))
        except OSError:  # the terminal is gone, and its signal is on its way
            self._end(signal.SIGHUP)

    def _press_all(self) -> bool:
        """Whether there were keys."""
        keys, self._keys = self._keys, []
        for key in keys:
            if key == "redraw":
                self._painter.forget()
            if key == "e" and self._state.view.screen == "explain":
                self._told.pop(self._state.view.scope, None)
            self._state = press(self._scene(), self._state, key)
        if keys:
            self._note = ""
            self._is_due = True
            self._explain_what_is_open()
        return bool(keys)

    def _look(self, *, at_once: bool) -> None:
        """Say what is looked at, so that it is asked for. Not with each key: who scrolls looks at nothing for long."""
        where = (self._state.view.screen, self._state.view.scope)
        if where != self._looked_at:
            self._came_at = asyncio.get_running_loop().time()
        elif not at_once:
            return
        self._looked_at = where
        wanted = interests(self._scene(), self._state)
        for gone in self._looks.keys() - wanted:
            self._looks.pop(gone).close()
        for each in wanted - self._looks.keys():
            self._looks[each] = ExitStack()
            self._looks[each].enter_context(self._watch.looking(each))

    # Explanations

    def _explain_what_is_open(self) -> None:
        wanted = {each.scope for each in self._state.opened if each.screen == "explain"}
        for gone in self._told.keys() - wanted:
            del self._told[gone]
        for about in wanted - self._told.keys():
            self._told[about] = Explained()
            if about not in self._asking:
                self._asking[about] = asyncio.create_task(self._find_out(about))

    async def _find_out(self, about: str) -> None:
        try:
            text = await self._explain(about)
        except Exception as error:
            logger.exception("an explanation failed about=%s", about)
            text = f"It could not be found out: {error!r}."
        del self._asking[about]
        if about in self._told:
            self._told[about] = Explained(text)
            self._show()

    async def _forget_all(self, following: asyncio.Task[None]) -> None:
        for each in self._looks.values():
            each.close()
        tasks = [following, *self._asking.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # What goes wrong here

    @contextmanager
    def _notes(self) -> Iterator[None]:
        """What would be written into the picture is shown in its last line."""
        handler = _Notes(self._take_note)
        root = logging.getLogger()
        root.addHandler(handler)
        try:
            yield
        finally:
            root.removeHandler(handler)

    def _take_note(self, text: str) -> None:
        self._note = text
        self._show()


class _Notes(logging.Handler):
    def __init__(self, take: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._take = take

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self._take(record.getMessage() + ("" if error is None else f" error={error!r}"))
