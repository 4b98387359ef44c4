"""The golden file of Kafka's tools is what Apache Kafka's own tools print, line by line, and ours print the same.

`OTTLA_RECORD_GOLDEN=1` writes the file anew from Apache Kafka's tools.
"""

from __future__ import annotations

import os
import subprocess
from difflib import unified_diff
from pathlib import Path

import pytest

from support.kafka_jars import java_command
from support.kafka_names import GOLDEN, SessionCluster, transcript

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TOOLS = "org.apache.kafka.tools."
CLASSES = {
    "kafka-cluster": TOOLS + "ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": TOOLS + "consumer.ConsoleConsumer",
    "kafka-console-producer": TOOLS + "ConsoleProducer",
    "kafka-consumer-groups": TOOLS + "consumer.group.ConsumerGroupCommand",
    "kafka-delete-records": TOOLS + "DeleteRecordsCommand",
    "kafka-dump-log": TOOLS + "DumpLogSegments",
    "kafka-features": TOOLS + "FeatureCommand",
    "kafka-get-offsets": TOOLS + "GetOffsetShell",
    "kafka-leader-election": TOOLS + "LeaderElectionCommand",
    "kafka-log-dirs": TOOLS + "LogDirsCommand",
    "kafka-metadata-quorum": TOOLS + "MetadataQuorumCommand",
    "kafka-reassign-partitions": TOOLS + "reassign.ReassignPartitionsCommand",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-topics": TOOLS + "TopicCommand",
}


def run_kafkas(name: str, words: list[str], stdin: bytes) -> tuple[str, int]:
    done = subprocess.run(
        java_command(CLASSES[name], *words),
        input=stdin,
        capture_output=True,
        check=False,
        timeout=120,
    )
    return done.stdout.decode(), done.returncode


def test_the_golden_file_is_what_apache_kafkas_tools_print(tmp_path: Path) -> None:
    with SessionCluster(tmp_path / "cluster") as cluster:
        printed = transcript(cluster, tmp_path, run_kafkas)
    if os.environ.get("OTTLA_RECORD_GOLDEN"):
        GOLDEN.write_text(printed)
    golden = GOLDEN.read_text()
    difference = unified_diff(
        golden.splitlines(), printed.splitlines(), "file", "kafka", lineterm=""
    )
    assert printed == golden, "\n".join(difference)
