"""The options of Spark's Kafka connector: the same names, defaults, precedence and refusals.

`Options` holds what was given, under names of any case, and reads single values; `ReadOptions` is what a reader makes of
them, checked as a whole. Whatever cannot be followed is an OptionError that names the option and the reason.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.spark.errors import OptionError
from ottla.spark.kafka_names import FOLLOWED, OF_KAFKAS_CLIENTS
from ottla.wire.internal_topics import EVENT_LOG_TOPIC

Place = tuple[str, int]
"""Topic and partition."""

EARLIEST: Final = -2
LATEST: Final = -1

KAFKA: Final = "kafka."
_SUBSCRIPTIONS: Final = ("assign", "subscribe", "subscribePattern")
_SOURCE_OPTIONS: Final = (
    *_SUBSCRIPTIONS,
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "startingOffsetsByTimestampStrategy",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "endingOffsets",
    "failOnDataLoss",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "groupIdPrefix",
    "includeHeaders",
    "commitProgress",
    "readReplica",
    "events",
)
_ENDINGS: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")

REFUSED: Final = {
    "auto.offset.reset": "set 'startingOffsets' to say where to begin; Spark itself keeps track of what was read",
    "key.deserializer": "keys are read as bytes; cast them in the DataFrame",
    "value.deserializer": "values are read as bytes; cast them in the DataFrame",
    "enable.auto.commit": "this source commits nothing by itself while reading; see 'commitProgress' for a group that shows how far it is",
    "interceptor.classes": "a Java class cannot be called from here",
}
_UNITS_MS: Final = {
    "us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
}  # fmt: skip


class Options:
    """What was given, under names of any case."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): str(value) for name, value in given.items()}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._given

    def names(self) -> list[str]:
        """In lower case."""
        return sorted(self._given)

    def text(self, name: str, default: str | None = None) -> str | None:
        return self._given.get(name.lower(), default)

    def flag(self, name: str, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        match value.strip().lower():
            case "true":
                return True
            case "false":
                return False
        raise OptionError(name, f"'{value}' is neither true nor false")

    def integer(self, name: str, default: int | None = None, *, least: int = 1) -> int | None:
        value = self.text(name)
        if value is None:
            return default
        try:
            number = int(value.strip())
        except ValueError:
            raise OptionError(name, f"'{value}' is not a whole number") from None
        if number < least:
            raise OptionError(name, f"{number} is less than {least}")
        return number

    def number(self, name: str, default: int, *, least: int = 1) -> int:
        """An integer that is never absent."""
        found = self.integer(name, default, least=least)
        assert found is not None
        return found

    def duration_s(self, name: str, default_s: float) -> float:
        """As Spark writes durations: 100ms, 5s, 15m, 1h; a bare number is milliseconds."""
        value = self.text(name)
        if value is None:
            return default_s
        match = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", value.lower())
        if match is None or (match[2] and match[2] not in _UNITS_MS):
            raise OptionError(name, f"'{value}' is no duration such as 100ms, 5s, 15m or 1h")
        return int(match[1]) * _UNITS_MS[match[2] or "ms"] / 1000

    def refuse_near_misses(self, known: Iterable[str]) -> None:
        """Refuse a name that is nearly one of ours: it is probably mistyped, and would be ignored silently. Names that
        Kafka's clients know are accepted, and have no effect here."""
        names = {name.lower(): name for name in known}
        for name in self.names():
            if name in names:
                continue
            bare = name.removeprefix(KAFKA)
            meant = None
            if bare == name and (close := _nearest(name, names)):
                meant = names[close]
            elif bare == name or bare not in OF_KAFKAS_CLIENTS:
                close = _nearest(bare, FOLLOWED)
                meant = KAFKA + close if close else None
            if meant is not None and meant != name:
                raise OptionError(name, f"is not known; did you mean '{meant}'?")


def _nearest(name: str, names: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name, names, n=1, cutoff=0.9)), None)


@dataclass(frozen=True)
class Edge:
    """Every partition at its beginning or its end."""

    edge: int


@dataclass(frozen=True)
class AtOffsets:
    """Each partition at its own offset; -2 and -1 are its beginning and its end."""

    offsets: Mapping[Place, int]


@dataclass(frozen=True)
class AtTimes:
    """Each partition at the first record at or after a time (ms)."""

    times: Mapping[Place, int]


@dataclass(frozen=True)
class AtTime:
    """Every partition at the same time (ms)."""

    time: int


Bound = Edge | AtOffsets | AtTimes | AtTime


@dataclass(frozen=True)
class Assign:
    places: tuple[Place, ...]


@dataclass(frozen=True)
class Subscribe:
    topics: tuple[str, ...]


@dataclass(frozen=True)
class SubscribePattern:
    pattern: str

    def matches(self, topic: str) -> bool:
        """As in Spark's connector it may match any part of the name."""
        return re.search(self.pattern, topic) is not None


Subscription = Assign | Subscribe | SubscribePattern


