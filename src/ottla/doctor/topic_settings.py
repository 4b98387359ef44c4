"""Traps in the settings of topics."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.config.traps import Trap, topic_traps
from ottla.diagnosis.facts import TopicFacts
from ottla.doctor.finding import MANY, Case, FindingSeverity, HealthFinding, Rule
from ottla.wire.internal_topics import AUDIT_TOPIC, EVENT_LOG_TOPIC, TRANSACTION_STATE_TOPIC


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


RULES: tuple[Rule, ...] = (topic_settings,)
