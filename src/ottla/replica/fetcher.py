"""The follower's side of replication: the fetch session with one leader broker, for all the partitions
that it leads and we follow.

This module is pure: `next_request` builds the next fetch, `answered` applies a response. The asyncio part is
`broker.replication.fetchers`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from ottla.log.errors import LogDirError
from ottla.records.batch import BASE_OFFSET, read_batch
from ottla.replica import follower
from ottla.replica.partition import Partition
from ottla.replica.sessions import INITIAL_EPOCH, NO_SESSION
from ottla.runtime import Chunk
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.fetch_messages import FetchedPartition, FetchPartition, FetchRequest, FetchResponse

FollowedKey = tuple[UUID, int]

SESSION_LOST = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)


@dataclass(frozen=True, slots=True)
class FetcherConfig:
    node_id: int
    wait_max_ms: int = 500
    min_bytes: int = 1
    response_max_bytes: int = 10 * 1024 * 1024
    partition_max_bytes: int = 1024 * 1024
    backoff_s: float = 0.05


@dataclass(slots=True)
class Followed:
    partition: Partition
    leader_epoch: int
    in_session: bool = False
    retry_at: float = 0.0
    is_held_back: bool = False
    """It rests so that others have room, and not after an error."""
    named_in: int | None = None
    """The number of the first request that named it in this leader epoch. An answer to an earlier request belongs to an
    earlier leader epoch, even if the same broker leads again, and must change nothing (D8)."""


@dataclass(slots=True)
class AppliedAnswer:
    """The consequences of an answer that `broker.replication.fetchers` must act upon."""

    bytes_appended: int = 0
    out_of_range: list[Partition] = field(default_factory=list)
    """Partitions whose end is outside the leader's log: ask the leader where its log starts and ends."""
    failed: list[tuple[Partition, KafkaError]] = field(default_factory=list)
    storage_failed: list[LogDirError] = field(default_factory=list)


REST_MAX_S = 1.0
"""A partition that must wait for longer asks again after this time: an operator may have raised the rate."""

Rest = Callable[[Partition, int, float, bool], float]
"""(partition, bytes received for it, now, whether committed records are missing) -> seconds to wait before it is fetched
again."""


def never_rest(partition: Partition, received: int, now: float, is_behind: bool) -> float:
    return 0.0


