"""The doctor: rules that find what is wrong, or soon will be, in the facts of a cluster.

A rule is a small pure function from facts to findings. `RULES` is the table of all. A finding says what is so, why it
matters, and which command mends it. Silence means that the facts which a rule needs are there and right; what could
not be found out is in `Facts.unknown`, and is shown beside the findings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address
from itertools import pairwise
from shlex import quote

from ottla.config.traps import Trap, topic_traps
from ottla.diagnosis.facts import (
    ELIGIBLE_REPLICAS,
    RECENT_MS,
    AdvertisedEndpoint,
    Facts,
    GroupFacts,
    NodeProcessFacts,
    PartitionFacts,
    Place,
    TopicFacts,
)
from ottla.diagnosis.remedies import UNCLEAN
from ottla.diagnosis.words import command
from ottla.local.cluster import KILLED, RUNNING, STOPPED
from ottla.wire.internal_topics import AUDIT_TOPIC, EVENT_LOG_TOPIC, TRANSACTION_STATE_TOPIC

MANY = 4
"""How many names are shown of a longer list."""
DAY_S = 24 * 60 * 60
DISK_SERIOUS, DISK_WARNING = 0.05, 0.10
FORECAST_SERIOUS_S, FORECAST_WARNING_S = DAY_S, 7 * DAY_S
CLOCK_WARNING_MS, CLOCK_SERIOUS_MS = 500, 5_000
VOTER_LATE_MS = 10_000
HELD_UP_MS = 60_000
STALE_MS = 10 * 60 * 1000
HANGING_MS = 5 * 60 * 1000
OPEN_FILES_FEW = 4_096
OPEN_FILES_SHARE = 0.8
SWAPPINESS_MAX = 10
MAP_COUNT_MIN = 65_530
DIRTY_RATIO_MAX = 60
IMBALANCE_SHARE = 0.1
IMBALANCE_MIN = 2

OF_ONE_NODE = frozenset(
    {
        "advertised.listeners",
        "broker.id",
        "broker.rack",
        "cluster.id",
        "controller.listener.names",
        "controller.quorum.voters",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "listeners",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
        "metrics.listeners",
        "node.id",
        "process.roles",
    }
)
"""Settings that may differ from node to node."""
FILES_OF_ONE_NODE = (".location", ".certificate.chain")
"""How settings end that name a node's own files (ssl.keystore.location, with or without listener.name.X. before it)."""


class FindingSeverity(StrEnum):
    SERIOUS = "serious"
    """Data, writes or reads are at risk or fail now. The doctor's exit code says so."""
    WARNING = "warning"
    """The next failure will hurt, or a limit is near."""
    NOTE = "note"
    """Worth knowing; nothing needs to be done."""


@dataclass(frozen=True)
class HealthFinding:
    rule: str
    severity: FindingSeverity
    what: str
    why: str
    mend: str
    """A command, or several with `&&` or `;` between them; or, for a file of settings, what to set in it."""


@dataclass(frozen=True)
class Case:
    """The facts, and how a command names the cluster: ` --dir …` or ` -b …`."""

    facts: Facts
    target: str = ""

    def ottla(self, words: str, *names: str) -> str:
        return command(words, names, self.target)

    def start(self, broker: int) -> str:
        """The command that brings a broker back: ours, if it is a node of a local cluster. One that runs is paused, if
        it is not still starting or cut off."""
        node = self.node(broker)
        if node is not None and node.state == RUNNING and node.pid is not None:
            return f"kill -CONT {node.pid}"
        if node is not None:
            return self.ottla(f"nodes start {broker}")
        return (
            f"systemctl start kafka  # on the machine of broker {broker}, or as you start it there"
        )

    def start_all(self) -> str:
        """First the brokers whose replica is the only one in sync where whoever comes first may lead."""
        ended = {
            each.node
            for each in (() if self.facts.machine is None else self.facts.machine.nodes)
            if each.state != RUNNING
        }
        first = sorted(id for id in self.sole_replicas() if id in ended)
        up = self.ottla("up --detach")
        if not first:
            return up
        names = ", ".join(name for id in first for name in self.sole_replicas()[id][:MANY])
        return (
            f"{' && '.join(self.ottla(f'nodes start {id}') for id in first)} && {up}  # in this order: {names} allows unclean"
            f" elections, and only broker {_ids(first)} has every record"
        )

    def sole_replicas(self) -> dict[int, list[str]]:
        """By broker: partitions that allow unclean elections, and whose only replica in sync it has."""
        found: dict[int, list[str]] = {}
        for topic in self.facts.topics:
            for each in topic.partitions if topic.configs.get(UNCLEAN) == "true" else ():
                complete = {*each.isr, *each.elr}
                if len(complete) == 1 < len(each.replicas):
                    found.setdefault(complete.pop(), []).append(each.name)
        return found

    def node(self, broker: int) -> NodeProcessFacts | None:
        """Its process, if it is a node of a local cluster."""
        nodes = () if self.facts.machine is None else self.facts.machine.nodes
        return next((each for each in nodes if each.node == broker), None)


