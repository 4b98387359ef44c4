"""The checker of secure runs: it decides by the rules of ACLs, and tells what breaks a rule."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, cast
from uuid import UUID

import pytest

from ottla.metadata.records import AccessControlEntryRecord
from ottla.security.operations import AclOperation, ResourceType
from ottla.sim import World
from ottla.sim.clients.access import some_question
from ottla.sim.cluster.nodes import SimCluster
from ottla.sim.oracle.access_checker import (
    ALLOW,
    DENY,
    LITERAL,
    PREFIXED,
    AccessChecker,
    AccessQuestion,
    AccessState,
    Question,
    allows,
)

HERE, THERE = "10.0.0.1", "10.0.0.2"
TOPIC = "private-a"
READ: Question = (AclOperation.READ, ResourceType.TOPIC, TOPIC)
DESCRIBE: Question = (AclOperation.DESCRIBE, ResourceType.TOPIC, TOPIC)


def acl(
    operation: AclOperation,
    permission: int = ALLOW,
    *,
    name: str = TOPIC,
    pattern: int = LITERAL,
    who: str = "User:alice",
    host: str = "*",
) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=UUID(int=1),
        resource_type=ResourceType.TOPIC,
        resource_name=name,
        pattern_type=pattern,
        principal=who,
        host=host,
        operation=operation,
        permission_type=permission,
    )


R, D, ALL = AclOperation.READ, AclOperation.DESCRIBE, AclOperation.ALL


@pytest.mark.parametrize(
    ("acls", "asked", "allowed"),
    [
        ([], READ, False),
        ([acl(R)], READ, True),
        ([acl(R)], DESCRIBE, True),
        ([acl(D)], READ, False),
        ([acl(ALL)], READ, True),
        ([acl(ALL), acl(R, DENY)], READ, False),
        ([acl(ALL), acl(R, DENY)], DESCRIBE, True),
        ([acl(R), acl(R, DENY, name="priv", pattern=PREFIXED)], READ, False),
        ([acl(R, name="priv", pattern=LITERAL)], READ, False),
        ([acl(R, name="*")], READ, True),
        ([acl(R, who="User:*")], READ, True),
        ([acl(R, who="User:bob")], READ, False),
        ([acl(R, host=THERE)], READ, False),
        ([acl(R), acl(R, DENY, host=THERE)], READ, True),
    ],
)
def test_the_loop_decides_by_the_rules_of_acls(
    acls: list[AccessControlEntryRecord], asked: Question, allowed: bool
) -> None:
    assert allows(acls, "alice", HERE, asked) is allowed


def checker(states: Mapping[float, list[AccessControlEntryRecord]]) -> AccessChecker:
    """Of node 1, which had these ACLs from these times on."""
    with World(1) as world:
        made = AccessChecker(SimCluster(world, 1), random.Random(1), some_question(HERE))
    made._states[1] = [
        AccessState(since, cast(Any, dict(enumerate(acls))), {}) for since, acls in states.items()
    ]
    return made


def asked(sent_at: float, answered_at: float) -> AccessQuestion:
    return AccessQuestion("alice", HERE, 1, "FETCH", ((READ,),), sent_at, answered_at)


def rules(checker: AccessChecker) -> list[str]:
    return [violation.rule for violation in checker.violations]


def test_what_was_never_allowed_is_told() -> None:
    found = checker({0.0: [acl(R)], 5.0: [], 9.0: [acl(R)]})
    found.granted(asked(4.0, 6.0))
    found.granted(asked(8.0, 9.0))
    assert rules(found) == []
    found.granted(asked(5.5, 8.5))
    assert rules(found) == ["A2"]


def test_a_refusal_of_what_is_allowed_is_told() -> None:
    found = checker({0.0: [acl(R)], 5.0: [], 9.0: [acl(R)]})
    found.denied(asked(4.0, 6.0))
    assert rules(found) == []
    found.denied(asked(1.0, 4.0))
    assert rules(found) == ["A8"]


def test_what_was_written_after_a_right_was_taken_away_is_not_read() -> None:
    found = checker({0.0: [acl(R)], 5.0: []})
    found.read(asked(4.0, 8.0), [4.5, 5.9])
    assert rules(found) == []
    found.read(asked(4.0, 8.0), [4.5, 6.5])
    assert rules(found) == ["A6"]