class FetchConversation:
    """A request names a partition if its position (offset, epochs) differs from the one the leader was last
    sent. A partition with an error leaves the session and comes back after a short backoff, so that one bad
    partition never stalls the others."""

    def __init__(self, config: FetcherConfig, rest: Rest = never_rest) -> None:
        self.config = config
        self._rest_after = rest
        self.followed: dict[FollowedKey, Followed] = {}
        self._changed: dict[FollowedKey, None] = {}
        self._resting: dict[FollowedKey, None] = {}
        self._forgotten: dict[FollowedKey, None] = {}
        self._session_id = NO_SESSION
        self._session_epoch = INITIAL_EPOCH
        self._requests = 0
        self._answers = 0
        """The number of answers received. Answers come in the order of the requests."""
        self._full: dict[int, tuple[FollowedKey, ...]] = {}
        """What the full requests named that were not answered yet, by their numbers."""

    def follow(self, partition: Partition) -> None:
        key = (partition.topic_id, partition.partition)
        known = self.followed.get(key)
        in_session = known.in_session if known is not None else key in self._forgotten
        self._forgotten.pop(key, None)
        self.followed[key] = Followed(partition, partition.leader_epoch, in_session)
        self._resting.pop(key, None)
        self._changed[key] = None

    def hurry(self, partition: Partition) -> bool:
        """Whether it was held back, and is not any more: the leader counts it as in sync, so producers wait for it."""
        key = (partition.topic_id, partition.partition)
        if key not in self._resting or not self.followed[key].is_held_back:
            return False
        self.followed[key].retry_at = 0.0
        return True

    def log_start_moved(self, partition: Partition) -> None:
        """Our own retention moved the log start. The leader lets a follower join the ISR only if it has deleted
        what the leader has deleted (D10), and learns that only from our fetches."""
        key = (partition.topic_id, partition.partition)
        if key in self.followed and key not in self._resting:
            self._changed[key] = None

    def forget(self, topic_id: UUID, partition: int) -> None:
        key = (topic_id, partition)
        followed = self.followed.pop(key, None)
        self._changed.pop(key, None)
        self._resting.pop(key, None)
        if followed is not None and followed.in_session:
            self._forgotten[key] = None

    def connected(self) -> None:
        """A new connection: requests on the previous one will never be answered."""
        self._answers = self._requests
        self._full.clear()
        self.reset_session()

    def reset_session(self) -> None:
        """The leader dropped the session: start with a full request."""
        self._session_id = NO_SESSION
        self._session_epoch = INITIAL_EPOCH
        self._forgotten.clear()
        self._changed = {key: None for key in self.followed if key not in self._resting}
        for followed in self.followed.values():
            followed.in_session = False

    @property
    def has_news(self) -> bool:
        """Whether a position has changed since it was last sent to the leader."""
        return bool(self._changed)

    @property
    def is_idle(self) -> bool:
        """Nothing to fetch: there is no partition, or every one is in backoff."""
        return len(self._resting) == len(self.followed)

    def next_retry_at(self) -> float | None:
        if not self._resting:
            return None
        return min(self.followed[key].retry_at for key in self._resting)

    def wake(self, now: float) -> None:
        if not self._resting:
            return
        for key in [key for key in self._resting if self.followed[key].retry_at <= now]:
            followed = self.followed[key]
            pause_s = self._rest_after(followed.partition, 0, now, True)
            if pause_s > 0.0:
                followed.retry_at = now + min(pause_s, REST_MAX_S)
                continue
            del self._resting[key]
            self._forgotten.pop(key, None)
            self._changed[key] = None

    def next_request(self, broker_epoch: int, now: float) -> FetchRequest:
        """Incremental once the leader has created a session. The leader parks the request until there is new data."""
        self.wake(now)
        self._requests += 1
        partitions = []
        for key in self._changed:
            followed = self.followed[key]
            followed.in_session = True
            if followed.named_in is None:
                followed.named_in = self._requests
            partitions.append(self._position(followed.partition, followed.leader_epoch))
        if self._session_epoch == INITIAL_EPOCH:
            self._full[self._requests] = tuple(self._changed)
        forgotten: list[tuple[UUID | str, int]] = list(self._forgotten)
        self._changed.clear()
        self._forgotten.clear()
        request = FetchRequest(
            replica_id=self.config.node_id,
            replica_epoch=broker_epoch,
            max_wait_ms=self.config.wait_max_ms,
            min_bytes=self.config.min_bytes,
            max_bytes=self.config.response_max_bytes,
            isolation_level=0,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            cluster_id=None,
            rack_id="",
            partitions=partitions,
            forgotten=forgotten,
        )
        if self._session_epoch != INITIAL_EPOCH:
            self._session_epoch = 1 if self._session_epoch == 2**31 - 1 else self._session_epoch + 1
        return request

    def _position(self, partition: Partition, leader_epoch: int) -> FetchPartition:
        offset, last_epoch = follower.next_fetch_position(partition)
        return FetchPartition(
            topic=partition.topic,
            topic_id=partition.topic_id,
            partition=partition.partition,
            current_leader_epoch=leader_epoch,
            fetch_offset=offset,
            last_fetched_epoch=last_epoch,
            log_start_offset=partition.log.log_start,
            max_bytes=self.config.partition_max_bytes,
        )

    def answered(self, response: FetchResponse, now: float) -> AppliedAnswer:
        outcome = AppliedAnswer()
        self._answers += 1
        if response.error in SESSION_LOST:
            self.reset_session()
            return outcome
        if response.error != ErrorCode.NONE:
            raise KafkaError(ErrorCode(response.error))
        if self._session_epoch == INITIAL_EPOCH:
            self._session_id = response.session_id
            self._session_epoch = INITIAL_EPOCH if response.session_id == NO_SESSION else 1
            if response.session_id == NO_SESSION:
                self._changed.update(dict.fromkeys(self.followed))
            self._name_again()
        for answer in response.partitions:
            assert answer.topic_id is not None
            followed = self.followed.get((answer.topic_id, answer.partition))
            if (
                followed is not None
                and followed.named_in is not None
                and followed.named_in <= self._answers
            ):
                self._apply(followed, answer, outcome, now)
        return outcome

    def _name_again(self) -> None:
        """Full requests that are under way, behind the one whose session is used from now on, begin sessions of their own. What
        they name is not in this one, and Apache Kafka's leader keeps both: it would wait there for ever."""
        for number, keys in self._full.items():
            if number > self._answers:
                for key in keys:
                    if key in self.followed and key not in self._resting:
                        self._changed[key] = None
        self._full.clear()

    def _apply(
        self, followed: Followed, answer: FetchedPartition, outcome: AppliedAnswer, now: float
    ) -> None:
        partition = followed.partition
        key = (partition.topic_id, partition.partition)
        if answer.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            outcome.out_of_range.append(partition)
            self._rest(key, followed, now)
            return
        if answer.error != ErrorCode.NONE:
            outcome.failed.append((partition, KafkaError(ErrorCode(answer.error))))
            self._rest(key, followed, now)
            return
        log = partition.log
        end, epoch, start = log.log_end, log.epochs.latest, log.log_start
        try:
            if self._is_repeated(answer.records, end):
                # What else it says is news, and the leader takes it for known: the high watermark, the log start.
                answer = answer._replace(records=None)
                self._changed[key] = None
            received = follower.apply_fetch_answer(partition, answer, followed.leader_epoch)
        except KafkaError as error:
            outcome.failed.append((partition, error))
            self._rest(key, followed, now)
            return
        except LogDirError as error:
            outcome.storage_failed.append(error)
            self._rest(key, followed, now)
            return
        outcome.bytes_appended += received
        if log.log_end != end or log.epochs.latest != epoch or log.log_start != start:
            self._changed[key] = None
        if not received:
            return
        pause_s = self._rest_after(partition, received, now, log.log_end < answer.high_watermark)
        if pause_s > 0.0:
            self._rest(key, followed, now, min(pause_s, REST_MAX_S))

    @staticmethod
    def _is_repeated(records: Chunk | list[Chunk] | None, log_end: int) -> bool:
        """Two requests can be in flight; the second answer may repeat records of the first."""
        if not records:
            return False
        assert isinstance(records, memoryview)
        if len(records) >= BASE_OFFSET.size and BASE_OFFSET.unpack_from(records)[0] >= log_end:
            return False
        return read_batch(records, 0).last_offset < log_end

    def _rest(
        self, key: FollowedKey, followed: Followed, now: float, pause_s: float | None = None
    ) -> None:
        followed.retry_at = now + (self.config.backoff_s if pause_s is None else pause_s)
        followed.is_held_back = pause_s is not None
        self._changed.pop(key, None)
        self._resting[key] = None
        if followed.in_session:
            followed.in_session = False
            self._forgotten[key] = None
