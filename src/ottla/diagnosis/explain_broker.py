"""Why a broker is as it is now: whether it runs, can be reached, is fenced, has its disks, and whom it throttles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ottla.diagnosis.causes import (
    advertised_wrongly,
    bring_back,
    capital,
    lost_voters,
    no_majority,
    start_cluster,
    start_controllers,
)
from ottla.diagnosis.client_quotas import THROTTLED_WITHIN_MS, throttling
from ottla.diagnosis.explanation import DEGRADED, NOTICE, WRONG, Advice, Explanation, Trouble
from ottla.diagnosis.happened import Happened
from ottla.diagnosis.now import BrokerNow, ClusterNow, Commands, Reach
from ottla.diagnosis.remedies import correct_listener, repair_directory, wake
from ottla.diagnosis.timeline import story_of_broker, told
from ottla.diagnosis.words import count, duration, listed, size

STORY_MS = 60 * 60_000
NEARLY_FULL = 0.05


@dataclass(frozen=True)
class DutiesNow:
    """What a broker holds, according to the metadata."""

    replicas: int
    leads: int
    out_of_sync: tuple[str, ...]
    """Partitions of which its replica is not in sync."""
    leaderless: tuple[str, ...]
    """Partitions that it holds a replica of and that have no leader."""
    only_copies: tuple[str, ...] = ()
    """Partitions of which nobody else has every committed record."""


class BrokerSituation:
    def __init__(
        self,
        now: BrokerNow,
        duties: DutiesNow,
        cluster: ClusterNow,
        entries: Sequence[Happened],
        commands: Commands,
    ) -> None:
        self.now = now
        self.duties = duties
        self.cluster = cluster
        self.commands = commands
        self.entries = entries
        self.story = story_of_broker(entries, now.id, cluster.now_ms - STORY_MS)

    def last(self, *kinds: str) -> Happened | None:
        for entry in reversed(self.story.entries):
            about = entry.fields.get("broker", entry.node)
            if entry.kind in kinds and about == self.now.id:
                return entry
        return None

    def ago(self, entry: Happened) -> str:
        return f"{duration(self.cluster.now_ms - entry.at_ms)} ago"


def explain_broker(
    now: BrokerNow,
    duties: DutiesNow,
    cluster: ClusterNow,
    entries: Iterable[Happened],
    commands: Commands,
) -> Explanation:
    situation = BrokerSituation(now, duties, cluster, list(entries), commands)
    troubles = [trouble for rule in RULES if (trouble := rule(situation)) is not None]
    troubles.sort(key=lambda each: -each.severity)
    all_of_it = commands.ottla(f"events --broker {now.id}")
    lines, earlier = told(situation.story, cluster.now_ms, all_of_it)
    return Explanation(
        subject=f"broker {now.id}",
        now_ms=cluster.now_ms,
        headline=" ".join(each.headline for each in troubles) or _healthy(now, duties),
        ok=all(each.severity < DEGRADED for each in troubles),
        timeline=lines,
        earlier=earlier,
        cause=tuple(dict.fromkeys(line for each in troubles for line in each.cause)),
        producers=tuple(each.producers for each in troubles if each.producers),
        consumers=tuple(each.consumers for each in troubles if each.consumers),
        steps=tuple(dict.fromkeys(step for each in troubles for step in each.steps)),
        unknown=cluster.unknown,
        facts={
            "broker": now.id,
            "address": now.address,
            "reach": now.reach.value,
            "fenced": now.fenced,
            "process": now.process,
            "replicas": duties.replicas,
            "leads": duties.leads,
            "out_of_sync": list(duties.out_of_sync),
        },
    )


def _healthy(now: BrokerNow, duties: DutiesNow) -> str:
    return (
        f"broker {now.id} is healthy: it answers at {now.address}, is not fenced, leads"
        f" {duties.leads} of its {count(duties.replicas, 'replica')}, all in sync."
    )


def _stopped(s: BrokerSituation) -> Trouble | None:
    if not s.cluster.stopped:
        return None
    was = "was fenced" if s.now.fenced else "was part of the cluster"
    return Trouble(
        WRONG,
        f"The cluster is stopped. By the last metadata broker {s.now.id} {was}.",
        ("No node of it runs. All of this was read from its directory.",),
        steps=(start_cluster(s.cluster, s.commands),),
    )


def _gone(s: BrokerSituation) -> Trouble | None:
    now = s.now
    if (
        s.cluster.stopped
        or now.answers
        or (not now.fenced and now.process is not False and _majority(s))
    ):
        return None
    fenced, stopped = s.last("fenced", "unfenced"), s.last("node_stop", "node_start")
    state = "does not run" if now.process is False else f"{now.reach} at {now.address}"
    and_fenced = ", and the controller has fenced it" if now.fenced else ""
    headline = f"Broker {now.id} {state}{and_fenced}."
    cause = []
    in_order = stopped is not None and stopped.kind == "node_stop"
    if stopped is not None and in_order:
        cause.append(f"It was stopped in good order {s.ago(stopped)}.")
    if now.fenced and fenced is not None and fenced.kind == "fenced":
        cause.append(_was_fenced(s, fenced))
        if not in_order and now.process is not True and now.reach is Reach.REFUSED:
            cause.append(
                "It did not say that it stops, and nobody listens at its address: its process was killed or crashed."
            )
    if lost := s.cluster.lost(now.id):
        cause.append(f"{capital(lost)}.")
    if not cause and now.process is False:
        cause.append("Its process does not run.")
    if now.reach is Reach.SILENT:
        cause.append(
            "Its port accepts connections and nothing answers: its process is paused."
            if now.paused
            else "Its port accepts connections and nothing answers: the process"
            f" {'hangs' if now.paused is False else 'is paused or hangs'}, or the network drops its packets."
        )
    cause += _as_controller(s)
    effect = _duties_lost(s)
    if now.reach is Reach.SILENT and now.process is not False:
        steps = wake(now, s.cluster, s.commands)
    else:
        then = "It catches up and joins its ISRs by itself. Its log says why it ended."
        steps = (bring_back(now.id, s.cluster, s.commands, then, _only_copies(s)),)
    return Trouble(WRONG, headline, tuple(cause), effect, effect, steps)


def _as_controller(s: BrokerSituation) -> list[str]:
    """Where it has both roles."""
    quorum = s.cluster.quorum
    if quorum is None or quorum.leader is None or s.now.id not in quorum.voters:
        return []
    both = "The same process is a controller, too: what brings it back repairs both."
    if any(id not in s.cluster.brokers for id in quorum.voters):
        return [both]
    left = sum(s.cluster.broker(id).answers for id in quorum.voters)
    spare = left - len(quorum.voters) // 2 - 1
    stands = f"{left} of {len(quorum.voters)} controllers answer"
    if spare > 0:
        return [f"{both} {stands}: {count(spare, 'more controller')} may fail."]
    return [f"{both} {stands}: if another fails, nothing can be decided any more."]


def _only_copies(s: BrokerSituation) -> str:
    if not s.duties.only_copies:
        return ""
    return f"Broker {s.now.id} alone has all records of {_some(s.duties.only_copies)}."


def _some(names: Sequence[str]) -> str:
    """At most five by name."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{listed(names[:5])}{more}"


