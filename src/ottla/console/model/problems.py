"""What is wrong now, in words: one problem for each cause, however many partitions suffer from it.

`ottla explain` says more of each; every problem names what to explain. Rules are pure functions of rows, so that they also
say what was wrong at a moment in the past (`rewind`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any

from ottla.console.model.consumers import LATE_S
from ottla.console.model.rows import (
    PLACES_MAX,
    BrokerRow,
    BrokerStanding,
    ClusterRow,
    DiskRow,
    GroupRow,
    HoldRow,
    LogSettingRow,
    MoveRow,
    PartitionRow,
    Place,
    Problem,
    QuorumRow,
    TransactionRow,
    place_text,
)
from ottla.diagnosis.explanation import DEGRADED, NOTICE, WRONG
from ottla.diagnosis.words import brokers as brokers_named
from ottla.diagnosis.words import duration, listed, size

STALLED_MS = 60_000
"""A move without progress, or a group that commits nothing though it is behind, for so long."""
NEARLY_FULL = 0.1
"""Of a disk, free."""
VOTER_BEHIND_MS = 5_000
HELD_MS = 60_000
"""A transaction that holds back readers for so long."""
LOSS_KEPT_MS = 24 * HELD_MS * 60
"""A loss is among what is wrong for a day."""
LATE_WRONG_S = 300.0

Rows = Mapping[Place, PartitionRow]
RowOf = Callable[[Place], PartitionRow | None]
Brokers = Mapping[int, BrokerRow]


# The cluster


def cluster_problems(
    cluster: ClusterRow, quorum: QuorumRow | None, brokers: Brokers
) -> Iterator[Problem]:
    if cluster.answers is False:
        yield Problem(
            "cluster",
            WRONG,
            "The cluster does not answer.",
            f"{cluster.trouble or 'No broker answers'}. What is shown is as it was then.",
            cluster.since_ms,
            "cluster",
        )
        return
    if quorum is None:
        return
    if quorum.leader < 0:
        yield Problem(
            "controller",
            WRONG,
            "There is no active controller.",
            "Until a majority of the controllers answers, no leader is elected, no ISR changes and no topic is created.",
            quorum.since_ms,
            "cluster",
        )
    late = [
        each.id
        for each in quorum.voters
        if each.id != quorum.leader
        and each.behind_ms is not None
        and each.behind_ms > VOTER_BEHIND_MS
    ]
    if late and quorum.leader >= 0:
        needed = len(quorum.voters) // 2 + 1
        spare = len(quorum.voters) - len(late) - needed
        yield Problem(
            "voters",
            DEGRADED,
            f"{'Controllers' if len(late) > 1 else 'Controller'} {listed(late)} {'do' if len(late) > 1 else 'does'} not follow"
            " the metadata log.",
            "If another controller fails, nothing can be decided any more."
            if spare <= 0
            else f"{count(spare, 'more controller')} may fail.",
            0,
            f"broker:{late[0]}" if late[0] in brokers else "cluster",
        )


def own_problem(error: Exception) -> Problem:
    """What is wrong could not be worked out: silence about that would look like a cluster that is well."""
    return Problem(
        "own",
        WRONG,
        "What is wrong cannot be worked out.",
        f"That is a bug of ottla: {type(error).__name__}: {error}. The log of this process has more. What is told here may be old.",
        0,
        "cluster",
        rank=-1,
    )


# Brokers and partitions


def broker_problems(rows: Rows, brokers: Brokers) -> Iterator[Problem]:
    """`rows` need not have partitions that are well."""
    for broker in brokers.values():
        if broker.standing is BrokerStanding.UP:
            continue
        lacking = [row for row in rows.values() if broker.id in row.out_of_sync]
        silent = broker.standing is BrokerStanding.SILENT
        if not broker.replicas and not silent and not broker.since_ms:
            continue  # it has been down for long, and nothing is missing because of it
        states = {
            BrokerStanding.SILENT: "does not answer",
            BrokerStanding.FENCED: "is down",
            BrokerStanding.GONE: "is not part of the cluster any more",
        }
        why = []
        if broker.cause:
            why.append(f"The controller fenced it: {broker.cause}.")
        elif silent:
            why.append("The cluster still counts on it, and clients cannot reach it from here.")
        if lacking:
            why.append(
                f"{count(len(lacking), 'partition')} {'have' if len(lacking) > 1 else 'has'} a replica fewer."
            )
        yield Problem(
            f"broker:{broker.id}",
            WRONG if silent and broker.leaders else DEGRADED,
            f"Broker {broker.id} {states[broker.standing]}.",
            " ".join(why),
            broker.since_ms,
            f"broker:{broker.id}",
            *_places(lacking),
        )


def partition_problems(
    rows: Rows,
    brokers: Brokers,
    settings: Mapping[str, LogSettingRow],
    eligible: Mapping[Place, tuple[int, ...]] = MappingProxyType({}),
) -> Iterator[Problem]:
    """`eligible`: who may lead where the ISR is empty, as far as that is known."""
    yield from _without_leader(rows, brokers, eligible)
    yield from _below_minimum(rows, settings)
    yield from _behind(rows, brokers)


def _without_leader(
    rows: Rows, brokers: Brokers, eligible: Mapping[Place, tuple[int, ...]]
) -> Iterator[Problem]:
    """By who would have to come back."""
    groups: dict[tuple[int, ...], list[PartitionRow]] = {}
    for row in rows.values():
        if row.leader < 0:
            may_lead = row.isr or eligible.get(row.place, ())
            groups.setdefault(tuple(sorted(may_lead)), []).append(row)
    for isr, lost in groups.items():
        names = _named(lost)
        down = [id for id in isr if not _is_up(brokers, id)]
        if isr and down:
            was = "was the last in sync" if len(isr) == 1 else "were the last in sync"
            why = f"{_capital(brokers_named(list(isr)))} {was}, and {_downs(brokers, down)}."
        elif isr:
            why = "A leader is about to be elected."
        elif all(row.place in eligible for row in lost):
            why = "No replica is known to have every committed record, so none may lead."
        else:
            why = "No replica is in sync."
        others = sorted(
            {id for row in lost for id in row.replicas if id not in isr and _is_up(brokers, id)}
        )
        if others and isr:
            why += f" {_capital(brokers_named(others))} {'is' if len(others) == 1 else 'are'} alive, but out of sync."
        yield Problem(
            f"offline:{','.join(map(str, isr))}",
            WRONG,
            f"{names} {'has' if len(lost) == 1 else 'have'} no leader: nobody can write or read there.",
            why,
            _since(lost),
            f"partition:{place_text(lost[0].place)}",
            *_places(lost),
        )


def _below_minimum(rows: Rows, settings: Mapping[str, LogSettingRow]) -> Iterator[Problem]:
    found: dict[str, list[PartitionRow]] = {}
    for row in rows.values():
        setting = settings.get(row.topic)
        least = None if setting is None else setting.min_insync
        if row.leader >= 0 and least is not None and len(row.isr) < min(least, len(row.replicas)):
            found.setdefault(row.topic, []).append(row)
    if not found:
        return
    suffer = [row for each in found.values() for row in each]
    topic = next(iter(found))
    least = settings[topic].min_insync
    yield Problem(
        "minimum",
        WRONG,
        f"{_named(suffer)} {'refuses' if len(suffer) == 1 else 'refuse'} records with acks=all.",
        f"Fewer replicas are in sync than min.insync.replicas asks for ({topic}: {least}).",
        _since(suffer),
        f"partition:{place_text(suffer[0].place)}",
        *_places(suffer),
    )


def _behind(rows: Rows, brokers: Brokers) -> Iterator[Problem]:
    """Replicas of brokers that are up, by broker."""
    found: dict[int, list[PartitionRow]] = {}
    for row in rows.values():
        for id in row.out_of_sync:
            if row.leader >= 0 and _is_up(brokers, id):
                found.setdefault(id, []).append(row)
    for id, lacking in sorted(found.items()):
        causes = sorted({row.cause for row in lacking if row.cause and " " not in row.cause})
        of_disk = sum(id in row.offline for row in lacking)
        why = f"Left the ISR as {listed(causes, 'or')}." if causes else ""
        if of_disk:
            why = f"{count(of_disk, 'replica')} of it {'is' if of_disk == 1 else 'are'} offline: a log directory failed."
        yield Problem(
            f"behind:{id}",
            DEGRADED,
            f"Broker {id} is not in sync in {count(len(lacking), 'partition')}: {_named(lacking)}.",
            why or "It catches up, or cannot.",
            _since(lacking),
            f"partition:{place_text(lacking[0].place)}",
            *_places(lacking),
        )


def disk_problems(disks: Mapping[int, DiskRow]) -> Iterator[Problem]:
    for broker, disk in sorted(disks.items()):
        if disk.failed:
            yield Problem(
                f"disk:{broker}",
                WRONG,
                f"Broker {broker} lost {count(len(disk.failed), 'log directory').replace('directorys', 'directories')}.",
                f"{listed(disk.failed)} cannot be read or written.",
                0,
                f"broker:{broker}",
            )
        if disk.refuses:
            yield Problem(
                f"full:{broker}",
                WRONG,
                f"The disk of broker {broker} is nearly full: it takes no records.",
                f"{listed(disk.refuses)}: free space there; records are taken again at once.",
                0,
                f"broker:{broker}",
            )
        elif disk.total_bytes and disk.free_bytes is not None:
            part = disk.free_bytes / disk.total_bytes
            if part < NEARLY_FULL:
                yield Problem(
                    f"full:{broker}",
                    DEGRADED,
                    f"The disk of broker {broker} is nearly full: {size(disk.free_bytes)} are free.",
                    f"That is {part:.0%} of {size(disk.total_bytes)}.",
                    0,
                    f"broker:{broker}",
                )


# Groups, transactions, moves


def group_problems(groups: Iterable[GroupRow], now_ms: int) -> Iterator[Problem]:
    for row in groups:
        if row.seconds is None or row.seconds < LATE_S or row.late_since_ms is None:
            continue
        records = count(row.lag or 0, "record")
        stands = (
            row.moved_ms is not None and now_ms - row.moved_ms > STALLED_MS
        ) or row.state == "Empty"
        why = f"{records} in {listed(row.topics)} {'is' if row.lag == 1 else 'are'} unread."
        if row.state == "Empty":
            why += " Nobody reads: the group has no members."
        elif row.hold_up is not None:
            why += " A rebalance waits."
        elif stands and row.moved_ms is not None:
            why += f" It has committed nothing for {whole((now_ms - row.moved_ms) / 1000)}."
        longer = ", or longer" if row.late_at_least else ""
        why += f" It has been more than {LATE_S:.0f} s behind since then{longer}."
        yield Problem(
            f"group:{row.id}",
            WRONG if row.seconds >= LATE_WRONG_S else DEGRADED,
            f"Group {row.id} is {whole(row.seconds)} behind.",
            why,
            row.late_since_ms,
            f"group:{row.id}",
        )


def transaction_problems(
    holds: Mapping[tuple[Place, int], HoldRow], known: Iterable[TransactionRow], now_ms: int
) -> Iterator[Problem]:
    """Open transactions that hold readers back for long: one problem for each producer."""
    by_producer = {row.producer_id: row for row in known}
    found: dict[int, list[HoldRow]] = {}
    for hold in holds.values():
        if now_ms - hold.last_ms > HELD_MS:
            found.setdefault(hold.producer_id, []).append(hold)
    for producer, held in sorted(found.items()):
        row = by_producer.get(producer)
        places = tuple(f"{hold.topic}-{hold.partition}" for hold in held)
        name = (
            f"Transaction {row.id}"
            if row is not None and row.id
            else f"A transaction of producer {producer}"
        )
        hangs = row is None or row.id is None
        yield Problem(
            f"transaction:{producer}",
            WRONG if hangs else DEGRADED,
            f"{name} holds back readers of {listed(places[:3])}{_more(len(places) - 3)}.",
            "No coordinator knows it, so it never ends by itself: abort it."
            if hangs
            else f"{count(sum(hold.held_back for hold in held), 'record')} cannot be read with read_committed.",
            min(hold.last_ms for hold in held),
            f"transaction:{(row.id if row is not None else None) or producer}",
            places[:PLACES_MAX],
            len(places),
        )


def move_problems(moves: Iterable[MoveRow], now_ms: int) -> Iterator[Problem]:
    running = list(moves)
    stalled = [
        row
        for row in running
        if row.total
        and (row.copied or 0) < row.total
        and row.moved_ms
        and now_ms - row.moved_ms > STALLED_MS
    ]
    if stalled:
        names = [f"{row.topic}-{row.partition}" for row in stalled]
        yield Problem(
            "moves",
            DEGRADED,
            f"{count(len(stalled), 'move')} of replicas {'stands' if len(stalled) == 1 else 'stand'} still.",
            "Nothing was copied for a minute: a new broker may be down, or the throttle too low.",
            min(row.moved_ms for row in stalled),
            f"partition:{names[0]}",
            tuple(names[:PLACES_MAX]),
            len(names),
        )
    elif running:
        names = [f"{row.topic}-{row.partition}" for row in running]
        yield Problem(
            "moves",
            NOTICE,
            f"{count(len(running), 'partition')} {'is' if len(running) == 1 else 'are'} moving to other brokers.",
            "",
            min(row.since_ms for row in running),
            f"partition:{names[0]}",
            tuple(names[:PLACES_MAX]),
            len(names),
        )


# Losses


def loss_problems(
    losses: Iterable[Mapping[str, Any]], row_of: RowOf, now_ms: int
) -> Iterator[Problem]:
    """Of the last day, unless they were recovered."""
    for loss in losses:
        at_ms = _ms(loss["at"])
        if loss.get("recovered") or now_ms - at_ms > LOSS_KEPT_MS:
            continue
        where, first = loss["partition"], loss["first_offset"]
        if loss["kind"] == "open_election":
            holders = brokers_named(list(loss["may_be_held_by"]), "or")
            yield Problem(
                f"loss:{where}/{loss['at']}",
                WRONG,
                f"{where} may have lost records by an {_election(loss['cause'])}.",
                f"Broker {loss['leader']} was elected without what {holders} may still have"
                f"{'' if first is None else f', from offset {first} on'}.{_leads_now(loss, row_of)}",
                at_ms,
                f"partition:{where}",
                (where,),
                1,
            )
            continue
        certain, possible = loss["end_offset"], loss["possible_end_offset"]
        lost = certain - first
        if lost > 0:
            text = (
                f"{where} lost {count(lost, 'committed record')}: offset{_range(first, certain)}."
            )
        else:
            text = f"{where} may have lost {count(possible - first, 'record')}: offset{_range(first, possible)}."
        kept = [each["broker"] for each in loss["held_by"]]
        cause, then = str(loss["cause"]), f"Broker {loss['leader']}"
        came = "was elected then" if "election" in cause else "led then"
        why = f"{_capital(cause)}. {then} {came}, in epoch {loss['leader_epoch']}.{_leads_now(loss, row_of)}"
        if possible > certain and lost > 0:
            why += f" {count(possible - certain, 'more record')} may have been committed."
        why += (
            f" {_capital(brokers_named(kept))} {'keeps' if len(kept) == 1 else 'keep'} a copy of them beside"
            f" {'its log' if len(kept) == 1 else 'their logs'}, where no consumer sees it: ottla recover brings it back."
            if kept
            else " No broker keeps a copy."
        )
        yield Problem(
            f"loss:{where}/{first}/{loss['at']}",
            WRONG,
            text,
            why,
            at_ms,
            f"partition:{where}",
            (where,),
            1,
        )


def _leads_now(loss: Mapping[str, Any], row_of: RowOf) -> str:
    """If it is another one than then."""
    topic, _, number = str(loss["partition"]).rpartition("-")
    row = row_of((topic, int(number)))
    if row is None or row.leader in (loss["leader"], -1):
        return ""
    return f" Broker {row.leader} leads now, in epoch {row.epoch}."


def _election(cause: str) -> str:
    return "unclean election" if cause == "unclean" else "election of the last known leader"


def _range(first: int, end: int) -> str:
    return f" {first}" if end - first == 1 else f"s {first} to {end - 1}"


def _ms(iso: str) -> int:
    return round(datetime.fromisoformat(iso).timestamp() * 1000)


# Words


def count(number: int, noun: str) -> str:
    """`1 record`, `12,345 records`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def whole(seconds: float) -> str:
    """A duration that is read, not measured."""
    return f"{seconds:.0f} s" if seconds < 120 else duration(seconds * 1000)


