"""The promises about replicas, acknowledgements and reconciliation, on real processes.

One cluster for all: the controllers on nodes 1 to 3, and brokers 4 to 6, which are killed and paused.
Sessions and the lag limit are long, so a paused replica stays in the ISR; a killed one leaves at once,
because its connection breaks. A follower's fetch may wait long, so a follower hears of a high watermark
only with the next record: the gap in which the scenarios of the documents play is open until something
closes it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from ottla.cli.checkpoints import read as read_checkpoints
from ottla.records.batch import batches
from ottla.wire.errors import ErrorCode
from support.cluster import ProcessCluster, byte_identical, paused, wait_until
from support.messages import value_of
from support.wire import (
    Offsets,
    Writer,
    latest_offset,
    offsets,
    read,
    values,
    values_in,
    write,
)

pytestmark = pytest.mark.timeout(120)

ALL, LEADER_ONLY, NO_ANSWER = -1, 1, 0
SETTINGS = {
    "broker.session.timeout.ms": "60000",
    "broker.heartbeat.interval.ms": "2000",
    "replica.lag.time.max.ms": "60000",
    "replica.fetch.wait.max.ms": "20000",
    "replica.high.watermark.checkpoint.interval.ms": "200",
    "auto.leader.rebalance.enable": "false",
    # A follower is told of commits with whatever it fetches from the same leader, and events come at any time.
    "ottla.event.log.enable": "false",
}
RACKS = {1: "a", 2: "b", 3: "c", 4: "a", 5: "b", 6: "c"}
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """Only node 1 sends consumers to the follower near them."""
    nodes = {id: {"broker.rack": rack} for id, rack in RACKS.items()}
    nodes[1]["replica.selector.class"] = RACK_AWARE
    with ProcessCluster(tmp_path_factory.mktemp("replication"), 6, SETTINGS, nodes) as running:
        yield running


@pytest.fixture(autouse=True)
def whole(cluster: ProcessCluster) -> Iterator[None]:
    """A test that failed half-way leaves the others a cluster in which everybody runs."""
    yield
    cluster.mend()


def acknowledged(cluster: ProcessCluster, topic: str, *written: str, acks: int = ALL) -> None:
    for value in written:
        assert write(cluster, topic, value, acks) is ErrorCode.NONE


def wait_isr(cluster: ProcessCluster, topic: str, *isr: int) -> None:
    wait_until(
        lambda: sorted(cluster.partitions(topic)[0].isr) == sorted(isr), 20, f"ISR of {topic} {isr}"
    )


def wait_leader(cluster: ProcessCluster, topic: str, leader: int) -> None:
    """Until the metadata says so and the broker itself has heard of it."""
    wait_until(lambda: cluster.partitions(topic)[0].leader == leader, 20, f"{leader} leads {topic}")

    def leads() -> bool:
        return latest_offset(cluster, leader, topic) is not ErrorCode.NOT_LEADER_OR_FOLLOWER

    wait_until(leads, 20, f"{leader} knows that it leads {topic}")


def wait_values(cluster: ProcessCluster, topic: str, *expected: str) -> None:
    """Until a consumer at the leader reads just these."""
    leader = cluster.leader(topic)
    wait_until(
        lambda: values(read(cluster, leader, topic)) == list(expected), 20, f"{expected} visible"
    )


def wait_leaderless(cluster: ProcessCluster, topic: str) -> None:
    wait_until(lambda: cluster.partitions(topic)[0].leader < 0, 20, "nobody leads")


def wait_content(file: Path, text: str, what: str) -> None:
    wait_until(lambda: file.read_text() == text, 10, what)


def wait_checkpoint(
    cluster: ProcessCluster, broker: int, topic: str, column: str, offset: int
) -> None:
    wait_until(
        lambda: (
            read_checkpoints(cluster.nodes[broker].data).get((topic, 0), {}).get(column) == offset
        ),
        20,
        f"{column} {offset} of {topic} on the disk of broker {broker}",
    )


def truncations(cluster: ProcessCluster, node_id: int, topic: str) -> list[str]:
    """What a node reports of records that it cut off."""
    lines = cluster.nodes[node_id].log.read_text().splitlines()
    return [line for line in lines if f"truncated log partition={topic}-0 " in line]


# -- A. The log and its replicas


def test_P03_writes_go_to_the_leader_and_reads_to_the_follower_in_the_consumers_rack(
    cluster: ProcessCluster,
) -> None:
    topic = cluster.create_topic("racks", assignment=[[1, 2]])
    acknowledged(cluster, topic, "near")
    refused = Writer(cluster, 2, topic).write("at a follower", ALL)
    assert refused.error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert read(cluster, 1, topic).preferred_read_replica == -1
    assert values(read(cluster, 1, topic, rack="a")) == ["near"]
    sent_on = read(cluster, 1, topic, rack="b")
    assert (sent_on.preferred_read_replica, values(sent_on)) == (2, [])
    wait_until(lambda: values(read(cluster, 2, topic, rack="b")) == ["near"], 10, "HW at 2")


def test_P06_P14_an_out_of_sync_replica_is_told_and_holds_the_high_watermark_back_no_more(
    cluster: ProcessCluster,
) -> None:
    topic = cluster.create_topic("vocabulary", assignment=[[4, 5, 6]])
    acknowledged(cluster, topic, "a", "b")
    (partition,) = cluster.ottla("replicas", topic)["partitions"]
    assert (partition["ar"], sorted(partition["isr"]), partition["osr"]) == (
        [4, 5, 6],
        [4, 5, 6],
        [],
    )
    told = {row["broker"]: Offsets(row["leo"], row["hw"]) for row in partition["replicas"]}
    assert told[4] == Offsets(2, 2)
    assert told[5] == told[6] == Offsets(2, 1), "a follower hears of the HW with the next record"
    assert told == {id: offsets(cluster, id, topic) for id in (4, 5, 6)}, "as on the wire"
    cluster.kill(6)
    wait_isr(cluster, topic, 4, 5)
    acknowledged(cluster, topic, "c")
    (partition,) = cluster.ottla("replicas", topic)["partitions"]
    assert (sorted(partition["isr"]), partition["osr"]) == ([4, 5], [6])
    known = {row["broker"]: (row["leo"], row["hw"]) for row in partition["replicas"]}
    assert known == {4: (3, 3), 5: (3, 2), 6: (None, None)}
    cluster.start(6)
    cluster.wait_whole(topic)


def test_P07_ends_and_high_watermarks_move_exactly_as_the_document_says(
    cluster: ProcessCluster,
) -> None:
    topic = cluster.create_topic("marks", assignment=[[4, 5]])

    def state() -> tuple[Offsets, Offsets]:
        return offsets(cluster, 4, topic), offsets(cluster, 5, topic)

    with paused(cluster, 5):
        acknowledged(cluster, topic, "a", acks=LEADER_ONLY)
        assert offsets(cluster, 4, topic) == Offsets(1, 0), "the leader's LEO at append"
    # The follower appends, and its next fetch tells the leader; the HW comes back with a later answer.
    wait_until(lambda: state() == (Offsets(1, 1), Offsets(1, 0)), 10, "the leader's HW is 1")
    acknowledged(cluster, topic, "b")
    assert state() == (Offsets(2, 2), Offsets(2, 1))


def test_P36_racks_are_respected(cluster: ProcessCluster) -> None:
    described = cluster.ottla("topics", "create", "spread", "-p", "6", "-r", "3")
    for partition in described["partitions"]:
        assert sorted(RACKS[broker] for broker in partition["ar"]) == ["a", "b", "c"], described


# -- C. Producing and consuming


def test_P17_no_answer_the_leaders_write_and_the_whole_isrs_write(cluster: ProcessCluster) -> None:
    topic = cluster.create_topic("acks", assignment=[[4, 5, 6]])
    all_of_them = Writer(cluster, 4, topic)
    with paused(cluster, 5), paused(cluster, 6):
        all_of_them.send("all", ALL)
        other = Writer(cluster, 4, topic)
        other.send("none", NO_ANSWER)
        second = other.send("one", LEADER_ONLY)
        answered, result = other.answer()
        assert answered == second, "acks=0 is not answered"
        assert (result.error, result.base_offset) == (0, 2)
        assert not all_of_them.has_answer
    _, result = all_of_them.answer()
    assert (result.error, result.base_offset) == (0, 0)
    wait_values(cluster, topic, "all", "none", "one")


def test_P19_a_record_of_acks_1_is_invisible_while_a_member_of_the_isr_lacks_it(
    cluster: ProcessCluster,
) -> None:
    topic = cluster.create_topic("unseen", assignment=[[4, 5, 6]])
    with paused(cluster, 6):
        acknowledged(cluster, topic, "a", acks=LEADER_ONLY)
        wait_until(lambda: offsets(cluster, 5, topic).leo == 1, 10, "5 has it")
        assert offsets(cluster, 4, topic) == Offsets(1, 0)
        assert values(read(cluster, 4, topic)) == []
        assert latest_offset(cluster, 4, topic) == 0
    wait_values(cluster, topic, "a")


def test_P19_P18_below_the_minimum_isr_nothing_is_visible_and_acks_all_is_refused(
    cluster: ProcessCluster,
) -> None:
    topic = cluster.create_topic(
        "minimum", assignment=[[4, 5, 6]], config={"min.insync.replicas": "2"}
    )
    cluster.kill(5, 6)
    wait_isr(cluster, topic, 4)
    assert write(cluster, topic, "refused") is ErrorCode.NOT_ENOUGH_REPLICAS
    acknowledged(cluster, topic, "a", acks=LEADER_ONLY)
    assert offsets(cluster, 4, topic) == Offsets(1, 0)
    assert values(read(cluster, 4, topic)) == []
    cluster.start(5)
    wait_values(cluster, topic, "a")
    acknowledged(cluster, topic, "b")
    cluster.start(6)
    cluster.wait_whole(topic)
    byte_identical(cluster, topic)


def test_P22_nothing_is_flushed_by_default_and_everything_where_flush_messages_says_so(
    cluster: ProcessCluster,
) -> None:
    """A recovery point is what an fsync has made durable."""
    cluster.create_topic("buffered", assignment=[[4, 5, 6]])
    cluster.create_topic("flushed", assignment=[[4, 5, 6]], config={"flush.messages": "1"})
    acknowledged(cluster, "buffered", "a", "b", "c")
    acknowledged(cluster, "flushed", "a", "b", "c")
    for broker in (4, 5, 6):
        wait_checkpoint(cluster, broker, "flushed", "recovery_point", 3)
        assert read_checkpoints(cluster.nodes[broker].data)["buffered", 0]["recovery_point"] == 0


# -- D. Leader failure and reconciliation


def test_P26_a_new_leader_behind_the_old_high_watermark_never_says_out_of_range(
    cluster: ProcessCluster,
) -> None:
    cluster.create_topic("ballast", assignment=[[6]] * 20)  # who leads least is elected: 5
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )
    seen: list[str] = []

    def has_seen(*expected: str) -> bool:
        for message in consumer.consume(10, 0.05):
            error = message.error()
            assert error is None or error.retriable() or error.code() < 0, error
            if error is None:
                seen.append(value_of(message).decode())
        assert seen == list(expected)[: len(seen)]
        return len(seen) == len(expected)

    try:
        # Its coordinator's topic is made first, and ours then: each new partition's first fetch would tell commits, too.
        wait_until(
            lambda: "__consumer_offsets" in cluster.admin.list_topics(timeout=5).topics,
            20,
            "the consumer has a coordinator",
        )
        cluster.wait_whole("__consumer_offsets")
        topic = cluster.create_topic("behind", assignment=[[4, 5, 6]])
        acknowledged(cluster, topic, "a", "b")
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        wait_until(lambda: has_seen("a", "b"), 20, "a and b read")
        assert offsets(cluster, 5, topic) == Offsets(2, 1)
        with paused(cluster, 6):
            cluster.kill(4)
            wait_leader(cluster, topic, 5)
            assert offsets(cluster, 5, topic) == Offsets(2, 1), "it has all; its HW is behind"
            assert latest_offset(cluster, 5, topic) is ErrorCode.OFFSET_NOT_AVAILABLE
            between = read(cluster, 5, topic, offset=2)
            assert (between.error, values(between)) == (0, [])
            assert values(read(cluster, 5, topic, offset=1)) == []
            assert not has_seen("a", "b", "c")
        wait_until(lambda: latest_offset(cluster, 5, topic) == 2, 20, "HW reaches what was seen")
        acknowledged(cluster, topic, "c")
        wait_until(lambda: has_seen("a", "b", "c"), 20, "the consumer reads on")
    finally:
        consumer.close()


def test_P23_P24_P28_each_leader_has_an_epoch_and_every_replica_knows_where_it_began(
    cluster: ProcessCluster,
) -> None:
    topic = cluster.create_topic("epochs", assignment=[[4, 5, 6]])
    acknowledged(cluster, topic, "a", "b")
    cluster.kill(4)
    wait_isr(cluster, topic, 5, 6)
    second = cluster.leader(topic)
    acknowledged(cluster, topic, "c")
    cluster.start(4)
    cluster.wait_whole(topic)
    assert values_in(cluster.log_bytes(4, topic, 0)) == ["a", "b", "c"], "in sync means complete"
    assert cluster.ottla("topics", "elect", topic) == {
        "topic": topic,
        "elected": [0],
        "refused": {},
    }
    wait_leader(cluster, topic, 4)
    acknowledged(cluster, topic, "d")
    (partition,) = cluster.ottla("topics", "describe", topic)["partitions"]
    assert second != 4
    assert (partition["leader"], partition["leader_epoch"]) == (4, 2)
    byte_identical(cluster, topic)
    stamped = [batch.leader_epoch for batch in batches(cluster.log_bytes(5, topic, 0))]
    assert stamped == [0, 0, 1, 2]
    for broker in (4, 5, 6):
        file = cluster.nodes[broker].data / f"{topic}-0" / "leader-epoch-checkpoint"
        wait_content(file, "0\n3\n0 0\n1 2\n2 3\n", f"epochs of replica {broker} on disk")


def test_P29_S1_a_leader_that_dies_before_telling_its_high_watermark_loses_nothing(
    cluster: ProcessCluster,
) -> None:
    """The follower restarts with an old high watermark and leads: it keeps what lies above."""
    topic = cluster.create_topic("loss", assignment=[[4, 5]], config={"min.insync.replicas": "1"})
    acknowledged(cluster, topic, "m0", "m1")
    assert offsets(cluster, 5, topic) == Offsets(2, 1)
    cluster.pause(5)
    cluster.kill(4)
    wait_isr(cluster, topic, 5)
    cluster.kill(5)
    wait_until(lambda: cluster.partitions(topic)[0].leader < 0, 20, "nobody leads")
    cluster.start(5)
    wait_leader(cluster, topic, 5)
    wait_values(cluster, topic, "m0", "m1")
    cluster.start(4)
    cluster.wait_whole(topic)
    byte_identical(cluster, topic)
    assert not truncations(cluster, 4, topic) + truncations(cluster, 5, topic)


def test_P29_S2_P27_P25_logs_of_the_same_length_that_differ_are_made_equal(
    cluster: ProcessCluster,
) -> None:
    """Both die; the follower returns alone and writes; then the old leader returns at the same offset."""
    topic = cluster.create_topic(
        "divergence", assignment=[[4, 5]], config={"min.insync.replicas": "1"}
    )
    acknowledged(cluster, topic, "m0")
    cluster.pause(5)
    acknowledged(cluster, topic, "old", acks=LEADER_ONLY)
    cluster.kill(4)
    wait_isr(cluster, topic, 5)
    cluster.kill(5)
    wait_until(lambda: cluster.partitions(topic)[0].leader < 0, 20, "nobody leads")
    cluster.start(5)
    wait_leader(cluster, topic, 5)
    acknowledged(cluster, topic, "new")
    logs = [cluster.log_bytes(broker, topic, 0) for broker in (4, 5)]
    assert [values_in(log) for log in logs] == [["m0", "old"], ["m0", "new"]]
    asks = read(cluster, 5, topic, offset=2, last_fetched_epoch=0)
    assert asks.diverging == (0, 1), "epoch 0 ended at offset 1 here"
    cluster.start(4)
    cluster.wait_whole(topic)
    byte_identical(cluster, topic)
    wait_values(cluster, topic, "m0", "new")
    (line,) = truncations(cluster, 4, topic)
    assert "first_offset=1 last_offset=1 committed_offsets=0 " in line


# -- Durability or availability


@dataclass
class Outcome:
    """What became of one configuration in the same failures as the others."""

    config: dict[str, str]
    said: dict[str, ErrorCode] = field(default_factory=dict)
    """The value of each write that was tried, and the answer."""
    kept: list[str] = field(default_factory=list)
    lost_leader_at: float = 0.0
    led_again_at: float = 0.0

    @property
    def acknowledged(self) -> list[str]:
        return [value for value, said in self.said.items() if said is ErrorCode.NONE]

    @property
    def lost(self) -> list[str]:
        return [value for value in self.acknowledged if value not in self.kept]

    @property
    def seconds_without_leader(self) -> float:
        return self.led_again_at - self.lost_leader_at


CONFIGURATIONS = {
    "durable": {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"},
    "between": {"min.insync.replicas": "1", "unclean.leader.election.enable": "false"},
    "available": {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"},
}


@pytest.fixture(scope="module")
def outcomes(cluster: ProcessCluster) -> dict[str, Outcome]:
    """Two replicas fail one after the other and return in the wrong order, with a write after each step."""
    found = {name: Outcome(config) for name, config in CONFIGURATIONS.items()}
    for name, config in CONFIGURATIONS.items():
        cluster.create_topic(name, assignment=[[4, 5]], config=config)

    def everybody_writes(value: str) -> None:
        for name, outcome in found.items():
            outcome.said[value] = write(cluster, name, value)

    def note_leaders() -> bool:
        for name, outcome in found.items():
            if not outcome.led_again_at and cluster.partitions(name)[0].leader >= 0:
                outcome.led_again_at = time.monotonic()
        return all(outcome.led_again_at for outcome in found.values())

    everybody_writes("both in sync")
    cluster.kill(5)
    for name in found:
        wait_isr(cluster, name, 4)
    everybody_writes("4 alone")
    for name, committed in (("durable", 1), ("between", 2), ("available", 2)):
        wait_checkpoint(cluster, 4, name, "hw", committed)
    cluster.kill(4)
    for name, outcome in found.items():
        wait_leaderless(cluster, name)
        outcome.lost_leader_at = time.monotonic()
    cluster.start(5)
    wait_leader(cluster, "available", 5)
    note_leaders()
    everybody_writes("5 is back alone")
    cluster.start(4)
    wait_until(note_leaders, 20, "everybody has a leader")
    for name in found:
        cluster.wait_whole(name)
    everybody_writes("both back")
    for name, outcome in found.items():
        byte_identical(cluster, name)
        outcome.kept = values_in(cluster.log_bytes(4, name, 0))
    return found


def test_P20_with_a_minimum_of_one_an_acknowledged_record_can_be_lost(
    outcomes: dict[str, Outcome],
) -> None:
    assert outcomes["available"].said["4 alone"] is ErrorCode.NONE
    assert outcomes["available"].lost == ["4 alone"]


def test_P30_without_unclean_election_a_partition_waits_and_loses_nothing(
    outcomes: dict[str, Outcome],
) -> None:
    waited = outcomes["between"]
    assert waited.said["5 is back alone"] is ErrorCode.LEADER_NOT_AVAILABLE
    assert waited.kept == ["both in sync", "4 alone", "both back"]
    assert not waited.lost


def test_P30_with_unclean_election_the_first_one_back_leads_and_what_was_lost_is_told(
    cluster: ProcessCluster, outcomes: dict[str, Outcome]
) -> None:
    unclean = outcomes["available"]
    assert unclean.said["5 is back alone"] is ErrorCode.NONE
    assert unclean.kept == ["both in sync", "5 is back alone", "both back"]
    (line,) = truncations(cluster, 4, "available")
    assert "first_offset=1 last_offset=1 committed_offsets=1 " in line
    assert not truncations(cluster, 4, "between") + truncations(cluster, 4, "durable")


def test_P31_durability_before_availability_and_the_reverse_are_measured(
    outcomes: dict[str, Outcome],
) -> None:
    print(
        f"\n{'':10} {'min ISR':>8} {'unclean':>8} {'written':>8} {'refused':>8} {'lost':>5}  no leader"
    )
    for name, outcome in outcomes.items():
        minimum, unclean = outcome.config.values()
        taken, tried = len(outcome.acknowledged), len(outcome.said)
        print(
            f"{name:10} {minimum:>8} {unclean:>8} {taken:>8} {tried - taken:>8} "
            f"{len(outcome.lost):>5}  {outcome.seconds_without_leader:.1f} s"
        )
    written = {name: len(outcome.acknowledged) for name, outcome in outcomes.items()}
    assert written == {"durable": 2, "between": 3, "available": 4}
    lost = {name: len(outcome.lost) for name, outcome in outcomes.items()}
    assert lost == {"durable": 0, "between": 0, "available": 1}
    assert outcomes["durable"].said["4 alone"] is ErrorCode.NOT_ENOUGH_REPLICAS
    waits = {name: outcome.seconds_without_leader for name, outcome in outcomes.items()}
    assert waits["available"] < waits["between"]
    assert waits["available"] < waits["durable"]
