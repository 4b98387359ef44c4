"""What a change of the metadata did to the replicas of this broker, in a few log lines.

A failover may change hundreds of partitions at once. Whoever reads the log wants to know which broker is gone, why, and
how much moved. The single partitions are told only where a topic has few of them, and the topics only where few of them
changed; the rest is at DEBUG.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from ottla.metadata.image import Delta, MetadataImage
from ottla.replica.partition import Partition
from ottla.wire.types import TopicPartition

logger = logging.getLogger(__name__)

FEW = 3
"""Changed partitions of a topic that are told one by one."""
TOPICS_MAX = 8
"""Changed topics that are told one by one."""
ROLE_CHANGED = (
    "role changed partition=%s-%d role=%s leader=%d leader_epoch=%d isr=%s log_start=%d"
    " high_watermark=%d log_end=%d"
)


class RoleLog:
    """Gathers the changes of roles within `with`, and logs them at its end; without it each at once."""

    def __init__(self) -> None:
        self._is_open = False
        self._changes: dict[str, list[tuple[object, ...]]] = {}

    def __enter__(self) -> Self:
        self._is_open = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_open = False
        self._tell()

    def add(self, partition: Partition) -> None:
        self._changes.setdefault(partition.topic, []).append(
            (
                *partition.key,
                partition.role.name.lower(),
                partition.leader,
                partition.leader_epoch,
                ",".join(map(str, partition.isr)),
                partition.log.log_start,
                partition.log.high_watermark,
                partition.log.log_end,
            )
        )
        if not self._is_open:
            self._tell()

    def _tell(self) -> None:
        changes, self._changes = self._changes, {}
        are_few = len(changes) <= TOPICS_MAX
        for topic, changed in changes.items():
            level = logging.INFO if are_few and len(changed) <= FEW else logging.DEBUG
            for each in changed:
                logger.log(level, ROLE_CHANGED, *each)
            if are_few and len(changed) > FEW:
                leader, follower, offline = _roles(changed)
                logger.info(
                    "roles changed topic=%s partitions=%d leader=%d follower=%d offline=%d",
                    topic,
                    len(changed),
                    leader,
                    follower,
                    offline,
                )
        if not are_few:
            every = [each for changed in changes.values() for each in changed]
            leader, follower, offline = _roles(every)
            logger.info(
                "roles changed topics=%d partitions=%d leader=%d follower=%d offline=%d",
                len(changes),
                len(every),
                leader,
                follower,
                offline,
            )


def _roles(changed: Sequence[tuple[object, ...]]) -> tuple[int, int, int]:
    """How many lead, follow, and are offline."""
    roles = Counter(each[2] for each in changed)
    return roles["leader"], roles["follower"], roles["offline"]


def tell_of_isrs(changes: Sequence[tuple[TopicPartition, Sequence[int], str]]) -> None:
    """The ISRs that the controller accepted in one answer, with the cause of each."""
    by_topic: dict[str, list[tuple[TopicPartition, Sequence[int], str]]] = {}
    for change in changes:
        by_topic.setdefault(change[0].topic, []).append(change)
    are_few = len(by_topic) <= TOPICS_MAX
    for topic, changed in by_topic.items():
        level = logging.INFO if are_few and len(changed) <= FEW else logging.DEBUG
        for key, isr, cause in changed:
            shown = ",".join(map(str, isr))
            logger.log(level, "ISR changed partition=%s-%d isr=%s cause=%s", *key, shown, cause)
        if are_few and len(changed) > FEW:
            logger.info(
                "ISRs changed topic=%s partitions=%d cause=%s",
                topic,
                len(changed),
                _causes(changed),
            )
    if not are_few:
        logger.info(
            "ISRs changed topics=%d partitions=%d cause=%s",
            len(by_topic),
            len(changes),
            _causes(changes),
        )


def _causes(changed: Sequence[tuple[TopicPartition, Sequence[int], str]]) -> str:
    causes = Counter(cause for *_, cause in changed)
    return "; ".join(f"{cause}: {count}" for cause, count in causes.most_common(FEW))


@dataclass
class Departure:
    """What one broker left behind, of the partitions that this broker leads now."""

    leaders_taken: int = 0
    isr_shrunk: int = 0
    topics: Counter[str] = field(default_factory=Counter)


def departures(
    before: MetadataImage, image: MetadataImage, delta: Delta, node_id: int
) -> dict[int, Departure]:
    """By broker that the controller took out of an ISR, or whose leadership came here. Not those that the leader
    itself found slow: these are alive."""
    found: dict[int, Departure] = {}
    leaving = {id for id in {*before.brokers, *image.brokers} if _is_leaving(image, id)}
    if not leaving:
        return found
    for topic_id, number in delta.changed_partitions:
        topic, former = image.topics_by_id.get(topic_id), before.topics_by_id.get(topic_id)
        if topic is None or former is None or number >= len(former.partitions):
            continue
        now, was = topic.partitions[number], former.partitions[number]
        if now.leader != node_id:
            continue
        gone = [id for id in was.isr if id in leaving and id not in now.isr]
        if was.leader in leaving and was.leader != node_id and was.leader not in gone:
            gone.append(was.leader)
        for broker in gone:
            departure = found.setdefault(broker, Departure())
            departure.leaders_taken += was.leader == broker
            departure.isr_shrunk += broker in was.isr and broker not in now.isr
            departure.topics[topic.name] += 1
    return found


def _is_leaving(image: MetadataImage, broker: int) -> bool:
    known = image.brokers.get(broker)
    return known is None or known.fenced or known.in_controlled_shutdown


def tell_of_departures(
    before: MetadataImage, image: MetadataImage, delta: Delta, node_id: int
) -> None:
    """One line for each broker. A crash is a warning, a controlled shutdown is not."""
    for broker, departure in departures(before, image, delta, node_id).items():
        known = image.brokers.get(broker)
        is_planned = known is not None and known.in_controlled_shutdown
        most = departure.topics.most_common(TOPICS_MAX)
        more = ",…" if len(departure.topics) > len(most) else ""
        logger.log(
            logging.INFO if is_planned else logging.WARNING,
            "broker left, its partitions go on here broker=%d cause=%s leaders_taken=%d isr_shrunk=%d"
            " topics=%s",
            broker,
            "shutdown" if is_planned else "fenced",
            departure.leaders_taken,
            departure.isr_shrunk,
            ",".join(f"{topic}:{count}" for topic, count in most) + more,
        )
