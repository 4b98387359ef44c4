"""A node's place in the metadata quorum: asyncio around `Raft`, and the image of what is committed.

Everything that happens to Raft (a request, an answer, a lost connection, a finished flush, the passing of
time) is one plain call on the loop. What follows from it is done once per turn of the loop, in `_pump`:
requests leave, what was appended in this turn is flushed with one fsync in a thread, parked fetches are
looked at again, committed batches become the next image, and whoever waits for any of this is told.

A node whose metadata directory fails, or whose quorum contradicts itself, stops taking part and says so;
it never goes on with a state that is not on disk.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ottla.broker.cluster import raft_wire
from ottla.broker.cluster.raft_channels import Peers
from ottla.broker.server.connections import Handler, Request
from ottla.config import Settings
from ottla.events.quorum import (
    BecameQuorumLeader,
    DecisionsLost,
    LostQuorumLeadership,
    MetadataRefused,
    MetadataTruncated,
    QuorumLeaderChanged,
    SnapshotInstalled,
    SnapshotWritten,
    TwoQuorumLeaders,
    VoterCameOfAge,
)
from ottla.metadata.image import Delta, MetadataImage
from ottla.metadata.records import Record, decode, encode
from ottla.raft.election_state import QuorumStateFile
from ottla.raft.format import METADATA_DIRECTORY, load_properties
from ottla.raft.journal import Journal, metadata_log_config
from ottla.raft.messages import Fetch, FetchAnswer, Park, QuorumAnswer, SnapshotId
from ottla.raft.outputs import Send
from ottla.raft.raft import Raft
from ottla.raft.replication import ReplicaProgress
from ottla.raft.roles import Timing
from ottla.raft.snapshots import BOOTSTRAP, build_snapshot
from ottla.raft.voters import QuorumEndpoint, ReplicaKey, Voter, VoterSet
from ottla.records.record import records as records_of
from ottla.runtime.seams import Runtime
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.internal_topics import CLUSTER_METADATA_TOPIC as TOPIC
from ottla.wire.types import ZERO_UUID

logger = logging.getLogger(__name__)

APPLY_BYTES_MAX = 1 << 20
"""Metadata applied in one turn of the loop; the rest waits for the next, so that others get theirs."""
FETCH_WAIT_MS_MAX = 500
FAREWELL_S_MAX = 0.5
"""How long a leader that stops waits for the others to hear of it."""

T = TypeVar("T")


class QuorumFailed(Exception):
    """This node has left the quorum for good; a restart may help, after a look at its disk."""


class _Append(NamedTuple):
    first_offset: int
    end_offset: int
    done: asyncio.Future[int]


class Quorum:
    def __init__(self, settings: Settings, runtime: Runtime, cluster_id: str) -> None:
        self.node_id = settings.node_id
        self.cluster_id = cluster_id
        self.image = MetadataImage()
        self.failed: Exception | None = None
        self.on_image: list[Callable[[MetadataImage, Delta], None]] = []
        self.on_leadership: list[Callable[[bool, int], None]] = []
        self.on_leader: list[Callable[[int | None, int], None]] = []
        self.on_failure: list[Callable[[Exception], None]] = []
        self._settings = settings
        self._runtime = runtime
        directory = settings.metadata_log_dir
        self.directory_id = load_properties(runtime.disk, directory).directory_id
        self._endpoint = _own_endpoint(settings)
        journal = Journal.open(
            runtime.disk,
            directory,
            static_voters=_static_voters(settings),
            config=metadata_log_config(
                settings.metadata_log_segment_bytes, settings.metadata_log_segment_ms
            ),
            now_ms=runtime.clock.wall_ms(),
        )
        self._raft = Raft(
            ReplicaKey(settings.node_id, self.directory_id),
            self._endpoint,
            journal,
            QuorumStateFile(runtime.disk, f"{directory}/{METADATA_DIRECTORY}"),
            runtime.random,
            runtime.clock.wall_ms,
            timing=_timing(settings),
            bootstrap=_bootstrap(settings),
            events=runtime.events,
        )
        self._journal = journal
        self._peers = Peers(
            runtime.network,
            f"raft-client-{settings.node_id}",
            cluster_id,
            settings.controller_quorum_request_timeout_ms / 1000,
            on_answer=self._answered,
            on_failure=self._request_failed,
            on_disconnect=self._disconnected,
        )
        self._parked: dict[Request, _ParkedFetch] = {}
        self._appends: deque[_Append] = deque()
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._applied_end = 0
        self._applied_epoch = 0
        self._applied_timestamp_ms = 0
        self._active_epoch: int | None = None
        self._is_running = False
        self._is_pumping_soon = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._flushing: asyncio.Future[int] | None = None
        self._snapshots = _SnapshotSchedule(settings)
        self._snapshotting: asyncio.Future[None] | None = None

    # What others may know

    @property
    def raft(self) -> Raft:
        """To be looked at only: the simulator holds it against what must always hold."""
        return self._raft

    @property
    def is_leader(self) -> bool:
        return self._raft.is_leader

    @property
    def is_active(self) -> bool:
        """Leads, and everything committed before its epoch is in its image."""
        return self._active_epoch is not None

    @property
    def epoch(self) -> int:
        return self._raft.epoch

    @property
    def leader_id(self) -> int | None:
        return self._raft.leader

    @property
    def next_offset(self) -> int:
        """Where the next appended batch will begin."""
        return self._journal.log_end

    @property
    def voters(self) -> VoterSet:
        return self._journal.voters

    @property
    def kraft_version(self) -> int:
        return self._journal.kraft_version

    def leader_endpoint(self) -> tuple[str, int] | None:
        leader = self._raft.leader
        if leader is None:
            return None
        where = self._endpoint if leader == self.node_id else self._raft.address(leader)
        return None if where is None else (where.host, where.port)

    # Life

    async def start(self) -> None:
        self._load_snapshot()
        self._is_running = True
        self._snapshots.began(self._now())
        if self._raft.is_newborn:
            logger.info(
                "node %d has no vote in the quorum yet: its metadata directory was empty, so it waits for "
                "a leader to catch up with, or for all other voters to be as new",
                self.node_id,
            )
        self._step(lambda: self._raft.start(self._now()))

    async def stop(self) -> None:
        """A leader says farewell first, so that the others need not wait to notice."""
        if self._is_running and self.failed is None and self._raft.is_leader:
            self._step(lambda: self._raft.resign(self._now()))
            epoch = self.epoch
            try:
                await self._until(
                    lambda: self._raft.all_know_of_resignation or self.epoch > epoch,
                    FAREWELL_S_MAX,
                )
            except (TimeoutError, QuorumFailed) as error:
                logger.info("leaving the quorum without an answer to the farewell: %s", error)
        self._leave(KafkaError(ErrorCode.NOT_CONTROLLER, f"node {self.node_id} is stopping"))
        for work in (self._flushing, self._snapshotting):
            if work is not None:
                await asyncio.wait([work])
        if self.failed is None:
            self._raft.stop()

    def _leave(self, reason: Exception) -> None:
        """Take no further part."""
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._peers.close()
        for parked in list(self._parked.values()):
            parked.drop()
        self._end_leadership()
        self._fail_appends(reason)
        for _, waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(QuorumFailed(str(reason)))
        self._waiting.clear()

    def _fail(self, error: Exception) -> None:
        """Called while `error` is handled."""
        if self.failed is not None:
            return
        self.failed = error
        logger.critical(
            "node %d leaves the metadata quorum: %s", self.node_id, error, exc_info=True
        )
        self._leave(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
        self._tell(self.on_failure, error)

    async def wait_for_leader(self) -> None:
        await self._until(lambda: self._raft.leader is not None, None)

    async def wait_applied(self, offset: int) -> None:
        """Until the record at `offset` is part of the image."""
        await self._until(lambda: self.image.offset >= offset, None)

    async def _until(self, condition: Callable[[], bool], timeout_s: float | None) -> None:
        if self.failed is not None:
            raise QuorumFailed(str(self.failed))
        if condition():
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((condition, waiter))
        async with asyncio.timeout(timeout_s):
            await waiter

    # Driving raft

    def _now(self) -> float:
        return self._runtime.clock.monotonic()

    def _step(self, call: Callable[[], T]) -> T | None:
        """One input for raft. None if this node takes no part (any more)."""
        if not self._is_running:
            return None
        try:
            result = call()
        except Exception as error:
            self._fail(error)
            return None
        self._pump_soon()
        return result

    def _pump_soon(self) -> None:
        if not self._is_pumping_soon and self._is_running:
            self._is_pumping_soon = True
            asyncio.get_running_loop().call_soon(self._pump_guarded)

    def _pump_guarded(self) -> None:
        self._is_pumping_soon = False
        if self._is_running:
            try:
                self._pump()
            except Exception as error:
                self._fail(error)

    def _pump(self) -> None:
        raft = self._raft
        for send in _drained(raft.outbox):
            self._peers.send(send, raft.address(send.peer))
        self._note_events()
        self._flush_soon()
        self._serve_parked()
        self._note_events()  # a parked fetch, looked at again, may have moved the high watermark
        self._apply_committed()
        self._begin_leadership()
        self._snapshot_if_due()
        for condition, waiter in self._waiting:
            if not waiter.done() and condition():
                waiter.set_result(None)
        self._waiting = [each for each in self._waiting if not each[1].done()]
        self._set_timer()

    def _set_timer(self) -> None:
        deadline = self._raft.next_deadline()
        if self._timer is not None:
            if deadline == self._timer_at:
                return
            self._timer.cancel()
            self._timer = None
        if deadline < math.inf:
            self._timer_at = deadline
            wait = max(0.0, deadline - self._now())
            self._timer = asyncio.get_running_loop().call_later(wait, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self._step(lambda: self._raft.tick(self._now()))

    def _answered(self, send: Send, answer: QuorumAnswer) -> None:
        self._step(lambda: self._raft.answered(send, answer, self._now()))

    def _request_failed(self, send: Send) -> None:
        self._step(lambda: self._raft.request_failed(send, self._now()))

    def _disconnected(self, peer: int) -> None:
        self._step(lambda: self._raft.peer_disconnected(peer, self._now()))

    def _note_events(self) -> None:
        for event in _drained(self._raft.events):
            match event:
                case QuorumLeaderChanged(epoch=epoch, leader=leader):
                    logger.info("node %d: epoch %d, leader %s", self.node_id, epoch, leader)
                    self._tell(self.on_leader, leader, epoch)
                case BecameQuorumLeader(epoch=epoch):
                    logger.info("node %d leads the quorum in epoch %d", self.node_id, epoch)
                case LostQuorumLeadership(epoch=epoch):
                    logger.info("node %d no longer leads epoch %d", self.node_id, epoch)
                    self._end_leadership()
                    self._fail_appends(
                        KafkaError(ErrorCode.NOT_CONTROLLER, f"leadership of epoch {epoch} is lost")
                    )
                case MetadataTruncated(from_offset=old, to_offset=new):
                    logger.info("node %d cut its log from %d to %d", self.node_id, old, new)
                case SnapshotInstalled():
                    self._load_snapshot()
                case TwoQuorumLeaders(epoch=epoch, known=known, named=named):
                    logger.warning(
                        "node %d: told that %d leads epoch %d, which %d leads",
                        self.node_id,
                        named,
                        epoch,
                        known,
                    )
                case VoterCameOfAge():
                    logger.info("node %d has its vote in the quorum", self.node_id)
                case MetadataRefused(why=why):
                    logger.warning("node %d: refused what the leader sent: %s", self.node_id, why)

    # Flushing

    def _flush_soon(self) -> None:
        if self._flushing is not None or not self._journal.needs_flush:
            return
        plan = self._journal.flush_plan()
        self._flushing = asyncio.get_running_loop().run_in_executor(None, plan)
        self._flushing.add_done_callback(self._flush_done)

    def _flush_done(self, flush: asyncio.Future[int]) -> None:
        self._flushing = None
        if not flush.cancelled():
            self._step(lambda: self._raft.flushed(flush.result(), self._now()))

    # The active controller's side

    def append(self, records: Sequence[Record]) -> tuple[int, asyncio.Future[int]]:
        """Write one atomic batch. Its first offset, and a future that resolves to it when the batch is
        committed and in the image. KafkaError 41 at once, or later, if this node does not lead."""
        if not self._is_running:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"node {self.node_id} is not in the quorum")
        values = [encode(record) for record in records]
        try:
            first, end = self._raft.append(values, self._now())
        except KafkaError:
            raise
        except Exception as error:
            self._fail(error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._appends.append(_Append(first, end, done))
        self._pump_soon()
        return first, done

    def _fail_appends(self, error: Exception) -> None:
        if self._appends and self._runtime.events:
            first = self._appends[0].first_offset
            lost = DecisionsLost(len(self._appends), first, str(error))
            self._runtime.events.emit(lost)
        while self._appends:
            done = self._appends.popleft().done
            if not done.done():
                done.set_exception(error)

    def _begin_leadership(self) -> None:
        """Active once a record of the own epoch is committed and applied."""
        leadership = self._raft.leader_state
        if leadership is None or self._active_epoch is not None:
            return
        if self._applied_end > leadership.start_offset:
            self._active_epoch = self.epoch
            self._tell(self.on_leadership, True, self.epoch)

    def _end_leadership(self) -> None:
        epoch, self._active_epoch = self._active_epoch, None
        if epoch is not None:
            self._tell(self.on_leadership, False, epoch)

    # From committed batches to the image

    def _apply_committed(self) -> None:
        committed = self._journal.high_watermark
        if self._applied_end >= committed:
            return
        records: list[Record] = []
        size = 0
        for data, batch in self._journal.batches_from(self._applied_end, committed):
            if not batch.is_control:
                for record in records_of(data, batch):
                    assert record.value is not None, f"no value at {record.offset}"
                    records.append(decode(record.value))
            self._applied_end = batch.next_offset
            self._applied_epoch = batch.leader_epoch
            self._applied_timestamp_ms = batch.max_timestamp
            size += batch.size
            if size >= APPLY_BYTES_MAX:
                break
        self._snapshots.applied(size)
        image, delta = self.image.apply(records, self._applied_end - 1, self._applied_epoch)
        self._publish(image, delta)
        while self._appends and self._appends[0].end_offset <= self._applied_end:
            append = self._appends.popleft()
            if not append.done.done():
                append.done.set_result(append.first_offset)
        if self._applied_end < committed:
            self._pump_soon()

    def _publish(self, image: MetadataImage, delta: Delta) -> None:
        self.image = image
        self._tell(self.on_image, image, delta)

    def _tell(self, listeners: Sequence[Callable[..., None]], *what: Any) -> None:
        """A listener that fails is a defect of its own: it is reported, and the quorum goes on."""
        for listener in list(listeners):
            try:
                listener(*what)
            except Exception as error:
                asyncio.get_running_loop().call_exception_handler(
                    {"message": f"{listener} of the quorum failed", "exception": error}
                )

    def _load_snapshot(self) -> None:
        """Begin from the newest checkpoint, if it is ahead of what was applied."""
        id = self._journal.snapshots.latest
        if id is None or id == BOOTSTRAP or id.end_offset <= self._applied_end:
            return
        content = self._journal.snapshots.load(id)
        image, _ = MetadataImage().apply(content.records, id.end_offset - 1, id.epoch)
        self._applied_end = id.end_offset
        self._applied_epoch = id.epoch
        self._applied_timestamp_ms = content.timestamp_ms
        self._snapshots.began(self._now())
        self._publish(image, image.delta_from(self.image))

    # Checkpoints of our own

    def _snapshot_if_due(self) -> None:
        due = self._snapshots.is_due(self._now())
        if not due or self._snapshotting is not None or self.image.pending is not None:
            return
        id = SnapshotId(self._applied_end, self._applied_epoch)
        if id in self._journal.snapshots.ids:
            return
        kraft_version, voters = self._journal.electorate_at(id.end_offset)
        image, timestamp_ms = self.image, self._applied_timestamp_ms
        disk, path = self._runtime.disk, self._journal.snapshots.path(id)

        def write() -> None:
            data = build_snapshot(
                image.records(),
                epoch=id.epoch,
                timestamp_ms=timestamp_ms,
                kraft_version=kraft_version,
                voters=voters if kraft_version >= 1 else None,
            )
            disk.replace(path, data, durable=True)

        self._snapshots.began(self._now())
        self._snapshotting = asyncio.get_running_loop().run_in_executor(None, write)
        self._snapshotting.add_done_callback(lambda work: self._snapshot_done(work, id))

    def _snapshot_done(self, work: asyncio.Future[None], id: SnapshotId) -> None:
        self._snapshotting = None
        if work.cancelled():
            return

        def take() -> None:
            work.result()
            now_ms = self._runtime.clock.wall_ms()
            self._journal.snapshot_taken(id, now_ms)
            self._journal.clean(
                self._settings.metadata_max_retention_bytes,
                self._settings.metadata_max_retention_ms,
                now_ms,
            )
            self._runtime.events.emit(SnapshotWritten(id.end_offset, id.epoch))
            logger.info("node %d wrote the metadata checkpoint %s", self.node_id, id)

        self._step(take)

    # Requests of others

    def handlers(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.VOTE: self._handle_vote,
            ApiKey.BEGIN_QUORUM_EPOCH: self._handle_begin_quorum_epoch,
            ApiKey.END_QUORUM_EPOCH: self._handle_end_quorum_epoch,
            ApiKey.FETCH: self._handle_fetch,
            ApiKey.FETCH_SNAPSHOT: self._handle_fetch_snapshot,
            ApiKey.DESCRIBE_QUORUM: self._handle_describe_quorum,
        }

    def _handle_vote(self, request: Request) -> None:
        """Vote 0-2; before version 2 there is no pre-vote, before 1 no directory id."""
        self._answer(
            request,
            raft_wire.read_vote,
            self._raft.handle_vote,
            raft_wire.vote_fields,
        )

    def _handle_begin_quorum_epoch(self, request: Request) -> None:
        """BeginQuorumEpoch 0-1."""
        self._answer(
            request,
            raft_wire.read_begin_quorum_epoch,
            self._raft.handle_begin_quorum_epoch,
            raft_wire.epoch_fields,
        )

    def _handle_end_quorum_epoch(self, request: Request) -> None:
        """EndQuorumEpoch 0-1."""
        self._answer(
            request,
            raft_wire.read_end_quorum_epoch,
            self._raft.handle_end_quorum_epoch,
            raft_wire.epoch_fields,
        )

    def _handle_fetch_snapshot(self, request: Request) -> None:
        """FetchSnapshot 0-1."""
        self._answer(
            request,
            raft_wire.read_fetch_snapshot,
            self._raft.handle_fetch_snapshot,
            raft_wire.fetch_snapshot_fields,
        )

    def _answer(
        self,
        request: Request,
        read: Callable[[Any, str], Any],
        handle: Callable[[Any, float], Any],
        write: Callable[[Any], Mapping[str, Any]],
    ) -> None:
        try:
            asked = read(request.message(), self.cluster_id)
        except KafkaError as error:
            request.respond({"error_code": error.code})
            return
        answer = self._step(lambda: handle(asked, self._now()))
        if answer is None:
            request.connection.abort()  # we have left the quorum
        else:
            request.respond(write(answer))

    def _handle_fetch(self, request: Request) -> None:
        """Fetch 4-18 of the metadata log, from version 13 on (by topic id), as Kafka's controllers do."""
        version, header = request.version, request.header
        try:
            asked = raft_wire.read_fetch(version, request.frame, header.body, self.cluster_id)
        except KafkaError as error:
            request.respond_chunks(raft_wire.fetch_error_chunks(version, error.code))
            return
        if (previous := request.connection.parked_fetch) is not None:
            previous.complete()
        answer = self._step(lambda: self._raft.handle_fetch(asked, self._now()))
        if answer is None:
            request.connection.abort()
        elif isinstance(answer, Park):
            _ParkedFetch(self._parked, request, asked, answer, self._state(), self._now())
        else:
            request.respond_chunks(raft_wire.fetch_chunks(version, answer))

    def _serve_parked(self) -> None:
        """Look again at every parked fetch if anything moved that one could wait for."""
        for parked in list(self._parked.values()):
            if parked.seen != (state := self._state()):
                parked.seen = state
                answer = self._raft.handle_fetch(parked.asked, self._now())
                if not isinstance(answer, Park):
                    parked.answer(answer)

    def _state(self) -> tuple[int, ...]:
        raft = self._raft
        return raft.journal.log_end, raft.high_watermark, raft.epoch, raft.is_leader

    def _handle_describe_quorum(self, request: Request) -> None:
        """DescribeQuorum 0-2. Only the leader knows; others answer 6 for the partition."""
        asked = request.message()
        names = [(str(topic.topic_name), topic.partitions) for topic in asked.topics]
        if len(names) != 1 or names[0][0] != TOPIC or len(names[0][1]) != 1:
            request.respond({"error_code": ErrorCode.INVALID_REQUEST})
        else:
            request.respond(self.describe())

    def describe(self) -> Mapping[str, Any]:
        """The fields of a DescribeQuorum response."""
        raft, leadership = self._raft, self._raft.leader_state
        partition: dict[str, Any] = {
            "partition_index": 0,
            "error_code": ErrorCode.NONE if leadership else ErrorCode.NOT_LEADER_OR_FOLLOWER,
            "leader_id": -1 if raft.leader is None else raft.leader,
            "leader_epoch": raft.epoch,
            "high_watermark": raft.high_watermark if raft.is_established else -1,
        }
        if leadership is not None:
            voters = [self._replica_fields(replica) for replica in leadership.voters.values()]
            if raft.is_voter:
                now_ms = self._runtime.clock.wall_ms()
                voters.append(_replica_fields(raft.key, raft.journal.log_end, now_ms, now_ms))
            partition["current_voters"] = sorted(voters, key=lambda voter: voter["replica_id"])
            observers = [self._replica_fields(each) for each in leadership.observers.values()]
            partition["observers"] = sorted(observers, key=lambda each: each["replica_id"])
        nodes = [
            {"node_id": voter.id, "listeners": [each._asdict() for each in voter.endpoints]}
            for voter in self._journal.voters.voters
        ]
        return {
            "error_code": ErrorCode.NONE,
            "topics": [{"topic_name": TOPIC, "partitions": [partition]}],
            "nodes": nodes,
        }

    def _replica_fields(self, replica: ReplicaProgress) -> dict[str, Any]:
        end = -1 if replica.end_offset is None else replica.end_offset
        fetched = self._wall(replica.last_fetch if replica.end_offset is not None else -math.inf)
        return _replica_fields(replica.key, end, fetched, self._wall(replica.last_caught_up))

    def _wall(self, when: float) -> int:
        """A moment of the steady clock as a time of day, for people to read."""
        if when == -math.inf:
            return -1
        return self._runtime.clock.wall_ms() - int((self._now() - when) * 1000)