@dataclass(frozen=True)
class ReadOptions:
    """What a reader was asked for, checked."""

    subscription: Subscription
    starting: Bound
    ending: Bound
    latest_if_no_time_matches: bool
    fail_on_data_loss: bool
    poll_timeout_s: float
    offset_retries: int
    offset_retry_interval_s: float
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_s: float
    min_partitions: int | None
    max_records_per_partition: int | None
    group_prefix: str
    group_id: str | None
    commit_progress: bool
    include_headers: bool
    read_committed: bool
    check_crcs: bool
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    rack: str
    replica: int | None
    """The broker whose copies are read, whoever leads."""
    events: bool
    """Rows are entries of the event log."""

    @classmethod
    def of(cls, options: Options, *, streaming: bool) -> ReadOptions:
        options.refuse_near_misses(_SOURCE_OPTIONS)
        for name, why in REFUSED.items():
            if KAFKA + name in options:
                raise OptionError(KAFKA + name, f"is not supported: {why}")
        if options.flag("events", False) and options.flag("includeHeaders", False):
            raise OptionError("includeHeaders", "events have no headers; leave it out, or 'events'")
        most = options.integer("maxOffsetsPerTrigger")
        least = options.integer("minOffsetsPerTrigger")
        if most is not None and least is not None and least > most:
            raise OptionError(
                "minOffsetsPerTrigger", f"{least} is more than maxOffsetsPerTrigger ({most})"
            )
        starting = _bound(options, "starting", Edge(LATEST if streaming else EARLIEST))
        ending = _bound(options, "ending", Edge(LATEST))
        if streaming:
            _refuse_endings(options)
        else:
            _check_batch_bounds(starting, ending)
        return cls(
            subscription=_subscription(options),
            starting=starting,
            ending=ending,
            latest_if_no_time_matches=_one_of(
                options, "startingOffsetsByTimestampStrategy", "error", ("error", "latest")
            )
            == "latest",
            fail_on_data_loss=options.flag("failOnDataLoss", True),
            poll_timeout_s=options.number("kafkaConsumer.pollTimeoutMs", 120_000) / 1000,
            offset_retries=options.number("fetchOffset.numRetries", 3, least=0),
            offset_retry_interval_s=options.number("fetchOffset.retryIntervalMs", 1000, least=0) / 1000,
            max_offsets_per_trigger=most,
            min_offsets_per_trigger=least,
            max_trigger_delay_s=options.duration_s("maxTriggerDelay", 15 * 60),
            min_partitions=options.integer("minPartitions"),
            max_records_per_partition=options.integer("maxRecordsPerPartition"),
            group_prefix=options.text("groupIdPrefix") or "spark-kafka-source",
            group_id=options.text("kafka.group.id"),
            # A group that has a name may be somebody else's: Spark's connector commits to none.
            commit_progress=options.flag("commitProgress", not options.text("kafka.group.id")),
            include_headers=options.flag("includeHeaders", False),
            read_committed=_one_of(
                options, "kafka.isolation.level", "read_uncommitted", ("read_uncommitted", "read_committed")
            )
            == "read_committed",
            check_crcs=options.flag("kafka.check.crcs", True),
            fetch_min_bytes=options.number("kafka.fetch.min.bytes", 1, least=0),
            fetch_max_wait_ms=options.number("kafka.fetch.max.wait.ms", 500, least=0),
            fetch_max_bytes=_fetch_max_bytes(options),
            rack=options.text("kafka.client.rack") or "",
            replica=options.integer("readReplica", least=0),
            events=options.flag("events", False),
        )  # fmt: skip


FETCH_BYTES: Final = 4 << 20
"""Of one fetch. Kafka's own default for a partition, 1 MiB, costs a fifth of the rate."""


def _fetch_max_bytes(options: Options) -> int:
    """One fetch asks for one partition, so that both of Kafka's limits hold for it."""
    return min(
        options.number("kafka.fetch.max.bytes", 50 << 20),
        options.number("kafka.max.partition.fetch.bytes", FETCH_BYTES),
    )


def _one_of(options: Options, name: str, default: str, allowed: tuple[str, ...]) -> str:
    value = (options.text(name) or default).strip().lower()
    if value not in allowed:
        raise OptionError(name, f"'{value}' is none of {', '.join(allowed)}")
    return value


def _subscription(options: Options) -> Subscription:
    given = [name for name in _SUBSCRIPTIONS if name in options]
    if not given and options.flag("events", False):
        return Subscribe((EVENT_LOG_TOPIC,))
    if not given:
        raise OptionError(
            "subscribe", "is missing: one of 'assign', 'subscribe' and 'subscribePattern' says what to read"
        )  # fmt: skip
    if len(given) > 1:
        raise OptionError(given[0], f"and '{given[1]}' exclude each other; give only one of them")
    (name,) = given
    value = (options.text(name) or "").strip()
    match name:
        case "assign":
            return Assign(_assigned(value))
        case "subscribe":
            topics = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
            if not topics:
                raise OptionError(name, f"names no topic: '{value}'")
            return Subscribe(topics)
    if not value:
        raise OptionError(name, "is empty")
    try:
        re.compile(value)
    except re.error as error:
        raise OptionError(name, f"'{value}' is no regular expression: {error}") from None
    return SubscribePattern(value)


