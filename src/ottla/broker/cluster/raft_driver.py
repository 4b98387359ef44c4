"""A node's place in the metadata quorum: asyncio around `Raft`.

Everything that happens to Raft (a request, an answer, a lost connection, a finished flush, the passing of time) is one
plain call on the loop (`step`). What follows from it is done once in each turn of the loop (`_pump`):

- requests leave (`raft_channels`),
- what was appended in this turn is flushed with one fsync in a thread,
- parked fetches are looked at again (`parked_metadata_fetches`),
- committed batches become the next image (`image_publisher`),
- a checkpoint is written if one is due (`snapshotter`),
- whoever waits for any of this is woken up.

A node whose metadata directory fails, or whose quorum contradicts itself, stops taking part and reports it, and the node
ends. It never goes on with a state that is not on disk.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from ottla.broker.cluster import quorum_settings
from ottla.broker.cluster.describe_quorum import describe_quorum
from ottla.broker.cluster.image_publisher import DeferredAppends, ImagePublisher, notify
from ottla.broker.cluster.node_channels import DialledNode
from ottla.broker.cluster.parked_metadata_fetches import ParkedMetadataFetches
from ottla.broker.cluster.raft_channels import RaftChannels
from ottla.broker.cluster.snapshotter import Snapshotter
from ottla.config import Settings
from ottla.events.quorum import (
    BecameQuorumLeader,
    LostQuorumLeadership,
    MetadataRefused,
    MetadataTruncated,
    QuorumLeaderChanged,
    QuorumLeaderResigned,
    QuorumVotersChanged,
    ResignationCause,
    SnapshotInstalled,
    TwoQuorumLeaders,
    VoterCameOfAge,
)
from ottla.log.errors import FatalDirectory, LogDirError
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import SEPARABLE, MetadataRecord, encode
from ottla.raft.election_state import QuorumStateFile
from ottla.raft.format import METADATA_DIRECTORY, load_properties
from ottla.raft.journal import Journal, metadata_log_config
from ottla.raft.messages import AddVoter, QuorumAnswer, RemoveVoter, VoterChangeAnswer
from ottla.raft.outputs import Send
from ottla.raft.raft import Raft
from ottla.raft.replication import in_batches
from ottla.raft.voters import ReplicaKey, VoterSet
from ottla.runtime.seams import Runtime
from ottla.runtime.threads import in_thread
from ottla.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

FAREWELL_S_MAX = 0.5
"""How long a leader that stops waits until the others know."""

NO_VOTE_NEWS_S = 2.0
"""How often a voter without a vote says what it waits for."""

T = TypeVar("T")


class QuorumFailed(Exception):
    """This node has left the quorum for good."""


class RaftDriver:
    def __init__(self, settings: Settings, runtime: Runtime, cluster_id: str) -> None:
        self.node_id = settings.node_id
        self.cluster_id = cluster_id
        self.joins_by_itself = settings.controller_quorum_auto_join_enable
        self.failed: Exception | None = None
        self.on_leadership: list[Callable[[bool, int], None]] = []
        self.on_leader: list[Callable[[int | None, int], None]] = []
        self.on_failure: list[Callable[[Exception], None]] = []
        self.on_caught_up: list[Callable[[], None]] = []
        """Called once: the image has everything that was committed when this node started."""
        self._has_caught_up = False
        self._runtime = runtime
        self._directory = directory = settings.metadata_log_dir
        self.directory_id = load_properties(runtime.disk, directory).directory_id
        self._endpoint = quorum_settings.own_endpoint(settings)
        self._journal = Journal.open(
            runtime.disk,
            directory,
            static_voters=quorum_settings.static_voters(settings),
            config=metadata_log_config(
                settings.metadata_log_segment_bytes, settings.metadata_log_segment_ms
            ),
            now_ms=runtime.clock.wall_ms(),
        )
        self._raft = Raft(
            ReplicaKey(settings.node_id, self.directory_id),
            self._endpoint,
            self._journal,
            QuorumStateFile(runtime.disk, f"{directory}/{METADATA_DIRECTORY}"),
            runtime.random,
            runtime.clock.wall_ms,
            timing=quorum_settings.timing(settings),
            bootstrap=quorum_settings.bootstrap_endpoints(settings),
            may_join=self.joins_by_itself,
            events=runtime.events,
        )
        self._channels = RaftChannels(
            runtime.network,
            f"raft-client-{settings.node_id}",
            cluster_id,
            settings.controller_quorum_request_timeout_ms / 1000,
            on_answer=self._answered,
            on_failure=self._request_failed,
            on_disconnect=self._disconnected,
        )
        self.parked = ParkedMetadataFetches(self._raft)
        self._published = ImagePublisher(self._journal)
        self.on_image = self._published.on_image
        self._appends = DeferredAppends(runtime.events)
        self._snapshotter = Snapshotter(
            settings, runtime, self._journal, self._published, self.step
        )
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._active_epoch: int | None = None
        self._is_running = False
        self._is_pumping_soon = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._vote_news: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Future[int] | None = None

    # What others may know

    @property
    def raft(self) -> Raft:
        """Its requests go through `step`; all others only look at it."""
        return self._raft

    @property
    def image(self) -> MetadataImage:
        return self._published.image

    @property
    def image_timestamp_ms(self) -> int:
        """When the last record of the image was written."""
        return self._published.timestamp_ms

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

    def leader_endpoint(self) -> DialledNode | None:
        leader, where = self._raft.leader, self._raft.quorum.leader_endpoint()
        if leader is None or where is None:
            return None
        return DialledNode(leader, where.host, where.port)

    def describe(self) -> Mapping[str, Any]:
        """The fields of a DescribeQuorum response."""
        return describe_quorum(self._raft, self._runtime.clock)

    def now(self) -> float:
        return self._runtime.clock.monotonic()

    # Life

    async def start(self) -> None:
        self._published.load_snapshot()
        self._is_running = True
        self._snapshotter.restart()
        self.step(lambda: self._raft.start(self.now()))
        self._tell_of_missing_vote()

    @property
    def vote_waits_for(self) -> str | None:
        """Why this voter has no vote; None if it has one, or is no voter."""
        newborn = self._raft.quorum.newborn
        return None if newborn is None else newborn.waits_for(self.epoch, self.leader_id)

    @property
    def refusal(self) -> str | None:
        """Which quorum nodes refuse this node's requests, and why; None while nobody does."""
        return self._channels.refusal

    def _tell_of_missing_vote(self) -> None:
        """Again and again: whoever waits for this node is shown the last line of its log."""
        if self._is_running and (waits_for := self.vote_waits_for) is not None:
            logger.info(
                "no vote in the quorum yet, for the metadata directory was empty node=%d"
                " waits_for=%s",
                self.node_id,
                waits_for,
            )
            loop = asyncio.get_running_loop()
            self._vote_news = loop.call_later(NO_VOTE_NEWS_S, self._tell_of_missing_vote)

    async def stop(self) -> None:
        """A leader resigns first, so that the others can elect at once."""
        if self._is_running and self.failed is None and self._raft.is_leader:
            self.step(lambda: self._raft.resign(self.now()))
            epoch = self.epoch
            try:
                await self._until(
                    lambda: self._raft.all_know_of_resignation or self.epoch > epoch,
                    FAREWELL_S_MAX,
                )
            except (TimeoutError, QuorumFailed) as error:
                logger.info(
                    "resignation not acknowledged by all voters node=%d error=%s",
                    self.node_id,
                    error,
                )
        self._leave(KafkaError(ErrorCode.NOT_CONTROLLER, f"node {self.node_id} is stopping"))
        for work in (self._flushing, self._snapshotter.writing):
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
        if self._vote_news is not None:
            self._vote_news.cancel()
        self._channels.close()
        self.parked.drop_all()
        self._end_leadership()
        self._appends.fail_all(reason)
        for _, waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(QuorumFailed(str(reason)))
        self._waiting.clear()

    def _fail(self, error: Exception) -> None:
        """Called while `error` is handled."""
        if self.failed is not None:
            return
        if isinstance(error, LogDirError | OSError):
            cause = error.cause if isinstance(error, LogDirError) else error
            self.failed = FatalDirectory(self._directory, cause)
        else:
            self.failed = QuorumFailed(f"the metadata quorum contradicts itself: {error!r}")
            self.failed.__cause__ = error
            logger.critical(
                "the metadata quorum contradicts itself, the node ends error=%s",
                error,
                exc_info=True,
            )
        self._leave(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(self.failed)))
        notify(self.on_failure, self.failed)

    async def until_failure(self) -> None:
        """Wait until this node has left the quorum, and raise why."""
        with suppress(QuorumFailed):
            await self._until(lambda: False, None)
        if self.failed is not None:
            raise self.failed

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

    def step(self, call: Callable[[], T]) -> T | None:
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
            self._channels.send(send, raft.address(send.peer))
        self._handle_events()
        self._flush_soon()
        self.parked.serve(self.now())
        self._handle_events()  # a parked fetch, looked at again, may have moved the high watermark
        self._apply_committed()
        self._begin_leadership()
        self._note_catching_up()
        self._snapshotter.write_if_due()
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
            wait = max(0.0, deadline - self.now())
            self._timer = asyncio.get_running_loop().call_later(wait, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self.step(lambda: self._raft.tick(self.now()))

    def _answered(self, send: Send, answer: QuorumAnswer) -> None:
        self.step(lambda: self._raft.answered(send, answer, self.now()))

    def _request_failed(self, send: Send) -> None:
        self.step(lambda: self._raft.request_failed(send, self.now()))

    def _disconnected(self, peer: int) -> None:
        self.step(lambda: self._raft.peer_disconnected(peer, self.now()))

    def _handle_events(self) -> None:
        node = self.node_id
        for event in _drained(self._raft.events):
            match event:
                case QuorumLeaderChanged(epoch=epoch, leader=leader):
                    if leader is None:
                        logger.info("quorum has no leader node=%d epoch=%d", node, epoch)
                    else:
                        logger.info(
                            "quorum has a leader node=%d epoch=%d leader=%d", node, epoch, leader
                        )
                    notify(self.on_leader, leader, epoch)
                case BecameQuorumLeader(epoch=epoch):
                    logger.info("became quorum leader node=%d epoch=%d", node, epoch)
                case LostQuorumLeadership(epoch=epoch):
                    logger.info("lost quorum leadership node=%d epoch=%d", node, epoch)
                    self._end_leadership()
                    self._appends.fail_all(
                        KafkaError(ErrorCode.NOT_CONTROLLER, f"leadership of epoch {epoch} is lost")
                    )
                case QuorumVotersChanged(voters=voters):
                    logger.info("voters changed node=%d voters=%s", node, ",".join(voters))
                case QuorumLeaderResigned(epoch=epoch, cause=ResignationCause.REMOVED):
                    logger.info("resigned, being no voter any more node=%d epoch=%d", node, epoch)
                case MetadataTruncated(from_offset=old, to_offset=new):
                    logger.info(
                        "truncated metadata log node=%d from_offset=%d to_offset=%d", node, old, new
                    )
                case SnapshotInstalled():
                    if self._published.load_snapshot():
                        self._snapshotter.restart()
                case TwoQuorumLeaders(epoch=epoch, known=known, named=named):
                    logger.warning(
                        "another quorum leader was named and not believed node=%d epoch=%d known=%d "
                        "named=%d",
                        node,
                        epoch,
                        known,
                        named,
                    )
                case VoterCameOfAge():
                    if self._vote_news is not None:
                        self._vote_news.cancel()
                    logger.info("voter has its vote in the quorum node=%d", node)
                case MetadataRefused(why=why):
                    logger.warning("refused metadata from the leader node=%d error=%s", node, why)

    def _flush_soon(self) -> None:
        if self._flushing is not None or not self._journal.needs_flush:
            return
        plan = self._journal.flush_plan()
        self._flushing = in_thread(plan)
        self._flushing.add_done_callback(self._flush_done)

    def _flush_done(self, flush: asyncio.Future[int]) -> None:
        self._flushing = None
        if not flush.cancelled():
            self.step(lambda: self._raft.flushed(flush.result(), self.now()))

    def _apply_committed(self) -> None:
        published, journal = self._published, self._journal
        if published.end_offset < journal.high_watermark:
            self._snapshotter.applied(published.apply_committed())
            self._appends.complete_up_to(published.end_offset)
            if published.end_offset < journal.high_watermark:
                self._pump_soon()

    def _note_catching_up(self) -> None:
        if self._has_caught_up:
            return
        first = self._raft.first_high_watermark
        if self.is_active or (first is not None and self._published.end_offset >= first):
            self._has_caught_up = True
            notify(self.on_caught_up)

    # The active controller's side

    def append(self, records: Sequence[MetadataRecord]) -> tuple[int, asyncio.Future[int]]:
        """Write one atomic batch, or several if one cannot hold them all and the records need not stand together. The
        first offset, and a future that resolves to it when all of it is committed and in the image. KafkaError 41
        at once, or later, if this node does not lead; RECORD_LIST_TOO_LARGE at once, and nothing is written."""
        values = [encode(record) for record in records]
        groups = list(in_batches(values))
        if len(groups) > 1 and not all(isinstance(record, SEPARABLE) for record in records):
            groups = [values]  # which is refused

        def write() -> tuple[int, int]:
            written = [self._raft.append(group) for group in groups]
            return written[0][0], written[-1][1]

        return self._append(write)

    def _append(self, write: Callable[[], tuple[int, int]]) -> tuple[int, asyncio.Future[int]]:
        """`write` returns where what it wrote begins and ends."""
        if not self._is_running:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"node {self.node_id} is not in the quorum")
        try:
            first, end = write()
        except KafkaError:
            raise
        except Exception as error:
            self._fail(error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        done = self._appends.add(first, end)
        self._pump_soon()
        return first, done

    def check_kraft_version(self, version: int) -> None:
        """Raises why kraft.version cannot become `version`."""
        self._raft.check_kraft_version(version)

    def upgrade_kraft_version(self, version: int) -> asyncio.Future[int]:
        """From static voters to voters in the log. A future that resolves when that is committed."""
        _, done = self._append(lambda: self._raft.upgrade_kraft_version(version, self.now()))
        logger.info("upgraded the quorum node=%d kraft_version=%d", self.node_id, version)
        return done

    async def change_voters(self, request: AddVoter | RemoveVoter) -> VoterChangeAnswer:
        """Ask this node, which has to lead, for a change. Returns when the change is decided, or has taken too long."""
        change = self.step(lambda: self._raft.handle_voter_change(request, self.now()))
        if change is None:
            why = f"node {self.node_id} is not in the quorum"
            return VoterChangeAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER, why)
        try:
            await self._until(lambda: change.answer is not None, None)
        except QuorumFailed as error:
            return VoterChangeAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(error))
        assert change.answer is not None
        return change.answer

    def _begin_leadership(self) -> None:
        """Active once a record of the own epoch is committed and applied."""
        leader_state = self._raft.leader_state
        if leader_state is None or self._active_epoch is not None:
            return
        if self._published.end_offset > leader_state.start_offset:
            self._active_epoch = self.epoch
            notify(self.on_leadership, True, self.epoch)

    def _end_leadership(self) -> None:
        epoch, self._active_epoch = self._active_epoch, None
        if epoch is not None:
            notify(self.on_leadership, False, epoch)


def _drained(items: list[T]) -> list[T]:
    taken = items[:]
    items.clear()
    return taken
