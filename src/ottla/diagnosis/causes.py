"""Causes that partitions, groups and brokers have in common: no majority, a wrong address, a transaction."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.diagnosis.explanation import Advice
from ottla.diagnosis.happened import Happened
from ottla.diagnosis.lost_disks import recovery, replace_commands
from ottla.diagnosis.now import BrokerNow, ClusterNow, Commands, Reach, TransactionNow
from ottla.diagnosis.words import clock, count, duration, listed

CONTROLLER_SAYS = (
    "controller_change",
    "election",
    "fenced",
    "isr_expand",
    "isr_shrink",
    "leader_start",
    "reassignment",
    "unfenced",
)
"""Events that there are only while a controller is active."""


def lost_voters(cluster: ClusterNow) -> tuple[int, ...]:
    """Controllers that do not answer. If the quorum does not say who votes, all brokers that do not answer."""
    voters = cluster.quorum.voters if cluster.quorum is not None else ()
    return tuple(id for id in (voters or cluster.brokers) if not cluster.broker(id).answers)


def no_majority(
    cluster: ClusterNow, gone: tuple[int, ...], entries: Iterable[Happened]
) -> tuple[str, ...]:
    voters = cluster.quorum.voters if cluster.quorum is not None else ()
    if not gone:
        return (
            "No controller says that it is active, although all brokers answer: an election may be under way.",
        )
    each = "; ".join(
        f"{_controller(cluster, id)} {state_of(cluster.broker(id), cluster)}" for id in gone
    )
    if voters:
        needed = len(voters) // 2 + 1
        answer = len(voters) - len(gone)
        majority = f"{answer} of {len(voters)} controllers {'answers' if answer == 1 else 'answer'}, {needed} are needed for a majority"
    else:
        majority = "Too few controllers answer for a majority"
    return (
        f"{majority}: {each}.",
        "Without a majority nothing can be decided: no leader is elected, no ISR changes, no topic is created.",
        _since_when(cluster, voters, gone, entries),
    )


def _since_when(
    cluster: ClusterNow, voters: tuple[int, ...], gone: tuple[int, ...], entries: Iterable[Happened]
) -> str:
    """Nobody can write it down: from when the processes ended, if they are on this machine, or from the last decision."""
    ended = sorted(at for id in gone if (at := cluster.broker(id).ended_ms) is not None)
    too_many = (len(voters) + 1) // 2
    if voters and len(ended) == len(gone) >= too_many:
        return f"That is so for about {duration(cluster.now_ms - ended[too_many - 1])}."
    last = max((entry.at_ms for entry in entries if entry.kind in CONTROLLER_SAYS), default=None)
    if last is None:
        return "Since when is not known."
    return (
        f"Since when is not known; the last decision of a controller was at {clock(last, cluster.now_ms)},"
        f" {duration(cluster.now_ms - last)} ago."
    )


def _controller(cluster: ClusterNow, id: int) -> str:
    return f"broker {id}" if id in cluster.brokers else f"controller {id}"


def start_cluster(cluster: ClusterNow, commands: Commands, more: str = "") -> Advice:
    """Of which no node runs."""
    found = recovery(cluster.data, _sole_first(cluster, tuple(cluster.data)), commands.ottla)
    if found is not None:
        return Advice(found.text, " && ".join(found.commands))
    return Advice(f"Start the cluster.{more}", commands.ottla("up --detach"))


def start_controllers(cluster: ClusterNow, gone: tuple[int, ...], commands: Commands) -> Advice:
    if not gone:
        return Advice("Look again in a few seconds.", commands.ottla("status"))
    found = recovery(cluster.data, _sole_first(cluster, gone), commands.ottla)
    if found is not None:
        return Advice(found.text, " && ".join(found.commands))
    text, command = commands.start(gone)
    return Advice(
        f"{text} It is enough when a majority of the controllers runs.{_start_first(cluster, gone)}",
        command,
    )


def _sole_first(cluster: ClusterNow, ids: tuple[int, ...]) -> list[int]:
    """Those that have the only replica in sync of a partition come first: elsewhere another might lead without its records."""
    return sorted(ids, key=lambda id: (id not in (cluster.alone or {}), id))


def bring_back(
    broker: int, cluster: ClusterNow, commands: Commands, then: str, only_copy: str = ""
) -> Advice:
    """For a broker that does not run, or nowhere to be reached. `then`: what it does as soon as it runs. `only_copy`: a sentence
    about what nobody else has; empty if others have all of it."""
    data = cluster.data.get(broker)
    if data is not None and data.lost:
        if cluster.has_no_controller or cluster.stopped:
            return start_controllers(cluster, (broker,), commands)
        gone = f"The disk of broker {broker} is gone ({listed(data.lost)})"
        replace = " && ".join(replace_commands(data, commands.ottla))
        if only_copy:
            return Advice(
                f"{gone}. {only_copy} Try to save the disk first: mount it again where it was, and start the broker. If it cannot"
                " be saved, these records are gone: this command says so, and begins anew without them if it is given"
                " --accept-loss.",
                replace,
            )
        return Advice(
            f"{gone}: start it with an empty one, and have its replicas copied from others. If nobody else has all records of a"
            " partition, this says so and does nothing.",
            replace,
        )
    text, command = commands.start((broker,))
    if commands.local:
        return Advice(f"{text} {then}", command)
    anew = commands.ottla(f"brokers replace {broker}")
    if only_copy:
        return Advice(
            f"{text} {then} {only_copy} If its disk is gone, so are these records: try to save the disk first. Only if it cannot be"
            f" saved: {anew} --accept-loss begins anew without them.",
            command,
        )
    return Advice(f"{text} If its disk is gone: {anew}. {then}", command)


def _start_first(cluster: ClusterNow, gone: tuple[int, ...]) -> str:
    """The caution before several brokers are started: where unclean elections are allowed, who comes first leads."""
    alone = {id: names for id in gone if (names := (cluster.alone or {}).get(id))}
    if len(gone) == 1 or not alone:
        return ""
    each = listed(f"broker {id} (of {listed(names[:3])})" for id, names in alone.items())
    return (
        f" Caution: the only replica in sync is on {each}. If such a topic allows unclean elections, start that broker first,"
        " with ottla nodes start: another one would lead without its records."
    )


def advertised_wrongly(cluster: ClusterNow, broker: BrokerNow) -> tuple[str, ...]:
    """Why a broker that the controller takes for alive cannot be reached."""
    lives = (
        f"Broker {broker.id} runs: it sends heartbeats to the controller, over a connection that it opened itself, and is not"
        " fenced."
    )
    if broker.reach is Reach.SILENT:
        return (
            lives,
            f"Its process accepts connections at {broker.address} and answers nothing, since it is paused."
            if broker.paused
            else f"Its process accepts connections at {broker.address} and answers nothing"
            f" ({'overloaded' if broker.paused is False else 'paused, or overloaded'}), or a firewall drops what is sent there.",
        )
    evidence = ""
    if broker.listens_at and broker.listens_at != broker.address:
        evidence = f" By its settings it listens at {broker.listens_at}."
    elif cluster.stray_answers:
        evidence = f" A broker of this cluster answers at {listed(cluster.stray_answers)}, which none advertises."
    return (
        lives,
        f"But the address that it gives to clients, {broker.address}, {knocked(broker)}, asked from this machine.{evidence}",
        f"So advertised.listeners of broker {broker.id} is probably wrong; else a firewall or a missing port forwarding"
        " stands between.",
    )


def knocked(broker: BrokerNow) -> str:
    return {
        Reach.REFUSED: "refuses connections",
        Reach.SILENT: "does not answer",
        Reach.UNRESOLVED: "has a host name that is unknown",
    }.get(broker.reach, "cannot be reached")


def state_of(broker: BrokerNow, cluster: ClusterNow) -> str:
    if broker.reach is Reach.SILENT and broker.process is not False:
        paused = " (its process is paused)" if broker.paused else ""
        return f"accepts connections at {broker.address} but does not answer{paused}"
    if broker.process is False:
        ended = broker.ended_ms
        ago = "" if ended is None else f" (it ended about {duration(cluster.now_ms - ended)} ago)"
        lost = cluster.lost(broker.id)
        return f"does not run{ago}{f', {lost},' if lost else ''}"
    if broker.reach is Reach.NOT_ASKED:
        return "is not part of the cluster now" if broker.fenced is None else "was not asked"
    if broker.answers:
        return "answers"
    return f"{broker.reach} at {broker.address}" if broker.address else str(broker.reach)


def ends_by_itself(transaction: TransactionNow, now_ms: int) -> bool:
    return (
        transaction.transactional_id is not None
        and transaction.started_ms is not None
        and transaction.timeout_ms is not None
        and now_ms < transaction.started_ms + transaction.timeout_ms
    )


def transaction_cause(
    transaction: TransactionNow, now_ms: int, log_end: int | None
) -> tuple[str, ...]:
    who = f"producer id {transaction.producer_id}"
    if transaction.transactional_id is None:
        many = (
            ""
            if log_end is None
            else f" How many of the {count(log_end - transaction.start_offset, 'record')} from there on are its own is not known."
        )
        began = (
            f"The transaction began at offset {transaction.start_offset}, written by {who}.{many}"
        )
        if not transaction.asked_all:
            return (
                began,
                "No coordinator that answers knows it. Others do not answer, or are not elected yet: they may know it and end it.",
            )
        return (
            began,
            "No coordinator knows it, although all answered and had loaded their transactions: nobody will end it, unless a"
            " coordinator moved to another broker just now.",
        )
    lines = [
        f"The transaction of transactional id {transaction.transactional_id} ({who}) began at offset"
        f" {transaction.start_offset}; its producer last wrote here {duration(now_ms - transaction.last_ms)} ago and has"
        " neither committed nor aborted."
    ]
    if ends_by_itself(transaction, now_ms):
        assert transaction.started_ms is not None and transaction.timeout_ms is not None
        left = transaction.started_ms + transaction.timeout_ms - now_ms
        lines.append(
            f"Its timeout is {duration(transaction.timeout_ms)}: the coordinator aborts it in {duration(left)}."
        )
    return tuple(lines)


def end_transaction(
    transaction: TransactionNow, topic: str, partition: int, commands: Commands
) -> tuple[Advice, ...]:
    if transaction.transactional_id is not None:
        return (
            Advice(
                f"Let the producer {transaction.transactional_id} commit or abort. If it is gone or hangs: abort it, which"
                " fences it.",
                commands.ottla("transactions abort", transaction.transactional_id),
            ),
        )
    wait = "" if transaction.asked_all else " Bring back the brokers that do not answer first."
    look = Advice(
        f"Look again in a minute.{wait} A coordinator that was elected or restarted just now may still end it.",
        commands.ottla(f"explain {topic}-{partition}"),
    )
    if not transaction.asked_all:
        return (look,)
    return (
        look,
        Advice(
            "Only if it is open then, too: abort it. Its records in this partition are dropped for all readers of committed"
            " records. This cannot be undone.",
            commands.ottla(
                f"transactions abort --topic {topic} --partition {partition}"
                f" --start-offset {transaction.start_offset}"
            ),
        ),
    )


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]
