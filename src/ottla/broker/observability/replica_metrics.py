"""The replicas of a broker: how many lead, lag or are offline, under the names of Kafka's ReplicaManager."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.broker.observability.observed import ObservedNode
from ottla.metrics.families import Family, gauge

REPLICA_MANAGER = "kafka_server_replicamanager"


class ReplicaMetrics:
    def __init__(self, node: ObservedNode) -> None:
        self._node = node

    def collect(self) -> Iterator[Family]:
        broker = self._node.broker
        if broker is None:
            return
        partitions = list(broker.replicas.partitions.values())
        led = [partition for partition in partitions if partition.leadership is not None]
        under = sum(len(partition.isr) < len(partition.replicas) for partition in led)
        yield gauge(
            f"{REPLICA_MANAGER}_partitioncount", "Replicas on this broker.", len(partitions)
        )
        yield gauge(f"{REPLICA_MANAGER}_leadercount", "Partitions led by this broker.", len(led))
        yield gauge(
            f"{REPLICA_MANAGER}_underreplicatedpartitions",
            "Led partitions with replicas outside of the ISR.",
            under,
        )
