"""One session at the command line with Kafka's tools: the same words for Apache Kafka's own and for ours.

What Apache Kafka's tools print is in the golden file, without what differs from cluster to cluster. The slow tests make it
from the real tools, the ordinary tests compare ours with it.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

from ottla.local.ports import free_ports
from ottla.wire.apis import ApiKey
from support.cluster import ProcessCluster, wait_until
from support.wire import offsets

GOLDEN = Path(__file__).resolve().parent.parent / "process" / "kafka-names.golden.txt"
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "num.io.threads": "9",
}

APPLIED = "kafka_server_brokermetadatametrics_last_applied_record_offset"

RunTool = Callable[[str, list[str], bytes], tuple[str, int]]
"""The tool's name, words and standard input; what it printed, and its exit code."""


class Step(NamedTuple):
    words: str
    stdin: bytes = b""
    then: str | None = None
    """A topic whose replicas must all be in sync, and know what is committed, before the next step."""


STEPS = (
    Step(
        "kafka-topics --create --topic orders --replica-assignment 1:2:3,2:3:1"
        " --config retention.ms=86400000 --config cleanup.policy=compact,delete",
        then="orders",
    ),
    Step("kafka-topics --create --topic orders"),
    Step("kafka-topics --create --topic orders --if-not-exists"),
    Step("kafka-topics --create --topic small_one --replica-assignment 3", then="small_one"),
    Step("kafka-topics --create --topic wrong --config foo=1"),
    Step("kafka-topics --create --topic wrong --replication-factor 9"),
    Step("kafka-topics --list"),
    Step("kafka-topics --describe"),
    Step("kafka-topics --describe --topic nothing"),
    Step("kafka-topics --describe --at-min-isr-partitions"),
    Step("kafka-topics --describe --under-replicated-partitions"),
    Step("kafka-topics --describe --topics-with-overrides --exclude-internal"),
    Step(
        "kafka-topics --alter --topic small_one --partitions 2 --replica-assignment 3,1",
        then="small_one",
    ),
    Step("kafka-topics --alter --topic small_one --partitions 1"),
    Step(
        "kafka-console-producer --topic orders --reader-property parse.key=true"
        " --reader-property key.separator=: --reader-property null.marker=NULL",
        b"a:1\nb:2\nc:3\nd:NULL\ne:5\n",
    ),
    Step("kafka-get-offsets --topic orders"),
    Step("kafka-get-offsets --topic-partitions orders:1,small.*:0-1 --time earliest"),
    Step("kafka-get-offsets --topic nothing"),
    Step("kafka-get-offsets --topic orders --time soon"),
    Step(
        "kafka-console-consumer --topic orders --partition 0 --offset earliest --max-messages 2"
        " --formatter-property print.key=true --formatter-property print.offset=true"
        " --formatter-property print.headers=true --formatter-property print.partition=true"
    ),
    Step("kafka-dump-log --print-data-log --files {data}/orders-1/00000000000000000000.log"),
    Step(
        "kafka-configs --alter --topic orders --add-config retention.ms=5000,segment.bytes=1048576"
    ),
    Step("kafka-configs --alter --topic orders --delete-config segment.bytes"),
    Step("kafka-configs --alter --topic orders --add-config foo=1"),
    Step("kafka-configs --describe --topic orders"),
    Step("kafka-configs --describe --entity-type topics --entity-name nothing"),
    Step("kafka-configs --alter --broker-defaults --add-config num.replica.fetchers=2"),
    Step("kafka-configs --alter --broker 2 --add-config num.io.threads=12,log.cleaner.threads=2"),
    Step("kafka-configs --alter --broker 2 --add-config num.io.threads=none"),
    Step("kafka-configs --describe --entity-type brokers"),
    Step("kafka-configs --describe --broker 7"),
    Step("kafka-configs --alter --client c1 --add-config producer_byte_rate=20000000"),
    Step("kafka-configs --alter --user alice --client c1 --add-config consumer_byte_rate=1024"),
    Step("kafka-configs --describe --entity-type clients"),
    Step("kafka-configs --describe --user alice --entity-type clients"),
    Step("kafka-configs --describe --user alice --client c1"),
    Step("kafka-configs --alter --group billing --add-config consumer.session.timeout.ms=50000"),
    Step("kafka-configs --alter --group billing --add-config share.session.timeout.ms=50000"),
    Step("kafka-configs --describe --group billing"),
    Step(
        "kafka-consumer-groups --reset-offsets --group billing --topic orders --to-earliest --execute"
    ),
    Step("kafka-consumer-groups --list"),
    Step("kafka-consumer-groups --list --state --type"),
    Step("kafka-consumer-groups --describe --group billing"),
    Step("kafka-consumer-groups --describe --group billing --verbose"),
    Step("kafka-consumer-groups --describe --group billing --members"),
    Step("kafka-consumer-groups --describe --group billing --state"),
    Step("kafka-consumer-groups --describe --group nothing"),
    Step(
        "kafka-consumer-groups --reset-offsets --group billing --all-topics --shift-by 1 --export"
    ),
    Step("kafka-consumer-groups --reset-offsets --group billing --topic nothing --to-latest"),
    Step("kafka-consumer-groups --delete-offsets --group billing --topic orders:0"),
    Step("kafka-consumer-groups --delete-offsets --group nothing --topic orders"),
    Step("kafka-consumer-groups --delete --group billing --group nothing"),
    Step("kafka-reassign-partitions --list"),
    Step("kafka-reassign-partitions --execute --reassignment-json-file {plan}", then="orders"),
    Step("kafka-reassign-partitions --verify --reassignment-json-file {plan}"),
    Step("kafka-reassign-partitions --cancel --reassignment-json-file {plan}"),
    Step("kafka-reassign-partitions --verify --reassignment-json-file {other}"),
    Step("kafka-topics --describe --topic orders"),
    Step("kafka-leader-election --election-type preferred --topic orders --partition 0"),
    Step("kafka-leader-election --election-type preferred --topic nothing --partition 0"),
    Step("kafka-leader-election --election-type unclean --all-topic-partitions"),
    Step("kafka-log-dirs --describe --topic-list orders --broker-list 1,2"),
    Step("kafka-log-dirs --describe --broker-list 7"),
    Step("kafka-delete-records --offset-json-file {offsets}"),
    Step("kafka-get-offsets --topic orders --time -2"),
    Step("kafka-metadata-quorum describe --status"),
    Step("kafka-metadata-quorum describe --replication"),
    Step("kafka-cluster cluster-id"),
    Step("kafka-cluster list-endpoints"),
    Step("kafka-features describe"),
    Step("kafka-features upgrade --feature share.version=1"),
    Step("kafka-features downgrade --feature group.version=0 --dry-run"),
    Step("kafka-topics --delete --topic small_one"),
    Step("kafka-topics --delete --topic small_one"),
)
PLAN = [
    {"topic": "orders", "partition": 0, "replicas": [2, 3]},
    {"topic": "orders", "partition": 1, "replicas": [2, 3, 1]},
]
OTHER = [{"topic": "orders", "partition": 0, "replicas": [1, 2, 3]}]
OFFSETS = [
    {"topic": "orders", "partition": 0, "offset": 1},
    {"topic": "orders", "partition": 1, "offset": 99},
]
WITHOUT_SERVER = frozenset({"kafka-dump-log", "kafka-storage"})
SERVER_BEHIND = frozenset({"kafka-cluster"})
"""Tools that take --bootstrap-server after the sub-command."""


