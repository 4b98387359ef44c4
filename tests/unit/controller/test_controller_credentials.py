"""SCRAM credentials as the controller decides them (KIP-554)."""

from __future__ import annotations

from typing import Any

import pytest
from controller_world import World

from ottla.controller.credentials import CredentialDeletion, CredentialUpsertion, scram_record
from ottla.controller.draft import Draft
from ottla.metadata.features import METADATA_VERSION
from ottla.metadata.records import (
    FeatureLevelRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from ottla.security import scram
from ottla.security.secrets import Secret
from ottla.wire.errors import ErrorCode

SALT = b"0123456789abcdef"
PASSWORD = Secret("pencil")


def upsert(
    user: str = "alice", number: int = 1, *, iterations: int = 4096, **changed: bytes
) -> CredentialUpsertion:
    mechanism = scram.BY_NUMBER.get(number, scram.SHA_256)
    salt = changed.get("salt", SALT)
    salted = changed.get("salted", scram.salt_password(mechanism, PASSWORD, salt, 4096))
    return CredentialUpsertion(user, number, iterations, salt, salted)


def alter(
    world: World, *changes: CredentialUpsertion | CredentialDeletion
) -> list[tuple[Any, ...]]:
    decision = world.controller.alter_scram_credentials(
        [each for each in changes if isinstance(each, CredentialDeletion)],
        [each for each in changes if isinstance(each, CredentialUpsertion)],
    )
    return [(row["user"], row["error_code"]) for row in decision.response["results"]]


def test_what_is_stored_checks_the_password_and_is_not_the_salted_password() -> None:
    world = World(1)
    assert alter(world, upsert("alice", 1), upsert("bob", 2)) == [("alice", 0), ("bob", 0)]
    for key, mechanism in ((("alice", 1), scram.SHA_256), (("bob", 2), scram.SHA_512)):
        record = world.controller.image.scram[key]
        credential = scram.Credential(
            record.salt, record.stored_key, record.server_key, record.iterations
        )
        assert scram.knows_password(mechanism, credential, PASSWORD)
        assert not scram.knows_password(mechanism, credential, Secret("pencils"))
        salted = scram.salt_password(mechanism, PASSWORD, SALT, 4096)
        assert salted not in (record.stored_key, record.server_key)


def test_a_credential_is_changed_and_removed() -> None:
    world = World(1)
    alter(world, upsert())
    assert alter(world, upsert(iterations=8192)) == [("alice", 0)]
    assert world.controller.image.scram["alice", 1].iterations == 8192
    decision = world.controller.alter_scram_credentials([CredentialDeletion("alice", 1)], [])
    assert decision.records == [RemoveUserScramCredentialRecord(name="alice", mechanism=1)]
    assert world.controller.image.scram == {}


def test_what_is_valid_goes_into_one_batch() -> None:
    world = World(1)
    alter(world, upsert("old"))
    decision = world.controller.alter_scram_credentials(
        [CredentialDeletion("old", 1), CredentialDeletion("nobody", 1)],
        [upsert("alice"), upsert("")],
    )
    assert [type(record) for record in decision.records] == [
        RemoveUserScramCredentialRecord,
        UserScramCredentialRecord,
    ]
    codes = {row["user"]: row["error_code"] for row in decision.response["results"]}
    assert codes == {
        "old": 0,
        "nobody": ErrorCode.RESOURCE_NOT_FOUND,
        "alice": 0,
        "": ErrorCode.UNACCEPTABLE_CREDENTIAL,
    }


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (upsert(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsert("a\0b"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsert(number=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsert(number=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsert(iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsert(iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsert(iterations=-1), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsert(salt=b"1234567"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsert(salt=bytes(129)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsert(salted=bytes(31)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsert(number=2, salted=bytes(32)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (CredentialDeletion("alice", 1), ErrorCode.RESOURCE_NOT_FOUND),
        (CredentialDeletion("", 1), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (CredentialDeletion("alice", 9), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    ],
)
def test_what_cannot_be_is_refused(
    change: CredentialUpsertion | CredentialDeletion, code: ErrorCode
) -> None:
    world = World(1)
    assert alter(world, change) == [(change.user, code)]
    assert world.controller.image.scram == {}


def test_a_user_named_twice_is_refused_whichever_the_mechanism() -> None:
    world = World(1)
    alter(world, upsert("alice", 1))
    before = world.controller.image.scram
    twice = [("alice", ErrorCode.DUPLICATE_RESOURCE)]
    assert alter(world, upsert("alice", 1), upsert("alice", 2)) == twice
    assert alter(world, CredentialDeletion("alice", 1), upsert("alice", 2)) == twice
    assert alter(world, CredentialDeletion("alice", 1), CredentialDeletion("alice", 1)) == twice
    assert world.controller.image.scram == before


def test_a_user_named_twice_is_told_what_is_wrong_with_the_first_change() -> None:
    world = World(1)
    absent = [("alice", ErrorCode.RESOURCE_NOT_FOUND)]
    assert alter(world, CredentialDeletion("alice", 1), upsert("alice", 2)) == absent
    few = [("alice", ErrorCode.UNACCEPTABLE_CREDENTIAL)]
    assert alter(world, upsert("alice", 1, iterations=1), upsert("alice", 2)) == few
    assert world.controller.image.scram == {}


def test_an_old_metadata_version_has_no_credentials() -> None:
    world = World(1)
    old = FeatureLevelRecord(name=METADATA_VERSION, feature_level=10)

    def downgrade(draft: Draft) -> dict[str, Any]:
        draft.add([old])
        return {}

    world.controller.decide(downgrade)
    assert world.controller.image.features[METADATA_VERSION] == 10
    assert alter(world, upsert()) == [("alice", ErrorCode.UNSUPPORTED_VERSION)]


def test_a_first_user_is_made_without_a_controller() -> None:
    record = scram_record("SCRAM-SHA-512", "admin", PASSWORD, SALT, 4096)
    assert (record.name, record.mechanism, record.iterations) == ("admin", 2, 4096)
    for given in (
        ("PLAIN", "admin", PASSWORD, SALT, 4096),
        ("SCRAM-SHA-256", "", PASSWORD, SALT, 4096),
        ("SCRAM-SHA-256", "admin", Secret(""), SALT, 4096),
        ("SCRAM-SHA-256", "admin", PASSWORD, b"", 4096),
        ("SCRAM-SHA-256", "admin", PASSWORD, SALT, 100),
    ):
        with pytest.raises(ValueError):
            scram_record(*given)


def test_a_password_is_not_shown() -> None:
    assert repr(upsert(salted=b"x" * 32)) == "CredentialUpsertion(user='alice', mechanism=1)"