class _ParkedFetch:
    """A metadata fetch that waits for something new."""

    def __init__(
        self,
        parked: dict[Request, _ParkedFetch],
        request: Request,
        asked: Fetch,
        park: Park,
        seen: tuple[int, ...],
        now: float,
    ) -> None:
        self.asked = asked
        self.seen = seen
        """The state of the log when it was last looked at."""
        self._parked = parked
        self._request = request
        self._empty = park.answer
        parked[request] = self
        request.connection.parked_fetch = self
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(0.0, park.until - now), self.complete)

    def complete(self) -> None:
        """Its time is over, or the same connection asks for something else."""
        self.answer(self._empty)

    def answer(self, answer: FetchAnswer) -> None:
        self.drop()
        self._request.respond_chunks(raft_wire.fetch_chunks(self._request.version, answer))

    def drop(self) -> None:
        self._timer.cancel()
        self._parked.pop(self._request, None)
        if self._request.connection.parked_fetch is self:
            self._request.connection.parked_fetch = None


class _SnapshotSchedule:
    """When a checkpoint is due: after so many bytes of metadata, or so long a time with any."""

    def __init__(self, settings: Settings) -> None:
        self._bytes_max = settings.metadata_log_max_record_bytes_between_snapshots
        interval_ms = settings.metadata_log_max_snapshot_interval_ms
        self._interval_s = interval_ms / 1000 if interval_ms else math.inf
        self._bytes = 0
        self._since = 0.0

    def began(self, now: float) -> None:
        self._bytes = 0
        self._since = now

    def applied(self, size: int) -> None:
        self._bytes += size

    def is_due(self, now: float) -> bool:
        return self._bytes >= self._bytes_max or (
            self._bytes > 0 and now - self._since >= self._interval_s
        )


