"""Fetch sessions (KIP-227), the leader's side. The leader keeps what a fetcher asked for, so that a request
names only what changed and an answer holds only what is new.

The cost of a fetch depends on what changed, not on the number of partitions in the session. A session keeps a
list of the partitions that may have new data (`hot`), and a fetch checks only these. A partition becomes hot when the
request names it and when it changes; it leaves the list when there was nothing to read at the fetcher's position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias
from uuid import UUID

from ottla.events import Events
from ottla.events.replication import FetchSessionEvicted
from ottla.replica.isr import UNKNOWN_BROKER_EPOCH
from ottla.replica.partition import Partition
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.fetch_messages import FetchedPartition, FetchPartition, FetchRequest

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
NO_SESSION = 0

EVICTABLE_AFTER_S = 120.0
"""A session used more recently is not evicted. Fetchers that evict each other's sessions in turn would all start
again for ever and make no progress (Kafka's min.incremental.fetch.session.eviction.ms)."""

SessionKey: TypeAlias = tuple[UUID | str, int]


def session_key(fetch: FetchPartition) -> SessionKey:
    """The topic id if the request has one (v13 and later), else the name."""
    topic = fetch.topic_id if fetch.topic_id is not None else fetch.topic
    assert topic is not None
    return topic, fetch.partition


class SessionPartition:
    """A partition of a session: its current fetch request, and what was last sent for it."""

    __slots__ = ("fetch", "is_refused", "replica", "sent_high_watermark", "sent_log_start")

    def __init__(self, fetch: FetchPartition) -> None:
        self.fetch = fetch
        self.is_refused = False
        """The fetcher may not read it, and was told so."""
        self.replica: Partition | None = None
        """The replica found for it; to be looked up again once that is offline."""
        self.sent_high_watermark = -1
        self.sent_log_start = -1

    def is_news(self, answer: FetchedPartition) -> bool:
        return (
            answer.records is not None
            or answer.error != ErrorCode.NONE
            or answer.diverging is not None
            or answer.preferred_read_replica != -1
            or answer.high_watermark != self.sent_high_watermark
            or answer.log_start_offset != self.sent_log_start
        )

    def sent(self, answer: FetchedPartition) -> None:
        # A follower that diverges truncates its log and ignores the rest of the answer.
        self.sent_high_watermark = -1 if answer.diverging is not None else answer.high_watermark
        self.sent_log_start = -1 if answer.diverging is not None else answer.log_start_offset

    def update(self, fetch: FetchPartition) -> None:
        """The fetcher's position has changed. In a new leader epoch it may have dropped what it was sent before."""
        if fetch.current_leader_epoch != self.fetch.current_leader_epoch:
            self.sent_high_watermark = self.sent_log_start = -1
        self.fetch = fetch


class FetchSession:
    """All partitions of one fetcher. A fetch without a session is a session for one request."""

    __slots__ = (
        "epoch",
        "hot",
        "id",
        "is_follower",
        "last_used",
        "owner",
        "partitions",
        "replica_epoch",
    )

    def __init__(self, id: int, is_follower: bool, now: float, owner: object = None) -> None:
        self.id = id
        self.owner = owner
        """Who may go on with it."""
        self.epoch = 1
        self.is_follower = is_follower
        self.last_used = now
        self.partitions: dict[SessionKey, SessionPartition] = {}
        self.hot: dict[SessionPartition, None] = {}
        self.replica_epoch = UNKNOWN_BROKER_EPOCH

    def is_said(self, by_id: bool) -> bool:
        """Whether its topics were named by their ids, or by their names."""
        if not self.partitions:
            return True
        topic, _ = next(iter(self.partitions))
        return isinstance(topic, UUID) == by_id

    def update(
        self, request: FetchRequest
    ) -> tuple[list[SessionPartition], list[SessionPartition]]:
        """Apply the request's changes; returns the new and the removed partitions."""
        added: list[SessionPartition] = []
        for fetch in request.partitions:
            key = session_key(fetch)
            known = self.partitions.get(key)
            if known is None:
                known = self.partitions[key] = SessionPartition(fetch)
                added.append(known)
            else:
                known.update(fetch)
            self.hot[known] = None
        if request.replica_epoch != self.replica_epoch:
            # Apache Kafka's broker fetches before it is registered, without an epoch. The idle partitions of its session, too,
            # are fetched by the new incarnation from now on, which may join their ISRs (KIP-903).
            self.replica_epoch = request.replica_epoch
            self.hot.update(dict.fromkeys(self.partitions.values()))
        removed: list[SessionPartition] = []
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            return added, removed  # a full request names what it wants: there is nothing to forget
        for topic, partition in request.forgotten:
            gone = self.partitions.pop((topic, partition), None)
            if gone is not None:
                self.hot.pop(gone, None)
                removed.append(gone)
        return added, removed


class SessionCache:
    """All incremental sessions of a broker. When it is full, a new session evicts one that is unused for long, or,
    for a follower, a consumer's session. Otherwise the new fetcher gets no session. A fetcher whose session was
    evicted starts a new one (FETCH_SESSION_ID_NOT_FOUND)."""

    def __init__(self, slots: int, new_id: Callable[[], int], events: Events) -> None:
        self._slots = slots
        self._new_id = new_id
        self._events = events
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """The number of partitions in all sessions together."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def sessions(self) -> Iterable[FetchSession]:
        return self._sessions.values()

    def create(
        self, is_follower: bool, now: float, owner: object = None
    ) -> tuple[FetchSession, FetchSession | None]:
        """A new session, and the session evicted for it. Without a free slot the session is for one request only."""
        evicted = None
        if len(self._sessions) >= self._slots:
            evicted = self._evictable(is_follower, now)
            if evicted is None:
                return FetchSession(NO_SESSION, is_follower, now), None
            del self._sessions[evicted.id]
            if FetchSessionEvicted in self._events:
                self._events.emit(
                    FetchSessionEvicted(
                        evicted.id,
                        len(evicted.partitions),
                        evicted.is_follower,
                        now - evicted.last_used,
                    )
                )
        id = self._new_id()
        while id == NO_SESSION or id in self._sessions:
            id = self._new_id()
        session = self._sessions[id] = FetchSession(id, is_follower, now, owner)
        return session, evicted

    def _evictable(self, for_follower: bool, now: float) -> FetchSession | None:
        stalest = min(
            self._sessions.values(), key=lambda s: (s.is_follower, s.last_used), default=None
        )
        if stalest is None:
            return None
        gives_way = for_follower and not stalest.is_follower
        return stalest if gives_way or now - stalest.last_used > EVICTABLE_AFTER_S else None

    def resume(
        self, request: FetchRequest, now: float, owner: object = None, *, by_id: bool = True
    ) -> FetchSession:
        """The session of an incremental request; the request's session epoch must be the next one, and topics be named as
        before. Somebody else's session does not exist."""
        session = self._sessions.get(request.session_id)
        if session is None or session.owner != owner:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if not session.is_said(by_id):
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = 1 if session.epoch == 2**31 - 1 else session.epoch + 1
        session.last_used = now
        return session

    def leave(self, id: int, owner: object = None) -> FetchSession | None:
        """The fetcher goes on without this session. One of somebody else stays as it is."""
        session = self._sessions.get(id)
        return None if session is None or session.owner != owner else self.close(id)

    def close(self, id: int) -> FetchSession | None:
        return self._sessions.pop(id, None)
