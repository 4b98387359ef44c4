"""Fetch: what consumers read and followers copy; long polls, and sessions that name only what changed.

Every fetch works on a session, also one that lives for a single request. A session is notified of its
partitions' news and remembers them as hot; an answer looks at the hot ones only. A request with nothing to
say is parked until news comes that it waits for: a follower waits for records, a consumer for committed
ones.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from ottla.broker.cluster.metadata_cache import ClusterView
from ottla.broker.replication.cold_reads import ColdReads
from ottla.broker.replication.purgatory import Sleeper
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.replication.throttle import ReplicationThrottle
from ottla.broker.server.connections import Request, ServerConnection
from ottla.broker.server.deadlines import DeadlineQueue, Deadlines
from ottla.broker.server.large_requests import LARGE_BYTES
from ottla.broker.server.quotas import ClientQuotas
from ottla.broker.server.registration import serves
from ottla.config.node_settings import Settings
from ottla.config.values import LONG_MAX
from ottla.log.errors import InMemory, LogDirError, NotInMemory
from ottla.replica.observer import News
from ottla.replica.partition import Partition
from ottla.replica.roles import Role
from ottla.replica.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
    SessionCache,
    SessionPartition,
)
from ottla.runtime import FileRange, Runtime
from ottla.security.needs import FOLLOW_TOPIC, READ_TOPIC
from ottla.security.rights import Rights
from ottla.wire import fetch as codec
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.fetch_messages import FetchedPartition, FetchPartition, FetchRequest

CALLS_MAX = 240
"""Budget, counted by test_counted_work: what one fetch of one partition may call, however many batches it brings
and however many partitions its session has."""
IDLE_CALLS_MAX = 122
"""Budget: the same for a fetch that has nothing to answer when its time is up."""

ISOLATION_LEVELS = (0, 1)
"""Uncommitted, committed."""
FROM_FOLLOWER_SINCE = 11
"""Clients of this version on know that a follower may answer (KIP-392)."""
LEADER_HINTS_SINCE = 12
BY_TOPIC_ID_SINCE = 13
NODE_ENDPOINTS_SINCE = 16

SESSION_PARTITIONS_MAX = 1_000_000
"""Partitions that all sessions together may name; each takes half a kilobyte, whether it exists or not."""
REFUSED_PARTITIONS_MAX = 1000
"""Partitions in one session that are unknown to the fetcher when it names them, because it may not read them or because
there is no topic of that id. Others are bounded by what there is."""
TOPIC_NAME_MAX = 249
"""A longer name is no topic's. It may be a hundred times as long."""

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


Answer: TypeAlias = tuple[SessionPartition, FetchedPartition, bool, int]
"""With whether it says all: nothing more is to be said of it until it changes or the client asks for another offset. And
the bytes of its records."""


NOTHING_BROUGHT = InMemory()


