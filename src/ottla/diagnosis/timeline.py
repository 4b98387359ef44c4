"""The timeline of an explanation: entries of the event log, in words.

`story_of_partition` picks the entries that belong to the present state: from the last moment at which all replicas were in
sync. What happened before that is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.diagnosis.explanation import TimelineLine
from ottla.diagnosis.happened import Happened
from ottla.diagnosis.words import brokers, clock, count, duration, listed, size

BEFORE_MS = 60_000
"""What failed so long before a story belongs to it: a follower leaves the ISR replica.lag.time.max.ms after its disk failed."""
LINES_MAX = 30
FAILURES = ("fenced", "log_dir_failure", "node_stop")
OF_BROKERS = (*FAILURES, "unfenced", "node_start")
OF_CLUSTER = ("controller_change", "events_dropped")
SAME_MOMENT_MS = 2_000
LEFT_BECAUSE = {
    "slow": "because {they} fell behind",
    "silent": "because {they} stopped fetching",
    "fenced": "because {they} {were} fenced",
    "disk": "because {their} disk failed",
    "full": "because {their} disk was full",
    "restart": "because {they} restarted",
    "shutdown": "because {they} {were} shut down",
    "reassigned": "because the partition was moved away",
}
HOW_ELECTED = {
    "elr": ", from the eligible leader replicas: it has every committed record",
    "last_known_leader": ", the last known leader, after an unclean shutdown: the end of its log may be missing",
    "unclean": " although it was not in sync (unclean election): records that it lacks are lost",
    "preferred": ", the preferred replica",
}


class Story(NamedTuple):
    entries: list[Happened]
    left_out: int
    """Earlier entries about the same."""


def story_of_partition(
    entries: Iterable[Happened], name: str, replicas: Sequence[int], whole_now: bool
) -> Story:
    """`whole_now`: all replicas are in sync. Then it is the story of the last time when they were not."""
    topic = name.rpartition("-")[0]
    ours = [each for each in entries if _is_about_partition(each, name, topic, replicas)]
    own = [each for each in ours if each.partition == name]
    if not own:
        return Story([], len(ours))
    begin = _beginning(own, set(replicas), whole_now)
    if begin is None:
        return Story([], len(ours))
    first_ms = own[begin].at_ms
    story = [
        each
        for each in ours
        if (each.at_ms >= first_ms and (each.partition is None or each in own[begin:]))
        or (each.kind in FAILURES and each.at_ms >= first_ms - _reach_back(each, own, begin))
    ]
    return Story(story, len(ours) - len(story))


def _reach_back(failure: Happened, own: Sequence[Happened], begin: int) -> int:
    """How long before a story a failure belongs to it: not when all were in sync since. A failed disk stays failed."""
    is_over = begin > 0 and failure.at_ms < own[begin - 1].at_ms
    return 0 if is_over and failure.kind != "log_dir_failure" else BEFORE_MS


def _is_about_partition(entry: Happened, name: str, topic: str, replicas: Sequence[int]) -> bool:
    if entry.partition is not None:
        return entry.partition == name
    if entry.kind in ("fenced", "unfenced"):
        return entry.fields.get("broker") in replicas
    if entry.kind in OF_BROKERS:
        return entry.node in replicas
    if entry.kind == "setting_changed":
        return entry.fields.get("resource") == f"topic:{topic}"
    return entry.kind in OF_CLUSTER


def _beginning(own: list[Happened], replicas: set[int], whole_now: bool) -> int | None:
    """The first entry after the last time when the partition was whole; if it is now, of the time before that. None if it
    always was."""
    was_whole = [_leaves_whole(entry, replicas) for entry in own]
    end = len(own)
    if whole_now:
        broken = [number for number, whole in enumerate(was_whole) if whole is False]
        if not broken:
            return None if not any(each.kind == "reassignment" for each in own) else 0
        end = broken[-1]
    for number in range(end - 1, -1, -1):
        if was_whole[number]:
            return min(number + 1, len(own) - 1)
    return 0


def _leaves_whole(entry: Happened, replicas: set[int]) -> bool | None:
    """Whether all replicas are in sync after this entry; None if it does not say."""
    if entry.kind == "offline":
        return False
    if entry.kind == "leader_start" and entry.fields.get("leader_epoch") == 0:
        return True  # a new partition
    isr = entry.fields.get("isr")
    return None if isr is None else set(isr) >= replicas


def story_of_broker(entries: Iterable[Happened], broker: int, since_ms: int) -> Story:
    """What happened to a broker since a given time."""
    ours = [each for each in entries if _is_about_broker(each, broker)]
    kept = [each for each in ours if each.at_ms >= since_ms]
    return Story(kept, len(ours) - len(kept))


def _is_about_broker(entry: Happened, broker: int) -> bool:
    if entry.kind in ("fenced", "unfenced"):
        return entry.fields.get("broker") == broker
    if entry.kind in (*OF_BROKERS, "quota_exceeded", "events_dropped"):
        return entry.node == broker
    if entry.kind in ("isr_shrink", "isr_expand"):
        return broker in entry.fields.get("brokers", ())
    if entry.kind in ("election", "offline"):
        return entry.fields.get("previous_leader") == broker
    return entry.kind == "controller_change" and entry.fields.get("controller") == broker


def story_of_group(entries: Iterable[Happened], group: str, since_ms: int) -> Story:
    ours = [
        each
        for each in entries
        if each.kind in ("rebalance", "member_expired") and each.fields.get("group") == group
    ]
    kept = [each for each in ours if each.at_ms >= since_ms]
    return Story(kept, len(ours) - len(kept))


def told(
    story: Story, now_ms: int, all_of_it: str, own: str = ""
) -> tuple[tuple[TimelineLine, ...], str]:
    """The lines, and what is left out before them. `all_of_it`: the command that shows that. `own`: the partition that all
    of it is about."""
    lines = [_told_run(run, now_ms, own) for run in _runs(_in_order(story.entries))]
    left_out = story.left_out + max(0, len(lines) - LINES_MAX)
    earlier = f"({count(left_out, 'earlier event')} left out: {all_of_it})" if left_out else ""
    return tuple(lines[-LINES_MAX:]), earlier


CONSEQUENCES = ("fenced", "isr_shrink", "offline", "election", "leader_start")
"""In the order in which one leads to the next. Nodes write them with clocks of their own, and within the same milliseconds."""


def _in_order(entries: Sequence[Happened]) -> list[Happened]:
    """By time, but a leader starts after its election, and an event of the same millisecond comes after its cause."""
    elected = {_epoch_of(each): each.at_ms for each in entries if each.kind == "election"}

    def key(entry: Happened) -> tuple[int, int]:
        rank = CONSEQUENCES.index(entry.kind) if entry.kind in CONSEQUENCES else -1
        at_ms = entry.at_ms
        if (
            entry.kind == "leader_start"
            and at_ms < elected.get(_epoch_of(entry), 0) < at_ms + SAME_MOMENT_MS
        ):
            at_ms = elected[_epoch_of(entry)]
        return at_ms, rank

    return sorted(entries, key=key)


def _epoch_of(entry: Happened) -> tuple[str | None, object]:
    return entry.partition, entry.fields.get("leader_epoch")


def _runs(entries: Sequence[Happened]) -> list[list[Happened]]:
    """Events that one line tells: what one cause did to many partitions, repetitions, an election and its leader's start."""
    runs: list[list[Happened]] = []
    for entry in entries:
        run = next((run for run in reversed(runs[-RUNS_OPEN:]) if _belongs(run, entry)), None)
        if run is None:
            runs.append([entry])
        else:
            run.append(entry)
    return runs


