"""An unclean election under load, and the test's own ledger of what it cost.

A partition has two replicas. The first leads alone and takes writes; it is killed, and the other one, which lacks them, is
elected. What was acknowledged by the first and is not in the log afterwards is lost. `ottla losses` must say the same.
"""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Producer

from support.cluster import OTTLA, ProcessCluster, wait_until
from support.ledger import PATIENT, consume_all

TOPIC = "orders"
CONFIG = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
CARELESS = {
    **PATIENT,
    "enable.idempotence": False,
    "message.timeout.ms": 60_000,
    "batch.size": 16_384,
}
"""An idempotent producer stops at a log that lost its batches."""


@dataclass
class Ledger:
    """What was sent to one leader while it led alone."""

    acknowledged: dict[int, bytes] = field(default_factory=dict)
    """Offset → value."""
    unknown: set[bytes] = field(default_factory=set)
    """Sent, and neither acknowledged nor refused."""


class Load:
    """Unique values, some at a time, until the leader is killed."""

    def __init__(self, cluster: ProcessCluster, name: str) -> None:
        self.ledger = Ledger()
        self._name = name
        self._count = 0
        self._producer = Producer({**CARELESS, "bootstrap.servers": cluster.bootstrap})

    def send(self, count: int) -> None:
        for _ in range(count):
            value = b"%s %d" % (self._name.encode(), self._count)
            self._count += 1
            self.ledger.unknown.add(value)
            self._producer.produce(
                TOPIC, value=value, key=value[-1:], partition=0, on_delivery=self._delivered
            )
            self._producer.poll(0)

    def wait_for(self, count: int) -> None:
        def reached() -> bool:
            self._producer.poll(0.02)
            return len(self.ledger.acknowledged) >= count

        wait_until(reached, 60, f"{count} values acknowledged")

    def end(self) -> Ledger:
        """No acknowledgement comes any more."""
        self._producer.purge(in_flight=True, in_queue=True, blocking=True)
        self._producer.poll(0)
        return self.ledger

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.ledger.unknown.discard(message.value())
            self.ledger.acknowledged[message.offset()] = message.value()


def one_unclean_election(cluster: ProcessCluster, run: int, chance: random.Random) -> Ledger:
    """Brokers 4 and 5 hold the partition. Returns what the leader that was killed had acknowledged alone."""
    cluster.wait_whole(TOPIC)
    leader = cluster.partitions(TOPIC)[0].leader
    follower = 9 - leader
    before = Load(cluster, f"run {run} together")
    before.send(chance.randint(1, 200))
    before.wait_for(chance.randint(1, len(before.ledger.unknown) or 1))
    before.end()
    cluster.kill(follower)
    wait_until(lambda: cluster.partitions(TOPIC)[0].isr == [leader], 20, f"{leader} leads alone")
    alone = Load(cluster, f"run {run} alone")
    alone.send(chance.randint(1, 3000))
    alone.wait_for(chance.randint(1, 200) if len(alone.ledger.unknown) > 200 else 1)
    alone.send(chance.randint(0, 100))
    cluster.kill(leader)
    ledger = alone.end()
    cluster.start(follower)
    wait_until(lambda: cluster.partitions(TOPIC)[0].leader == follower, 20, f"{follower} leads")
    after = Load(cluster, f"run {run} after")
    after.send(chance.randint(0, 300))
    after.wait_for(len(after.ledger.unknown) // 2)
    cluster.start(leader)
    cluster.wait_whole(TOPIC)
    after.wait_for(len(after.ledger.acknowledged) + len(after.ledger.unknown))
    after.end()
    return ledger


def read_back(cluster: ProcessCluster, topic: str) -> list[bytes]:
    return [value for _, value in consume_all(cluster.bootstrap, topic, {0: 0}, 20)[0]]


def ottla(cluster: ProcessCluster, *words: str) -> list[dict[str, Any]]:
    """What the command prints, one object a line."""
    command = [str(OTTLA), *words, "--format", "json"]
    if "--dir" not in words:
        command += ["--bootstrap", cluster.bootstrap]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, (words, result.stdout, result.stderr)
    return [json.loads(line) for line in result.stdout.splitlines()]


def named(cluster: ProcessCluster, *words: str) -> list[dict[str, Any]]:
    """The losses of the topic that `ottla losses` names."""
    found = ottla(cluster, "losses", "--topic", TOPIC, *words)
    return [each for each in found if each["kind"] == "truncation"]


def assert_exact(ledger: Ledger, loss: dict[str, Any], in_the_log: Collection[bytes]) -> None:
    """The named range is what the leader had acknowledged alone: not an offset more, not one less. Only a record whose
    acknowledgement was on its way may be named besides, because it was committed too."""
    offsets = set(range(loss["first_offset"], loss["end_offset"]))
    lost = {offset for offset, value in ledger.acknowledged.items() if value not in in_the_log}
    assert lost, "the run lost nothing, so it shows nothing"
    assert lost <= offsets, f"not named: {sorted(lost - offsets)}"
    beyond = offsets - lost
    assert len(beyond) <= len(ledger.unknown), f"named, but not lost: {sorted(beyond)}"
    assert not beyond or min(beyond) > max(lost), f"named within: {sorted(beyond)}"
    # It may have died between the write of its last batch and the move of its high watermark.
    after = set(range(loss["end_offset"], loss["possible_end_offset"]))
    assert not after & ledger.acknowledged.keys(), "acknowledged, but named as possible only"
    assert len(after) + len(beyond) <= len(ledger.unknown)