class FetchHandler:
    def __init__(
        self,
        settings: Settings,
        runtime: Runtime,
        replicas: ReplicaManager,
        cluster: ClusterView,
        quotas: ClientQuotas,
        throttle: ReplicationThrottle,
    ) -> None:
        self.quotas = quotas
        self.throttle = throttle
        self.replicas = replicas
        self.cluster = cluster
        self.clock = runtime.clock
        self.deadlines = Deadlines(runtime.clock)
        self.cold_reads = ColdReads()
        self._bytes_max = settings.fetch_max_bytes
        self.is_rack_aware = settings.replica_selector_class == RACK_AWARE
        self._cache = SessionCache(
            settings.max_incremental_fetch_session_cache_slots,
            lambda: runtime.random.getrandbits(31),
            runtime.events,
        )
        self._live: dict[int, SessionWatch] = {}
        self._of_connection: dict[ServerConnection, int] = {}

    @serves(ApiKey.FETCH)
    def __call__(self, request: Request) -> None:
        """Fetch 4-18."""
        connection = request.connection
        is_long = len(request.frame) > LARGE_BYTES and not connection.may_be_node
        read = codec.read_long_request if is_long else codec.read_request
        fetch = read(request.version, request.frame, request.header.body)
        # A client that asks again no longer waits for its last answer: let that one go first. So a
        # follower that has a new partition to fetch need not wait out its own long poll.
        if (previous := connection.parked_fetch) is not None:
            previous.complete()
        now = self.clock.monotonic()
        try:
            watch = self._session(request, fetch, now)
        except KafkaError as error:
            request.respond_chunks(codec.write_response(request.version, error.code, 0, []))
            return
        if fetch.isolation_level not in ISOLATION_LEVELS:
            self._refuse(request, fetch, ErrorCode.INVALID_REQUEST)
            return
        watch.serve(request, fetch, now)

    @staticmethod
    def _refuse(request: Request, fetch: FetchRequest, error: ErrorCode) -> None:
        """A whole request. Old versions say it of each partition, too."""
        partitions: list[FetchedPartition] = []
        if request.version < BY_TOPIC_ID_SINCE:
            partitions = [
                _failure(SessionPartition(each), error)
                for each in fetch.partitions[:REFUSED_PARTITIONS_MAX]
            ]
        request.respond_chunks(codec.write_response(request.version, error, 0, partitions))

    @property
    def sessions(self) -> int:
        return len(self._live)

    @property
    def parked(self) -> int:
        """Fetches of sessions that wait for records."""
        return sum(watch.is_parked for watch in self._live.values())

    def rights_changed(self) -> None:
        """ACLs have changed: parked fetches look whether they are still allowed, and are answered if they are not."""
        now = self.clock.monotonic()
        for parked in self.deadlines.waiting():
            if isinstance(parked, ParkedFetch):
                parked.look_again(now)

    def _session(self, request: Request, fetch: FetchRequest, now: float) -> SessionWatch:
        rights, owner = request.connection.rights, request.connection.principal
        # Followers are not throttled and may take the place of consumers' sessions. A client that only says that it is one
        # gets no more than its refusal (CVE-2018-1288).
        is_follower = fetch.replica_id >= 0 and (rights is None or FOLLOW_TOPIC.met(rights))
        request.connection.is_follower = is_follower
        if fetch.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if fetch.session_id != NO_SESSION:
                self._end(self._cache.leave(fetch.session_id, owner))
            if fetch.session_epoch == FINAL_EPOCH:
                return SessionWatch(self, FetchSession(NO_SESSION, is_follower, now))
            # One that begins anew has left its last session, also if it gets no other: else it would go on
            # with the last, which does not know what is named only now.
            self._end(self._cache.close(self._of_connection.get(request.connection, NO_SESSION)))
            session, evicted = self._cache.create(is_follower, now, owner)
            self._end(evicted)
            watch = SessionWatch(self, session)
            if session.id != NO_SESSION:
                self._live[session.id] = watch
                self._belongs_to(request.connection, session)
            return watch
        by_id = request.version >= BY_TOPIC_ID_SINCE
        return self._live[self._cache.resume(fetch, now, owner, by_id=by_id).id]

    def _belongs_to(self, connection: ServerConnection, session: FetchSession) -> None:
        """A fetcher that lost its connection begins anew, so its session goes with it: what nobody fetches
        must not be kept informed."""
        if connection not in self._of_connection:
            connection.on_close.append(lambda: self._end_of(connection))
        self._of_connection[connection] = session.id

    def _end_of(self, connection: ServerConnection) -> None:
        self._end(self._cache.close(self._of_connection.pop(connection)))

    def _end(self, session: FetchSession | None) -> None:
        if session is not None:
            self._live.pop(session.id).close()

    def bytes_max(self, request: Request, fetch: FetchRequest) -> int:
        """The most that one answer holds. Its quota bounds it for a consumer, or a single answer could
        silence it for minutes."""
        # The first batch is sent whatever its size, also to who asks for no byte at all.
        limit = min(max(fetch.max_bytes, 1), self._bytes_max)
        if self.quotas.active and fetch.replica_id < 0:
            allowed = self.quotas.consumable_bytes(request)
            if allowed is not None:
                return min(limit, allowed)
        return limit

    def keep_within_limit(self, session: FetchSession, names_too_much: bool) -> None:
        """A session that would have the broker remember too much lives for this request only: the client
        is told so by the id 0 in its answer."""
        if session.id != NO_SESSION and (
            names_too_much or self._cache.partitions > SESSION_PARTITIONS_MAX
        ):
            self._cache.close(session.id)
            del self._live[session.id]
            session.id = NO_SESSION


