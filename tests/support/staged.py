"""Twelve situations that `ottla explain` must explain, each staged with real processes, real clients and real faults.

A stage is a function with the cluster's settings. It leaves the cluster in the situation and returns the name to explain.
`STAGES` lists them with what a reader must find in the output: words of the cause and words of the remedy.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer as ConfluentProducer

from ottla.records.batch import batches
from ottla.records.record import Record, build
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.internal_topics import EVENT_LOG_TOPIC
from support.cluster import OTTLA, ProcessCluster, wait_until
from support.disks import give_second_disks, limit_file_size
from support.groups import ConfluentMember, settle

QUICK = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "2000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
"""Kafka's timeouts, shortened: the stages wait for them to pass."""
PATIENT = {**QUICK, "broker.session.timeout.ms": "60000"}
"""A paused broker is not fenced."""
LISTENER_NOBODY_HAS = "127.0.0.1:1"


@dataclass(frozen=True)
class Stage:
    title: str
    play: Callable[[ProcessCluster, ExitStack], str]
    """Returns what to explain."""
    cause: tuple[str, ...]
    remedy: tuple[str, ...]
    brokers: int = 3
    settings: Mapping[str, str] = field(default_factory=lambda: QUICK)
    prepare: Callable[[ProcessCluster], None] = lambda cluster: None
    """Before the nodes start."""
    heals: str = ""
    """Words of the step whose command a test types, and that heals it. (Other remedies start or repair nodes.)"""


