"""When a node that does not lead stops waiting: for its leader, for votes, or for another candidate.

Every time but the fetch timeout is drawn at random, so that two voters rarely stand at the same moment.
"""

from __future__ import annotations

import math
from random import Random

from ottla.raft.roles import Timing

BACKOFF_BASE_S = 0.05


class ElectionTimer:
    def __init__(self, timing: Timing, random: Random) -> None:
        self.deadline = math.inf
        self._timing = timing
        self._random = random
        self._retries = 0
        """Elections lost since the last sign of a leader."""

    def stop(self) -> None:
        self.deadline = math.inf

    def wait(self, seconds: float, now: float) -> None:
        self.deadline = now + seconds

    def wait_for_election(self, now: float) -> None:
        self.deadline = now + self._timing.election_timeout * (1 + self._random.random())

    def wait_for_voters(self, now: float) -> None:
        """As a follower that is no voter: long enough for others to miss their leader, and to win."""
        timing = self._timing
        self.wait(
            timing.fetch_timeout + 3 * timing.election_timeout * (1 + self._random.random()), now
        )

    def leader_is_there(self) -> None:
        self._retries = 0

    def early(self, now: float) -> None:
        """No leader is left to wait for. After a lost election the wait is longer, so that another voter can win first."""
        jitter = self._timing.early_jitter_max * self._random.random()
        wait = jitter if self._retries == 0 else self._backoff()
        self.deadline = min(self.deadline, now + wait)

    def election_lost(self, now: float) -> None:
        self._retries += 1
        self.deadline = min(self.deadline, now + self._backoff())

    def _backoff(self) -> float:
        """Grows with every lost election, so that voters with slow links stop standing at the same moment."""
        limit = min(
            self._timing.election_backoff_max, BACKOFF_BASE_S * 2.0 ** min(self._retries, 10)
        )
        return limit * self._random.random()

    def let_candidate_try(self, now: float) -> None:
        """We granted a pre-vote, or repeated a vote: wait a little so that the candidate can win."""
        grace = BACKOFF_BASE_S * (1 + self._random.random())
        self.deadline = max(self.deadline, now + grace)

    def let_successors_try(self, count: int, now: float) -> None:
        """The leader resigned and prefers `count` others: they stand first."""
        self._retries = max(self._retries, 1)
        wait = BACKOFF_BASE_S * 2.0 ** min(count, 10) * (1 + self._random.random())
        self.wait(min(wait, self._timing.fetch_timeout), now)
