"""Replicas over time as HTML tables: a column for each replica, a row for each step, logs as cells.

A reader shall see the truncation that loses a record. So a record that was just appended, one that was just
truncated and one that was acknowledged and is lost look different, and each says so in words too. Epochs have
colours, and every record has the number of its epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from ottla.lab.report.prose_html import prose
from ottla.lab.results import LogEntry, ReplicaMoment, Step, Timeline

EPOCH_COLOURS = 6
"""As many as the style has; then they begin anew."""

Logs = Mapping[int, Sequence[LogEntry]]


def scenarios(timelines: Sequence[Timeline]) -> dict[str, list[Timeline]]:
    """The same schedule under several designs has one title."""
    found: dict[str, list[Timeline]] = {}
    for each in timelines:
        found.setdefault(each.title, []).append(each)
    return found


def scenario_html(title: str, timelines: Sequence[Timeline], name: str) -> str:
    """The same schedule under each design, one below the other. The script steps through all of them at once.

    Those of broken designs are open; the first, if there is none.
    """
    broken = any(each.is_broken for each in timelines)
    epochs = sorted({entry.epoch for each in timelines for entry in _entries(each)})
    parts = [
        f'<section class="scenario" id="{name}" aria-labelledby="{name}-title">',
        f'<h3 id="{name}-title">{prose(title)}</h3>',
        _legend(epochs),
        *(
            _timeline(each, is_open=each.is_broken or (at == 0 and not broken))
            for at, each in enumerate(timelines)
        ),
        "</section>",
    ]
    return "\n".join(parts)


def _entries(timeline: Timeline) -> Iterator[LogEntry]:
    for step in timeline.steps:
        for replica in step.replicas:
            yield from replica.log


def _legend(epochs: Sequence[int]) -> str:
    colours = [
        f'<li><span class="record epoch-{epoch % EPOCH_COLOURS}"><b>value</b><i>e{epoch}</i></span>'
        f" record of leader epoch {epoch}</li>"
        for epoch in epochs
    ]
    others = [
        '<li><span class="record new"><b>value</b></span> just appended</li>',
        '<li><span class="record cut"><b>value</b></span> just truncated</li>',
        '<li><span class="record lost"><b>value</b></span> was acknowledged, is gone from here</li>',
        '<li><span class="mark">HW</span> high watermark: records to its left are committed</li>',
        '<li><span class="mark end">LEO</span> log end offset</li>',
    ]
    return f'<ul class="legend" aria-label="Legend">{"".join(colours + others)}</ul>'


def _timeline(timeline: Timeline, is_open: bool) -> str:
    brokers = sorted({each.broker for step in timeline.steps for each in step.replicas})
    heads = "".join(
        f'<th role="columnheader" scope="col">broker {broker}</th>' for broker in brokers
    )
    rows = []
    before: Logs = {}
    for at, step in enumerate(timeline.steps):
        rows.append(_row(at + 1, step, brokers, before))
        before = {each.broker: each.log for each in step.replicas}
    design = escape(timeline.design)
    return (
        f"<details{' open' if is_open else ''}><summary><code>{design}</code> "
        f'<span class="verdict{" bad" if timeline.is_broken else ""}">{prose(timeline.verdict)}</span>'
        f'</summary><table class="timeline" role="table">'
        f'<caption class="unseen">Replicas over time with {design}</caption>'
        f'<thead role="rowgroup"><tr role="row"><th role="columnheader" scope="col">step</th>'
        f'{heads}</tr></thead><tbody role="rowgroup">{"".join(rows)}</tbody></table></details>'
    )


def _row(at: int, step: Step, brokers: Sequence[int], before: Logs) -> str:
    events = "".join(f"<li>{prose(each)}</li>" for each in step.events)
    told = f'<ul class="events">{events}</ul>' if events else ""
    replicas = {each.broker: each for each in step.replicas}
    cells = "".join(
        _replica(replicas[broker], before.get(broker)) if broker in replicas else _nobody(broker)
        for broker in brokers
    )
    return (
        f'<tr role="row"><th role="rowheader" scope="row"><span class="at">{at} · {step.at_s:.2f} s</span>'
        f'<span class="what">{prose(step.what)}</span>{told}</th>{cells}</tr>'
    )


def _nobody(broker: int) -> str:
    return f'<td role="cell" data-broker="broker {broker}">–</td>'


def _replica(replica: ReplicaMoment, before: Sequence[LogEntry] | None) -> str:
    classes = f"role-{replica.role}" + (" changed" if replica.changed else "")
    changed = '<span class="change">changed</span>' if replica.changed else ""
    epoch = "" if replica.high_watermark is None else f" epoch {replica.epoch}"
    return (
        f'<td role="cell" data-broker="broker {replica.broker}" class="{escape(classes)}">'
        f'<div class="role"><b>{escape(replica.role)}</b>{epoch}{changed}</div>'
        f'<div class="log">{"".join(_cells(replica, before))}</div></td>'
    )


def _cells(replica: ReplicaMoment, before: Sequence[LogEntry] | None) -> Iterator[str]:
    """The log from left to right, with HW and LEO between the records where they are, then what is gone."""
    kept = [entry for entry in replica.log if not entry.is_lost]
    gone = [entry for entry in replica.log if entry.is_lost]
    places = {(entry.offset, entry.epoch, entry.value) for entry in replica.log}
    known = {(entry.offset, entry.epoch, entry.value) for entry in before or ()}
    cut = [
        entry
        for entry in before or ()
        if not entry.is_lost and (entry.offset, entry.epoch, entry.value) not in places
    ]  # those that were acknowledged are in the log, as lost
    watermark, end = replica.high_watermark, replica.log_end
    marked = False
    for entry in kept:
        if watermark is not None and not marked and entry.offset >= watermark:
            marked = True
            yield _mark(f"HW {watermark}")
        fresh = before is not None and (entry.offset, entry.epoch, entry.value) not in known
        yield _record(entry, "new" if fresh else "")
    if watermark is not None and not marked:
        yield _mark(f"HW {watermark} = LEO {end}") if watermark == end else _mark(f"HW {watermark}")
    if marked or watermark != end:
        yield _mark(f"LEO {end}", "end")
    for entry in cut:
        yield _record(entry, "cut", "truncated")
    for entry in gone:
        yield _record(entry, "lost", "lost")


def _mark(text: str, kind: str = "") -> str:
    return f'<span class="mark {kind}">{text}</span>'


def _record(entry: LogEntry, kind: str, said: str = "") -> str:
    note = f"<em>{said}</em>" if said else ""
    value = f"<s>{escape(entry.value)}</s>" if said else escape(entry.value)
    return (
        f'<span class="record epoch-{entry.epoch % EPOCH_COLOURS} {kind}">'
        f"<small>{entry.offset}</small><b>{value}</b><i>e{entry.epoch}</i>{note}</span>"
    )