def _was_fenced(s: BrokerSituation, entry: Happened) -> str:
    why = f": {entry.cause}" if entry.cause else ""
    return f"It was fenced {s.ago(entry)}{why}."


def _majority(s: BrokerSituation) -> bool:
    return not s.cluster.has_no_controller


def _duties_lost(s: BrokerSituation) -> str:
    if s.duties.leaderless:
        return f"{_some(s.duties.leaderless)} {'has' if len(s.duties.leaderless) == 1 else 'have'} no leader and cannot be used."
    names = s.duties.out_of_sync
    others = (
        f"; {_some(names)} {'has' if len(names) == 1 else 'have'} one replica less" if names else ""
    )
    return f"others lead what it led{others}."


def _fenced(s: BrokerSituation) -> Trouble | None:
    now = s.now
    if s.cluster.stopped or not now.fenced or not now.answers:
        return None
    fenced, started = s.last("fenced"), s.last("node_start")
    cause = []
    if fenced is not None:
        cause.append(_was_fenced(s, fenced))
    if started is not None and (fenced is None or started.at_ms > fenced.at_ms):
        cause.append(f"It started {s.ago(started)} and is not caught up with the metadata yet.")
    cause.append(
        "A fenced broker runs, but leads nothing and is in no ISR until the controller gets its heartbeats and it has caught up."
    )
    effect = _duties_lost(s)
    steps = (
        Advice(
            "Wait some seconds. If it stays fenced, its heartbeats do not reach the controller: look at its log, and at the"
            " network from it to the controllers (controller.quorum.voters).",
            s.commands.ottla("status") if s.commands.local else "",
        ),
    )
    return Trouble(
        WRONG, f"Broker {now.id} answers, but it is fenced.", tuple(cause), effect, effect, steps
    )


