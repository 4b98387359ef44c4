"""Why a consumer group is as it is now: what a rebalance waits for, what its members stand before, who does not commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from shlex import quote
from typing import Any

from ottla.diagnosis.causes import (
    end_transaction,
    lost_voters,
    no_majority,
    start_controllers,
    transaction_cause,
)
from ottla.diagnosis.explanation import DEGRADED, NOTICE, WRONG, Advice, Explanation, Trouble
from ottla.diagnosis.happened import Happened
from ottla.diagnosis.now import ClusterNow, Commands, GroupNow, LagNow
from ottla.diagnosis.timeline import story_of_group, told
from ottla.diagnosis.words import count, duration, listed

STORY_MS = 60 * 60_000
STORM = 5
"""So many rebalances within ten minutes are a trouble of their own."""
STORM_MS = 10 * 60_000


class GroupSituation:
    def __init__(
        self, now: GroupNow, cluster: ClusterNow, entries: Sequence[Happened], commands: Commands
    ) -> None:
        self.now = now
        self.cluster = cluster
        self.entries = entries
        self.commands = commands
        self.story = story_of_group(entries, now.id, cluster.now_ms - STORY_MS)


def explain_group(
    now: GroupNow, cluster: ClusterNow, entries: Iterable[Happened], commands: Commands
) -> Explanation:
    situation = GroupSituation(now, cluster, list(entries), commands)
    rules = (_stopped,) if cluster.stopped else RULES
    troubles = [trouble for rule in rules if (trouble := rule(situation)) is not None]
    troubles.sort(key=lambda each: -each.severity)
    all_of_it = commands.ottla(f"events --group {quote(now.id)}")
    lines, earlier = told(situation.story, cluster.now_ms, all_of_it)
    effects = [each.consumers for each in troubles if each.consumers]
    return Explanation(
        subject=f"group {now.id}",
        now_ms=cluster.now_ms,
        headline=" ".join(each.headline for each in troubles) or _healthy(now),
        ok=all(each.severity < DEGRADED for each in troubles),
        timeline=lines,
        earlier=earlier,
        cause=tuple(line for each in troubles for line in each.cause),
        consumers=tuple(effects) or (_progress(now),),
        steps=tuple(dict.fromkeys(step for each in troubles for step in each.steps)),
        unknown=cluster.unknown,
        facts={
            "group": now.id,
            "state": now.state,
            "type": now.type,
            "members": len(now.members),
            "lag": now.lag,
        },
    )


def _healthy(now: GroupNow) -> str:
    behind = f"{count(now.lag, 'record')} behind" if now.lag else "has read everything"
    return f"group {now.id} is healthy: {now.state} with {count(len(now.members), 'member')}, {behind}."


def _progress(now: GroupNow) -> str:
    moved = sum(each.moved for each in now.lags)
    if not now.lag:
        return "have read everything that there is."
    return f"read on: {count(moved, 'record')} in the last {duration(now.between_ms)}, {now.lag} to go."


def _stopped(s: GroupSituation) -> Trouble:
    now = s.now
    had = f"had {count(len(now.members), 'member')}" if now.members else "had no members"
    clients = listed(
        sorted({f"{each.client_id} ({each.host.lstrip('/')})" for each in now.members})
    )
    lag = f"{count(now.lag, 'record')} behind" if now.lag else "not behind"
    return Trouble(
        WRONG,
        f"The cluster is stopped. When it stopped, group {now.id} {had} and was {lag}.",
        (
            "No node of it runs. All of this was read from its directory.",
            *([f"Its members were {clients}."] if clients else []),
            *(
                f"{each.name}: committed {each.committed} of {each.log_end}."
                for each in now.lags
                if each.lag
            ),
        ),
        consumers="cannot read.",
        steps=(
            Advice(
                "Start the cluster. Consumers that still run join again and go on at the committed offsets.",
                s.commands.ottla("up --detach"),
            ),
        ),
    )


def _rebalancing(s: GroupSituation) -> Trouble | None:
    now, hold_up = s.now, s.now.hold_up
    if now.state in ("Stable", "Empty", "Dead"):
        return None
    headline = f"group {now.id} is rebalancing ({now.state})"
    again = Advice("Look again in a few seconds.", s.commands.ottla("explain --group", now.id))
    if hold_up is None:
        return Trouble(
            DEGRADED,
            f"{headline}; its coordinator, broker {now.coordinator}, does not say what it waits for.",
            (),
            consumers="wait for their new assignment.",
            steps=(again,),
        )
    since = hold_up.get("since_ms", -1)
    lasts_ms = s.cluster.now_ms - since if since >= 0 else None
    age = "" if lasts_ms is None else f" for {duration(lasts_ms)}"
    late = hold_up.get("late", [])
    waits_for = hold_up.get("waits_for", "an answer")
    cause = [f"The rebalance began because {hold_up['reason']}."] if hold_up.get("reason") else []
    if not late:
        return Trouble(
            DEGRADED,
            f"{headline}{age}: it waits for more members, or for {waits_for}.",
            tuple(cause),
            consumers="wait for their new assignment.",
            steps=(again,),
        )
    names = listed(_name(s, member) for member in late)
    have = "has not sent its" if len(late) == 1 else "have not sent their"
    cause += [_of_late(s, member, waits_for, since) for member in late]
    limit = hold_up.get("rebalance_timeout_ms")
    if limit:
        cause.append(
            f"Whoever is late is removed {duration(limit)} after the rebalance began (max.poll.interval.ms of the consumers);"
            " the group then goes on without it."
        )
    consumers = "of this group get no records until the rebalance is over."
    if lasts_ms is not None and lasts_ms < NORMAL_MS:
        cause.append(
            "That is not unusual yet: a member learns of a rebalance by its next heartbeat, every 3 s by default, and joins at"
            " its next poll()."
        )
        text = f"{headline}{age}: it waits for {names}, which {have} {waits_for} yet."
        return Trouble(DEGRADED, text, tuple(cause), consumers=consumers, steps=(again,))
    step = Advice(
        f"Look at the application of {names}: most likely it hangs in processing and does not call poll(). Fix or restart it;"
        " then the rebalance goes on at once."
    )
    return Trouble(
        WRONG,
        f"{headline}{age}: it is held up by {names}, which {have} {waits_for}.",
        tuple(cause),
        consumers=consumers,
        steps=(step,),
    )


NORMAL_MS = 6_000
"""Two heartbeat intervals of Kafka's default: so long a rebalance may wait for a member that is well."""


