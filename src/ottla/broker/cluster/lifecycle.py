"""A broker's lifecycle with the controller: registration, heartbeats, controlled shutdown.

    STARTING -> RECOVERY -> RUNNING -> PENDING_CONTROLLED_SHUTDOWN -> SHUTTING_DOWN

STARTING ends when the broker has applied the metadata up to its own registration. RECOVERY ends when its logs are
ready and the controller has unfenced it. Heartbeats use a connection of their own that stays open: answers to other
requests never delay them, and when it closes the controller knows that this process is gone.

A heartbeat is sent every `broker.heartbeat.interval.ms`. It is sent at once after a lost connection, to a new
controller, after a disk failure, while the broker waits to be unfenced or to stop, and while another broker stops:
that broker waits until the controller knows that all others have applied its shutdown.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from math import inf
from typing import Any, Protocol
from uuid import UUID

from ottla.broker.cluster import short_log_dirs
from ottla.broker.cluster.controller_channel import ControllerChannel, LeaderInfo
from ottla.broker.server.deadlines import is_set_within
from ottla.config import ListenerAddress, Settings
from ottla.log.room import DirectoryRoom
from ottla.metadata.features import supported_ranges
from ottla.metadata.image import Delta, MetadataImage
from ottla.runtime import Runtime
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.types import TopicPartition

__all__ = ["BrokerLifecycle", "BrokerState", "RegistrationRefused"]

logger = logging.getLogger(__name__)

WAITING_INTERVAL_S = 0.05
"""Interval of heartbeats while their outcome is awaited, unless the metadata changes first."""
HEARTBEATS_MISSED = 2
"""After this many intervals without an answer the broker's leaderships are in doubt."""
REGISTER_RETRY_S = 0.05
NOT_ALLOWED = (
    "the controller refused this broker: CLUSTER_AUTHORIZATION_FAILED; its principal needs an ACL for"
    " CLUSTER_ACTION on the cluster, or must be one of super.users"
)
REFUSED_HINTS = {
    ErrorCode.INVALID_REGISTRATION: "; its certificate may be that of another node, or its directories of another broker:"
    " the log of the active controller says which",
}
SILENCE_MAX_S = 2.0
"""A stopping broker that gets no answer from any controller for this long stops without permission."""


class BrokerState(Enum):
    NOT_RUNNING = "not started"
    STARTING = "registering, and catching up with the metadata"
    RECOVERY = "caught up; making its logs ready, then waiting to be unfenced"
    RUNNING = "unfenced"
    PENDING_CONTROLLED_SHUTDOWN = "waiting until its leaderships are handed over"
    SHUTTING_DOWN = "done with the controller"


class RegistrationRefused(Exception):
    """The cluster refuses this broker, and a retry would not help."""


class Directories(Protocol):
    """The part of the log manager that registrations and heartbeats need."""

    @property
    def previous_broker_epoch(self) -> int: ...

    @property
    def directory_ids(self) -> Mapping[str, UUID]: ...

    @property
    def offline_directories(self) -> Collection[str]: ...

    @property
    def on_offline(self) -> list[Callable[[str, list[TopicPartition]], None]]: ...

    @property
    def cordoned(self) -> Collection[str]: ...

    @property
    def rooms(self) -> Mapping[str, DirectoryRoom]: ...

    @property
    def on_room(self) -> list[Callable[[DirectoryRoom], None]]: ...


class MetadataSource(LeaderInfo, Protocol):
    """The part of the quorum that a broker's lifecycle needs."""

    on_image: list[Callable[[MetadataImage, Delta], None]]

    @property
    def image(self) -> MetadataImage: ...

    @property
    def cluster_id(self) -> str: ...

    @property
    def refusal(self) -> str | None:
        """Why the quorum does not tell this node anything; None as far as is known."""


