"""What must hold when everything is healed and at rest: the liveness list of RELIABILITY §1, and the rules C1, C2, D2 and
D3 against what is on the disks."""

from __future__ import annotations

from ottla.records.batch import NO_PRODUCER_ID, NO_SEQUENCE, Batch, read_batch
from ottla.records.record import records as records_of
from ottla.sim.clients.workload import Workload
from ottla.sim.cluster.nodes import SimCluster, SimNode
from ottla.sim.oracle.evidence import Evidence
from ottla.sim.oracle.history import TABLE, History
from ottla.sim.oracle.ledger import Ledger, Violation, content
from ottla.wire.internal_topics import INTERNAL_TOPICS
from ottla.wire.types import TopicPartition


def unsettled(
    cluster: SimCluster, evidence: Evidence, workload: Workload, absent: SimNode | None = None
) -> list[str]:
    """Why the cluster is not at rest yet; without `absent`, if one node stays away."""
    present = {id: node for id, node in cluster.nodes.items() if node is not absent}
    left = [f"{node!r}" for node in present.values() if node.state != "up"]
    if left:
        return left
    nodes = {id: node.node for id, node in present.items() if node.node is not None}
    quorums = [node.quorum for node in nodes.values() if node.quorum is not None]
    if not any(quorum.is_active for quorum in quorums):
        left.append("no active controller")
    left += [
        f"node {quorum.node_id} has not joined the voters by itself"
        for quorum in quorums
        if quorum.joins_by_itself and not quorum.raft.is_voter
    ]
    if len({quorum.image.offset for quorum in quorums}) > 1:
        left.append(f"metadata up to {[quorum.image.offset for quorum in quorums]}")
    too_few = set()
    for topic in evidence.image.topics.values():
        for number, decided in enumerate(topic.partitions):
            key = TopicPartition(topic.name, number)
            replicas = [id for id in decided.replicas if id in present]
            if set(decided.isr) != set(replicas) or decided.leader < 0:
                left.append(f"{topic.name}-{number}: {evidence.describe(key)}")
                continue
            if topic.name == TABLE:
                continue  # `compacted_table` checks it
            for id in replicas:
                broker = nodes[id].broker
                partition = None if broker is None else broker.replicas.partitions.get(key)
                if partition is None:
                    left.append(f"{topic.name}-{number} is not on node {id}")
                elif absent is not None and partition.is_under_min_isr:
                    too_few.add(key)
                elif not (
                    partition.log.high_watermark == partition.log.log_end == evidence.end_of(key)
                ):
                    left.append(f"node {id}, committed {evidence.end_of(key)}: {partition!r}")
    left += [
        f"no batch of {producer.name} was acknowledged since then"
        for producer in workload.producers
        if not (producer.is_done or producer.partition in too_few)
    ]
    left += [
        f"{key.topic}-{key.partition} has no leader, but node {id} may lead: it {why}"
        for key, candidates in evidence.leaderless().items()
        for id, why in candidates.items()
    ]
    left += [
        f"{consumer.name} has read up to {consumer.position} of {consumer.partition}"
        for consumer in workload.consumers
        # Below the minimum a new leader's high watermark stands, perhaps short of what is committed.
        if consumer.position < evidence.end_of(consumer.partition)
        and consumer.partition not in too_few
    ]
    return left


def check_end(cluster: SimCluster, evidence: Evidence, history: History) -> None:
    """D2: the logs are equal. C1, C2, D3: they hold what the clients were answered."""
    for key, ledger in sorted(evidence.ledgers.items()):
        if key.topic == TABLE:
            continue
        start, values = _values(cluster, evidence, key, history)
        _check_clients(key, start, values, history, ledger)


def check_losses(cluster: SimCluster, evidence: Evidence) -> None:
    """What brokers name as lost is what is lost, where the run can tell."""
    if evidence.losses is not None:
        copies = {
            key: evidence.copy_of(topic.partitions[key.partition].replicas[0], key)
            for key in evidence.ledgers
            if (topic := evidence.image.topics.get(key.topic)) is not None
        }
        evidence.losses.check_end(cluster, copies)


