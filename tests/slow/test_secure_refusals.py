"""Eight clients write through SASL_SSL as a user with exactly the rights of a producer: with a wrong password, with a wrong CA,
to another's topic, and while their right is taken away and given back."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from support.cluster import wait_until
from support.kafka_jars import java_command
from support.other_languages import go_programme, install_kafkajs
from support.secure import SecureCluster, secure_cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

WRITERS = Path(__file__).parent / "writers"
FAMILIES = ("confluent", "kafka-python", "aiokafka", "kcat", "java", "franz-go", "sarama", "kafkajs")  # fmt: skip
EACH = pytest.mark.parametrize("family", FAMILIES)
WAIT_S = 60.0
NO_LOGIN = "Authentication failed during authentication due to invalid credentials"
"""Word for word Kafka's, which every client passes on."""
NO_TRUST = re.compile(r"(?i)certificat|SslAuthenticationException: SSL handshake failed")
NO_RIGHT = re.compile(r"(?i)topic.?authorization.?failed|topicauthorization|not authorized to access topic")  # fmt: skip


class Writer:
    """A running programme, and the lines that it has printed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(line.strip() for line in self.process.stdout)

    def wait_for(self, is_it: Callable[[str], object], what: str, count: int = 1) -> None:
        """Among what comes from now on."""
        begin = len(self.lines)
        try:
            wait_until(lambda: sum(1 for line in self.lines[begin:] if is_it(line)) >= count, WAIT_S, what)  # fmt: skip
        except AssertionError as error:
            error.add_note("\n".join(["it said:", *self.lines[-20:]]))
            raise

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reading.join()


class Users:
    def __init__(self, cluster: SecureCluster, directory: Path) -> None:
        self.cluster = cluster
        self.directory = directory

    def topic_of_alice(self, name: str) -> str:
        self.cluster.told("topics", "create", name, "-p", "1")
        self.cluster.told("acls", "add", "alice", "--produce", name)
        return name

    def end_of(self, topic: str) -> int:
        settings = json.loads(self.cluster.file("confluent-kafka.json").read_text())
        consumer = Consumer(settings | {"group.id": "count"})
        try:
            return consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1]
        finally:
            consumer.close()

    def files(self, name: str, *, password: str | None = None, ca: Path | None = None) -> Path:
        """Alice's, or a copy of them in which one thing is wrong."""
        right = self.cluster.directory / "clients" / "alice"
        changed = {str(right): str(self.directory / name)}
        if password is not None:
            changed[(right / "password").read_text().strip()] = password
        if ca is not None:
            old, new = (right / "ca.crt").read_text(), ca.read_text()
            changed |= {old: new, json.dumps(old): json.dumps(new)}
        shutil.copytree(right, self.directory / name)
        for file in (self.directory / name).iterdir():
            text = file.read_text()
            for before, after in changed.items():
                text = text.replace(before, after)
            file.write_text(text)
        return self.directory / name


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Users]:
    directory = tmp_path_factory.mktemp("refusals")
    with secure_cluster(directory / "cluster", nodes=1) as cluster:
        cluster.told("users", "add", "alice")
        cluster.told("topics", "create", "bobs")
        made = Users(cluster, directory)
        made.topic_of_alice("hers")  # so that she may always be idempotent
        yield made


Write = Callable[[str, Path, str], Writer]


@pytest.fixture
def write(tmp_path: Path) -> Iterator[Write]:
    """Starts the writer of a family: which client, whose files, which topic."""
    with _writers(tmp_path) as start:
        yield start


@contextmanager
def _writers(where: Path) -> Iterator[Write]:
    started: list[Writer] = []

    def start(family: str, files: Path, topic: str) -> Writer:
        words = _words(where, family, files, topic)
        process = subprocess.Popen(words, cwd=where, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # fmt: skip
        started.append(Writer(process))
        return started[-1]

    try:
        yield start
    finally:
        for each in started:
            each.stop()


def _words(where: Path, family: str, files: Path, topic: str) -> list[str]:
    if family == "java":
        return java_command(WRITERS / "Writer.java", files, topic)
    if family == "kafkajs":
        shutil.copy(WRITERS / "kafkajs.js", where)
        install_kafkajs(where)
        return ["node", str(where / "kafkajs.js"), str(files), topic]
    if family in ("franz-go", "sarama"):
        package = {"franz-go": "franzgo", "sarama": "saramaconfig"}[family]
        main = (WRITERS / f"{family.replace('-', '_')}.go").read_text()
        return [str(go_programme(where / "go", package, main, files)), topic]
    return [sys.executable, str(WRITERS / "writer.py"), family, str(files), topic]


@EACH
def test_a_right_is_taken_away_and_given_back_while_a_client_writes(
    users: Users, write: Write, family: str
) -> None:
    topic = users.topic_of_alice(f"orders-{family}")
    writer = write(family, users.cluster.directory / "clients" / "alice", topic)
    writer.wait_for("sent".__eq__, "the first records", 3)
    users.cluster.told("acls", "remove", "alice", "--produce", topic)
    end = users.end_of(topic)
    writer.wait_for(NO_RIGHT.search, "it is refused, in Kafka's words", 3)
    assert users.end_of(topic) == end, "not one more was written"
    users.cluster.told("acls", "add", "alice", "--produce", topic)
    writer.wait_for("sent".__eq__, "it goes on without a new start", 3)
    assert users.end_of(topic) > end


@EACH
def test_anothers_topic_is_refused(users: Users, write: Write, family: str) -> None:
    writer = write(family, users.cluster.directory / "clients" / "alice", "bobs")
    writer.wait_for(NO_RIGHT.search, "it is refused, in Kafka's words")
    assert users.end_of("bobs") == 0


@EACH
def test_a_wrong_password_is_refused(users: Users, write: Write, family: str) -> None:
    files = users.files(f"guessed-{family}", password="guessed-a-password")
    writer = write(family, files, "hers")
    writer.wait_for(lambda line: NO_LOGIN in line, "it is refused, in Kafka's words")
    writer.stop()
    assert "sent" not in writer.lines
    assert not any("guessed-a-password" in line for line in writer.lines)


@EACH
def test_a_broker_whose_ca_is_unknown_gets_no_password(
    users: Users, write: Write, family: str
) -> None:
    stranger = users.cluster.directory / "secrets" / "clients-ca.crt"
    writer = write(family, users.files(f"stranger-{family}", ca=stranger), "hers")
    writer.wait_for(NO_TRUST.search, "the client does not believe the broker")
    writer.stop()
    assert "sent" not in writer.lines