def _name(s: GroupSituation, member: dict[str, Any]) -> str:
    hosts = [each.host.lstrip("/") for each in s.now.members if each.id == member.get("member_id")]
    return f"client {member.get('client_id')}" + (f" ({hosts[0]})" if hosts else "")


def _of_late(s: GroupSituation, member: dict[str, Any], waits_for: str, since_ms: int) -> str:
    heard = member.get("heard_ms", 0)
    text = f"It waits for the {waits_for} of member {member.get('member_id')}"
    if heard <= 0:
        return f"{text}."
    ago = f"{duration(s.cluster.now_ms - heard)} ago"
    if heard > since_ms:
        return f"{text}. That sends heartbeats, the last one {ago}: its process lives, its application does not join."
    return f"{text}, which has sent nothing since the rebalance began (last heard of {ago})."


def _stands_before_transaction(s: GroupSituation) -> Trouble | None:
    held = [each for each in s.now.lags if each.transaction is not None and each.lag]
    # A group that is beyond the first open offset reads uncommitted records.
    held = [
        e
        for e in held
        if e.transaction and (e.committed or 0) <= e.transaction.start_offset and not e.moved
    ]
    if not held:
        return None
    first = held[0]
    assert first.transaction is not None
    headline = (
        f"group {s.now.id} stands still in {listed(each.name for each in held)}, at offset {first.committed or 0}:"
        " a transaction is open there."
    )
    return Trouble(
        WRONG,
        headline,
        transaction_cause(first.transaction, s.cluster.now_ms, first.log_end),
        consumers=f"with read_committed get nothing from offset {first.transaction.start_offset} of {first.name} on.",
        steps=end_transaction(first.transaction, first.topic, first.partition, s.commands),
    )


def _nobody_reads(s: GroupSituation) -> Trouble | None:
    if s.now.members or s.now.state not in ("Empty", "Dead"):
        return None
    expired = [each for each in s.story.entries if each.kind == "member_expired"]
    ago = f" {duration(s.cluster.now_ms - expired[-1].at_ms)} ago" if expired else ""
    cause = (
        f"Its last member was removed{ago}: {expired[-1].cause}."
        if expired
        else "No consumer has joined it, or all have left."
    )
    headline = f"group {s.now.id} has no members" + (
        f", and {count(s.now.lag, 'record')} {_wait(s.now.lag)} for it."
        if s.now.lag
        else "; it has read everything."
    )
    return Trouble(
        WRONG if s.now.lag else NOTICE,
        headline,
        (cause,),
        consumers="nobody of this group reads.",
        steps=(Advice("Start its consumers again; they go on at the committed offsets."),),
    )


