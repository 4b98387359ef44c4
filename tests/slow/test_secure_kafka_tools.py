"""Apache Kafka's own tools with the files of `ottla up --secure`: as admin, who may do everything, and as alice, who may use one
topic and one group. What she is refused has Kafka's names."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cluster import wait_until
from support.kafka_jars import TOOL_TIMEOUT_S, java_command, run_tool
from support.secure import SecureCluster, secure_cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TOOLS = "org.apache.kafka.tools."
TOPICS = TOOLS + "TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
ACLS = TOOLS + "AclCommand"
GROUPS = TOOLS + "consumer.group.ConsumerGroupCommand"
OFFSETS = TOOLS + "GetOffsetShell"
PRODUCER = TOOLS + "ConsoleProducer"
CONSUMER = TOOLS + "consumer.ConsoleConsumer"
PERFORMANCE = TOOLS + "ProducerPerformance"


class Tools:
    def __init__(self, cluster: SecureCluster) -> None:
        self.cluster = cluster

    def words(self, config: Path) -> tuple[str | Path, ...]:
        return "--bootstrap-server", self.cluster.bootstrap, "--command-config", config

    def __call__(self, user: str, name: str, *words: str, exits_with: int = 0) -> str:
        config = self.cluster.file("java.properties", user)
        return run_tool(name, *self.words(config), *words, exits_with=exits_with)

    def write(self, user: str, topic: str, *lines: str) -> str:
        """What the console's producer said about these lines."""
        words = (*self.words(self.cluster.file("java.properties", user)), "--topic", topic)
        done = subprocess.run(
            java_command(PRODUCER, *words),
            input="".join(f"{line}\n" for line in lines),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TOOL_TIMEOUT_S,
            check=False,
        )
        return done.stdout

    def read(self, user: str, topic: str, group: str, count: int, exits_with: int = 0) -> str:
        end = ("--from-beginning", "--max-messages", str(count), "--timeout-ms", "30000")
        words = ("--topic", topic, "--group", group, *end)
        return self(user, CONSUMER, *words, exits_with=exits_with)

    def logs_in(self, config: Path) -> bool:
        """Whether a broker lets the user of this file in, who may do nothing."""
        words = (*self.words(config), "--list")
        done = subprocess.run(
            java_command(TOPICS, *words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TOOL_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0 or "SaslAuthenticationException" in done.stderr, done.stderr
        return done.returncode == 0


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    with secure_cluster(tmp_path_factory.mktemp("secure-tools") / "cluster") as cluster:
        for topic in ("orders", "payments"):
            cluster.told("topics", "create", topic)
        cluster.told("users", "add", "alice")
        rights = ("--produce", "orders", "--consume", "orders", "--group", "billing")
        cluster.told("acls", "add", "alice", *rights)
        yield Tools(cluster)


# -- who may do everything -------------------------------------------------------------------------------------


def test_admin_creates_describes_alters_and_deletes_a_topic(tool: Tools) -> None:
    new = ("--create", "--topic", "made", "--partitions", "2", "--replication-factor", "3")
    assert "Created topic made." in tool("admin", TOPICS, *new)
    tool("admin", TOPICS, "--alter", "--topic", "made", "--partitions", "3")
    described = tool("admin", TOPICS, "--describe", "--topic", "made")
    assert "PartitionCount: 3" in described and "ReplicationFactor: 3" in described
    name = ("--entity-type", "topics", "--entity-name", "made")
    tool("admin", CONFIGS, "--alter", *name, "--add-config", "retention.ms=5000")
    assert "retention.ms=5000" in tool("admin", CONFIGS, "--describe", *name)
    tool("admin", TOPICS, "--delete", "--topic", "made")
    assert "made" not in tool("admin", TOPICS, "--list").split()


def test_a_setting_that_is_a_secret_is_not_shown(tool: Tools) -> None:
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    shown = tool("admin", CONFIGS, "--describe", "--all", *broker)
    secret = (tool.cluster.directory / "secrets" / "decoy").read_text().strip()
    assert secret not in shown
    assert re.search(r"ottla\.decoy\.secret=null sensitive=true", shown)


def test_kafka_configs_adds_changes_and_removes_a_user(tool: Tools, tmp_path: Path) -> None:
    bob = ("--entity-type", "users", "--entity-name", "bob")
    file = tmp_path / "bob.properties"

    def password(text: str) -> None:
        like = tool.cluster.file("java.properties").read_text()
        login = f'username="bob" password="{text}";'
        file.write_text(re.sub(r'username="admin" password=.*', lambda _: login, like))

    first = "SCRAM-SHA-512=[iterations=8192,password=pencil]"
    tool("admin", CONFIGS, "--alter", *bob, "--add-config", first)
    shown = tool("admin", CONFIGS, "--describe", *bob)
    assert "SCRAM credential configs for user-principal 'bob' are SCRAM-SHA-512=iterations=8192" in shown  # fmt: skip
    password("pencil")
    wait_until(lambda: tool.logs_in(file), 30, "bob is known to every broker")
    tool("admin", CONFIGS, "--alter", *bob, "--add-config", "SCRAM-SHA-512=[password=eraser]")
    wait_until(lambda: not tool.logs_in(file), 30, "the old password counts no more")
    password("eraser")
    assert tool.logs_in(file)
    few = "SCRAM-SHA-512=[iterations=100,password=x]"
    assert "less than the minimum 4096" in tool("admin", CONFIGS, "--alter", *bob, "--add-config", few, exits_with=1)  # fmt: skip
    tool("admin", CONFIGS, "--alter", *bob, "--delete-config", "SCRAM-SHA-512")
    wait_until(lambda: not tool.logs_in(file), 30, "bob is nobody")
    again = tool("admin", CONFIGS, "--alter", *bob, "--delete-config", "SCRAM-SHA-512", exits_with=1)  # fmt: skip
    assert "ResourceNotFoundException" in again


def test_what_kafka_acls_says_counts_at_once(tool: Tools) -> None:
    tool.cluster.told("users", "add", "carol")
    of_carol = ("--allow-principal", "User:carol", "--operation", "Describe", "--topic", "pay")
    prefixed = (*of_carol, "--resource-pattern-type", "prefixed")
    assert "payments" not in tool("carol", TOPICS, "--list").split()
    assert "Adding ACLs for resource" in tool("admin", ACLS, "--add", *prefixed)
    assert tool("carol", TOPICS, "--list").split() == ["payments"]
    listed = tool("admin", ACLS, "--list", "--principal", "User:carol")
    assert "resourceType=TOPIC, name=pay, patternType=PREFIXED" in listed
    denied = ("--deny-principal", "User:carol", "--operation", "All", "--topic", "payments")
    tool("admin", ACLS, "--add", *denied)
    assert tool("carol", TOPICS, "--list").split() == []
    tool("admin", ACLS, "--remove", "--force", *denied)
    assert tool("carol", TOPICS, "--list").split() == ["payments"]
    tool("admin", ACLS, "--remove", "--force", *prefixed)
    assert tool("carol", TOPICS, "--list").split() == []


# -- who may use one topic -------------------------------------------------------------------------------------


def test_alice_writes_reads_and_looks_after_her_group(tool: Tools) -> None:
    assert "rror" not in tool.write("alice", "orders", "one", "two")
    perf = ("--topic", "orders", "--num-records", "10", "--record-size", "20", "--throughput", "-1")
    assert "10 records sent" in tool("alice", PERFORMANCE, *perf)
    read = tool.read("alice", "orders", "billing", 12)
    assert {"one", "two"} <= set(read.split()) and "Processed a total of 12 messages" in read
    described = tool("alice", GROUPS, "--describe", "--group", "billing")
    lags = re.findall(r"^billing\s+orders\s+\d+\s+(\d+)\s+(\d+)\s+0 ", described, re.MULTILINE)
    assert sum(int(end) for _, end in lags) == 12, described
    assert tool("alice", GROUPS, "--list").split() == ["billing"]
    back = ("--reset-offsets", "--group", "billing", "--topic", "orders", "--to-earliest")
    assert "billing" in tool("alice", GROUPS, *back, "--execute")
    assert "Processed a total of 12 messages" in tool.read("alice", "orders", "billing", 12)


def test_alice_sees_what_is_hers(tool: Tools) -> None:
    assert tool("alice", TOPICS, "--list").split() == ["orders"]
    assert "orders:0:" in tool("alice", OFFSETS, "--topic", "orders")
    unseen = tool("alice", TOPICS, "--describe", "--topic", "payments", exits_with=1)
    never = tool("alice", TOPICS, "--describe", "--topic", "nothing", exits_with=1)
    # In which way a topic is not hers nobody tells her.
    assert named(unseen) == named(never).replace("nothing", "payments")


def named(said: str) -> str:
    """The lines that name what went wrong, without times and places in programmes."""
    lines = re.sub(r"^\[.*?\]", "", said, flags=re.MULTILINE).splitlines()
    return "\n".join(line for line in lines if not line.startswith(("\tat ", "\t...")))


def test_alice_is_refused_what_is_not_hers_with_kafkas_codes(tool: Tools) -> None:
    topic, group, cluster = (f"{each}AuthorizationException" for each in ("Topic", "Group", "Cluster"))  # fmt: skip
    assert topic in tool.write("alice", "payments", "three")
    assert topic in tool.read("alice", "payments", "billing", 1)
    assert group in tool.read("alice", "orders", "shipping", 1)
    assert group in tool("alice", GROUPS, "--describe", "--group", "shipping")
    new = ("--partitions", "1", "--replication-factor", "1")
    refused = {
        (TOPICS, "--create", "--topic", "mine", *new): topic,
        (TOPICS, "--delete", "--topic", "orders"): topic,
        (TOPICS, "--alter", "--topic", "orders", "--partitions", "9"): topic,
        (CONFIGS, "--describe", "--entity-type", "topics", "--entity-name", "orders"): topic,
        (CONFIGS, "--alter", "--entity-type", "topics", "--entity-name", "orders",
         "--add-config", "retention.ms=1"): topic,
        (CONFIGS, "--describe", "--entity-type", "brokers", "--entity-name", "1"): cluster,
        (CONFIGS, "--alter", "--entity-type", "users", "--entity-name", "alice",
         "--add-config", "SCRAM-SHA-512=[password=x]"): cluster,
        (ACLS, "--list"): cluster,
        (ACLS, "--add", "--allow-principal", "User:alice", "--operation", "All",
         "--cluster"): cluster,
    }  # fmt: skip
    for words, why in refused.items():
        main_class, *rest = words
        said = tool("alice", main_class, *rest, exits_with=1)
        assert why in said, f"{words}: {said}"


def test_a_wrong_password_and_a_wrong_ca_have_kafkas_names(tool: Tools, tmp_path: Path) -> None:
    text = tool.cluster.file("java.properties", "alice").read_text()
    password = tool.cluster.file("password", "alice").read_text().strip()
    wrong = tmp_path / "password.properties"
    wrong.write_text(text.replace(password, "guessed"))
    refused = run_tool(TOPICS, *tool.words(wrong), "--list", exits_with=1)
    assert "SaslAuthenticationException: Authentication failed during authentication" in refused
    assert "guessed" not in refused
    stranger = tool.cluster.directory / "secrets" / "clients-ca.crt"
    other = tmp_path / "ca.properties"
    other.write_text(text.replace(str(tool.cluster.file("ca.crt", "alice")), str(stranger)))
    assert "SslAuthenticationException" in run_tool(TOPICS, *tool.words(other), "--list", exits_with=1)  # fmt: skip
