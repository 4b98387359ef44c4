"""franz-go's own integration tests against a secure cluster: clients, consumers, groups and transactions through SASL_SSL."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.other_languages import GO_MODULES, command
from support.secure import SecureCluster, secure_cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

RECORDS = 2_000
"""That its tests copy from topic to topic, in groups and in transactions; its own number is 500,000."""
NOT_WITH_TLS = "TestIssue769"
"""It gives its client a dialer of its own, which the client refuses beside TLS."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    with secure_cluster(tmp_path_factory.mktemp("franz-go") / "cluster") as made:
        yield made


def test_its_own_tests_pass_through_sasl_ssl(cluster: SecureCluster, tmp_path: Path) -> None:
    (module,) = GO_MODULES["franzgo"]
    command("go", "mod", "init", "example", where=tmp_path)
    command("go", "mod", "download", module, where=tmp_path)
    found = command("go", "list", "-m", "-f", "{{.Dir}}", module, where=tmp_path).strip()
    # What is downloaded cannot be written, and a test's files have to be built beside it.
    source = tmp_path / "franz-go"
    shutil.copytree(found, source, copy_function=shutil.copyfile)
    password = cluster.file("password").read_text().strip()
    done = subprocess.run(
        ["go", "test", "-v", "-count=1", "-timeout", "20m", "-skip", NOT_WITH_TLS, "./pkg/kgo"],
        cwd=source,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1300,
        check=False,
        env={
            **os.environ,
            "KGO_SEEDS": cluster.bootstrap,
            "KGO_TEST_TLS": f"ca:{cluster.file('ca.crt')}",
            "KGO_TEST_SCRAM": f"admin:{password}:512",
            "KGO_TEST_RECORDS": str(RECORDS),
            "KGO_TEST_MAX_TOPIC_PARTS": "7",
            "KGO_LOG_LEVEL": "none",
        },
    )
    assert done.returncode == 0, done.stdout[-5000:]
    passed = set(re.findall(r"^--- PASS: (\w+)", done.stdout, re.MULTILINE))
    assert {"TestPing", "TestConsumeRegex", "TestGroupETL", "TestTxnEtl"} <= passed
    assert len(passed) > 30
