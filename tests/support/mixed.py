"""One cluster of both implementations: each node runs ottla's programme or Apache Kafka's, and may change over while it is down.

The addresses, the settings and the directories are those of any `ProcessCluster`, so every test of such a cluster can run on a
mixed one: the ledger, the pipeline of transactions, the comparison of all logs byte by byte.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Final, Self

from ottla.local.cluster import READY_TIMEOUT_S
from ottla.testing.cluster import ClusterNode
from ottla.wire.apis import ApiKey
from support.cluster import ProcessCluster, wait_until
from support.kafka_jars import STORAGE, installed, java_command, run_tool
from support.kafka_server import PRINTED, SERVER

KAFKA_READY_S_MAX: Final = 120.0
STOP_S_MAX: Final = 90
SMALL_HEAP: Final = "-Xmx256m"
QUICK: Final = {
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "4000",
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.num.partitions": "6",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
"""Kafka's timeouts, shortened: tests wait for them to pass. Partitions of internal topics on all nodes, and few of them."""


class Kind(Enum):
    OTTLA = "ottla"
    KAFKA = "Apache Kafka"

    @property
    def other(self) -> Kind:
        return Kind.KAFKA if self is Kind.OTTLA else Kind.OTTLA


OTTLA, KAFKA = Kind.OTTLA, Kind.KAFKA


class MixedCluster(ProcessCluster):
    """Node 1 runs the first of `kinds`, and so on. The first three are controllers, too."""

    def __init__(
        self,
        directory: Path,
        kinds: Iterable[Kind],
        overrides: Mapping[str, str] | None = None,
        *,
        dynamic_voters: bool = False,
    ) -> None:
        self.kinds = dict(enumerate(kinds, 1))
        self.dynamic_voters = dynamic_voters
        self._programmes: dict[int, subprocess.Popen[bytes]] = {}
        super().__init__(directory, len(self.kinds), {**QUICK, **(overrides or {})})

    def __enter__(self) -> Self:
        if KAFKA in self.kinds.values():
            installed()
        return super().__enter__()

    def of_kind(self, kind: Kind) -> list[int]:
        return [id for id, each in self.kinds.items() if each is kind]

    @property
    def cluster_id(self) -> str:
        return self._local.cluster_id

    def become(self, id: int, kind: Kind) -> None:
        """The other programme takes over the directory of this node, after a controlled shutdown."""
        if self.nodes[id].running:
            self.stop(id)
        self.kinds[id] = kind
        self.start(id)

    # -- life and death ---------------------------------------------------------------------------

    def launch(self, *ids: int) -> None:
        self._require(ids)
        ours = [id for id in ids if self.kinds[id] is OTTLA]
        theirs = [id for id in ids if self.kinds[id] is KAFKA]
        unformatted = [
            id for id in theirs if not (self.nodes[id].data / "meta.properties").exists()
        ]
        with ThreadPoolExecutor(2) as at_once:
            list(at_once.map(self._format, unformatted))
        for id in theirs:
            self._launch_kafka(self.nodes[id])
        if ours:
            super().launch(*ours)

    def start(self, *ids: int, timeout: float = READY_TIMEOUT_S) -> None:
        waiting = list(ids) or [id for id, node in self.nodes.items() if not node.running]
        self.launch(*waiting)
        ours = {id: self._starting[id] for id in waiting if self.kinds[id] is OTTLA}
        if ours:
            self._local.wait_ready(ours, max(timeout, KAFKA_READY_S_MAX))
        for id in waiting:
            if self.kinds[id] is KAFKA:
                wait_until(
                    partial(self._serves, self.nodes[id]),
                    KAFKA_READY_S_MAX,
                    f"Kafka as node {id} serves",
                )

    def stop(self, *ids: int) -> list[int | None]:
        self._require(ids)
        self.resume(*(id for id in ids if self.nodes[id].paused))
        codes: list[int | None] = []
        for id in ids:
            if self.kinds[id] is OTTLA:
                codes += super().stop(id)
            else:
                process = self._programmes[id]
                process.terminate()
                codes.append(process.wait(STOP_S_MAX))
        return codes

    def close(self) -> None:
        super().close()
        for process in self._programmes.values():
            process.kill()
            process.wait()

    def _format(self, id: int) -> None:
        """As an operator of Apache Kafka does."""
        run_tool(STORAGE, "format", "-t", self.cluster_id, "-c", self.nodes[id].config)

    def _launch_kafka(self, node: ClusterNode) -> None:
        command = java_command(SERVER, node.config)
        command = [SMALL_HEAP if word.startswith("-Xmx") else word for word in command]
        with (node.directory / PRINTED).open("ab") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        self._programmes[node.id] = process
        self.adopt(node.id, process)

    def _serves(self, node: ClusterNode) -> bool:
        if not node.running:
            raise AssertionError(f"Kafka as node {node.id} ended:\n{self._printed(node)}")
        return node.id in self.alive_as_seen_by(node)

    # -- for a failed test --------------------------------------------------------------------------

    def report(self, lines: int = 60) -> str:
        kinds = ", ".join(f"{id} {kind.value}" for id, kind in self.kinds.items())
        printed = [
            f"--- Kafka as node {id}\n{self._printed(self.nodes[id])}" for id in self.of_kind(KAFKA)
        ]
        return "\n".join([kinds, super().report(lines), *printed])

    def _printed(self, node: ClusterNode) -> str:
        file = node.directory / PRINTED
        return file.read_text(errors="replace")[-4000:] if file.exists() else ""

    # -- all of its logs ------------------------------------------------------------------------------

    def all_topics(self) -> list[str]:
        """Also the internal ones; not those that ottla's nodes write about themselves."""
        answer = self.ask(self.up[0], ApiKey.METADATA, 12, {"topics": None})
        return sorted(each.name for each in answer.topics)
