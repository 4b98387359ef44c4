"""A cluster as Spark's driver and tasks ask it: which topics, who leads, where a partition begins and ends.

Blocking, with one connection per broker that stays open between requests. After a transient error (an election, a dead
broker) a request is repeated until `default.api.timeout.ms` is over. If no broker answers at all, it fails much sooner.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Any, Final, NamedTuple, TypeVar

from ottla.client import Unreachable
from ottla.client.connections import Address, check, error_of
from ottla.client.model import Metadata, PartitionInfo, Topic, metadata_of
from ottla.spark.connect.connection import BrokerConnection, ConnectionOptions
from ottla.spark.options import Place
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages import field

T = TypeVar("T")

_CONSUMER: Final = -1
_GROUP_KEY: Final = 0
COMMIT_PATIENCE_S: Final = 2.0
"""Time for a coordinator that has just moved, or that is created for the first group of a cluster. More would delay the
caller."""


class Found(NamedTuple):
    """An offset, and the epoch of the leader that told it; -1 where it does not tell."""

    offset: int
    epoch: int


class EpochEnd(NamedTuple):
    """Where the newest epoch up to the one asked for ends in the leader's log."""

    epoch: int
    end_offset: int


def place_of(partition: PartitionInfo) -> Place:
    return partition.topic, partition.partition