def _no_leader(s: GroupSituation) -> Trouble | None:
    dead = [each for each in s.now.lags if not each.has_leader]
    if not dead:
        return None
    first = dead[0]
    return Trouble(
        WRONG,
        f"group {s.now.id} cannot read {listed(each.name for each in dead)}: no leader.",
        ("A partition without a leader can neither be read nor written.",),
        consumers=f"wait at {listed(each.name for each in dead)}.",
        steps=(
            Advice(
                "See why the partition has no leader.", s.commands.ottla(f"explain {first.name}")
            ),
        ),
    )


def _wait(records: int) -> str:
    return "waits" if records == 1 else "wait"


def _does_not_commit(s: GroupSituation) -> Trouble | None:
    """Members are there, records wait, and no offset moves."""
    if s.now.state != "Stable" or not s.now.members:
        return None
    stuck = [
        e for e in s.now.lags if e.lag and not e.moved and e.transaction is None and e.has_leader
    ]
    if not stuck or any(each.moved for each in s.now.lags):
        return None
    old = max((each.age_ms or 0 for each in stuck), default=0)
    if old < STANDS_STILL_MS:
        return None
    worst: LagNow = max(stuck, key=lambda each: each.lag)
    most = ", most of them" if s.now.lag > worst.lag else ""
    clients = listed(
        sorted({f"{each.client_id} ({each.host})" for each in s.now.members if each.assigned})
    )
    return Trouble(
        WRONG,
        f"group {s.now.id} is stable, but it commits nothing: {count(s.now.lag, 'record')} {_wait(s.now.lag)}{most} in {worst.name}.",
        (
            f"In the last {duration(s.now.between_ms)} no offset of it moved; the next record of {worst.name} is {duration(old)} old.",
            f"Its members send heartbeats, so they are alive: {clients}. Their application does not process, or does not commit.",
        ),
        consumers="get records and do nothing visible with them.",
        steps=(
            Advice(
                "Look at the application of these clients: does it hang on one record (poison pill), or wait for another system?"
            ),
        ),
    )


STANDS_STILL_MS = 10_000


def _storm(s: GroupSituation) -> Trouble | None:
    since = s.cluster.now_ms - STORM_MS
    begun = [e for e in s.story.entries if e.kind == "rebalance" and e.at_ms >= since]
    if len(begun) < STORM:
        return None
    expired = [e for e in s.story.entries if e.kind == "member_expired" and e.at_ms >= since]
    reasons = listed(sorted({str(each.cause) for each in begun if each.cause}))
    cause = [f"Reasons: {reasons}."] if reasons else []
    if expired:
        cause.append(f"{count(len(expired), 'member')} expired meanwhile: {expired[-1].cause}.")
    return Trouble(
        DEGRADED,
        f"group {s.now.id} rebalanced {len(begun)} times in the last {duration(s.cluster.now_ms - begun[0].at_ms)}.",
        tuple(cause),
        consumers="stop at every rebalance.",
        steps=(
            Advice(
                "Give the consumers more time (max.poll.interval.ms, session.timeout.ms) or less work for each poll"
                " (max.poll.records), and static membership (group.instance.id) for planned restarts."
            ),
        ),
    )


def _idle(s: GroupSituation) -> Trouble | None:
    idle = [each for each in s.now.members if not each.assigned]
    if s.now.state != "Stable" or not idle or len(idle) == len(s.now.members):
        return None
    return Trouble(
        NOTICE,
        f"{count(len(idle), 'member')} of group {s.now.id} have nothing to read."
        if len(idle) > 1
        else f"One member of group {s.now.id} has nothing to read.",
        ("There are more members than partitions.",),
    )


def _no_controller(s: GroupSituation) -> Trouble | None:
    if not s.cluster.has_no_controller:
        return None
    gone = lost_voters(s.cluster)
    return Trouble(
        NOTICE,
        "The cluster has no active controller.",
        no_majority(s.cluster, gone, s.entries),
        steps=(start_controllers(s.cluster, gone, s.commands),),
    )


RULES: tuple[Callable[[GroupSituation], Trouble | None], ...] = (
    _rebalancing,
    _stands_before_transaction,
    _nobody_reads,
    _no_leader,
    _does_not_commit,
    _storm,
    _idle,
    _no_controller,
)
