"""`ottla migrate move` from nodes that play Apache Kafka's to others: interrupted, turned back, cancelled, and when brokers die."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import ResourceType

from ottla.cli.errors import CONFLICT, USAGE
from support.by_commands import CommandedCluster
from support.cluster import wait_until

pytestmark = pytest.mark.timeout(300)

QUICK = (
    "-c", "broker.session.timeout.ms=3000",
    "-c", "broker.heartbeat.interval.ms=500",
    "-c", "replica.lag.time.max.ms=3000",
)  # fmt: skip
SLOWLY = ("--throttle", "100k")
AT_ONCE = ("--throttle", "none")


class TwoKinds(CommandedCluster):
    """The first nodes play Apache Kafka's, the last ones are ottla's."""

    def __init__(self, directory: Path, kafkas: int, ottlas: int) -> None:
        super().__init__(directory, kafkas + ottlas, "--dynamic-voters", *QUICK)
        played = ",".join(map(str, range(1, kafkas + 1)))
        path = Path(__file__).parents[1] / "support" / "other_kind.py"
        self.programme = (sys.executable, str(path), played)

    def status(self) -> dict[int, Any]:
        return {row["id"]: row for row in self.last("migrate", "status")["brokers"]}

    def cordoned(self) -> list[int]:
        return [id for id, row in self.status().items() if row["cordoned"]]

    def being_moved(self) -> int:
        return int(self.last("migrate", "status")["moving"])

    def places(self, topic: str) -> list[set[int]]:
        return [set(replicas) for _, replicas in sorted(self.partitions(topic).items())]

    def has_events(self) -> bool:
        """Its own topic is there, with a replica on as many nodes as it likes."""
        return any(row["replicas"] for row in self.status().values())


@pytest.fixture
def new(tmp_path: Path) -> Iterator[Callable[[int, int], TwoKinds]]:
    with ExitStack() as stack:
        yield lambda *kinds: stack.enter_context(TwoKinds(tmp_path / "cluster", *kinds))


def test_a_move_that_was_interrupted_goes_back_and_on_with_no_more_brokers_than_replicas(
    new: Callable[[int, int], TwoKinds],
) -> None:
    cluster = new(2, 2)
    topic = cluster.create("orders", [[1, 2]] * 4)
    cluster.fill(topic, 2)
    wait_until(cluster.has_events, 60, "the events have their topic")
    for way, back in (("ottla", "kafka"), ("kafka", "ottla")):
        interrupted = cluster.moving("migrate", "move", "--to", way, *SLOWLY)
        interrupted.send_signal(signal.SIGINT)
        interrupted.communicate(timeout=60)
        assert cluster.being_moved()
        code, lines, said = cluster.ran("migrate", "move", "--to", back, *AT_ONCE)
        assert code == 0, said
        assert lines[-1]["event"] == "done"
        done = cluster.last("migrate", "move", "--to", way, *AT_ONCE)
        there, empty = ([3, 4], [1, 2]) if way == "ottla" else ([1, 2], [3, 4])
        assert done == {"event": "done", "to": way, "empty": empty}
        assert cluster.places(topic) == [set(there)] * 4
        assert cluster.cordoned() == empty
        assert [row["replicas"] for id, row in cluster.status().items() if id in empty] == [0, 0]
    assert "broker 3 was cordoned, and is not any more" in said
    assert cluster.throttles(topic) == []


def test_cancel_ends_a_move_that_runs_whatever_kind_it_names(
    new: Callable[[int, int], TwoKinds],
) -> None:
    cluster = new(1, 2)
    topic = cluster.create("orders", [[1]] * 8)
    cluster.fill(topic, 2)
    runs = cluster.moving("migrate", "move", *SLOWLY, "--at-once", 2)
    wait_until(cluster.being_moved, 60, "partitions of the topic are moved")
    done = cluster.last("migrate", "move", "--to", "kafka", "--cancel")
    assert done["event"] == "cancelled" and done["cancelled"]
    _, said = runs.communicate(timeout=60)
    assert runs.returncode == CONFLICT and "somebody else has cancelled the move" in said
    assert cluster.being_moved() == 0
    assert cluster.places(topic).count({1}) >= 4
    assert cluster.cordoned() == []
    assert cluster.throttles(topic) == []


def test_what_was_to_go_to_a_broker_that_died_is_cancelled_too(
    new: Callable[[int, int], TwoKinds],
) -> None:
    cluster = new(1, 3)
    topic = cluster.create("orders", [[1]] * 6)
    cluster.fill(topic, 2)
    runs = cluster.moving("migrate", "move", *SLOWLY)
    runs.kill()
    runs.communicate(timeout=60)
    cluster.kill(4)
    cluster.last("migrate", "move", "--cancel")
    assert cluster.being_moved() == 0
    assert not any({1, 4} <= replicas for replicas in cluster.places(topic))


def test_others_take_what_was_to_go_to_a_broker_that_died(
    new: Callable[[int, int], TwoKinds],
) -> None:
    cluster = new(1, 3)
    topic = cluster.create("orders", [[1]] * 6)
    cluster.fill(topic, 2)
    runs = cluster.moving("migrate", "move", "--throttle", "300k", "--lost-after", 2)
    cluster.kill(4)
    out, said = runs.communicate(timeout=180)
    assert runs.returncode == 0, said
    assert json.loads(out.splitlines()[-1])["event"] == "done"
    assert "broker 4 is down: what was to go there goes elsewhere" in said
    assert not any(1 in replicas for replicas in cluster.places(topic))


def test_a_dry_run_leaves_throttles_and_moves_as_they_are(
    new: Callable[[int, int], TwoKinds],
) -> None:
    cluster = new(1, 2)
    topic = cluster.create("orders", [[1]])
    named = {"leader_replication_throttled_replicas": "0:1", "follower_replication_throttled_replicas": "0:2"}  # fmt: skip
    cluster.alter(ResourceType.TOPIC, topic, **named)
    cluster.last("migrate", "move", "--dry-run")
    assert len(cluster.throttles(topic)) == 2
    assert cluster.cordoned() == []
    cluster.refused("migrate", "move", "--cancel", "--dry-run", code=USAGE)


def test_racks_are_given_up_only_if_somebody_says_so(
    new: Callable[[int, int], TwoKinds],
) -> None:
    cluster = new(2, 1)
    cluster.last("brokers", "add", "--id", 4, "--rack", "west", "--no-balance")
    topic = cluster.create("orders", [[3, 4]])
    refused = cluster.refused("migrate", "move", "--to", "kafka")
    assert "replicas of orders-0 would share racks" in refused
    assert cluster.cordoned() == []
    cluster.last("migrate", "move", "--to", "kafka", "--share-racks")
    assert cluster.places(topic) == [{1, 2}]