def _is_up(brokers: Brokers, id: int) -> bool:
    row = brokers.get(id)
    return row is not None and row.standing is BrokerStanding.UP


def _downs(brokers: Brokers, down: list[int]) -> str:
    causes = [row.cause for id in down if (row := brokers.get(id)) is not None and row.cause]
    words = f"{brokers_named(down)} {'is' if len(down) == 1 else 'are'} down"
    return f"{words} ({causes[0]})" if causes else words


def _named(rows: list[PartitionRow]) -> str:
    """At most three by name."""
    names = [place_text(row.place) for row in rows[:3]]
    return f"{listed(names) if len(rows) <= 3 else ', '.join(names)}{_more(len(rows) - 3)}"


def _more(number: int) -> str:
    return f" and {number} more" if number > 0 else ""


def _places(rows: list[PartitionRow]) -> tuple[tuple[str, ...], int]:
    return tuple(place_text(row.place) for row in rows[:PLACES_MAX]), len(rows)


def _since(rows: list[PartitionRow]) -> int:
    """The first of those that are known."""
    return min((row.since_ms for row in rows if row.since_ms), default=0)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


ORDER = (
    "own", "cluster", "controller", "offline", "loss", "minimum", "disk", "broker", "behind", "full",
    "transaction", "group", "voters", "moves",
)  # fmt: skip
"""Of two problems that are equally severe, this one is told first: the others may follow from it."""


def worst_first(problems: Iterable[Problem]) -> list[Problem]:
    def place(each: Problem) -> tuple[int, int, int, str]:
        kind = ORDER.index(each.id.partition(":")[0])
        return -each.severity, kind, each.since_ms, each.id

    return [each._replace(rank=rank) for rank, each in enumerate(sorted(problems, key=place))]
