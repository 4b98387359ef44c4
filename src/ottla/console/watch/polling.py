"""How often something is asked: seldom while nobody looks, never so often that it loads the cluster or this process, at once
when there is reason to believe that the answer has changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ottla.client.connections import Unreachable
from ottla.wire.errors import ErrorCode, InvalidFrame, KafkaError

logger = logging.getLogger(__name__)

LOST = (KafkaError, OSError, Unreachable, InvalidFrame)
"""How a question fails in a cluster that is in trouble. A TimeoutError is an OSError."""
NO_RIGHT = (
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
"""The user may not know the answer, or not any more."""
DENIED = (*NO_RIGHT, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.SECURITY_DISABLED)
"""To ask again soon would not help."""
DENIED_S = 60.0
SOON_S = 0.05
REST_MAX_S = 15.0
"""Most of a long time was spent waiting for somebody who has died: that is no reason to look away for minutes."""
BACKOFF_S = 0.25
BACKOFF_MAX_S = 5.0


def lacks_right(error: BaseException) -> bool:
    return isinstance(error, KafkaError) and error.code in NO_RIGHT


class Poll:
    """Asks one question again and again."""

    def __init__(
        self,
        what: str,
        ask: Callable[[], Awaitable[None]],
        every_s: Callable[[], float],
        *,
        rest: float = 20.0,
        after: asyncio.Event | None = None,
        forget: Callable[[], None] | None = None,
    ) -> None:
        """`every_s`: the pause between two questions, now. `rest`: an answer that takes a second is followed by at least so
        many seconds of rest, so that a large or slow cluster is asked less often. A hurried question rests a tenth of that. `after`: what must
        have happened before the first question. `forget`: called when the user has no right to the answer: what was known before
        must not be shown any longer."""
        self.what = what
        self._ask = ask
        self._every_s = every_s
        self._rest = rest
        self._after = after
        self._forget = forget
        self._hurried = asyncio.Event()
        self._failures = 0
        self.asked = 0
        """How often, for tests and for who wonders what this costs."""
        self._over = 0
        """So many of these were answered, or have failed."""
        self._answered = asyncio.Event()

    def hurry(self) -> None:
        """There is reason to believe that the answer has changed."""
        self._hurried.set()

    async def answer(self) -> None:
        """Ask anew, as soon as may be; returns when that is answered, or has failed."""
        wanted = self.asked + 1
        self.hurry()
        while self._over < wanted:
            await self._answered.wait()

    async def run(self, answered: Callable[[], None]) -> None:
        """For ever. `answered` is called after each question, also one that failed: that is news, too."""
        if self._after is not None:
            await self._after.wait()
        while True:
            began = asyncio.get_running_loop().time()
            self._hurried.clear()
            least_s = 0.0
            try:
                self.asked += 1
                await self._ask()
                self._failures = 0
            except LOST as error:
                self._failures += 1
                least_s = min(BACKOFF_S * 2 ** min(self._failures, 10), BACKOFF_MAX_S)
                if isinstance(error, KafkaError) and error.code in DENIED:
                    least_s = DENIED_S
                if lacks_right(error) and self._forget is not None:
                    self._forget()
                logger.debug("a question was not answered what=%s error=%s", self.what, error)
            except Exception:
                self._failures += 1
                least_s = BACKOFF_MAX_S
                logger.exception("a question failed what=%s", self.what)
            self._over = self.asked
            now, self._answered = self._answered, asyncio.Event()
            now.set()
            answered()
            took_s = asyncio.get_running_loop().time() - began
            await self._pause(took_s, least_s)

    async def _pause(self, took_s: float, least_s: float) -> None:
        rest_s = min(took_s * self._rest, REST_MAX_S)
        first_s = max(least_s, SOON_S, rest_s / 10)
        await asyncio.sleep(first_s)
        try:
            async with asyncio.timeout(max(0.0, self._every_s() - first_s, rest_s - first_s)):
                await self._hurried.wait()
        except TimeoutError:
            return
