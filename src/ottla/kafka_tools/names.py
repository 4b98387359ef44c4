"""Which tool is which module. Nothing else is imported here: a tool imports only what it needs."""

from __future__ import annotations

import os
import sys
from importlib import import_module

MODULES = {
    "kafka-cluster": "cluster",
    "kafka-configs": "configs",
    "kafka-console-consumer": "console_consumer",
    "kafka-console-producer": "console_producer",
    "kafka-consumer-groups": "consumer_groups",
    "kafka-delete-records": "delete_records",
    "kafka-dump-log": "dump_log",
    "kafka-features": "features",
    "kafka-get-offsets": "get_offsets",
    "kafka-leader-election": "leader_election",
    "kafka-log-dirs": "log_dirs",
    "kafka-metadata-quorum": "metadata_quorum",
    "kafka-reassign-partitions": "reassign_partitions",
    "kafka-storage": "storage",
    "kafka-topics": "topics",
}


def tool_of(word: str) -> str | None:
    """The tool that a word names, with or without `.sh`. None if it names none."""
    name = word.removesuffix(".sh")
    return name if name in MODULES else None


def run(name: str, words: list[str]) -> int:
    """Run a tool with these words. Its exit code."""
    module = import_module(f"ottla.kafka_tools.{MODULES[name]}")
    try:
        code: int = module.main(words)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output has enough of it, as in `kafka-topics --list | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code