class KafkaCluster:
    def __init__(self, options: ConnectionOptions, *, connect_retries: int = 3, connect_pause_s: float = 1.0) -> None:  # fmt: skip
        self.options = options
        self._connect_retries = connect_retries
        self._connect_pause_s = connect_pause_s
        self._addresses: dict[int, Address] = {}
        self._partitions: dict[Place, PartitionInfo] = {}
        """As last described. The leader may have changed since; the old one then answers with an error."""
        self._connections: dict[Address, BrokerConnection] = {}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # -- connections

    def at(self, address: Address) -> BrokerConnection:
        """OSError if nobody answers there. Never a connection on which an answer is still unread."""
        connection = self._connections.get(address)
        if connection is not None and not connection.idle:
            connection.close()
        if connection is None or connection.closed:
            connection = self._connections[address] = BrokerConnection(address, self.options)
        return connection

    def to(self, broker: int) -> BrokerConnection:
        if broker not in self._addresses:
            raise ConnectionError(f"broker {broker} is not there")
        return self.at(self._addresses[broker])

    def to_any(self) -> BrokerConnection:
        """Unreachable if nobody answers, after as many attempts as `fetchOffset.numRetries` allows."""
        for connection in self._connections.values():
            if not connection.closed and connection.idle:
                return connection
        for attempt in range(self._connect_retries + 1):
            if attempt:
                time.sleep(self._connect_pause_s)
            tried = []
            for address in dict.fromkeys([*self.options.bootstrap, *self._addresses.values()]):
                try:
                    return self.at(address)
                except OSError as error:
                    tried.append(f"{address[0]}:{address[1]} ({error.strerror or error})")
        raise Unreachable(f"no broker answers: {', '.join(tried)}")

    def ask_any(self, key: ApiKey, fields: Mapping[str, Any]) -> Any:
        """One request to any broker; if the connection breaks, to another."""
        return self.retrying(lambda: self.to_any().request(key, fields))

    def retrying(
        self,
        attempt: Callable[[], T],
        *,
        final: ErrorCode = ErrorCode.NONE,
        patience_s: float = inf,
    ) -> T:
        """Until it works, fails for good, or the time is over. `final` is an error that would pass elsewhere,
        but not here."""
        deadline = time.monotonic() + min(patience_s, self.options.api_timeout_s)
        while True:
            try:
                return attempt()
            except KafkaError as error:
                if not error.retriable or error.code == final or time.monotonic() > deadline:
                    raise
            except OSError as error:
                if time.monotonic() > deadline:
                    raise Unreachable(f"no answer in time: {error}") from error
            time.sleep(self.options.retry_backoff_s)

    # -- topics

    def metadata(self, topics: Iterable[str] | None) -> tuple[Metadata, dict[str, KafkaError]]:
        """What exists, of those named or of all; and why others of those named were not described."""
        names = None if topics is None else list(topics)
        wanted = None if names is None else [{"name": name} for name in names]
        fields = {"topics": wanted, "allow_auto_topic_creation": False}
        answer = self.ask_any(ApiKey.METADATA, fields)
        self._addresses = {
            int(each.node_id): (each.host, int(each.port)) for each in answer.brokers
        }
        failed = {
            str(topic.name): error
            for topic in answer.topics
            if (error := error_of(topic.error_code, f"topic {topic.name}")) is not None
        }
        described = metadata_of(answer)
        there = tuple(topic for topic in described.topics if topic.name not in failed)
        self._partitions = {
            place: partition
            for place, partition in self._partitions.items()
            if names is not None and place[0] not in names
        } | {place_of(each): each for topic in there for each in topic.partitions}
        return described._replace(topics=there), failed

    def topics(self, names: Sequence[str]) -> list[Topic]:
        """The topics that exist; transient errors are retried."""

        def attempt() -> list[Topic]:
            found, failed = self.metadata(names)
            for error in failed.values():
                if error.code not in (
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    ErrorCode.INVALID_TOPIC_EXCEPTION,
                ):
                    raise error
            return list(found.topics)

        return self.retrying(attempt)

    # -- what leaders tell

    def by_leader(
        self,
        places: Iterable[Place],
        key: ApiKey,
        fields_of: Callable[[list[PartitionInfo]], Mapping[str, Any]],
        told: Callable[[Any], Mapping[Place, T | KafkaError]],
    ) -> dict[Place, T]:
        """Each place's leader is asked, all leaders at the same time and all places of one leader at once. KafkaError if one
        fails for good."""
        pending = sorted(set(places))
        found: dict[Place, T] = {}
        deadline = time.monotonic() + self.options.api_timeout_s
        if not self._partitions.keys() >= set(pending):
            self.topics(sorted({topic for topic, _ in pending}))
        while pending:
            answers = self._ask_leaders(pending, key, fields_of, told)
            for place, answer in answers.items():
                if not isinstance(answer, KafkaError):
                    found[place] = answer
                elif not answer.retriable or time.monotonic() > deadline:
                    raise answer
            pending = [place for place in pending if place not in found]
            if pending:
                time.sleep(self.options.retry_backoff_s)
                self.topics(sorted({topic for topic, _ in pending}))
        return found

    def _ask_leaders(
        self,
        places: Sequence[Place],
        key: ApiKey,
        fields_of: Callable[[list[PartitionInfo]], Mapping[str, Any]],
        told: Callable[[Any], Mapping[Place, T | KafkaError]],
    ) -> dict[Place, T | KafkaError]:
        answers: dict[Place, T | KafkaError] = {}
        by_leader: dict[int, list[PartitionInfo]] = {}
        for place in places:
            partition = self._partitions.get(place)
            what = f"{place[0]}-{place[1]}"
            if partition is None:
                answers[place] = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what)
            elif partition.leader < 0:
                answers[place] = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{what} has no leader")
            else:
                by_leader.setdefault(partition.leader, []).append(partition)

        def gone(leader: int, error: OSError) -> None:
            why = KafkaError(ErrorCode.NETWORK_EXCEPTION, f"broker {leader}: {error}")
            answers.update({place_of(partition): why for partition in by_leader[leader]})

        asked: dict[int, BrokerConnection] = {}
        for leader, partitions in sorted(by_leader.items()):
            try:
                connection = self.to(leader)
                connection.ask(key, fields_of(partitions))
                asked[leader] = connection
            except OSError as error:
                gone(leader, error)
        for leader, connection in asked.items():
            try:
                answers.update(told(connection.answer()))
            except OSError as error:
                gone(leader, error)
        return answers

    def offsets(self, times: Mapping[Place, int], *, read_committed: bool = False) -> dict[Place, Found | None]:  # fmt: skip
        """Of the first record at or after a time (ms), or EARLIEST, or LATEST; None if no record is as new."""

        def fields_of(partitions: list[PartitionInfo]) -> dict[str, Any]:
            asked: dict[str, list[dict[str, int]]] = {}
            for each in partitions:
                asked.setdefault(each.topic, []).append(
                    {
                        "partition_index": each.partition,
                        "current_leader_epoch": each.leader_epoch,
                        "timestamp": times[place_of(each)],
                    }
                )
            return {
                "replica_id": _CONSUMER,
                "isolation_level": int(read_committed),
                "topics": [{"name": name, "partitions": each} for name, each in asked.items()],
                "timeout": int(self.options.request_timeout_s * 1000),
            }

        def told(answer: Any) -> dict[Place, Found | KafkaError | None]:
            found: dict[Place, Found | KafkaError | None] = {}
            for topic in answer.topics:
                for each in topic.partitions:
                    place = (str(topic.name), int(each.partition_index))
                    failed = error_of(each.error_code, f"{place[0]}-{place[1]}")
                    at = Found(int(each.offset), int(field(each, "leader_epoch", -1)))
                    found[place] = failed or (at if at.offset >= 0 else None)
            return found

        return self.by_leader(times, ApiKey.LIST_OFFSETS, fields_of, told)

    def epoch_ends(self, epochs: Mapping[Place, int]) -> dict[Place, EpochEnd]:
        """Where, in the log of the present leader, each place's epoch ends."""

        def fields_of(partitions: list[PartitionInfo]) -> dict[str, Any]:
            asked: dict[str, list[dict[str, int]]] = {}
            for each in partitions:
                asked.setdefault(each.topic, []).append(
                    {
                        "partition": each.partition,
                        "current_leader_epoch": each.leader_epoch,
                        "leader_epoch": epochs[place_of(each)],
                    }
                )
            return {
                "replica_id": _CONSUMER,
                "topics": [{"topic": name, "partitions": each} for name, each in asked.items()],
            }

        def told(answer: Any) -> dict[Place, EpochEnd | KafkaError]:
            found: dict[Place, EpochEnd | KafkaError] = {}
            for topic in answer.topics:
                for each in topic.partitions:
                    place = (str(topic.topic), int(each.partition))
                    failed = error_of(each.error_code, f"{place[0]}-{place[1]}")
                    found[place] = failed or EpochEnd(int(each.leader_epoch), int(each.end_offset))
            return found

        return self.by_leader(epochs, ApiKey.OFFSET_FOR_LEADER_EPOCH, fields_of, told)

    # -- groups

    def commit(self, group: str, offsets: Mapping[Place, Found]) -> None:
        """Set the offsets of a group without members."""
        by_topic: dict[str, list[dict[str, Any]]] = {}
        for (topic, partition), found in sorted(offsets.items()):
            by_topic.setdefault(topic, []).append(
                {
                    "partition_index": partition,
                    "committed_offset": found.offset,
                    "committed_leader_epoch": found.epoch,
                    "committed_metadata": "",
                }
            )
        fields = {
            "group_id": group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": [{"name": name, "partitions": each} for name, each in by_topic.items()],
        }

        def attempt() -> None:
            # From version 10 on, topics go by their ids.
            answer = self._coordinator(group).request(ApiKey.OFFSET_COMMIT, fields, most=9)
            for topic in answer.topics:
                for each in topic.partitions:
                    check(each.error_code, f"group {group}, {topic.name}-{each.partition_index}")

        self.retrying(attempt, patience_s=COMMIT_PATIENCE_S)

    def _coordinator(self, group: str) -> BrokerConnection:
        fields = {"key": group, "key_type": _GROUP_KEY, "coordinator_keys": [group]}
        answer = self.to_any().request(ApiKey.FIND_COORDINATOR, fields)
        found = answer.coordinators[0] if hasattr(answer, "coordinators") else answer
        check(found.error_code, f"coordinator of group {group}")
        return self.at((str(found.host), int(found.port)))
