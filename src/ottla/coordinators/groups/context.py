"""What all parts of a group coordinator share: its settings, its view of topics, the effects of a command."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol, TypeAlias
from uuid import UUID

from ottla.coordinators.shard import CoordinatorRecord, Effects, ProducerStamp, Token
from ottla.coordinators.timers import Timers
from ottla.events import Events
from ottla.patterns.pace import Select, select_freely

NO_MEMBER = ""
NO_GENERATION = -1


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Kafka's settings of groups, with its defaults."""

    initial_rebalance_delay_ms: int = 3_000
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 60 * 60_000
    offsets_retention_check_interval_ms: int = 600_000
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_assignment_interval_ms: int = 1_000
    consumer_max_size: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    can_upgrade: bool = True
    """From the classic to the consumer protocol, while the group is in use."""
    can_downgrade: bool = True


class Topics(Protocol):
    """The cluster's present topics, and the settings of single groups."""

    @property
    def version(self) -> int:
        """Rises with each change."""

    def names(self) -> Iterable[str]: ...
    def id_of(self, name: str) -> UUID | None: ...
    def name_of(self, id: UUID) -> str | None: ...
    def partitions(self, name: str) -> int:
        """How many; 0 if there is no such topic."""

    def group_setting(self, group_id: str, name: str) -> int | None:
        """A setting of this group, if there is one."""


Sees: TypeAlias = Callable[[str], bool]
"""Whether somebody may know of a topic."""


def sees_all(topic: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class GroupRequest:
    """A request as a group's shard gets it: the message (or, if a request names several groups, the part about
    one) and its sender."""

    message: Any
    client_id: str
    client_host: str
    sees: Sees = sees_all
    """Which topics the sender may know of. It is `sees_all` itself where nobody's rights are asked about."""
    select: Select = select_freely
    """Matches a new pattern, for which the sender may have to pay."""


@dataclass(slots=True)
class EffectsBuilder:
    """The effects of a command so far."""

    now: float
    now_ms: int
    records: list[CoordinatorRecord] = field(default_factory=list)
    replies: list[tuple[Token, Mapping[str, Any]]] = field(default_factory=list)
    producer: ProducerStamp | None = None
    only_records: bool = False

    def reply(self, token: Token, fields: Mapping[str, Any]) -> None:
        self.replies.append((token, fields))

    def effects(self) -> Effects:
        return Effects(
            records=self.records,
            producer=self.producer,
            only_records=self.only_records,
            replies=self.replies,
        )


@dataclass(slots=True)
class GroupContext:
    """What the parts of one shard share."""

    config: GroupConfig
    topics: Topics
    new_id: Callable[[], str]
    """A member id's random part."""
    events: Events
    timers: Timers = field(default_factory=Timers)
    out: EffectsBuilder = field(default_factory=lambda: EffectsBuilder(0.0, 0))
    """Of the current command or timer."""

    @property
    def now(self) -> float:
        return self.out.now

    def after(self, key: tuple[str, ...], delay_ms: int, action: Callable[[], None]) -> None:
        self.timers.set(key, self.out.now + delay_ms / 1000, action)


def milliseconds(duration: timedelta) -> int:
    """A duration of a message, in milliseconds."""
    return round(duration.total_seconds() * 1000)
