"""Apache Kafka's own brokers in the place of ours: same settings, same addresses, same directories."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from support.cluster import NodeProcess, ProcessCluster
from support.kafka_jars import java_command

SERVER = "kafka.Kafka"
PRINTED = "kafka.log"
STOP_S_MAX = 60


@contextmanager
def kafka_instead(cluster: ProcessCluster) -> Iterator[dict[int, str]]:
    """Every node of a stopped cluster runs Kafka's programme. Fills what is yielded with what each printed,
    once all are stopped again."""
    printed: dict[int, str] = {}
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for node in cluster.nodes.values():
            processes.append(_start(node))
            cluster.adopt(node.id, processes[-1])
        cluster.wait_ready(90)
        yield printed
    except AssertionError as error:
        for node in cluster.nodes.values():
            error.add_note(f"--- Kafka as node {node.id}\n{_printed(node)[-4000:]}")
        raise
    finally:
        # All before waiting for any, since the last ones could not wait for a quorum.
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        printed.update((node.id, _printed(node)) for node in cluster.nodes.values())


def _start(node: NodeProcess) -> subprocess.Popen[bytes]:
    assert not node.running, f"node {node.id} runs already"
    with (node.directory / PRINTED).open("ab") as output:
        return subprocess.Popen(
            java_command(SERVER, node.config),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def _printed(node: NodeProcess) -> str:
    return (node.directory / PRINTED).read_text(errors="replace")


@contextmanager
def kafka_among(cluster: ProcessCluster, node_id: int) -> Iterator[None]:
    """One node of a running cluster runs Kafka's programme, the others ours."""
    node = cluster.nodes[node_id]
    cluster.stop(node_id)
    process = _start(node)
    try:
        cluster.adopt(node_id, process)
        cluster.wait_ready(90)
        yield
    except BaseException as error:
        error.add_note(f"--- Kafka as node {node_id}\n{_printed(node)[-4000:]}")
        raise
    finally:
        process.terminate()
        try:
            process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
