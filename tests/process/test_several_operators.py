"""Commands that move replicas, while others move, cancel, delete and throttle beside them."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic, ResourceType

from ottla.client.blocking import BlockingClient
from ottla.client.reassigning import MoveRefused, Reassigner
from support.by_commands import CommandedCluster
from support.cluster import wait_until

pytestmark = pytest.mark.timeout(240)

FOLLOWERS = "follower.replication.throttled.replicas"
RATE = "leader.replication.throttled.rate"
SLOW = ("--throttle", "2M")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandedCluster]:
    words = ("--dynamic-voters", "-c", "broker.session.timeout.ms=3000", "-c")
    where = tmp_path_factory.mktemp("several") / "cluster"
    with CommandedCluster(where, 4, *words, "broker.heartbeat.interval.ms=500") as running:
        yield running


def proposal(path: Path, wanted: Mapping[tuple[str, int], Sequence[int]]) -> Path:
    partitions = [
        {"topic": topic, "partition": number, "replicas": replicas}
        for (topic, number), replicas in wanted.items()
    ]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return path


def test_a_move_that_somebody_else_cancelled_is_not_said_to_be_done(
    cluster: CommandedCluster, tmp_path: Path
) -> None:
    topic = cluster.create("cancelled", [[1, 2]])
    cluster.fill(topic, 4)
    file = proposal(tmp_path / "file.json", {(topic, 0): [1, 4]})
    running = cluster.moving("reassign", "execute", file, "--throttle", "300k")
    cluster.last("reassign", "cancel", file)
    out, errors = running.communicate(timeout=60)
    assert running.returncode == 5, out
    assert "somebody else has cancelled the move of cancelled-0" in errors
    assert cluster.throttles(topic) == []


def test_a_move_to_other_brokers_is_not_taken_for_ones_own(
    cluster: CommandedCluster, tmp_path: Path
) -> None:
    topic = cluster.create("wide", [[1, 2]])
    cluster.fill(topic, 4)
    wide = proposal(tmp_path / "wide.json", {(topic, 0): [1, 2, 3]})
    narrow = proposal(tmp_path / "narrow.json", {(topic, 0): [1, 2]})
    first = cluster.moving("reassign", "execute", wide, "--throttle", "300k")
    cluster.last("reassign", "execute", narrow)
    first.communicate(timeout=60)
    assert first.returncode == 5
    assert cluster.partitions(topic) == {0: [1, 2]}


def test_what_is_moving_is_throttled_whoever_else_moves_and_looks(
    cluster: CommandedCluster, tmp_path: Path
) -> None:
    topic = cluster.create("shared", [[1, 2]] * 4)
    cluster.fill(topic, 16)
    mine = proposal(tmp_path / "mine.json", {(topic, 0): [1, 3], (topic, 1): [1, 3]})
    theirs = proposal(tmp_path / "theirs.json", {(topic, 2): [1, 4], (topic, 3): [1, 4]})
    first = cluster.moving("reassign", "execute", mine, "--throttle", "500k", "--at-once", 1)
    second = cluster.moving("reassign", "execute", theirs, *SLOW, "--additional")
    named = (cluster.setting(ResourceType.TOPIC, topic, FOLLOWERS) or "").split(",")
    assert {"2:4", "3:4"} < set(named), "and what the first one moves is named, too"
    while first.poll() is None:
        for words in (("reassign", "list"), ("balance", "plan"), ("reassign", "verify", mine)):
            _, _, errors = cluster.ran(*words)
            assert "removed" not in errors, "a command that shows changes nothing"
    for running in (first, second):
        _, errors = running.communicate(timeout=120)
        assert running.returncode == 0, errors
    assert cluster.throttles(topic) == []


def test_a_throttle_of_ones_own_stays(cluster: CommandedCluster, tmp_path: Path) -> None:
    owned, moved = cluster.create("owned", [[1, 2]]), cluster.create("moved", [[1, 2]])
    cluster.fill(moved, 1)
    lists = (FOLLOWERS.replace(".", "_"), FOLLOWERS.replace("follower", "leader").replace(".", "_"))
    rates = (RATE.replace(".", "_"), RATE.replace("leader", "follower").replace(".", "_"))
    for id in range(1, 5):
        cluster.alter(ResourceType.BROKER, id, **dict.fromkeys(rates, "50000000"))
    for topic in (owned, moved):
        cluster.alter(ResourceType.TOPIC, topic, **dict.fromkeys(lists, "*"))
    before = cluster.throttles(owned, moved)
    file = proposal(tmp_path / "file.json", {(moved, 0): [1, 4]})
    lines = cluster.lines("reassign", "execute", file, *SLOW)
    assert all("topic moved has" in each["held_by"] for each in lines[:-1])
    cluster.last("reassign", "cancel")
    assert cluster.throttles(owned, moved) == before
    for topic in (owned, moved):
        cluster.alter(ResourceType.TOPIC, topic, **dict.fromkeys(lists))
    assert cluster.last("reassign", "cancel")["throttle_removed"]
    assert cluster.throttles(owned, moved) == []


def test_a_file_with_an_unknown_broker_is_refused_whole(
    cluster: CommandedCluster, tmp_path: Path
) -> None:
    topic = cluster.create("partly", [[1, 2], [1, 2]])
    file = proposal(tmp_path / "file.json", {(topic, 0): [1, 4], (topic, 1): [1, 77]})
    assert "77 is no broker" in cluster.refused("reassign", "execute", file, code=2)
    assert cluster.last("reassign", "list") == {"partitions": [], "log_dirs": []}
    assert cluster.partitions(topic) == {0: [1, 2], 1: [1, 2]}


@pytest.mark.parametrize("words", [("reassign", "execute"), ("brokers", "drain", 4)])
def test_a_topic_that_is_deleted_meanwhile_holds_up_no_other(
    cluster: CommandedCluster, tmp_path: Path, words: tuple[object, ...]
) -> None:
    kept, deleted, last = (cluster.create(f"{words[0]}-{n}", [[4, 1]]) for n in "abc")
    cluster.fill(kept, 2)
    if words[0] == "reassign":
        targets = {(topic, 0): [1, 3] for topic in (kept, deleted, last)}
        words = (*words, proposal(tmp_path / "file.json", targets))
    running = cluster.moving(*words, *SLOW, "--at-once", 1)
    admin = cluster.admin
    admin.delete_topics([deleted])[deleted].result(20)
    _, errors = running.communicate(timeout=120)
    assert running.returncode == 0, errors
    for topic in (kept, last):
        assert 4 not in cluster.partitions(topic)[0]
    cluster.ran("brokers", "drain", 4, "--undo")


def interrupt(running: subprocess.Popen[str]) -> str:
    running.send_signal(signal.SIGINT)
    return running.communicate(timeout=60)[1]


def test_plans_and_the_way_back_of_what_moves_keep_the_number_of_replicas(
    cluster: CommandedCluster, tmp_path: Path
) -> None:
    topic = cluster.create("factor", [[1, 2]])
    cluster.fill(topic, 4)
    file = proposal(tmp_path / "file.json", {(topic, 0): [3, 4]})
    back, late, made = (tmp_path / name for name in ("back.json", "late.json", "made.json"))

    def replicas(path: Path) -> list[int]:
        return json.loads(path.read_text())["partitions"][0]["replicas"]

    words = ("reassign", "execute", file, "--throttle", "100k", "--rollback")
    interrupt(cluster.moving(*words, back))
    assert replicas(back) == [1, 2]
    assert "back.json stays" in interrupt(cluster.moving(*words, back)), "the same command again"
    interrupt(cluster.moving(*words, late))
    assert replicas(back) == replicas(late) == [1, 2]
    files = ("--topics", topic, "--brokers", "3,4", "--to", made, "--rollback", tmp_path / "b.json")
    cluster.last("reassign", "generate", *files)
    assert sorted(replicas(made)) == [3, 4]
    assert replicas(tmp_path / "b.json") == [1, 2]
    others = proposal(tmp_path / "others.json", {(topic, 0): [1, 4]})
    cluster.refused("reassign", "execute", others, "--rollback", back)
    cluster.last("reassign", "execute", back, "--throttle", "none")
    assert cluster.partitions(topic) == {0: [1, 2]}
    assert cluster.throttles(topic) == []


def test_a_plan_that_was_overtaken_is_refused_rather_than_change_the_number_of_replicas(
    cluster: CommandedCluster,
) -> None:
    topic = cluster.create("overtaken", [[1, 2]])
    address = [("127.0.0.1", int(cluster.bootstrap.split(",")[0].split(":")[1]))]

    async def run(*, keep_factor: bool) -> None:
        moves = Reassigner(blocking.client)
        async for _ in moves.run({(topic, 0): [1, 2, 3]}, None, keep_factor=keep_factor):
            pass

    with BlockingClient(address) as blocking:
        with pytest.raises(MoveRefused, match="replication factor"):
            blocking.run(run(keep_factor=True))
        assert cluster.partitions(topic) == {0: [1, 2]}
        blocking.run(run(keep_factor=False))
    assert cluster.partitions(topic) == {0: [1, 2, 3]}


def test_no_throttle_lifts_that_of_the_moves_that_go_on(
    cluster: CommandedCluster, tmp_path: Path
) -> None:
    topic = cluster.create("lifted", [[1, 2]])
    cluster.fill(topic, 8)
    file = proposal(tmp_path / "file.json", {(topic, 0): [3, 4]})
    interrupt(cluster.moving("reassign", "execute", file, "--throttle", "50k"))
    assert cluster.setting(ResourceType.TOPIC, topic, FOLLOWERS)
    running = cluster.moving("reassign", "execute", file, "--throttle", "none")
    assert cluster.setting(ResourceType.TOPIC, topic, FOLLOWERS) is None
    _, errors = running.communicate(timeout=60)  # minutes at the old rate
    assert running.returncode == 0, errors
    assert cluster.throttles(topic) == []


def test_the_rates_of_a_broker_that_dies_meanwhile_are_removed_too(
    cluster: CommandedCluster, tmp_path: Path
) -> None:
    topic = cluster.create("dies", [[1, 2, 4]])
    cluster.fill(topic, 4)
    file = proposal(tmp_path / "file.json", {(topic, 0): [1, 2, 3]})
    running = cluster.moving("reassign", "execute", file, "--throttle", "1M")
    assert cluster.setting(ResourceType.BROKER, 4, RATE)
    cluster.last("nodes", "kill", 4)
    out, errors = running.communicate(timeout=60)
    assert running.returncode == 0, errors
    assert json.loads(out.splitlines()[-1])["limited"] == []
    cluster.last("nodes", "start", 4)
    wait_until(lambda: cluster.fenced() == [], 30, "broker 4 is back")
    assert cluster.throttles(topic) == []


def test_a_drain_whose_broker_dies_with_the_only_copy_says_so_and_ends(
    cluster: CommandedCluster,
) -> None:
    cluster.last("brokers", "drain", 4, "--throttle", "none")
    cluster.last("brokers", "drain", 4, "--undo")
    topic = cluster.create("only", [[4]])
    cluster.fill(topic, 4)
    running = cluster.moving("brokers", "drain", 4, "--throttle", "300k", "--lost-after", 4)
    cluster.last("nodes", "kill", 4)
    out, errors = running.communicate(timeout=90)
    assert running.returncode == 5, errors
    assert "nobody else has all records of only-0" in errors
    held = [json.loads(line).get("held_by") or "" for line in out.splitlines()]
    assert any("only-0 has no leader to copy from until broker 4" in each for each in held), out
    cluster.last("nodes", "start", 4)
    wait_until(lambda: cluster.is_whole(topic), 30, "its only replica leads again")
    cluster.last("brokers", "drain", 4, "--throttle", "none")
    assert cluster.on(4) == []
    assert cluster.throttles(topic) == []
    cluster.last("brokers", "drain", 4, "--undo")


def test_the_throttle_of_a_replacement_that_does_not_come_is_not_left_behind(
    cluster: CommandedCluster, tmp_path: Path
) -> None:
    topic = cluster.create("awaited", [[1, 4], [2, 4]])
    cluster.kill(4)
    file = tmp_path / "node.properties"
    at = ("--host", "127.0.0.1", "--out", file, "-b", cluster.bootstrap)
    words = ("brokers", "replace", 4, *at, "--wait")
    said = cluster.refused(*words, 1, code=4)
    assert "the throttle for broker 4 is removed" in said
    assert cluster.throttles(topic) == []
    running = cluster.begin(*words, 600)
    wait_until(lambda: cluster.throttles(topic), 30, "it waits, and has set the throttle")
    running.kill()
    running.communicate()
    _, _, errors = cluster.ran("reassign", "list")
    assert "a throttle waits for broker 4, which is down" in errors
    cluster.last("nodes", "start", 4)
    wait_until(lambda: cluster.is_whole(topic), 30, "all are in sync")
    cluster.last("reassign", "cancel")
    assert cluster.throttles(topic) == []


@pytest.mark.slow
def test_a_replaced_disk_is_filled_under_a_throttle_that_nobody_removes_meanwhile(
    cluster: CommandedCluster,
) -> None:
    topic = cluster.create("replaced", [[1, 4], [2, 4]])
    alone = cluster.create("alone", [[4]])
    cluster.fill(topic, 24)
    cluster.kill(4)
    assert "nobody else has all records of alone-0" in cluster.refused("brokers", "replace", 4)
    running = cluster.moving("brokers", "replace", 4, *SLOW, "--accept-loss")
    named = cluster.setting(ResourceType.TOPIC, topic, FOLLOWERS)
    assert named == "0:4,1:4"
    for words in (("reassign", "list"), ("balance", "plan")):
        _, _, errors = cluster.ran(*words)
        assert "throttle" not in errors
    cluster.ran("reassign", "verify", "--wait", "none.json")
    assert cluster.setting(ResourceType.TOPIC, topic, FOLLOWERS) == named
    out, errors = running.communicate(timeout=120)
    assert running.returncode == 0, errors
    assert json.loads(out.splitlines()[-1])["event"] == "done"
    assert "alone-0: the records are lost" in errors
    wait_until(lambda: cluster.is_whole(alone), 20, "the lost partition has a leader again")
    assert cluster.throttles(topic, alone) == []


def test_a_cordon_of_ones_own_outlives_a_drain(cluster: CommandedCluster) -> None:
    data = str(cluster.directory / "node-4" / "data")
    cluster.alter(ResourceType.BROKER, 4, cordoned_log_dirs=data)
    try:
        cluster.last("brokers", "drain", 4)
        cluster.last("brokers", "drain", 4, "--undo")
        assert cluster.setting(ResourceType.BROKER, 4, "cordoned.log.dirs") == data
    finally:
        cluster.alter(ResourceType.BROKER, 4, cordoned_log_dirs=None)


@pytest.mark.slow
def test_the_cordon_of_a_dead_broker_is_not_said_to_be_gone(cluster: CommandedCluster) -> None:
    cluster.last("brokers", "drain", 4)
    cluster.kill(4)
    assert "broker 4 is down" in cluster.refused("brokers", "drain", 4, "--undo")
    cluster.last("nodes", "start", 4)
    cluster.last("brokers", "drain", 4, "--undo")
    assert cluster.setting(ResourceType.BROKER, 4, "cordoned.log.dirs") is None


def test_what_is_created_while_a_broker_is_removed_is_not_put_there(
    cluster: CommandedCluster,
) -> None:
    cluster.last("brokers", "drain", 4)
    cluster.last("brokers", "drain", 4, "--undo")
    running = cluster.begin("brokers", "remove", 4)
    topics: list[str] = []
    admin = cluster.admin
    while running.poll() is None:
        topic = f"created-{len(topics)}"
        admin.create_topics([NewTopic(topic, 8, 1)])[topic].result(30)
        topics.append(topic)
    _, errors = running.communicate()
    on = [topic for topic in topics if any(4 in r for r in cluster.partitions(topic).values())]
    assert topics
    assert running.returncode == (5 if on else 0), errors


@pytest.mark.slow
def test_continuous_balance_goes_on_after_a_failure_of_all_brokers(tmp_path: Path) -> None:
    with CommandedCluster(tmp_path / "cluster", 3) as cluster:
        watch = ("--continuous", "--every", 0.5, "--after", 600, "--timeout", 3)
        running = cluster.begin("balance", "apply", *watch)
        assert running.stdout is not None
        assert json.loads(next(running.stdout))["event"] == "look"
        for node in (1, 2, 3):
            cluster.last("nodes", "kill", node)
        assert running.stderr is not None
        assert "looking again in 0.5 s" in next(running.stderr)
        for node in (1, 2, 3):
            cluster.begin("nodes", "start", node).communicate()
        assert json.loads(next(running.stdout))["event"] == "look"
        running.terminate()
        running.communicate()


def test_nobody_is_waited_for_who_is_no_part_of_the_cluster(
    cluster: CommandedCluster, tmp_path: Path
) -> None:
    """The way back names the directories of all replicas, also of a broker that was removed since."""
    topic = cluster.create("elsewhere", [[1, 2]])
    file = tmp_path / "file.json"
    wish = {"topic": topic, "partition": 0, "replicas": [1, 77], "log_dirs": ["any", "/data"]}
    file.write_text(json.dumps({"version": 1, "partitions": [wish]}))
    for more in ((), ("--wait",)):
        said = cluster.refused("reassign", "verify", file, "--timeout", 600, *more, code=1)
        assert "are not where they shall be" in said
