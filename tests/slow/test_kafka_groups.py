"""Apache Kafka's own consumer and tools on groups: both protocols, and the records that they leave."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from support.cluster import ProcessCluster
from support.groups import ConfluentNew, produce, read_until, settle
from support.kafka_jars import DUMP_LOG, run_tool

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "500",
    "offsets.topic.num.partitions": "1",
}


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path_factory.mktemp("kafka-groups"), 3, SETTINGS) as running:
        running.create_topic("t", 3)
        produce(running.bootstrap, "t", 30, 3)
        yield running


def tool(cluster: ProcessCluster, *words: str) -> str:
    return run_tool(GROUPS, "--bootstrap-server", cluster.bootstrap, *words)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_kafkas_consumer_reads_in_a_group_and_its_tool_resets_and_deletes_it(
    groups: ProcessCluster, protocol: str
) -> None:
    group = f"java-{protocol}"
    words = ("--topic", "t", "--group", group, "--max-messages", "30", "--timeout-ms", "30000")
    read = run_tool(
        CONSUMER,
        *("--bootstrap-server", groups.bootstrap, "--from-beginning", *words),
        *("--command-property", f"group.protocol={protocol}"),
    )
    assert "Processed a total of 30 messages" in read
    values = [int(line) for line in read.splitlines() if line.isdecimal()]
    assert sorted(values) == list(range(30))
    assert re.search(rf"{group}\s+Empty", tool(groups, "--list", "--state"))
    described = tool(groups, "--describe", "--group", group)
    assert len(re.findall(rf"{group}\s+t\s+\d\s+10\s+10\s+0\s", described)) == 3
    of_topic = ("--group", group, "--topic", "t")
    reset = tool(groups, "--reset-offsets", *of_topic, "--to-earliest", "--execute")
    assert len(re.findall(rf"{group}\s+t\s+\d\s+0\s", reset)) == 3
    assert "Successful" in tool(groups, "--delete-offsets", *of_topic)
    assert "was successful" in tool(groups, "--delete", "--group", group)


def test_kafkas_tool_shows_members_epochs_and_targets(groups: ProcessCluster) -> None:
    member = ConfluentNew(groups.bootstrap, "shown", ["t"])
    try:
        settle([member], [3], "it has all")
        shown = tool(groups, "--describe", "--group", "shown", "--members", "--verbose")
        assert re.search(r"shown\s.*\s3\s+1\s+t:0,1,2\s+1\s+t:0,1,2", shown)
        state = tool(groups, "--describe", "--group", "shown", "--state")
        assert re.search(r"uniform\s+Stable\s+1", state)
    finally:
        member.close()


def test_kafkas_tool_decodes_every_record_of_the_offsets_topic(groups: ProcessCluster) -> None:
    member = ConfluentNew(groups.bootstrap, "decoded", ["^t$"])
    try:
        read_until([member], 30)
        member.commit()
    finally:
        member.close()
    log = groups.nodes[1].data / "__consumer_offsets-0" / f"{0:020d}.log"
    dumped = run_tool(DUMP_LOG, "--offsets-decoder", "--files", log)
    kinds: dict[str, Any] = {}
    for line in re.findall(r"^\| .*? key: (\{.*\}) payload: (.*)$", dumped, re.MULTILINE):
        key, payload = json.loads(line[0]), line[1]
        assert payload == "<DELETE>" or json.loads(payload)["data"], line
        kinds.setdefault(key["type"], payload)
    assert {"1", "2", "3", "5", "6", "7", "8", "16"} <= kinds.keys()
    assert "unknown" not in dumped.lower()
