"""Partitions: offline, below min.insync.replicas, under-replicated, leaders and racks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from ottla.diagnosis.facts import ELIGIBLE_REPLICAS, PartitionFacts
from ottla.diagnosis.words import count
from ottla.doctor.finding import MANY, Case, FindingSeverity, HealthFinding, Rule, have, ids, names

IMBALANCE_SHARE = 0.1
IMBALANCE_MIN = 2


def partitions_offline(case: Case) -> Iterator[HealthFinding]:
    for topic in case.facts.topics:
        lost = [each for each in topic.partitions if each.leader < 0]
        if not lost:
            continue
        may_lead = sorted({id for each in lost for id in each.elr or each.isr})
        last_known = sorted({id for each in lost for id in each.last_known_elr})
        if not may_lead and ELIGIBLE_REPLICAS in case.facts.unknown:
            who = "which brokers may lead without loss is not known"
        else:
            leaders = count(len(may_lead), "broker")
            who = f"{leaders} that may lead without loss: {ids(may_lead) or 'none'}"
        if not may_lead and last_known:
            who += f"; the last known to be eligible, which may lack records: {ids(last_known)}"
        # An unclean election is advised only when nobody is left to wait for.
        missing = {id for each in lost for id in each.replicas} - set(case.facts.live)
        awaited = may_lead or sorted(missing.intersection(last_known) or missing)
        gone = [id for id in awaited if case.has_lost_its_disk(id)]
        if gone and case.has_majority:
            awaited = [id for id in awaited if id not in gone]
            who += f"; the disk of broker {ids(gone)} is gone"
        numbers = " ".join(f"-p {each.partition}" for each in lost)
        yield HealthFinding(
            "partitions-offline",
            FindingSeverity.SERIOUS,
            f"{names(lost)} {have(lost)} no leader; {who}",
            "Nothing can be written there or read from there.",
            case.start_each(awaited)
            or case.ottla(f"topics elect {topic.name} --unclean {numbers}")
            + f"  # {_elected(lost)}loses what only the others have",
        )


def _elected(lost: Iterable[PartitionFacts]) -> str:
    """Whom an unclean election would let lead: the longest log of the living."""
    found = [
        f"broker {each.living[0].broker} of {each.name} (log end {each.living[0].log_end})"
        for each in lost
        if each.living
    ]
    more = f" and {len(found) - MANY} more" if len(found) > MANY else ""
    return f"elects {', '.join(found[:MANY])}{more}; " if found else ""


def below_min_insync(case: Case) -> Iterator[HealthFinding]:
    for topic in case.facts.topics:
        needed = topic.number("min.insync.replicas")
        below = [
            each
            for each in topic.partitions
            if needed is not None and each.leader >= 0 and len(each.isr) < needed <= topic.factor
        ]
        if below:
            missing = sorted({id for each in below for id in each.out_of_sync})
            yield HealthFinding(
                "below-min-insync",
                FindingSeverity.SERIOUS,
                f"{names(below)} {have(below)} fewer in-sync replicas than min.insync.replicas={needed};"
                f" out of sync: {ids(missing)}",
                "Producers with acks=all are refused (NOT_ENOUGH_REPLICAS).",
                _revive(case, missing, topic.name),
            )


def under_replicated(case: Case) -> Iterator[HealthFinding]:
    moving = {(each.topic, each.partition): each.adding for each in case.facts.reassignments}
    for topic in case.facts.topics:
        needed = topic.number("min.insync.replicas") or 1
        under = [
            each
            for each in topic.partitions
            if each.leader >= 0
            and len(each.isr) >= min(needed, topic.factor)
            and set(each.out_of_sync) - set(moving.get(each.place, ()))
        ]
        if under:
            missing = sorted({id for each in under for id in each.out_of_sync})
            at_limit = any(len(each.isr) == needed for each in under)
            yield HealthFinding(
                "under-replicated",
                FindingSeverity.WARNING,
                f"{names(under)} {have(under)} replicas out of sync: {ids(missing)}",
                "One failure more stops writes with acks=all."
                if at_limit
                else "Fewer failures can be survived than the replication factor promises.",
                _revive(case, missing, topic.name),
            )


def _revive(case: Case, brokers: Iterable[int], topic: str) -> str:
    """Brokers that do not live are started; a slow one has to be looked at."""
    down = [id for id in brokers if id not in case.facts.live]
    return case.start_each(down) or case.ottla(f"replicas {topic}")


def leaders_skewed(case: Case) -> Iterator[HealthFinding]:
    """Preferred leaders that live and are in sync, but do not lead, beyond the share that Kafka tolerates itself."""
    facts = case.facts
    led = [each for each in facts.partitions if each.leader >= 0]
    displaced = [
        each
        for each in led
        if each.replicas[0] != each.leader
        and each.replicas[0] in each.isr
        and each.replicas[0] in facts.live
    ]
    if len(displaced) < IMBALANCE_MIN or len(displaced) <= IMBALANCE_SHARE * len(led):
        return
    counts = Counter(each.leader for each in led)
    shown = ", ".join(f"broker {id}: {counts[id]}" for id in facts.live)
    topics = sorted({each.topic for each in displaced})
    yield HealthFinding(
        "leaders-skewed",
        FindingSeverity.WARNING,
        f"{len(displaced)} of {len(led)} partitions are not led by their preferred broker ({shown})",
        "Some brokers do the work of others, since clients read and write at leaders.",
        case.ottla("topics elect --all")
        if len(topics) > MANY
        else " && ".join(case.ottla(f"topics elect {topic}") for topic in topics),
    )


def replicas_on_one_rack(case: Case) -> Iterator[HealthFinding]:
    racks = {each.id: each.rack for each in case.facts.brokers}
    known = {rack for rack in racks.values() if rack}
    if len(known) < 2:
        return
    for topic in case.facts.topics:
        together = [
            each
            for each in topic.partitions
            if len(each.replicas) > 1
            and len({racks.get(id) for id in each.replicas}) == 1
            and racks.get(each.replicas[0])
        ]
        if together:
            first = together[0]
            other = next(
                id for id, rack in racks.items() if rack not in (None, racks[first.replicas[0]])
            )
            target = ",".join(map(str, (*first.replicas[:-1], other)))
            yield HealthFinding(
                "replicas-on-one-rack",
                FindingSeverity.WARNING,
                f"{names(together)} {have(together)} all replicas on rack {racks[first.replicas[0]]}",
                "When that rack fails, these partitions fail as a whole.",
                case.ottla(
                    f"topics reassign {topic.name} --partition {first.partition} --replicas {target}"
                ),
            )


def racks_incomplete(case: Case) -> Iterator[HealthFinding]:
    without = [each.id for each in case.facts.brokers if not each.rack]
    if without and len(without) < len(case.facts.brokers):
        yield HealthFinding(
            "racks-incomplete",
            FindingSeverity.NOTE,
            f"broker {ids(without)} has no broker.rack, and others have one",
            "Placement spreads replicas over racks only if all brokers name theirs.",
            f"set broker.rack=NAME in server.properties of broker {ids(without)}, then restart it",
        )


RULES: tuple[Rule, ...] = (
    partitions_offline,
    below_min_insync,
    under_replicated,
    leaders_skewed,
    replicas_on_one_rack,
    racks_incomplete,
)
