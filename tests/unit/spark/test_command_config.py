"""A file of Kafka's clients becomes options of sources and sinks."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.config import ConfigError
from ottla.spark.command_config import cluster_options
from ottla.spark.connect.connection import ConnectionOptions
from ottla.spark.options import Options

LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="a\\\\.b";'


def test_without_a_file_there_are_only_the_addresses() -> None:
    assert cluster_options("host:9092") == {"kafka.bootstrap.servers": "host:9092"}


def test_each_line_is_an_option_and_the_addresses_of_the_command_line_win(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "# as for kafka-topics.sh\n"
        "bootstrap.servers=other:9092\n"
        "security.protocol = SASL_PLAINTEXT\n"
        "sasl.mechanism=PLAIN\n"
        f"sasl.jaas.config={LOGIN}\n"
    )
    options = cluster_options("host:9092", str(file))
    assert options["kafka.bootstrap.servers"] == "host:9092"
    assert options["kafka.security.protocol"] == "SASL_PLAINTEXT"
    found = ConnectionOptions.of(Options(options))
    assert found.bootstrap == (("host", 9092),)
    assert found.security.sasl is not None
    assert (found.security.sasl.user, found.security.sasl.password) == ("me", "a.b")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.properties: No such file"):
        cluster_options("host:9092", str(tmp_path / "none.properties"))