class SessionCluster(ProcessCluster):
    """Its nodes say how far they have applied the metadata: a tool asks any broker, also one that has not heard yet of what the
    tool before it changed."""

    def __init__(self, directory: Path) -> None:
        self._metrics = dict(zip((1, 2, 3), free_ports(3), strict=True))
        listeners = {
            node: {"metrics.listeners": f"HTTP://127.0.0.1:{port}"}
            for node, port in self._metrics.items()
        }
        super().__init__(directory, 3, SETTINGS, listeners)

    def wait_until_all_know(self) -> None:
        newest = max(map(self._applied, self._metrics.values()))
        wait_until(
            lambda: min(map(self._applied, self._metrics.values())) >= newest,
            30,
            "all nodes know what any of them knows",
        )

    @staticmethod
    def _applied(port: int) -> int:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
            text = page.read().decode()
        found = re.search(rf"(?m)^{APPLIED}(?:{{.*}})? (\S+)$", text)
        assert found is not None, APPLIED
        return int(float(found[1]))


def transcript(cluster: SessionCluster, directory: Path, run: RunTool) -> str:
    """Every step with what it printed, as it would be on any cluster."""
    files = {}
    for name, rows in (("plan", PLAN), ("other", OTHER), ("offsets", OFFSETS)):
        files[name] = directory / f"{name}.json"
        files[name].write_text(json.dumps({"version": 1, "partitions": rows}))
    data = cluster.nodes[2].data
    text = []
    for step in STEPS:
        name, *words = shlex.split(step.words.format(data=data, **files))
        server = [] if name in WITHOUT_SERVER else ["--bootstrap-server", cluster.bootstrap]
        given = [*words, *server] if name in SERVER_BEHIND else [*server, *words]
        printed, code = run(name, given, step.stdin)
        text.append(f"$ {step.words}\n{general(printed, cluster, directory)}[exit {code}]\n")
        if step.then is not None:
            _settle(cluster, step.then)
        cluster.wait_until_all_know()
    return "\n".join(text)


