"""Settings of a topic that are allowed and that people regret.

One table for all who warn of them: the command that creates a topic, the controller's log, the doctor. No setting is
refused because of a trap: there are good reasons for each, and Kafka refuses none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple


class Trap(NamedTuple):
    name: str
    severity: str
    """serious or warning; serious if acknowledged records may be lost, or nothing can be written."""
    what: str
    why: str
    mend: str
    """Words after `ottla`; TOPIC and REPLICAS stand for names."""


def topic_traps(
    factor: int,
    configs: Mapping[str, str | None],
    brokers: int,
    *,
    transactional: bool = False,
    own: frozenset[str] = frozenset(),
) -> Iterator[Trap]:
    """The traps of a topic with so many replicas and these settings, its own and the cluster's. `transactional`: the
    cluster has transactions. `own`: the names of those settings that are set on the topic itself."""
    if factor == 1 and brokers > 1:
        yield Trap(
            "one-replica",
            "warning",
            f"replication factor 1, with {brokers} brokers",
            "When its broker is down, it can be neither written nor read; when its disk is lost, so are the"
            " records.",
            "topics reassign TOPIC --partition 0 --replicas REPLICAS",
        )
    text = configs.get("min.insync.replicas")
    if text is not None:
        yield from _insync_traps(factor, int(text), is_own="min.insync.replicas" in own)
    if configs.get("unclean.leader.election.enable") == "true":
        yield Trap(
            "unclean-elections",
            "serious" if transactional else "warning",
            "unclean.leader.election.enable=true"
            + (", and transactions are used" if transactional else ""),
            "When no in-sync replica lives, another one becomes leader, and acknowledged records are lost"
            + (": also those of committed transactions." if transactional else "."),
            "topics alter TOPIC -c unclean.leader.election.enable=false",
        )


def _insync_traps(factor: int, needed: int, *, is_own: bool) -> Iterator[Trap]:
    if needed > factor and (factor > 1 or is_own):
        yield Trap(
            "min-insync-above-factor",
            "warning",
            f"min.insync.replicas={needed} is more than its {factor} replica{'s' * (factor != 1)}",
            "It counts as the number of replicas, so one broker that is down stops writes with acks=all. Some"
            " versions of Kafka refuse all of them.",
            f"topics alter TOPIC -c min.insync.replicas={max(1, factor - 1)}",
        )
    elif needed == factor > 1:
        yield Trap(
            "min-insync-is-factor",
            "warning",
            f"min.insync.replicas={needed} is the replication factor",
            "One broker that is down, also for a planned restart, stops writes with acks=all.",
            f"topics alter TOPIC -c min.insync.replicas={factor - 1}",
        )
    elif needed == 1 and factor >= 3:
        yield Trap(
            "min-insync-one",
            "warning",
            f"min.insync.replicas=1 with replication factor {factor}",
            "acks=all may mean one replica. If that one fails before the others catch up, acknowledged records"
            " are lost.",
            "topics alter TOPIC -c min.insync.replicas=2",
        )
