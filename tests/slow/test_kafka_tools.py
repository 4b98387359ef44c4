"""Every command-line tool of Apache Kafka that talks to a cluster, against three brokers of ours: what each of
its main commands prints, and what it says when it is refused.

Groups and transactions have tests of their own beside this one.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.wire.apis import APIS, ApiKey
from support.cluster import ProcessCluster, wait_until
from support.disks import give_second_disks, second_disk
from support.groups import produce
from support.kafka_jars import java_command, run_tool

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TOOLS = "org.apache.kafka.tools."
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "2"}

Tool = Callable[..., str]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path_factory.mktemp("kafka-tools"), 3, SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def tool(running: ProcessCluster) -> Tool:
    """Runs the tool of this class with `--bootstrap-server` first."""

    def run(name: str, *words: str | Path, exits_with: int = 0) -> str:
        main_class = name if "." in name else TOOLS + name
        first = ("--bootstrap-server", running.bootstrap)
        return run_tool(main_class, *first, *words, exits_with=exits_with)

    return run


def written(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path


# -- topics, their records and replicas ------------------------------------------------------------------------


def test_kafka_topics_creates_describes_alters_and_deletes(tool: Tool) -> None:
    topics = "TopicCommand"
    new = ("--create", "--topic", "made", "--partitions", "2", "--replication-factor", "3")
    assert "Created topic made." in tool(topics, *new, "--config", "retention.ms=60000")
    assert "already exists" in tool(topics, *new, exits_with=1)
    tool(topics, *new, "--if-not-exists")
    assert "made" in tool(topics, "--list").split()
    described = tool(topics, "--describe", "--topic", "made")
    assert re.search(
        r"PartitionCount: 2\s+ReplicationFactor: 3\s+Configs: .*retention.ms=60000", described
    )
    assert len(re.findall(r"Leader: [123]\s+Replicas: [123,]+\s+Isr: [123,]+", described)) == 2
    tool(topics, "--alter", "--topic", "made", "--partitions", "3")
    assert "PartitionCount: 3" in tool(topics, "--describe", "--topic", "made")
    fewer = tool(topics, "--alter", "--topic", "made", "--partitions", "1", exits_with=1)
    assert "InvalidPartitionsException" in fewer
    for question in (
        "--under-replicated-partitions",
        "--unavailable-partitions",
        "--under-min-isr-partitions",
        "--at-min-isr-partitions",
    ):
        assert "made" not in tool(topics, "--describe", question)
    assert "retention.ms=60000" in tool(topics, "--describe", "--topics-with-overrides")
    tool(topics, "--delete", "--topic", "made")
    assert "made" not in tool(topics, "--list").split()
    bad = tool(topics, "--create", "--topic", "a b", exits_with=1)
    assert "InvalidTopicException" in bad or "is invalid" in bad


def test_kafka_get_offsets_knows_every_kind_of_offset(running: ProcessCluster, tool: Tool) -> None:
    running.create_topic("offsets", 2)
    produce(running.bootstrap, "offsets", 20, 2)
    of = ("--topic", "offsets", "--time")
    assert tool("GetOffsetShell", *of, "latest").split() == ["offsets:0:10", "offsets:1:10"]
    assert tool("GetOffsetShell", *of, "earliest").split() == ["offsets:0:0", "offsets:1:0"]
    assert tool("GetOffsetShell", *of, "earliest-local").split() == ["offsets:0:0", "offsets:1:0"]
    assert tool("GetOffsetShell", *of, "0").split() == ["offsets:0:0", "offsets:1:0"]
    found = dict(
        line.rsplit(":", 1) for line in tool("GetOffsetShell", *of, "max-timestamp").split()
    )
    assert found.keys() == {"offsets:0", "offsets:1"} and all(
        0 <= int(o) < 10 for o in found.values()
    )
    some = tool("GetOffsetShell", "--topic-partitions", "offs.*:1", "--time", "-1")
    assert some.split() == ["offsets:1:10"]


def test_kafka_delete_records_moves_the_start(
    running: ProcessCluster, tool: Tool, tmp_path: Path
) -> None:
    running.create_topic("shortened", 1)
    produce(running.bootstrap, "shortened", 10, 1)
    plan = {"partitions": [{"topic": "shortened", "partition": 0, "offset": 4}], "version": 1}
    file = written(tmp_path / "records.json", plan)
    done = tool("DeleteRecordsCommand", "--offset-json-file", file)
    assert re.search(r"partition: shortened-0\s+low_watermark: 4", done)
    start = tool("GetOffsetShell", "--topic", "shortened", "--time", "earliest")
    assert start.strip() == "shortened:0:4"
    plan["partitions"][0]["offset"] = 99  # type: ignore[index]
    beyond = tool("DeleteRecordsCommand", "--offset-json-file", written(file, plan))
    assert "OffsetOutOfRangeException" in beyond


def test_kafka_log_dirs_shows_what_lies_where(running: ProcessCluster, tool: Tool) -> None:
    running.create_topic("stored", 1)
    produce(running.bootstrap, "stored", 10, 1)
    said = tool("LogDirsCommand", "--describe", "--topic-list", "stored")
    (line,) = (line for line in said.splitlines() if line.startswith("{"))
    brokers = json.loads(line)["brokers"]
    assert [broker["broker"] for broker in brokers] == [1, 2, 3]
    for broker in brokers:
        (directory,) = broker["logDirs"]
        assert directory["logDir"] == str(running.nodes[broker["broker"]].data)
        assert directory["error"] is None
        (partition,) = directory["partitions"]
        assert partition["partition"] == "stored-0" and partition["offsetLag"] == 0
        size = len(running.log_bytes(broker["broker"], "stored", 0))
        assert partition["size"] == size > 0 and not partition["isFuture"]


def test_kafka_reassign_partitions_plans_executes_verifies_lists_and_cancels(
    running: ProcessCluster, tool: Tool, tmp_path: Path
) -> None:
    running.create_topic("moved", 2, replicas=2)
    produce(running.bootstrap, "moved", 20, 2)
    reassign = TOOLS + "reassign.ReassignPartitionsCommand"
    topics = written(tmp_path / "topics.json", {"version": 1, "topics": [{"topic": "moved"}]})
    planned = tool(
        reassign, "--generate", "--topics-to-move-json-file", topics, "--broker-list", "1,2"
    )
    proposal = json.loads(planned.split("Proposed partition reassignment configuration\n")[1])
    assert {r for p in proposal["partitions"] for r in p["replicas"]} == {1, 2}
    wished = [
        {"topic": "moved", "partition": number, "replicas": replicas}
        for number, replicas in enumerate([[3, 1], [2, 3]])
    ]
    plan = written(tmp_path / "plan.json", {"version": 1, "partitions": wished})
    started = tool(reassign, "--execute", "--reassignment-json-file", plan)
    assert "Successfully started partition reassignments for moved-0,moved-1" in started

    def is_complete() -> bool:
        said = tool(reassign, "--verify", "--reassignment-json-file", plan)
        return said.count("is completed") == 2

    wait_until(is_complete, 60, "both partitions moved")
    assert [state.replicas for state in running.partitions("moved").values()] == [[3, 1], [2, 3]]
    assert "No partition reassignments found" in tool(reassign, "--list")
    back = [{**row, "replicas": [1, 2]} for row in wished]
    written(plan, {"version": 1, "partitions": back})
    slowly = ("--execute", "--reassignment-json-file", plan, "--throttle", "50000000")
    assert "throttle limit was set to 50000000 B/s" in tool(reassign, *slowly)
    brokers = ("--describe", "--entity-type", "brokers")
    assert "follower.replication.throttled.rate=50000000" in tool(CONFIGS, *brokers)
    wait_until(is_complete, 60, "both partitions are back")
    assert "throttled" not in tool(CONFIGS, *brokers)
    cancelled = tool(reassign, "--cancel", "--reassignment-json-file", plan)
    assert "None of the specified partition reassignments are active" in cancelled


def test_kafka_leader_election_brings_leadership_home(
    running: ProcessCluster, tool: Tool, tmp_path: Path
) -> None:
    running.create_topic("elected", 1)
    reassign = TOOLS + "reassign.ReassignPartitionsCommand"
    before = running.partitions("elected")[0].replicas
    wished = [{"topic": "elected", "partition": 0, "replicas": [*before[1:], before[0]]}]
    plan = written(tmp_path / "order.json", {"version": 1, "partitions": wished})
    tool(reassign, "--execute", "--reassignment-json-file", plan)
    assert running.leader("elected") == before[0], "a new order alone moves no leader"
    one = ("--topic", "elected", "--partition", "0")
    elected = tool("LeaderElectionCommand", "--election-type", "preferred", *one)
    assert "Successfully completed leader election (PREFERRED) for partitions elected-0" in elected
    wait_until(lambda: running.leader("elected") == before[1], 10, "the preferred leader leads")
    again = tool("LeaderElectionCommand", "--election-type", "preferred", *one)
    assert "Valid replica already elected for partitions elected-0" in again
    unclean = tool("LeaderElectionCommand", "--election-type", "unclean", *one)
    assert "Valid replica already elected" in unclean
    unknown = ("--topic", "nowhere", "--partition", "0")
    refused = tool("LeaderElectionCommand", "--election-type", "preferred", *unknown, exits_with=1)
    assert "UnknownTopicOrPartitionException" in refused
    tool("LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions")


def test_kafka_replica_verification_finds_no_lag(running: ProcessCluster) -> None:
    running.create_topic("verified", 2)
    produce(running.bootstrap, "verified", 20, 2)
    words = ("--broker-list", running.bootstrap, "--topics-include", "verified")
    process = subprocess.Popen(
        java_command(TOOLS + "ReplicaVerificationTool", *words, "--report-interval-ms", "500"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if "max lag is" in line:
                assert re.search(
                    r"max lag is 0 for partition \S+ at offset \d+ among 2 partitions", line
                )
                break
        else:
            pytest.fail("it never reported")
    finally:
        process.kill()
        process.wait()


# -- settings ---------------------------------------------------------------------------------------------------

CONFIGS = "kafka.admin.ConfigCommand"


def test_kafka_configs_changes_and_shows_a_topics_settings(
    running: ProcessCluster, tool: Tool
) -> None:
    running.create_topic("set", 1)
    topic = ("--entity-type", "topics", "--entity-name", "set")
    tool(CONFIGS, "--alter", *topic, "--add-config", "retention.ms=5000,cleanup.policy=compact")
    shown = tool(CONFIGS, "--describe", *topic)
    assert (
        "retention.ms=5000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=5000, "
        "DEFAULT_CONFIG:log.retention.ms=604800000}" in shown
    )
    assert "cleanup.policy=compact" in shown
    assert "segment.bytes=1073741824" in tool(CONFIGS, "--describe", *topic, "--all")
    tool(CONFIGS, "--alter", *topic, "--delete-config", "retention.ms")
    assert "retention.ms" not in tool(CONFIGS, "--describe", *topic)
    for wrong, why in (
        ("retention.ms=-7", "InvalidConfigurationException: Invalid value for retention.ms"),
        ("retention.mss=7", "InvalidConfigurationException: Unknown topic config name"),
    ):
        assert why in tool(CONFIGS, "--alter", *topic, "--add-config", wrong, exits_with=1)
    missing = ("--entity-type", "topics", "--entity-name", "nowhere")
    refused = tool(CONFIGS, "--alter", *missing, "--add-config", "retention.ms=7", exits_with=1)
    assert "UnknownTopicOrPartitionException" in refused


def test_kafka_configs_changes_brokers_one_or_all_while_they_run(
    running: ProcessCluster, tool: Tool
) -> None:
    one = ("--entity-type", "brokers", "--entity-name", "2")
    every = ("--entity-type", "brokers", "--entity-default")
    tool(CONFIGS, "--alter", *one, "--add-config", "log.retention.ms=700000")
    tool(CONFIGS, "--alter", *every, "--add-config", "log.retention.ms=800000")
    shown = tool(CONFIGS, "--describe", *one)
    assert (
        "log.retention.ms=700000 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:"
        "log.retention.ms=700000, DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=800000, "
        "DEFAULT_CONFIG:log.retention.ms=604800000}" in shown
    )
    assert "log.retention.ms=800000" in tool(CONFIGS, "--describe", *every)
    everything = tool(CONFIGS, "--describe", *one, "--all")
    assert "STATIC_BROKER_CONFIG:node.id=2" in everything and "broker.rack=null" in everything
    for resource in (one, every):
        tool(CONFIGS, "--alter", *resource, "--delete-config", "log.retention.ms")
    for wrong, why in (
        ("node.id=9", "InvalidRequestException: Cannot update these configs dynamically: node.id"),
        ("log.retention.ms=soon", "InvalidConfigurationException"),
    ):
        assert why in tool(CONFIGS, "--alter", *one, "--add-config", wrong, exits_with=1)


def test_kafka_configs_sets_quotas_for_clients_and_users(tool: Tool) -> None:
    client = ("--entity-type", "clients", "--entity-name", "loud")
    rates = "producer_byte_rate=1000,consumer_byte_rate=2000,request_percentage=50,controller_mutation_rate=5"
    tool(CONFIGS, "--alter", *client, "--add-config", rates)
    shown = tool(CONFIGS, "--describe", *client)
    assert "Quota configs for client-id 'loud' are" in shown
    for rate in ("producer_byte_rate=1000.0", "request_percentage=50.0"):
        assert rate in shown
    both = ("--entity-type", "users", "--entity-default", *client)
    tool(CONFIGS, "--alter", *both, "--add-config", "producer_byte_rate=3000")
    assert "3000" in tool(CONFIGS, "--describe", *both)
    tool(CONFIGS, "--alter", *both, "--delete-config", "producer_byte_rate")
    names = ",".join(rate.split("=")[0] for rate in rates.split(","))
    tool(CONFIGS, "--alter", *client, "--delete-config", names)
    assert "loud" not in tool(CONFIGS, "--describe", "--entity-type", "clients")
    assert "SCRAM" not in tool(CONFIGS, "--describe", "--entity-type", "users")
    address = ("--entity-type", "ips", "--entity-default")
    limit = ("--add-config", "connection_creation_rate=50")
    tool(CONFIGS, "--alter", *address, *limit)
    assert "connection_creation_rate=50.0" in tool(CONFIGS, "--describe", *address)
    tool(CONFIGS, "--alter", *address, "--delete-config", "connection_creation_rate")


def test_kafka_configs_sets_a_groups_session_within_the_brokers_bounds(tool: Tool) -> None:
    group = ("--entity-type", "groups", "--entity-name", "slow-group")
    tool(CONFIGS, "--alter", *group, "--add-config", "consumer.session.timeout.ms=50000")
    shown = tool(CONFIGS, "--describe", "--entity-type", "groups")
    assert (
        "consumer.session.timeout.ms=50000 sensitive=false synonyms={DYNAMIC_GROUP_CONFIG:"
        "consumer.session.timeout.ms=50000, DEFAULT_CONFIG:group.consumer.session.timeout.ms=45000}"
        in shown
    )
    long = ("--add-config", "consumer.session.timeout.ms=90000")
    refused = tool(CONFIGS, "--alter", *group, *long, exits_with=1)
    assert "must be less than or equal to group.consumer.max.session.timeout.ms" in refused
    tool(CONFIGS, "--alter", *group, "--delete-config", "consumer.session.timeout.ms")


def test_kafka_configs_changes_the_level_of_a_logger(tool: Tool) -> None:
    broker = ("--entity-type", "broker-loggers", "--entity-name", "2")
    tool(CONFIGS, "--alter", *broker, "--add-config", "ottla.broker.server.connections=DEBUG")
    assert "ottla.broker.server.connections=DEBUG" in tool(CONFIGS, "--describe", *broker)
    tool(CONFIGS, "--alter", *broker, "--delete-config", "ottla.broker.server.connections")
    assert "ottla.broker.server.connections=INFO" in tool(CONFIGS, "--describe", *broker)


def test_kafka_client_metrics_sets_describes_lists_and_deletes_a_subscription(tool: Tool) -> None:
    command = "ClientMetricsCommand"
    wanted = ("--metrics", "org.apache.kafka.producer.", "--interval", "30000")
    assert not tool(command, "--list").strip()
    tool(command, "--alter", "--name", "slow", *wanted, "--match", "client_id=slow.*")
    assert tool(command, "--list").strip() == "slow"
    described = tool(command, "--describe", "--name", "slow")
    assert "interval.ms=30000" in described and "match=client_id=slow.*" in described
    tool(command, "--delete", "--name", "slow")
    assert not tool(command, "--list").strip()


def test_kafka_acls_says_that_there_is_no_authorizer(tool: Tool) -> None:
    assert "SecurityDisabledException: No Authorizer" in tool("AclCommand", "--list", exits_with=1)
    new = ("--allow-principal", "User:a", "--operation", "Read", "--topic", "t")
    assert "SecurityDisabledException" in tool("AclCommand", "--add", *new, exits_with=1)
    gone = ("--remove", "--force", *new)
    assert "SecurityDisabledException" in tool("AclCommand", *gone, exits_with=1)


# -- the cluster ------------------------------------------------------------------------------------------------


def test_kafka_metadata_quorum_shows_voters_and_their_lag(
    running: ProcessCluster, tool: Tool
) -> None:
    status = tool("MetadataQuorumCommand", "describe", "--status")
    leader = re.search(r"LeaderId:\s+([123])\n", status)
    assert leader and re.search(r"HighWatermark:\s+\d+\n", status)
    for node in running.nodes.values():
        assert f'"CONTROLLER://127.0.0.1:{node.controller_port}"' in status
    replication = tool("MetadataQuorumCommand", "describe", "--replication", "--human-readable")
    rows = re.findall(r"^([123])\s.*(Leader|Follower)", replication, re.MULTILINE)
    assert sorted(rows) == sorted(
        (id, "Leader" if id == leader[1] else "Follower") for id in ("1", "2", "3")
    )
    controllers = f"127.0.0.1:{running.nodes[1].controller_port}"
    asked = ("--bootstrap-controller", controllers, "describe", "--status")
    assert f"LeaderId:               {leader[1]}" in run_tool(
        TOOLS + "MetadataQuorumCommand", *asked
    )
    one = ("--controller-id", "3", "--controller-directory-id", "AAAAAAAAAAAAAAAAAAAAAA")
    refused = tool("MetadataQuorumCommand", "remove-controller", *one, exits_with=1)
    assert "does not support REMOVE_RAFT_VOTER" in refused


def test_kafka_features_describes_upgrades_and_downgrades(tool: Tool) -> None:
    features = "FeatureCommand"
    described = tool(features, "describe")
    for name, level in (
        ("metadata.version", "4.3-IV0"),
        ("group.version", "1"),
        ("transaction.version", "2"),
        ("eligible.leader.replicas.version", "1"),
        ("kraft.version", "0"),
    ):
        assert re.search(rf"Feature: {name}\s.*FinalizedVersionLevel: {level}\s", described)
    assert not re.search(r"Feature: (share|streams)\.version", described)  # these are not served
    down = tool(features, "downgrade", "--feature", "group.version=0")
    assert "group.version was downgraded to 0." in down
    up = tool(features, "upgrade", "--feature", "group.version=1")
    assert "group.version was upgraded to 1." in up
    for words, why in (
        (("upgrade", "--feature", "group.version=7"), "only supports versions 0-1"),
        (("downgrade", "--feature", "eligible.leader.replicas.version=0"), "every election"),
        (("downgrade", "--metadata", "4.0"), "might delete metadata"),
        (("upgrade", "--feature", "no.version=1"), "does not support this feature"),
        (("upgrade", "--feature", "share.version=1"), "does not support this feature"),
    ):
        assert why in tool(features, *words, exits_with=1), words
    assert "can be disabled" in tool(features, "disable", "--feature", "group.version", "--dry-run")


def test_kafka_cluster_knows_its_id_and_endpoints(running: ProcessCluster) -> None:
    at = ("--bootstrap-server", running.bootstrap)
    known = run_tool(TOOLS + "ClusterTool", "cluster-id", *at)
    assert re.fullmatch(r"Cluster ID: \S{22}\n", known)
    listed = run_tool(TOOLS + "ClusterTool", "list-endpoints", *at, "--include-fenced-brokers")
    for node in running.nodes.values():
        assert re.search(rf"{node.id}\s+127.0.0.1\s+{node.port}\s+null\s+unfenced\s+broker", listed)
    at_controller = ("--bootstrap-controller", f"127.0.0.1:{running.nodes[2].controller_port}")
    controllers = run_tool(TOOLS + "ClusterTool", "list-endpoints", *at_controller)
    for node in running.nodes.values():
        assert re.search(rf"{node.id}\s+127.0.0.1\s+{node.controller_port}\s", controllers)
    refused = run_tool(TOOLS + "ClusterTool", "unregister", *at, "--id", "9", exits_with=1)
    assert "BrokerIdNotRegisteredException" in refused


def test_kafka_broker_api_versions_shows_our_table(tool: Tool) -> None:
    said = tool("BrokerApiVersionsCommand")
    for api in APIS.values():
        if api.on_broker:
            low, high = api.advertised_min_version, api.max_version
            versions = f"{low} to {high}" if low != high else f"{low}"
            assert said.count(f"{api.name}({int(api.key)}): {versions} [usable") == 3, api
    for key in ApiKey:
        if key not in APIS or not APIS[key].on_broker:
            assert not re.search(rf"\({int(key)}\): \d", said), key


# -- producers and consumers ------------------------------------------------------------------------------------


def test_kafkas_verifiable_producer_and_consumer_agree(running: ProcessCluster) -> None:
    running.create_topic("checked", 3)
    at = ("--bootstrap-server", running.bootstrap, "--topic", "checked")
    sent = run_tool(TOOLS + "VerifiableProducer", *at, "--max-messages", "100", "--acks", "-1")
    events = [json.loads(line) for line in sent.splitlines() if line.startswith("{")]
    assert sum(event["name"] == "producer_send_success" for event in events) == 100
    assert events[-1]["name"] == "tool_data" and events[-1]["acked"] == 100
    for protocol in ("classic", "consumer"):
        words = ("--group-id", f"verify-{protocol}", "--max-messages", "100")
        read = run_tool(TOOLS + "VerifiableConsumer", *at, *words, "--group-protocol", protocol)
        events = [json.loads(line) for line in read.splitlines() if line.startswith("{")]
        consumed = [
            partition
            for event in events
            if event["name"] == "records_consumed"
            for partition in event["partitions"]
        ]
        assert sum(partition["count"] for partition in consumed) == 100
        commits = [event for event in events if event["name"] == "offsets_committed"]
        assert commits and all(event["success"] for event in commits)


def test_kafkas_performance_tests_count_what_they_sent_and_read(
    running: ProcessCluster, tool: Tool
) -> None:
    running.create_topic("measured", 2)
    size = ("--num-records", "20000", "--record-size", "200", "--throughput", "-1")
    at = ("--command-property", f"bootstrap.servers={running.bootstrap}")
    sent = run_tool(TOOLS + "ProducerPerformance", "--topic", "measured", *size, *at)
    assert re.search(r"20000 records sent, \d+\.\d+ records/sec", sent)
    read = tool(
        "ConsumerPerformance", "--topic", "measured", "--num-records", "20000", "--timeout", "30000"
    )
    fields = read.splitlines()[-1].split(", ")
    assert int(fields[4]) == 20_000


def test_kafka_groups_lists_every_group_with_its_protocol(
    running: ProcessCluster, tool: Tool
) -> None:
    running.create_topic("grouped", 1)
    produce(running.bootstrap, "grouped", 5, 1)
    consumer = TOOLS + "consumer.ConsoleConsumer"
    for protocol in ("classic", "consumer"):
        words = ("--topic", "grouped", "--group", f"listed-{protocol}", "--max-messages", "5")
        said = ("--from-beginning", "--command-property", f"group.protocol={protocol}")
        tool(consumer, *words, *said)
    listed = tool("GroupsCommand", "--list")
    assert re.search(r"listed-classic\s+Classic\s+consumer", listed)
    assert re.search(r"listed-consumer\s+Consumer\s+consumer", listed)
    assert "listed-classic" not in tool("GroupsCommand", "--list", "--group-type", "consumer")


def test_kafka_reassign_partitions_moves_a_replica_to_another_log_directory(
    tmp_path: Path,
) -> None:
    cluster = ProcessCluster(tmp_path / "cluster", 1, SETTINGS)
    give_second_disks(cluster)
    with cluster:
        cluster.create_topic("stored", assignment=[[1]])
        produce(cluster.bootstrap, "stored", 20, 1)
        both = [cluster.nodes[1].data, second_disk(cluster, 1)]
        (other,) = [each for each in both if not (each / "stored-0").is_dir()]
        row = {"topic": "stored", "partition": 0, "replicas": [1], "log_dirs": [str(other)]}
        plan = written(tmp_path / "plan.json", {"version": 1, "partitions": [row]})
        words = ("--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", plan)
        reassign = TOOLS + "reassign.ReassignPartitionsCommand"
        throttle = ("--replica-alter-log-dirs-throttle", "50000000")
        said = run_tool(reassign, *words, "--execute", *throttle)
        assert f"Successfully started moving log directory to {other} for replica stored-0" in said

        def is_complete() -> bool:
            return "stored-0-1 completed successfully" in run_tool(reassign, *words, "--verify")

        wait_until(is_complete, 60, "moved")
        assert [each for each in both if (each / "stored-0").is_dir()] == [other]
        configs = ("--bootstrap-server", cluster.bootstrap, "--entity-type", "brokers")
        cordon = ("--entity-name", "1", "--alter", "--add-config", f"cordoned.log.dirs={other}")
        assert "Completed updating config" in run_tool(CONFIGS, *configs, *cordon)
        nowhere = (*cordon[:-1], "cordoned.log.dirs=/nowhere")
        assert "cordoned.log.dirs" in run_tool(CONFIGS, *configs, *nowhere, exits_with=1)
