"""Profiles: runs that go where most runs never come.

Most seeds draw from everything. Some states need several rare things at once, and fifty seeds of that kind may
not meet one of them; a seed that has a profile makes them likely and leaves all else to chance. A profile favours
a state of the protocol, not a mistake: what is wrong there is for the checkers to say.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ottla.sim.faults.registry import Rate, kinds

if TYPE_CHECKING:
    from ottla.sim.run.options import RunOptions

RATE = 0.25
"""Of the seeds without groups, that have one of these profiles."""

AMBUSH, TUG, MANY_PARTITIONS = "ambush", "tug", "many partitions"
BROAD, GROUPS, TABLE = "broad", "groups", "table"
"""What the others are called: everything from everything; groups and transactions; with a compacted topic."""
NAMES = (BROAD, GROUPS, TABLE, AMBUSH, TUG, MANY_PARTITIONS)

NEVER = str(2**63 - 1)


def _ambush(options: RunOptions, chance: random.Random) -> None:
    """A machine loses its power, and unflushed records with it, just when it is to join an ISR, and is back before
    anybody who decides about that has heard of it."""
    options.topics = [("t0", chance.choice((1, 2)), 3, chance.choice((1, 2)))]
    options.topic_settings |= {
        "segment.bytes": "1073741824",
        "flush.ms": NEVER,
        "unclean.leader.election.enable": "false",
    }
    options.topic_settings.pop("retention.bytes", None)
    options.settings |= {
        "log.flush.scheduler.interval.ms": NEVER,
        "broker.session.timeout.ms": "9000",
    }
    options.careless = 0
    options.rounds_per_s = chance.choice((2.0, 6.0))
    options.faults.every_s = 1.5
    # Hardly anything else: who is to be in sync again at once must be able to.
    options.faults.weights = {chance.choice(kinds(Rate.MOST_RUNS)): 1}
    options.faults.favour("ambush")


def _tug(options: RunOptions, chance: random.Random) -> None:
    """Two replicas that do not hear of each other lead in turn, and write: logs part in several short epochs, and
    producers try again at leaders that have cut what they wrote."""
    factor = 3 if options.nodes == 3 else chance.choice((2, 3))
    options.topics = [("t0", chance.choice((1, 2)), factor, 1)]
    options.topic_settings["unclean.leader.election.enable"] = "false"
    options.topic_settings.pop("retention.bytes", None)
    options.settings |= {
        "replica.lag.time.max.ms": "30000",
        "broker.session.timeout.ms": "9000",
        "leader.imbalance.check.interval.seconds": "300",
    }
    options.producers, options.careless, options.restless = 2, 1, True
    options.backoff_s = chance.choice((0.1, 0.5, 2.0))
    options.rounds_per_s = 15.0
    options.faults.every_s = 5.0
    options.faults.favour("tug")


def _many_partitions(options: RunOptions, chance: random.Random) -> None:
    """A fetch session has many partitions, of which few have news at a time."""
    options.topics = [("t0", chance.choice((6, 8)), 3, 2)]
    options.producers, options.consumers, options.careless = 1, 0, 0
    options.rounds_per_s = chance.choice((6.0, 15.0))
    options.settings["max.incremental.fetch.session.cache.slots"] = "1000"


PROFILES: Mapping[str, Callable[[RunOptions, random.Random], None]] = {
    AMBUSH: _ambush,
    TUG: _tug,
    MANY_PARTITIONS: _many_partitions,
}


def shape(options: RunOptions) -> bool:
    """Whether this seed has a profile; its options are made to fit."""
    chance = random.Random(f"{options.seed}/profile")
    if chance.random() >= RATE:
        return False
    options.profile = chance.choice(list(PROFILES))
    PROFILES[options.profile](options, chance)
    return True
