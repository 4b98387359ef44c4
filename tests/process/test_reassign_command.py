"""`ottla reassign` on real processes: a new broker gets its share, under load, whoever dies meanwhile (P39)."""

from __future__ import annotations

import json
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla.cli.errors import CONFLICT
from support.cluster import OTTLA, ProcessCluster, byte_identical, wait_until
from support.configs import BROKER, TOPIC, described
from support.interrupts import take_sigint
from support.ledger import LedgerProducer

pytestmark = pytest.mark.timeout(240)

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path_factory.mktemp("reassign"), 4) as running:
        yield running


@pytest.fixture(autouse=True)
def whole(cluster: ProcessCluster) -> Iterator[None]:
    yield
    cluster.mend()


def bootstrap(cluster: ProcessCluster) -> str:
    return ",".join(node.address for node in cluster.nodes.values())


def started(cluster: ProcessCluster, *words: object) -> subprocess.Popen[str]:
    command: list[str] = [
        str(OTTLA),
        "reassign",
        *map(str, words),
        "-b",
        bootstrap(cluster),
        "--format",
        "json",
    ]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=take_sigint,
        bufsize=1,
    )


def reassign(cluster: ProcessCluster, *words: object, code: int = 0) -> Any:
    """The last line of what the command answers."""
    process = started(cluster, *words)
    out, errors = process.communicate(timeout=120)
    assert process.returncode == code, errors
    return json.loads(out.splitlines()[-1]) if out else errors