def explained(cluster: ProcessCluster, *words: str) -> str:
    done = subprocess.run(
        [str(OTTLA), "explain", *words, "--dir", str(cluster.directory)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def staged(stage: Stage, directory: Path) -> Iterator[tuple[ProcessCluster, str]]:
    """The cluster in its situation, and what to explain."""
    cluster = ProcessCluster(directory, stage.brokers, stage.settings)
    stage.prepare(cluster)
    with cluster, ExitStack() as stack:
        wait_until(lambda: cluster.partitions(EVENT_LOG_TOPIC), 20, "an event log")
        yield cluster, stage.play(cluster, stack)


def explanation_of(stage: Stage, cluster: ProcessCluster, name: str) -> str:
    """As soon as it has all the words: the event log is written a moment after the events."""
    words = (*stage.cause, *stage.remedy)
    last = ""

    def complete() -> bool:
        nonlocal last
        last = explained(cluster, name)
        return all(each in last for each in words)

    try:
        wait_until(complete, 20, stage.title)
    except AssertionError:
        missing = [each for each in words if each not in last]
        raise AssertionError(f"{stage.title}: no {missing} in\n{last}") from None
    return last


def heal(cluster: ProcessCluster, name: str, remedy: str) -> None:
    """Type the command of the step with these words, as it stands; then nothing is wrong any more."""
    words = [str(OTTLA), "explain", name, "--dir", str(cluster.directory), "--format", "json"]

    def told() -> dict[str, Any]:
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
        (only,) = json.loads(done.stdout)
        return dict(only)

    (step,) = (each for each in told()["steps"] if remedy in each["text"])
    typed = [str(OTTLA), *step["command"].split()[1:]]
    done = subprocess.run(typed, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, (step, done.stderr)

    def is_well() -> bool:
        found = told()
        return found["ok"] and "is being moved" not in found["headline"]

    wait_until(is_well, 30, f"{name} is well again")


def produce(
    cluster: ProcessCluster,
    topic: str,
    count: int,
    size: int = 100,
    *,
    partition: int = 0,
    **config: object,
) -> None:
    producer = ConfluentProducer(
        {"bootstrap.servers": cluster.bootstrap, "log_level": 0, "acks": "all", **config}
    )
    for number in range(count):
        producer.produce(topic, b"%08d" % number + bytes(size), partition=partition)
        producer.poll(0)
    assert producer.flush(60) == 0


def other_than(cluster: ProcessCluster, *taken: int) -> int:
    """A broker that is not the active controller, nor one of these."""
    controller = wait_until(cluster.active_controller, 10, "an active controller")
    return next(id for id in cluster.nodes if id not in (controller, *taken))


def _slow_follower(cluster: ProcessCluster, stack: ExitStack) -> str:
    """A follower that hangs, for example because of its disk, while its session lasts. Not the leader of the event log:
    nobody could write down what happens."""
    follower = other_than(cluster, cluster.leader(EVENT_LOG_TOPIC))
    leader, third = (id for id in cluster.nodes if id != follower)
    topic = cluster.create_topic("orders", assignment=[[leader, follower, third]])
    produce(cluster, topic, 100)
    cluster.pause(follower)
    stack.callback(cluster.resume, follower)
    produce(cluster, topic, 500, acks=1)
    wait_until(lambda: follower not in cluster.partitions(topic)[0].isr, 20, "it leaves the ISR")
    return f"{topic}-0"


def _killed_leader(cluster: ProcessCluster, stack: ExitStack) -> str:
    leader = other_than(cluster)
    others = [id for id in cluster.nodes if id != leader]
    topic = cluster.create_topic("orders", assignment=[[leader, *others]])
    produce(cluster, topic, 100)
    cluster.kill(leader)
    wait_until(lambda: cluster.leader(topic) != leader, 20, "another leads")
    return f"{topic}-0"


def _disk_fails(cluster: ProcessCluster, stack: ExitStack) -> str:
    """Broker 1 may write no file larger than two megabytes: a log on its second disk reaches that. Without its first disk,
    where its metadata is, it would end."""
    cluster.create_topic("first", assignment=[[2, 1, 3]])
    limit_file_size(cluster, 1)
    topic = cluster.create_topic("orders", assignment=[[2, 1, 3]])
    produce(cluster, topic, 400, 10_000)
    wait_until(lambda: 1 not in cluster.partitions(topic)[0].isr, 20, "its replica is offline")
    return f"{topic}-0"


def _stuck_group(cluster: ProcessCluster, stack: ExitStack) -> str:
    """One member does not call poll() any more, and a new one joins."""
    topic = cluster.create_topic("orders", 2)
    produce(cluster, topic, 100)
    first = ConfluentMember(cluster.bootstrap, "billing", [topic], **{"client.id": "sleeper"})
    stack.callback(first.close)
    settle([first], [2], "it has both")
    second = ConfluentMember(cluster.bootstrap, "billing", [topic], **{"client.id": "newcomer"})
    stack.callback(second.close)
    over = threading.Event()
    stack.callback(over.set)

    def poll() -> None:
        while not over.is_set():
            second.consumer.poll(0.1)

    polling = threading.Thread(target=poll, daemon=True)
    polling.start()
    stack.callback(polling.join)
    stack.callback(over.set)
    return "billing"


def _hanging_transaction(cluster: ProcessCluster, stack: ExitStack) -> str:
    topic = cluster.create_topic("orders", assignment=[[other_than(cluster)]])
    put_hanging_transaction(cluster, topic, 0)
    return f"{topic}-0"


def put_hanging_transaction(cluster: ProcessCluster, topic: str, began_ms_ago: int) -> None:
    """The log of an older Kafka, before KIP-890: a transaction that no coordinator knows. Brokers of today refuse to write
    one, so it is put on the disk of the broker that has the topic, while that is down."""
    broker = cluster.leader(topic)
    produce(cluster, topic, 100)
    cluster.kill(broker)
    (segment,) = cluster.nodes[broker].directory.glob(f"*/{topic}-0/*.log")
    last = list(batches(segment.read_bytes()))[-1]
    batch = build(
        [Record(last.next_offset, int(time.time() * 1000) - began_ms_ago, None, b"paid")],
        base_offset=last.next_offset,
        leader_epoch=last.leader_epoch,
        producer_id=4711,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    with segment.open("ab") as file:
        file.write(batch)
    cluster.start(broker)
    produce(cluster, topic, 100)


def _fenced_broker(cluster: ProcessCluster, stack: ExitStack) -> str:
    broker = other_than(cluster)
    topic = cluster.create_topic("orders")
    produce(cluster, topic, 100)
    cluster.pause(broker)
    stack.callback(cluster.resume, broker)
    wait_until(lambda: broker not in cluster.partitions(topic)[0].isr, 20, "it is fenced")
    return str(broker)


def _min_insync(cluster: ProcessCluster, stack: ExitStack) -> str:
    follower = other_than(cluster)
    leader = next(id for id in cluster.nodes if id != follower)
    topic = cluster.create_topic(
        "orders", config={"min.insync.replicas": "2"}, assignment=[[leader, follower]]
    )
    produce(cluster, topic, 100)
    cluster.kill(follower)
    wait_until(lambda: cluster.partitions(topic)[0].isr == [leader], 20, "an ISR of one")
    return f"{topic}-0"


def _no_majority(cluster: ProcessCluster, stack: ExitStack) -> str:
    topic = cluster.create_topic("orders", assignment=[[1, 2, 3]])
    produce(cluster, topic, 100)
    cluster.kill(2, 3)
    return f"{topic}-0"


def unclean_loss(cluster: ProcessCluster, stack: ExitStack) -> str:
    """Broker 4 writes alone, dies, and broker 3, which lacks these records, is elected."""
    config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    topic = cluster.create_topic("orders", config=config, assignment=[[4, 3]])
    produce(cluster, topic, 100)
    assert cluster.stop(3) == [0]
    wait_until(lambda: cluster.partitions(topic)[0].isr == [4], 20, "an ISR of one")
    produce(cluster, topic, 50)
    cluster.kill(4)
    cluster.start(3)
    wait_until(lambda: cluster.leader(topic) == 3, 20, "broker 3 leads")
    produce(cluster, topic, 10)
    cluster.start(4)
    cluster.wait_whole(topic)
    return f"{topic}-0"


def _advertise_wrongly(cluster: ProcessCluster) -> None:
    with cluster.nodes[3].config.open("a") as file:
        file.write(f"advertised.listeners=PLAINTEXT://{LISTENER_NOBODY_HAS}\n")


def _wrong_listener(cluster: ProcessCluster, stack: ExitStack) -> str:
    topic = cluster.create_topic("orders", assignment=[[3, 1, 2]])
    return f"{topic}-0"


def _quota(cluster: ProcessCluster, stack: ExitStack) -> str:
    topic = cluster.create_topic("orders", assignment=[[1, 2, 3]])
    ops = [{"key": "producer_byte_rate", "value": 20_000.0, "remove": False}]
    entity = [{"entity_type": "client-id", "entity_name": "importer"}]
    fields = {"entries": [{"entity": entity, "ops": ops}], "validate_only": False}
    (entry,) = cluster.ask(cluster.nodes[1], ApiKey.ALTER_CLIENT_QUOTAS, 1, fields).entries
    assert entry.error_code == ErrorCode.NONE
    one_by_one: dict[str, Any] = {"client.id": "importer", "batch.num.messages": 1, "linger.ms": 0}
    produce(cluster, topic, 4, 80_000, **one_by_one)
    return "1"


def _throttled_move(cluster: ProcessCluster, stack: ExitStack) -> str:
    config = {"leader.replication.throttled.replicas": "*"}
    topic = cluster.create_topic("orders", assignment=[[1, 2]], config=config)
    produce(cluster, topic, 100, 50_000)
    rate = {"name": "leader.replication.throttled.rate", "config_operation": 0, "value": "1000"}
    row = {"resource_type": 4, "resource_name": "", "configs": [rate]}
    fields = {"resources": [row], "validate_only": False}
    (answer,) = cluster.ask(cluster.up[0], ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, fields).responses
    assert int(answer.error_code) == ErrorCode.NONE
    cluster.ottla("topics", "reassign", topic, "-p", "0", "--replicas", "1,3")
    return f"{topic}-0"


STAGES = (
    Stage(
        "A follower that does not keep up",
        _slow_follower,
        (
            "left the ISR",
            "because it stopped fetching",
            "does not answer (its process is paused), and is not fenced",
            "works, but broker",
        ),
        ("The process of broker", "is paused: continue it", "kill -CONT"),
        settings=PATIENT,
    ),
    Stage(
        "A leader that was killed",
        _killed_leader,
        (
            "works, but broker",
            "does not run (it ended about",
            "refuses connections",
            "was elected leader after broker",
            "led it before",
        ),
        ("ottla nodes start", "catches up and joins the ISR by itself"),
    ),
    Stage(
        "A log directory that fails",
        _disk_fails,
        ("has a failed log directory", "Its replica there is offline", "File too large"),
        (
            "ulimit -f",
            "A full disk has another error",
            "Only then restart broker 1",
            "ottla nodes stop 1",
        ),
        prepare=give_second_disks,
    ),
    Stage(
        "A group that is stuck in a rebalance",
        _stuck_group,
        ("held up by client sleeper (127.0.0.1)", "JoinGroup", "That sends heartbeats"),
        ("does not call poll()", "Fix or restart it"),
    ),
    Stage(
        "A hanging transaction",
        _hanging_transaction,
        (
            "A transaction that no coordinator knows",
            "read_committed stop before offset 100",
            "all answered and had loaded",
            "The end of the log of orders-0 may be missing",
        ),
        (
            "Look again in a minute",
            "cannot be undone",
            "ottla transactions abort --topic orders --partition 0 --start-offset 100",
        ),
        heals="abort it",
    ),
    Stage(
        "A fenced broker",
        _fenced_broker,
        (
            "the controller has fenced it",
            "the controller got no heartbeat from it in time",
            "its process is paused",
            "have one replica less",
        ),
        ("is paused: continue it", "kill -CONT"),
    ),
    Stage(
        "Fewer replicas in sync than min.insync.replicas",
        _min_insync,
        (
            "takes no records with acks=all",
            "min.insync.replicas is 2",
            "does not run",
            "its address refuses connections",
        ),
        (
            "ottla nodes start",
            "ottla topics alter orders -c min.insync.replicas=1",
            "ottla topics alter orders -c min.insync.replicas=2",
        ),
    ),
    Stage(
        "No majority of controllers",
        _no_majority,
        (
            "no active controller",
            "1 of 3 controllers answers, 2 are needed",
            "broker 2 does not run",
            "acks=1 is no way out",
            "That is so for about",
        ),
        ("when a majority of the controllers runs", "ottla up --detach"),
    ),
    Stage(
        "Records lost by an unclean election",
        unclean_loss,
        (
            "lost 50 records by an unclean election",
            "had been committed",
            "Broker 4 kept a copy",
            "cut them off",
        ),
        (
            "ottla losses --topic orders",
            "unclean.leader.election.enable=false",
            "give it a third replica",
            "ottla topics reassign orders -p 0 --replicas 4,3,1",
        ),
        brokers=4,
    ),
    Stage(
        "A wrong advertised listener",
        _wrong_listener,
        (
            "clients cannot reach it",
            LISTENER_NOBODY_HAS,
            "advertised.listeners of broker 3 is wrong",
            "cannot reach it either",
        ),
        (
            "Set advertised.listeners of broker 3",
            "which only clients on this machine reach",
            "Caution: it is the only replica in sync of orders-0",
            "server.properties && ottla nodes stop 3",
        ),
        prepare=_advertise_wrongly,
    ),
    Stage(
        "A client above its quota",
        _quota,
        (
            "throttled client importer",
            "producer_byte_rate=20000 (19.5 KiB/s)",
            "The quota is set for client-id importer",
        ),
        ("If the quota is meant, leave it", "Or raise the quota", "ottla kafka-configs"),
    ),
    Stage(
        "A reassignment that is throttled",
        _throttled_move,
        (
            "is being moved to brokers 1 and 3",
            "a throttle limits the copy to 1000 B/s",
            "so it takes at least",
        ),
        (
            "Wait, if the throttle is meant",
            "leader.replication.throttled.rate=10000",
            "Or lift the throttle of topic orders. Caution",
            "ottla topics reassign orders -p 0 --cancel",
        ),
        heals="lift the throttle",
    ),
)
