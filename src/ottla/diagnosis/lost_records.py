"""Records that a partition lost, or may have lost: by an unclean election, or at the end of its last known leader's log."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.diagnosis.causes import capital
from ottla.diagnosis.explanation import DEGRADED, NOTICE, Advice, Trouble
from ottla.diagnosis.happened import Happened
from ottla.diagnosis.partition_situation import PartitionSituation
from ottla.diagnosis.remedies import UNCLEAN
from ottla.diagnosis.words import brokers, clock, count, is_are, listed
from ottla.losses.merge import NamedLoss

SKEW_MS = 1000
"""Between the clocks of two nodes."""


def end_may_be_missing(s: PartitionSituation) -> Trouble | None:
    """The last known leader leads again after an unclean shutdown: nobody else had what its disk did not keep."""
    elected = [
        each
        for each in s.story.entries
        if each.kind == "election" and each.fields.get("how") == "last_known_leader"
    ]
    if not elected or s.now.leader < 0:
        return None
    last = elected[-1]
    leader = last.fields.get("leader")
    return Trouble(
        NOTICE,
        f"The end of the log of {s.now.name} may be missing: broker {leader} came back {s.ago(last)} after an unclean"
        " shutdown.",
        (
            f"Broker {leader} ended without an orderly stop and was elected {s.ago(last)} as the last known leader, because no"
            " other replica has every committed record. After a crash of its process alone nothing is missing; after a power"
            " failure, what was not flushed.",
        ),
    )


def lost_records(s: PartitionSituation) -> Trouble | None:
    """An unclean election, or truncated records that were committed."""
    own = [each for each in s.entries if each.partition == s.now.name]
    elected = [e for e in own if e.kind == "election" and e.fields.get("how") == "unclean"]
    cuts = [e for e in own if e.kind == "truncation" and _may_lose(e, elected)]
    if not elected and not cuts:
        return None
    last = (elected or cuts)[-1]
    cuts = [e for e in cuts if e.at_ms >= last.at_ms - SKEW_MS]
    by = " by an unclean election" if elected else ""
    losses = _named(s, cuts)
    recovered = _recovered_to(cuts, losses)
    if recovered:
        kept = f" They were copied to {listed(recovered)}."
    else:
        kept = f" {capital(brokers(_keepers(cuts)))} kept a copy aside." if _are_kept(cuts) else ""
    headline = f"{s.now.name} {_what_is_lost(cuts, losses, f'{by} {s.ago(last)}')}.{kept}"
    cause = [_how_elected(s, last)] if elected else []
    cause += [_how_cut(s, entry) for entry in cuts]
    is_led = s.now.leader >= 0
    return Trouble(
        NOTICE if recovered else DEGRADED,
        headline,
        tuple(cause),
        "can write; the numbers of the lost offsets are used again for other records."
        if is_led
        else "",
        f"can read. A group that has committed an offset beyond {_first(cuts)} may skip new records: their offsets are those of"
        " the lost ones."
        if is_led
        else "",
        () if recovered else _make_good(s, cuts, losses),
    )


def lose_no_more(s: PartitionSituation) -> Trouble | None:
    """What keeps it from happening again comes after all that must be repaired now."""
    steps = _prevent(s) if lost_records(s) is not None else ()
    return Trouble(NOTICE, "", (), steps=steps) if steps else None


def _named(s: PartitionSituation, cuts: Sequence[Happened]) -> list[NamedLoss]:
    """What the brokers that keep copies say of these truncations: they compare all replicas, an event knows one."""
    ids = {cut.fields.get("kept") for cut in cuts}
    return [loss for loss in s.now.losses if any(each.id in ids for each in loss.held_by)]


def _recovered_to(cuts: Sequence[Happened], losses: Sequence[NamedLoss]) -> list[str]:
    """The topics that hold the lost records; empty unless they hold all of them."""
    topics = [loss.recovered_to for loss in losses]
    known = {each.id for loss in losses for each in loss.held_by}
    is_whole = bool(cuts) and all(cut.fields.get("kept") in known for cut in cuts)
    found = [topic for topic in topics if topic is not None]
    return sorted(set(found)) if is_whole and len(found) == len(topics) else []


def _first(cuts: Sequence[Happened]) -> str:
    firsts = [int(cut.fields.get("first_offset") or 0) for cut in cuts]
    return str(min(firsts)) if firsts else "the end of the new leader's log"


def _keepers(cuts: Sequence[Happened]) -> list[int]:
    return sorted({cut.node for cut in cuts})


def _are_kept(cuts: Sequence[Happened]) -> bool:
    return bool(cuts) and all(entry.fields.get("kept") for entry in cuts)


def _what_is_lost(cuts: Sequence[Happened], losses: Sequence[NamedLoss], how: str) -> str:
    if not cuts:
        return f"may have lost committed records{how}"
    gone, certain = _counts(cuts, losses)
    if 0 < certain < gone:
        return f"lost {count(gone, 'record')}{how}: {certain} had been committed, the others may have been"
    return f"lost {count(gone, 'record')}{how}, which {'had' if certain else 'may have'} been committed"


def _counts(cuts: Sequence[Happened], losses: Sequence[NamedLoss]) -> tuple[int, int]:
    """How many records are gone, and how many of them had been committed for certain."""
    gone = max((int(entry.fields.get("records") or 0) for entry in cuts), default=0)
    certain = sum(max(0, loss.end - loss.first) for loss in losses)
    if any(entry.fields.get("below_high_watermark") for entry in cuts) and not losses:
        certain = gone
    return gone, certain


def _how_elected(s: PartitionSituation, election: Happened) -> str:
    elected, leader = election.fields.get("leader"), s.now.leader
    now = (
        f" Broker {leader} leads now (epoch {s.now.leader_epoch})."
        if leader not in (-1, elected)
        else ""
    )
    return (
        f"Broker {elected} was elected {s.ago(election)} although it was not in sync, because no replica that was in sync was"
        f" alive (unclean leader election).{now}"
    )


def _how_cut(s: PartitionSituation, cut: Happened) -> str:
    known = cut.fields
    until = f" at most until {end}," if (end := _kept_until(s, [cut])) else ""
    kept = (
        f" It keeps a copy beside its log, where no consumer sees it,{until} as {known['kept']}."
        if known.get("kept")
        else ""
    )
    return (
        f"Broker {cut.node} came back with {count(int(known.get('records') or 0), 'record')} that the leader did not"
        f" have (offsets {known.get('first_offset')} to {int(known.get('end_offset') or 1) - 1}) and cut them off.{kept}"
    )


def _kept_until(s: PartitionSituation, cuts: Sequence[Happened]) -> str:
    """When the first of the copies is deleted; empty if that is not known."""
    known = [(cut, s.cluster.broker(cut.node).kept_ms) for cut in cuts]
    ends = [cut.at_ms + kept_ms for cut, kept_ms in known if kept_ms]
    return clock(min(ends), s.cluster.now_ms)[:-4] if ends else ""


def _make_good(
    s: PartitionSituation, cuts: Sequence[Happened], losses: Sequence[NamedLoss]
) -> tuple[Advice, ...]:
    topic, ottla = s.now.topic, s.commands.ottla
    gone, certain = _counts(cuts, losses)
    are_all = 0 < gone == certain
    until = (
        f" before {end}: the copy is deleted then, at the latest"
        if (end := _kept_until(s, cuts))
        else ""
    )
    possible = (
        ""
        if are_all
        else " (--include-possible: also those of which nobody knows whether they had been committed.)"
    )
    steps = [
        Advice(
            "See them, and who keeps them."
            if are_all
            else "See which of them had been committed, and who keeps them.",
            ottla(f"losses --topic {topic}"),
        ),
        Advice(
            f"Copy these, with keys, headers and timestamps, into another topic{until}.{possible}",
            f"{ottla(f'topics create {topic}-recovered')} && {ottla(f'recover --topic {topic} --to {topic}-recovered')}",
        ),
    ]
    if not _are_kept(cuts):
        start = (
            f"offsets from {cuts[0].fields.get('first_offset')} on" if cuts else "those at the end"
        )
        steps.append(Advice(f"Write what is not kept again from its source ({start})."))
    return tuple(steps)


def _prevent(s: PartitionSituation) -> tuple[Advice, ...]:
    """So that it does not happen again. What that costs depends on the number of replicas."""
    now, ottla = s.now, s.commands.ottla
    steps = []
    if now.unclean is not False:
        steps.append(
            Advice(
                "Keep it from happening again: forbid unclean elections. The partition then stays offline until a replica that"
                " was in sync returns.",
                ottla(f"topics alter {now.topic} -c {UNCLEAN}=false"),
            )
        )
    if now.min_insync > 1 or len(now.replicas) == 1:
        return tuple(steps)
    if len(now.replicas) > 2:
        steps.append(
            Advice(
                "And take records with acks=all only when two replicas have them. With fewer in sync, such producers are"
                " refused.",
                ottla(f"topics alter {now.topic} -c min.insync.replicas=2"),
            )
        )
        return tuple(steps)
    others = [each for id, each in s.cluster.brokers.items() if id not in now.replicas]
    more = [each.id for each in sorted(others, key=lambda each: not each.answers)]
    replicas = (*now.replicas, *more[:1])
    down = [id for id in replicas if not s.cluster.broker(id).answers]
    wait = (
        f" Not before {brokers(down)} {is_are(down)} back: the move would wait for that."
        if down
        else ""
    )
    steps.append(
        Advice(
            "And give it a third replica; then min.insync.replicas=2 is safe. With two replicas it would refuse acks=all as soon"
            f" as one of them is down.{wait}",
            ottla(
                f"topics reassign {now.topic} -p {now.partition} --replicas {','.join(map(str, replicas))}"
            )
            if more
            else "",
        )
    )
    return tuple(steps)


def _may_lose(cut: Happened, elected: Sequence[Happened]) -> bool:
    """A truncation of committed records, or one that follows an unclean election: the follower may not have known how far
    they were committed."""
    after = any(cut.at_ms >= each.at_ms - SKEW_MS for each in elected)
    return bool(cut.fields.get("below_high_watermark")) or after
