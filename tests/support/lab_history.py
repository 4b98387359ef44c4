"""The history of clients of one partition under random failures, for designs of the lab."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from ottla.lab.commit.clients import OpenLoopProducer, PartitionReader, create_assigned_topics
from ottla.lab.commit.faults import OutageKind, OutageMix, OutageRun, outages
from ottla.lab.design import design_named
from ottla.lab.harness import simulated
from ottla.sim.clients.connections import ClientConnections
from ottla.wire.types import TopicPartition

PARTITION = TopicPartition("history", 0)
DURATION_S = 30.0
SETTLE_S = 20.0
MIX = OutageMix(
    up_s=4.0,
    kinds={OutageKind.KILL: 2, OutageKind.CUT_OFF: 2, OutageKind.SLOW_LINE: 2},
    lasting_s=((0.1, 1.0), (1.0, 8.0)),
)
DISKS_REPLACED = OutageMix(
    up_s=1.0,
    kinds={OutageKind.NEW_DISK: 2, OutageKind.SLOW_LINE: 5},
    lasting_s=((0.1, 1.0), (1.0, 3.0)),
    delay_s=(0.4,),
    # Until a replica has copied everything it has failed. With these lines that takes less.
    refill_s=4.0,
)
SETTINGS = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "metadata.max.idle.interval.ms": "5000",
}


class ClientHistory(NamedTuple):
    acknowledged: int
    lost: int
    """Acknowledged, and not to be read at the end."""
    read_and_lost: int
    leader_epoch: int
    """At the end: how often the leader changed."""
    outages: int
    is_offline: bool
    """At the end nobody could lead, and so nothing could be read: too many voters had lost their disks before they had
    copied everything anew."""


def history_of(
    seed: int, design_name: str, replicas: int, failures: int, mix: OutageMix = MIX
) -> ClientHistory:
    """At most so many brokers fail at a time. In the end all are back."""
    design = design_named(design_name)
    brokers = range(1, replicas + 1)
    schedule = outages(Random(seed), brokers, DURATION_S, mix, at_once_max=failures)
    with simulated(
        seed,
        nodes=replicas + 1,
        controllers=1,
        make_node=design.part.make_node(),
        settings={**SETTINGS, **design.settings},
    ) as cluster:
        cluster.start()

        def connections(name: str) -> ClientConnections:
            return ClientConnections(cluster.clients, cluster.sim.bootstrap[:replicas], name)

        cluster.clients.complete(
            create_assigned_topics(connections("admin"), brokers, {PARTITION.topic: {}})
        )
        producer = OpenLoopProducer(connections("producer"), PARTITION, "p", interval_s=0.05)
        reader = PartitionReader(connections("reader"), PARTITION, pause_s=0.2)
        cluster.clients.run(producer.run())
        cluster.clients.run(reader.run())
        OutageRun(cluster, schedule)
        cluster.run_for(DURATION_S + SETTLE_S)
        producer.is_running = reader.is_running = False
        cluster.run_until(lambda: producer.is_settled, SETTLE_S)
        final = PartitionReader(connections("final reader"), PARTITION)
        is_offline = False
        try:
            cluster.clients.complete(final.read_to_end())
        except TimeoutError:
            is_offline = True
        assert not cluster.failures and not cluster.world.problems()
        epochs = [each.leader_epoch for id in brokers if (each := cluster.replica(id, PARTITION))]
        return ClientHistory(
            len(producer.acknowledged_at),
            0 if is_offline else len(set(producer.acknowledged_at) - set(final.read)),
            0 if is_offline else len(set(reader.read) - set(final.read)),
            max(epochs),
            len(schedule),
            is_offline,
        )
