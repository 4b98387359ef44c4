"""Every API that a listener serves has a row that says what it needs."""

from __future__ import annotations

from ottla.security.acls import Acl
from ottla.security.authorizer import Authorizer
from ottla.security.needs import (
    CREATE_TOPIC,
    ON_BROKER,
    ON_CONTROLLER,
    READ_TOPIC,
    WRITE_IDEMPOTENTLY,
    Need,
)
from ottla.security.operations import (
    CLUSTER_NAME,
    SUPPORTED,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from ottla.security.principals import user
from ottla.security.rights import Rights
from ottla.wire.apis import APIS, PRIVATE_APIS
from ottla.wire.errors import ErrorCode


def _all_needs() -> list[Need]:
    tables = (ON_BROKER, ON_CONTROLLER)
    return [
        need
        for table in tables
        for forms in table.values()
        for form in forms
        for need in form.needs
    ]


def test_every_api_of_brokers_has_a_row() -> None:
    served = {int(api.key) for api in APIS.values() if api.on_broker} | set(PRIVATE_APIS)
    assert served - set(ON_BROKER) == set()


def test_every_api_of_controllers_has_a_row() -> None:
    served = {int(api.key) for api in APIS.values() if api.on_controller}
    assert served - set(ON_CONTROLLER) == set()


def test_needs_are_operations_that_the_resource_supports() -> None:
    # Kafka asks for DELETE on the cluster before it asks for DELETE on a topic, though nobody can be given the former alone.
    odd = {(ResourceType.CLUSTER, AclOperation.DELETE)}
    for need in _all_needs():
        for right in need.any_of:
            supported = right.operation in SUPPORTED[right.resource_type]
            assert supported or (right.resource_type, right.operation) in odd, need


def test_a_denial_has_a_code_of_authorization() -> None:
    codes = {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    }
    assert {need.denied for need in _all_needs()} == codes


def _rights(*allowed: tuple[ResourceType, str, AclOperation]) -> Rights:
    authorizer = Authorizer()
    authorizer.change(
        (),
        [
            Acl(kind, PatternType.LITERAL, name, "User:ann", "*", operation, Permission.ALLOW)
            for kind, name, operation in allowed
        ],
    )
    return Rights(authorizer, user("ann"), "10.0.0.1")


def test_one_of_several_rights_is_enough() -> None:
    cluster = _rights((ResourceType.CLUSTER, CLUSTER_NAME, AclOperation.CREATE))
    topic = _rights((ResourceType.TOPIC, "orders", AclOperation.CREATE))
    assert CREATE_TOPIC.met(cluster, "orders")
    assert CREATE_TOPIC.met(topic, "orders")
    assert not CREATE_TOPIC.met(topic, "bills")
    assert not CREATE_TOPIC.met(_rights(), "orders")


def test_without_an_authorizer_everything_is_allowed() -> None:
    assert READ_TOPIC.met(None, "orders")


def test_a_right_on_some_topic_is_enough_to_write_idempotently() -> None:
    assert not WRITE_IDEMPOTENTLY.met(_rights())
    assert WRITE_IDEMPOTENTLY.met(_rights((ResourceType.TOPIC, "orders", AclOperation.WRITE)))
    cluster = ResourceType.CLUSTER, CLUSTER_NAME, AclOperation.IDEMPOTENT_WRITE
    assert WRITE_IDEMPOTENTLY.met(_rights(cluster))
