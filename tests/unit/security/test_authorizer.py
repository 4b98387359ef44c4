"""The authorizer against a loop over all ACLs, and its rules one by one."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from ottla.security.acls import Acl, normal_host
from ottla.security.authorizer import (
    DEFAULT_ALLOW,
    DEFAULT_DENY,
    SOME_NAME,
    SUPER_USER,
    Authorizer,
)
from ottla.security.operations import (
    CLUSTER_NAME,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from ottla.security.principals import Principal, parse_principal, user
from ottla.security.rights import DENIED_MAX, Rights
from ottla.wire.internal_topics import AUDIT_TOPIC, EVENT_LOG_TOPIC

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
ALICE, HOST = user("alice"), "10.0.0.7"


def acl(
    permission: Permission,
    operation: AclOperation,
    name: str,
    *,
    principal: str = "User:alice",
    host: str = "*",
    pattern: PatternType = PatternType.LITERAL,
    kind: ResourceType = TOPIC,
) -> Acl:
    return Acl(kind, pattern, name, principal, host, operation, permission)


def allow(operation: AclOperation, name: str, **more: object) -> Acl:
    return acl(Permission.ALLOW, operation, name, **more)  # type: ignore[arg-type]


def deny(operation: AclOperation, name: str, **more: object) -> Acl:
    return acl(Permission.DENY, operation, name, **more)  # type: ignore[arg-type]


def authorizer_of(*acls: Acl, **options: object) -> Authorizer:
    made = Authorizer(**options)  # type: ignore[arg-type]
    made.replace_all(acls)
    return made


def may(made: Authorizer, operation: AclOperation, name: str, who: Principal = ALICE) -> bool:
    return made.decide(who, HOST, operation, TOPIC, name).allowed


def test_nothing_is_allowed_unless_an_acl_allows_it() -> None:
    made = authorizer_of(allow(AclOperation.READ, "orders"))
    assert may(made, AclOperation.READ, "orders")
    assert not may(made, AclOperation.WRITE, "orders")
    assert not may(made, AclOperation.READ, "payments")
    assert not may(made, AclOperation.READ, "orders", user("bob"))
    assert made.decide(ALICE, HOST, AclOperation.READ, GROUP, "orders").rule == DEFAULT_DENY


def test_deny_wins_over_every_allow() -> None:
    made = authorizer_of(
        allow(AclOperation.ALL, "*", principal="User:*"),
        allow(AclOperation.WRITE, "payments.eu"),
        deny(AclOperation.WRITE, "payments.", pattern=PatternType.PREFIXED),
    )
    assert not may(made, AclOperation.WRITE, "payments.eu")
    assert may(made, AclOperation.WRITE, "payments")


def test_describe_follows_from_read_but_not_from_a_denied_read() -> None:
    assert may(authorizer_of(allow(AclOperation.READ, "orders")), AclOperation.DESCRIBE, "orders")
    made = authorizer_of(allow(AclOperation.DESCRIBE, "orders"), deny(AclOperation.READ, "orders"))
    assert may(made, AclOperation.DESCRIBE, "orders")
    assert not may(
        authorizer_of(allow(AclOperation.DESCRIBE, "orders")), AclOperation.READ, "orders"
    )


def test_a_star_is_special_only_as_a_whole_literal_name() -> None:
    made = authorizer_of(allow(AclOperation.READ, "*", pattern=PatternType.PREFIXED))
    assert not may(made, AclOperation.READ, "orders")
    assert may(made, AclOperation.READ, "*orders")
    assert may(authorizer_of(allow(AclOperation.READ, "*")), AclOperation.READ, "orders")


def test_super_users_may_do_what_acls_deny() -> None:
    made = authorizer_of(deny(AclOperation.ALL, "*"), super_users=["User:alice"])
    assert made.decide(ALICE, HOST, AclOperation.WRITE, TOPIC, "orders").rule == SUPER_USER


def test_everyone_is_allowed_only_where_nobody_has_an_acl() -> None:
    made = authorizer_of(
        allow(AclOperation.READ, "orders", principal="User:bob"),
        allow_everyone_if_no_acl_found=True,
    )
    assert made.decide(ALICE, HOST, AclOperation.READ, TOPIC, "payments").rule == DEFAULT_ALLOW
    assert not may(made, AclOperation.READ, "orders")


def test_user_star_means_principals_of_every_type() -> None:
    made = authorizer_of(allow(AclOperation.READ, "orders", principal="User:*"))
    assert may(made, AclOperation.READ, "orders", parse_principal("Service:billing"))


def test_hosts_are_compared_as_addresses() -> None:
    made = authorizer_of(allow(AclOperation.READ, "orders", host="0:0:0:0:0:0:0:1"))
    assert made.decide(ALICE, "::1", AclOperation.READ, TOPIC, "orders").allowed
    assert not made.decide(ALICE, "::2", AclOperation.READ, TOPIC, "orders").allowed
    assert normal_host("::ffff:10.0.0.7") == "10.0.0.7"


def test_the_interface_of_a_link_local_address_does_not_count() -> None:
    denied = Acl(TOPIC, PatternType.LITERAL, "orders", "User:alice", "fe80::1", AclOperation.READ, Permission.DENY)  # fmt: skip
    scoped = denied._replace(host="fe80:0:0::1%eth1")
    for each in (denied, scoped):
        made = authorizer_of(allow(AclOperation.READ, "orders"), each)
        for host in ("fe80::1", "fe80::1%eth0"):
            assert not made.decide(ALICE, host, AclOperation.READ, TOPIC, "orders").allowed
        assert made.decide(ALICE, "fe80::2%eth0", AclOperation.READ, TOPIC, "orders").allowed


def test_a_right_that_is_taken_away_is_gone_at_once() -> None:
    entry = allow(AclOperation.READ, "orders")
    made = authorizer_of(entry)
    rights = Rights(made, ALICE, HOST)
    assert rights.may(AclOperation.READ, TOPIC, "orders")
    made.change([entry], [])
    assert not rights.may(AclOperation.READ, TOPIC, "orders")


def test_authorized_operations_are_kafkas_bits() -> None:
    made = authorizer_of(super_users=["User:alice"])
    rights = Rights(made, ALICE, HOST)
    assert rights.authorized_operations(TOPIC, "orders") == 0x0DF8
    assert rights.authorized_operations(GROUP, "billing") == 0x0D48
    assert rights.authorized_operations(ResourceType.CLUSTER, "kafka-cluster") == 0x1FA0


NAMES = st.sampled_from(["*", "a", "ab", "abc", "b", "ba", "a.b", ""])
OPERATIONS = st.sampled_from([o for o in AclOperation if o >= AclOperation.ALL])
TYPES = st.sampled_from([TOPIC, GROUP])
ACLS = st.builds(
    Acl,
    TYPES,
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED, PatternType(77)]),
    NAMES,
    st.sampled_from(["User:alice", "User:bob", "User:*"]),
    st.sampled_from(["*", HOST, "10.0.0.8"]),
    OPERATIONS | st.just(AclOperation(99)),
    st.sampled_from([Permission.ALLOW, Permission.DENY, Permission(9)]),
)
"""Some have words that only a newer version knows."""


def is_known(acl: Acl) -> bool:
    return PatternType.UNKNOWN is not acl.pattern_type and acl.permission is not Permission.UNKNOWN


def by_loop(acls: list[Acl], operation: AclOperation, kind: ResourceType, name: str) -> str:
    found = [each for each in acls if each.resource_type is kind and each.covers(name)]
    mine = [
        each
        for each in found
        if each.principal in ("User:alice", "User:*") and each.is_about(HOST, operation)
    ]
    if any(each.permission is Permission.DENY for each in mine):
        return "denied"
    if any(map(is_known, mine)):
        return "allowed"
    return "denied" if found else "default"


@given(st.lists(ACLS), OPERATIONS, TYPES, NAMES)
@example([Acl(TOPIC, PatternType(77), "a", "User:alice", "*", AclOperation.ALL, Permission.ALLOW)], AclOperation.READ, TOPIC, "a")  # fmt: skip
@example([Acl(TOPIC, PatternType.LITERAL, "a", "User:alice", "*", AclOperation.ALL, Permission(9))], AclOperation.READ, TOPIC, "a")  # fmt: skip
@example([Acl(TOPIC, PatternType.LITERAL, "a", "User:alice", "*", AclOperation(99), Permission.ALLOW)], AclOperation.READ, TOPIC, "a")  # fmt: skip
def test_acls_with_unknown_words_allow_nothing(
    acls: list[Acl], operation: AclOperation, kind: ResourceType, name: str
) -> None:
    """Not even by being the reason why nobody else has an ACL."""
    unknown = [each for each in acls if not is_known(each) or not each.operation]
    made = Authorizer(allow_everyone_if_no_acl_found=True)
    made.replace_all(unknown)
    allowed = made.decide(ALICE, HOST, operation, kind, name)
    assert allowed.rule == DEFAULT_ALLOW or not allowed.allowed
    if any(each.resource_type is kind and each.covers(name) for each in unknown):
        assert not allowed.allowed


@given(st.lists(ACLS), st.lists(ACLS), OPERATIONS, TYPES, NAMES)
def test_the_index_decides_as_a_loop_over_all_acls(
    kept: list[Acl], removed: list[Acl], operation: AclOperation, kind: ResourceType, name: str
) -> None:
    made = Authorizer(allow_everyone_if_no_acl_found=True)
    made.replace_all([*kept, *removed])
    made.change(removed, [])
    left = [each for each in kept if each not in removed]
    verdict = made.decide(ALICE, HOST, operation, kind, name)
    expected = by_loop(left, operation, kind, name)
    assert verdict.allowed == (expected in ("allowed", "default"))
    assert (verdict.rule == DEFAULT_ALLOW) == (expected == "default")
    assert set(made.acls) == set(left)


def by_type_as_kafka_says_it(
    acls: list[Acl], operation: AclOperation, kind: ResourceType, is_default_allow: bool
) -> bool:
    by_loop_over = by_loop(acls, operation, kind, SOME_NAME)
    if by_loop_over == "allowed" or (by_loop_over == "default" and is_default_allow):
        return True
    mine = [
        each
        for each in acls
        if each.resource_type is kind
        and each.host in ("*", HOST)
        and each.principal in ("User:alice", "User:*")
        and each.operation in (operation, AclOperation.ALL)
    ]
    literal, prefixed = PatternType.LITERAL, PatternType.PREFIXED
    denied = {
        (a.pattern_type or literal, a.resource_name)
        for a in mine
        if a.permission is Permission.DENY
    }
    granted = {
        (a.pattern_type, a.resource_name)
        for a in mine
        if a.permission is Permission.ALLOW and is_known(a)
    }
    if (literal, "*") in denied:
        return False
    if (literal, "*") in granted:
        return True
    for pattern, name in granted:
        if pattern is literal and (literal, name) in denied:
            continue
        spelled, is_dominated = "", False
        for letter in name:
            spelled += letter
            is_dominated = is_dominated or (prefixed, spelled) in denied
        if not is_dominated:
            return True
    return False


@given(st.lists(ACLS), st.lists(ACLS), OPERATIONS, TYPES, st.booleans())
def test_a_right_to_some_resource_is_found_as_kafka_finds_it(
    kept: list[Acl],
    removed: list[Acl],
    operation: AclOperation,
    kind: ResourceType,
    is_default_allow: bool,
) -> None:
    made = Authorizer(allow_everyone_if_no_acl_found=is_default_allow)
    made.replace_all([*kept, *removed])
    made.change(removed, [])
    left = [each for each in kept if each not in removed]
    expected = by_type_as_kafka_says_it(left, operation, kind, is_default_allow)
    assert made.may_by_type(ALICE, HOST, operation, kind) == expected
    assert Rights(made, ALICE, HOST).may_some(operation, kind) == expected


def test_super_users_may_do_it_with_some_resource_and_nobody_else_before_the_acls_are_read() -> (
    None
):
    made = authorizer_of(allow(AclOperation.WRITE, "orders"), super_users=["User:admin"])
    made.is_loaded = False
    assert made.may_by_type(user("admin"), HOST, AclOperation.WRITE, TOPIC)
    assert not made.may_by_type(ALICE, HOST, AclOperation.WRITE, TOPIC)
    made.loaded()
    assert made.may_by_type(ALICE, HOST, AclOperation.WRITE, TOPIC)


def test_a_connection_remembers_few_denials_and_no_name_that_can_be_nothings() -> None:
    authorizer = Authorizer([])
    authorizer.replace_all([])
    rights = Rights(authorizer, ALICE, "10.0.0.7")
    for number in range(5_000):
        assert not rights.may(AclOperation.READ, ResourceType.TOPIC, f"topic-{number}")
        assert not rights.sees(AclOperation.READ, ResourceType.GROUP, f"{number}" + "x" * 32_000)
    remembered = rights._remembered
    assert len(remembered) == DENIED_MAX
    assert max(len(name) for _, _, name in remembered) < 20
    authorizer.ask_again()
    assert not rights.may(AclOperation.READ, ResourceType.TOPIC, "topic")
    assert list(remembered) == [(AclOperation.READ, ResourceType.TOPIC, "topic")]


def test_who_may_do_all_with_all_topics_cannot_remove_what_is_recorded_about_him() -> None:
    every = allow(AclOperation.ALL, "*")
    rights = Rights(authorizer_of(every), ALICE, HOST)
    for name in (AUDIT_TOPIC, EVENT_LOG_TOPIC):
        assert rights.may(AclOperation.READ, TOPIC, name)
        for change in (AclOperation.DELETE, AclOperation.ALTER, AclOperation.ALTER_CONFIGS):
            assert rights.may(change, TOPIC, "orders")
            assert not rights.may(change, TOPIC, name)
            assert not rights.sees(change, TOPIC, name)
    on_cluster = allow(AclOperation.ALTER, CLUSTER_NAME, kind=ResourceType.CLUSTER)
    operator = Rights(authorizer_of(every, on_cluster), ALICE, HOST)
    assert operator.may(AclOperation.DELETE, TOPIC, AUDIT_TOPIC)
    # And ALTER on the cluster alone is not enough either.
    assert not Rights(authorizer_of(on_cluster), ALICE, HOST).may(
        AclOperation.DELETE, TOPIC, AUDIT_TOPIC
    )