def _settle(cluster: ProcessCluster, topic: str) -> None:
    def moved() -> bool:
        fields = {"topics": None, "timeout": 5000}
        answer = cluster.ask(cluster.nodes[1], ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, fields)
        return not answer.topics

    wait_until(moved, 30, f"{topic} is where it shall be")
    cluster.wait_whole(topic)

    def committed() -> bool:
        """A leader that was elected a moment ago, of ours or of Kafka's, may not know yet what its predecessor
        committed, and refuses to delete it."""
        found = offsets(cluster, cluster.leader(topic), topic)
        return found.hw == found.leo

    wait_until(committed, 30, f"the leader of {topic} knows what is committed")


def general(text: str, cluster: ProcessCluster, directory: Path) -> str:
    """Without what differs from cluster to cluster, or from moment to moment."""
    for id, node in cluster.nodes.items():
        text = text.replace(str(node.data), f"<data {id}>")
        # Not where its digits stand within a longer number, as those of a time.
        text = re.sub(rf"(?<!\d){node.port}(?!\d)", f"<port {id}>", text)
    text = text.replace(str(directory), "<dir>")
    # A port has four or five digits, and the column behind it is padded.
    text = re.sub(r"(<port \d>(?:  \(\d\))?) +", r"\1 ", text)
    text = re.sub(r"127\.0\.0\.1:<port \d>  \(\d\) ", "<coordinator> ", text)
    # Only the leader's directory is known.
    text = re.sub(r", \"directoryId\": \"[\w-]{22}\"", "", text)
    text = re.sub(r"\b1[6-9]\d{11}\b", "<time>", text)
    text = re.sub(r"(TopicId: |ClusterId: +|Cluster ID: )[\w-]{22}", r"\1<id>", text)
    text = re.sub(r"\b(crc|producerId|size): \d+", r"\1: <number>", text)
    text = re.sub(r"\"size\":\d+", '"size":<number>', text)
    text = re.sub(
        r"((?:LeaderId|LeaderEpoch|HighWatermark|MaxFollower\w+): +)-?\d+", r"\1<number>", text
    )
    text = re.sub(r"  Epoch: \d+", "  Epoch: <number>", text)
    text = re.sub(r"(?:(?m:^)partition: .*\n)+", lambda found: _sorted_lines(found[0]), text)
    text = re.sub(r"CONTROLLER://[\d.]+:\d+", "<controller>", text)
    return re.sub(r"(?m)^(NodeId\t.*\n)((?:\d+ .*\n)+)", _quorum_rows, text)


def _sorted_lines(text: str) -> str:
    """Java gives an unmodifiable map another order in every process."""
    return "".join(sorted(text.splitlines(keepends=True)))


def _quorum_rows(found: re.Match[str]) -> str:
    """Who leads differs, and every number: kept is who there is, and the layout."""
    rows = [[cell.strip() for cell in row.split("\t")] for row in found[2].splitlines()]
    ids = ",".join(sorted(row[0] for row in rows))
    roles = ",".join(sorted(row[6] for row in rows))
    return f"NodeId … nodes {ids} are {roles}, {len(rows[0])} columns\n"
