"""What `ottla top` does.

People look at it for a moment, so its first screen shall be there at once: it starts without the command-line library, which takes
a third of that time, as long as its options are written plainly. Whatever else is written is left to that library.
"""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.errors import USAGE, Failure
from ottla.cli.reaching import Target, advice_on_security, client_maker, target

if TYPE_CHECKING:
    from ottla.console.top.picture import Scene
    from ottla.console.top.views import TopState
    from ottla.console.watch.cluster_watch import ClusterWatch

FIRST_SCREEN = "brokers"
INTERVAL_S, INTERVAL_S_MIN, INTERVAL_S_MAX = 1.0, 0.1, 3600.0
TIMEOUT_S = 10.0
QUESTION_S = 5.0
"""At most so long for one question; the next one is asked anyway."""
RATES = ("metrics", "offsets", "ends", "groups")
"""The questions whose answers make rates, by a second look."""
ADDRESSES_SHOWN = 3


class TopOptions(NamedTuple):
    screen: str = FIRST_SCREEN
    interval_s: float = INTERVAL_S
    once: bool = False
    bootstrap: str | None = None
    dir: Path | None = None
    command_config: Path | None = None
    timeout_s: float = TIMEOUT_S
    is_json: bool = False


def plain_options(words: Sequence[str]) -> TopOptions | None:
    """Of words that are written plainly; None of all others, also of those that are wrong."""
    options, named = TopOptions(), False
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--once":
            options = options._replace(once=True)
        elif word.isalpha() and not named:
            options, named = options._replace(screen=word), True
        elif not left or left[0].startswith("-"):
            return None
        elif word in ("-b", "--bootstrap"):
            options = options._replace(bootstrap=left.pop(0))
        elif word == "--dir":
            options = options._replace(dir=Path(left.pop(0)))
        elif word == "--command-config":
            options = options._replace(command_config=Path(left.pop(0)))
        else:
            return None
    return options


def run_top(options: TopOptions) -> None:
    from ottla.console.top.screens import TABS, beginning

    if options.screen not in TABS:
        raise Failure(f"no screen {options.screen}; there are: {', '.join(TABS)}", USAGE)
    cluster = WatchedCluster(options)
    state = beginning(options.screen)
    if options.once or options.is_json or not _is_for_people():
        asyncio.run(_once(cluster, state, options))
    elif ended_by := asyncio.run(_live(cluster, state, options)):
        _end_as(ended_by)


def _is_for_people() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def _end_as(number: int) -> None:
    """Whoever waits for this process learns why it ended. Ctrl-C is one of the ways that people end it."""
    if number != signal.SIGINT:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


class WatchedCluster:
    """Which cluster it is, and how it is reached."""

    def __init__(self, options: TopOptions) -> None:
        self._named = options.bootstrap, options.dir
        self._target: Target = target(options.bootstrap, options.dir, options.command_config)
        self._connect = client_maker(self._target, client_id="ottla-top", timeout_s=QUESTION_S)

    @property
    def name(self) -> str:
        reached = self._target.addresses
        more = len(reached) - ADDRESSES_SHOWN
        shown = ", ".join(f"{host}:{port}" for host, port in reached[:ADDRESSES_SHOWN])
        return f"{shown} and {more} more" if more > 0 else shown

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[ClusterWatch]:
        """That nobody answers is an error at first; later it is news."""
        from ottla.console.watch.cluster_watch import ClusterWatch
        from ottla.runtime.real import RealClock
        from ottla.wire.errors import KafkaError

        watch = ClusterWatch(self._connect, RealClock())
        with advice_on_security(self._target), suppress(KafkaError):
            await watch.client.describe_cluster()
        async with watch:
            yield watch

    async def explain(self, about: str) -> str:
        """The words of `ottla explain` for `partition:orders-0` and the like."""
        from ottla.cli.explain import looking_around
        from ottla.client.connections import Unreachable
        from ottla.diagnosis.explaining import Subject, explained, situation
        from ottla.runtime.real import RealClock
        from ottla.wire.errors import KafkaError

        subject = Subject.of(about)
        assert subject is not None, about
        client = self._connect()
        try:
            here, commands = looking_around(*self._named)()
            now = await situation(client, RealClock(), self._target.addresses, here)
            found = await explained(subject, now, commands)
        except (Unreachable, OSError, KafkaError) as error:
            return f"It cannot be found out now: {error or 'no answer in time'}."
        finally:
            client.connections.close()
        if not found:
            return f"There is no {about.replace(':', ' ', 1)} any more."
        return "\n\n".join(each.text() for each in found)


async def _live(cluster: WatchedCluster, state: TopState, options: TopOptions) -> int:
    """Returns the signal that ended it, if one did."""
    from ottla.cli.top_session import TopSession
    from ottla.console.top.painting import colours
    from ottla.runtime.real import RealClock

    async with cluster.watch() as watch:
        session = TopSession(
            watch,
            RealClock(),
            state,
            cluster.explain,
            target=cluster.name,
            interval_s=options.interval_s,
            colours=colours(os.environ),
        )
        return await session.run()


async def _once(cluster: WatchedCluster, state: TopState, options: TopOptions) -> None:
    """When every question was answered, and those about rates twice; or the time is over."""
    from ottla.console.top.frame import as_text, interests
    from ottla.console.top.lines import UNLIMITED
    from ottla.console.top.picture import Orders, Picture, Scene, Size
    from ottla.console.top.snapshot import snapshot
    from ottla.runtime.real import RealClock

    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdecimal() else 0

    async with cluster.watch() as watch:

        def scene() -> Scene:
            picture = Picture(watch.model, RealClock().wall_ms(), cluster.name)
            return Scene(picture, Size(width or UNLIMITED, sys.maxsize), Orders(), cursor=False)

        with suppress(TimeoutError), ExitStack() as looks:
            async with asyncio.timeout(options.timeout_s + options.interval_s):
                await asyncio.gather(*(poll.answer() for poll in watch.polls.values()))
                for interest in interests(scene(), state):
                    looks.enter_context(watch.looking(interest))
                await asyncio.sleep(options.interval_s)
                await asyncio.gather(*(watch.polls[what].answer() for what in RATES))
                await watch.history()
        watch.model.settle(RealClock().wall_ms())
        if options.is_json:
            from ottla.cli.output import print_json

            print_json(snapshot(scene().picture))
        else:
            if isinstance(sys.stdout, io.TextIOWrapper):
                sys.stdout.reconfigure(errors="replace")  # not every terminal and file is UTF-8
            print(as_text(scene(), state), flush=True)