RUNS_OPEN = 6


def _belongs(run: list[Happened], entry: Happened) -> bool:
    first, last = run[0], run[-1]
    if entry.kind == "leader_start":
        same = ("leader", "leader_epoch")
        return (
            first.kind == "election"
            and first.partition == entry.partition
            and _agree(first, entry, same)
        )
    if first.kind != entry.kind:
        return False
    if entry.kind == "quota_exceeded":
        return _agree(first, entry, ("user", "client_id", "quota")) and first.node == entry.node
    if entry.kind in ("isr_shrink", "isr_expand", "election", "offline"):
        is_other = entry.partition != last.partition
        soon = entry.at_ms - last.at_ms < SAME_MOMENT_MS
        return is_other and soon and _agree(first, entry, ("brokers", "previous_leader", "how"))
    return False


def _agree(one: Happened, other: Happened, names: Sequence[str]) -> bool:
    return all(one.fields.get(name) == other.fields.get(name) for name in names)


def _told_run(run: list[Happened], now_ms: int, own: str) -> TimelineLine:
    first, last = run[0], run[-1]
    places = list(dict.fromkeys(each.partition for each in run if each.partition is not None))
    if len(places) > 1:
        return TimelineLine(first.at_ms, _of_many(first, places))
    text = in_words(first).removeprefix(f"{own}: ")
    if last.kind == "leader_start" and first.kind == "election":
        text += f"; its log ended at offset {last.fields.get('log_end')}"
    elif len(run) > 1:
        text += f" ({len(run)} times until {clock(last.at_ms, now_ms)})"
    return TimelineLine(first.at_ms, text)