Rule = Callable[[Case], Iterator[HealthFinding]]
RULES: dict[str, Rule] = {}
"""By name, in the order in which findings of the same severity are shown."""


def _rule(function: Rule) -> Rule:
    RULES[_name_of(function)] = function
    return function


def _name_of(function: Rule) -> str:
    return function.__name__.replace("_", "-")


def examine(facts: Facts, target: str = "") -> list[HealthFinding]:
    """All findings, the serious ones first."""
    case = Case(facts, target)
    found = [finding for rule in RULES.values() for finding in rule(case)]
    order = list(FindingSeverity)
    return sorted(found, key=lambda finding: order.index(finding.severity))


def is_serious(findings: Iterable[HealthFinding]) -> bool:
    return any(finding.severity is FindingSeverity.SERIOUS for finding in findings)


# Reaching the brokers


@_rule
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


@_rule
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


@_rule
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


@_rule
def broker_fenced(case: Case) -> Iterator[HealthFinding]:
    for each in case.facts.brokers:
        if each.fenced:
            yield HealthFinding(
                "broker-fenced",
                FindingSeverity.SERIOUS,
                f"broker {each.id} ({each.host}:{each.port}) is fenced: {_why_fenced(case.node(each.id))}",
                "It leads nothing and is in no ISR, so every partition on it has one replica less.",
                case.start(each.id)
                + (_not_before(case, each.id) or _if_paused(case.node(each.id))),
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


def _if_paused(node: NodeProcessFacts | None) -> str:
    runs = node is not None and node.state == RUNNING
    return "  # if it is paused; else its log says what it waits for" if runs else ""


def _why_fenced(node: NodeProcessFacts | None) -> str:
    if node is None:
        return "it is down, still starting, or cut off from the controller"
    if node.state == RUNNING:
        return f"its process {node.pid} runs, and is paused, still starting, or cut off from the controller"
    return f"the node {_ended_text(node.state)}"


@_rule
def node_ended(case: Case) -> Iterator[HealthFinding]:
    machine = case.facts.machine
    fenced = [each.id for each in case.facts.brokers if each.fenced]
    for node in () if machine is None else machine.nodes:
        if node.state not in (RUNNING, STOPPED) and node.node not in fenced:
            yield HealthFinding(
                "node-ended",
                FindingSeverity.SERIOUS,
                f"node {node.node} of this machine {_ended_text(node.state)}",
                "Its replicas and its vote are missing until it runs again.",
                case.start(node.node),
            )


def _ended_text(state: str) -> str:
    return f"was {state}" if state in (KILLED, STOPPED) else state


@_rule
def versions_differ(case: Case) -> Iterator[HealthFinding]:
    tables: dict[str, list[int]] = {}
    for each in case.facts.endpoints:
        if each.apis:
            tables.setdefault(str(sorted(each.apis.items())), []).append(each.broker)
    if len(tables) > 1:
        parts = " and ".join(f"brokers {_ids(brokers)}" for brokers in tables.values())
        yield HealthFinding(
            "versions-differ",
            FindingSeverity.WARNING,
            f"{parts} serve different versions of the protocol, so they run different software",
            "Clients see other features at each broker, and new features stay off until all are the same.",
            f"kafka-broker-api-versions.sh --bootstrap-server {_bootstrap(case.facts)}"
            "  # compare, then upgrade the older ones",
        )


@_rule
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


@_rule
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


# The metadata quorum


@_rule
def nobody_answers(case: Case) -> Iterator[HealthFinding]:
    why = case.facts.unknown.get("the cluster")
    if why is not None:
        yield HealthFinding(
            "nobody-answers",
            FindingSeverity.SERIOUS,
            f"no node of the cluster answers: {why}",
            "Nothing can be written or read, and only what is on this machine could be looked at.",
            case.ottla("up --detach"),
        )


@_rule
def quorum_has_no_leader(case: Case) -> Iterator[HealthFinding]:
    why = case.facts.unknown.get("the metadata quorum")
    # Who may not ask has no answer either: the report lists it under what could not be checked.
    if why is not None and "AUTHORIZATION_FAILED" not in why:
        yield HealthFinding(
            "quorum-has-no-leader",
            FindingSeverity.SERIOUS,
            f"the metadata quorum does not answer: {why}",
            "Without an active controller nothing can be created or changed, and no leader is replaced"
            " when it fails.",
            case.start_all()
            if case.facts.machine is not None and case.facts.machine.nodes
            else f"kafka-metadata-quorum.sh --bootstrap-server {_bootstrap(case.facts)} describe --status",
        )


@_rule
def voters_behind(case: Case) -> Iterator[HealthFinding]:
    """By the leader's clock alone: its own entry is the time of the answer."""
    quorum = case.facts.quorum
    leader = _quorum_leader_time(case.facts)
    if quorum is None or leader is None:
        return
    late = [
        each.id
        for each in quorum.voters
        if each.id != quorum.leader and leader - each.last_caught_up_ms > VOTER_LATE_MS
    ]
    if late:
        current = len(quorum.voters) - len(late)
        spare = current - (len(quorum.voters) // 2 + 1)
        yield HealthFinding(
            "voters-behind",
            FindingSeverity.SERIOUS if spare <= 0 else FindingSeverity.WARNING,
            f"{_plural(len(late), 'controller')} of {len(quorum.voters)} (node {_ids(late)}) did not keep up"
            f" with the metadata for {VOTER_LATE_MS // 1000} s",
            f"{current} are current and {len(quorum.voters) // 2 + 1} are needed for each decision: "
            + (
                "the next failure stops all of them."
                if spare <= 0
                else f"{_plural(spare, 'more failure')} can be survived."
            ),
            " && ".join(case.start(id) for id in late),
        )


def _quorum_leader_time(facts: Facts) -> int | None:
    quorum = facts.quorum
    times = [
        each.last_caught_up_ms
        for each in (() if quorum is None else quorum.voters)
        if quorum is not None and each.id == quorum.leader and each.last_caught_up_ms > 0
    ]
    return times[0] if times else None


@_rule
def few_voters(case: Case) -> Iterator[HealthFinding]:
    quorum = case.facts.quorum
    if quorum is None or len(quorum.voters) >= 3 or len(case.facts.brokers) < 3:
        return
    yield HealthFinding(
        "few-voters",
        FindingSeverity.WARNING,
        f"{_plural(len(quorum.voters), 'controller')} for {len(case.facts.brokers)} brokers",
        "With one or two controllers, the failure of one stops every change of the cluster.",
        f"kafka-metadata-quorum.sh --bootstrap-server {_bootstrap(case.facts)} add-controller"
        "  # or start three controllers from the beginning, as ottla up -n 3 does",
    )


# Partitions


@_rule
def partitions_offline(case: Case) -> Iterator[HealthFinding]:
    for topic in case.facts.topics:
        lost = [each for each in topic.partitions if each.leader < 0]
        if not lost:
            continue
        may_lead = sorted({id for each in lost for id in each.elr or each.isr})
        last_known = sorted({id for each in lost for id in each.last_known_elr})
        if not may_lead and ELIGIBLE_REPLICAS in case.facts.unknown:
            who = "which brokers may lead without loss is not known"
        else:
            count = _plural(len(may_lead), "broker")
            who = f"{count} that may lead without loss: {_ids(may_lead) or 'none'}"
        if not may_lead and last_known:
            who += f"; the last known to be eligible, which may lack records: {_ids(last_known)}"
        # An unclean election is advised only when nobody is left to wait for.
        missing = {id for each in lost for id in each.replicas} - set(case.facts.live)
        awaited = may_lead or sorted(missing.intersection(last_known) or missing)
        numbers = " ".join(f"-p {each.partition}" for each in lost)
        yield HealthFinding(
            "partitions-offline",
            FindingSeverity.SERIOUS,
            f"{_names(lost)} {_have(lost)} no leader; {who}",
            "Nothing can be written there or read from there.",
            " && ".join(case.start(id) for id in awaited)
            or case.ottla(f"topics elect {topic.name} --unclean {numbers}")
            + "  # loses what only the others have",
        )


@_rule
def below_min_insync(case: Case) -> Iterator[HealthFinding]:
    for topic in case.facts.topics:
        needed = topic.number("min.insync.replicas")
        below = [
            each
            for each in topic.partitions
            if needed is not None and each.leader >= 0 and len(each.isr) < needed <= topic.factor
        ]
        if below:
            missing = sorted({id for each in below for id in each.out_of_sync})
            yield HealthFinding(
                "below-min-insync",
                FindingSeverity.SERIOUS,
                f"{_names(below)} {_have(below)} fewer in-sync replicas than min.insync.replicas={needed};"
                f" out of sync: {_ids(missing)}",
                "Producers with acks=all are refused (NOT_ENOUGH_REPLICAS).",
                _revive(case, missing, topic.name),
            )


@_rule
def under_replicated(case: Case) -> Iterator[HealthFinding]:
    moving = {(each.topic, each.partition): each.adding for each in case.facts.reassignments}
    for topic in case.facts.topics:
        needed = topic.number("min.insync.replicas") or 1
        under = [
            each
            for each in topic.partitions
            if each.leader >= 0
            and len(each.isr) >= min(needed, topic.factor)
            and set(each.out_of_sync) - set(moving.get(each.place, ()))
        ]
        if under:
            missing = sorted({id for each in under for id in each.out_of_sync})
            at_limit = any(len(each.isr) == needed for each in under)
            yield HealthFinding(
                "under-replicated",
                FindingSeverity.WARNING,
                f"{_names(under)} {_have(under)} replicas out of sync: {_ids(missing)}",
                "One failure more stops writes with acks=all."
                if at_limit
                else "Fewer failures can be survived than the replication factor promises.",
                _revive(case, missing, topic.name),
            )


def _revive(case: Case, brokers: Iterable[int], topic: str) -> str:
    """Brokers that do not live are started; a slow one has to be looked at."""
    down = [id for id in brokers if id not in case.facts.live]
    return " && ".join(case.start(id) for id in down) or case.ottla(f"replicas {topic}")


@_rule
def moves_stuck(case: Case) -> Iterator[HealthFinding]:
    for each in case.facts.reassignments:
        gone = [id for id in each.adding if id not in case.facts.live]
        if gone:
            yield HealthFinding(
                "moves-stuck",
                FindingSeverity.WARNING,
                f"{each.topic}-{each.partition} is being moved to broker {_ids(gone)}, which is not alive",
                "The move cannot end, and both old and new replicas are kept until it does.",
                case.ottla(f"topics reassign {each.topic} --partition {each.partition} --cancel"),
            )


@_rule
def leaders_skewed(case: Case) -> Iterator[HealthFinding]:
    """Preferred leaders that live and are in sync, but do not lead, beyond the share that Kafka tolerates itself."""
    facts = case.facts
    led = [each for each in facts.partitions if each.leader >= 0]
    displaced = [
        each
        for each in led
        if each.replicas[0] != each.leader
        and each.replicas[0] in each.isr
        and each.replicas[0] in facts.live
    ]
    if len(displaced) < IMBALANCE_MIN or len(displaced) <= IMBALANCE_SHARE * len(led):
        return
    counts = Counter(each.leader for each in led)
    shown = ", ".join(f"broker {id}: {counts[id]}" for id in facts.live)
    topics = sorted({each.topic for each in displaced})
    yield HealthFinding(
        "leaders-skewed",
        FindingSeverity.WARNING,
        f"{len(displaced)} of {len(led)} partitions are not led by their preferred broker ({shown})",
        "Some brokers do the work of others, since clients read and write at leaders.",
        " && ".join(case.ottla(f"topics elect {topic}") for topic in topics[:MANY]),
    )


@_rule
def replicas_on_one_rack(case: Case) -> Iterator[HealthFinding]:
    racks = {each.id: each.rack for each in case.facts.brokers}
    known = {rack for rack in racks.values() if rack}
    if len(known) < 2:
        return
    for topic in case.facts.topics:
        together = [
            each
            for each in topic.partitions
            if len(each.replicas) > 1
            and len({racks.get(id) for id in each.replicas}) == 1
            and racks.get(each.replicas[0])
        ]
        if together:
            first = together[0]
            other = next(
                id for id, rack in racks.items() if rack not in (None, racks[first.replicas[0]])
            )
            target = ",".join(map(str, (*first.replicas[:-1], other)))
            yield HealthFinding(
                "replicas-on-one-rack",
                FindingSeverity.WARNING,
                f"{_names(together)} {_have(together)} all replicas on rack {racks[first.replicas[0]]}",
                "When that rack fails, these partitions fail as a whole.",
                case.ottla(
                    f"topics reassign {topic.name} --partition {first.partition} --replicas {target}"
                ),
            )


@_rule
def racks_incomplete(case: Case) -> Iterator[HealthFinding]:
    without = [each.id for each in case.facts.brokers if not each.rack]
    if without and len(without) < len(case.facts.brokers):
        yield HealthFinding(
            "racks-incomplete",
            FindingSeverity.NOTE,
            f"broker {_ids(without)} has no broker.rack, and others have one",
            "Placement spreads replicas over racks only if all brokers name theirs.",
            f"set broker.rack=NAME in server.properties of broker {_ids(without)}, then restart it",
        )


# Settings of topics


@_rule
def topic_settings(case: Case) -> Iterator[HealthFinding]:
    """Traps in the settings of topics: the same that topics create warns of."""
    found: dict[Trap, list[TopicFacts]] = {}
    brokers = len(case.facts.brokers)
    transactional = case.facts.topic(TRANSACTION_STATE_TOPIC) is not None
    for topic in case.facts.topics:
        # The event log is set so on purpose: it must be written while brokers are down.
        if topic.partitions and topic.configs and topic.name not in (EVENT_LOG_TOPIC, AUDIT_TOPIC):
            traps = topic_traps(
                topic.factor,
                topic.configs,
                brokers,
                transactional=transactional,
                own=frozenset(topic.own),
            )
            for trap in traps:
                found.setdefault(trap, []).append(topic)
    for trap, topics in found.items():
        first = topics[0]
        mend = trap.mend.replace("TOPIC", first.name)
        if "REPLICAS" in mend:
            partition = first.partitions[0]
            more = [id for id in case.facts.live if id not in partition.replicas]
            replicas = (*partition.replicas, *more)[: min(3, brokers)]
            mend = mend.replace("REPLICAS", ",".join(map(str, replicas)))
        yield HealthFinding(
            trap.name,
            FindingSeverity(trap.severity),
            f"{_topics(topics)}: {trap.what}",
            trap.why,
            case.ottla(mend),
        )


def _topics(topics: list[TopicFacts]) -> str:
    names = ", ".join(each.name for each in topics[:MANY])
    more = f" and {len(topics) - MANY} more" if len(topics) > MANY else ""
    return f"topic {names}{more}" if len(topics) == 1 else f"topics {names}{more}"


# Settings of brokers


@_rule
def settings_differ(case: Case) -> Iterator[HealthFinding]:
    configs = case.facts.broker_configs
    values: dict[str, dict[int, str | None]] = {}
    for broker, settings in configs.items():
        for each in settings:
            if not each.sensitive and not _may_differ(each.name):
                values.setdefault(each.name, {})[broker] = each.value
    for name, by_broker in sorted(values.items()):
        if len(by_broker) == len(configs) and len(set(by_broker.values())) > 1:
            most, _ = Counter(by_broker.values()).most_common(1)[0]
            shown = ", ".join(f"broker {id}: {value}" for id, value in sorted(by_broker.items()))
            odd = [id for id, value in sorted(by_broker.items()) if value != most]
            yield HealthFinding(
                "settings-differ",
                FindingSeverity.WARNING,
                f"{name} differs between brokers ({shown})",
                "The cluster behaves differently after each change of leader or controller.",
                f"set {name}={most} in server.properties of broker {_ids(odd)}, then restart it",
            )


def _may_differ(name: str) -> bool:
    return name in OF_ONE_NODE or name.endswith(FILES_OF_ONE_NODE)


# Disks


@_rule
def log_dir_failed(case: Case) -> Iterator[HealthFinding]:
    for each in case.facts.log_dirs:
        if each.error is not None:
            yield HealthFinding(
                "log-dir-failed",
                FindingSeverity.SERIOUS,
                f"log directory {each.path} of broker {each.broker} is offline ({each.error})",
                "Its replicas are gone until the disk is mended and the broker is started again.",
                f"df -h {quote(each.path)}; dmesg | tail  # on the machine of broker {each.broker}",
            )


@_rule
def disk_full(case: Case) -> Iterator[HealthFinding]:
    seen: set[str] = set()
    for each in case.facts.log_dirs:
        if each.total_bytes and each.usable_bytes is not None:
            share = each.usable_bytes / each.total_bytes
            if each.refuses_records:
                seen.add(each.path)
                yield _refusal_finding(case, each.broker, each.path, each.usable_bytes)
            elif share < DISK_WARNING:
                seen.add(each.path)
                yield _disk_finding(case, each.broker, each.path, each.usable_bytes, share)
    machine = case.facts.machine
    for node in () if machine is None else machine.nodes:
        for disk in node.disks:
            share = disk.free_bytes / disk.total_bytes if disk.total_bytes else 1.0
            if share < DISK_WARNING and disk.path not in seen:
                yield _disk_finding(case, node.node, disk.path, disk.free_bytes, share)


def _refusal_finding(case: Case, broker: int, path: str, free: int) -> HealthFinding:
    return HealthFinding(
        "disk-full",
        FindingSeverity.SERIOUS,
        f"the disk of {path} (broker {broker}) is nearly full, {_size(free)} are left: it takes no records",
        "Producers wait, or write to replicas on other disks. It goes on by itself when there is room"
        " (ottla.disk.watermark.percent).",
        _more_room(case, broker, path),
    )


def _more_room(case: Case, broker: int, path: str) -> str:
    largest = _largest_topic(case.facts, broker)
    if largest is not None:
        return _keep_less(case, *largest)
    return f"du -sh {quote(path)}/*  # on the machine of broker {broker}"


def _disk_finding(case: Case, broker: int, path: str, free: int, share: float) -> HealthFinding:
    return HealthFinding(
        "disk-full",
        FindingSeverity.SERIOUS if share < DISK_SERIOUS else FindingSeverity.WARNING,
        f"the disk of {path} (broker {broker}) has {_size(free)} left, {share:.0%}",
        "A broker whose disk is full can write nothing, and takes its log directory offline.",
        _more_room(case, broker, path),
    )


def _keep_less(case: Case, topic: str, size: int) -> str:
    return (
        case.ottla(f"topics alter {topic} -c retention.bytes={max(size // 2, 1)}")
        + f"  # DELETES the older half of {topic}, its largest topic; a larger disk deletes nothing"
    )


def _largest_topic(facts: Facts, broker: int) -> tuple[str, int] | None:
    """And the size of its largest partition there."""
    sizes: dict[str, list[int]] = {}
    for dir, replica in facts.replica_sizes():
        topic = facts.topic(replica.topic)
        if dir.broker == broker and topic is not None and not topic.internal:
            sizes.setdefault(replica.topic, []).append(replica.size_bytes)
    if not sizes:
        return None
    largest = max(sizes, key=lambda topic: sum(sizes[topic]))
    return largest, max(sizes[largest])


@_rule
def inodes_few(case: Case) -> Iterator[HealthFinding]:
    machine = case.facts.machine
    for node in () if machine is None else machine.nodes:
        for disk in node.disks:
            if disk.inodes_total and disk.inodes_free / disk.inodes_total < DISK_SERIOUS:
                yield HealthFinding(
                    "inodes-few",
                    FindingSeverity.SERIOUS,
                    f"the file system of {disk.path} (node {node.node}) has {disk.inodes_free} of"
                    f" {disk.inodes_total} inodes left",
                    "No segment can be rolled without one, although the disk has space.",
                    f"df -i {quote(disk.path)}",
                )


@_rule
def disk_will_be_full(case: Case) -> Iterator[HealthFinding]:
    for each in case.facts.log_dirs:
        if each.usable_bytes is None:
            continue
        growths = [
            growth
            for replica in each.replicas
            if (
                growth := _growth(
                    case.facts, (replica.topic, replica.partition), replica.size_bytes
                )
            )
        ]
        seconds = full_after_s(growths, each.usable_bytes)
        if seconds is not None and seconds < FORECAST_WARNING_S:
            rate = sum(growth.bytes_per_s for growth in growths)
            largest = _largest_topic(case.facts, each.broker)
            yield HealthFinding(
                "disk-will-be-full",
                FindingSeverity.SERIOUS
                if seconds < FORECAST_SERIOUS_S
                else FindingSeverity.WARNING,
                f"the disk of {each.path} (broker {each.broker}) will be full in {_duration(seconds)}, at the"
                f" rate of the last hour ({_size(round(rate))}/s, {_size(each.usable_bytes)} left)",
                "A broker whose disk is full can write nothing, and takes its log directory offline.",
                _keep_less(case, *largest)
                if largest is not None
                else f"df -h {quote(each.path)}  # on the machine of broker {each.broker}",
            )


@dataclass(frozen=True)
class Growth:
    """How a replica grows: bytes each second, until it has grown by `room` and retention removes as much as comes."""

    bytes_per_s: float
    room: float


def _growth(facts: Facts, place: Place, size: int) -> Growth | None:
    """From the share of its records that came within the last hour. None if it does not grow, or nothing is known."""
    topic, partition = facts.topic(place[0]), facts.partition(place)
    if topic is None or partition is None or not partition.recent:
        return None
    if partition.log_start is None or partition.log_end is None:
        return None
    if "delete" not in (topic.configs.get("cleanup.policy") or "delete"):
        return None  # compaction keeps the newest record of each key, however many come
    records = partition.log_end - partition.log_start
    rate = size * min(1.0, partition.recent / max(records, 1)) / (RECENT_MS / 1000)
    limits = [float("inf")]
    if (kept_ms := topic.number("retention.ms")) is not None and kept_ms >= 0:
        limits.append(rate * kept_ms / 1000)
    if (kept_bytes := topic.number("retention.bytes")) is not None and kept_bytes >= 0:
        limits.append(kept_bytes)
    room = max(0.0, min(limits) - size)
    return Growth(rate, room) if rate > 0 and room > 0 else None


def full_after_s(growths: Iterable[Growth], usable: float) -> float | None:
    """After how many seconds they have grown by `usable` bytes together; None if they never do."""
    now, left = 0.0, float(usable)
    growing = sorted(growths, key=lambda growth: growth.room / growth.bytes_per_s)
    while growing:
        rate = sum(growth.bytes_per_s for growth in growing)
        ends = growing[0].room / growing[0].bytes_per_s
        if left <= rate * (ends - now):
            return now + left / rate
        left -= rate * (ends - now)
        now = ends
        growing.pop(0)
    return None


# This machine


@_rule
def open_files_few(case: Case) -> Iterator[HealthFinding]:
    machine = case.facts.machine
    for node in () if machine is None else machine.nodes:
        most, used = node.open_files_max, node.open_files
        if most is None or used is None:
            continue
        is_near = used > OPEN_FILES_SHARE * most
        if is_near or most < OPEN_FILES_FEW:
            yield HealthFinding(
                "open-files-few",
                FindingSeverity.SERIOUS if is_near else FindingSeverity.WARNING,
                f"node {node.node} may open {most} files, and has {used} open",
                "Each connection and each segment takes one. Without any left, the node refuses clients and"
                " cannot roll a log.",
                f"ulimit -n 100000 && {case.ottla(f'nodes stop {node.node}')} &&"
                f" {case.ottla(f'nodes start {node.node}')}",
            )


@_rule
def kernel_settings(case: Case) -> Iterator[HealthFinding]:
    machine = case.facts.machine
    if machine is None or not machine.nodes:
        return
    kernel = {name: int(value) for name, value in machine.kernel.items() if value.isdigit()}
    swaps = bool(machine.swap_used_bytes)
    for name, hurts, right, why in (
        (
            "vm.swappiness",
            swaps and kernel.get("vm.swappiness", 0) > SWAPPINESS_MAX,
            1,
            "This machine swaps. A node that is swapped out misses heartbeats, and is fenced.",
        ),
        (
            "vm.max_map_count",
            kernel.get("vm.max_map_count", MAP_COUNT_MIN) < MAP_COUNT_MIN,
            262_144,
            "Apache Kafka maps two files of each segment, and fails when it may map no more.",
        ),
        (
            "vm.dirty_ratio",
            kernel.get("vm.dirty_ratio", 0) > DIRTY_RATIO_MAX,
            60,
            "So much unwritten data may gather that a flush stops every write for seconds.",
        ),
        (
            "vm.overcommit_memory",
            kernel.get("vm.overcommit_memory") == 2,
            0,
            "The kernel refuses memory that it could give, and a node may fail to start.",
        ),
    ):
        if hurts:
            yield HealthFinding(
                "kernel-settings",
                FindingSeverity.WARNING,
                f"{name} is {kernel[name]} on this machine",
                why,
                f"sudo sysctl -w {name}={right}",
            )


# Groups and transactions


@_rule
def group_held_up(case: Case) -> Iterator[HealthFinding]:
    for group in case.facts.groups:
        told = group.description.hold_up or {}
        since = told.get("since_ms", -1)
        waited = case.facts.at_ms - since if isinstance(since, int) and since > 0 else 0
        if waited > HELD_UP_MS:
            late = len(told.get("late", ()))
            yield HealthFinding(
                "group-held-up",
                FindingSeverity.SERIOUS,
                f"group {group.id} has been rebalancing for {_duration(waited / 1000)}"
                + (f", waiting for {_plural(late, 'member')}" if late else ""),
                "Its members read nothing, or less than they should, until the rebalance ends.",
                case.ottla("explain --group", group.id),
            )


@_rule
def group_stuck(case: Case) -> Iterator[HealthFinding]:
    """Members are there, and still the next record has waited for long."""
    for group in case.facts.groups:
        if not group.description.members:
            continue
        old = _oldest_unread_ms(group, case.facts.at_ms)
        if old is not None and old > STALE_MS:
            records = sum(lag.lag for lag in group.lags)
            yield HealthFinding(
                "group-stuck",
                FindingSeverity.WARNING,
                f"group {group.id} has members and is {_plural(records, 'record')} behind; the oldest has"
                f" waited for {_duration(old / 1000)}",
                "The group does not keep up, or a member holds partitions without reading them.",
                case.ottla("explain --group", group.id),
            )


def _oldest_unread_ms(group: GroupFacts, now_ms: int) -> int | None:
    times = [lag.next_timestamp_ms for lag in group.lags if lag.lag and lag.next_timestamp_ms]
    return now_ms - min(times) if times else None


@_rule
def group_lost_records(case: Case) -> Iterator[HealthFinding]:
    for group in case.facts.groups:
        passed = [
            lag for lag in group.lags if lag.committed is not None and lag.committed < lag.log_start
        ]
        if passed:
            count = sum(lag.log_start - (lag.committed or 0) for lag in passed)
            topic = passed[0].topic
            yield HealthFinding(
                "group-lost-records",
                FindingSeverity.WARNING,
                f"retention removed {_plural(count, 'record')} that group {group.id} had not read, of"
                f" {_names_of((lag.topic, lag.partition) for lag in passed)}",
                "The group is slower than retention, or was away for longer than retention keeps records.",
                case.ottla(f"topics alter {topic} -c retention.ms={14 * DAY_S * 1000}")
                + "  # or let the group read faster",
            )


@_rule
def transaction_pins(case: Case) -> Iterator[HealthFinding]:
    """Transactions that keep consumers of committed records waiting."""
    facts = case.facts
    for place, opened in sorted(facts.open_in.items()):
        oldest = opened[0]
        age_ms = facts.at_ms - oldest.last_timestamp_ms
        owner = next(
            (
                each
                for each in facts.transactions
                if each.producer_id == oldest.producer_id and place in each.partitions
            ),
            None,
        )
        held = _held_back(facts, place)
        name = f"{place[0]}-{place[1]}"
        if owner is not None and age_ms > max(owner.timeout_ms, HELD_UP_MS):
            yield HealthFinding(
                "transaction-pins",
                FindingSeverity.WARNING,
                f"transaction {owner.id} has been open in {name} for {_duration(age_ms / 1000)}{held}",
                "Consumers that read committed records wait until it ends.",
                case.ottla("transactions abort", owner.id),
            )
        elif owner is None and age_ms > HANGING_MS and not _transactions_unknown(facts):
            yield HealthFinding(
                "transaction-pins",
                FindingSeverity.SERIOUS,
                f"a transaction of producer {oldest.producer_id} hangs in {name} since"
                f" {_duration(age_ms / 1000)}, and no coordinator knows it{held}",
                "Nobody will end it. Consumers that read committed records wait for ever.",
                case.ottla(
                    f"transactions abort --topic {place[0]} --partition {place[1]}"
                    f" --start-offset {oldest.start_offset}"
                ),
            )


def _transactions_unknown(facts: Facts) -> bool:
    return any(what.startswith("transaction") for what in facts.unknown)


def _held_back(facts: Facts, place: Place) -> str:
    partition = facts.partition(place)
    if partition is None or partition.stable_end is None or partition.log_end is None:
        return ""
    return f" and holds back {_plural(partition.log_end - partition.stable_end, 'record')}"


# Words


def _bootstrap(facts: Facts) -> str:
    return next((quote(f"{each.host}:{each.port}") for each in facts.brokers), "HOST:PORT")


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _ids(ids: Iterable[int]) -> str:
    return ", ".join(map(str, ids))


def _names(partitions: list[PartitionFacts]) -> str:
    return _names_of(each.place for each in partitions)


def _names_of(places: Iterable[Place]) -> str:
    names = [f"{topic}-{number}" for topic, number in places]
    more = f" and {len(names) - MANY} more" if len(names) > MANY else ""
    return ", ".join(names[:MANY]) + more


def _have(partitions: list[PartitionFacts]) -> str:
    return "has" if len(partitions) == 1 else "have"


def _size(number: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def _duration(seconds: float) -> str:
    for length, unit in ((DAY_S, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}s"
    return f"{seconds:.0f} s"
