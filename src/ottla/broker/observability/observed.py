"""The parts of a node that can be looked at from here, and that the node makes one after the other as it starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ottla.broker.apis.fetch import FetchHandler
from ottla.broker.apis.telemetry import TelemetryHandlers
from ottla.broker.cluster.controller_service import ControllerService
from ottla.broker.cluster.lifecycle import BrokerLifecycle
from ottla.broker.cluster.metadata_cache import ClusterView
from ottla.broker.cluster.raft_driver import RaftDriver
from ottla.broker.coordination.shard_host import Coordination
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.server.server import Server
from ottla.config import ListenerAddress, Settings
from ottla.log.manager import LogManager
from ottla.runtime import Runtime


class ObservedBroker(Protocol):
    @property
    def replicas(self) -> ReplicaManager: ...

    @property
    def logs(self) -> LogManager: ...

    @property
    def lifecycle(self) -> BrokerLifecycle: ...

    @property
    def coordination(self) -> Coordination: ...

    @property
    def fetches(self) -> FetchHandler: ...

    @property
    def cluster_id(self) -> str: ...

    @property
    def cluster(self) -> ClusterView: ...

    @property
    def telemetry(self) -> TelemetryHandlers: ...

    @property
    def is_serving(self) -> bool: ...


class ObservedNode(Protocol):
    @property
    def settings(self) -> Settings: ...

    @property
    def runtime(self) -> Runtime: ...

    @property
    def to_brokers(self) -> Runtime: ...

    @property
    def servers(self) -> Mapping[str, Server]: ...

    @property
    def endpoints(self) -> Mapping[str, ListenerAddress]: ...

    @property
    def quorum(self) -> RaftDriver | None: ...

    @property
    def controller(self) -> ControllerService | None: ...

    @property
    def logs(self) -> LogManager | None: ...

    @property
    def broker(self) -> ObservedBroker | None: ...