def _advertised_wrongly(s: BrokerSituation) -> Trouble | None:
    now = s.now
    if s.cluster.stopped or now.answers or now.fenced or now.process is False or not _majority(s):
        return None
    told = "is told to clients, " + {
        Reach.REFUSED: "and refuses connections",
        Reach.UNRESOLVED: "and its host name is unknown",
    }.get(now.reach, "and does not answer")
    effect = f"of the {count(s.duties.leads, 'partition')} that it leads cannot connect to it."
    return Trouble(
        WRONG,
        f"Broker {now.id} is alive, but clients cannot reach it: {now.address} {told}.",
        advertised_wrongly(s.cluster, now),
        effect,
        effect,
        correct_listener(now, s.cluster, s.commands),
    )


def _disk(s: BrokerSituation) -> Trouble | None:
    failed = s.now.failed_directories
    entry = s.last("log_dir_failure")
    if not failed:
        return _nearly_full(s)
    paths = listed(each.path for each in failed)
    why = f": {entry.cause}" if entry is not None and entry.cause else ""
    when = f" {s.ago(entry)}" if entry is not None else ""
    hit = list(entry.fields.get("partitions") or ()) if entry is not None else []
    names = (
        f" Its replicas of {listed(hit[:5])}{' and more' if len(hit) > 5 else ''} are offline."
        if hit
        else ""
    )
    error = None if entry is None else entry.cause
    return Trouble(
        WRONG,
        f"Broker {s.now.id} runs, but its log directory {paths} failed{why}.",
        (f"The log directory {paths} failed{when}{why}.{names}", *_full(s)),
        _duties_lost(s),
        _duties_lost(s),
        repair_directory(paths, error, s.now.id, s.cluster, s.commands),
    )


def _full(s: BrokerSituation) -> tuple[str, ...]:
    full = [
        each
        for each in s.now.failed_directories
        if 0 <= each.usable_bytes < NEARLY_FULL * each.total_bytes
    ]
    return tuple(
        f"Its disk is full: {size(each.usable_bytes)} of {size(each.total_bytes)} are free."
        for each in full
    )


def _nearly_full(s: BrokerSituation) -> Trouble | None:
    full = [
        each
        for each in s.now.directories
        if 0 <= each.usable_bytes < NEARLY_FULL * each.total_bytes
    ]
    if not full:
        return None
    first = full[0]
    return Trouble(
        DEGRADED,
        f"The disk of {first.path} at broker {s.now.id} is nearly full: {size(first.usable_bytes)} of {size(first.total_bytes)} are free.",
        (
            "At ottla.disk.watermark.percent it refuses records, until there is room again.",
            "When it is full, the log directory goes offline with all its replicas.",
        ),
        steps=(
            Advice("Make room: a larger disk, or delete files there that are not ottla's."),
            Advice(
                "Or move replicas to brokers with more room.", s.commands.ottla("balance apply")
            ),
            Advice(
                "At last, and it deletes records: shorten what topics keep.",
                s.commands.ottla("topics alter TOPIC -c retention.ms=…"),
            ),
        ),
    )


def _behind(s: BrokerSituation) -> Trouble | None:
    if (
        s.cluster.stopped
        or not s.now.answers
        or s.now.fenced
        or not s.duties.out_of_sync
        or s.now.failed_directories
    ):
        return None
    left = [e for e in s.story.entries if e.kind == "isr_shrink"]
    cause = [f"It left the ISR {s.ago(left[-1])} ({left[-1].cause})."] if left else []
    return Trouble(
        DEGRADED,
        f"Broker {s.now.id} runs, but its replicas of {_some(s.duties.out_of_sync)} are out of sync.",
        (*cause, "It copies slower than its leaders write, or it is still catching up."),
        "can write, as long as enough other replicas are in sync.",
        "can read.",
        (
            Advice(
                f"Find out what slows broker {s.now.id} down (disk, network, processor).",
                s.commands.ottla(f"explain {s.duties.out_of_sync[0]}"),
            ),
        ),
    )


def _throttles(s: BrokerSituation) -> Trouble | None:
    since = s.cluster.now_ms - THROTTLED_WITHIN_MS
    hits = [
        each
        for each in s.entries
        if each.kind == "quota_exceeded" and each.at_ms >= since and each.node == s.now.id
    ]
    return throttling(hits, s.cluster, s.commands) if hits else None


def _no_controller(s: BrokerSituation) -> Trouble | None:
    if not s.cluster.has_no_controller:
        return None
    gone = lost_voters(s.cluster)
    return Trouble(
        WRONG + 1 if s.now.answers else NOTICE,
        "The cluster has no active controller.",
        no_majority(s.cluster, gone, s.entries),
        "with acks=all wait where a replica in the ISR is down.",
        "can read where the leader is up.",
        (start_controllers(s.cluster, gone, s.commands),),
    )


RULES: tuple[Callable[[BrokerSituation], Trouble | None], ...] = (
    _stopped,
    _no_controller,
    _gone,
    _fenced,
    _advertised_wrongly,
    _disk,
    _behind,
    _throttles,
)
