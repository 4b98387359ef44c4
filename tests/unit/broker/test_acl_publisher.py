"""The ACLs of the metadata reach the authorizer with the image, and connections get their rights from it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from one_node import alone
from quorum_world import QuorumWorld
from test_server_connection import FakeConnection, Kept, server_with

from ottla.broker.cluster.acl_publisher import AclPublisher
from ottla.broker.server.connections import ServerConnection
from ottla.controller.acls import acl_of
from ottla.metadata.image import Delta, MetadataImage
from ottla.metadata.records import (
    AccessControlEntryRecord,
    MetadataRecord,
    RemoveAccessControlEntryRecord,
)
from ottla.security.acls import Acl
from ottla.security.authorizer import NOT_LOADED, Authorizer
from ottla.security.operations import AclOperation, PatternType, Permission, ResourceType
from ottla.security.principals import ANONYMOUS, user
from ottla.security.rights import Rights

READ, TOPIC = AclOperation.READ, ResourceType.TOPIC


def entry(number: int, topic: str = "orders", operation: int = READ) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=UUID(int=number),
        resource_type=TOPIC,
        resource_name=topic,
        pattern_type=PatternType.LITERAL,
        principal="User:alice",
        host="*",
        operation=operation,
        permission_type=Permission.ALLOW,
    )


class Published:
    """A quorum that publishes the images that a test makes."""

    def __init__(self) -> None:
        self.on_image: list[Callable[[MetadataImage, Delta], None]] = []
        self.on_caught_up: list[Callable[[], None]] = []
        self.image = MetadataImage()
        self.authorizer = Authorizer()
        AclPublisher(self.authorizer, self)

    def apply(self, *records: MetadataRecord) -> None:
        self.image, delta = self.image.apply(records, self.image.offset + len(records), 1)
        self._publish(delta)

    def load(self, *records: MetadataRecord) -> None:
        """A checkpoint that is ahead of the image."""
        old = self.image
        self.image, _ = MetadataImage().apply(records, old.offset + 100, 1)
        self._publish(self.image.delta_from(old))

    def _publish(self, delta: Delta) -> None:
        for listener in self.on_image:
            listener(self.image, delta)

    @property
    def acls(self) -> list[Acl]:
        return list(self.authorizer.acls)


def test_the_authorizer_follows_each_change_of_the_metadata() -> None:
    published = Published()
    published.apply(entry(1), entry(2, "payments"))
    assert published.acls == [acl_of(entry(1)), acl_of(entry(2, "payments"))]
    generation = published.authorizer.generation
    published.apply(RemoveAccessControlEntryRecord(id=UUID(int=1)), entry(3, "bills"))
    assert published.acls == [acl_of(entry(2, "payments")), acl_of(entry(3, "bills"))]
    assert published.authorizer.generation == generation + 1, "one change, however many records"


def test_a_checkpoint_replaces_what_the_authorizer_had() -> None:
    published = Published()
    published.apply(entry(1), entry(2, "payments"))
    published.load(entry(2, "bills"), entry(3, "orders"))
    assert set(published.acls) == {acl_of(entry(2, "bills")), acl_of(entry(3, "orders"))}


def test_an_acl_that_is_written_twice_stays_until_both_records_are_removed() -> None:
    published = Published()
    published.apply(entry(1), entry(2))
    published.apply(RemoveAccessControlEntryRecord(id=UUID(int=1)))
    assert published.acls == [acl_of(entry(2))]
    published.apply(RemoveAccessControlEntryRecord(id=UUID(int=2)))
    assert published.acls == []


def test_words_of_a_newer_version_are_kept_as_unknown() -> None:
    assert acl_of(entry(1, operation=99)).operation is AclOperation.UNKNOWN


def test_until_the_acls_are_read_only_super_users_may_do_anything() -> None:
    published = Published()
    authorizer = Authorizer(["User:admin"], allow_everyone_if_no_acl_found=True)
    authorizer.is_loaded = False
    AclPublisher(authorizer, published)
    published.apply(entry(1))
    verdict = authorizer.decide(user("alice"), "10.0.0.1", READ, TOPIC, "orders")
    assert verdict == (False, NOT_LOADED, None)
    assert authorizer.decide(user("admin"), "10.0.0.1", READ, TOPIC, "orders").allowed
    for listener in published.on_caught_up:
        listener()
    assert authorizer.decide(user("alice"), "10.0.0.1", READ, TOPIC, "orders").allowed


def test_a_change_that_cannot_be_applied_leaves_no_right_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    published = Published()
    published.apply(entry(1))
    rights = Rights(published.authorizer, user("alice"), "10.0.0.1")
    assert rights.may(READ, TOPIC, "orders")
    monkeypatch.setattr(published.authorizer, "change", lambda **changes: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        published.apply(RemoveAccessControlEntryRecord(id=UUID(int=1)))
    assert not rights.may(READ, TOPIC, "orders")
    published.authorizer.loaded()
    assert not rights.may(READ, TOPIC, "orders")


def test_a_connection_gets_the_rights_of_its_principal() -> None:
    server = server_with(Kept())
    assert ServerConnection(server, FakeConnection()).rights is None
    server.authorizer = Authorizer()
    server.authorizer.change((), [acl_of(entry(1))])
    connection = ServerConnection(server, FakeConnection())
    assert connection.rights is not None
    assert (connection.principal, connection.rights.principal) == (ANONYMOUS, ANONYMOUS)
    assert not connection.rights.may(READ, TOPIC, "orders")
    connection.authenticated(user("alice"))
    assert (connection.principal, connection.rights.principal) == (user("alice"), user("alice"))
    assert connection.rights.host == "10.0.0.9"
    assert connection.rights.may(READ, TOPIC, "orders")


def test_a_node_that_returns_has_caught_up_when_it_has_what_was_committed() -> None:
    with QuorumWorld(1, 3, 1) as cluster:
        leader = cluster.elect()
        away = next(node for node in cluster.nodes.values() if node is not leader)
        away.kill()

        async def append() -> int:
            return await leader.running.append([entry(n) for n in range(100)])[1]

        leader.host.complete(append())
        at_that_time: list[int] = []
        away.on_quorum = lambda quorum: quorum.on_caught_up.append(
            lambda: at_that_time.append(len(quorum.image.acls))
        )
        away.start()
        cluster.until(lambda: bool(at_that_time))
        assert at_that_time == [100]


@pytest.mark.parametrize("super_users", ["", "User:ANONYMOUS"])
def test_a_node_gives_every_connection_rights_by_its_one_authorizer(
    tmp_path: Path, super_users: str
) -> None:
    async def look() -> None:
        node, channel = await alone(
            tmp_path,
            authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            super_users=super_users,
            allow_everyone_if_no_acl_found="true",
        )
        assert node.authorizer is not None and node.authorizer.is_loaded
        assert node.authorizer.super_users == set(filter(None, [super_users]))
        for server in node.servers.values():
            assert server.authorizer is node.authorizer
            assert all(connection.rights is not None for connection in server.connections)
        channel.close()
        await node.stop()

    asyncio.run(look())