def _fail(rule: str, key: TopicPartition, what: str) -> Violation:
    return Violation(rule, f"{key.topic}-{key.partition}, at the end", what, [])


def _values(
    cluster: SimCluster, evidence: Evidence, key: TopicPartition, history: History
) -> tuple[int, dict[int, bytes]]:
    """The log start, and offset → value from there on, which is the same on every replica. On the way C1: sequences
    without gap or repetition."""
    start, values = -1, dict[int, bytes]()
    topic = evidence.image.topics[key.topic]
    ledger = evidence.ledgers[key]
    for id in topic.partitions[key.partition].replicas:
        node = cluster.nodes[id]
        assert node.node is not None and node.node.broker is not None
        copy, log = evidence.copy_of(id, key), node.node.broker.replicas.partitions[key].log
        if not ledger.holds_all(copy) or copy.end != ledger.end:
            raise _fail("D2", key, f"the log of node {id} differs from what is committed")
        if start >= 0 or node.host.disk.may_be_wrong(log.path):
            continue  # its hashes equal those of the first replica
        start = log.log_start
        sequences: dict[tuple[int, int], Batch] = {}
        for seen in copy.after(start):
            data = content(node.host.disk, log, seen)
            batch = read_batch(data, 0)
            first_may_be_gone = start > 0 or key in history.born
            first_may_be_gone |= batch.producer_id in history.begun_late
            _check_sequence(key, batch, sequences, ledger, first_may_be_gone)
            if not batch.is_control:
                for record in records_of(data, batch):
                    values[record.offset] = record.value or b""
    # If the disks of all replicas damaged it, only the hashes can be compared.
    return (start if start >= 0 else ledger.end), values


def _check_sequence(
    key: TopicPartition,
    batch: Batch,
    sequences: dict[tuple[int, int], Batch],
    ledger: Ledger,
    expired: bool,
) -> None:
    """C1: a gap is only where the log begins, or where a recorded loss lies between the two batches."""
    if batch.producer_id == NO_PRODUCER_ID or batch.base_sequence == NO_SEQUENCE:
        return
    producer = batch.producer_id, batch.producer_epoch
    before = sequences.get(producer)
    expected = 0 if before is None else before.last_sequence + 1
    explained = (before is None and expired) or any(
        (before is None or before.next_offset <= loss.first) and loss.first <= batch.base_offset
        for loss in ledger.losses
    )
    if batch.base_sequence != expected and not explained:
        raise _fail(
            "C1",
            key,
            f"offset {batch.base_offset} has sequence {batch.base_sequence} of producer "
            f"{batch.producer_id}, but {expected} is next",
        )
    sequences[producer] = batch


def _check_clients(
    key: TopicPartition, start: int, values: dict[int, bytes], history: History, ledger: Ledger
) -> None:
    places: dict[bytes, int] = {}
    for offset, value in values.items():
        if value in places and key.topic not in INTERNAL_TOPICS:
            raise _fail(
                "C1", key, f"{value!r} is in the log twice, at {places[value]} and {offset}"
            )
        places[value] = offset
    for ack in history.acknowledged:
        if ack.batch.partition != key or not history.is_of_now(ack.batch):
            continue
        for number, value in enumerate(ack.batch.values):
            offset = ack.base_offset + number
            if offset < start or ledger.excuses(offset, ack.epoch):
                continue
            if places.get(value) != offset:
                raise _fail(
                    "C2",
                    key,
                    f"{value!r} was acknowledged at {ack.base_offset + number}, but it is at "
                    f"{places.get(value)}",
                )
    for offset, (value, epoch) in history.read.get(key, {}).items():
        if offset >= start and values.get(offset) != value and not ledger.excuses(offset, epoch):
            raise _fail(
                "D3", key, f"{value!r} was read at {offset}, but the log has {values.get(offset)!r}"
            )
