"""Filters of ACLs against a transcription of Kafka's ResourcePatternFilter and AccessControlEntryFilter."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.security.acls import Acl, AclFilter
from ottla.security.operations import AclOperation, PatternType, Permission, ResourceType

NAMES = st.sampled_from(["*", "a", "ab", "abc", "b"])
PRINCIPALS = st.sampled_from(["User:alice", "User:*"])
HOSTS = st.sampled_from(["*", "10.0.0.7"])
ACLS = st.builds(
    Acl,
    st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    NAMES,
    PRINCIPALS,
    HOSTS,
    st.sampled_from([AclOperation.READ, AclOperation.ALL]),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)
FILTERS = st.builds(
    AclFilter,
    st.sampled_from([ResourceType.ANY, ResourceType.TOPIC, ResourceType.GROUP]),
    st.sampled_from([pattern for pattern in PatternType if pattern]),
    st.none() | NAMES,
    st.none() | PRINCIPALS,
    st.none() | HOSTS,
    st.sampled_from([AclOperation.ANY, AclOperation.READ, AclOperation.ALL]),
    st.sampled_from([Permission.ANY, Permission.ALLOW, Permission.DENY]),
)


def takes_pattern_as_kafka_says_it(asked: AclFilter, acl: Acl) -> bool:
    if asked.resource_type is not ResourceType.ANY and asked.resource_type is not acl.resource_type:
        return False
    any_or_match = asked.pattern_type in (PatternType.ANY, PatternType.MATCH)
    if not any_or_match and asked.pattern_type is not acl.pattern_type:
        return False
    if asked.resource_name is None:
        return True
    if asked.pattern_type is PatternType.ANY or asked.pattern_type is acl.pattern_type:
        return asked.resource_name == acl.resource_name
    if acl.pattern_type is PatternType.LITERAL:
        return asked.resource_name == acl.resource_name or acl.resource_name == "*"
    return asked.resource_name.startswith(acl.resource_name)


def takes_entry_as_kafka_says_it(asked: AclFilter, acl: Acl) -> bool:
    if asked.principal is not None and asked.principal != acl.principal:
        return False
    if asked.host is not None and asked.host != acl.host:
        return False
    if asked.operation is not AclOperation.ANY and asked.operation is not acl.operation:
        return False
    return asked.permission in (Permission.ANY, acl.permission)


@given(FILTERS, ACLS)
def test_a_filter_takes_what_kafkas_filter_takes(asked: AclFilter, acl: Acl) -> None:
    expected = takes_pattern_as_kafka_says_it(asked, acl) and takes_entry_as_kafka_says_it(
        asked, acl
    )
    assert asked.takes(acl) == expected
    assert not asked.is_unknown


def test_the_filter_of_everything_takes_everything() -> None:
    wanted = Acl(
        ResourceType.USER,
        PatternType.PREFIXED,
        "x",
        "User:a",
        "::1",
        AclOperation.ALL,
        Permission.DENY,
    )
    assert AclFilter().takes(wanted)


def test_a_word_that_is_unknown_here_makes_the_filter_unknown() -> None:
    assert AclFilter(resource_type=ResourceType(99)).is_unknown
    assert AclFilter(pattern_type=PatternType(99)).is_unknown
    assert AclFilter(operation=AclOperation(99)).is_unknown
    assert AclFilter(permission=Permission(99)).is_unknown
