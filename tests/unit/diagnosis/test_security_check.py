"""What `ottla security check` finds, one rule after the other."""

from __future__ import annotations

import pytest

from ottla.diagnosis.audit_lines import AuditTail, audit_entry
from ottla.diagnosis.security_check import (
    CertificateFacts,
    Danger,
    OpenFile,
    SecurityFacts,
    Succession,
    security_findings,
)
from ottla.security.operations import CLUSTER_NAME, AclOperation, Permission, ResourceType
from ottla.security.principals import user
from ottla.security.roles import entry

GOOD = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:CN=node-1",
    "allow.everyone.if.no.acl.found": "false",
    "listeners": "CLIENTS://127.0.0.1:1,INTERNAL://127.0.0.1:2,CONTROLLER://127.0.0.1:3",
    "listener.security.protocol.map": "CLIENTS:SASL_SSL,INTERNAL:SSL,CONTROLLER:SSL",
    "inter.broker.listener.name": "INTERNAL",
    "controller.listener.names": "CONTROLLER",
    "listener.name.internal.ssl.client.auth": "required",
    "listener.name.controller.ssl.client.auth": "required",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
}
NODE = CertificateFacts(
    "node.pem", "node 1", 25, 30, "EC", 256, frozenset(("127.0.0.1",)), frozenset(("127.0.0.1",))
)


def found(facts: SecurityFacts) -> list[tuple[str, str]]:
    return [(each.danger.value, each.what) for each in security_findings(facts)]


def test_nothing_is_found_where_all_is_well() -> None:
    facts = SecurityFacts(brokers={1: GOOD, 2: GOOD}, users=[("admin", 16384)], certificates=[NODE])
    assert found(facts) == []


def test_an_open_cluster_is_not_told_to_lock_its_own_nodes_out() -> None:
    facts = SecurityFacts(brokers={1: GOOD | {"authorizer.class.name": ""}})
    (finding,) = security_findings(facts)
    assert finding.mend.startswith("ottla up --secure") and "docs/SECURITY.md" in finding.mend


def test_a_listener_without_tls_is_shown_with_its_protocol_not_its_name() -> None:
    listener = {"listeners": "CONTROLLER://10.0.0.1:9", "listener.security.protocol.map": ""}
    facts = SecurityFacts(brokers={1: GOOD | listener})
    assert any("CONTROLLER://10.0.0.1:9 has no TLS (PLAINTEXT)" in what for _, what in found(facts))


def test_between_two_cas_the_next_step_is_named() -> None:
    again = "ottla security rotate nodes --ca"
    for signs, step in ((False, "step 1 of 3"), (True, "step 2 of 3")):
        facts = SecurityFacts(successions=[Succession("nodes", signs, "/d/trust.crt", again)])
        (finding,) = security_findings(facts)
        assert "two CAs of the nodes are trusted" in finding.what and step in finding.what
        assert finding.mend == f"when all clients run with /d/trust.crt, {again}"


@pytest.mark.parametrize(
    ("changed", "danger", "words"),
    [
        ({"authorizer.class.name": ""}, "red", "there is no authorizer"),
        ({"super.users": "User:ANONYMOUS"}, "red", "User:ANONYMOUS is a super user"),
        ({"super.users": "User:*"}, "red", "User:* is a super user"),
        ({"allow.everyone.if.no.acl.found": "true"}, "red", "open to everybody"),
        (
            {"listeners": "PLAINTEXT://0.0.0.0:1"},
            "red",
            "listener PLAINTEXT://0.0.0.0:1 has no TLS (PLAINTEXT): the network",
        ),
        ({"listeners": "PLAINTEXT://localhost:1"}, "yellow", "every user of this machine"),
        (
            {"listener.name.internal.ssl.client.auth": "none"},
            "red",
            "listener INTERNAL is for nodes, and asks nobody",
        ),
        (
            {
                "listeners": "CLIENTS://127.0.0.1:1",
                "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT",
                "sasl.enabled.mechanisms": "PLAIN",
            },
            "red",
            "takes passwords by PLAIN without TLS",
        ),
        (
            {"sasl.enabled.mechanisms": "OAUTHBEARER", "ottla.allow.unsecured.jwt": "true"},
            "red",
            "believes tokens that nobody has signed",
        ),
        (
            {
                "listener.name.clients.sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
                "listener.name.clients.oauthbearer.sasl.oauthbearer.allow.unverified.audience": "true",
            },
            "yellow",
            "takes tokens of any audience",
        ),
        (
            {"ssl.endpoint.identification.algorithm": ""},
            "yellow",
            "do not compare certificates with addresses",
        ),
    ],
)
def test_settings_that_leave_something_open(
    changed: dict[str, str], danger: str, words: str
) -> None:
    told = found(SecurityFacts(brokers={1: GOOD | changed}, users=[("admin", 16384)]))
    assert any(each == danger and words in what for each, what in told), told


