"""The files for clients: what they say, that they hold odd passwords, and who may read them."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from ottla.client.command_config import read_command_config
from ottla.client.security import Security
from ottla.local.client_files import (
    FAMILIES,
    UserLogin,
    admin_file,
    remove_client_files,
    stored_password,
    user_directory,
    write_client_files,
)
from ottla.local.errors import InvalidUse

ODD = "a\\b\"c'd=e;f#g h,ü$(x)`y`"
CA = b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"


def written(tmp_path: Path, user: str = "alice", password: str = ODD) -> Path:
    directory = user_directory(tmp_path, user)
    write_client_files(UserLogin("localhost:9092", user, password, directory), CA)
    return directory


@pytest.mark.parametrize("user", ["alice", 'o\'brien "x"', "jürgen", "a=b,c\\d"])
def test_our_own_client_reads_the_file_of_java_with_any_user_and_password(
    tmp_path: Path, user: str
) -> None:
    directory = written(tmp_path, user)
    settings = read_command_config(str(directory / "java.properties"))
    assert settings["bootstrap.servers"] == "localhost:9092"
    found = Security.of(settings)
    assert found.sasl == ("SCRAM-SHA-512", user, ODD)
    assert found.tls is not None and found.tls.truststore == CA.decode()


def test_the_files_in_json_hold_the_password_as_it_is(tmp_path: Path) -> None:
    directory = written(tmp_path)

    def read(name: str) -> dict[str, object]:
        return json.loads((directory / name).read_text())

    assert read("confluent-kafka.json")["sasl.password"] == ODD
    assert read("kafka-python.json")["sasl_plain_password"] == ODD
    kafkajs = read("kafkajs.json")
    assert kafkajs["ssl"] == {"ca": [CA.decode()]}
    assert kafkajs["sasl"] == {"mechanism": "scram-sha-512", "username": "alice", "password": ODD}
    assert all(name.startswith("kafka.") for name in read("spark.json"))


def test_programmes_do_not_hold_the_password(tmp_path: Path) -> None:
    directory = written(tmp_path, password="planted-password")
    for name in ("aiokafka.py", "franz_go.go", "sarama.go", "env"):
        assert "planted" not in (directory / name).read_text()
    compile((directory / "aiokafka.py").read_text(), "aiokafka.py", "exec")


def test_all_of_it_is_for_its_owner_only(tmp_path: Path) -> None:
    directory = written(tmp_path)
    for place in (directory, directory.parent):
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
    found = {each.name: stat.S_IMODE(each.stat().st_mode) for each in directory.iterdir()}
    assert found == dict.fromkeys((*FAMILIES, "ca.crt", "password"), 0o600)


def test_a_name_stays_within_the_directory_of_clients(tmp_path: Path) -> None:
    for user in ("../../etc", "..", ".", "a/b", "", "CON:\0"):
        assert user_directory(tmp_path, user).parent == tmp_path / "clients"
    assert len({user_directory(tmp_path, user) for user in ("a/b", "a_b", "a%2fb", "..", "%")}) == 5
    assert admin_file(tmp_path).parent == user_directory(tmp_path, "admin")


def test_a_password_is_found_again_and_gone_when_the_user_is(tmp_path: Path) -> None:
    written(tmp_path)
    assert stored_password(tmp_path, "alice") == ODD
    assert stored_password(tmp_path, "bob") is None
    assert remove_client_files(tmp_path, "alice")
    assert not remove_client_files(tmp_path, "alice")


@pytest.mark.parametrize("password", ["", " x", "x\n", "a\0b", "a\nb"])
def test_a_password_that_no_file_can_hold_is_refused_and_not_shown(
    tmp_path: Path, password: str
) -> None:
    with pytest.raises(InvalidUse, match="the password") as refusal:
        written(tmp_path, password=password)
    assert repr(password) not in str(refusal.value)


def test_a_login_shows_no_password() -> None:
    assert "planted" not in repr(UserLogin("b:1", "alice", "planted", Path()))