def _of_many(first: Happened, places: Sequence[str]) -> str:
    """What one cause did to many partitions."""
    many = f"{len(places)} partitions ({listed(places[:3])}{' …' if len(places) > 3 else ''})"
    known = first.fields
    match first.kind:
        case "election":
            return f"{many}, which broker {known.get('previous_leader')} had led, got other leaders"
        case "offline":
            return f"{many} went offline: no replica that may lead them was alive"
        case "isr_expand":
            return f"{brokers(known.get('brokers', ()))} joined the ISR of {many}"
    ids = list(known.get("brokers", ()))
    why = left_because(first.cause, ids)
    return f"{brokers(ids)} left the ISR of {many} {why}".rstrip()


def in_words(entry: Happened) -> str:
    """One event as a sentence without its time."""
    make = WORDS.get(entry.kind)
    if make is None:
        more = ", ".join(f"{name} {value}" for name, value in entry.fields.items())
        return f"{entry.kind} at node {entry.node}" + (f": {more}" if more else "")
    return make(entry)


def _where(entry: Happened) -> str:
    return f"{entry.partition}: " if entry.partition else ""


def _election(entry: Happened) -> str:
    known = entry.fields
    before = known.get("previous_leader", -1)
    after = f" after broker {before}" if before is not None and before >= 0 else ""
    how = HOW_ELECTED.get(known.get("how", ""), "")
    return f"{_where(entry)}broker {known.get('leader')} was elected leader{after} (epoch {known.get('leader_epoch')}){how}"


def _leader_start(entry: Happened) -> str:
    known = entry.fields
    if known.get("leader_epoch") == 0:
        return f"{_where(entry)}the partition was created; broker {known.get('leader')} led it"
    return (
        f"{_where(entry)}broker {known.get('leader')} began to lead at offset {known.get('log_end')}"
        f" (epoch {known.get('leader_epoch')})"
    )


def _offline(entry: Happened) -> str:
    before = entry.fields.get("previous_leader")
    return (
        f"{_where(entry)}the partition went offline: no replica that may lead it was alive"
        f" (the last leader was broker {before})"
    )


def _isr(entry: Happened) -> str:
    known = entry.fields
    ids = list(known.get("brokers", ()))
    now = known.get("isr", ())
    isr = f"in sync: {brokers(now) if now else 'none'}"
    if entry.kind == "isr_expand":
        return f"{_where(entry)}{brokers(ids)} joined the ISR ({isr})"
    why = left_because(entry.cause, ids)
    behind = _behind(known.get("lag") or {}, ids)
    return f"{_where(entry)}{brokers(ids)} left the ISR{' ' if why else ''}{why}{behind} ({isr})"


def left_because(cause: str | None, ids: Sequence[int]) -> str:
    several = len(ids) > 1
    pronouns = {
        "they": "they" if several else "it",
        "their": "their" if several else "its",
        "were": "were" if several else "was",
    }
    return LEFT_BECAUSE.get(cause or "", cause or "").format(**pronouns)


def _behind(lag: dict[str, dict[str, float]], ids: list[int]) -> str:
    found = {id: words for id in ids if (words := behind(lag.get(str(id)) or {}))}
    if len(ids) == 1:
        return "".join(f", {words} behind" for words in found.values())
    return "".join(f"; broker {id} {words} behind" for id, words in found.items())


def behind(lag: Mapping[str, float | None]) -> str:
    """`700 records and 31.0 s`; empty if it is not known."""
    records, seconds = lag.get("records"), lag.get("seconds")
    parts = [count(int(records), "record")] if records else []
    parts += [duration(seconds * 1000)] if seconds else []
    return " and ".join(parts)


