"""Why a partition is as it is now.

Each rule looks for one kind of trouble. All that apply are told, the worst first: a partition can be without enough
replicas and have a hanging transaction, and both must be repaired.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from ottla.client.move_pace import least_seconds
from ottla.diagnosis.causes import (
    advertised_wrongly,
    bring_back,
    capital,
    end_transaction,
    ends_by_itself,
    knocked,
    lost_voters,
    no_majority,
    start_cluster,
    start_controllers,
    state_of,
    transaction_cause,
)
from ottla.diagnosis.client_quotas import THROTTLED_WITHIN_MS, throttling
from ottla.diagnosis.explanation import DEGRADED, NOTICE, WRONG, Advice, Explanation, Trouble
from ottla.diagnosis.happened import Happened
from ottla.diagnosis.lost_records import end_may_be_missing, lose_no_more, lost_records
from ottla.diagnosis.now import (
    ClusterNow,
    Commands,
    PartitionNow,
    Reach,
)
from ottla.diagnosis.partition_situation import PartitionSituation
from ottla.diagnosis.remedies import (
    Limit,
    correct_listener,
    faster_copy,
    repair_directory,
    set_back,
    start_in_order,
    wake,
)
from ottla.diagnosis.timeline import behind, left_because, told
from ottla.diagnosis.words import brokers, count, duration, is_are, listed, size

OPEN_LONG_MS = 10_000
"""A transaction that is open for longer than this is worth a line, even if its coordinator will end it."""


def explain_partition(
    now: PartitionNow, cluster: ClusterNow, entries: Iterable[Happened], commands: Commands
) -> Explanation:
    situation = PartitionSituation(now, cluster, list(entries), commands)
    troubles = [trouble for rule in RULES if (trouble := rule(situation)) is not None]
    troubles.sort(key=lambda each: -each.severity)
    # Not --topic: brokers and controllers are part of the story.
    all_of_it = commands.ottla("events --since 1d")
    lines, earlier = told(situation.story, cluster.now_ms, all_of_it, now.name)
    return Explanation(
        subject=f"partition {now.name}",
        now_ms=cluster.now_ms,
        headline=" ".join(each.headline for each in troubles if each.headline) or _healthy(now),
        ok=all(each.severity < DEGRADED for each in troubles),
        timeline=lines,
        earlier=earlier,
        cause=tuple(dict.fromkeys(line for each in troubles for line in each.cause)),
        producers=_effects([each.producers for each in troubles], "can write."),
        consumers=_effects([each.consumers for each in troubles], "can read."),
        steps=tuple(dict.fromkeys(step for each in troubles for step in each.steps)),
        unknown=cluster.unknown,
        facts=now.as_json(),
    )


def _healthy(now: PartitionNow) -> str:
    factor = len(now.replicas)
    replicas = "its only replica" if factor == 1 else f"all {factor} replicas"
    return f"{now.name} is healthy: broker {now.leader} leads it (epoch {now.leader_epoch}), {replicas} in sync."


def _effects(told: Iterable[str], otherwise: str) -> tuple[str, ...]:
    """What begins with the same words is one statement: "can write; … can write; …" would say it twice."""
    found: list[str] = []
    for text in filter(None, told):
        can = re.match(r"can (?:read|write)[.;]", text)
        before = [
            n for n, each in enumerate(found) if can is not None and each.startswith(can[0][:-1])
        ]
        if can is None or not before:
            found.append(text)
        elif more := text[can.end() :].strip():
            found[before[0]] += f" {capital(more)}"
    return tuple(dict.fromkeys(found)) or (otherwise,)


# -- the cluster as a whole ----------------------------------------------------------------------------------------


def _stopped(s: PartitionSituation) -> Trouble | None:
    if not s.cluster.stopped:
        return None
    now = s.now
    led = f"broker {now.leader} led it" if now.leader >= 0 else "nobody led it"
    headline = f"The cluster is stopped. When it stopped, {led}; {_in_sync(now)}."
    cause = ("No node of it runs. All of this was read from its directory.", *_absences(s))
    step = start_cluster(
        s.cluster, s.commands, " Every replica catches up and joins the ISR by itself."
    )
    steps = start_in_order(now, s.cluster, step, s.commands)
    return Trouble(WRONG, headline, cause, "cannot write.", "cannot read.", steps)


def _no_controller(s: PartitionSituation) -> Trouble | None:
    if not s.cluster.has_no_controller:
        return None
    now, quorum = s.now, s.cluster.quorum
    assert quorum is not None
    gone = lost_voters(s.cluster)
    leader = s.cluster.broker(now.leader)
    frozen = (
        f"Until a majority answers, {now.name} stays as it was: leader broker {now.leader}, ISR {brokers(now.isr)}, whoever of"
        " them is alive."
    )
    if now.leader >= 0 and leader.answers:
        dead = [id for id in now.isr if not s.cluster.broker(id).answers]
        headline = (
            f"The cluster has no active controller, because too few controllers answer; {now.name} has a leader, broker"
            f" {now.leader}."
        )
        if dead:
            producers = (
                f"with acks=all get no acknowledgement: {brokers(dead)} cannot be taken out of the ISR. acks=1 is no way out:"
                f" such records are on {_those_alive(now, dead)} alone, and nobody can read them before the ISR is whole or"
                " can change."
            )
        else:
            producers = "can write."
        consumers = "can read what was committed before; nothing new." if dead else "can read."
    else:
        headline = (
            f"{now.name} is not available: its leader, broker {now.leader}, {leader.reach},"
            " and there is no active controller to elect another."
        )
        producers, consumers = "cannot write.", "cannot read."
    return Trouble(
        WRONG + 1,
        headline,
        (*no_majority(s.cluster, gone, s.entries), frozen),
        producers,
        consumers,
        start_in_order(now, s.cluster, start_controllers(s.cluster, gone, s.commands), s.commands),
    )


def _those_alive(now: PartitionNow, dead: Sequence[int]) -> str:
    return brokers([id for id in now.isr if id not in dead])


# -- the leader ----------------------------------------------------------------------------------------------------


def _offline(s: PartitionSituation) -> Trouble | None:
    now = s.now
    if now.leader >= 0 or s.cluster.stopped or s.cluster.has_no_controller:
        return None
    may_lead = tuple(dict.fromkeys((*now.isr, *now.elr)))
    went = s.last("offline")
    since = f" for {duration(s.cluster.now_ms - went.at_ms)}" if went is not None else ""
    headline = f"{now.name} has no leader{since}: it is offline."
    others = [id for id in now.replicas if id not in may_lead]
    cause = [
        f"Only {brokers(may_lead)} {_has(may_lead)} every committed record (ISR or ELR) and may lead."
        if may_lead
        else "No replica is known to have every committed record, so none may lead."
    ]
    cause += [f"Broker {id} {why_absent(s, id)}." for id in may_lead]
    alive = [id for id in others if s.cluster.broker(id).answers]
    if alive:
        cause.append(
            f"{capital(brokers(alive))} {is_are(alive)} alive but out of sync: {_may_lack(s, alive)}."
        )
    down = [id for id in others if id not in alive]
    if now.unclean and may_lead and down:
        cause.append(
            f"Topic {now.topic} allows unclean elections: if {brokers(down, 'or')} starts before"
            f" {brokers(may_lead, 'or')}, it may lead, and what it lacks is lost."
        )
    gone = [id for id in may_lead if s.cluster.lost(id)]
    # What is gone is no way back, where somebody else may be elected.
    back = [id for id in may_lead if id not in gone or not alive]
    steps = [step for id in back for step in repair(s, id)]
    if alive:
        only = (
            f"The disk of {brokers(gone)} is gone, so"
            if gone and len(gone) == len(may_lead)
            else f"Only if {brokers(may_lead or others, 'or')} can never come back:"
        )
        steps.append(
            Advice(
                f"{only} let {_longest(s, alive)}. Committed records that it lacks are lost for good; --dry-run shows what"
                " each living replica has.",
                s.commands.ottla(f"topics elect {now.topic} --unclean -p {now.partition}"),
            )
        )
    steps += _second_replica(s)
    return Trouble(
        WRONG, headline, tuple(cause), "cannot write.", "cannot read.", tuple(dict.fromkeys(steps))
    )


def _second_replica(s: PartitionSituation) -> list[Advice]:
    """Where the only replica was on the broker that is missing."""
    now = s.now
    more = [id for id, each in sorted(s.cluster.brokers.items()) if each.answers]
    if len(now.replicas) > 1 or not more or more == list(now.replicas):
        return []
    replicas = ",".join(map(str, dict.fromkeys((*now.replicas, more[0]))))
    return [
        Advice(
            f"Afterwards, when {now.name} has a leader again: give it a second replica. With one, every failure of that broker"
            " stops it, and a broken disk loses its records.",
            s.commands.ottla(
                f"topics reassign {now.topic} -p {now.partition} --replicas {replicas}"
            ),
        )
    ]


def _longest(s: PartitionSituation, alive: Sequence[int]) -> str:
    """Who an unclean election of ours elects."""
    known = {id: s.now.offsets[id] for id in alive if id in s.now.offsets}
    if not known:
        return f"{brokers(alive, 'or')} lead"
    best = max(known, key=lambda id: (known[id].last_epoch, known[id].log_end))
    return (
        f"broker {best} lead, whose log is the longest of the living (to {known[best].log_end})"
        if len(alive) > 1
        else f"broker {best} lead"
    )


def _may_lack(s: PartitionSituation, alive: Sequence[int]) -> str:
    start = s.last("leader_start")
    known = [s.now.offsets[id].log_end for id in alive if id in s.now.offsets]
    if not known:
        return "what it lacks is not known"
    ends = f"{'its log ends' if len(known) == 1 else 'the longest log of them ends'} at offset {max(known)}"
    at_least = start.fields.get("log_end") if start is not None else None
    if at_least is not None and at_least > max(known):
        return f"{ends}, and the last leader had at least {at_least}"
    return f"{ends}, and what the others wrote beyond it is missing there"


def _leader_out_of_reach(s: PartitionSituation) -> Trouble | None:
    now = s.now
    if now.leader < 0 or s.cluster.stopped or s.cluster.has_no_controller:
        return None
    leader = s.cluster.broker(now.leader)
    if leader.answers or leader.reach is Reach.NOT_ASKED:
        return None
    why = (
        ""
        if leader.reach is Reach.SILENT
        else f", probably because advertised.listeners of broker {now.leader} is wrong"
    )
    headline = f"{now.name} is led by broker {now.leader}, but clients cannot reach it at {leader.address}, which {knocked(leader)}{why}."
    return Trouble(
        WRONG,
        headline,
        (*advertised_wrongly(s.cluster, leader), *_cut_off(s)),
        f"cannot write: they are told to connect to {leader.address}.",
        f"cannot read: they are told to connect to {leader.address}.",
        correct_listener(leader, s.cluster, s.commands, now),
    )


def _cut_off(s: PartitionSituation) -> tuple[str, ...]:
    gone = s.now.out_of_sync
    if not gone:
        return ()
    return (
        f"{capital(brokers(gone))} probably cannot reach it either, and cannot copy from it: {_in_sync(s.now)}.",
    )


# -- the followers -------------------------------------------------------------------------------------------------


def _too_few_in_sync(s: PartitionSituation) -> Trouble | None:
    now = s.now
    if not _is_led(s) or len(now.isr) >= min(now.min_insync, len(now.replicas)):
        return None
    headline = (
        f"{now.name} takes no records with acks=all, because {_shortly(s)}: {_in_sync(now)}, and min.insync.replicas is"
        f" {now.min_insync}. Broker {now.leader} leads (epoch {now.leader_epoch})."
    )
    lower = Advice(
        f"If writing matters more than safety until then: allow fewer replicas. If {brokers(now.isr)} {is_are(now.isr)} lost"
        " then, what was written meanwhile is lost, too.",
        s.commands.ottla(f"topics alter {now.topic} -c min.insync.replicas={max(1, len(now.isr))}"),
    )
    back = Advice(
        "And back, as soon as the others are in sync again.",
        set_back(now, ("min.insync.replicas",), s.commands),
    )
    return Trouble(
        WRONG,
        headline,
        _absences(s),
        "with acks=all are refused (NOT_ENOUGH_REPLICAS) and retry; acks=0 and acks=1 are accepted, but such records are on"
        f" {brokers(now.isr)} alone.",
        "can read what was committed before.",
        (*_repairs(s), lower, back),
    )


def _under_replicated(s: PartitionSituation) -> Trouble | None:
    now = s.now
    missing = _missing(s)
    if not _is_led(s) or not missing or len(now.isr) < min(now.min_insync, len(now.replicas)):
        return None
    spare = len(now.isr) - now.min_insync
    more = (
        f"{count(spare, 'more replica')} may fail before producers with acks=all are refused"
        if spare
        else "if one more replica fails, producers with acks=all are refused"
    )
    headline = f"{now.name} works, but {_shortly(s)}: broker {now.leader} leads (epoch {now.leader_epoch}), {_in_sync(now)}."
    cause = (*_absences(s), *_succession(s))
    return Trouble(DEGRADED, headline, cause, f"can write; {more}.", "can read.", _repairs(s))


def _succession(s: PartitionSituation) -> tuple[str, ...]:
    """Who led before, if that is the one who is missing."""
    for entry in reversed(s.story.entries):
        if entry.kind == "election" and entry.partition == s.now.name:
            before = entry.fields.get("previous_leader")
            if before in _missing(s):
                return (
                    f"Broker {before} led it before; broker {entry.fields.get('leader')} took over {s.ago(entry)}.",
                )
    return ()


def _standing(s: PartitionSituation) -> Trouble | None:
    """The rule is `replica.high_watermark.committed_by_isr`: it waits for replicas that are about to join the ISR, too."""
    now = s.now
    leader = now.offsets.get(now.leader)
    if not now.stands or not _is_led(s) or leader is None or leader.high_watermark is None:
        return None
    mark = leader.high_watermark
    known = [id for id in now.out_of_sync if id in now.offsets and now.offsets[id].log_end <= mark]
    waits = known or [id for id in now.out_of_sync if id not in now.offsets]
    lag_ms = s.cluster.broker(now.leader).lag_time_ms
    limit = "replica.lag.time.max.ms" + ("" if lag_ms is None else f" ({duration(lag_ms)})")
    if waits:
        cause = (
            f"The leader waits for {brokers(waits, 'or')}: outside of the ISR, caught up a moment ago, and so about to join it."
            " What it has not copied is not committed: else the end would run away from a replica that wants to join.",
            *(
                f"Broker {id} has the log up to {now.offsets[id].log_end} and copies nothing; it {why_absent(s, id)}."
                if id in now.offsets
                else f"Broker {id} {why_absent(s, id)}."
                for id in waits
            ),
            f"It waits until that broker copies, or was not caught up for {limit}.",
        )
        steps = tuple(dict.fromkeys(step for id in waits for step in repair(s, id)))
    else:
        others = [id for id in now.isr if id != now.leader]
        cause = (
            f"The leader has not heard from {brokers(others, 'or')} how far it is, although it has more by its own account:"
            " its fetches do not reach the leader.",
            f"A follower that is silent for {limit} is taken out of the ISR.",
        )
        steps = (
            Advice(
                "Look at the network from the followers to the leader, and at their logs.",
                s.commands.ottla(f"replicas {now.topic} -p {now.partition}"),
            ),
        )
    end = min(now.offsets[id].log_end for id in now.isr if id in now.offsets)
    return Trouble(
        DEGRADED,
        f"{now.name} commits nothing now: the high watermark stands at {mark}, although all of the ISR have more (to {end}).",
        cause,
        "with acks=all wait for their acknowledgement.",
        f"can read up to offset {mark}, and nothing newer.",
        steps,
    )


def _missing(s: PartitionSituation) -> tuple[int, ...]:
    """Out of sync, and not because they are only now being added."""
    return tuple(id for id in s.now.out_of_sync if id not in s.now.adding)


def _absences(s: PartitionSituation) -> tuple[str, ...]:
    return tuple(f"Broker {id} {why_absent(s, id)}." for id in _missing(s))


def _repairs(s: PartitionSituation) -> tuple[Advice, ...]:
    return tuple(dict.fromkeys(step for id in _missing(s) for step in repair(s, id)))


def _shortly(s: PartitionSituation) -> str:
    """The causes of the absences, for the headline."""
    return listed(f"broker {id} {_shortly_of(s, id)}" for id in _missing(s))


def _shortly_of(s: PartitionSituation, broker: int) -> str:
    found = s.cluster.broker(broker)
    if failed_directory(s, broker) is not None:
        return "has a failed log directory"
    if not found.answers:
        return "does not run" if found.process is False else str(found.reach)
    if found.fenced:
        return "is fenced"
    return "is out of sync"


def failed_directory(s: PartitionSituation, broker: int) -> str | None:
    """The failed log directory that holds this replica, as far as is known."""
    entry = s.last("log_dir_failure", broker=broker)
    failed = [each.path for each in s.cluster.broker(broker).failed_directories]
    if entry is not None and (entry.fields.get("directory") in failed or not failed):
        held = entry.fields.get("partitions") or ()
        if s.now.name in held and (failed or not s.cluster.broker(broker).directories):
            return str(entry.fields.get("directory"))
    return failed[0] if failed and broker not in s.now.offsets else None


def why_absent(s: PartitionSituation, broker: int) -> str:
    """Why a replica is not in sync (or not available): what follows its name."""
    found = s.cluster.broker(broker)
    directory = failed_directory(s, broker)
    if directory is not None:
        entry = s.last("log_dir_failure", broker=broker)
        why = f" ({entry.cause})" if entry is not None and entry.cause else ""
        when = f" {s.ago(entry)}" if entry is not None else ""
        return (
            f"cannot use its log directory {directory}: it failed{when}{why}. Its replica there is offline; what is on the"
            " disk was not removed"
        )
    if s.cluster.stopped:
        return f"left the ISR{_left(s, broker)}" if _left(s, broker) else "was out of sync"
    if not found.answers or found.fenced:
        fenced = s.last("fenced", "unfenced", broker=broker)
        state = state_of(found, s.cluster)
        if found.fenced and fenced is not None and fenced.kind == "fenced":
            why = f": {fenced.cause}" if fenced.cause else ""
            return f"{state} and was fenced {s.ago(fenced)}{why}"
        if found.fenced:
            return f"{state} and is fenced"
        if found.fenced is False:
            state += ", and is not fenced (yet)"
        return (
            f"{state}; it left the ISR{_left(s, broker)}" if broker in s.now.out_of_sync else state
        )
    lag = s.now.lag(broker)
    more = f" It is {count(lag, 'record')} behind now" if lag else ""
    if limits := _limits(s, broker):
        more += f"; its copying is throttled to {_slowest(limits)}"
    return f"runs, but left the ISR{_left(s, broker)}.{more}".rstrip(".")


def _left(s: PartitionSituation, broker: int) -> str:
    entry = s.last("isr_shrink", "isr_expand", broker=broker)
    if entry is None or entry.kind == "isr_expand":
        return ""
    why = (
        "because it could not keep up with the leader"
        if entry.cause == "slow"
        else left_because(entry.cause, [broker])
    )
    lag = behind((entry.fields.get("lag") or {}).get(str(broker)) or {})
    return (
        f" {s.ago(entry)}{' ' if why else ''}{why}{f', {lag} behind at that moment' if lag else ''}"
    )


def repair(s: PartitionSituation, broker: int) -> tuple[Advice, ...]:
    """What brings one replica back."""
    found = s.cluster.broker(broker)
    directory = failed_directory(s, broker)
    commands = s.commands
    if directory is not None:
        entry = s.last("log_dir_failure", broker=broker)
        error = None if entry is None else entry.cause
        return repair_directory(directory, error, broker, s.cluster, commands)
    if found.reach is Reach.SILENT and found.process is not False:
        return wake(found, s.cluster, commands)
    if not found.answers:
        if _has_only_copy(s, broker):
            then = "It leads again as soon as it runs."
            return (bring_back(broker, s.cluster, commands, then, _only_copy(s, broker)),)
        then = "It catches up and joins the ISR by itself."
        return (bring_back(broker, s.cluster, commands, then),)
    if found.fenced:
        return (
            Advice(
                f"Wait: broker {broker} answers and is unfenced when it has caught up with the metadata."
                f" If it stays fenced, its log says why.",
                commands.ottla(f"explain --broker {broker}"),
            ),
        )
    left = s.last("isr_shrink", "isr_expand", broker=broker)
    if left is not None and left.cause == "full":
        return (
            Advice(
                f"Make room on the disk of broker {broker}. It joins the ISR by itself when it has caught up.",
                commands.ottla(f"explain --broker {broker}"),
            ),
        )
    if limits := _limits(s, broker):
        return faster_copy(s.now, limits, commands)
    return (
        Advice(
            f"Find out what slows broker {broker} down (disk, network, processor). It joins the ISR by itself when it has"
            " caught up.",
            commands.ottla(f"replicas {s.now.topic} -p {s.now.partition}"),
        ),
    )


def _has_only_copy(s: PartitionSituation, broker: int) -> bool:
    """Whether nobody else has every committed record."""
    now = s.now
    return now.leader < 0 and ({*now.isr, *now.elr} == {broker} or now.replicas == (broker,))


def _only_copy(s: PartitionSituation, broker: int) -> str:
    if len(s.now.replicas) == 1:
        return f"This is the only copy of {s.now.name}."
    return f"Broker {broker} alone has all records of {s.now.name}."


def _limits(s: PartitionSituation, follower: int) -> list[Limit]:
    """The replication throttles on the way from the leader to a follower: role, broker and rate."""
    return [
        (role, id, rate)
        for role, id in (("leader", s.now.leader), ("follower", follower))
        if id in s.now.throttled.get(role, ())
        and (rate := s.cluster.broker(id).throttled_rates.get(role)) is not None
    ]


def _slowest(limits: Sequence[Limit]) -> str:
    where = listed(f"broker {id} as {role}" for role, id, _ in limits)
    return f"{size(min(rate for _, _, rate in limits))}/s (at {where})"


# -- moves, transactions, losses, quotas ---------------------------------------------------------------------------


def _moving(s: PartitionSituation) -> Trouble | None:
    now = s.now
    if not now.adding and not now.removing:
        return None
    waits = tuple(id for id in now.adding if id not in now.isr)
    began = s.last("reassignment")
    since = f" (for {duration(s.cluster.now_ms - began.at_ms)} now)" if began is not None else ""
    target = [id for id in now.replicas if id not in now.removing]
    headline = f"{now.name} is being moved to {brokers(target)}{since}"
    cancel = Advice(
        "Or cancel the move: the partition stays where it was.",
        s.commands.ottla(f"topics reassign {now.topic} -p {now.partition} --cancel"),
    )
    if not waits:
        return Trouble(NOTICE, f"{headline}; it is about to complete.", (), steps=())
    gone = [id for id in waits if _is_absent(s, id)]
    full = {id: path for id in waits if id not in gone and (path := _full_directory(s, id))}
    slow = {
        id: limits
        for id in waits
        if id not in gone and id not in full and (limits := _limits(s, id))
    }
    lacks = listed(_lacks(s, id, slow.get(id, ())) for id in waits if id not in gone)
    causes = [f"Broker {id} {why_absent(s, id)}." for id in gone]
    causes += [
        f"The disk of {path} at broker {id} is nearly full: it takes nothing until there is room."
        for id, path in full.items()
    ]
    if lacks:
        causes.append(f"The move is complete when every new replica is in sync: {lacks}.")
    steps = [step for id in gone for step in repair(s, id)]
    steps += [
        Advice(
            f"Make room on the disk of {path} at broker {id}: the copy then goes on by itself.",
            s.commands.ottla("doctor"),
        )
        for id, path in full.items()
    ]
    steps += [step for limits in slow.values() for step in faster_copy(now, limits, s.commands)]
    watch = Advice("Watch it.", s.commands.ottla(f"topics reassign {now.topic} --list"))
    if gone:
        headline += f", and it waits for {brokers(gone)}, which cannot copy now."
    elif full:
        headline += f", and it waits for {brokers(tuple(full))}, whose disk is full."
    elif slow:
        rate = min(rate for limits in slow.values() for *_, rate in limits)
        longest = max((_at_least_ms(s, id, limits) for id, limits in slow.items()), default=0)
        more = f", so it takes at least {duration(longest)} more" if longest else ""
        headline += f"; a throttle limits the copy to {size(rate)}/s{more}."
    else:
        headline += "; copying goes on."
    return Trouble(
        DEGRADED if gone or full or slow else NOTICE,
        headline,
        tuple(causes),
        steps=(*(dict.fromkeys(steps) or (watch,)), cancel),
    )


def _full_directory(s: PartitionSituation, broker: int) -> str:
    """One that holds the replica may be full: which one holds it is not told, so all have to be."""
    own = [each for each in s.cluster.broker(broker).directories if not each.failed]
    return own[0].path if own and all(each.refuses_records for each in own) else ""


def _is_absent(s: PartitionSituation, broker: int) -> bool:
    found = s.cluster.broker(broker)
    return not found.answers or bool(found.fenced) or failed_directory(s, broker) is not None


def _left_bytes(s: PartitionSituation, broker: int) -> int:
    """What a new replica has yet to copy; 0 if it is not known."""
    place = (s.now.topic, s.now.partition)
    whole = s.cluster.broker(s.now.leader).sizes.get(place, 0)
    return max(0, whole - s.cluster.broker(broker).sizes.get(place, 0))


def _at_least_ms(s: PartitionSituation, broker: int, limits: Sequence[Limit]) -> float:
    """Other partitions may share the rate."""
    return 1000 * least_seconds(_left_bytes(s, broker), min(rate for _, _, rate in limits))


def _lacks(s: PartitionSituation, broker: int, limits: Sequence[Limit]) -> str:
    lag, left = s.now.lag(broker), _left_bytes(s, broker)
    if not lag:
        return f"broker {broker} is catching up"
    text = f"broker {broker} lacks {count(lag, 'record')}"
    if left:
        text += f" (about {size(left)})"
    return f"{text}, and its copying is throttled to {_slowest(limits)}" if limits else text


def _open_transaction(s: PartitionSituation) -> Trouble | None:
    now = s.now
    if not now.transactions:
        return None
    oldest = now.transactions[0]
    open_for = s.cluster.now_ms - (oldest.started_ms or oldest.last_ms)
    if oldest.transactional_id is not None and open_for < OPEN_LONG_MS:
        return None
    nobody = " that no coordinator knows" if oldest.transactional_id is None else ""
    headline = (
        f"A transaction{nobody} has been open in {now.name} for {duration(open_for)}:"
        f" consumers with isolation.level=read_committed stop before offset {oldest.start_offset}."
    )
    severity = DEGRADED if ends_by_itself(oldest, s.cluster.now_ms) else WRONG
    return Trouble(
        severity,
        headline,
        transaction_cause(oldest, s.cluster.now_ms, now.log_end),
        "can write.",
        f"with read_committed get nothing from offset {oldest.start_offset} on; those with read_uncommitted can read.",
        end_transaction(oldest, now.topic, now.partition, s.commands),
    )


def _throttled(s: PartitionSituation) -> Trouble | None:
    since = s.cluster.now_ms - THROTTLED_WITHIN_MS
    hits = [
        each
        for each in s.entries
        if each.kind == "quota_exceeded" and each.at_ms >= since and each.node == s.now.leader
    ]
    return throttling(hits, s.cluster, s.commands) if hits else None


RULES: tuple[Callable[[PartitionSituation], Trouble | None], ...] = (
    _stopped,
    _no_controller,
    _offline,
    _leader_out_of_reach,
    lost_records,
    _too_few_in_sync,
    _standing,
    _under_replicated,
    _moving,
    _open_transaction,
    end_may_be_missing,
    _throttled,
    lose_no_more,
)


def _is_led(s: PartitionSituation) -> bool:
    """By somebody whom a controller has put there, and who answers."""
    if s.now.leader < 0 or s.cluster.has_no_controller or s.cluster.stopped:
        return False
    return s.cluster.broker(s.now.leader).answers


def _in_sync(now: PartitionNow) -> str:
    who = brokers(now.isr) if now.isr else "none"
    return f"{len(now.isr)} of {len(now.replicas)} replicas in sync ({who})"


def _has(ids: Sequence[int]) -> str:
    return "has" if len(ids) == 1 else "have"
