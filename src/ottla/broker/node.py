"""One node: a broker, a controller, or both, from its settings to its last flush.

Reading `start` from top to bottom is reading how a node comes up: ports are taken first, because a used port
must leave nothing written; then the directories, which say who we are; then the quorum, from which everything
else is learnt; then the broker, which serves once it has caught up with the metadata.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import ottla
from ottla.broker.apis.acls import AclHandlers
from ottla.broker.apis.broker_loggers import LoggerHandlers
from ottla.broker.apis.configs import DescribeConfigsHandler, ListConfigResourcesHandler
from ottla.broker.apis.describe import ApiVersionsHandler, DescribeHandlers
from ottla.broker.apis.fetch import FetchHandler
from ottla.broker.apis.find_coordinator import FindCoordinatorHandler
from ottla.broker.apis.groups import GroupHandlers, group_topic
from ottla.broker.apis.kept_records import KeptRecordsHandler
from ottla.broker.apis.listener_configs import ListenerConfigsHandler
from ottla.broker.apis.load import LoadHandler
from ottla.broker.apis.log_dirs import LogDirsHandlers
from ottla.broker.apis.offsets import OffsetHandlers
from ottla.broker.apis.produce import ProduceHandler
from ottla.broker.apis.quorum import QuorumHandlers
from ottla.broker.apis.quotas import QuotaHandlers
from ottla.broker.apis.security import SaslHandlers, SecurityHandlers
from ottla.broker.apis.telemetry import TelemetryHandlers
from ottla.broker.apis.tokens import DescribeTokensHandler, TokenHandlers
from ottla.broker.apis.transactions import TransactionService
from ottla.broker.apis.txn_offsets import TxnOffsetCommitHandler
from ottla.broker.cluster.acl_publisher import AclPublisher, authorizer_of
from ottla.broker.cluster.controller_channel import ControllerChannel
from ottla.broker.cluster.controller_service import ControllerService
from ottla.broker.cluster.leader_liveness import LeaderLiveness
from ottla.broker.cluster.lifecycle import BrokerLifecycle
from ottla.broker.cluster.membership import Membership
from ottla.broker.cluster.metadata_cache import ClusterView
from ottla.broker.cluster.raft_driver import RaftDriver
from ottla.broker.coordination.producer_ids import ProducerIds
from ottla.broker.coordination.shard_host import Coordination
from ottla.broker.design import PRODUCT, NodeDesign
from ottla.broker.replication.alter_partition import IsrProposals
from ottla.broker.replication.directory_assignments import DirectoryAssignments
from ottla.broker.replication.directory_moves import DirectoryMoves
from ottla.broker.replication.housekeeping import Housekeeping
from ottla.broker.replication.load_meter import LoadMeter
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.replication.throttle import ReplicationThrottle
from ottla.broker.server.connection_limits import ConnectionLimits, LimitRules, Most, rules_of
from ottla.broker.server.connections import Handler
from ottla.broker.server.large_requests import LargeRequests
from ottla.broker.server.quotas import ClientQuotas, Window
from ottla.broker.server.registration import handlers_of
from ottla.broker.server.server import Server
from ottla.config import cordoning
from ottla.config.cordoning import CORDONED
from ottla.config.dynamic import current
from ottla.config.node_settings import Settings
from ottla.config.security_settings import PREFIX
from ottla.config.values import ConfigError, ListenerAddress
from ottla.events.node import NodeStarted, NodeStopping
from ottla.log.checkpoints import MetaProperties
from ottla.log.config import LogConfig
from ottla.log.errors import FatalDirectory, WrongDirectory
from ottla.log.kept_records import KeptRecords
from ottla.log.log_directories import LOCK, make_directory
from ottla.log.manager import LogManager
from ottla.log.room import Watermark
from ottla.metadata.image import Delta, MetadataImage
from ottla.metadata.records import BROKER_RESOURCE
from ottla.raft.format import (
    check_directory,
    format_directory,
    is_formatted,
    load_properties,
)
from ottla.runtime import File, Runtime
from ottla.runtime.threads import in_thread
from ottla.security.needs import CLUSTER_ACTION
from ottla.wire.apis import ApiKey, PrivateApi
from ottla.wire.types import TopicPartition

if TYPE_CHECKING:
    from ottla.broker.cluster.node_security import NodeSecurity
    from ottla.broker.observability.endpoint import Observability
    from ottla.broker.observability.event_log import EventLogWriter
    from ottla.broker.server.audit_log import AuditLog
    from ottla.broker.server.logins import NodeLogins

logger = logging.getLogger(__name__)

PROGRESS_EVERY_S = 5.0
"""How often a node that opens its logs reports how far it is."""
EVENT_LOG_FLUSH_S = 0.5
"""How long a stop may wait for the event log, twice at most."""


class Node:
    def __init__(self, settings: Settings, runtime: Runtime, design: NodeDesign = PRODUCT) -> None:
        self.settings = settings
        self.runtime = runtime
        self.design = design
        self.servers: dict[str, Server] = {}
        self.endpoints: dict[str, ListenerAddress] = {}
        self.quorum: RaftDriver | None = None
        self.controller: ControllerService | None = None
        self.broker: Broker | None = None
        self.logs: LogManager | None = None
        self.authorizer = authorizer_of(settings)
        """One for all listeners. None: everything is allowed."""
        self._limits = {
            is_broker: self._connection_limits(is_broker) for is_broker in (False, True)
        }
        """Of the controller's listeners, and of the broker's. Neither takes the other's room."""
        self.logins = self._logins()
        """Only where a listener has SASL."""
        self.security = self._security()
        """Only where a listener has TLS or SASL."""
        self.to_brokers = runtime if self.security is None else self.security.to_brokers
        """The runtime of whoever opens channels to brokers."""
        self._to_controllers = runtime if self.security is None else self.security.to_controllers
        self.observability: Observability | None = None
        """Only with metrics.listeners: other nodes do not import it."""
        self.unclean_elections: dict[tuple[uuid.UUID, int], int] = {}
        """The leader epochs that began with one, as far as the metadata log that this node has read still says."""
        self.event_log = self._event_log()
        self.audit_trail = self._audit_trail()
        """Only with an authorizer, or where clients log in."""
        self._lock: File | None = None
        """Of the metadata's directory, where no log manager holds it."""

    async def run(self, ready: Callable[[], None]) -> None:
        """Run until cancelled, which is a controlled shutdown, or until the node cannot go on."""
        try:
            await self.start()
            ready()
            await self.until_failure()
        except FatalDirectory as error:
            logger.critical(
                "directory failed, the node ends path=%s error=%s advice=%s",
                error.directory,
                error.cause,
                error.advice,
            )
            raise
        finally:
            # In a task of its own. Before Python 3.11.3 a timeout within a task that was cancelled ends the task:
            # a controller that does not answer would cost the broker its clean stop.
            loop = asyncio.get_running_loop()
            await loop.create_task(self.stop(), name="stop")

    async def start(self) -> None:
        settings = self.settings
        await self._take_ports()
        cluster_id = self._take_directories()
        membership = await self._join(cluster_id)
        if self.logins is not None:
            await self.logins.start()
        if membership is not None:
            assert self.logs is not None
            self.broker = Broker(
                settings,
                self.runtime,
                membership,
                self.logs,
                cluster_id,
                [self.servers[listener.name] for listener in settings.broker_listeners],
                self.design,
                self.unclean_elections,
                self.security,
                self._limits[True],
            )
            await self.broker.start(
                lambda handlers: self._serve(settings.broker_listeners, handlers)
            )
        self._tell(NodeStarted)
        for journal in self._journals:
            assert self.quorum is not None, (
                "only designs without event log and audit have no quorum"
            )
            journal.start(self.quorum, self._to_controller)

    def _connection_limits(self, is_broker: bool) -> ConnectionLimits:
        settings = self.settings
        alone = len(settings.broker_listeners) == 1
        return ConnectionLimits(
            rules_of(settings),
            self.runtime.clock.monotonic,
            Window(settings.quota_window_num, settings.quota_window_size_seconds),
            protected=settings.inter_broker_listener_name if is_broker and not alone else None,
        )

    def _security(self) -> NodeSecurity | None:
        if all(security.is_plain for security in self.settings.security.values()):
            return None
        from ottla.broker.cluster.node_security import NodeSecurity

        return NodeSecurity(self.settings, self.runtime)

    def _logins(self) -> NodeLogins | None:
        if all(security.sasl is None for security in self.settings.security.values()):
            return None
        from ottla.broker.server.logins import NodeLogins

        return NodeLogins(self.settings, self.runtime, self._image)

    def _image(self) -> MetadataImage:
        assert self.quorum is not None, "a node serves nobody before it has joined"
        return self.quorum.image

    def _event_log(self) -> EventLogWriter | None:
        """First of all, so that it hears what happens while the node starts."""
        if not self.settings.ottla_event_log_enable:
            return None
        from ottla.broker.observability.event_log import EventLogWriter

        return EventLogWriter(self.settings, self.to_brokers)

    @property
    def _is_audited(self) -> bool:
        return self.authorizer is not None or self.logins is not None

    def _audit(self) -> AuditLog | None:
        if not self._is_audited:
            return None
        from ottla.broker.server.audit_log import AuditLog

        later = asyncio.get_running_loop().call_later
        return AuditLog(self.runtime.clock.monotonic, later, self.runtime.events)

    def _audit_trail(self) -> EventLogWriter | None:
        if not self._is_audited or not self.settings.ottla_audit_topic:
            return None
        from ottla.broker.observability.event_log import EventLogWriter, audit_journal

        return EventLogWriter(self.settings, self.to_brokers, audit_journal(self.settings))

    @property
    def _journals(self) -> list[EventLogWriter]:
        return [each for each in (self.event_log, self.audit_trail) if each is not None]

    def _to_controller(self) -> ControllerChannel | None:
        if self.broker is not None:
            return self.broker.to_controller
        return None if self.controller is None else self.controller.to_controller

    def _tell(self, kind: type[NodeStarted] | type[NodeStopping]) -> None:
        if kind in self.runtime.events:
            self.runtime.events.emit(kind(ottla.__version__))

    async def _join(self, cluster_id: str) -> Membership | None:
        """Take part in the quorum, as a controller or to learn from it. A broker gets its membership from it."""
        settings, runtime = self.settings, self.runtime
        self.quorum = quorum = RaftDriver(settings, self._to_controllers, cluster_id)
        quorum.on_failure.append(self._quorum_failed)
        if self.authorizer is not None:
            # Before all who act upon an image: no request is decided by older ACLs than the image has.
            AclPublisher(self.authorizer, quorum)
        if settings.is_controller:
            self.controller = ControllerService(
                settings, runtime, quorum, self.design.change, to_others=self._to_controllers
            )
            handlers = handlers_of(
                ApiVersionsHandler(
                    lambda: quorum.image,
                    lambda: quorum.kraft_version,
                    listener_is_controller=True,
                ),
                SaslHandlers(),
                QuorumHandlers(quorum),
                AclHandlers(),
                self.controller,
                DescribeConfigsHandler(settings, lambda: quorum.image),
                DescribeTokensHandler(settings, lambda: quorum.image),
            )
            # What is about the loggers of this node alone is not for the quorum.
            alter = handlers[ApiKey.INCREMENTAL_ALTER_CONFIGS]
            handlers |= handlers_of(LoggerHandlers(settings.node_id, alter, CLUSTER_ACTION))
            self._serve(settings.controller_listeners, handlers)
        if self.logins is not None:
            quorum.on_image.append(self.logins.image_changed)
        quorum.on_image.append(
            lambda _image, delta: self.unclean_elections.update(delta.unclean_elections)
        )
        await quorum.start()
        if self.controller is not None:
            await self.controller.start()
        if self.logs is None:
            return None
        others = self._to_controllers
        channel = ControllerChannel(settings, others, quorum)
        lifecycle = BrokerLifecycle(settings, others, quorum, self.logs, channel, self.endpoints)
        for_large = ControllerChannel(settings, others, quorum)
        for_clients = ControllerChannel(settings, others, quorum, for_large=for_large)
        return Membership(quorum, channel, for_clients, lifecycle)

    async def _take_ports(self) -> None:
        settings = self.settings
        audit = self._audit()
        if self.authorizer is not None:
            self.authorizer.audit = audit
        if self.security is not None:
            self.security.load()
        if settings.metrics_listeners:
            from ottla.broker.observability.endpoint import Observability

            self.observability = Observability(self)
        large = LargeRequests(self.runtime.clock.monotonic, asyncio.get_running_loop().call_later)
        advertised = {listener.name: listener for listener in settings.advertised_listeners}
        for listener in settings.listeners:
            server = Server(
                listener.name,
                {},
                frame_bytes_max=settings.socket_request_max_bytes,
                idle_max_s=settings.connections_max_idle_ms / 1000
                if settings.connections_max_idle_ms >= 0
                else float("inf"),
                limits=self._limits[listener in settings.broker_listeners],
            )
            server.authorizer = self.authorizer
            server.audit = audit
            server.large = large
            if self.logins is not None:
                server.gated = self.logins.listener(listener.name)
            if self.security is not None:
                server.tls = self.security.tls(listener.name)
                server.who = self.security.who(listener.name)
                server.nodes_of = self.security.nodes_of
            self.servers[listener.name] = server
            if self.observability is not None:
                server.times = self.observability.request_times
            try:
                _, port = await server.listen(self.runtime.network, listener.host, listener.port)
            except OSError as error:
                raise ConfigError(f"listeners: {listener}: {error.strerror or error}") from error
            announced = advertised[listener.name]
            self.endpoints[listener.name] = announced._replace(port=announced.port or port)
        if self.security is not None:
            self.security.watch()
        if self.observability is not None:
            await self.observability.listen(settings.metrics_listeners)

    def _take_directories(self) -> str:
        """Lock the directories and read whose they are; only when nothing is wrong with any of them is the
        first byte written. The cluster's id: what they say, else what the settings give, else what
        follows from them."""
        settings, disk = self.settings, self.runtime.disk
        metadata = settings.metadata_log_dir
        places = dict.fromkeys((metadata, *settings.log_dirs))
        found: dict[str, MetaProperties] = {}
        for place in places:
            try:
                if is_formatted(disk, place):
                    found[place] = load_properties(disk, place)
            except OSError as error:
                self._unless_metadata(place, error)
        cluster_id = self._cluster_id(found)
        try:
            check_directory(disk, metadata)
            if not settings.is_broker or metadata not in settings.log_dirs:
                make_directory(disk, metadata)
                self._lock = disk.lock(f"{metadata}/{LOCK}")
        except BlockingIOError as error:
            raise WrongDirectory(metadata, "another process uses it") from error
        except OSError as error:
            self._unless_metadata(metadata, error)
        if settings.is_broker:
            self.logs = LogManager(
                disk,
                list(settings.log_dirs),
                LogConfig.from_settings(settings.topic_defaults()),
                new_id=lambda: new_uuid(self.runtime),
                producer_id_expiration_ms=settings.producer_id_expiration_ms,
                events=self.runtime.events,
                kept=KeptRecords(
                    disk,
                    new_id=lambda: new_uuid(self.runtime),
                    now_ms=self.runtime.clock.wall_ms,
                    max_bytes=settings.ottla_kept_records_max_bytes,
                    retention_ms=settings.ottla_kept_records_retention_ms,
                ),
                watermark=Watermark(
                    settings.ottla_disk_watermark_percent, settings.ottla_disk_headroom_max_bytes
                ),
            )
            self.logs.take(cluster_id, settings.node_id)
            for place, cause in self.logs.offline_directories.items():
                self._unless_metadata(place, cause)
                logger.error("log directory is offline path=%s error=%s", place, cause)
                del places[place]
        for place in places:
            if place not in found:
                format_directory(
                    disk,
                    place,
                    cluster_id=cluster_id,
                    node_id=settings.node_id,
                    directory_id=new_uuid(self.runtime),
                    voters=None,
                )
        return cluster_id

    def _unless_metadata(self, place: str, cause: Exception) -> None:
        """A broker can live without one of several log directories, no node without its metadata."""
        if place == self.settings.metadata_log_dir:
            raise WrongDirectory(place, str(cause)) from cause

    def _cluster_id(self, found: Mapping[str, MetaProperties]) -> str:
        settings = self.settings
        for place, properties in found.items():
            if properties.node_id != settings.node_id:
                raise WrongDirectory(
                    place, f"it belongs to node {properties.node_id}, this is {settings.node_id}"
                )
            if settings.cluster_id not in (None, properties.cluster_id):
                raise WrongDirectory(
                    place,
                    f"it belongs to cluster {properties.cluster_id}, cluster.id is"
                    f" {settings.cluster_id}",
                )
        ids = {properties.cluster_id for properties in found.values()}
        if len(ids) > 1:
            raise WrongDirectory(
                next(iter(found)), f"the directories are of clusters {sorted(ids)}"
            )
        return ids.pop() if ids else settings.cluster_id or settings.derived_cluster_id()

    def _serve(
        self,
        listeners: tuple[ListenerAddress, ...],
        handlers: Mapping[ApiKey, Handler] | Mapping[PrivateApi, Handler],
    ) -> None:
        served = {int(key): handler for key, handler in handlers.items()}
        if self.security is not None:
            from ottla.broker.server.node_claims import holding_claims

            served = holding_claims(served)
        for listener in listeners:
            self.servers[listener.name].handlers.update(served)

    async def until_failure(self) -> None:
        """Wait for what ends a node: a cluster that does not take it back, or a disk without which it cannot go on."""
        if self.broker is not None:
            await self.broker.lifecycle.failed
        else:
            assert self.quorum is not None
            await self.quorum.until_failure()

    async def stop(self) -> None:
        """Leaders move away first, then the quorum is left, then everything is flushed and closed. A controller resigns
        before its logs are closed: that may take seconds, in which the cluster would have no controller."""
        self._tell(NodeStopping)
        for journal in self._journals:
            await journal.flush(EVENT_LOG_FLUSH_S)
        if self.broker is not None:
            await self.broker.stop(self._stop_serving_clients)
        for journal in self._journals:
            # If this is the active controller: how its own broker's leaders moved away.
            await journal.flush(EVENT_LOG_FLUSH_S)
            await journal.stop()
        if self.controller is not None:
            await self.controller.stop()
        if self.quorum is not None:
            await self.quorum.stop()
        if self.broker is not None:
            await self.broker.close_logs()
        for server in self.servers.values():
            server.close()
        if self.logins is not None:
            self.logins.stop()
        if self.security is not None:
            self.security.stop()
        if self.broker is None and self.logs is not None:
            self.logs.close(clean=False)
        if self._lock is not None:
            self._lock.close()
        if self.observability is not None:
            await self.observability.close()

    def _quorum_failed(self, error: Exception) -> None:
        """This node's metadata is out of date from now on. It stops serving and sends no more heartbeats, so that the
        controller fences it. Then its other disks are closed cleanly, and the process ends."""
        if self.broker is not None:
            self._stop_serving_clients()
            self.broker.leave_cluster(error)

    def _stop_serving_clients(self) -> None:
        for listener in self.settings.broker_listeners:
            self.servers[listener.name].close()


