"""Runs in which unclean elections are frequent, and nothing but processes and lines fails: for `oracle.loss_checker`.

No seed draws this profile by chance, so that the seeds of all other runs stay what they are.
"""

from __future__ import annotations

import random

from ottla.sim.faults.plan import FaultPlan
from ottla.sim.run.options import RunOptions

PROFILE = "unclean elections"
FAULTS = {"kill": 4, "seesaw": 6, "blackout": 1, "pause": 1, "isolate": 2, "halves": 1, "hop": 2}


def unclean_options(seed: int) -> RunOptions:
    """What the seed says, with replicas that may lead whatever they lack."""
    chance = random.Random(f"{seed}/unclean")
    options = RunOptions.draw(seed)
    factor = chance.choice((2, 2, 3))
    options.profile = PROFILE
    options.nodes = chance.choice((3, 4))
    options.topics = [("t0", chance.choice((1, 2)), factor, 1)]
    options.topic_settings = {
        "internal.segment.bytes": chance.choice(("2048", "2048", "16384", "1073741824")),
        "index.interval.bytes": chance.choice(("256", "4096")),
        "unclean.leader.election.enable": "true",
    }
    options.settings["replica.high.watermark.checkpoint.interval.ms"] = "5000"
    options.settings.pop("log.flush.interval.messages", None)
    options.producers, options.consumers = chance.choice((1, 2)), 1
    options.careless = chance.choice((0, 1))
    options.rounds_per_s = 6.0
    options.pause_s = round((options.producers + options.careless) / options.rounds_per_s, 3)
    options.groups = options.hostile = options.absence = None
    options.has_table = options.restless = options.has_crowded_disks = False
    options.last_move = None
    options.trouble_s = 60.0
    options.faults = FaultPlan(
        every_s=chance.choice((1.0, 2.0)),
        weights=dict(FAULTS),
        conditions=options.faults.conditions,
    )
    return options
