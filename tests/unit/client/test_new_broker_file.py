"""The properties file of a new machine: a broker's own settings, with what differs from machine to machine."""

from __future__ import annotations

from uuid import UUID

from ottla.client.admin import ConfigEntry
from ottla.client.model import QuorumInfo, QuorumReplica
from ottla.client.new_broker_file import STATIC, NewBroker, file_text

VOTER = QuorumReplica(1, 0, directory=UUID(int=200), listeners=(("CONTROLLER", "c1", 9093),))
QUORUM = QuorumInfo(1, 1, 0, (VOTER,), ())
"""Also where voters are static, a leader of ottla names its directory."""
NEW = NewBroker(4, "newhost", "west", {})


def entry(
    name: str, value: str | None, *, sensitive: bool = False, source: int = STATIC
) -> ConfigEntry:
    return ConfigEntry(name, value, source, sensitive, ())


def read(text: str) -> dict[str, str]:
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def test_a_new_machine_gets_the_settings_of_the_others_and_its_own_names() -> None:
    entries = [
        entry("node.id", "1"),
        entry("process.roles", "broker,controller"),
        entry("listeners", "CLIENTS://0.0.0.0:9092,INTERNAL://h1:9094,CONTROLLER://h1:9093"),
        entry("advertised.listeners", "CLIENTS://h1:9092,INTERNAL://h1:9094"),
        entry("controller.listener.names", "CONTROLLER"),
        entry("controller.quorum.voters", "1@c1:9093"),
        entry("broker.rack", "east"),
        entry("log.dirs", "/data"),
        entry("num.partitions", "7"),
        entry("log.retention.ms", "5", source=5),
    ]
    assert read(file_text(NEW, 1, "abc", QUORUM, entries, is_dynamic=False)) == {
        "node.id": "4",
        "process.roles": "broker",
        "listeners": "CLIENTS://:9092,INTERNAL://newhost:9094",
        "advertised.listeners": "CLIENTS://newhost:9092,INTERNAL://newhost:9094",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@c1:9093",
        "broker.rack": "west",
        "log.dirs": "/data",
        "num.partitions": "7",
    }


def test_voters_that_may_change_are_found_by_any_controller() -> None:
    found = read(file_text(NEW, 1, "abc", QUORUM, [], is_dynamic=True))
    assert found["controller.quorum.bootstrap.servers"] == "c1:9093"
    assert "controller.quorum.voters" not in found


def test_secrets_and_keys_are_named_as_missing_and_given_ones_win() -> None:
    entries = [
        entry("ssl.keystore.password", None, sensitive=True),
        entry("ssl.keystore.location", "/etc/kafka/h1.pem"),
        entry("log.dirs", "/data"),
    ]
    text = file_text(
        NEW._replace(more={"log.dirs": "/mnt"}), 1, "abc", QUORUM, entries, is_dynamic=False
    )
    assert read(text)["log.dirs"] == "/mnt"
    assert "\n#ssl.keystore.password=\n" in text
    assert "\n#ssl.keystore.location=/etc/kafka/h1.pem\n" in text
    assert "kafka-storage format --cluster-id abc" in text


def test_listeners_that_are_given_are_told_to_all_under_the_name_of_the_new_machine() -> None:
    entries = [entry("listeners", "PLAINTEXT://h1:9092"), entry("process.roles", "broker")]
    given = {
        "process.roles": "broker,controller",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    }
    text = file_text(NEW._replace(more=given), 1, "abc", QUORUM, entries, is_dynamic=True)
    assert read(text)["listeners"] == given["listeners"]
    advertised = "PLAINTEXT://newhost:9092,CONTROLLER://newhost:9093"
    assert read(text)["advertised.listeners"] == advertised
    assert "--config server.properties --no-initial-controllers\n" in text


def test_what_clients_are_told_may_be_given() -> None:
    given = {"listeners": "PLAINTEXT://:9092", "advertised.listeners": "PLAINTEXT://outside:1"}
    found = read(file_text(NEW._replace(more=given), 1, "abc", QUORUM, [], is_dynamic=True))
    assert found["advertised.listeners"] == "PLAINTEXT://outside:1"


def test_an_address_of_ipv6_has_its_brackets() -> None:
    found = read(file_text(NEW._replace(host="fd00::5"), 1, "abc", QUORUM, [], is_dynamic=True))
    assert found["advertised.listeners"] == "PLAINTEXT://[fd00::5]:9092"
