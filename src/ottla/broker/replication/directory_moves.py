"""Moves of replicas between the log directories of this broker (AlterReplicaLogDirs, KIP-113 and KIP-858).

For each there is a future log in the other directory and a task that fills it, chunk by chunk. Threads read and append, so
that nobody waits for a disk meanwhile. When nearly all is copied, the controller is told the new directory. When the
metadata names it, the little that is left is copied in one turn of the event loop, and the future log takes the place of the
current one. Whatever ends a move before that leaves the replica as it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ottla.broker.replication.listener import ReplicaListener
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.server.deadlines import is_set_within
from ottla.broker.server.quotas import Meter, Window
from ottla.config.node_settings import Settings
from ottla.config.values import LONG_MAX
from ottla.events import Events
from ottla.events.storage import DirectoryMove, MoveStep
from ottla.log.errors import InMemory, LogDirError, NotInMemory
from ottla.log.future_logs import is_too_long
from ottla.log.log import Log
from ottla.log.room import Level
from ottla.metadata.image import TopicImage
from ottla.replica import relocation
from ottla.replica.partition import Partition
from ottla.runtime import Clock
from ottla.runtime.threads import in_thread
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.types import TopicPartition

logger = logging.getLogger(__name__)

T = TypeVar("T")

CHUNK_BYTES = 256 * 1024
"""Read, checked and appended at a time, or one batch if that is larger. So little is also copied last, in one turn of the
event loop."""
FLUSH_EVERY_BYTES = 32 * 1024 * 1024
"""The last flush must not take long."""
WAIT_S = 0.1
"""How often a future log that waits for the controller, or for room, is brought up to date."""
REST_MAX_S = 1.0
"""The rate may be raised while a move rests."""
PROMISE_S = 5.0
"""A promise is kept, or taken back."""


class DirectoryMoveThrottle:
    """replica.alter.log.dirs.io.max.bytes.per.second, for all moves of this broker together."""

    def __init__(self, settings: Settings) -> None:
        window = Window(
            settings.alter_log_dirs_replication_quota_window_num,
            settings.alter_log_dirs_replication_quota_window_size_seconds,
        )
        self._copied = Meter(window, allows_burst=False)
        self.rate = settings.replica_alter_log_dirs_io_max_bytes_per_second

    def copied(self, size: int, now: float) -> None:
        if self.rate != LONG_MAX:
            self._copied.record(size, now)

    @property
    def chunk_bytes(self) -> int:
        """No more than may be copied in a second."""
        return max(1, min(CHUNK_BYTES, self.rate))

    def rest(self, now: float) -> float:
        """Seconds until more may be copied."""
        return 0.0 if self.rate == LONG_MAX else self._copied.delay(max(self.rate, 1), now)


class _Move:
    """One, from its first byte until it is done or given up."""

    def __init__(self, partition: Partition, future: Log, now: float) -> None:
        self.partition = partition
        self.key = partition.key
        self.source = partition.log.directory
        self.future = future
        self.wake = asyncio.Event()
        self.is_over = False
        self.unflushed = 0
        """Bytes that were copied since the last flush."""
        self.is_flushed = False
        """With all that the current log held, once, by this process."""
        self.is_flushed_again = False
        """After the controller has answered."""
        self.near_at = now
        """When the future log last held nearly all, and had room for the rest."""


class DirectoryMoves(ReplicaListener):
    def __init__(
        self, settings: Settings, clock: Clock, replicas: ReplicaManager, events: Events
    ) -> None:
        self.throttle = DirectoryMoveThrottle(settings)
        self.under_way: dict[TopicPartition, _Move] = {}
        self._clock = clock
        self._replicas = replicas
        self._logs = replicas.logs
        self._events = events
        threads = settings.num_replica_alter_log_dirs_threads or len(replicas.logs.directories)
        self._turns = asyncio.Semaphore(threads)
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._in_threads: dict[asyncio.Future[None], None] = {}
        replicas.listeners.append(self)
        self._logs.on_offline.append(self._directory_failed)

    def resume(self) -> None:
        """At the start: what the last process did not finish."""
        for key, future in list(self._logs.futures.items()):
            partition = self._replicas.partitions.get(key)
            if partition is not None:
                self._begin(partition, future)

    async def stop(self) -> None:
        """Wait for threads, because the logs are closed next. The next process goes on."""
        for move in self.under_way.values():
            move.is_over = True
            move.wake.set()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))
        if self._in_threads:
            await asyncio.wait(list(self._in_threads))
        self._logs.on_offline.remove(self._directory_failed)

    # What clients ask for

    def alter(self, key: TopicPartition, directory: str) -> ErrorCode:
        """Move this replica there. In Kafka's order (ReplicaManager.alterReplicaLogDirs)."""
        try:
            self._alter(key, directory)
        except LogDirError as error:
            code, cause = self._replicas.directory_failed(error).code, str(error)
        except KafkaError as error:
            code, cause = error.code, error.message
        else:
            return ErrorCode.NONE
        logger.warning(
            "replica is not moved partition=%s-%d path=%s error=%s cause=%s",
            *key,
            directory,
            code.name,
            cause,
        )
        return code

    def _alter(self, key: TopicPartition, directory: str) -> None:
        logs = self._logs
        if is_too_long(key):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
        if directory not in logs.directories:
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, "it is not in log.dirs")
        if directory in logs.offline_directories:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the log directory is offline")
        current = logs.logs.get(key)
        stays = current is not None and current.directory == directory
        if directory in logs.cordoned and not stays:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the log directory is cordoned")
        move = self.under_way.get(key)
        if move is not None and move.future.directory != directory:
            self._end(move, MoveStep.CANCELLED, f"it is to lie in {directory}")
            logs.delete_future(key, self._clock.wall_ms())
        if self._replicas.placement.is_unavailable(key):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the replica is offline")
        lies_in = {log.directory for logs_ in (logs.logs, logs.futures) if (log := logs_.get(key))}
        if directory not in lies_in:
            logs.preferred[key] = directory
        found = self._replicas.find(key.topic, None, key.partition)
        if isinstance(found, ErrorCode):
            # Kafka's answer of old for a replica that is not here.
            is_elsewhere = found is ErrorCode.NOT_LEADER_OR_FOLLOWER
            raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE if is_elsewhere else found)
        if directory in lies_in:
            return
        if logs.offline_directories:
            # A future log of it may lie there.
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "another log directory is offline")
        self._begin(found, logs.create_future(found.log, directory, self._clock.wall_ms()))

    # From the first byte to the last

    def _begin(self, partition: Partition, future: Log) -> None:
        move = _Move(partition, future, self._clock.monotonic())
        self.under_way[move.key] = move
        logger.info(
            "moving replica partition=%s-%d from=%s to=%s", *move.key, move.source, future.directory
        )
        self._tell(move, MoveStep.STARTED)
        task = asyncio.get_running_loop().create_task(self._run(move))
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _run(self, move: _Move) -> None:
        try:
            while not move.is_over and not await self._step(move):
                pass
        except LogDirError as error:
            if not move.is_over:
                self._replicas.directory_failed(error)
        except KafkaError as error:
            # A batch of the current log is damaged, or is larger than any segment may be.
            self._give_up(move, str(error))
        except Exception as error:
            logger.exception("move of a replica failed partition=%s-%d", *move.key)
            self._give_up(move, repr(error))

    def _give_up(self, move: _Move, why: str) -> None:
        """The replica stays as it is, and may be asked to move again."""
        if not move.is_over:
            self._end(move, MoveStep.FAILED, why)
            self._logs.delete_future(move.key, self._clock.wall_ms())

    async def _step(self, move: _Move) -> bool:
        """Copy a chunk, or wait, or finish. Returns whether the move is done."""
        future = move.future
        self._take_back_old_promise(move)
        rest_s = min(self.throttle.rest(self._clock.monotonic()), REST_MAX_S)
        if self._logs.rooms[future.directory].level is not Level.AMPLE:
            rest_s = max(rest_s, WAIT_S)
        if rest_s > 0.0:
            await self._wait(move, rest_s)
            return False
        async with self._turns:
            if self.throttle.rest(self._clock.monotonic()) > 0.0:
                return False  # of those that waited together, others had their turn first
            is_near = await self._copy(move)
            # As many files are open as there are turns, not as there are moves.
            future.resources.files.forget_all()
        if not is_near or move.is_over:
            return False
        move.near_at = self._clock.monotonic()
        if not self._is_promised(move):
            self._promise(move)
        elif not self._is_named(move):
            await self._wait(move, WAIT_S)
        elif move.unflushed <= CHUNK_BYTES or move.is_flushed_again:
            return self._finish(move)
        return False

    async def _copy(self, move: _Move) -> bool:
        """A chunk, flushed now and then, and for the end. Returns whether nearly all is there, and on disk."""
        await self._copy_chunk(move)
        if move.is_over:
            return False
        is_near = relocation.behind(move.partition.log, move.future) <= self.throttle.chunk_bytes
        if is_near and not move.is_flushed:
            self._copy_rest(move)
            await self._flush(move)
            move.is_flushed = True
            return False
        is_last = is_near and self._is_promised(move) and self._is_named(move)
        if is_last and move.unflushed > CHUNK_BYTES and not move.is_flushed_again:
            await self._flush(move)
            move.is_flushed_again = True
            return False
        if move.unflushed >= FLUSH_EVERY_BYTES:
            await self._flush(move)
        return is_near

    async def _copy_chunk(self, move: _Move) -> None:
        current, future = move.partition.log, move.future
        in_memory = InMemory()
        while not move.is_over:
            try:
                chunk = relocation.next_chunk(current, future, self.throttle.chunk_bytes, in_memory)
            except NotInMemory as missing:
                cold = missing.range
                await self._in_thread(partial(cold.file.bring, cold.position, cold.size), current)
                in_memory = missing.then
                continue
            break
        else:
            return
        if chunk is None:
            return
        records = await self._in_thread(chunk.range.read, current)
        if move.is_over or current.generation != chunk.generation:
            return
        write = partial(relocation.append, future, records, chunk.epoch)
        if future.log_end == future.log_start:
            size = write()
        else:
            size = await self._in_thread(write, future)
        self._copied(move, size)

    def _copy_rest(self, move: _Move) -> None:
        self._copied(move, relocation.copy_rest(move.partition.log, move.future, CHUNK_BYTES))

    def _copied(self, move: _Move, size: int) -> None:
        move.unflushed += size
        self.throttle.copied(size, self._clock.monotonic())
        room = self._logs.rooms[move.future.directory]
        room.left -= size
        if room.left < 0 and not move.is_over:
            room.look()

    async def _flush(self, move: _Move) -> None:
        if move.is_over:
            return
        future = move.future
        plan, doomed = future.flush_plan(), future.doomed_by(LONG_MAX)
        move.unflushed = 0

        def run() -> int:
            for path in doomed:
                future.disk.remove(path)
            return plan()

        flushed = await self._in_thread(run, future)
        if not move.is_over:
            future.flushed(flushed)

    def _finish(self, move: _Move) -> bool:
        """All that is left, in one turn of the event loop: nothing comes in between."""
        partition, future = move.partition, move.future
        if relocation.behind(partition.log, future) > self.throttle.chunk_bytes:
            return False
        self._copy_rest(move)
        relocation.flush_as(partition.log, future)
        log = self._logs.promote(move.key, self._clock.wall_ms())
        partition.log_moved(log)
        self._end(move, MoveStep.COMPLETED)
        return True

    # What the controller knows

    def _promise(self, move: _Move) -> None:
        ids = self._logs.directory_ids
        self._replicas.placement.promised[move.key] = ids[move.future.directory]
        self._replicas.placement_changed(move.partition)

    def _take_back_old_promise(self, move: _Move) -> None:
        """The future log fell behind, or its disk is full. While the metadata names a directory that does not hold all, the
        replica would be taken for one that lies there: if that disk is full it could not stay in the ISR."""
        if not self._is_promised(move):
            return
        if self._clock.monotonic() - move.near_at > PROMISE_S:
            logger.warning(
                "promise of a moving replica is taken back partition=%s-%d path=%s",
                *move.key,
                move.future.directory,
            )
            move.is_flushed = move.is_flushed_again = False
            del self._replicas.placement.promised[move.key]
            self._replicas.placement_changed(move.partition)

    def _is_promised(self, move: _Move) -> bool:
        return move.key in self._replicas.placement.promised

    def _is_named(self, move: _Move) -> bool:
        """Whether the metadata names the new directory: so it also does after a crash."""
        partition = move.partition
        topic = self._replicas.image.topics_by_id.get(partition.topic_id)
        if topic is None:
            return False
        decision = topic.partitions[partition.partition]
        node_id = partition.config.node_id
        if node_id not in decision.replicas:
            return False
        named = decision.directories[decision.replicas.index(node_id)]
        return named == self._logs.directory_ids[move.future.directory]

    def placement_changed(self, topic: TopicImage, number: int) -> None:
        move = self.under_way.get(TopicPartition(topic.name, number))
        if move is not None:
            move.wake.set()

    # How a move ends

    def replica_removed(self, partition: Partition) -> None:
        """Deleted, reassigned, damaged, or its disk failed. In the last case the files of the future log stay."""
        move = self.under_way.get(partition.key)
        if move is None:
            return
        offline = self._logs.offline_directories
        if move.source in offline:
            self._end(move, MoveStep.FAILED, "the log directory that it leaves is offline")
            if move.key in self._logs.futures:
                self._logs.abandon_future(move.key)
        else:
            self._end(move, MoveStep.CANCELLED, "the replica is not here any more")
            if move.key in self._logs.futures:
                self._logs.delete_future(move.key, self._clock.wall_ms())

    def _directory_failed(self, directory: str, _lost: list[TopicPartition]) -> None:
        for move in list(self.under_way.values()):
            if move.future.directory == directory:
                self._end(move, MoveStep.FAILED, "the log directory that it moves to is offline")

    def _end(self, move: _Move, step: MoveStep, cause: str | None = None) -> None:
        move.is_over = True
        move.wake.set()
        del self.under_way[move.key]
        self._replicas.placement.promised.pop(move.key, None)
        logger.log(
            logging.INFO if cause is None else logging.WARNING,
            "move of a replica ended partition=%s-%d from=%s to=%s step=%s cause=%s",
            *move.key,
            move.source,
            move.future.directory,
            step,
            cause,
        )
        self._tell(move, step, cause)
        self._replicas.placement_changed(move.partition)

    def _tell(self, move: _Move, step: MoveStep, cause: str | None = None) -> None:
        if DirectoryMove in self._events:
            self._events.emit(
                DirectoryMove(
                    move.key, step, move.source, move.future.directory, move.future.log_end, cause
                )
            )

    # Threads and time

    async def _wait(self, move: _Move, seconds: float) -> None:
        move.wake.clear()
        await is_set_within(move.wake, seconds)

    async def _in_thread(self, work: Callable[[], T], log: Log) -> T:
        """LogDirError if the disk of this log fails."""
        running = in_thread(work)
        self._in_threads[running] = None  # type: ignore[index]
        running.add_done_callback(lambda done: self._in_threads.pop(done, None))  # type: ignore
        try:
            return await asyncio.shield(running)
        except OSError as error:
            raise LogDirError(log.directory, error) from error