def test_brokers_that_disagree() -> None:
    told = found(SecurityFacts(brokers={1: GOOD, 2: GOOD | {"super.users": "User:admin"}}))
    assert told == [
        (
            "red",
            "brokers disagree about super.users (1: User:admin;User:CN=node-1; 2: User:admin)",
        )
    ]


@pytest.mark.parametrize(
    ("changed", "danger", "words"),
    [
        ({"days_left": -1}, "red", "has expired"),
        ({"days_left": 9}, "yellow", "expires in 9 days"),
        ({"days_left": 0.5}, "yellow", "expires in 12 hours"),
        ({"bits": 192}, "red", "is short (EC, 192 bits)"),
        ({"key": "RSA", "bits": 1024}, "red", "is short (RSA, 1024 bits)"),
        ({"names": frozenset()}, "red", "does not name 127.0.0.1"),
    ],
)
def test_certificates(changed: dict[str, object], danger: str, words: str) -> None:
    ((said, what),) = found(SecurityFacts(certificates=[NODE._replace(**changed)]))  # type: ignore[arg-type]
    assert said == danger and words in what


def test_files_that_others_may_read() -> None:
    (finding,) = security_findings(SecurityFacts(open_files=[OpenFile("/d/key", 0o644)]))
    assert finding.danger is Danger.red
    assert (finding.what, finding.mend) == (
        "/d/key holds secrets, and others may read it (mode 644)",
        "chmod 600 /d/key",
    )


def test_users_and_acls_that_nobody_uses() -> None:
    acls = [
        entry(user(name), Permission.ALLOW, AclOperation.READ, ResourceType.TOPIC, "t")
        for name in ("gone", "CN=node-1")
    ]
    told = found(
        SecurityFacts(brokers={1: GOOD}, users=[("admin", 16384), ("idle", 16384)], acls=acls)
    )
    assert told == [
        ("yellow", "User:idle has no ACLs: it may log in, and do nothing of its own"),
        (
            "yellow",
            "User:gone has ACLs, but no password: nobody uses them, unless by a certificate of that name",
        ),
    ]


@pytest.mark.parametrize(
    ("acl", "danger", "words"),
    [
        (
            entry(user("a"), Permission.ALLOW, AclOperation.WRITE, ResourceType.GROUP, "g"),
            "yellow",
            "no request asks for it",
        ),
        (
            entry(user("a"), Permission.ALLOW, AclOperation.READ, ResourceType.TOPIC, "t", "10.0.0.0/8"),
            "yellow",
            "it never applies",
        ),
        (
            entry(user("ANONYMOUS"), Permission.ALLOW, AclOperation.READ, ResourceType.TOPIC, "t"),
            "yellow",
            "who does not log in",
        ),
        (
            entry(user("*"), Permission.ALLOW, AclOperation.ALL, ResourceType.TOPIC, "*"),
            "red",
            "everybody may",
        ),
    ],
)  # fmt: skip
def test_acls_that_are_useless_or_too_much(acl: object, danger: str, words: str) -> None:
    told = found(SecurityFacts(acls=[acl]))  # type: ignore[list-item]
    assert [(each, words in what) for each, what in told] == [(danger, True)]


