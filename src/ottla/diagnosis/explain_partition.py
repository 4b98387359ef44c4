"""Why a partition is as it is now.

Each rule looks for one kind of trouble. All that apply are told, the worst first: a partition can be without enough
replicas and have a hanging transaction, and both must be repaired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ottla.diagnosis.causes import (
    THROTTLED_WITHIN_MS,
    advertised_wrongly,
    capital,
    correct_listener,
    end_transaction,
    ends_by_itself,
    knocked,
    lost_voters,
    no_majority,
    start_controllers,
    state_of,
    throttling,
    transaction_cause,
)
from ottla.diagnosis.explanation import DEGRADED, NOTICE, WRONG, Advice, Explanation, Trouble
from ottla.diagnosis.happened import Happened
from ottla.diagnosis.now import (
    ClusterNow,
    Commands,
    PartitionNow,
    Reach,
)
from ottla.diagnosis.timeline import behind, left_because, story_of_partition, told
from ottla.diagnosis.words import brokers, count, duration, is_are, listed, size

SKEW_MS = 1000
"""Between the clocks of two nodes."""
OPEN_LONG_MS = 10_000
"""A transaction that is open for longer than this is worth a line, even if its coordinator will end it."""


class PartitionSituation:
    """The facts of one partition, for all rules."""

    def __init__(
        self,
        now: PartitionNow,
        cluster: ClusterNow,
        entries: Sequence[Happened],
        commands: Commands,
    ) -> None:
        self.now = now
        self.cluster = cluster
        self.commands = commands
        self.story = story_of_partition(entries, now.name, now.replicas, not now.out_of_sync)
        self.entries = entries

    def last(self, *kinds: str, broker: int | None = None) -> Happened | None:
        """The latest event of these kinds about this partition, or about a broker."""
        for entry in reversed(self.entries):
            if entry.kind not in kinds or entry.partition not in (None, self.now.name):
                continue
            named = entry.fields.get("brokers", [entry.fields.get("broker", entry.node)])
            if broker is None or broker in named:
                return entry
        return None

    def ago(self, entry: Happened) -> str:
        return f"{duration(self.cluster.now_ms - entry.at_ms)} ago"


def explain_partition(
    now: PartitionNow, cluster: ClusterNow, entries: Iterable[Happened], commands: Commands
) -> Explanation:
    situation = PartitionSituation(now, cluster, list(entries), commands)
    troubles = [trouble for rule in RULES if (trouble := rule(situation)) is not None]
    troubles.sort(key=lambda each: -each.severity)
    lines, earlier = told(situation.story, cluster.now_ms, now.name)
    return Explanation(
        subject=f"partition {now.name}",
        now_ms=cluster.now_ms,
        headline=" ".join(each.headline for each in troubles) or _healthy(now),
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
    return tuple(dict.fromkeys(text for text in told if text)) or (otherwise,)


# -- the cluster as a whole ----------------------------------------------------------------------------------------


def _stopped(s: PartitionSituation) -> Trouble | None:
    if not s.cluster.stopped:
        return None
    now = s.now
    led = f"broker {now.leader} led it" if now.leader >= 0 else "nobody led it"
    headline = f"The cluster is stopped. When it stopped, {led}; {_in_sync(now)}."
    cause = ("No node of it runs. All of this was read from its directory.", *_absences(s))
    step = Advice(
        "Start the cluster. Every replica catches up and joins the ISR by itself.",
        s.commands.ottla("up --detach"),
    )
    return Trouble(WRONG, headline, cause, "cannot write.", "cannot read.", (step,))


def _no_controller(s: PartitionSituation) -> Trouble | None:
    if not s.cluster.has_no_controller:
        return None
    now, quorum = s.now, s.cluster.quorum
    assert quorum is not None
    gone = lost_voters(s.cluster)
    leader = s.cluster.broker(now.leader)
    frozen = f"Until then {now.name} stays as it was: leader {now.leader}, in sync {listed(now.isr)} on paper."
    if now.leader >= 0 and leader.answers:
        dead = [id for id in now.isr if not s.cluster.broker(id).answers]
        headline = f"{now.name} has a leader, broker {now.leader}, but the cluster has no active controller."
        if dead:
            producers = f"with acks=all get no acknowledgement: {brokers(dead)} cannot be taken out of the ISR. acks=1 works."
        else:
            producers = "can write."
        consumers = "can read what is committed." if dead else "can read."
    else:
        headline = (
            f"{now.name} is not available: its leader, broker {now.leader}, {leader.reach},"
            " and there is no active controller to elect another."
        )
        producers, consumers = "cannot write.", "cannot read."
    return Trouble(
        WRONG + 1,
        headline,
        (*no_majority(s.cluster, gone), frozen),
        producers,
        consumers,
        (start_controllers(s.cluster, gone, s.commands),),
    )


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
    steps = [repair(s, id) for id in may_lead]
    if alive:
        steps.append(
            Advice(
                f"Only if {brokers(may_lead or others, 'or')} can never come back: let {brokers(alive, 'or')} lead."
                " Committed records that it lacks are lost for good.",
                s.commands.ottla(f"topics elect {now.topic} --unclean -p {now.partition}"),
            )
        )
    return Trouble(
        WRONG, headline, tuple(cause), "cannot write.", "cannot read.", tuple(dict.fromkeys(steps))
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
    where = f"{leader.address} {knocked(leader)}"
    headline = (
        f"{now.name} has a leader, broker {now.leader}, but clients cannot reach it: {where}."
    )
    return Trouble(
        WRONG,
        headline,
        (*advertised_wrongly(s.cluster, leader), *_cut_off(s)),
        f"cannot write: they are told to connect to {leader.address}.",
        f"cannot read: they are told to connect to {leader.address}.",
        correct_listener(leader, s.commands),
    )


def _cut_off(s: PartitionSituation) -> tuple[str, ...]:
    gone = s.now.out_of_sync
    if not gone:
        return ()
    return (f"{capital(brokers(gone))} cannot reach it either: {_in_sync(s.now)}.",)


# -- the followers -------------------------------------------------------------------------------------------------


def _too_few_in_sync(s: PartitionSituation) -> Trouble | None:
    now = s.now
    if not _is_led(s) or len(now.isr) >= min(now.min_insync, len(now.replicas)):
        return None
    headline = (
        f"{now.name} takes no records with acks=all: {len(now.isr)} of its {len(now.replicas)} replicas"
        f" {is_are(now.isr)} in sync, and min.insync.replicas is {now.min_insync}."
    )
    lower = Advice(
        f"If writing matters more than safety until then: allow fewer replicas. If broker {now.leader} is lost then,"
        " what was written meanwhile is lost with it.",
        s.commands.ottla(f"topics alter {now.topic} -c min.insync.replicas={max(1, len(now.isr))}"),
    )
    return Trouble(
        WRONG,
        headline,
        _absences(s),
        "with acks=all are refused (NOT_ENOUGH_REPLICAS) and retry; acks=0 and acks=1 are accepted.",
        "can read what was committed before.",
        (*_repairs(s), lower),
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
    headline = (
        f"{now.name} works, but {brokers(missing)} {is_are(missing)} out of sync:"
        f" broker {now.leader} leads (epoch {now.leader_epoch}), {_in_sync(now)}."
    )
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


def _missing(s: PartitionSituation) -> tuple[int, ...]:
    """Out of sync, and not because they are only now being added."""
    return tuple(id for id in s.now.out_of_sync if id not in s.now.adding)


def _absences(s: PartitionSituation) -> tuple[str, ...]:
    return tuple(f"Broker {id} {why_absent(s, id)}." for id in _missing(s))


def _repairs(s: PartitionSituation) -> tuple[Advice, ...]:
    return tuple(dict.fromkeys(repair(s, id) for id in _missing(s)))


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
        return f"lost its log directory {directory}{when}{why}; its replica there is offline"
    if s.cluster.stopped:
        return f"left the ISR{_left(s, broker)}" if _left(s, broker) else "was out of sync"
    if not found.answers or found.fenced:
        fenced = s.last("fenced", "unfenced", broker=broker)
        state = state_of(found)
        if found.fenced and fenced is not None and fenced.kind == "fenced":
            why = f": {fenced.cause}" if fenced.cause else ""
            return f"{state} and was fenced {s.ago(fenced)}{why}"
        if found.fenced:
            return f"{state} and is fenced"
        return (
            f"{state}; it left the ISR{_left(s, broker)}" if broker in s.now.out_of_sync else state
        )
    lag = s.now.lag(broker)
    more = f" It is {count(lag, 'record')} behind now" if lag else ""
    if broker in s.now.throttled and found.throttled_rate is not None:
        more += f"; its copying is throttled to {size(found.throttled_rate)}/s"
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
    return f" {s.ago(entry)}{' ' if why else ''}{why}{f', {lag} behind' if lag else ''}"


def repair(s: PartitionSituation, broker: int) -> Advice:
    """What brings one replica back."""
    found = s.cluster.broker(broker)
    directory = failed_directory(s, broker)
    commands = s.commands
    if directory is not None:
        restart = (
            f"{commands.ottla(f'nodes stop {broker}')} && {commands.ottla(f'nodes start {broker}')}"
        )
        return Advice(
            f"Make room on (or replace) the disk of {directory}, then restart broker {broker}: it copies what it lacks.",
            restart if commands.local else "",
        )
    if found.reach is Reach.SILENT:
        return Advice(
            f"Look at the process and the network of broker {broker}: it is there and does not answer"
            " (paused? SIGCONT continues it).",
            commands.ottla("status") if commands.local else "",
        )
    if not found.answers:
        text, command = commands.start((broker,))
        return Advice(f"{text} It catches up and joins the ISR by itself.", command)
    if found.fenced:
        return Advice(
            f"Wait: broker {broker} answers and is unfenced when it has caught up with the metadata."
            f" If it stays fenced, its log says why.",
            commands.ottla(f"explain --broker {broker}"),
        )
    if broker in s.now.throttled and found.throttled_rate is not None:
        return lift_throttle(s)
    return Advice(
        f"Find out what slows broker {broker} down (disk, network, processor). It joins the ISR by itself when it has"
        " caught up.",
        commands.ottla(f"replicas {s.now.topic} -p {s.now.partition}"),
    )


def lift_throttle(s: PartitionSituation) -> Advice:
    topic = s.now.topic
    names = [f"--unset {role}.replication.throttled.replicas" for role in ("leader", "follower")]
    return Advice(
        f"Lift the replication throttle of topic {topic} (or raise the brokers' replication.throttled.rate).",
        s.commands.ottla(f"topics alter {topic} {' '.join(names)}"),
    )


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
    causes: list[str] = []
    steps: list[Advice] = []
    for id in waits:
        reason, help = _held_up(s, id)
        causes.append(f"The move waits until {brokers(waits)} {_has(waits)} a copy: {reason}.")
        steps += help
    held = bool(steps)
    words = (
        f", and it is held up: {brokers(waits)} {is_are(waits)} not in sync yet."
        if held
        else "; copying goes on."
    )
    severity = DEGRADED if held else NOTICE
    watch = Advice("Watch it.", s.commands.ottla(f"topics reassign {now.topic} --list"))
    return Trouble(
        severity,
        headline + words,
        tuple(causes),
        steps=(*steps, cancel) if held else (watch, cancel),
    )


def _held_up(s: PartitionSituation, broker: int) -> tuple[str, list[Advice]]:
    """Why a new replica has not caught up, and what helps; nothing if it only needs time."""
    found = s.cluster.broker(broker)
    if not found.answers or found.fenced or failed_directory(s, broker) is not None:
        return f"broker {broker} {why_absent(s, broker)}", [repair(s, broker)]
    lag = s.now.lag(broker)
    lacks = (
        f"broker {broker} lacks {count(lag, 'record')}"
        if lag
        else f"broker {broker} is catching up"
    )
    rates = {
        id: rate
        for id in (broker, s.now.leader)
        if id in s.now.throttled and (rate := s.cluster.broker(id).throttled_rate) is not None
    }
    if rates:
        slowest = f"{size(min(rates.values()))}/s at {brokers(sorted(rates))}"
        return f"{lacks}, and replication is throttled to {slowest}", [lift_throttle(s)]
    return lacks, []


def _open_transaction(s: PartitionSituation) -> Trouble | None:
    now = s.now
    if not now.transactions:
        return None
    oldest = now.transactions[0]
    open_for = s.cluster.now_ms - (oldest.started_ms or oldest.last_ms)
    if oldest.transactional_id is not None and open_for < OPEN_LONG_MS:
        return None
    headline = (
        f"A transaction in {now.name} has been open for {duration(open_for)}:"
        f" consumers with isolation.level=read_committed stop before offset {oldest.start_offset}."
    )
    severity = DEGRADED if ends_by_itself(oldest, s.cluster.now_ms) else WRONG
    return Trouble(
        severity,
        headline,
        transaction_cause(oldest, s.cluster.now_ms),
        "can write.",
        f"with read_committed get nothing from offset {oldest.start_offset} on; those with read_uncommitted can read.",
        (end_transaction(oldest, now.topic, now.partition, s.commands),),
    )


def _lost(s: PartitionSituation) -> Trouble | None:
    """An unclean election, or truncated records that were committed."""
    own = [each for each in s.entries if each.partition == s.now.name]
    elected = [e for e in own if e.kind == "election" and e.fields.get("how") == "unclean"]
    cuts = [e for e in own if e.kind == "truncation" and _may_lose(e, elected)]
    if not elected and not cuts:
        return None
    last = (elected or cuts)[-1]
    cuts = [e for e in cuts if e.at_ms >= last.at_ms - SKEW_MS]
    by = " by an unclean election" if elected else ""
    kept = "; they are kept aside" if _are_kept(cuts) else ""
    headline = f"{s.now.name}: {_what_is_lost(cuts)}{by} {s.ago(last)}{kept}."
    cause = [_how_elected(s, last)] if elected else []
    cause += [_how_cut(entry) for entry in cuts]
    is_led = s.now.leader >= 0
    return Trouble(
        DEGRADED,
        headline,
        tuple(cause),
        "can write; the numbers of the lost offsets are used again for other records."
        if is_led
        else "",
        "can read; those that had read the lost records know what the log no longer has."
        if is_led
        else "",
        _make_good(s, cuts),
    )


def _are_kept(cuts: Sequence[Happened]) -> bool:
    return bool(cuts) and all(entry.fields.get("kept") for entry in cuts)


def _what_is_lost(cuts: Sequence[Happened]) -> str:
    if not cuts:
        return "committed records may have been lost"
    gone = count(max(int(entry.fields.get("records") or 0) for entry in cuts), "record")
    certain = any(entry.fields.get("below_high_watermark") for entry in cuts)
    return f"{gone} that {'had' if certain else 'may have'} been committed were lost"


def _how_elected(s: PartitionSituation, election: Happened) -> str:
    return (
        f"Broker {election.fields.get('leader')} was elected {s.ago(election)} although it was not in sync, because no"
        " replica that was in sync was alive (unclean leader election)."
    )


def _how_cut(cut: Happened) -> str:
    known = cut.fields
    kept = f" They are kept aside as {known['kept']}." if known.get("kept") else ""
    return (
        f"Broker {cut.node} came back with {count(int(known.get('records') or 0), 'record')} that the new leader does not"
        f" have (offsets {known.get('first_offset')} to {int(known.get('end_offset') or 1) - 1}) and cut them off.{kept}"
    )


def _make_good(s: PartitionSituation, cuts: Sequence[Happened]) -> tuple[Advice, ...]:
    topic, ottla = s.now.topic, s.commands.ottla
    steps = [
        Advice("See which records are lost, and who keeps them.", ottla(f"losses --topic {topic}")),
        Advice(
            "Copy those that are kept into another topic.",
            f"{ottla(f'topics create {topic}-recovered')} && {ottla(f'recover --topic {topic} --to {topic}-recovered')}",
        ),
    ]
    if not _are_kept(cuts):
        start = (
            f"offsets from {cuts[0].fields.get('first_offset')} on" if cuts else "those at the end"
        )
        steps.append(Advice(f"Write what is not kept again from its source ({start})."))
    safer = "-c unclean.leader.election.enable=false -c min.insync.replicas=2"
    steps.append(
        Advice(
            "Keep it from happening again: no unclean election, and min.insync.replicas of at least 2.",
            ottla(f"topics alter {topic} {safer}"),
        )
    )
    return tuple(steps)


def _may_lose(cut: Happened, elected: Sequence[Happened]) -> bool:
    """A truncation of committed records, or one that follows an unclean election: the follower may not have known how far
    they were committed."""
    after = any(cut.at_ms >= each.at_ms - SKEW_MS for each in elected)
    return bool(cut.fields.get("below_high_watermark")) or after


def _throttled(s: PartitionSituation) -> Trouble | None:
    since = s.cluster.now_ms - THROTTLED_WITHIN_MS
    hits = [
        each
        for each in s.entries
        if each.kind == "quota_exceeded" and each.at_ms >= since and each.node == s.now.leader
    ]
    return throttling(hits, s.cluster.now_ms, s.commands) if hits else None


RULES: tuple[Callable[[PartitionSituation], Trouble | None], ...] = (
    _stopped,
    _no_controller,
    _offline,
    _leader_out_of_reach,
    _too_few_in_sync,
    _under_replicated,
    _moving,
    _open_transaction,
    _lost,
    _throttled,
)


def _is_led(s: PartitionSituation) -> bool:
    """By somebody whom a controller has put there, and who answers."""
    if s.now.leader < 0 or s.cluster.has_no_controller or s.cluster.stopped:
        return False
    return s.cluster.broker(s.now.leader).answers


def _in_sync(now: PartitionNow) -> str:
    return f"{len(now.isr)} of {len(now.replicas)} replicas in sync ({listed(now.isr) or 'none'})"


def _has(ids: Sequence[int]) -> str:
    return "has" if len(ids) == 1 else "have"
