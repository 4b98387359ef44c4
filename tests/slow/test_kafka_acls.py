"""ACLs beside Apache Kafka: its StandardAuthorizer decides as ours does, and its kafka-acls works with our brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from ottla.config.values import STANDARD_AUTHORIZER
from ottla.security.acls import Acl
from ottla.security.authorizer import Authorizer
from ottla.security.operations import AclOperation, PatternType, Permission, ResourceType
from ottla.security.principals import parse_principal
from support.cluster import ProcessCluster, wait_until
from support.kafka_jars import run_tool

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

JAVA = Path(__file__).parent / "java" / "Decisions.java"
SETS = 200
QUESTIONS = 50
"""Of each set of ACLs, and as many about some resource of a type."""

OPERATIONS = [each for each in AclOperation if each > AclOperation.ALL]
TYPES = [each for each in ResourceType if each > ResourceType.ANY]
NAMES = ["*", "a", "ab", "abc", "abcd", "b", "ba", "a.b", "a_b", "hardcode", "A", "ä"]
PRINCIPALS = ["User:alice", "User:bob", "Service:alice", "User:admin", "User:ali"]
HOSTS = ["10.0.0.7", "10.0.0.8", "0:0:0:0:0:0:0:1"]


def random_acl(random: Random) -> Acl:
    return Acl(
        random.choice(TYPES[:3]),
        random.choice([PatternType.LITERAL, PatternType.PREFIXED]),
        random.choice(NAMES),
        random.choice([*PRINCIPALS, "User:*", "User:*", "Service:*"]),
        random.choice(["*", "*", *HOSTS]),
        random.choice([AclOperation.ALL, AclOperation.ALL, *OPERATIONS]),
        random.choice([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
    )


def test_kafkas_authorizer_decides_the_same_20000_times(tmp_path: Path) -> None:
    random = Random(1)
    lines: list[str] = []
    decided: list[str] = []
    for _ in range(SETS):
        is_open = random.random() < 0.5
        authorizer = Authorizer(["User:admin"], allow_everyone_if_no_acl_found=is_open)
        lines.append(f"authorizer\tUser:admin\t{str(is_open).lower()}")
        acls = {random_acl(random): None for _ in range(random.choice([0, 1, 3, 10, 60]))}
        authorizer.replace_all(acls)
        lines += [
            f"acl\t{a.resource_type.name}\t{a.pattern_type.name}\t{a.resource_name}\t{a.principal}\t{a.host}"
            f"\t{a.operation.name}\t{a.permission.name}"
            for a in acls
        ]
        for _ in range(QUESTIONS):
            who, host = random.choice(PRINCIPALS), random.choice(HOSTS)
            operation, kind = random.choice(OPERATIONS), random.choice(TYPES[:3])
            name = random.choice(NAMES)
            asked = f"{who}\t{host}\t{operation.name}\t{kind.name}"
            principal = parse_principal(who)
            lines += [f"may\t{asked}\t{name}", f"may-some\t{asked}"]
            for allowed in (
                authorizer.decide(principal, host, operation, kind, name).allowed,
                authorizer.may_by_type(principal, host, operation, kind),
            ):
                decided.append("allowed" if allowed else "denied")
    (tmp_path / "questions").write_text("\n".join(lines))
    kafka = run_tool(JAVA, tmp_path / "questions").split()
    questions = [line for line in lines if line.startswith("may")]
    different = [
        f"{question}: here {ours}, in Kafka {theirs}"
        for question, ours, theirs in zip(questions, decided, kafka, strict=True)
        if ours != theirs
    ]
    assert len(decided) == 2 * SETS * QUESTIONS
    assert not different, different[:10]
    assert min(decided.count("allowed"), decided.count("denied")) > 1000, "one-sided questions"


Acls = Callable[..., str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with ProcessCluster(tmp_path_factory.mktemp("kafka-acls"), 3, settings) as running:
        yield running


@pytest.mark.parametrize("listener", ["broker", "controller"])
def test_kafka_acls_adds_lists_and_removes(cluster: ProcessCluster, listener: str) -> None:
    node = cluster.nodes[1]
    where = ("--bootstrap-server", cluster.bootstrap)
    if listener == "controller":
        where = ("--bootstrap-controller", f"127.0.0.1:{node.controller_port}")

    def acls(*words: str, exits_with: int = 0) -> str:
        main_class = "org.apache.kafka.tools.AclCommand"
        return run_tool(main_class, *where, *words, exits_with=exits_with)

    def lists(*texts: str) -> bool:
        listed = acls("--list")
        return all(text in listed for text in texts)

    new = ("--allow-principal", "User:alice", "--producer", "--topic", "orders")
    assert "Adding ACLs for resource" in acls("--add", *new)
    denied = ("--deny-principal", "User:eve", "--deny-host", "10.0.0.7", "--operation", "All")
    acls("--add", *denied, "--group", "billing.", "--resource-pattern-type", "prefixed")
    acls("--add", "--allow-principal", "User:ann", "--operation", "ClusterAction", "--cluster")
    wait_until(
        lambda: lists(
            "ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)",
            "(principal=User:alice, host=*, operation=WRITE, permissionType=ALLOW)",
            "ResourcePattern(resourceType=GROUP, name=billing., patternType=PREFIXED)",
            "(principal=User:eve, host=10.0.0.7, operation=ALL, permissionType=DENY)",
            "(principal=User:ann, host=*, operation=CLUSTER_ACTION, permissionType=ALLOW)",
        ),
        30,
        "the node that answers has the ACLs",
    )
    match = acls("--list", "--group", "billing.eu", "--resource-pattern-type", "match")
    assert "User:eve" in match and "User:alice" not in match
    network = ("--allow-principal", "User:a", "--allow-host", "10.0.0.0/8", "--operation", "Read")
    refused = acls("--add", *network, "--topic", "orders", exits_with=1)
    assert "InvalidRequestException" in refused and "10.0.0.0/8" in refused
    acls("--remove", "--force", *new)
    acls("--remove", "--force", "--group", "billing.", "--resource-pattern-type", "prefixed")
    acls("--remove", "--force", "--cluster")
    wait_until(lambda: "principal=" not in acls("--list"), 30, "the node has no ACLs")