class BrokerLifecycle:
    def __init__(
        self,
        settings: Settings,
        runtime: Runtime,
        quorum: MetadataSource,
        logs: Directories,
        to_controller: ControllerChannel,
        endpoints: Mapping[str, ListenerAddress],
    ) -> None:
        """`endpoints` are the addresses to register, by listener name; controller listeners are left
        out."""
        self.state = BrokerState.NOT_RUNNING
        self.broker_epoch = -1
        self.ready = asyncio.Event()
        """Set while this broker is unfenced."""
        self.caught_up = asyncio.Event()
        """Set once the metadata is applied up to our registration."""
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Fails with RegistrationRefused when the cluster refuses this broker, else with why the node cannot go on."""
        self._settings = settings
        self._clock = runtime.clock
        self._quorum = quorum
        self._logs = logs
        controllers = settings.controller_listener_names
        self._endpoints = [at for name, at in endpoints.items() if name not in controllers]
        self._incarnation = UUID(int=runtime.random.getrandbits(128), version=4)
        self._to_controller = to_controller
        self._heartbeats = ControllerChannel(settings, runtime, quorum)
        self._logs_ready = False
        self._wake = asyncio.Event()
        self._may_stop = asyncio.Event()
        self._last_answer_at = 0.0
        self._was_unfenced_at = -inf
        """When the last heartbeat was sent that the controller answered with "unfenced"."""
        self._task: asyncio.Task[None] | None = None
        self.load: Callable[[], str] = str
        """What this broker carries, as text. It goes with every heartbeat."""
        self._loads: asyncio.Future[str] | None = None
        """Somebody waits for what the controller knows of all brokers."""

    def start(self) -> None:
        """Progress shows in `caught_up` and `ready`, failure in `failed`."""
        self.state = BrokerState.STARTING
        self._quorum.on_image.append(self._image_changed)
        self._quorum.on_leader.append(self._leader_changed)
        self._heartbeats.on_lost.append(self.heartbeat_soon)
        self._logs.on_offline.append(self._directory_failed)
        self._logs.on_room.append(self._room_changed)
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(self._ended)

    def logs_are_ready(self) -> None:
        """Allow this broker to be unfenced."""
        self._logs_ready = True
        self.heartbeat_soon()

    async def controlled_shutdown(self) -> bool:
        """Hand over leaderships and leave. Returns whether the controller agreed. After the time limit the broker
        stops without its agreement, and the controller fences it."""
        living = self._task is not None and not self._task.done() and self.broker_epoch >= 0
        if living and self._settings.controlled_shutdown_enable:
            self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
            self._last_answer_at = self._clock.monotonic()
            self.heartbeat_soon()
            await self._wait_for_leave(self._settings.ottla_controlled_shutdown_timeout_ms / 1000)
        await self.stop()
        return self._may_stop.is_set()

    async def stop(self) -> None:
        """Stop without asking. The controller notices when the connection closes."""
        self.state = BrokerState.SHUTTING_DOWN
        self.ready.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
            self._quorum.on_image.remove(self._image_changed)
            self._quorum.on_leader.remove(self._leader_changed)
            self._logs.on_offline.remove(self._directory_failed)
            self._logs.on_room.remove(self._room_changed)
        await self._heartbeats.stop()

    def heartbeat_soon(self) -> None:
        """Send the next heartbeat now: it, or its answer, carries a change."""
        self._wake.set()

    async def cluster_loads(self, timeout_s: float) -> str:
        """What the active controller knows that each broker carries; empty if it knows nothing, as Apache Kafka's. The
        next heartbeat asks for it. TimeoutError if no controller answers."""
        if self._loads is None or self._loads.done():
            self._loads = asyncio.get_running_loop().create_future()
            self.heartbeat_soon()
        async with asyncio.timeout(timeout_s):
            return await asyncio.shield(self._loads)

    # Events that make a heartbeat due at once

    def _image_changed(self, image: MetadataImage, delta: Delta) -> None:
        stopping = any(
            broker.in_controlled_shutdown and not broker.fenced for broker in image.brokers.values()
        )
        if stopping or self.state is not BrokerState.RUNNING:
            self._wake.set()

    def _leader_changed(self, leader: int | None, epoch: int) -> None:
        if leader is not None:
            self._wake.set()

    def _directory_failed(self, directory: str, logs: list[TopicPartition]) -> None:
        self._wake.set()

    def _room_changed(self, room: DirectoryRoom) -> None:
        self._wake.set()

    @property
    def is_in_doubt(self) -> bool:
        """Whether the controller has not answered for longer than usual. It may have elected other leaders for the
        partitions that this broker leads."""
        silence_s = self._clock.monotonic() - self._was_unfenced_at
        return silence_s > HEARTBEATS_MISSED * self._settings.broker_heartbeat_interval_ms / 1000

    # The loop

    async def _run(self) -> None:
        while True:
            if self.broker_epoch < 0:
                await self._register()
            self._wake.clear()
            await self._heartbeat()
            await self._rest()

    async def _rest(self) -> None:
        interval = self._settings.broker_heartbeat_interval_ms / 1000
        if self.state is not BrokerState.RUNNING and self._has_a_disk:
            interval = min(interval, WAITING_INTERVAL_S)
        await is_set_within(self._wake, interval)

    @property
    def _has_a_disk(self) -> bool:
        """A broker without a working disk is fenced, and ends."""
        offline = self._logs.offline_directories
        return any(path not in offline for path in self._logs.directory_ids)

    async def _register(self) -> None:
        end = self._clock.monotonic() + self._settings.initial_broker_registration_timeout_ms / 1000
        why = "no controller registered this broker in time"
        while True:
            remaining = end - self._clock.monotonic()
            if remaining <= 0:
                refusal = self._quorum.refusal
                raise RegistrationRefused(why if refusal is None else f"{why}; {refusal}")
            try:
                answer = await self._to_controller.request(
                    ApiKey.BROKER_REGISTRATION, self._registration(), timeout_s=remaining
                )
            except TimeoutError:
                continue
            error = ErrorCode(int(answer.error_code))
            if error is ErrorCode.NONE:
                self.broker_epoch = answer.broker_epoch
                logger.info("registered with the controller broker_epoch=%d", self.broker_epoch)
                return
            if error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                # A controller that has not read its ACLs yet lets only super users through.
                if why is not NOT_ALLOWED:
                    why = NOT_ALLOWED
                    logger.warning(
                        "registration refused, trying again for_s=%.0f reason=%s",
                        remaining,
                        NOT_ALLOWED,
                    )
            elif error is not ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                hint = REFUSED_HINTS.get(error, "")
                raise RegistrationRefused(f"the controller refused this broker: {error.name}{hint}")
            # Otherwise the controller has not noticed yet that the previous process is gone.
            await asyncio.sleep(REGISTER_RETRY_S)

    def _registration(self) -> dict[str, Any]:
        offline = self._logs.offline_directories
        return {
            "broker_id": self._settings.node_id,
            "cluster_id": self._quorum.cluster_id,
            "incarnation_id": self._incarnation,
            "listeners": [
                {
                    "name": at.name,
                    "host": at.host,
                    "port": at.port,
                    "security_protocol": self._settings.security[at.name].number,
                }
                for at in self._endpoints
            ],
            "features": [
                {
                    "name": feature.name,
                    "min_supported_version": feature.min_supported_version,
                    "max_supported_version": feature.max_supported_version,
                }
                for feature in supported_ranges()
            ],
            "rack": self._settings.rack,
            "is_migrating_zk_broker": False,
            "log_dirs": [
                id for path, id in self._logs.directory_ids.items() if path not in offline
            ],
            "previous_broker_epoch": self._logs.previous_broker_epoch,
            "ottla_log_dirs_away": b"%d" % len(offline) if offline else b"",
        }

    async def _heartbeat(self) -> None:
        stopping = self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
        offline = self._logs.offline_directories
        fields = {
            "broker_id": self._settings.node_id,
            "broker_epoch": self.broker_epoch,
            "current_metadata_offset": self._quorum.image.offset,
            "want_fence": self.state is BrokerState.STARTING
            or not self._logs_ready
            or not self._has_a_disk,
            "want_shut_down": stopping,
            "offline_log_dirs": [
                id for path, id in self._logs.directory_ids.items() if path in offline
            ],
            "ottla_short_log_dirs": short_log_dirs.written(
                (self._logs.directory_ids[path], room.level)
                for path, room in self._logs.rooms.items()
                if path not in offline
            ),
        }
        if self.state is not BrokerState.STARTING:
            # What the metadata says is known by now.
            fields["cordoned_log_dirs"] = [
                id for path, id in self._logs.directory_ids.items() if path in self._logs.cordoned
            ]
        if load := self.load():
            fields["ottla_load"] = load.encode()
        asking = self._loads
        if asking is not None and not asking.done():
            fields["ottla_asks"] = b"loads"
        asked_at = self._clock.monotonic()
        try:
            answer = await self._heartbeats.request(
                ApiKey.BROKER_HEARTBEAT,
                fields,
                timeout_s=self._settings.broker_session_timeout_ms / 1000,
            )
        except TimeoutError:
            logger.warning(
                "no controller answered the heartbeat broker_epoch=%d", self.broker_epoch
            )
            return
        self._last_answer_at = self._clock.monotonic()
        if asking is not None and not asking.done() and not answer.error_code:
            asking.set_result(answer.ottla_loads.decode())
        if not (answer.error_code or answer.is_fenced):
            self._was_unfenced_at = asked_at
        self._answered(ErrorCode(int(answer.error_code)), answer, asked_to_stop=stopping)

    def _answered(self, error: ErrorCode, answer: Any, *, asked_to_stop: bool) -> None:
        if error is ErrorCode.STALE_BROKER_EPOCH:
            logger.info("stale broker epoch, registering again broker_epoch=%d", self.broker_epoch)
            self.broker_epoch = -1
            self.ready.clear()
            if not asked_to_stop:
                self.state = BrokerState.STARTING
            self._wake.set()
            return
        if error is not ErrorCode.NONE:
            logger.warning(
                "heartbeat refused broker_epoch=%d error=%s", self.broker_epoch, error.name
            )
            return
        if asked_to_stop:
            if answer.should_shut_down:
                self._may_stop.set()
        elif self.state is BrokerState.STARTING and answer.is_caught_up:
            self.state = BrokerState.RECOVERY
            self.caught_up.set()
            self._wake.set()
        elif self.state is BrokerState.RECOVERY and not answer.is_fenced:
            self.state = BrokerState.RUNNING
            self.ready.set()
            logger.info("unfenced broker_epoch=%d", self.broker_epoch)
        elif self.state is BrokerState.RUNNING and answer.is_fenced:
            self.state = BrokerState.RECOVERY
            self.ready.clear()
            logger.warning(
                "fenced by the controller, asking to be unfenced broker_epoch=%d", self.broker_epoch
            )

    async def _wait_for_leave(self, limit: float) -> None:
        end = self._clock.monotonic() + limit
        while not self._may_stop.is_set():
            now = self._clock.monotonic()
            if now >= end or now - self._last_answer_at > SILENCE_MAX_S:
                logger.warning(
                    "stopping without the controller's permission, leaders move when it fences this broker "
                    "broker_epoch=%d",
                    self.broker_epoch,
                )
                return
            await is_set_within(self._may_stop, WAITING_INTERVAL_S)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("broker lifecycle ended error=%s", error)
            if not self.failed.done():
                self.failed.set_exception(error)
                self.failed.exception()  # logged above, so asyncio need not report it
