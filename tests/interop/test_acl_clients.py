"""ACLs as Python's admin clients create, find and delete them, on three brokers with an authorizer. Nobody logs in: all are
User:ANONYMOUS, who is a super user because the nodes are, too."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import kafka
import kafka.errors
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from kafka.admin import ACL, ACLFilter, ACLOperation, ACLPermissionType, ResourcePattern
from kafka.admin import ResourcePatternFilter as PatternFilter
from kafka.admin import ResourceType as Kind

from ottla.config.values import STANDARD_AUTHORIZER
from support.cluster import ProcessCluster, wait_until

SETTINGS = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
ANYBODY: Any = None  # the stubs want a text, the client takes None for any


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path_factory.mktemp("acls"), 3, SETTINGS) as cluster:
        yield cluster


def binding(
    name: str,
    *,
    host: str = "*",
    principal: str = "User:alice",
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC,
        name,
        pattern,
        principal,
        host,
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )


def asked(name: str, pattern: ResourcePatternType = ResourcePatternType.ANY) -> AclBindingFilter:
    return AclBindingFilter(
        ResourceType.TOPIC,
        name,
        pattern,
        ANYBODY,
        ANYBODY,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )


def found(admin: AdminClient, wanted: AclBindingFilter) -> set[str]:
    return {f"{acl.name} {acl.principal}" for acl in admin.describe_acls(wanted).result(10)}


def every_broker_finds(cluster: ProcessCluster, wanted: AclBindingFilter, acls: set[str]) -> None:
    for node in cluster.nodes.values():
        admin = AdminClient({"bootstrap.servers": node.address})
        wait_until(partial(_finds, admin, wanted, acls), 10, f"broker {node.id} has {acls}")


def _finds(admin: AdminClient, wanted: AclBindingFilter, acls: set[str]) -> bool:
    return found(admin, wanted) == acls


def test_confluents_admin_creates_finds_and_deletes_acls(cluster: ProcessCluster) -> None:
    admin = cluster.admin
    prefix = binding("orders.", pattern=ResourcePatternType.PREFIXED)
    wanted = [binding("orders.eu"), binding("*", principal="User:bob"), prefix]
    for _ in range(2):  # the second time they are there already
        for done in admin.create_acls(wanted).values():
            done.result(10)
    match = asked("orders.eu", ResourcePatternType.MATCH)
    everything = {"orders.eu User:alice", "* User:bob", "orders. User:alice"}
    every_broker_finds(cluster, match, everything)
    exactly = asked("orders.eu", ResourcePatternType.LITERAL)
    assert found(admin, exactly) == {"orders.eu User:alice"}
    [gone] = admin.delete_acls([match]).values()
    assert {f"{acl.name} {acl.principal}" for acl in gone.result(10)} == everything
    every_broker_finds(cluster, match, set())


@pytest.mark.parametrize(
    "wrong", [binding("t", host="10.0.0.0/8"), binding("t", principal="alice")]
)
def test_confluents_admin_is_told_what_is_wrong(cluster: ProcessCluster, wrong: AclBinding) -> None:
    [refused] = cluster.admin.create_acls([wrong]).values()
    with pytest.raises(KafkaException) as error:
        refused.result(10)
    assert error.value.args[0].code() == KafkaError.INVALID_REQUEST
    assert "Invalid" in error.value.args[0].str()


def test_kafka_python_creates_finds_and_deletes_acls(cluster: ProcessCluster) -> None:
    admin = kafka.KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        one = ACL(
            "User:carol",
            "127.0.0.1",
            ACLOperation.WRITE,
            ACLPermissionType.DENY,
            ResourcePattern(Kind.TRANSACTIONAL_ID, "tx"),
        )
        made = admin.create_acls([one])
        assert made["succeeded"] == [one] and not made["failed"]
        every = ACLFilter(
            "User:carol",
            None,
            ACLOperation.ANY,
            ACLPermissionType.ANY,
            PatternFilter(Kind.ANY, None, kafka.admin.ACLResourcePatternType.ANY),
        )

        def described() -> list[ACL]:
            acls, error = admin.describe_acls(every)
            assert error is kafka.errors.NoError
            return list(acls)

        wait_until(lambda: described() == [one], 10, "the broker has the ACL")
        [(_, deleted, error)] = admin.delete_acls([every])
        assert error is kafka.errors.NoError and list(deleted) == [one]
        wait_until(lambda: described() == [], 10, "the broker has no ACL")
    finally:
        admin.close()
