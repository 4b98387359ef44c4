"""kafka-storage: Kafka's texts for first users, and what is in a directory that was formatted with them."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from uuid import UUID

import pytest

from ottla.kafka_tools import storage
from ottla.kafka_tools.java import uuid_text
from ottla.kafka_tools.options import ToolError
from ottla.metadata.records import FeatureLevelRecord, UserScramCredentialRecord
from ottla.raft.format import load_bootstrap_records, load_properties
from ottla.raft.snapshots import BOOTSTRAP, SnapshotStore
from ottla.raft.voters import QuorumEndpoint, ReplicaKey, Voter
from ottla.runtime.files import RealDisk
from ottla.security import scram
from ottla.security.secrets import Secret

PASSWORD = "alice-secret-that-is-not-shown"


def knows(record: UserScramCredentialRecord, password: str) -> bool:
    credential = scram.Credential(
        record.salt, record.stored_key, record.server_key, record.iterations
    )
    return scram.knows_password(scram.BY_NUMBER[record.mechanism], credential, Secret(password))


def test_a_user_with_a_password() -> None:
    record = storage.first_user(f"SCRAM-SHA-512=[name=alice,password={PASSWORD}]")
    assert (record.name, record.mechanism, record.iterations) == ("alice", 2, 4096)
    assert knows(record, PASSWORD)
    other = storage.first_user(f"SCRAM-SHA-512=[name=alice,password={PASSWORD}]")
    assert other.salt != record.salt


def test_a_user_with_everything_quoted() -> None:
    text = ' SCRAM-SHA-256=[name="a b",iterations=8192,salt="MDEyMzQ1Njc4OWFi",password="x,y=z"] '
    record = storage.first_user(text)
    assert (record.name, record.iterations, record.salt) == ("a b", 8192, b"0123456789ab")
    assert knows(record, "x,y=z")


def test_a_user_with_a_salted_password() -> None:
    salt = b"0123456789ab"
    salted = scram.salt_password(scram.SHA_256, Secret(PASSWORD), salt, 4096)
    given = [base64.b64encode(each).decode() for each in (salt, salted)]
    record = storage.first_user(
        f'SCRAM-SHA-256=[name=alice,salt="{given[0]}",saltedpassword="{given[1]}"]'
    )
    assert knows(record, PASSWORD)


@pytest.mark.parametrize(
    "text",
    [
        f"SCRAM-SHA-512 {PASSWORD}",
        f"SCRAM-SHA-1=[name=alice,password={PASSWORD}]",
        f"PLAIN=[name=alice,password={PASSWORD}]",
        f"SCRAM-SHA-512=name=alice,password={PASSWORD}",
        f"SCRAM-SHA-512=[name=alice,password={PASSWORD}",
        f"SCRAM-SHA-512=[password={PASSWORD}]",
        f"SCRAM-SHA-512=[name=,password={PASSWORD}]",
        "SCRAM-SHA-512=[name=alice]",
        "SCRAM-SHA-512=[name=alice,password=]",
        f"SCRAM-SHA-512=[name=alice,saltedpassword={PASSWORD}]",
        f"SCRAM-SHA-512=[name=alice,salt=MDEyMzQ1Njc4OWFi,saltedpassword={PASSWORD}]",
        f"SCRAM-SHA-512=[name=alice,password={PASSWORD},colour=red]",
        f"SCRAM-SHA-512=[name=alice,password={PASSWORD},password={PASSWORD}]",
        f"SCRAM-SHA-512=[name=alice,password={PASSWORD},iterations=many]",
        f"SCRAM-SHA-512=[name=alice,password={PASSWORD},iterations=4095]",
        f"SCRAM-SHA-512=[name=alice,password={PASSWORD},iterations=16385]",
        f"SCRAM-SHA-512=[name=alice,password={PASSWORD},salt=?]",
        f"SCRAM-SHA-512=[name=alice,{PASSWORD}]",
    ],
)
def test_what_is_no_user_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(ToolError) as caught:
        storage.first_user(text)
    assert PASSWORD not in str(caught.value)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "server.properties"
    file.write_text(
        "node.id=1\nprocess.roles=broker,controller\n"
        "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n"
        "controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@127.0.0.1:9093\n"
        f"log.dirs={tmp_path}/one,{tmp_path}/two\n"
    )
    return file


def format_with(config: Path, *more: str) -> int:
    return storage.main(["format", "-c", str(config), "-t", "the-cluster", *more])


def test_directories_are_formatted_with_the_first_users(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    users = config.parent / "users"
    users.write_text(f"# first users\n\nSCRAM-SHA-256=[name=bob,password={PASSWORD}]\n")
    users.chmod(0o600)
    told = f"SCRAM-SHA-512=[name=alice,password={PASSWORD}]"
    assert format_with(config, "--add-scram", told, "--add-scram-from", str(users)) == 0
    out = capsys.readouterr()
    assert out.out == (
        f"Formatting metadata directory {config.parent}/one with metadata.version 4.3-IV0.\n"
        f"Formatting data directory {config.parent}/two with metadata.version 4.3-IV0.\n"
    )
    disk = RealDisk()
    for place in ("one", "two"):
        properties = load_properties(disk, f"{config.parent}/{place}")
        assert (properties.cluster_id, properties.node_id) == ("the-cluster", 1)
        records = load_bootstrap_records(disk, f"{config.parent}/{place}")
        found = [each for each in records if isinstance(each, UserScramCredentialRecord)]
        assert [(each.name, each.mechanism) for each in found] == [("alice", 2), ("bob", 1)]
        assert all(knows(each, PASSWORD) for each in found)
        assert isinstance(records[0], FeatureLevelRecord), "levels come first: users need one"
    assert format_with(config) == 1
    assert "is already formatted. Use --ignore-formatted" in capsys.readouterr().err
    assert format_with(config, "--ignore-formatted") == 0
    assert capsys.readouterr().out == "All of the log directories are already formatted.\n"


def test_a_file_of_passwords_that_others_may_read_is_refused(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    users = config.parent / "users"
    users.write_text(f"SCRAM-SHA-256=[name=bob,password={PASSWORD}]\n")
    users.chmod(0o644)
    assert format_with(config, "--add-scram-from", str(users)) == 1
    assert "chmod 600" in capsys.readouterr().err
    assert not os.path.exists(config.parent / "one")


def test_random_ids_are_kafkas(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(100):
        assert storage.main(["random-uuid"]) == 0
    ids = capsys.readouterr().out.split()
    assert len(set(ids)) == 100
    assert all(len(each) == 22 and not each.startswith("-") for each in ids)


# Voters that may change


@pytest.fixture
def dynamic(config: Path) -> Path:
    text = config.read_text()
    lines = [line for line in text.splitlines() if not line.startswith("controller.quorum.voters")]
    config.write_text(
        "\n".join([*lines, "controller.quorum.bootstrap.servers=h1:9093,h2:9093", ""])
    )
    return config


def voters_in(config: Path) -> list[Voter]:
    store = SnapshotStore(RealDisk(), f"{config.parent}/one/__cluster_metadata-0")
    content = store.load(BOOTSTRAP)
    assert content.kraft_version == 1 and content.voters is not None
    return list(content.voters.voters)


def test_a_standalone_controller_is_the_only_voter(dynamic: Path) -> None:
    assert format_with(dynamic, "--standalone") == 0
    (voter,) = voters_in(dynamic)
    properties = load_properties(RealDisk(), f"{dynamic.parent}/one")
    assert voter.key == ReplicaKey(1, properties.directory_id)
    assert voter.endpoints[0].name == "CONTROLLER"
    assert not os.path.exists(dynamic.parent / "two" / "__cluster_metadata-0")


def test_initial_controllers_are_the_voters(dynamic: Path) -> None:
    one, two = (uuid_text(UUID(int=number)) for number in (77, 88))
    voters = f"1@h1:9093:{one},2@[::1]:9094:{two}"
    assert format_with(dynamic, "--initial-controllers", voters) == 0
    assert voters_in(dynamic) == [
        Voter(1, UUID(int=77), (QuorumEndpoint("CONTROLLER", "h1", 9093),)),
        Voter(2, UUID(int=88), (QuorumEndpoint("CONTROLLER", "::1", 9094),)),
    ]
    assert load_properties(RealDisk(), f"{dynamic.parent}/one").directory_id == UUID(int=77)


def test_a_controller_that_joins_later_has_no_voters(dynamic: Path) -> None:
    assert format_with(dynamic, "--no-initial-controllers") == 0
    assert not os.path.exists(dynamic.parent / "one" / "__cluster_metadata-0")


ONE = f"1@h1:9093:{uuid_text(UUID(int=77))}"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ((), "--standalone, --initial-controllers, or --no-initial-controllers"),
        (("--initial-controllers", "1@h1:9093"), "id@host:port:directory-id"),
        (("--initial-controllers", "1@h1:9093:short"), "directory id"),
        (("--initial-controllers", ONE.replace("1@", "2@")), "do not name this one, node 1"),
        (("--initial-controllers", f"{ONE},{ONE}"), "duplicated"),
    ],
)
def test_what_is_wrong_with_first_voters_is_said_before_anything_is_written(
    dynamic: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], why: str
) -> None:
    assert format_with(dynamic, *options) == 1
    assert why in capsys.readouterr().err
    assert not os.path.exists(dynamic.parent / "one")


def test_static_voters_are_not_named_twice(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert format_with(config, "--standalone") == 1
    assert "in place of controller.quorum.voters" in " ".join(capsys.readouterr().err.split())
