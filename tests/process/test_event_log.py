"""The event log of a real cluster, read with `ottla events`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from ottla.events.controller import FenceCause
from ottla.wire.apis import ApiKey
from ottla.wire.internal_topics import EVENT_LOG_TOPIC
from support.cluster import OTTLA, ProcessCluster, paused, wait_until


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """A follower that is silent for a second is out of sync, long before its broker is fenced."""
    settings = {"replica.lag.time.max.ms": "1000"}
    directory = tmp_path_factory.mktemp("events") / "cluster"
    with ProcessCluster(directory, overrides=settings) as running:
        wait_until(lambda: events(running, "--kind", "node_start"), 20, "an event log")
        yield running


@pytest.fixture(autouse=True)
def _whole(own: ProcessCluster) -> Iterator[None]:
    yield
    own.mend()


def ottla_events(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [OTTLA, "events", *words], capture_output=True, text=True, check=False, timeout=60
    )


def events(cluster: ProcessCluster, *words: str) -> list[dict[str, Any]]:
    done = ottla_events("--bootstrap", cluster.bootstrap, "--format", "json", *words)
    return [json.loads(line) for line in done.stdout.splitlines()]


def event(cluster: ProcessCluster, kind: str, *words: str, **fields: Any) -> dict[str, Any]:
    """The one event of this kind with these fields, once it is in the log."""

    def found() -> list[dict[str, Any]]:
        return [
            each
            for each in events(cluster, "--kind", kind, *words)
            if all(each[name] == value for name, value in fields.items())
        ]

    wait_until(found, 30, f"event {kind} {fields}")
    (one,) = found()
    return one


def produce(cluster: ProcessCluster, topic: str, count: int) -> None:
    first = cluster.nodes[1].address  # never paused here: librdkafka would wait for an answer
    producer = Producer({"bootstrap.servers": first, "acks": "all", "log_level": 0})
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(30) == 0


def test_a_killed_leader_is_told_as_fencing_shrink_and_election(own: ProcessCluster) -> None:
    topic = own.create_topic("killed", assignment=[[2, 3, 1]])
    produce(own, topic, 5)
    own.kill(2)
    election = event(own, "election", "--topic", topic, previous_leader=2)
    assert election["leader"] in (1, 3) and election["how"] == "clean"
    shrink = event(own, "isr_shrink", "--topic", topic)
    assert (shrink["cause"], shrink["brokers"]) == ("fenced", [2])
    assert sorted(shrink["isr"]) == [1, 3]
    fenced = event(own, "fenced", "--broker", "2")
    # On a busy machine a process that is dying still accepts connections for longer than the grace to reconnect.
    assert fenced["cause"] in (FenceCause.UNREACHABLE, FenceCause.DISCONNECTED)
    start = event(own, "leader_start", "--topic", topic, leader=election["leader"])
    assert (start["leader_epoch"], start["log_end"]) == (election["leader_epoch"], 5)
    assert start["at"] >= fenced["at"]


def test_a_paused_follower_is_told_as_silent_with_its_lag(own: ProcessCluster) -> None:
    topic = own.create_topic("silent", assignment=[[1, 3]], config={"min.insync.replicas": "1"})
    with paused(own, 3):
        produce(own, topic, 40)
        shrink = event(own, "isr_shrink", "--topic", topic, "--partition", "0")
    assert (shrink["cause"], shrink["brokers"], shrink["leader"]) == ("silent", [3], 1)
    lag = shrink["lag"]["3"]
    assert lag["records"] == 40 and lag["bytes"] > 40 and lag["seconds"] >= 1.0
    assert event(own, "isr_expand", "--topic", topic)["cause"] == "caught_up"


def test_an_unclean_election_and_its_truncation_are_told(own: ProcessCluster) -> None:
    unclean = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    topic = own.create_topic("unclean", assignment=[[2, 3]], config=unclean)
    with paused(own, 3):
        # It may lie in the socket of broker 3 already, and is acknowledged once broker 3 is out of the ISR.
        produce(own, topic, 1)
        produce(own, topic, 7)
        own.kill(2)
    election = event(own, "election", "--topic", topic, how="unclean")
    assert election["leader"] == 3
    produce(own, topic, 1)
    own.start(2)
    truncation = event(own, "truncation", "--topic", topic)
    assert truncation["node"] == 2 and truncation["first_offset"] <= 1
    assert truncation["first_offset"] + truncation["records"] == truncation["end_offset"] == 8
    assert truncation["leader"] == 3 and truncation["bytes"] > 0
    shown = ottla_events(
        "--bootstrap", own.bootstrap, "--topic", topic, "--kind", "election"
    ).stdout
    assert "committed records may be lost" in shown


def test_a_changed_setting_is_told_with_its_client(own: ProcessCluster) -> None:
    topic = own.create_topic("changed")
    entry = ConfigEntry("retention.ms", "60000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    own.admin.incremental_alter_configs([resource])[resource].result(30)
    told = event(own, "setting_changed", resource=f"topic:{topic}")
    assert (told["name"], told["old"], told["new"]) == ("retention.ms", None, "60000")
    assert told["by"].startswith("rdkafka at ")


def test_the_topic_is_in_no_list_is_served_by_name_and_takes_no_client_s_records(
    own: ProcessCluster,
) -> None:
    assert EVENT_LOG_TOPIC not in own.admin.list_topics(timeout=10).topics
    node = own.nodes[1]
    described = own.ask(
        node, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, {"topics": [], "response_partition_limit": 2000}
    )
    assert EVENT_LOG_TOPIC not in [topic.name for topic in described.topics]
    (named,) = own.ask(node, ApiKey.METADATA, 12, {"topics": [{"name": EVENT_LOG_TOPIC}]}).topics
    assert named.is_internal and len(named.partitions) == 1
    assert len(named.partitions[0].replica_nodes) == 3
    failures: list[Any] = []
    producer = Producer({"bootstrap.servers": own.bootstrap, "log_level": 0})
    producer.produce(EVENT_LOG_TOPIC, b"x", on_delivery=lambda error, _: failures.append(error))
    producer.flush(30)
    assert failures[0] is not None and failures[0].name() == "TOPIC_EXCEPTION"


def test_wrong_words_are_refused_in_words(own: ProcessCluster) -> None:
    done = ottla_events("--bootstrap", own.bootstrap, "--kind", "elections")
    assert done.returncode == 2 and "no kind elections; did you mean election?" in done.stderr
    assert ottla_events("--bootstrap", own.bootstrap, "--since", "soon").returncode == 2


def test_a_cluster_without_an_event_log_says_so(new_cluster: Any) -> None:
    without = new_cluster(1, ottla_event_log_enable="false")
    done = ottla_events("--bootstrap", without.bootstrap)
    assert done.returncode == 3 and "this cluster has no event log" in done.stderr


def test_the_events_of_a_stopped_cluster_are_read_from_its_files(new_cluster: Any) -> None:
    cluster = new_cluster(1)
    wait_until(lambda: events(cluster, "--kind", "node_start"), 20, "an event log")
    cluster.stop(1)
    done = ottla_events("--dir", str(cluster.directory), "--format", "json")
    told = [json.loads(line)["kind"] for line in done.stdout.splitlines()]
    assert told[-1] == "node_stop" and "controller_change" in told, done.stderr
    limited = ottla_events("--dir", str(cluster.directory), "--limit", "1")
    assert limited.stdout.count("\n") == 1 and "the node stops" in limited.stdout
    assert ottla_events("--dir", str(cluster.directory), "--follow").returncode == 2