class Broker:
    """The broker half of a node."""

    def __init__(
        self,
        settings: Settings,
        runtime: Runtime,
        membership: Membership,
        logs: LogManager,
        cluster_id: str,
        servers: Sequence[Server],
        design: NodeDesign,
        unclean_elections: Mapping[tuple[uuid.UUID, int], int],
        security: NodeSecurity | None,
        limits: ConnectionLimits,
    ) -> None:
        to_brokers = runtime if security is None else security.to_brokers
        self._security = security
        self._limits = limits
        self.settings = settings
        self._servers = servers
        self.runtime = runtime
        self.source, self.to_controller, self.for_clients, self.lifecycle = membership
        self.cluster_id = cluster_id
        self.cluster = ClusterView(
            settings.node_id, linger_s=settings.broker_session_timeout_ms / 1000
        )
        self.logs = logs
        self.replicas = ReplicaManager(
            settings, runtime.clock, self.logs, runtime.events, design.rules, unclean_elections
        )
        self.throttle = ReplicationThrottle(settings)
        self.replication = design.transfer(
            settings, to_brokers, self.replicas, self.cluster, self._broker_epoch, self.throttle
        )
        request_timeout_s = settings.request_timeout_ms / 1000
        self.isr_proposals = IsrProposals(
            settings.node_id,
            self.replicas,
            self.to_controller,
            self._broker_epoch,
            request_timeout_s,
            tells_reasons=settings.ottla_event_log_enable,
        )
        self.assignments = DirectoryAssignments(
            settings.node_id,
            self.replicas,
            self.to_controller,
            self._broker_epoch,
            request_timeout_s,
        )
        self.moves = DirectoryMoves(settings, runtime.clock, self.replicas, runtime.events)
        self.producer_ids = ProducerIds(
            settings.node_id, self.to_controller, self._broker_epoch, request_timeout_s
        )
        self.transactions = TransactionService(
            settings, to_brokers, self.cluster, self.replicas, self.producer_ids
        )
        self.coordination = Coordination(
            self.replicas,
            self.cluster,
            self.to_controller,
            [
                group_topic(settings, self.cluster, runtime.random, runtime.events),
                self.transactions.topic,
            ],
            lambda: self.lifecycle.is_in_doubt,
            runtime.events,
        )
        self.groups = GroupHandlers(settings, self.coordination, self.cluster)
        self.quotas = ClientQuotas(
            settings, runtime.clock.monotonic, lambda: self.cluster.image, events=runtime.events
        )
        self.fetches = FetchHandler(
            settings, runtime, self.replicas, self.cluster, self.quotas, self.throttle
        )
        self.telemetry = TelemetryHandlers(
            settings, runtime.clock, lambda: self.cluster.image, lambda: new_uuid(runtime)
        )
        self.housekeeping = Housekeeping(settings, runtime.clock, self.replicas)
        self.load = LoadMeter(runtime, self.replicas)
        self.lifecycle.load = self.load.text
        for server in servers:
            server.quotas = self.quotas
        self.is_serving = False
        self._leaving: asyncio.Task[None] | None = None
        self._opening: asyncio.Future[None] | None = None

    def _broker_epoch(self) -> int:
        return self.lifecycle.broker_epoch

    async def start(
        self, serve: Callable[[Mapping[ApiKey, Handler] | Mapping[PrivateApi, Handler]], None]
    ) -> None:
        """Recover the logs, register, catch up, take our roles, serve, and be unfenced."""
        loop = asyncio.get_running_loop()
        now_ms = self.runtime.clock.wall_ms()
        self.logs.progress.began_at = self.runtime.clock.monotonic()
        self._report_progress()
        self._opening = loop.run_in_executor(
            None, self.logs.start, self.cluster_id, self.settings.node_id, now_ms
        )
        await asyncio.shield(self._opening)
        if self.source.failed is not None:
            raise self.source.failed
        for directory in self.logs.offline_directories:
            self._directory_failed(directory, [])
        self.logs.on_offline.append(self._directory_failed)
        self.source.on_image.append(self._image_changed)
        self.lifecycle.start()
        await self._unless_refused(self.lifecycle.caught_up)
        authorizer = self._servers[0].authorizer
        if authorizer is not None and not authorizer.is_loaded:
            authorizer.loaded()  # what was committed before our registration is in the image
        # The topics first: a coordinator that is loaded forgets what was committed for those that are gone.
        self.cluster.update(self.source.image, True)
        self._settings_changed(
            self.source.image
        )  # before a replica is made in a cordoned directory
        self.replicas.apply_all(self.source.image)
        self.moves.resume()
        self.quotas.refresh()
        self._limits.quotas_changed(self.source.image.client_quotas)
        self.is_serving = True
        await self._unless_refused(self.assignments.losses_reported)
        serve(self._handlers())
        serve({PrivateApi.KEPT_RECORDS: KeptRecordsHandler(self.logs)})
        serve({PrivateApi.LOAD: LoadHandler(self.settings.node_id, self.load, self.lifecycle)})
        self.housekeeping.start()
        self.load.start()
        self.lifecycle.logs_are_ready()
        await self._unless_refused(self.lifecycle.ready)

    def _report_progress(self) -> None:
        progress = self.logs.progress
        if progress.is_complete or self.source.failed is not None:
            return
        now = self.runtime.clock.monotonic()
        rate, left_s = progress.rate(now), progress.seconds_left(now)
        if rate is not None and left_s is not None:
            logger.info(
                "recovering logs recovered=%d logs=%d per_second=%.0f seconds_left=%.0f",
                progress.done,
                progress.total,
                rate,
                left_s,
            )
        asyncio.get_running_loop().call_later(PROGRESS_EVERY_S, self._report_progress)

    async def _unless_refused(self, event: asyncio.Event) -> None:
        waiter: asyncio.Future[Any] = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait([waiter, self.lifecycle.failed], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiter.cancel()
        if self.lifecycle.failed.done():
            self.lifecycle.failed.result()

    def _image_changed(self, image: MetadataImage, delta: Delta) -> None:
        """Before we have caught up with our own registration the image is history: leading from it would
        be leading in the past."""
        if self.is_serving:
            self.cluster.update(image, bool(delta))
            self.quotas.refresh()
            if delta.changed_quotas:
                self._limits.quotas_changed(image.client_quotas)
            if any(kind == BROKER_RESOURCE for kind, _ in delta.changed_configs):
                self._settings_changed(image)
            self.replicas.apply(image, delta)
            clock = self.runtime.clock
            self.groups.topics_changed(delta, clock.monotonic(), clock.wall_ms())
            if delta.changed_brokers:
                self.transactions.brokers_changed(image)
            if delta.changed_acls:
                self.fetches.rights_changed()

    def _settings_changed(self, image: MetadataImage) -> None:
        """A setting that cannot be put into effect ends neither the start nor what else an image changes."""
        try:
            self._put_settings_into_effect(image)
        except Exception:
            logger.exception("settings of the metadata are not in effect")

    def _put_settings_into_effect(self, image: MetadataImage) -> None:
        """What is set in the metadata; the defaults of topics are looked up when needed."""
        own = image.config(BROKER_RESOURCE, str(self.settings.node_id))
        value = partial(current, self.settings, own, image.config(BROKER_RESOURCE, ""))
        self.logs.producer_id_expiration_ms = value("producer.id.expiration.ms")
        self.throttle.set_rates(
            value("leader.replication.throttled.rate"), value("follower.replication.throttled.rate")
        )
        self.moves.throttle.rate = value("replica.alter.log.dirs.io.max.bytes.per.second")
        self._cordon(value(CORDONED))
        self.housekeeping.configure_cleaner(
            value("log.cleaner.threads"),
            value("log.cleaner.backoff.ms"),
            value("log.cleaner.dedupe.buffer.size"),
            value("log.cleaner.io.max.bytes.per.second"),
        )
        if self._security is not None:
            self._security.settings_changed({**image.config(BROKER_RESOURCE, ""), **own})
        self._limits.change(self._limit_rules(value, {**image.config(BROKER_RESOURCE, ""), **own}))

    def _cordon(self, setting: Sequence[str]) -> None:
        cordoned = cordoning.cordoned(setting, self.logs.directories)
        if cordoned != self.logs.cordoned:
            self.logs.cordoned = cordoned
            logger.info("cordoned log directories paths=%s", ",".join(sorted(cordoned)))
            self.lifecycle.heartbeat_soon()

    def _limit_rules(self, value: Callable[[str], Any], configs: Mapping[str, str]) -> LimitRules:
        settings = self.settings
        with suppress(ConfigError):  # of another listener than ours: `NodeSecurity` says so
            settings = settings.changed(
                {name: text for name, text in configs.items() if name.startswith(PREFIX)}
            )
        return rules_of(settings)._replace(
            of_all=Most(value("max.connections"), value("max.connection.creation.rate")),
            per_address=value("max.connections.per.ip"),
            of_addresses=dict(value("max.connections.per.ip.overrides")),
        )

    def _handlers(self) -> dict[ApiKey, Handler]:
        """Kafka's APIs of the broker's listeners, by family; private ones are served in `start`. Each object names its
        APIs itself, with `@serves`."""
        settings, runtime, replicas, cluster = (
            self.settings,
            self.runtime,
            self.replicas,
            self.cluster,
        )
        source, verifier = self.source, self.transactions.verifier
        liveness = LeaderLiveness(
            settings.node_id,
            runtime.network,
            cluster,
            settings.inter_broker_listener_name or "",
            is_plain=self._security is None,
        )
        listener_configs = ListenerConfigsHandler(
            settings.node_id,
            lambda: cluster.image,
            None if self._security is None else self._security.check,
            self.for_clients.forward,
            self.logs.directories,
        )
        return handlers_of(
            ApiVersionsHandler(lambda: source.image, lambda: source.kraft_version),
            DescribeHandlers(settings, cluster, self.for_clients, self.cluster_id, liveness),
            ProduceHandler(replicas, cluster, verifier),
            self.fetches,
            OffsetHandlers(replicas),
            FindCoordinatorHandler(self.coordination, cluster),
            self.groups,
            TxnOffsetCommitHandler(runtime.clock, self.groups, self.coordination, verifier),
            *self.transactions.handlers(self.coordination),
            DescribeConfigsHandler(settings, lambda: cluster.image),
            ListConfigResourcesHandler(lambda: cluster.image),
            LoggerHandlers(settings.node_id, listener_configs.pass_on),
            listener_configs,
            TokenHandlers(settings, self.for_clients.forward),
            DescribeTokensHandler(settings, lambda: cluster.image),
            LogDirsHandlers(runtime.disk, replicas, self.moves),
            QuotaHandlers(lambda: cluster.image),
            SaslHandlers(),
            SecurityHandlers(lambda: cluster.image),
            AclHandlers(),
            self.telemetry,
            self.for_clients,  # what it forwards
        )

    def leave_cluster(self, error: Exception) -> None:
        """Without metadata: no heartbeats, so that we are fenced and others lead; no fetching from leaders
        that may be leaders no longer."""
        was_serving, self.is_serving = self.is_serving, False
        if was_serving:
            self.replication.stop()
            self._leaving = asyncio.get_running_loop().create_task(self.lifecycle.stop())
        self._end(error)

    def _directory_failed(self, directory: str, _lost: list[TopicPartition]) -> None:
        """A broker can live without one of several log directories, not without its last one or its metadata. A process
        that stayed would be fenced for good, also when its disk is mended."""
        offline = self.logs.offline_directories
        is_last = len(offline) == len(self.logs.directories)
        if is_last or directory == self.settings.metadata_log_dir:
            self._end(FatalDirectory(directory, offline[directory]))

    def _end(self, error: Exception) -> None:
        if not self.lifecycle.failed.done():
            self.lifecycle.failed.set_exception(error)
            self.lifecycle.failed.exception()  # `Node.run` logs it, so asyncio need not

    async def stop(self, stop_serving: Callable[[], None]) -> None:
        """The controller moves our leaders away while we still serve; then nothing is served any more. `close_logs` comes
        next."""
        if self._leaving is not None:
            await asyncio.wait([self._leaving])
        await self.lifecycle.controlled_shutdown()
        if self._directory_failed in self.logs.on_offline:
            self.logs.on_offline.remove(self._directory_failed)
        self.is_serving = False
        await self.replicas.stop()
        self.coordination.stop()
        self.transactions.stop()
        stop_serving()
        await self.moves.stop()
        await self.housekeeping.stop()
        await self.load.stop()
        await self.isr_proposals.stop()
        await self.assignments.stop()
        self.replication.stop()
        await self.for_clients.stop()
        await self.to_controller.stop()
        self.cluster.close()

    async def close_logs(self) -> None:
        """Cleanly, after nothing is served any more: whatever came after that would be acknowledged and not recovered."""
        if self._opening is not None:
            await asyncio.wait([self._opening])  # a start that was interrupted still reads them
        logger.info("closing the logs")
        close = partial(self.logs.close, clean=True, broker_epoch=self.lifecycle.broker_epoch)
        await in_thread(close)


def new_uuid(runtime: Runtime) -> uuid.UUID:
    return uuid.UUID(int=runtime.random.getrandbits(128), version=4)