CLUSTER, TOPIC, USER = ResourceType.CLUSTER, ResourceType.TOPIC, ResourceType.USER


@pytest.mark.parametrize("who", ["*", "ANONYMOUS"])
@pytest.mark.parametrize(
    ("operation", "kind", "name"),
    [
        (AclOperation.ALL, CLUSTER, CLUSTER_NAME),
        (AclOperation.ALTER, CLUSTER, CLUSTER_NAME),
        (AclOperation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME),
        (AclOperation.ALTER_CONFIGS, CLUSTER, CLUSTER_NAME),
        (AclOperation.DELETE, CLUSTER, CLUSTER_NAME),
        (AclOperation.ALTER_CONFIGS, TOPIC, "*"),
        (AclOperation.ALL, TOPIC, "a*"),
        (AclOperation.WRITE, TOPIC, "__*"),
        (AclOperation.DELETE, TOPIC, "__consumer_offsets"),
        (AclOperation.CREATE_TOKENS, USER, "*"),
    ],
)
def test_what_gives_the_cluster_to_everybody_is_red(
    who: str, operation: AclOperation, kind: ResourceType, name: str
) -> None:
    given = SecurityFacts(acls=[entry(user(who), Permission.ALLOW, operation, kind, name)])
    assert [danger for danger, _ in found(given)] == ["red"]
    taken = SecurityFacts(acls=[entry(user(who), Permission.DENY, operation, kind, name)])
    assert found(taken) == []


@pytest.mark.parametrize(
    ("operation", "kind", "name"),
    [
        (AclOperation.DESCRIBE, CLUSTER, CLUSTER_NAME),
        (AclOperation.IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME),
        (AclOperation.WRITE, TOPIC, "public-*"),
        (AclOperation.READ, TOPIC, "*"),
    ],
)
def test_what_everybody_may_have_is_not_told(
    operation: AclOperation, kind: ResourceType, name: str
) -> None:
    given = entry(user("*"), Permission.ALLOW, operation, kind, name)
    assert found(SecurityFacts(acls=[given])) == []


def test_who_is_taken_for_a_node_is_told_unless_it_is_one() -> None:
    action = AclOperation.CLUSTER_ACTION

    def told(who: str) -> list[tuple[str, str]]:
        given = entry(user(who), Permission.ALLOW, action, CLUSTER, CLUSTER_NAME)
        return found(SecurityFacts(brokers={1: GOOD, 7: GOOD}, acls=[given]))

    ((danger, what),) = told("alice")
    assert danger == "yellow" and "taken for a node" in what
    assert told("admin") == told("CN=node-7") == []


LINE = (
    "Principal = User:bob is Denied operation = WRITE from host = 10.0.0.7 on resource = Topic:LITERAL:orders"
    " for request = Produce with resourceRefCount = 1 based on rule DefaultDeny"
)


def test_a_decision_is_read_from_both_kinds_of_logs() -> None:
    text = audit_entry(f"2026-11-16 17:31:41.465 INFO {LINE}")
    assert text is not None
    assert text == ("2026-11-16 17:31:41.465", "User:bob", False, LINE)
    told = audit_entry(f'{{"at": "2026-11-16T17:31:41.465Z", "level": "INFO", "text": "{LINE}"}}')
    assert told is not None and (told.principal, told.allowed) == ("User:bob", False)
    for other in ("", "{", '{"text": 1}', "2026-11-16 17:31:41.465 INFO node is ready node=1"):
        assert audit_entry(other) is None


def test_a_log_is_followed_also_through_its_rotation(tmp_path: object) -> None:
    from pathlib import Path

    file = Path(str(tmp_path)) / "node.log"
    tail = AuditTail(file)
    assert tail.read() == []
    whole = f"2026-11-16 17:31:41.465 INFO {LINE}\n"
    file.write_text(whole + whole[:50])
    assert len(tail.read()) == 1
    with file.open("a") as more:
        more.write(whole[50:])
    assert len(tail.read()) == 1
    file.rename(file.with_suffix(".1"))
    file.write_text(whole)
    assert len(tail.read()) == 1