def fill(cluster: ProcessCluster, topic: str, partitions: int) -> None:
    """Thirty megabytes, the same in each partition."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "batch.num.messages": 1})
    for number in range(300):
        producer.produce(topic, random.randbytes(100_000), partition=number % partitions)
    assert producer.flush(60) == 0


def throttles(cluster: ProcessCluster, topic: str) -> list[str]:
    found = [
        described(cluster, BROKER, str(node.id), name) for node in cluster.up for name in RATES
    ]
    lists = [described(cluster, TOPIC, topic, name) for name in REPLICAS]
    unlimited = str((1 << 63) - 1)
    return [value for value in (*found, *lists) if value not in (unlimited, "")]


def test_P39_a_fourth_broker_gets_its_share_under_load_while_the_controller_dies(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    before = [[1, 2], [2, 3], [3, 1]] * 4
    topic = cluster.create_topic("growing", assignment=before)
    counted = cluster.create_topic("growing-counted", assignment=before)
    fill(cluster, topic, 12)
    proposal, rollback = tmp_path / "proposal.json", tmp_path / "rollback.json"
    files = ("--to", proposal, "--rollback", rollback, "--tolerance", "30")
    plan = reassign(
        cluster, "generate", "--topics", f"{topic},{counted}", "--brokers", "1,2,3,4", *files
    )
    assert plan["balanced"], plan["misses"]
    assert 0 < plan["bytes_bound"] <= plan["bytes_to_move"] < 1.5 * plan["bytes_bound"]
    for each in plan["brokers"]:
        assert each["after"]["replicas"] == pytest.approx(12, abs=4)
    with LedgerProducer(cluster.bootstrap, counted, 12) as ledger:
        ledger.wait_for_more(100)
        running = started(cluster, "execute", proposal, "--throttle", "2M")
        assert running.stdout is not None
        seen = [json.loads(next(running.stdout))]
        assert throttles(cluster, topic), "there is a throttle while replicas are copied"
        killed = cluster.active_controller()
        cluster.kill(killed)
        wait_until(lambda: cluster.active_controller() != killed, 30, "another controller")
        cluster.start(killed)
        seen += [json.loads(line) for line in running.stdout]
        assert running.wait(120) == 0, running.stderr and running.stderr.read()
        ledger.wait_for_more(100)
    assert seen[-1]["event"] == "done"
    assert seen[-2]["moved"] == seen[-2]["total"] > 0
    assert throttles(cluster, topic) == []
    checked = reassign(cluster, "verify", proposal)
    assert {each["state"] for each in checked["partitions"]} == {"done"}
    assert assignments(cluster, topic, counted) == {
        (each["topic"], each["partition"]): each["replicas"]
        for each in json.loads(proposal.read_text())["partitions"]
    }
    ledger.verify(log_of=cluster.leader_logs(counted)).assert_clean()
    byte_identical(cluster, counted)
    reassign(cluster, "execute", rollback, "--throttle", "none")
    assert assignments(cluster, topic, counted) == {
        (name, number): before[number] for name in (topic, counted) for number in range(12)
    }


def assignments(cluster: ProcessCluster, *topics: str) -> dict[tuple[str, int], list[int]]:
    return {
        (topic, number): state.replicas
        for topic in topics
        for number, state in cluster.partitions(topic).items()
    }


@pytest.mark.parametrize("how", ["interrupted", "killed"])
def test_P39_the_throttle_of_a_command_that_died_is_removed_by_the_next(
    cluster: ProcessCluster, tmp_path: Path, how: str
) -> None:
    topic = cluster.create_topic(f"abandoned-{how}", assignment=[[1]])
    fill(cluster, topic, 1)
    proposal = tmp_path / "proposal.json"
    wish = {"topic": topic, "partition": 0, "replicas": [4]}
    proposal.write_text(json.dumps({"version": 1, "partitions": [wish]}))
    running = started(cluster, "execute", proposal, "--throttle", "300k")
    assert running.stdout is not None
    next(running.stdout)
    running.send_signal(signal.SIGINT if how == "interrupted" else signal.SIGKILL)
    _, errors = running.communicate(timeout=60)
    if how == "interrupted":
        assert "go on moving, under the throttle" in errors
    assert throttles(cluster, topic), "the move goes on, and so does its throttle"
    if how == "interrupted":
        reassign(cluster, "verify", proposal, "--wait")
    else:
        assert reassign(cluster, "cancel", proposal)["throttle_removed"]
    assert throttles(cluster, topic) == []
    replicas = cluster.partitions(topic)[0].replicas
    assert replicas == ([4] if how == "interrupted" else [1])


def test_P39_who_cancels_a_move_of_many_gets_no_others_begun(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    topic = cluster.create_topic("cancelled", assignment=[[1]] * 6)
    fill(cluster, topic, 6)
    file, first = tmp_path / "all.json", tmp_path / "first.json"
    moves = [{"topic": topic, "partition": number, "replicas": [4]} for number in range(6)]
    file.write_text(json.dumps({"version": 1, "partitions": moves}))
    first.write_text(json.dumps({"version": 1, "partitions": moves[:2]}))
    running = started(cluster, "execute", file, "--throttle", "100k", "--at-once", 2)
    assert running.stdout is not None and "progress" in next(running.stdout)
    reassign(cluster, "cancel", first)
    _, said = running.communicate(timeout=60)
    assert running.returncode == CONFLICT
    assert "somebody else has cancelled the move of cancelled-0 (and 5 more)" in said
    assert set(map(tuple, assignments(cluster, topic).values())) == {(1,)}


def test_P39_a_dry_run_shows_loads_and_changes_nothing(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    topic = cluster.create_topic("imagined", assignment=[[1, 2]])
    proposal = tmp_path / "proposal.json"
    wish = {"topic": topic, "partition": 0, "replicas": [3, 4, 1]}
    proposal.write_text(json.dumps({"version": 1, "partitions": [wish]}))
    shown = reassign(cluster, "execute", proposal, "--dry-run")
    (change,) = shown["changes"]
    assert (change["before"], change["after"]) == ([1, 2], [3, 4, 1])
    assert cluster.partitions(topic)[0].replicas == [1, 2]
    assert throttles(cluster, topic) == []


def test_P39_another_replication_factor_is_generated_and_done(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    topic = cluster.create_topic("safer", assignment=[[1], [2], [3], [4]])
    files = ("--to", tmp_path / "to.json", "--rollback", tmp_path / "back.json")
    words = ("generate", "--topics", topic, "--brokers", "1,2,3,4", "-r", "3", *files)
    reassign(cluster, *words)
    assert reassign(cluster, "execute", tmp_path / "to.json")["event"] == "done"
    for state in cluster.partitions(topic).values():
        assert len(state.replicas) == 3
    assert "exists already" in reassign(cluster, *words, code=5)


def test_P39_what_cannot_be_is_refused_in_words(cluster: ProcessCluster, tmp_path: Path) -> None:
    topic = cluster.create_topic("refused", assignment=[[1, 2]])
    files = ("--to", tmp_path / "to.json", "--rollback", tmp_path / "back.json")
    generate = ("generate", "--topics", topic, *files)
    assert "broker 9 is no broker" in reassign(cluster, *generate, "--brokers", "1,9", code=2)
    assert "2 replicas are wanted" in reassign(cluster, *generate, "--brokers", "1", code=2)
    assert "no file" in reassign(cluster, "execute", tmp_path / "none.json", code=3)
    bad = tmp_path / "bad.json"
    bad.write_text('{"version":1,"partitions":[]}')
    assert "cannot be empty" in reassign(cluster, "verify", bad, code=2)


def test_who_lists_or_cancels_everything_is_told_which_brokers_do_not_answer(
    cluster: ProcessCluster,
) -> None:
    cluster.kill(3)
    try:
        for word in ("list", "cancel"):
            process = started(cluster, word)
            _, errors = process.communicate(timeout=60)
            assert process.returncode == 0, errors
            assert "broker 3 does not answer" in errors
    finally:
        cluster.start(3)
        cluster.wait_ready()
