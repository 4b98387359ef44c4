"""A simulated cluster of any design: whole nodes on simulated machines, with counts of all that they send.

Experiments use this to start a cluster, to do something to it, and to look at its logs. Unlike the simulator's own runs
it has no checkers that stop at the first violation: a design of the lab may lose records, and the experiment counts them.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from ottla.broker.design import PRODUCT, NodeDesign
from ottla.broker.node import Node
from ottla.config import Settings
from ottla.lab.wire_counts import WireCounts
from ottla.records.batch import batches
from ottla.records.record import records as records_of
from ottla.replica.partition import Partition
from ottla.runtime import Runtime
from ottla.sim.clients.connections import ClientConnections, create_topic
from ottla.sim.clients.record_content import name_of
from ottla.sim.cluster.nodes import DATA, SimCluster, SimNode
from ottla.sim.engine.loop import collector_at_rest
from ottla.sim.engine.world import SimHost, World
from ottla.wire.types import TopicPartition

CLIENTS = "clients"
START_S_MAX = 60.0


class NotStarted(Exception):
    """The cluster did not come up, or a topic was not created: a defect of the design or of the lab."""


class StoredRecord(NamedTuple):
    offset: int
    epoch: int
    value: str


class LabCluster:
    """Nodes of one design. `simulated` makes one; nothing of it outlives that context."""

    def __init__(
        self,
        world: World,
        nodes: int,
        settings: Mapping[str, str],
        make_node: Callable[[Settings, Runtime], Node],
        controllers: int,
    ) -> None:
        self.world = world
        self.counts = WireCounts()
        self.sim = SimCluster(world, nodes, settings, controllers=controllers, make_node=make_node)
        for node in self.sim.nodes.values():
            node.host.runtime = self.counts.counted(node.host.name, node.host.runtime)
        self.clients: SimHost = world.node(CLIENTS)
        self.failures: list[str] = []
        """Nodes that ended by themselves, with the exception."""
        self.sim.on_end.append(self._ended)

    def _ended(self, node: SimNode, failure: BaseException | None) -> None:
        if failure is not None:
            self.failures.append(f"node {node.id}: {failure!r}")

    @property
    def now(self) -> float:
        return self.world.loop.time()

    def start(self) -> None:
        self.sim.start()
        if not self.sim.wait_ready(START_S_MAX):
            raise NotStarted(f"the cluster did not come up: {list(self.sim.nodes.values())}")

    def create_topic(
        self, name: str, partitions: int, factor: int, settings: Mapping[str, str] | None = None
    ) -> None:
        connections = ClientConnections(self.clients, self.sim.bootstrap, "admin")
        work = create_topic(connections, name, partitions, factor, settings or {})
        try:
            self.clients.complete(work, START_S_MAX)
        except TimeoutError as error:
            raise NotStarted(f"{name} was not created") from error

    def run_for(self, seconds: float) -> None:
        self.world.run_for(seconds)

    def run_until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        return self.world.run_until(condition, timeout_s)

    def replica(self, broker: int, partition: TopicPartition) -> Partition | None:
        """The replica in the memory of a running broker."""
        node = self.sim.nodes[broker].node
        return (
            None
            if node is None or node.broker is None
            else (node.broker.replicas.partitions.get(partition))
        )

    def records_on_disk(self, broker: int, partition: TopicPartition) -> list[StoredRecord]:
        """The data records of a replica as they are in its files, whether its broker runs or not."""
        disk = self.sim.nodes[broker].host.disk
        directory = f"{DATA}/{partition.topic}-{partition.partition}"
        if not disk.exists(directory):
            return []
        found = []
        for name in disk.list_dir(directory):
            if name.endswith(".log"):
                data = bytes(disk.peek(f"{directory}/{name}"))
                for batch in batches(data, allow_partial=True):
                    if not batch.is_control:
                        found += [
                            StoredRecord(
                                record.offset, batch.leader_epoch, name_of(record).decode()
                            )
                            for record in records_of(data, batch)
                        ]
        return found


@contextmanager
def simulated(
    seed: int,
    *,
    nodes: int,
    design: NodeDesign = PRODUCT,
    make_node: Callable[[Settings, Runtime], Node] | None = None,
    settings: Mapping[str, str] | None = None,
    controllers: int = 0,
    keep_trace: bool = False,
) -> Iterator[LabCluster]:
    """A cluster that is made and not started yet. `make_node` is for designs that replace more than `NodeDesign` has."""
    try:
        with collector_at_rest(), World(seed, keep_trace=keep_trace) as world:
            made = make_node or partial(Node, design=design)
            yield LabCluster(world, nodes, settings or {}, made, controllers)
    finally:
        gc.collect()  # what is left of this world must not be found, and reported, in the next one