def _assigned(value: str) -> tuple[Place, ...]:
    shape = '{"topic": [0, 1]}'
    found = _json_object("assign", value, shape)
    places = []
    for topic, partitions in found.items():
        if not isinstance(partitions, list) or not all(_is_int(each) for each in partitions):
            raise OptionError("assign", f"partitions of topic {topic} are not a list of numbers; it looks like {shape}")  # fmt: skip
        places += [(topic, partition) for partition in partitions]
    if not places:
        raise OptionError("assign", f"names no partition; it looks like {shape}")
    return tuple(sorted(dict.fromkeys(places)))


def _bound(options: Options, side: str, default: Bound) -> Bound:
    """One time for all wins over times by partition, which win over offsets."""
    one_time, by_time, by_offset = f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"
    if (time := options.integer(one_time, least=0)) is not None:
        return AtTime(time)
    if (value := options.text(by_time)) is not None:
        return AtTimes(_by_partition(by_time, value, '{"topic": {"0": 1700000000000}}', least=0))
    if (value := options.text(by_offset)) is None:
        return default
    match value.strip().lower():
        case "earliest":
            return Edge(EARLIEST)
        case "latest":
            return Edge(LATEST)
    shape = '{"topic": {"0": 23, "1": -2}}, or it is earliest or latest'
    return AtOffsets(_by_partition(by_offset, value, shape, least=EARLIEST))


def _by_partition(name: str, value: str, shape: str, *, least: int) -> Mapping[Place, int]:
    found: dict[Place, int] = {}
    for topic, partitions in _json_object(name, value, shape).items():
        if not isinstance(partitions, dict):
            raise OptionError(
                name, f"what is said of topic {topic} is no object; it looks like {shape}"
            )
        for partition, number in partitions.items():
            if not partition.isdecimal() or not _is_int(number):
                raise OptionError(name, f"'{partition}': {json.dumps(number)} of topic {topic} are no numbers; it looks like {shape}")  # fmt: skip
            if number < least:
                raise OptionError(name, f"{number} for {topic}-{partition} is less than {least}")
            found[topic, int(partition)] = number
    if not found:
        raise OptionError(name, f"names no partition; it looks like {shape}")
    return dict(sorted(found.items()))


def _json_object(name: str, value: str, shape: str) -> dict[str, Any]:
    try:
        found = json.loads(value)
    except ValueError as error:
        raise OptionError(name, f"'{value}' is no JSON ({error}); it looks like {shape}") from None
    if not isinstance(found, dict):
        raise OptionError(name, f"'{value}' is no JSON object; it looks like {shape}")
    return found


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _refuse_endings(options: Options) -> None:
    for name in _ENDINGS:
        if name in options:
            raise OptionError(name, "a stream has no end; it is for batch queries only")


def _check_batch_bounds(starting: Bound, ending: Bound) -> None:
    """A batch cannot start at the end, nor end at the beginning."""
    if starting == Edge(LATEST):
        raise OptionError(
            "startingOffsets", "a batch cannot begin at latest: there would be nothing to read"
        )
    if ending == Edge(EARLIEST):
        raise OptionError(
            "endingOffsets", "a batch cannot end at earliest: there would be nothing to read"
        )
    for name, bound, refused, word in (
        ("startingOffsets", starting, LATEST, "begin at latest (-1)"),
        ("endingOffsets", ending, EARLIEST, "end at earliest (-2)"),
    ):
        if isinstance(bound, AtOffsets):
            for (topic, partition), offset in bound.offsets.items():
                if offset == refused:
                    raise OptionError(name, f"a batch cannot {word}, but {topic}-{partition} does")
    _check_order(starting, ending)


def _check_order(starting: Bound, ending: Bound) -> None:
    """If both ends are given in the same way, the end must not lie before the start."""
    match starting, ending:
        case AtTime(first), AtTime(last):
            if first > last:
                raise OptionError("startingTimestamp", f"{first} is after endingTimestamp ({last})")
        case AtOffsets(firsts), AtOffsets(lasts):
            _check_each_order("startingOffsets", "endingOffsets", firsts, lasts)
        case AtTimes(firsts), AtTimes(lasts):
            _check_each_order(
                "startingOffsetsByTimestamp", "endingOffsetsByTimestamp", firsts, lasts
            )


def _check_each_order(
    name: str, other: str, firsts: Mapping[Place, int], lasts: Mapping[Place, int]
) -> None:
    for (topic, partition), first in firsts.items():
        last = lasts.get((topic, partition), LATEST)
        if first > last >= 0:
            raise OptionError(name, f"{first} of {topic}-{partition} is behind {other} ({last})")
