"""Can clients and nodes reach each other: names, addresses, fenced and ended nodes, versions, clocks."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address
from itertools import pairwise
from shlex import quote

from ottla.diagnosis.facts import AdvertisedEndpoint, NodeProcessFacts
from ottla.doctor.finding import (
    Case,
    FindingSeverity,
    HealthFinding,
    Rule,
    bootstrap,
    ids,
)
from ottla.local.cluster import KILLED, RUNNING, STOPPED

CLOCK_WARNING_MS, CLOCK_SERIOUS_MS = 500, 5_000


def name_unknown(case: Case) -> Iterator[HealthFinding]:
    for each in case.facts.endpoints:
        if each.is_for_clients and not each.resolved:
            yield HealthFinding(
                "name-unknown",
                FindingSeverity.SERIOUS,
                f"broker {each.broker} advertises {each.host}:{each.port}; this machine does not know"
                f" the name {each.host}",
                "A client asks any broker for addresses and then connects to these, so it cannot use the"
                " partitions that this broker leads.",
                f"echo {quote(f'ADDRESS {each.host}')} | sudo tee -a /etc/hosts  # here; or set advertised.listeners"
                f" of broker {each.broker} to a name that clients know",
            )


def broker_unreachable(case: Case) -> Iterator[HealthFinding]:
    nodes = () if case.facts.machine is None else case.facts.machine.nodes
    ended = [node.node for node in nodes if node.state != RUNNING]  # another rule tells of them
    for each in case.facts.endpoints:
        is_lost = each.is_for_clients and each.resolved and each.error is not None
        if is_lost and each.broker not in ended:
            here = _is_loopback(each)
            yield HealthFinding(
                "broker-unreachable",
                FindingSeverity.SERIOUS,
                f"broker {each.broker} advertises {each.host}:{each.port}, and this machine cannot use"
                f" that address: {each.error}"
                + ("; it means this machine itself, wherever a client runs" if here else ""),
                "A client asks any broker for addresses and then connects to these, so it cannot use the"
                " partitions that this broker leads.",
                f"nc -vz {quote(each.host)} {each.port}  # until it connects: mend the firewall, start the broker,"
                " or set its advertised.listeners to an address that clients reach",
            )


def _is_loopback(endpoint: AdvertisedEndpoint) -> bool:
    return all(ip_address(each.partition("%")[0]).is_loopback for each in endpoint.resolved)


def other_listener_unreachable(case: Case) -> Iterator[HealthFinding]:
    for each in case.facts.endpoints:
        if not each.is_for_clients and each.error is not None:
            yield HealthFinding(
                "other-listener-unreachable",
                FindingSeverity.NOTE,
                f"listener {each.listener} of broker {each.broker} ({each.host}:{each.port}) cannot be"
                f" reached from this machine: {each.error}",
                "Clients of this bootstrap address do not use that listener. If clients here use it, they"
                " fail.",
                f"nc -vz {quote(each.host)} {each.port}",
            )


def broker_fenced(case: Case) -> Iterator[HealthFinding]:
    for each in case.facts.brokers:
        if each.fenced:
            yield HealthFinding(
                "broker-fenced",
                FindingSeverity.SERIOUS,
                f"broker {each.id} ({each.host}:{each.port}) is fenced: {_why_fenced(case.node(each.id))}",
                "It leads nothing and is in no ISR, so every partition on it has one replica less.",
                case.start(each.id) + _not_before(case, each.id),
            )


def _not_before(case: Case, broker: int) -> str:
    """Where an unclean election is allowed: whom this broker must not precede."""
    live, alone = case.facts.live, case.sole_replicas()
    for id, names in alone.items():
        held = [
            each.name
            for each in case.facts.partitions
            if each.name in names and broker in each.replicas
        ]
        if id != broker and id not in live and held:
            return f"  # only after broker {id}: {held[0]} allows unclean elections, and no other replica has all its records"
    return ""


def _why_fenced(node: NodeProcessFacts | None) -> str:
    if node is None:
        return "it is down, still starting, or cut off from the controller"
    if node.paused:
        return f"its process {node.pid} is paused"
    if node.state == RUNNING:
        return f"its process {node.pid} runs, and is still starting, or cut off from the controller"
    return f"the node {_ended_text(node)}"


def node_ended(case: Case) -> Iterator[HealthFinding]:
    machine = case.facts.machine
    fenced = [each.id for each in case.facts.brokers if each.fenced]
    for node in () if machine is None else machine.nodes:
        is_expected = node.state in (RUNNING, STOPPED) and not case.has_lost_its_disk(node.node)
        if not is_expected and node.node not in fenced:
            yield HealthFinding(
                "node-ended",
                FindingSeverity.SERIOUS,
                f"node {node.node} of this machine {_ended_text(node)}",
                "What it still holds is gone when it stops."
                if node.state == RUNNING
                else "Its replicas and its vote are missing until it runs again.",
                case.start(node.node),
            )


def _ended_text(node: NodeProcessFacts) -> str:
    text = f"was {node.state}" if node.state in (KILLED, STOPPED) else node.state
    text = f"runs (process {node.pid})" if node.state == RUNNING else text
    lost = "" if node.data is None else node.data.lost_text
    return f"{text}, and {lost}" if lost else text


def versions_differ(case: Case) -> Iterator[HealthFinding]:
    tables: dict[str, list[int]] = {}
    for each in case.facts.endpoints:
        if each.apis:
            tables.setdefault(str(sorted(each.apis.items())), []).append(each.broker)
    if len(tables) > 1:
        parts = " and ".join(f"brokers {ids(brokers)}" for brokers in tables.values())
        yield HealthFinding(
            "versions-differ",
            FindingSeverity.WARNING,
            f"{parts} serve different versions of the protocol, so they run different software",
            "Clients see other features at each broker, and new features stay off until all are the same.",
            f"kafka-broker-api-versions.sh --bootstrap-server {bootstrap(case.facts)}"
            "  # compare, then upgrade the older ones",
        )


def local_versions_differ(case: Case) -> Iterator[HealthFinding]:
    machine = case.facts.machine
    if machine is None:
        return
    versions = {each.node: each.version for each in machine.nodes if each.version and each.pid}
    old = [node for node, version in versions.items() if version != machine.ottla]
    if old:
        shown = ", ".join(f"node {node} runs {versions[node]}" for node in old)
        yield HealthFinding(
            "local-versions-differ",
            FindingSeverity.NOTE,
            f"ottla {machine.ottla} is installed; {shown}",
            "A node has the version that was installed when it started.",
            f"{case.ottla(f'nodes stop {old[0]}')} && {case.ottla(f'nodes start {old[0]}')}",
        )


def clocks_differ(case: Case) -> Iterator[HealthFinding]:
    readings = case.facts.clocks
    for each in readings:
        apart = abs(each.ahead_ms) - each.error_ms
        if apart > CLOCK_WARNING_MS:
            where = "ahead of" if each.ahead_ms > 0 else "behind"
            yield HealthFinding(
                "clocks-differ",
                FindingSeverity.SERIOUS if apart > CLOCK_SERIOUS_MS else FindingSeverity.WARNING,
                f"the clock of node {each.node} is {abs(each.ahead_ms) / 1000:.1f} s {where} that of this"
                f" machine (± {each.error_ms / 1000:.1f} s, by the {each.source})",
                "Retention, timestamps of records, the age of transactions and the order of log lines"
                " follow clocks.",
                f"timedatectl set-ntp true  # here and on the machine of node {each.node}",
            )
    for one, other in pairwise(readings):
        apart = abs(one.ahead_ms - other.ahead_ms) - one.error_ms - other.error_ms
        if apart > CLOCK_WARNING_MS:
            yield HealthFinding(
                "clocks-differ",
                FindingSeverity.SERIOUS if apart > CLOCK_SERIOUS_MS else FindingSeverity.WARNING,
                f"the clocks of nodes {one.node} and {other.node} are {apart / 1000:.1f} s apart",
                "When leadership moves between them, timestamps jump, and retention removes too early or"
                " too late.",
                f"timedatectl set-ntp true  # on the machines of nodes {one.node} and {other.node}",
            )


RULES: tuple[Rule, ...] = (
    name_unknown,
    broker_unreachable,
    other_listener_unreachable,
    broker_fenced,
    node_ended,
    versions_differ,
    local_versions_differ,
    clocks_differ,
)
