"""Replicas that are moved: moves that do not advance, and throttles and cordons that are left."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.config.cordoning import ALL as ALL_DIRECTORIES
from ottla.config.cordoning import CORDONED
from ottla.diagnosis.facts import BETWEEN_S, Facts, Place
from ottla.diagnosis.words import count, size
from ottla.doctor.finding import (
    MANY,
    Case,
    FindingSeverity,
    HealthFinding,
    Rule,
    ids,
    unset,
)

ROLES = ("leader", "follower")


def moves_stuck(case: Case) -> Iterator[HealthFinding]:
    for each in case.facts.reassignments:
        place = (each.topic, each.partition)
        gone = [id for id in each.adding if id not in case.facts.live]
        if gone:
            yield HealthFinding(
                "moves-stuck",
                FindingSeverity.WARNING,
                f"{each.topic}-{each.partition} is being moved to broker {ids(gone)}, which is not alive",
                "The move cannot end, and both old and new replicas are kept until it does.",
                case.ottla(f"topics reassign {each.topic} --partition {each.partition} --cancel"),
            )
        else:
            yield from (
                _stalled(case, place, id) for id in each.adding if _stands(case.facts, place, id)
            )


def _stands(facts: Facts, place: Place, broker: int) -> bool:
    """Whether the new replica lacks something, and has not grown between two looks."""
    partition = facts.partition(place)
    if partition is None or broker in partition.isr or not facts.before:
        return False
    has, whole = _size(facts, place, broker), _size(facts, place, partition.leader)
    return has < whole and has <= _size(facts, place, broker, before=True)


def _stalled(case: Case, place: Place, broker: int) -> HealthFinding:
    facts, name = case.facts, f"{place[0]}-{place[1]}"
    partition = facts.partition(place)
    leader = -1 if partition is None else partition.leader
    has, whole = _size(facts, place, broker), _size(facts, place, leader)
    full = [each.path for each in facts.log_dirs if each.broker == broker and each.refuses_records]
    rates = [
        f"broker {id} as {role}: {size(rate)}/s"
        for id, role in ((leader, "leader"), (broker, "follower"))
        if (rate := _rate(facts, id, role)) is not None
    ]
    if full:
        why = f"The disk of {full[0]} is nearly full: it takes nothing."
    elif rates:
        why = f"A throttle slows it down ({', '.join(rates)}), and others may share it."
    else:
        why = "Its log, or that of the leader, says why."
    return HealthFinding(
        "moves-stuck",
        FindingSeverity.WARNING,
        f"{name} is being moved to broker {broker}, which copied nothing within {BETWEEN_S:g} s"
        f" ({size(has)} of {size(whole)})",
        f"{why} Both old and new replicas are kept until the move ends.",
        case.ottla(f"explain {name}"),
    )


def _size(facts: Facts, place: Place, broker: int, *, before: bool = False) -> int:
    dirs = facts.before if before else facts.log_dirs
    return sum(
        replica.size_bytes
        for dir in dirs
        for replica in dir.replicas
        if dir.broker == broker and (replica.topic, replica.partition) == place
    )


def _rate(facts: Facts, broker: int, role: str) -> int | None:
    """A replication throttle that somebody has set."""
    name = f"{role}.replication.throttled.rate"
    for each in facts.broker_configs.get(broker, ()):
        if each.name == name and not each.is_default and each.value:
            return int(each.value)
    return None


def throttles_left(case: Case) -> Iterator[HealthFinding]:
    """A replica that is out of sync may be a broker's that is rebuilt: then the throttle has a use."""
    facts = case.facts
    if facts.reassignments or any(each.out_of_sync for each in facts.partitions):
        return
    if "reassignments" in facts.unknown:
        return
    topics = [
        (topic.name, names)
        for topic in facts.topics
        if (names := [n for role in ROLES if (n := f"{role}.replication.throttled.replicas") in topic.own])
    ]  # fmt: skip
    brokers = [
        id
        for id in facts.broker_configs
        if any(_rate(facts, id, role) is not None for role in ROLES)
    ]
    if not topics and not brokers:
        return
    what = [f"topic {', '.join(name for name, _ in topics[:MANY])}"] if topics else []
    what += [f"broker {ids(brokers)}"] if brokers else []
    commands = [
        case.ottla(f"topics alter {name} {' '.join(f'--unset {each}' for each in names)}")
        for name, names in topics
    ]
    rates = ",".join(f"{role}.replication.throttled.rate" for role in ROLES)
    commands += [unset(case, id, rates) for id in brokers]
    yield HealthFinding(
        "throttles-left",
        FindingSeverity.WARNING,
        f"a replication throttle is left on {' and '.join(what)}, and nothing is being moved",
        "The next follower that falls behind catches up at that rate only.",
        " && ".join(commands),
    )


def brokers_cordoned(case: Case) -> Iterator[HealthFinding]:
    for broker in sorted(case.facts.broker_configs):
        cordoned = case.facts.setting(broker, CORDONED)
        if cordoned == ALL_DIRECTORIES:
            yield _drain(case, broker)
        elif cordoned:
            yield HealthFinding(
                "brokers-cordoned",
                FindingSeverity.NOTE,
                f"log directory {cordoned} of broker {broker} is cordoned ({CORDONED})",
                "It keeps what it has, and gets no new replica.",
                unset(case, broker, CORDONED),
            )


def _drain(case: Case, broker: int) -> HealthFinding:
    held = [each for each in case.facts.partitions if broker in each.replicas]
    leaving = [each for each in case.facts.reassignments if broker in each.removing]
    undo = case.ottla(f"brokers drain {broker} --undo")
    if leaving:
        what = f"broker {broker} is being drained: {count(len(leaving), 'replica')} leave it now"
    elif held:
        what = (
            f"broker {broker} is cordoned, has {count(len(held), 'replica')}, and none leaves it:"
            " a drain of it was interrupted, or somebody cordoned it"
        )
    else:
        what = f"broker {broker} is drained: it is cordoned, and has no replica"
    if held:
        mend = f"{case.ottla(f'brokers drain {broker}')}  # goes on with the drain; {undo} ends it"
    else:
        mend = _way_out(case, broker, undo)
    return HealthFinding(
        "brokers-cordoned",
        FindingSeverity.WARNING if held and not leaving else FindingSeverity.NOTE,
        what,
        f"It gets no new replica ({CORDONED}={ALL_DIRECTORIES}).",
        mend,
    )


def _way_out(case: Case, broker: int, undo: str) -> str:
    """A broker that votes is stopped before its vote is taken: `migrate retire` keeps to the order, whatever its kind."""
    quorum = case.facts.quorum
    command = case.ottla(f"brokers remove {broker}")
    if quorum is not None and quorum.voter(broker) is not None:
        if not quorum.can_change(case.facts.features):
            return f"{undo}  # ends it; broker {broker} is a controller, too, and stays: the voters are static"
        command = case.ottla(f"migrate retire {broker}")
    return f"{command}  # takes it out; {undo} ends it"


RULES: tuple[Rule, ...] = (
    moves_stuck,
    throttles_left,
    brokers_cordoned,
)
