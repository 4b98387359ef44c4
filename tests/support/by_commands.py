"""A cluster of `ottla up` that a test changes by commands alone, as an operator does; and a reader that reads along."""

from __future__ import annotations

import json
import random
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from support.cluster import OTTLA, wait_until
from support.interrupts import take_sigint
from support.messages import place_of, value_of

COMMAND_S = 180


class CommandedCluster:
    programme: Sequence[str] = (str(OTTLA),)

    def __init__(self, directory: Path, nodes: int, *words: str) -> None:
        self.directory = directory
        self._nodes = nodes
        self._words = words

    def __enter__(self) -> Self:
        self.last("up", "-n", self._nodes, "--port", 0, "--detach", *self._words)
        return self

    def __exit__(self, *_: object) -> None:
        self.last("purge")

    # Commands

    def begin(self, *words: object) -> subprocess.Popen[str]:
        command = [
            *self.programme,
            *map(str, words),
            "--dir",
            str(self.directory),
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

    def lines(self, *words: object) -> list[Any]:
        """All JSON lines of a command that succeeds."""
        process = self.begin(*words)
        out, errors = process.communicate(timeout=COMMAND_S)
        assert process.returncode == 0, f"{words}: {out} {errors}"
        return [json.loads(line) for line in out.splitlines()]

    def last(self, *words: object) -> Any:
        return self.lines(*words)[-1]

    def refused(self, *words: object, code: int = 5) -> str:
        """What a command says that does not do it."""
        process = self.begin(*words)
        out, errors = process.communicate(timeout=COMMAND_S)
        assert process.returncode == code, f"{words}: {out} {errors}"
        return errors

    def ran(self, *words: object) -> tuple[int, list[Any], str]:
        """The exit code, the JSON lines and the errors of a command that may fail."""
        process = self.begin(*words)
        out, errors = process.communicate(timeout=COMMAND_S)
        return process.returncode, [json.loads(line) for line in out.splitlines()], errors

    def moving(self, *words: object) -> subprocess.Popen[str]:
        """A command that has begun to move something."""
        process = self.begin(*words)
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line)["event"] == "progress":
                return process
        raise AssertionError(f"it moves nothing: {process.communicate()}")

    def kill(self, node: int) -> None:
        """For good: the cluster has noticed when this returns."""
        self.last("nodes", "kill", node)
        wait_until(lambda: node in self.fenced(), 60, f"broker {node} is fenced")

    # Questions

    def fenced(self) -> list[int]:
        return [each["broker"] for each in self.last("brokers")["brokers"] if each["fenced"]]

    def setting(self, kind: ResourceType, name: object, key: str) -> str | None:
        """None: it has its default value."""
        admin = self.admin
        (answer,) = admin.describe_configs([ConfigResource(kind, str(name))]).values()
        entry = answer.result(20).get(key)
        return None if entry is None or entry.is_default else entry.value

    def alter(self, kind: ResourceType, name: object, **settings: str | None) -> None:
        """None takes a setting away. Underscores in names are dots."""
        entries = [
            ConfigEntry(
                key.replace("_", "."),
                value,
                incremental_operation=AlterConfigOpType.DELETE
                if value is None
                else AlterConfigOpType.SET,
            )
            for key, value in settings.items()
        ]
        resource = ConfigResource(kind, str(name), incremental_configs=entries)
        admin = self.admin
        (answer,) = admin.incremental_alter_configs([resource]).values()
        answer.result(20)

    def nodes(self) -> dict[int, dict[str, Any]]:
        return {node["id"]: node for node in self.last("status")["nodes"]}

    @property
    def bootstrap(self) -> str:
        """As the directory says: a question to the cluster would take longer."""
        known = json.loads((self.directory / "cluster.json").read_text())["nodes"]
        return ",".join(f"127.0.0.1:{node['port']}" for node in known)

    @property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def active_controller(self) -> int:
        nodes = self.nodes()
        found = [id for id, node in nodes.items() if node["controller"] == "active"]
        return found[0] if found else 0

    def create(self, topic: str, assignment: Sequence[Sequence[int]], **config: str) -> str:
        settings = {name.replace("_", "."): value for name, value in config.items()}
        new = NewTopic(
            topic,
            len(assignment),
            replica_assignment=[list(each) for each in assignment],
            config=settings,
        )
        admin = self.admin
        admin.create_topics([new], request_timeout=30)[topic].result(30)
        wait_until(lambda: self.partitions(topic), 20, f"topic {topic}")
        return topic

    def partitions(self, topic: str) -> dict[int, list[int]]:
        """The replicas of each partition."""
        found = self.admin.list_topics(topic, timeout=20).topics[topic]
        return {number: list(each.replicas) for number, each in found.partitions.items()}

    def on(self, broker: int) -> list[str]:
        """What the broker has or leads, as any broker says."""
        topics = self.admin.list_topics(timeout=20).topics
        return [
            f"{name}-{number}"
            for name, topic in topics.items()
            for number, each in topic.partitions.items()
            if broker in each.replicas or broker == each.leader
        ]

    def is_whole(self, topic: str) -> bool:
        found = self.admin.list_topics(topic, timeout=20).topics[topic]
        return all(set(each.isrs) == set(each.replicas) for each in found.partitions.values())

    def throttles(self, *topics: str) -> list[str]:
        """All that is left of a throttle."""
        living = self.admin.list_topics(timeout=20).brokers
        resources = [ConfigResource(ResourceType.BROKER, str(id)) for id in living]
        resources += [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        found = []
        admin = self.admin
        for resource in resources:
            (answer,) = admin.describe_configs([resource]).values()
            for name, entry in answer.result(20).items():
                if "replication.throttled" in name and not entry.is_default and entry.value:
                    found.append(f"{resource}: {name}={entry.value}")
        return found

    def fill(self, topic: str, megabytes: int) -> None:
        """The same in each partition."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "batch.num.messages": 1})
        partitions = len(self.partitions(topic))
        for number in range(10 * megabytes):
            producer.produce(topic, random.randbytes(100_000), partition=number % partitions)
        assert producer.flush(60) == 0


class ReadingAlong:
    """A consumer that reads from the beginning, while others write and machines come and go."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.read: dict[int, list[tuple[int, bytes]]] = {p: [] for p in range(partitions)}
        self._topic = topic
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "reading-along",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 1000,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
        self._ends: dict[int, int] | None = None
        self._thread = threading.Thread(target=self._run, name="reading along", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._ends is None:
            self._ends = {}
        self._thread.join(60)

    def read_to(self, ends: dict[int, int], timeout: float = 60) -> None:
        self._ends = ends
        self._thread.join(timeout)
        assert not self._thread.is_alive(), "the reader did not get to the end"

    def _run(self) -> None:
        consumer = Consumer(self._settings)
        try:
            consumer.assign([TopicPartition(self._topic, p, OFFSET_BEGINNING) for p in self.read])
            while not self._is_over():
                for message in consumer.consume(1000, 0.1):
                    if message.error() is None:
                        partition, offset = place_of(message)
                        self.read[partition].append((offset, value_of(message)))
        finally:
            consumer.close()

    def _is_over(self) -> bool:
        if self._ends is None:
            return False
        return all(
            end == 0 or (self.read[p] and self.read[p][-1][0] >= end - 1)
            for p, end in self._ends.items()
        )