def _truncation(entry: Happened) -> str:
    known = entry.fields
    cut = count(int(known.get("records") or 0), "record")
    span = f"offsets {known.get('first_offset')} to {(known.get('end_offset') or 1) - 1}"
    text = f"{_where(entry)}broker {entry.node} cut {cut} off its log ({span}), which its leader, broker {known.get('leader')}, does not have"
    if known.get("below_high_watermark"):
        text += "; some of them had been committed"
    if known.get("kept"):
        text += f"; kept aside as {known['kept']}"
    return text


def _fenced(entry: Happened) -> str:
    why = f": {entry.cause}" if entry.cause else ""
    return f"broker {entry.fields.get('broker')} was fenced{why}"


def _quota(entry: Happened) -> str:
    known = entry.fields
    who = f"client {known.get('client_id') or '(no client id)'}"
    if known.get("user"):
        who += f" of user {known['user']}"
    quota = str(known.get("quota"))
    return (
        f"broker {entry.node} throttled {who} for {duration(known.get('throttle_ms') or 0)}:"
        f" {quota} is {amount(quota, known.get('limit'))}, measured {amount(quota, known.get('measured'))}"
    )


def amount(quota: str, value: Any) -> str:
    """A limit or a rate of a quota, with its unit."""
    if value is None:
        return "unknown"
    if "byte_rate" in quota:
        return f"{size(float(value))}/s"
    if quota == "request_percentage":
        return f"{float(value):.1f} %"
    return f"{float(value):g}/s"


def _reassignment(entry: Happened) -> str:
    known = entry.fields
    removing = known.get("removing", ())
    to = [id for id in known.get("replicas", ()) if id not in removing]
    extra = ""
    if known.get("step") in ("started", "changed"):
        extra = f": adding {brokers(known.get('adding', ()))}, removing {brokers(removing)}"
    return f"{_where(entry)}reassignment {known.get('step')}, to {brokers(to)}{extra}"


def _setting(entry: Happened) -> str:
    known = entry.fields
    by = f" by {known['by']}" if known.get("by") else ""
    resource = str(known.get("resource")).replace(":", " ")
    old, new = (
        "the default" if known.get(name) is None else known[name] for name in ("old", "new")
    )
    return f"{resource}: {known.get('name')} changed from {old} to {new}{by}"


def _directory_failed(entry: Happened) -> str:
    hit = entry.fields.get("partition_count", 0)
    why = f" ({entry.cause})" if entry.cause else ""
    return (
        f"the log directory {entry.fields.get('directory')} of broker {entry.node} failed{why}:"
        f" {count(hit, 'replica')} offline"
    )


def _aborted(entry: Happened) -> str:
    why = f": {entry.cause}" if entry.cause else ""
    return f"the coordinator aborted the transaction of {entry.fields.get('transactional_id')}{why}"


def _rebalance(entry: Happened) -> str:
    why = f" because {entry.cause}" if entry.cause else ""
    return f"the group began to rebalance{why} (epoch {entry.fields.get('epoch')})"


def _expired(entry: Happened) -> str:
    why = f": {entry.cause}" if entry.cause else ""
    return f"the group removed member {entry.fields.get('member')}{why}"


WORDS: dict[str, Callable[[Happened], str]] = {
    "election": _election,
    "offline": _offline,
    "leader_start": _leader_start,
    "isr_shrink": _isr,
    "isr_expand": _isr,
    "truncation": _truncation,
    "fenced": _fenced,
    "unfenced": lambda entry: f"broker {entry.fields.get('broker')} was unfenced",
    "log_dir_failure": _directory_failed,
    "controller_change": lambda entry: (
        f"node {entry.fields.get('controller')} became the active controller (epoch {entry.fields.get('epoch')})"
    ),
    "reassignment": _reassignment,
    "setting_changed": _setting,
    "quota_exceeded": _quota,
    "transaction_aborted": _aborted,
    "rebalance": _rebalance,
    "member_expired": _expired,
    "node_start": lambda entry: f"node {entry.node} started",
    "node_stop": lambda entry: f"node {entry.node} stopped in good order",
    "events_dropped": lambda entry: (
        f"node {entry.node} could not record {count(int(entry.fields.get('count') or 0), 'event')}"
    ),
    "stray_log": lambda entry: (
        f"{_where(entry)}broker {entry.node} set a log aside that the cluster does not know"
        f" ({entry.fields.get('kept')})"
    ),
}