class ColdPartition:
    """What a session wants of one partition is on its way from the disk."""

    __slots__ = ("_known", "_watch", "connection", "is_superseded", "offset", "then")

    def __init__(
        self,
        watch: SessionWatch,
        known: SessionPartition,
        then: InMemory,
        connection: ServerConnection,
    ) -> None:
        self._watch = watch
        self._known = known
        self.connection = connection
        self.offset = known.fetch.fetch_offset
        self.then = then
        self.is_superseded = False

    @property
    def is_wanted(self) -> bool:
        """Also if the request that asked for it was answered meanwhile, without it: its sender will ask again."""
        return not (self.is_superseded or self.connection.closed)

    def brought(self) -> None:
        self._watch.brought(self._known, self)

    def supersede(self) -> None:
        self.is_superseded = True


class SessionWatch:
    """A session at work: it is notified of news and holds the parked request."""

    def __init__(self, handler: FetchHandler, session: FetchSession) -> None:
        self._handler = handler
        self._session = session
        self._watched: dict[Partition, SessionPartition] = {}
        self._parked: ParkedFetch | None = None
        self._coming: dict[SessionPartition, ColdPartition] = {}
        self._at_hand: dict[SessionPartition, ColdPartition] = {}
        """What came from the disk and was not sent yet."""
        self._is_cold = False
        """What was read last has to come from the disk."""
        self._answered: list[FetchedPartition] = []
        """Refusals that the next answer brings. Then its session lives for this request only."""
        self._unseen = 0
        """Partitions that were not to be seen when they were named."""
        self._rights_generation = -1
        """Of the ACLs by which its partitions were looked at."""
        self._waits_for = News.ROLE | (News.LOG_END if session.is_follower else News.HIGH_WATERMARK)
        # Consumers read from followers: these must learn of commits at once (KAFKA-9731). Without a session
        # nobody remembers what the follower knows, and every fetch would be answered at once.
        self._announces_commits = (
            session.is_follower and handler.is_rack_aware and session.id != NO_SESSION
        )
        if self._announces_commits:
            self._waits_for |= News.HIGH_WATERMARK

    @property
    def is_parked(self) -> bool:
        return self._parked is not None

    # -- news ----------------------------------------------------------------------------------------

    def partition_changed(self, partition: Partition, news: int) -> Sleeper | None:
        known = self._watched.get(partition)
        if known is None:
            return None
        self._session.hot[known] = None
        if partition.role is Role.OFFLINE:
            self._forget(partition)
        return self if self._parked is not None and news & self._waits_for else None

    def wake(self, now: float) -> None:
        if self._parked is not None:
            self._parked.look_again(now)

    def _bring(self, known: SessionPartition, missing: NotInMemory, request: Request) -> None:
        coming = self._coming.get(known)
        if coming is not None:
            if coming.offset == known.fetch.fetch_offset and coming.is_wanted:
                return
            coming.supersede()
            del self._coming[known]
        coming = ColdPartition(self, known, missing.then, request.connection)
        if self._handler.cold_reads.bring(missing.range, coming, request.connection):
            self._coming[known] = coming

    def brought(self, known: SessionPartition, coming: ColdPartition) -> None:
        if self._coming.get(known) is coming:
            del self._coming[known]
            self._at_hand[known] = coming
            self.wake(self.now())

    def _resolve(self, known: SessionPartition) -> Partition | ErrorCode:
        asked = known.fetch
        found = self._handler.replicas.find(asked.topic, asked.topic_id, asked.partition)
        if isinstance(found, Partition):
            known.replica = found
            if found not in self._watched:
                self._watched[found] = known
                self._handler.replicas.purgatory.watch(found, self)
        return found

    def _forget(self, partition: Partition) -> None:
        del self._watched[partition]
        self._handler.replicas.purgatory.unwatch(partition, self)

    def close(self) -> None:
        if self._parked is not None:
            self._parked.complete()  # while the session still knows what was asked for
        for partition in list(self._watched):
            self._forget(partition)
        self._session.partitions.clear()
        self._session.hot.clear()
        self._coming.clear()
        self._at_hand.clear()

    # -- one request ---------------------------------------------------------------------------------

    def serve(self, request: Request, fetch: FetchRequest, now: float) -> None:
        rights = request.connection.rights
        if len(fetch.partitions) > REFUSED_PARTITIONS_MAX and rights is not None:
            self._refuse_many(rights, fetch)
        added, removed = self._session.update(fetch)
        if added or self._answered:
            too_much = bool(self._answered) or self._names_too_much(rights, added)
            self._handler.keep_within_limit(self._session, too_much)
        if removed:
            gone = set(removed)
            for known in gone:
                self._at_hand.pop(known, None)
                if (coming := self._coming.pop(known, None)) is not None:
                    coming.supersede()
            for partition in [p for p, known in self._watched.items() if known in gone]:
                self._forget(partition)
        parked = ParkedFetch(self, request, fetch, self._handler.bytes_max(request, fetch))
        if not parked.try_complete(now):
            self._parked = parked
            parked.park(self._handler.deadlines, now)

    def _refuse_many(self, rights: Rights, fetch: FetchRequest) -> None:
        """Takes out of a long request what its client may not read, if that is too much to be remembered, and answers it,
        topic by topic."""
        if self._session.is_follower:
            return
        errors: dict[Any, ErrorCode | None] = {}
        allowed: list[FetchPartition] = []
        refused: list[FetchedPartition] = []
        for asked in fetch.partitions:
            topic, topic_id, partition = asked[:3]
            key = topic if topic_id is None else topic_id
            if key not in errors:
                errors[key] = self._refused(rights, fetch, SessionPartition(asked))
            error = errors[key]
            if error is None:
                allowed.append(asked)
            else:
                refused.append(FetchedPartition(topic, topic_id, partition, error))
        if len(refused) > REFUSED_PARTITIONS_MAX:
            fetch.partitions = allowed
            self._answered = refused

    def _names_too_much(self, rights: Rights | None, added: list[SessionPartition]) -> bool:
        if self._session.is_follower:
            return False
        for known in added:
            topic, topic_id = known.fetch.topic, known.fetch.topic_id
            if topic is not None and len(topic) > TOPIC_NAME_MAX:
                return True
            if rights is not None:
                name = self._handler.cluster.topic_name(topic, topic_id)
                self._unseen += name is None or not READ_TOPIC.sees(rights, name)
        return self._unseen > REFUSED_PARTITIONS_MAX

    def now(self) -> float:
        return self._handler.clock.monotonic()

    def finished(self, parked: ParkedFetch) -> None:
        if self._parked is parked:
            self._parked = None
        if self._session.id == NO_SESSION:
            self.close()

    def collect(
        self, request: Request, fetch: FetchRequest, bytes_max: int, now: float
    ) -> tuple[list[Answer], int, bool]:
        """(answers that are news, bytes in them, whether they must go out at once)."""
        session = self._session
        is_full = fetch.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH)
        limits_leader = session.is_follower and self._handler.throttle.limits_leaders
        total = 0
        is_urgent = bool(self._answered)
        answers: list[Answer] = []
        rights = request.connection.rights
        if rights is not None and fetch.replica_id >= 0 and FOLLOW_TOPIC.met(rights):
            rights = None  # one right for all partitions
        if rights is not None and self._rights_generation != rights.generation:
            self._rights_generation = rights.generation
            self._note_changed_rights(rights, fetch)
        for known in list(session.hot):
            if rights is not None:
                error = self._refused(rights, fetch, known)
                if error is not None:
                    answers.append((known, _failure(known, error), True, 0))
                    # Said once, a refusal need not hurry: what else the session has may be waited for.
                    is_urgent = is_urgent or not known.is_refused
                    known.is_refused = error is not ErrorCode.UNKNOWN_TOPIC_ID
                    continue
                known.is_refused = False
            allowed = bytes_max - total
            if limits_leader:
                allowed = min(allowed, self._allowance(known, fetch.replica_id))
            # Before anything else takes of the limit, no records means that there are none.
            says_all = total == 0 and allowed > 0
            answer = self._read(request, fetch, known, allowed, says_all, now)
            if self._is_cold:
                says_all = False
            size = 0 if answer.records is None else _size(answer)
            if limits_leader and size:
                self._note_sent(known, fetch.replica_id, size)
            total += size
            if is_full or known.is_news(answer):
                answers.append((known, answer, says_all or size > 0, size))
            elif says_all:
                del session.hot[known]
            if answer.error or answer.diverging or answer.preferred_read_replica != -1:
                is_urgent = True
            if size and known in self._at_hand:
                is_urgent = True  # there may be enough in all, but not in memory
            if self._announces_commits and answer.high_watermark > known.sent_high_watermark:
                is_urgent = True
        return answers, total, is_urgent

    def _note_changed_rights(self, rights: Rights, fetch: FetchRequest) -> None:
        """Partitions that rest are looked at, too, if they may no longer be read, or may be read again."""
        session = self._session
        for known in session.partitions.values():
            if known.is_refused or self._refused(rights, fetch, known) is not None:
                session.hot[known] = None

    def _refused(
        self, rights: Rights, fetch: FetchRequest, known: SessionPartition
    ) -> ErrorCode | None:
        """Asked before anything else: so nobody learns which topics exist."""
        name = self._handler.cluster.topic_name(known.fetch.topic, known.fetch.topic_id)
        if name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        need = FOLLOW_TOPIC if fetch.replica_id >= 0 else READ_TOPIC
        return None if need.met(rights, name) else need.denied

    def _allowance(self, known: SessionPartition, replica: int) -> int:
        partition = self._resolve(known)
        if not isinstance(partition, Partition):
            return LONG_MAX
        return self._handler.throttle.allowance(partition, replica, self._handler.clock.monotonic())

    def _note_sent(self, known: SessionPartition, replica: int, size: int) -> None:
        partition = self._resolve(known)
        if isinstance(partition, Partition):
            now = self._handler.clock.monotonic()
            self._handler.throttle.sent(partition, replica, size, now)

    def _read(
        self,
        request: Request,
        fetch: FetchRequest,
        known: SessionPartition,
        remaining: int,
        at_least_one: bool,
        now: float,
    ) -> FetchedPartition:
        self._is_cold = False
        asked = known.fetch
        found = known.replica
        if found is None or found.role is Role.OFFLINE:
            resolved = self._resolve(known)
            if isinstance(resolved, ErrorCode):
                return _failure(known, resolved)
            found = resolved
        max_bytes = asked.max_bytes if asked.max_bytes < remaining else remaining
        handler = self._handler
        # Who wants an answer now, and may not ask again, may wait for the disk.
        in_memory = None if fetch.max_wait_ms <= 0 else NOTHING_BROUGHT
        if self._at_hand and (came := self._at_hand.get(known)) is not None:
            if came.offset == asked.fetch_offset:
                in_memory = came.then
            else:
                del self._at_hand[known]
        try:
            leadership = found.leadership
            if fetch.replica_id >= 0:
                if leadership is None:
                    return found.refuse_follower(asked.current_leader_epoch)
                return leadership.serve_follower(
                    asked,
                    fetch.replica_id,
                    fetch.replica_epoch,
                    max_bytes,
                    at_least_one,
                    now,
                    in_memory,
                )
            if handler.is_rack_aware and fetch.rack_id and leadership is not None:
                near = leadership.nearest_replica(fetch.rack_id, asked.fetch_offset, self._rack_of)
                if near is not None:
                    return found.redirect(near)
            return found.serve_consumer(
                asked,
                fetch.isolation_level == 1,
                max_bytes,
                at_least_one,
                from_follower=request.version >= FROM_FOLLOWER_SINCE,
                in_memory=in_memory,
            )
        except NotInMemory as missing:
            self._is_cold = True
            self._bring(known, missing, request)
            return found.answer(None)
        except LogDirError as error:
            code = handler.replicas.directory_failed(error).code
        except KafkaError as error:
            code = error.code
        return _failure(known, code)

    def _rack_of(self, broker_id: int) -> str | None:
        broker = self._handler.cluster.image.brokers.get(broker_id)
        return None if broker is None else broker.rack

    def answer(self, request: Request, answers: list[Answer]) -> None:
        session = self._session
        has_errors = False
        for known, answer, says_all, size in answers:
            known.sent(answer)
            if (replica := known.replica) is not None:
                traffic = replica.traffic
                traffic.fetches += 1
                traffic.every.fetches += 1
                if session.is_follower:
                    replica.copied_out += size
                    traffic.every.replication_bytes_out += size
                else:
                    replica.bytes_out += size
                    traffic.bytes_out += size
                    traffic.every.bytes_out += size
                if answer.error:
                    traffic.failed_fetches += 1
                    traffic.every.failed_fetches += 1
            if self._at_hand and answer.records is not None:
                self._at_hand.pop(known, None)
            if answer.error:
                # It stays hot: the client gets it again until it asks for something else.
                has_errors = True
            elif says_all:
                del session.hot[known]
                if answer.records is not None:
                    # A fetcher that dropped these records asks again without naming the partition: its
                    # position is what it was. Behind the others, which have not had their turn.
                    session.hot[known] = None
        partitions = [answer for _, answer, _, _ in answers]
        endpoints: tuple[tuple[int, str, int, str | None], ...] = ()
        if has_errors and request.version >= LEADER_HINTS_SINCE:
            endpoints = self._leader_hints(request, partitions)
        partitions += self._answered
        quotas = self._handler.quotas
        if quotas.active and not session.is_follower:
            quotas.consumed(request, sum(_size(partition) for partition in partitions))
        request.respond_chunks(
            codec.write_response(
                request.version,
                ErrorCode.NONE,
                session.id,
                partitions,
                endpoints,
                request.throttle_ms,
            )
        )

    def _leader_hints(
        self, request: Request, partitions: list[FetchedPartition]
    ) -> tuple[tuple[int, str, int, str | None], ...]:
        cluster = self._handler.cluster
        leaders: dict[int, None] = {}
        for index, answer in enumerate(partitions):
            if answer.error in (
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                ErrorCode.FENCED_LEADER_EPOCH,
            ):
                leader = cluster.leader_of(answer.topic, answer.topic_id, answer.partition)
                if leader is not None:
                    partitions[index] = answer._replace(current_leader=leader)
                    leaders[leader[0]] = None
        if not leaders or request.version < NODE_ENDPOINTS_SINCE:
            return ()
        return cluster.endpoints(leaders, request.connection.listener)


