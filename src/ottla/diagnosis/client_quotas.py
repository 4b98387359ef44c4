"""A client above its quota: who, by how much, where the quota is set, and how to change it there."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote

from ottla.diagnosis.causes import capital
from ottla.diagnosis.explanation import DEGRADED, Advice, Trouble
from ottla.diagnosis.happened import Happened
from ottla.diagnosis.now import ClusterNow, Commands, QuotaNow
from ottla.diagnosis.timeline import amount
from ottla.diagnosis.words import duration, listed

THROTTLED_WITHIN_MS = 10 * 60_000
ANONYMOUS = "ANONYMOUS"
USES = {
    "producer_byte_rate": ("sent", "send less"),
    "consumer_byte_rate": ("fetched", "fetch less"),
    "request_percentage": ("used", "send fewer requests"),
    "controller_mutation_rate": ("used", "create and delete fewer topics and partitions"),
}
Entity = dict[str, str | None]
KINDS = {"user": "users", "client-id": "clients"}


def quota_of(cluster: ClusterNow, client: str, user: str, quota: str) -> QuotaNow | None:
    """The most specific that is set now, in Kafka's order."""
    if cluster.quotas is None:
        return None
    users: tuple[Entity, ...] = ({"user": user}, {"user": None}, {})
    clients: tuple[Entity, ...] = ({"client-id": client}, {"client-id": None}, {})
    for one in users:
        for other in clients:
            entity = one | other
            for each in cluster.quotas:
                if entity and each.entity == entity and quota in each.values:
                    return each
    return None


def throttling(hits: Sequence[Happened], cluster: ClusterNow, commands: Commands) -> Trouble:
    """Clients above their quota, at one broker. A broker writes it down once a minute."""
    last = hits[-1]
    fields = last.fields
    quota, client = str(fields.get("quota")), str(fields.get("client_id") or "")
    user = str(fields.get("user") or ANONYMOUS)
    who = f"client {client}" if client else f"user {user}"
    used, less = USES.get(quota, ("used", "do less"))
    throttle_ms = float(fields.get("throttle_ms") or 0)
    limit = f"{quota}={float(fields.get('limit') or 0):g} ({amount(quota, fields.get('limit'))})"
    headline = (
        f"Broker {last.node} throttled {who} for {duration(throttle_ms)}, {duration(cluster.now_ms - last.at_ms)} ago: it was"
        f" above its quota {limit}."
    )
    found = quota_of(cluster, client, user, quota)
    cause = (
        f"{capital(who)} {used} {amount(quota, fields.get('measured'))}, and the quota allows"
        f" {amount(quota, fields.get('limit'))}. The broker then reads nothing from it for a while. Whether it does so right"
        " now is not known: it writes this down once a minute.",
        _where_set(cluster, found, quota, fields.get("limit")),
    )
    steps = [
        Advice("If the quota is meant, leave it: the client is slowed down, as it should be."),
        Advice(f"Or let {who} {less}."),
    ]
    if found is not None:
        higher = 2 * found.values[quota]
        entity = " ".join(_option(*part) for part in sorted(found.entity.items(), reverse=True))
        steps += [
            Advice(
                f"Or raise the quota, here to {amount(quota, higher)}{_for_whom(found)}.",
                commands.kafka_configs(f"{entity} --add-config {quote(f'{quota}={higher:g}')}"),
            ),
            Advice(
                f"Or remove it{_for_whom(found)}.",
                commands.kafka_configs(f"{entity} --delete-config {quote(quota)}"),
            ),
        ]
    is_producer = quota == "producer_byte_rate"
    slow = f"while it is above its quota, {who} is slowed down to {amount(quota, fields.get('limit'))}; others are not."
    return Trouble(
        DEGRADED,
        headline,
        cause,
        slow if is_producer or quota != "consumer_byte_rate" else "",
        slow if not is_producer else "",
        tuple(steps),
    )


def _where_set(cluster: ClusterNow, found: QuotaNow | None, quota: str, then: object) -> str:
    if cluster.quotas is None:
        return "Where the quota is set could not be found out."
    if found is None:
        return "The quota is no longer set."
    names = [
        f"{'the default ' if name is None else ''}{kind} {name or ''}".rstrip()
        for kind, name in sorted(found.entity.items())
    ]
    changed = (
        "" if found.values[quota] == then else f"; it is {amount(quota, found.values[quota])} now"
    )
    return f"The quota is set for {listed(names)}{changed}."


def _for_whom(found: QuotaNow) -> str:
    return ", for everyone who has no quota of their own" if None in found.entity.values() else ""


def _option(kind: str, name: str | None) -> str:
    named = "--entity-default" if name is None else f"--entity-name {quote(name)}"
    return f"--entity-type {KINDS.get(kind, kind)} {named}"
