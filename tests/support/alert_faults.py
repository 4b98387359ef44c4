"""A real fault for each alert rule: what operators do or suffer, done to a real cluster.

Each fault says when its alerts must fire (`Scene.fire`) and mends what it broke. Some rules look back over minutes and go on
firing. They come first, so that no other fault has fired them.
"""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ottla.coordinators.shard import CoordinatorRecord
from ottla.coordinators.transactions.transaction_records import (
    TransactionState,
    read_transaction,
    transaction_record,
)
from ottla.local.ports import free_ports
from ottla.records.batch import batches
from ottla.records.record import Record, build, records
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.internal_topics import TRANSACTION_STATE_TOPIC
from support.cluster import HOST, ProcessCluster, paused, wait_until
from support.configs import BROKER, TOPIC, alter
from support.disks import limit_file_size, second_disk
from support.prometheus import Prometheus, tool
from support.staged import other_than, produce, put_hanging_transaction, unclean_loss
from support.transactions import ConfluentTransactions

BROKERS = 4
SETTINGS = {
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "800",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.max.timeout.ms": "3600000",
}
"""A replica that hangs leaves the ISR before its broker is fenced."""
ONE_IS_ENOUGH = {"min.insync.replicas": "1"}
SECOND_DISK_OF = 1
SECOND_DISK_SIZE = 64 << 20
WAITING = 50
"""Produce requests that wait for a follower that hangs."""
FLUSH_S = 1.5
SECONDS_TO_FIRE = 80


@dataclass
class Scene:
    cluster: ProcessCluster
    server: Prometheus
    ports: dict[int, int]
    """Where each node shows its metrics."""
    directory: Path
    fired: set[str] = field(default_factory=set)

    def fires(self, *names: str, node: int | None = None) -> bool:
        """Whether they do, and are about this node if one is given."""
        if not set(names) <= self.server.firing(None if node is None else self.ports[node]):
            return False
        self.fired.update(names)
        return True

    def fire(self, *names: str, node: int | None = None) -> None:
        """Wait for it."""
        wait_until(lambda: self.fires(*names, node=node), SECONDS_TO_FIRE, f"{names} fire", every=1)


# -- faults of replicas ----------------------------------------------------------------------------


