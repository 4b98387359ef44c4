"""Roles become ACLs, and a decision is told with its rule."""

from __future__ import annotations

import pytest

from ottla.security.acls import Acl
from ottla.security.authorizer import Authorizer
from ottla.security.operations import (
    CLUSTER_NAME,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from ottla.security.principals import user
from ottla.security.roles import (
    AclRole,
    acl_text,
    denied_in_vain,
    entry,
    explained,
    principal_named,
    suggestion,
)
from ottla.wire.internal_topics import AUDIT_TOPIC, GROUP_METADATA_TOPIC

READ, WRITE, ALTER = AclOperation.READ, AclOperation.WRITE, AclOperation.ALTER
CREATE, DELETE = AclOperation.CREATE, AclOperation.DELETE
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
ALLOW, DENY = Permission.ALLOW, Permission.DENY


def answer(acls: list[Acl], who: str, operation: AclOperation, name: str) -> str:
    authorizer = Authorizer(["User:root"])
    authorizer.replace_all(acls)
    found = explained(authorizer, user(who), "10.0.0.7", operation, TOPIC, name)
    return f"{'yes' if found.allowed else 'no'}: {found.because}"


def test_a_role_allows_what_a_client_of_that_kind_asks_for() -> None:
    acls = AclRole(produce=["orders"], consume=["in-*"], groups=["g"]).acls(user("alice"))
    assert [acl_text(acl) for acl in acls] == [
        "User:alice allow WRITE topic orders (literal)",
        "User:alice allow DESCRIBE topic orders (literal)",
        "User:alice allow CREATE topic orders (literal)",
        "User:alice allow READ topic in- (prefixed)",
        "User:alice allow DESCRIBE topic in- (prefixed)",
        "User:alice allow READ group g (literal)",
    ]


def test_what_two_roles_have_in_common_is_there_once() -> None:
    acls = AclRole(produce=["t"], consume=["t"]).acls(user("alice"))
    assert len(acls) == len(set(acls)) == 4


def test_an_admin_may_do_everything_and_an_observer_sees_everything() -> None:
    admin, observer = Authorizer(), Authorizer()
    admin.replace_all(AclRole(admin=True).acls(user("x")))
    observer.replace_all(AclRole(observe=True).acls(user("x")))
    for kind, name in ((TOPIC, "t"), (GROUP, "g"), (CLUSTER, "kafka-cluster")):
        for operation in AclOperation:
            if operation > AclOperation.ALL:
                assert admin.decide(user("x"), "h", operation, kind, name).allowed
        assert observer.decide(user("x"), "h", AclOperation.DESCRIBE, kind, name).allowed
        assert not observer.decide(user("x"), "h", READ, kind, name).allowed


def test_a_star_alone_is_everything_and_at_the_end_a_prefix() -> None:
    assert entry(user("a"), ALLOW, READ, TOPIC, "*").pattern_type is PatternType.LITERAL
    prefixed = entry(user("a"), ALLOW, READ, TOPIC, "or*")
    assert (prefixed.pattern_type, prefixed.resource_name) == (PatternType.PREFIXED, "or")


def test_answers_name_the_rule() -> None:
    acls = [
        *AclRole(produce=["orders"]).acls(user("alice")),
        entry(user("*"), ALLOW, AclOperation.ALL, TOPIC, "*"),
        entry(user("carol"), DENY, WRITE, TOPIC, "pay*"),
        entry(user("dan"), DENY, WRITE, GROUP, "g"),
    ]
    everyone = acls[3]
    assert (
        answer(acls, "carol", WRITE, "payments") == "no: denied by  User:carol deny WRITE topic pay (prefixed),"
        " though allowed by  User:* allow ALL topic * (literal); deny wins"
    )  # fmt: skip
    assert answer(acls, "root", WRITE, "x") == "yes: User:root is a super user (super.users)"
    acls.remove(everyone)
    assert answer(acls, "carol", WRITE, "pay") == (
        "no: denied by  User:carol deny WRITE topic pay (prefixed)"
    )
    assert answer(acls, "alice", WRITE, "orders") == (
        "yes: allowed by  User:alice allow WRITE topic orders (literal)"
    )
    assert answer(acls, "bob", WRITE, "orders") == (
        "no: nothing allows it. Of the 3 ACLs on topic orders none is for User:bob or User:*."
    )
    assert answer(acls, "alice", READ, "orders").startswith(
        "no: nothing allows it. User:alice has other rights on topic orders: User:alice allow"
    )
    assert answer(acls, "bob", READ, "x") == "no: nothing allows it. There is no ACL on topic x."


@pytest.mark.parametrize("operation", [WRITE, DELETE, ALTER, AclOperation.ALTER_CONFIGS, CREATE])
@pytest.mark.parametrize("name", [AUDIT_TOPIC, GROUP_METADATA_TOPIC])
def test_the_answer_about_a_topic_of_the_cluster_is_what_brokers_do(
    operation: AclOperation, name: str
) -> None:
    of_topics = [entry(user("dave"), ALLOW, AclOperation.ALL, TOPIC, "*")]
    needs_more = operation is WRITE or name == AUDIT_TOPIC
    told = answer(of_topics, "dave", operation, name)
    assert told.startswith(f"no: {name} is the cluster's own and needs" if needs_more else "yes: ")
    assert "ALTER on the cluster, too" in told or not needs_more
    both = [*of_topics, entry(user("dave"), ALLOW, ALTER, CLUSTER, CLUSTER_NAME)]
    assert answer(both, "dave", operation, name).startswith("yes: ")
    assert answer(both, "root", operation, name).startswith("yes: ")


@pytest.mark.parametrize("operation", [CREATE, DELETE])
def test_a_right_to_make_or_delete_all_topics_is_a_right_to_one(operation: AclOperation) -> None:
    acls = [entry(user("dave"), ALLOW, operation, CLUSTER, CLUSTER_NAME)]
    assert answer(acls, "dave", operation, "orders").startswith("yes: allowed by  User:dave allow")
    assert answer(acls, "dave", operation, AUDIT_TOPIC).startswith("no: ")
    assert answer(acls, "dave", WRITE, "orders").startswith("no: nothing allows it")


@pytest.mark.parametrize(
    ("operation", "kind", "name", "options"),
    [
        (WRITE, TOPIC, "t", "--produce t"),
        (READ, TOPIC, "t", "--consume t"),
        (READ, GROUP, "g", "--group g"),
        (ALTER, CLUSTER, "kafka-cluster", "--allow alter --cluster"),
        (AclOperation.DELETE, TOPIC, "t", "--allow delete --topic t"),
    ],
)
def test_what_would_allow_it(
    operation: AclOperation, kind: ResourceType, name: str, options: str
) -> None:
    assert suggestion(operation, kind, name) == options


def test_a_name_is_a_user_unless_it_has_a_type() -> None:
    assert str(principal_named("alice")) == "User:alice"
    assert str(principal_named("Group:ops")) == "Group:ops"
    with pytest.raises(ValueError, match="is not TYPE:NAME"):
        principal_named("User:")


def test_a_deny_that_leaves_nothing_of_an_allow_is_found() -> None:
    allow = entry(user("a"), ALLOW, READ, TOPIC, "orders-eu")
    for deny in (
        entry(user("a"), DENY, READ, TOPIC, "orders*"),
        entry(user("*"), DENY, AclOperation.ALL, TOPIC, "*"),
        entry(user("a"), DENY, READ, TOPIC, "orders-eu"),
    ):
        assert denied_in_vain([allow, deny]) == [(deny, allow)]
    for other in (
        entry(user("b"), DENY, READ, TOPIC, "orders*"),
        entry(user("a"), DENY, WRITE, TOPIC, "orders*"),
        entry(user("a"), DENY, READ, TOPIC, "orders-eu", "10.0.0.7"),
        entry(user("a"), DENY, READ, GROUP, "*"),
        entry(user("a"), DENY, READ, TOPIC, "orders-eu-1"),
    ):
        assert denied_in_vain([allow, other]) == []
