"""`ottla users` and `ottla acls` on a cluster with an authorizer; clients without a login are its administrators."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.cli import errors
from support.cluster import OTTLA, ProcessCluster

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:root",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path_factory.mktemp("cli-acls"), 1, SETTINGS) as running:
        yield running


def ottla(cluster: ProcessCluster, *words: str, said: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(OTTLA), *words, "--bootstrap", cluster.bootstrap],
        input=said,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def told(cluster: ProcessCluster, *words: str, said: str = "") -> str:
    done = ottla(cluster, *words, said=said)
    assert done.returncode == errors.OK, done.stderr
    return done.stdout


def listed(cluster: ProcessCluster, *words: str) -> Any:
    return json.loads(told(cluster, *words, "--format", "json"))


def test_roles_become_acls_and_go_again(cluster: ProcessCluster) -> None:
    words = ("alice", "--produce", "orders", "--consume", "orders", "--group", "billing")
    shown = told(cluster, "acls", "add", *words)
    assert shown.splitlines() == [
        "+ User:alice  allow  READ  group billing (literal)",
        "+ User:alice  allow  WRITE,DESCRIBE,CREATE,READ  topic orders (literal)",
    ]
    assert told(cluster, "acls", "add", *words) == "nothing changes\n"
    assert len(listed(cluster, "acls", "list", "alice")) == 5
    assert listed(cluster, "acls", "list", "bob") == []
    would = told(cluster, "acls", "remove", "alice", "--group", "billing", "--dry-run")
    assert would.splitlines()[-1] == "would add 0 and remove 1 ACL; nothing was changed"
    assert len(listed(cluster, "acls", "list", "alice")) == 5
    told(cluster, "acls", "remove", "alice", "--group", "billing")
    assert len(listed(cluster, "acls", "list", "alice")) == 4
    told(cluster, "acls", "remove", "alice", "--all")
    assert listed(cluster, "acls", "list", "alice") == []


def test_an_answer_names_the_rule_that_decided(cluster: ProcessCluster) -> None:
    told(cluster, "acls", "add", "ann", "--produce", "invoices")
    told(cluster, "acls", "add", "*", "--allow", "all", "--topic", "*")
    told(cluster, "acls", "add", "carol", "--deny", "write", "--topic", "payments.*")
    yes = told(cluster, "acls", "test", "ann", "write", "invoices")
    assert yes == "yes: allowed by  User:ann allow WRITE topic invoices (literal)\n"
    no = ottla(cluster, "acls", "test", "carol", "write", "payments.eu")
    assert (no.returncode, no.stdout) == (
        errors.FAILED,
        "no: denied by  User:carol deny WRITE topic payments. (prefixed), though allowed by"
        "  User:* allow ALL topic * (literal); deny wins\n",
    )
    told(cluster, "acls", "remove", "*", "--all")
    no = ottla(cluster, "acls", "test", "bob", "write", "invoices")
    assert no.stdout.splitlines() == [
        "no: nothing allows it. Of the 3 ACLs on topic invoices none is for User:bob or User:*.",
        "    ottla acls add bob --produce invoices   would.",
    ]
    root = told(cluster, "acls", "test", "root", "alter", "--type", "cluster")
    assert root == "yes: User:root is a super user (super.users)\n"


def test_all_that_somebody_may_do(cluster: ProcessCluster) -> None:
    told(cluster, "acls", "add", "dora", "--consume", "shop-*", "--group", "dora")
    told(cluster, "acls", "add", "dora", "--deny", "read", "--topic", "shop-secret")
    assert told(cluster, "acls", "test", "dora", "--can").splitlines() == [
        "- User:dora deny READ topic shop-secret (literal)",
        "  User:dora allow READ topic shop- (prefixed)",
        "  User:dora allow DESCRIBE topic shop- (prefixed)",
        "  User:dora allow READ group dora (literal)",
    ]
    assert told(cluster, "acls", "test", "nobody", "--can").startswith("nothing: ")
    assert told(cluster, "acls", "test", "root", "--can").startswith("everything: ")


def test_a_file_says_what_the_acls_of_its_users_are(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    told(cluster, "acls", "add", "erin", "--produce", "old")
    told(cluster, "acls", "add", "untouched", "--produce", "old")
    file = tmp_path / "acls.toml"
    file.write_text('[erin]\nconsume = ["new"]\ngroup = ["g"]\n\n[frank]\nobserve = true\n')
    plan = told(cluster, "acls", "apply", str(file), "--dry-run")
    assert listed(cluster, "acls", "list", "frank") == []
    done = told(cluster, "acls", "apply", str(file))
    assert plan.splitlines()[:-1] == done.splitlines()
    assert "- User:erin  allow  WRITE,CREATE,DESCRIBE  topic old (literal)" in done
    assert told(cluster, "acls", "apply", str(file)) == "nothing changes\n"
    assert len(listed(cluster, "acls", "list", "untouched")) == 3
    file.write_text("[erin]\nconsume = 'new'\n")
    refused = ottla(cluster, "acls", "apply", str(file))
    assert refused.returncode == errors.USAGE and "lists of names" in refused.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("add", "x", "--produce", "t", "--from", "10.0.0.0/8"), "no address"),
        (("add", "x"), "which rights?"),
        (("add", "x", "--allow", "fly", "--topic", "t"), "'fly' is none of all, read, write"),
        (("add", "x", "--allow", "read"), "on what?"),
        (("add", "x", "--topic", "t"), "--topic and --cluster go with --allow or --deny"),
        (("add", ":x", "--produce", "t"), "is not TYPE:NAME"),
        (("test", "x", "read"), "NAME is missing"),
        (("test", "x"), "give OPERATION and NAME, or --can"),
    ],
)
def test_wrong_use_is_explained(cluster: ProcessCluster, words: tuple[str, ...], why: str) -> None:
    done = ottla(cluster, "acls", *words)
    assert done.returncode == errors.USAGE
    assert why in done.stderr


def test_users_come_and_go_with_their_acls(cluster: ProcessCluster, tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("planted-password\n")
    secret.chmod(0o600)
    done = ottla(cluster, "users", "add", "gina", "--password-file", str(secret))
    assert (done.returncode, done.stderr) == (errors.OK, "")
    assert "gina may do nothing yet" in done.stdout and "planted" not in done.stdout
    told(cluster, "users", "add", "root", "--password-file", "-", said="from-standard-input\n")
    told(cluster, "acls", "add", "gina", "--consume", "t")
    rows = {row["user"]: row for row in listed(cluster, "users", "list")}
    assert rows["gina"] == {
        "user": "gina",
        "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"],
        "iterations": 16384,
        "acls": 2,
        "note": "",
    }
    assert rows["root"]["note"] == "super user"
    again = ottla(cluster, "users", "add", "gina", "--show")
    assert again.returncode == errors.CONFLICT and "users rotate gina" in again.stderr
    shown = json.loads(told(cluster, "users", "rotate", "gina", "--show", "--format", "json"))
    assert len(shown["password"]) == 32
    assert told(cluster, "users", "remove", "gina") == "user gina is removed, with 2 ACLs\n"
    assert "gina" not in [row["user"] for row in listed(cluster, "users", "list")]
    missing = ottla(cluster, "users", "remove", "rooot")
    assert missing.returncode == errors.NOT_FOUND and "root" in missing.stderr


def test_a_new_password_that_nobody_would_see_is_refused(cluster: ProcessCluster) -> None:
    done = ottla(cluster, "users", "add", "henry")
    assert done.returncode == errors.USAGE
    assert "--password-file, or --show" in done.stderr


def test_rights_for_a_user_who_does_not_exist_are_given_with_a_warning(
    cluster: ProcessCluster,
) -> None:
    done = ottla(cluster, "acls", "add", "nobody-yet", "--produce", "orders")
    assert done.returncode == errors.OK and "no user nobody-yet has a password" in done.stderr
    told(cluster, "users", "add", "nobody-yet", "--show")
    assert "nobody-yet" not in ottla(cluster, "acls", "add", "nobody-yet", "--produce", "o").stderr
    rotated = told(cluster, "users", "rotate", "nobody-yet", "--show")
    assert "running clients of nobody-yet are cut off at once" in rotated