def hangs_again_and_again(scene: Scene) -> None:
    """A follower stands still, as long pauses or a bad network make it, until it is out of the ISR. Writers wait for it."""
    cluster = scene.cluster
    follower = other_than(cluster, SECOND_DISK_OF)
    leader = other_than(cluster, SECOND_DISK_OF, follower)
    topic = cluster.create_topic("flapping", assignment=[[leader, follower]], config=ONE_IS_ENOUGH)
    settings = {"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0}
    producer = Producer({**settings, "batch.num.messages": 1})

    def flap() -> bool:
        with paused(cluster, follower):
            for _ in range(WAITING):
                producer.produce(topic, b"waits", partition=0)
            producer.poll(0)
            wait_until(lambda: cluster.partitions(topic)[0].isr == [leader], 20, "it has left")
        assert producer.flush(20) == 0
        cluster.wait_whole(topic)
        led = scene.fires("OttlaIsrFlapping", "OttlaSlowProduce", node=leader)
        return led and scene.fires("OttlaEventLoopStalls", node=follower)

    wait_until(flap, SECONDS_TO_FIRE, "the follower flaps, the leader is slow")


def an_unclean_election(scene: Scene) -> None:
    with ExitStack() as stack:
        unclean_loss(scene.cluster, stack)
    scene.fire("OttlaUncleanElection")
    scene.fire("OttlaCommittedRecordsTruncated", node=4)


def a_replica_copies_slowly(scene: Scene) -> None:
    """It was away for a while, and its network is too slow for what it missed."""
    cluster = scene.cluster
    leader, follower = 4, 2
    topic = cluster.create_topic("lagging", assignment=[[leader, follower]], config=ONE_IS_ENOUGH)
    alter(cluster, TOPIC, topic, follower_replication_throttled_replicas="*")
    alter(cluster, BROKER, "", follower_replication_throttled_rate="1000")
    assert cluster.stop(follower) == [0]
    produce(cluster, topic, 40_000, 400)
    cluster.start(follower)
    scene.fire("OttlaReplicaLag", node=follower)
    alter(cluster, BROKER, "", follower_replication_throttled_rate=None)
    cluster.wait_whole(topic, 60)


def a_standby_controller_hangs(scene: Scene) -> None:
    """It misses a thousand metadata records: new quotas, because they cost the others nothing."""
    cluster = scene.cluster
    standby = other_than(cluster)
    ops = [{"key": "producer_byte_rate", "value": 1e9, "remove": False}]
    entries = [
        {"entity": [{"entity_type": "user", "entity_name": f"user-{number}"}], "ops": ops}
        for number in range(1100)
    ]
    fields = {"entries": entries, "validate_only": False}
    with paused(cluster, standby):
        answer = cluster.ask(cluster.up[0], ApiKey.ALTER_CLIENT_QUOTAS, 1, fields)
        assert {entry.error_code for entry in answer.entries} == {ErrorCode.NONE}
        scene.fire("OttlaQuorumLag")


# -- faults of disks and of the machine ------------------------------------------------------------


def a_disk_fills(scene: Scene) -> None:
    """With what somebody else writes."""
    place = second_disk(scene.cluster, SECOND_DISK_OF)
    if not place.is_mount():
        pytest.skip("this user may not mount a small disk")
    foreign = place / "foreign"
    with foreign.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, SECOND_DISK_SIZE * 19 // 20)
    scene.fire("OttlaDiskFull", node=SECOND_DISK_OF)
    foreign.unlink()


def a_disk_fails(scene: Scene) -> None:
    """A write to a log on it fails. The other disk of the node is well."""
    cluster = scene.cluster
    topic = cluster.create_topic("failing", assignment=[[2, SECOND_DISK_OF, 3]] * 2)
    place = second_disk(cluster, SECOND_DISK_OF)
    (log,) = place.glob(f"{topic}-*")
    limit_file_size(cluster, SECOND_DISK_OF)
    produce(cluster, topic, 400, 10_000, partition=int(log.name[-1]))
    scene.fire("OttlaLogDirectoryOffline", "OttlaOfflineReplicas", node=SECOND_DISK_OF)
    cluster.restart(SECOND_DISK_OF)
    cluster.wait_whole(topic)


def a_disk_flushes_slowly(scene: Scene) -> None:
    """Every fsync of a standby controller takes longer than a second: strace delays the system call."""
    node = other_than(scene.cluster)
    command = [
        tool("strace", "strace"),
        "--follow-forks",
        f"--attach={scene.cluster.nodes[node].pid}",
    ]
    delay = f"--inject=fsync,fdatasync:delay_exit={FLUSH_S}s"
    with subprocess.Popen(
        [*command, "--trace=fsync,fdatasync", delay, "--output=/dev/null"], stderr=subprocess.PIPE
    ) as strace:
        try:
            wait_until(
                lambda: strace.poll() is not None or scene.fires("OttlaSlowFlushes", node=node),
                SECONDS_TO_FIRE,
                "OttlaSlowFlushes fires",
                every=1,
            )
        finally:
            strace.terminate()
        assert strace.stderr is not None
        if "OttlaSlowFlushes" not in scene.fired:
            pytest.skip(f"strace may not attach to a node: {strace.stderr.read().decode()}")


def files_run_out(scene: Scene) -> None:
    """The node may open twice as many files as it has open, and clients take them."""
    node = scene.cluster.nodes[2]
    assert node.pid is not None
    before = resource.prlimit(node.pid, resource.RLIMIT_NOFILE)
    open_files = len(list(Path(f"/proc/{node.pid}/fd").iterdir()))
    resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (2 * open_files, before[1]))
    with ExitStack() as stack:
        stack.callback(resource.prlimit, node.pid, resource.RLIMIT_NOFILE, before)
        for _ in range(open_files * 3 // 4):
            stack.enter_context(socket.create_connection((HOST, node.port)))
        scene.fire("OttlaFilesRunOut", node=node.id)


# -- faults of nodes and of the cluster ------------------------------------------------------------


def two_clusters_under_one_job(scene: Scene) -> None:
    """One of the two causes that the rule names. The other, an active controller that was replaced and does not know it,
    lasts for less than a scrape."""
    (port,) = free_ports(1)
    listener = {"metrics.listeners": f"HTTP://{HOST}:{port}"}
    with ProcessCluster(scene.directory / "other", 1, listener):
        scene.server.scrape([*scene.ports.values(), port])
        scene.fire("OttlaTwoActiveControllers")
        scene.server.scrape(scene.ports.values())


def a_producer_hangs_in_its_transaction(scene: Scene) -> None:
    """For twenty minutes: so long ago is put as its beginning on the disk of the coordinator, while that is down."""
    cluster = scene.cluster
    topic = cluster.create_topic("paid")
    hanging = ConfluentTransactions(cluster.bootstrap, "hangs", timeout_ms=3_600_000)
    hanging.begin()
    hanging.send(topic, "never committed")
    coordinator = cluster.leader(TRANSACTION_STATE_TOPIC)
    cluster.kill(coordinator)
    node = cluster.nodes[coordinator]
    (segment,) = node.directory.glob(f"*/{TRANSACTION_STATE_TOPIC}-0/*.log")
    _began_earlier(segment, 20 * 60_000)
    cluster.start(coordinator)
    scene.fire("OttlaTransactionOpenTooLong", node=coordinator)
    ConfluentTransactions(cluster.bootstrap, "hangs").close()  # its successor aborts it


def _began_earlier(segment: Path, by_ms: int) -> None:
    """The last transaction in this log of a coordinator."""
    log = segment.read_bytes()
    *_, last = batches(log)
    (record,) = records(log, last)
    assert record.key is not None
    id, transaction = read_transaction(CoordinatorRecord(record.key, record.value))
    assert transaction is not None and transaction.state is TransactionState.ONGOING
    earlier = transaction_record(id, replace(transaction, start_ms=transaction.start_ms - by_ms))
    batch = build(
        [Record(last.next_offset, int(time.time() * 1000), earlier.key, earlier.value)],
        base_offset=last.next_offset,
        leader_epoch=last.leader_epoch,
    )
    with segment.open("ab") as file:
        file.write(batch)


def a_transaction_that_no_coordinator_knows(scene: Scene) -> None:
    """It began more than transaction.max.timeout.ms and five minutes ago."""
    cluster = scene.cluster
    topic = cluster.create_topic("hanging", assignment=[[other_than(cluster)]])
    put_hanging_transaction(cluster, topic, 70 * 60_000)
    scene.fire("OttlaHangingTransactions", node=cluster.leader(topic))
    of = ("--topic", topic, "--partition", "0", "--start-offset", "100")
    cluster.ottla("transactions", "abort", *of)


def a_node_restarts_again_and_again(scene: Scene) -> None:
    node = other_than(scene.cluster, SECOND_DISK_OF)

    def crash() -> bool:
        scene.cluster.kill(node)
        scene.cluster.start(node)
        return scene.fires("OttlaNodeRestarts", node=node)

    wait_until(crash, SECONDS_TO_FIRE, "it has restarted too often", every=2)


def brokers_die(scene: Scene) -> None:
    """First one; then no majority of the controllers is left; then all come back."""
    cluster = scene.cluster
    cluster.create_topic("strict", assignment=[[1, 2, 3]], config={"min.insync.replicas": "3"})
    cluster.create_topic("single", assignment=[[3]])
    cluster.kill(3)
    scene.fire("OttlaNodeDown", node=3)
    scene.fire("OttlaUnderReplicated", "OttlaUnderMinIsr", node=1)
    scene.fire("OttlaBrokerFenced", "OttlaOfflinePartitions")
    cluster.kill(2)
    scene.fire("OttlaNoActiveController")
    scene.fire("OttlaNodeNotReady", "OttlaMetadataLag", node=1)
    cluster.mend()


CAUSES: dict[str, Callable[[Scene], None]] = {
    "OttlaIsrFlapping": hangs_again_and_again,
    "OttlaSlowProduce": hangs_again_and_again,
    "OttlaEventLoopStalls": hangs_again_and_again,
    "OttlaUncleanElection": an_unclean_election,
    "OttlaCommittedRecordsTruncated": an_unclean_election,
    "OttlaNodeRestarts": a_node_restarts_again_and_again,
    "OttlaReplicaLag": a_replica_copies_slowly,
    "OttlaQuorumLag": a_standby_controller_hangs,
    "OttlaDiskFull": a_disk_fills,
    "OttlaLogDirectoryOffline": a_disk_fails,
    "OttlaOfflineReplicas": a_disk_fails,
    "OttlaSlowFlushes": a_disk_flushes_slowly,
    "OttlaFilesRunOut": files_run_out,
    "OttlaTwoActiveControllers": two_clusters_under_one_job,
    "OttlaTransactionOpenTooLong": a_producer_hangs_in_its_transaction,
    "OttlaHangingTransactions": a_transaction_that_no_coordinator_knows,
    "OttlaNodeDown": brokers_die,
    "OttlaUnderReplicated": brokers_die,
    "OttlaUnderMinIsr": brokers_die,
    "OttlaBrokerFenced": brokers_die,
    "OttlaOfflinePartitions": brokers_die,
    "OttlaNoActiveController": brokers_die,
    "OttlaNodeNotReady": brokers_die,
    "OttlaMetadataLag": brokers_die,
}
"""Rule → what causes it, in the order in which the faults are played."""

LOOKS_BACK = {
    "OttlaIsrFlapping",
    "OttlaSlowProduce",
    "OttlaEventLoopStalls",
    "OttlaSlowFlushes",
    "OttlaUncleanElection",
    "OttlaCommittedRecordsTruncated",
    "OttlaNodeRestarts",
}
"""Rules about the last minutes."""
