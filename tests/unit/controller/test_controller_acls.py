"""ACLs as the controller decides them: what may be written, and what filters remove."""

from __future__ import annotations

from typing import Any

import pytest
from controller_world import World

from ottla.controller.acls import acl_of
from ottla.controller.draft import RECORDS_PER_COMMAND_MAX
from ottla.metadata.records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from ottla.security.acls import Acl, AclFilter
from ottla.security.operations import AclOperation, PatternType, Permission, ResourceType
from ottla.wire.errors import ErrorCode, KafkaError

READ = Acl(
    ResourceType.TOPIC,
    PatternType.LITERAL,
    "orders",
    "User:alice",
    "*",
    AclOperation.READ,
    Permission.ALLOW,
)


@pytest.fixture
def world() -> World:
    return World(1, has_authorizer=True)


def create(world: World, *wanted: Acl) -> list[int]:
    results = world.controller.create_acls(wanted).response["results"]
    return [result["error_code"] for result in results]


def kept(world: World) -> set[Acl]:
    return {acl_of(record) for record in world.image.acls.values()}


def test_acls_are_written_once(world: World) -> None:
    other = READ._replace(operation=AclOperation.WRITE)
    result = world.controller.create_acls([READ, other, READ])
    assert [row["error_code"] for row in result.response["results"]] == [0, 0, 0]
    assert [type(record) for record in result.records] == [AccessControlEntryRecord] * 2
    assert kept(world) == {READ, other}
    again = world.controller.create_acls([READ])
    assert (again.response["results"][0]["error_code"], again.records) == (0, [])


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"resource_type": ResourceType.ANY}, "Invalid resourceType ANY"),
        ({"resource_type": ResourceType(99)}, "Invalid resourceType UNKNOWN"),
        ({"pattern_type": PatternType.ANY}, "Invalid patternType ANY"),
        ({"pattern_type": PatternType.MATCH}, "Invalid patternType MATCH"),
        ({"operation": AclOperation.ANY}, "Invalid operation ANY"),
        ({"operation": AclOperation(99)}, "Invalid operation UNKNOWN"),
        ({"permission": Permission.ANY}, "Invalid permissionType ANY"),
        ({"resource_name": ""}, "Invalid empty resource name"),
        (
            {"resource_type": ResourceType.CLUSTER},
            "The only valid name for the CLUSTER resource is kafka-cluster",
        ),
        ({"principal": "alice"}, "Invalid principal: 'alice' is not TYPE:NAME"),
        ({"principal": "User:"}, "Invalid principal: 'User:' is not TYPE:NAME"),
        ({"host": "10.0.0.0/8"}, "Invalid host '10.0.0.0/8': only * or one IP address"),
        ({"host": "example.org"}, "Invalid host 'example.org': only * or one IP address"),
        ({"host": ""}, "Invalid host '': only * or one IP address"),
    ],
)
def test_an_acl_that_makes_no_sense_is_refused_and_the_others_are_written(
    world: World, changes: dict[str, Any], why: str
) -> None:
    results = world.controller.create_acls([READ._replace(**changes), READ]).response["results"]
    assert [row["error_code"] for row in results] == [ErrorCode.INVALID_REQUEST, 0]
    assert results[0]["error_message"].startswith(why)
    assert kept(world) == {READ}


@pytest.mark.parametrize("host", ["*", "10.0.0.7", "::1", "0:0:0:0:0:0:0:1", "fe80::1%eth0"])
def test_a_host_is_every_address_or_one(world: World, host: str) -> None:
    assert create(world, READ._replace(host=host)) == [0]


def test_too_many_acls_are_refused_as_a_whole(world: World) -> None:
    wanted = [READ._replace(resource_name=f"t{n}") for n in range(RECORDS_PER_COMMAND_MAX + 1)]
    with pytest.raises(KafkaError) as refused:
        world.controller.create_acls(wanted)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    assert kept(world) == set()
    assert set(create(world, *wanted[1:])) == {0}
    create(world, wanted[0])
    with pytest.raises(KafkaError) as refused:
        world.controller.delete_acls([AclFilter()])
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert len(kept(world)) == RECORDS_PER_COMMAND_MAX + 1


def test_filters_tell_what_they_removed(world: World) -> None:
    write = READ._replace(operation=AclOperation.WRITE)
    bills = READ._replace(resource_name="bills")
    create(world, READ, write, bills)
    filters = [
        AclFilter(operation=AclOperation.READ),
        AclFilter(resource_name="orders"),
        AclFilter(principal="User:nobody"),
        AclFilter(operation=AclOperation(99)),
    ]
    result = world.controller.delete_acls(filters)
    rows = result.response["filter_results"]
    assert [row["error_code"] for row in rows] == [0, 0, 0, ErrorCode.INVALID_REQUEST]
    matched = [
        {(acl["resource_name"], acl["operation"]) for acl in row["matching_acls"]} for row in rows
    ]
    read, written = AclOperation.READ, AclOperation.WRITE
    assert matched == [
        {("orders", read), ("bills", read)},
        {("orders", read), ("orders", written)},
        set(),
        set(),
    ]
    assert [type(record) for record in result.records] == [RemoveAccessControlEntryRecord] * 3
    assert kept(world) == set()


def test_many_filters_do_not_make_an_answer_without_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.controller.acls.TOLD_MAX", 6)
    wanted = [READ._replace(resource_name=f"t{n}") for n in range(3)]
    create(world, *wanted)
    with pytest.raises(KafkaError) as refused:
        world.controller.delete_acls(3 * [AclFilter()])
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert len(kept(world)) == 3
    world.controller.delete_acls(2 * [AclFilter()])
    assert kept(world) == set()


def test_without_an_authorizer_there_are_no_acls() -> None:
    world = World(1)
    for command in (
        lambda: world.controller.create_acls([READ]),
        lambda: world.controller.delete_acls([AclFilter()]),
    ):
        with pytest.raises(KafkaError) as refused:
            command()
        assert refused.value.code is ErrorCode.SECURITY_DISABLED
