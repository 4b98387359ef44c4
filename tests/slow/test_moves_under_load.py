"""A fourth broker joins a loaded cluster: its share is moved to it, and nobody notices (P39).

20 MB/s of producers with acks=all, consumers at the tail, all on one machine. The figures of a run are printed.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.local.ports import free_ports
from support.cluster import HOST, OTTLA, ProcessCluster, wait_until
from support.configs import BROKER, TOPIC, described
from support.interrupts import take_sigint
from support.loaded import Load, percentile

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.alone]

BYTES_PER_S = 20_000_000
PARTITIONS = 12
WARM_S, QUIET_S, SETTLE_S = 10.0, 20.0, 5.0
ACK_TIMES_MAX = 2.0
"""How much longer than in the quiet cluster an acknowledgement may take, at the 99th percentile."""
NEW = 4
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
UNLIMITED = str((1 << 63) - 1)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ProcessCluster]:
    """Three brokers with all of the topic, and a fourth that has just been started."""
    pages = dict(zip(range(1, 5), free_ports(4), strict=True))
    own = {id: {"metrics.listeners": f"HTTP://{HOST}:{port}"} for id, port in pages.items()}
    with ProcessCluster(tmp_path / "cluster", 4, node_overrides=own) as running:
        yield running


@pytest.fixture
def topic(cluster: ProcessCluster) -> str:
    spread = [[1, 2, 3], [2, 3, 1], [3, 1, 2]] * (PARTITIONS // 3)
    return cluster.create_topic("loaded", assignment=spread, config={"min.insync.replicas": "2"})


def started(cluster: ProcessCluster, *words: object) -> subprocess.Popen[str]:
    at = ",".join(node.address for node in cluster.nodes.values())
    command = [str(OTTLA), "reassign", *map(str, words), "-b", at, "--format", "json"]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=take_sigint,
        bufsize=1,
    )


def reassign(cluster: ProcessCluster, *words: object) -> Any:
    process = started(cluster, *words)
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return json.loads(out.splitlines()[-1])


def generated(cluster: ProcessCluster, topic: str, directory: Path) -> tuple[Path, Any]:
    proposal = directory / "proposal.json"
    files = ("--to", proposal, "--rollback", directory / "rollback.json")
    made = reassign(cluster, "generate", "--topics", topic, "--brokers", "1,2,3,4", *files)
    return proposal, made


def throttles(cluster: ProcessCluster, topic: str) -> list[str]:
    found = [
        described(cluster, BROKER, str(node.id), name) for node in cluster.up for name in RATES
    ]
    lists = [described(cluster, TOPIC, topic, name) for name in REPLICAS]
    return [value for value in (*found, *lists) if value not in (UNLIMITED, "")]


def assert_even(cluster: ProcessCluster, topic: str) -> None:
    """Nine replicas and three leaders of 36 and 12 on each of four brokers."""
    states = cluster.partitions(topic).values()
    replicas = Counter(replica for state in states for replica in state.replicas)
    leaders = Counter(state.leader for state in states)
    assert replicas == dict.fromkeys(range(1, 5), 9), replicas
    assert leaders == dict.fromkeys(range(1, 5), 3), leaders


def test_P39_a_fourth_broker_joins_a_loaded_cluster_and_producers_wait_no_longer(
    cluster: ProcessCluster, topic: str, tmp_path: Path
) -> None:
    with Load(cluster.bootstrap, topic, PARTITIONS, BYTES_PER_S) as load:
        load.wait_for_s(WARM_S)
        began = time.monotonic()
        load.wait_for_s(QUIET_S)
        moving = time.monotonic()
        proposal, made = generated(cluster, topic, tmp_path)
        executed = time.monotonic()
        process = started(cluster, "execute", proposal)
        assert process.stdout is not None
        told = [json.loads(line) for line in process.stdout]
        assert process.wait(300) == 0, process.stderr and process.stderr.read()
        done = time.monotonic()
        checked = reassign(cluster, "verify", proposal)
        load.wait_for_s(SETTLE_S)
        again = time.monotonic()
        load.wait_for_s(QUIET_S)
        end = time.monotonic()
        before, during = load.between(began, moving), load.between(executed, done)
        after = load.between(again, end)
    for each in told:
        if each["event"] == "progress":
            print(
                f"moved {each['moved'] / 1e6:6.1f} of {each['total'] / 1e6:6.1f} MB, throttle"
                f" {(each['throttle'] or 0) / 1e6:5.1f} MB/s, p99 that brokers say"
                f" {each['latency_ms'] or 0:6.1f} ms"
            )
    by_second = [
        load.between(executed + n, executed + n + 1) for n in range(int(done - executed) + 2)
    ]
    worst = " ".join(f"{percentile(each, 0.99) * 1000:.0f}" for each in by_second if each)
    print(f"p99 of each second since the move began, in ms: {worst}")
    bound = ACK_TIMES_MAX * percentile(before, 0.99)
    late = " ".join(str(sum(took > bound for took in each)) for each in by_second)
    print(f"acks of each second that took more than {bound * 1000:.0f} ms: {late}")
    moved = max(each["moved"] for each in told if each["event"] == "progress")
    for name, times in (("before", before), ("moving", during), ("after", after)):
        print(
            f"{name:>6}: {len(times):6d} acks, p50 {percentile(times, 0.5) * 1000:6.1f} ms,"
            f" p99 {percentile(times, 0.99) * 1000:6.1f} ms"
        )
    print(
        f"moved {moved / 1e6:.0f} MB (planned {made['bytes_to_move'] / 1e6:.0f}, bound"
        f" {made['bytes_bound'] / 1e6:.0f}) in {done - executed:.1f} s"
    )
    assert {each["state"] for each in checked["partitions"]} == {"done"}
    assert throttles(cluster, topic) == []
    assert_even(cluster, topic)
    load.report(cluster.leader_logs(topic)).assert_clean()
    # Quiet is before and after, because others use this machine too.
    p99s = percentile(before + after, 0.99), percentile(during, 0.99)
    assert p99s[1] <= ACK_TIMES_MAX * p99s[0], f"{p99s[1] / p99s[0]:.1f} times the quiet p99"


@pytest.mark.parametrize("victim", ["controller", "new broker"])
def test_P39_a_move_finishes_whoever_is_killed_meanwhile(
    cluster: ProcessCluster, topic: str, tmp_path: Path, victim: str
) -> None:
    with Load(cluster.bootstrap, topic, PARTITIONS, BYTES_PER_S) as load:
        load.wait_for_s(WARM_S)
        proposal, _ = generated(cluster, topic, tmp_path)
        began = time.monotonic()
        process = started(cluster, "execute", proposal)
        assert process.stdout is not None
        for line in process.stdout:
            told = json.loads(line)
            if told["event"] == "progress" and told["moved"] > told["total"] / 4:
                break
        killed = NEW if victim == "new broker" else cluster.active_controller()
        cluster.kill(killed)
        load.wait_for_s(5.0)
        cluster.start(killed)
        out, errors = process.communicate(timeout=400)
        assert process.returncode == 0, errors
        print(f"{victim} {killed} killed: done {time.monotonic() - began:.1f} s after the start")
        assert json.loads(out.splitlines()[-1])["event"] == "done"
        checked = reassign(cluster, "verify", proposal)
        assert {each["state"] for each in checked["partitions"]} == {"done"}
        cluster.wait_whole(topic, 120)
        load.wait_for_s(2.0)
    assert throttles(cluster, topic) == []
    reassign(cluster, "execute", proposal)  # gives leadership to those who were down at the end
    wait_until(lambda: _is_even(cluster, topic), 60, "even replicas and leaders")
    load.report(cluster.leader_logs(topic)).assert_clean()


def _is_even(cluster: ProcessCluster, topic: str) -> bool:
    try:
        assert_even(cluster, topic)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("how", ["cancelled", "interrupted", "killed"])
def test_P39_no_throttle_stays_after_a_move_under_load_that_was_given_up(
    cluster: ProcessCluster, topic: str, tmp_path: Path, how: str
) -> None:
    with Load(cluster.bootstrap, topic, PARTITIONS, BYTES_PER_S) as load:
        load.wait_for_s(WARM_S)
        proposal, _ = generated(cluster, topic, tmp_path)
        process = started(cluster, "execute", proposal, "--throttle", "8M")
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line)["event"] == "progress":
                break
        assert throttles(cluster, topic)
        if how == "cancelled":
            said = reassign(cluster, "cancel", proposal)
            assert said["throttle_removed"]
            process.communicate(timeout=120)
        else:
            process.send_signal(signal.SIGINT if how == "interrupted" else signal.SIGKILL)
            process.communicate(timeout=60)
            assert throttles(cluster, topic), "the moves go on under their throttle"
            # Producers write faster than that throttle lets replicas be copied.
            reassign(cluster, "execute", proposal)
            reassign(cluster, "verify", proposal, "--wait")
    assert throttles(cluster, topic) == []
    load.report(cluster.leader_logs(topic)).assert_clean()