class ParkedFetch:
    """A fetch that is answered when there is enough to say, or when its time is up."""

    __slots__ = ("_bytes_max", "_bytes_min", "_fetch", "_line", "_request", "_watch")

    def __init__(
        self, watch: SessionWatch, request: Request, fetch: FetchRequest, bytes_max: int
    ) -> None:
        self._watch = watch
        self._request = request
        self._fetch = fetch
        self._bytes_max = bytes_max
        self._bytes_min = min(fetch.min_bytes, bytes_max) if fetch.max_wait_ms > 0 else 0
        self._line: DeadlineQueue | None = None

    def try_complete(self, now: float) -> bool:
        """Answer if there is enough."""
        answers, size, is_urgent = self._watch.collect(
            self._request, self._fetch, self._bytes_max, now
        )
        if size < self._bytes_min and not is_urgent:
            return False
        self._watch.answer(self._request, answers)
        self.drop()
        return True

    def park(self, deadlines: Deadlines, now: float) -> None:
        self._request.connection.parked_fetch = self
        self._line = deadlines.add(self, now, self._fetch.max_wait_ms)

    def look_again(self, now: float) -> None:
        if self._request.connection.closed:
            self.drop()  # else what it asked long ago would be taken for where its fetcher is
        else:
            self._request.answered_at = now  # if it is answered now
            self.try_complete(now)

    def complete(self) -> None:
        self._bytes_min = 0
        self.look_again(self._watch.now())

    def time_is_up(self) -> None:
        self.complete()

    def drop(self) -> None:
        if self._line is not None:
            self._line.pop(self, None)
            self._request.connection.parked_fetch = None
        self._watch.finished(self)


def _failure(known: SessionPartition, error: ErrorCode) -> FetchedPartition:
    asked = known.fetch
    return FetchedPartition(asked.topic, asked.topic_id, asked.partition, error)


def _size(answer: FetchedPartition) -> int:
    records = answer.records
    return records.size if isinstance(records, FileRange) else 0
