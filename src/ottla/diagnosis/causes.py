"""Causes that partitions, groups and brokers have in common: no majority, a wrong address, a transaction, a quota."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote

from ottla.diagnosis.explanation import DEGRADED, Advice, Trouble
from ottla.diagnosis.happened import Happened
from ottla.diagnosis.now import BrokerNow, ClusterNow, Commands, Reach, TransactionNow
from ottla.diagnosis.timeline import amount
from ottla.diagnosis.words import duration, listed

THROTTLED_WITHIN_MS = 10 * 60_000


def lost_voters(cluster: ClusterNow) -> tuple[int, ...]:
    """Controllers that do not answer. If the quorum does not say who votes, all brokers that do not answer."""
    voters = cluster.quorum.voters if cluster.quorum is not None else ()
    return tuple(id for id in (voters or cluster.brokers) if not cluster.broker(id).answers)


def no_majority(cluster: ClusterNow, gone: tuple[int, ...]) -> tuple[str, ...]:
    voters = cluster.quorum.voters if cluster.quorum is not None else ()
    if not gone:
        return (
            "No controller says that it is active, although all brokers answer: an election may be under way.",
        )
    each = "; ".join(f"node {id} {state_of(cluster.broker(id))}" for id in gone)
    if voters:
        needed = len(voters) // 2 + 1
        majority = f"{len(voters) - len(gone)} of {len(voters)} controllers answer, {needed} are needed for a majority"
    else:
        majority = "Too few controllers answer for a majority"
    return (
        f"{majority}: {each}.",
        "Without a majority nothing can be decided: no leader is elected, no ISR changes, no topic is created.",
    )


def start_controllers(cluster: ClusterNow, gone: tuple[int, ...], commands: Commands) -> Advice:
    if not gone:
        return Advice("Look again in a few seconds.", commands.ottla("status"))
    text, command = commands.start(gone)
    return Advice(f"{text} A majority of the controllers is enough.", command)


def advertised_wrongly(cluster: ClusterNow, broker: BrokerNow) -> tuple[str, ...]:
    """Why a broker that the controller takes for alive cannot be reached."""
    lives = (
        f"The controller takes broker {broker.id} for alive: it sends heartbeats and is not fenced."
    )
    if broker.reach is Reach.SILENT:
        return (
            lives,
            f"Its process accepts connections at {broker.address} and answers nothing (paused, or overloaded),"
            " or a firewall drops what is sent there.",
        )
    evidence = ""
    if broker.listens_at and broker.listens_at != broker.address:
        evidence = f" Its process listens at {broker.listens_at}."
    elif cluster.stray_answers:
        evidence = f" A broker of this cluster answers at {listed(cluster.stray_answers)}, which none advertises."
    return (
        lives,
        f"But the address that it gives to clients, {broker.address}, {knocked(broker)} from here.{evidence}",
        f"So advertised.listeners of broker {broker.id} is probably wrong (or a firewall, or a missing port forwarding,"
        " stands between).",
    )


def knocked(broker: BrokerNow) -> str:
    return {
        Reach.REFUSED: "refuses connections",
        Reach.SILENT: "does not answer",
        Reach.UNRESOLVED: "has a host name that is unknown",
    }.get(broker.reach, "cannot be reached")


def correct_listener(broker: BrokerNow, commands: Commands) -> tuple[Advice, ...]:
    if broker.reach is Reach.SILENT:
        return (
            Advice(
                f"Look at the process of broker {broker.id}: is it paused (SIGCONT continues it) or overloaded?"
                " If it stays silent, it is fenced after broker.session.timeout.ms and others lead.",
                commands.ottla("status") if commands.local else "",
            ),
        )
    right = broker.listens_at or "the address under which clients reach it"
    restart = (
        commands.ottla(f"nodes stop {broker.id}")
        + " && "
        + commands.ottla(f"nodes start {broker.id}")
    )
    return (
        Advice(
            f"Set advertised.listeners of broker {broker.id} to {right}, in its server.properties, and restart it.",
            restart if commands.local else "",
        ),
    )


def state_of(broker: BrokerNow) -> str:
    if broker.reach is Reach.SILENT and broker.process is not False:
        return f"accepts connections at {broker.address} but does not answer"
    if broker.process is False:
        return "does not run"
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


def transaction_cause(transaction: TransactionNow, now_ms: int) -> tuple[str, ...]:
    who = f"producer id {transaction.producer_id}"
    if transaction.transactional_id is None:
        knows = (
            "No coordinator knows this transaction"
            if transaction.asked_all
            else "No coordinator that answers knows this transaction"
        )
        return (
            f"The transaction began at offset {transaction.start_offset}, written by {who}.",
            f"{knows}, so nobody will ever end it: it hangs.",
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
) -> Advice:
    if transaction.transactional_id is None:
        force = "" if transaction.asked_all else " --force"
        return Advice(
            "Abort the hanging transaction: its records are dropped, and readers go on.",
            commands.ottla(
                f"transactions abort --topic {topic} --partition {partition}"
                f" --start-offset {transaction.start_offset}{force}"
            ),
        )
    return Advice(
        f"Let the producer {transaction.transactional_id} commit or abort. If it is gone or hangs: abort it, which fences it.",
        commands.ottla("transactions abort", transaction.transactional_id),
    )


def throttling(hits: Sequence[Happened], now_ms: int, commands: Commands) -> Trouble:
    """Clients above their quota, at one broker."""
    last = hits[-1]
    fields = last.fields
    quota, client = str(fields.get("quota")), str(fields.get("client_id") or "")
    user = str(fields.get("user") or "")
    who = f"client {client}" if client else f"user {user}"
    node = last.node
    used = {"producer_byte_rate": "sent", "consumer_byte_rate": "fetched"}.get(quota, "used")
    headline = (
        f"Broker {node} throttles {who}, last {duration(now_ms - last.at_ms)} ago:"
        f" its quota {quota} is {amount(quota, fields.get('limit'))}."
    )
    cause = (
        f"{capital(who)} {used} {amount(quota, fields.get('measured'))}, and its quota {quota} allows"
        f" {amount(quota, fields.get('limit'))}. The broker then reads nothing from it for up to"
        f" {duration(max(float(each.fields.get('throttle_ms') or 0) for each in hits))} at a time.",
    )
    higher = 2 * float(fields.get("limit") or 1)
    entity = (
        f"--entity-type clients --entity-name {quote(client)}"
        if client
        else f"--entity-type users --entity-name {quote(user)}"
    )
    steps = (
        Advice(
            f"Let {who} send or fetch less, or raise its quota.",
            f"ottla kafka-configs --bootstrap-server {quote(commands.bootstrap)} --alter {entity} --add-config {quote(f'{quota}={higher:g}')}",
        ),
        Advice(
            "Or remove the quota.",
            f"ottla kafka-configs --bootstrap-server {quote(commands.bootstrap)} --alter {entity} --delete-config {quote(quota)}",
        ),
    )
    is_producer = quota == "producer_byte_rate"
    slow = f"{who} is slowed down to {amount(quota, fields.get('limit'))}; others are not."
    return Trouble(
        DEGRADED,
        headline,
        cause,
        slow if is_producer or quota != "consumer_byte_rate" else "",
        slow if not is_producer else "",
        steps,
    )


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]