def _drained(items: list[T]) -> list[T]:
    taken = items[:]
    items.clear()
    return taken


def _replica_fields(
    key: ReplicaKey, end: int, fetched_ms: int, caught_up_ms: int
) -> dict[str, Any]:
    return {
        "replica_id": key.id,
        "replica_directory_id": key.directory or ZERO_UUID,
        "log_end_offset": end,
        "last_fetch_timestamp": fetched_ms,
        "last_caught_up_timestamp": caught_up_ms,
    }


def _static_voters(settings: Settings) -> VoterSet | None:
    if not settings.controller_quorum_voters:
        return None
    name = settings.controller_listener_names[0]
    return VoterSet.of(
        Voter(voter.id, None, (QuorumEndpoint(name, voter.host, voter.port),))
        for voter in settings.controller_quorum_voters
    )


def _own_endpoint(settings: Settings) -> QuorumEndpoint | None:
    """Where the others reach this controller: what the voters' setting says, else what is advertised."""
    if not settings.is_controller:
        return None
    name = settings.controller_listener_names[0]
    for voter in settings.controller_quorum_voters:
        if voter.id == settings.node_id:
            return QuorumEndpoint(name, voter.host, voter.port)
    for listener in settings.advertised_listeners:
        if listener.name == name:
            return QuorumEndpoint(name, listener.host, listener.port)
    return None


def _bootstrap(settings: Settings) -> list[QuorumEndpoint]:
    name = settings.controller_listener_names[0]
    return [
        QuorumEndpoint(name, host, port)
        for host, port in settings.controller_quorum_bootstrap_servers
    ]


def _timing(settings: Settings) -> Timing:
    fetch_timeout_ms = settings.controller_quorum_fetch_timeout_ms
    return Timing(
        election_timeout=settings.controller_quorum_election_timeout_ms / 1000,
        fetch_timeout=fetch_timeout_ms / 1000,
        election_backoff_max=settings.controller_quorum_election_backoff_max_ms / 1000,
        retry_backoff=settings.controller_quorum_retry_backoff_ms / 1000,
        # A fetch that waits longer than the timeout would look like a silent leader.
        fetch_wait_ms_max=min(FETCH_WAIT_MS_MAX, fetch_timeout_ms // 2),
    )
