"""Profiles: runs that make a rare state of the protocol likely.

Most seeds draw from everything. Some states need several rare events at once, so that fifty seeds may not meet them. A
profile changes the options of a run to make such a state likely, and leaves the rest to chance. It favours a state of the
protocol, not a bug: whether something is wrong there is for the checkers to say.

How to add a profile:

1. Write a function that takes `(options, chance)` and changes the options; draw only from `chance`. If the state needs a
   schedule of its own, add a fault with `Rate.PROFILE` (`ottla.sim.faults`) and call `options.faults.favour(kind)`.
2. Name it in a constant, in `NAMES` and in `PROFILES`. Seeds with a profile draw it from `PROFILES`, so a new one changes
   which profile they have.
3. Run `ottla sim --seeds 0..400 --profile NAME --jobs 2`. If the state is one of `oracle.coverage.RARE`, the counts of
   `python -m ottla.sim --seeds 0..400` show how often it was met.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ottla.sim.faults.registry import Rate, kinds

if TYPE_CHECKING:
    from ottla.sim.run.options import RunOptions

RATE = 0.25
"""The share of seeds without groups that have one of `PROFILES`."""

AMBUSH, TUG, MANY_PARTITIONS = "ambush", "tug", "many partitions"
BROAD, GROUPS, TABLE = "broad", "groups", "table"
EVENT_LOG, SECURE, VOTERS, CROWDED = "event log", "secure", "voters", "crowded disks"
"""Names of the other runs: without a profile, with groups and transactions, with a compacted topic; with an event log, with
security, with voters that change; with disks that others fill."""
NAMES = (BROAD, GROUPS, TABLE, AMBUSH, TUG, MANY_PARTITIONS, SECURE, VOTERS, CROWDED)

NEVER = str(2**63 - 1)


def _ambush(options: RunOptions, chance: random.Random) -> None:
    """A machine loses its power, and unflushed records with it, just when it is proposed for an ISR, and is back before
    the leader or the controller notices."""
    options.topics = [("t0", chance.choice((1, 2)), 3, chance.choice((1, 2)))]
    options.topic_settings |= {
        "internal.segment.bytes": "1073741824",
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
    # Few other faults: the machine has to be in sync again soon.
    options.faults.weights = {chance.choice(kinds(Rate.SAMPLED)): 1}
    options.faults.favour("ambush")


def _tug(options: RunOptions, chance: random.Random) -> None:
    """Two replicas that cannot reach each other lead in turn, and write: their logs diverge in several short epochs, and
    producers retry at leaders that have truncated what they wrote."""
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
    """A fetch session has many partitions, of which few have new records at a time."""
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
    """Draw the profile of this seed, if it has one, and change its options; whether it has one."""
    chance = random.Random(f"{options.seed}/profile")
    if chance.random() >= RATE:
        return False
    options.profile = chance.choice(list(PROFILES))
    PROFILES[options.profile](options, chance)
    return True
