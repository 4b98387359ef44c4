"""Every command talks to a cluster through TLS, with the file that Kafka's own tools take; a mistake is explained."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from ottla.cli import errors
from ottla.wire.internal_topics import EVENT_LOG_TOPIC
from support.cluster import OTTLA
from support.tls import BehindTls, certificate_of_localhost, cluster_behind_tls


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BehindTls]:
    with cluster_behind_tls(tmp_path_factory.mktemp("tls")) as found:
        found.cluster.create_topic("orders")
        # Its first writer makes it, some seconds after the start.
        found.cluster.wait_whole(EVENT_LOG_TOPIC)
        yield found


@pytest.fixture(scope="module")
def file(secured: BehindTls, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("client") / "client.properties", secured.settings)


def written(file: Path, settings: Mapping[str, str]) -> Path:
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return file


def ottla(
    *words: str, said: str = "", environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(OTTLA), *words],
        input=said,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **(environment or {})},
    )


@pytest.mark.parametrize(
    "words",
    [
        ("topics", "list"),
        ("topics", "describe", "orders"),
        ("groups", "list"),
        ("transactions", "list"),
        ("produce", "orders"),
        ("consume", "orders", "--exit"),
        ("replicas", "orders"),
        ("doctor", "--from-client"),
        ("explain", "orders"),
        ("events",),
        ("losses",),
    ],
    ids=" ".join,
)
def test_a_command_reaches_the_cluster_through_tls(
    secured: BehindTls, file: Path, words: tuple[str, ...]
) -> None:
    before = len(secured.spoken)
    done = ottla(*words, "-b", secured.bootstrap, "--command-config", str(file), said="one\n")
    assert done.returncode == errors.OK, done.stderr
    assert len(secured.spoken) > before


def test_the_environment_names_the_file_and_the_file_the_brokers(
    secured: BehindTls, tmp_path: Path
) -> None:
    settings = secured.settings | {"bootstrap.servers": secured.bootstrap}
    file = written(tmp_path / "named.properties", settings)
    done = ottla("topics", "list", environment={"OTTLA_CONFIG": str(file)})
    assert (done.returncode, done.stderr) == (errors.OK, "")
    assert "orders" in done.stdout


def test_a_plain_client_is_told_that_the_broker_speaks_tls(secured: BehindTls) -> None:
    for words in (("topics", "list"), ("doctor",)):
        done = ottla(*words, "-b", secured.bootstrap, "--timeout", "2")
        assert done.returncode == errors.UNREACHABLE
        assert f"the broker at {secured.bootstrap} speaks TLS; give --command-config" in done.stderr


def test_a_wrong_ca_is_named_and_not_tried_again(secured: BehindTls, tmp_path: Path) -> None:
    other = certificate_of_localhost(tmp_path)
    file = written(
        tmp_path / "other.properties", secured.settings | {"ssl.truststore.location": str(other)}
    )
    done = ottla("topics", "list", "-b", secured.bootstrap, "--command-config", str(file))
    assert done.returncode == errors.FAILED
    assert f"the certificate of the broker at {secured.bootstrap} is not trusted" in done.stderr
    assert "ssl.truststore" in done.stderr


def test_tls_to_a_plain_broker_is_explained(secured: BehindTls, file: Path) -> None:
    plain = secured.cluster.bootstrap
    done = ottla("topics", "list", "-b", plain, "--command-config", str(file), "--timeout", "3")
    assert done.returncode == errors.UNREACHABLE
    assert f"{plain} (it closed the connection instead of speaking TLS" in done.stderr


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "No such file"),
        ("security.protocol=TLS\n", "'TLS' is none of PLAINTEXT, SSL"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI\n", "'GSSAPI' is not supported"),
        (
            "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required password=\"secret\";\n",
            'has no username="…"',
        ),
        (
            "security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.certificates=nothing\n",
            "holds no certificate",
        ),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_followed_is_named_without_its_secrets(
    secured: BehindTls, tmp_path: Path, text: str | None, why: str
) -> None:
    file = tmp_path / "wrong.properties"
    if text is not None:
        file.write_text(text)
    done = ottla("topics", "list", "-b", secured.bootstrap, "--command-config", str(file))
    assert done.returncode == errors.USAGE
    assert done.stderr.startswith("ottla: --command-config: ")
    assert str(file) in done.stderr and why in done.stderr
    assert "secret" not in done.stderr
