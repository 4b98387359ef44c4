"""A tab of the console, in a real Chromium, whose user changes: nothing of the one before is shown to the next."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.chromium import CHROMIUM, Chromium
from support.cluster import wait_until
from support.console import ConsoleProcess
from support.secure import SecureCluster, secure_cluster

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    directory = tmp_path_factory.mktemp("secure")
    with secure_cluster(directory / "cluster") as cluster:
        for topic in ("orders", "secret-plans"):
            cluster.told("topics", "create", topic, "-p", "1")
        file = directory / "alice.password"
        file.write_text(PASSWORD)
        cluster.told("users", "add", "alice", "--password-file", str(file))
        cluster.told("acls", "add", "alice", "--consume", "orders", "--group", "billing")
        yield cluster


def test_who_logs_in_after_somebody_else_sees_nothing_of_theirs(
    secure: SecureCluster, tmp_path: Path
) -> None:
    settings = json.loads(secure.file("confluent-kafka.json").read_text())
    options = ("--dir", str(secure.directory))
    with ConsoleProcess(*options) as console, Chromium(tmp_path / "profile") as page:
        page.resize(1300, 900)
        page.visit(f"{console.url}/topics")
        log_in(page, "admin", str(settings["sasl.password"]))
        shown(page, "document.body.innerText.includes('secret-plans')")
        # As in another tab of the same browser, or after twelve hours.
        page.value_of(
            """fetch("/api/session").then((answer) => answer.json()).then(({ token }) => fetch("/api/logout",
                { method: "POST", headers: { "x-ottla-token": token, "content-type": "application/json" }, body: "{}" }))
                .then(() => true)"""
        )
        log_in(page, "alice", PASSWORD)
        shown(
            page,
            "document.querySelector('.dot.live') && document.body.innerText.includes('orders')",
        )
        time.sleep(1)
        assert "secret-plans" not in page.text()
        page.press("/")
        page.wait_for("document.querySelector('dialog.find[open]')")
        page.write("secret")
        time.sleep(0.5)
        assert "secret-plans" not in page.value_of("document.querySelector('#found').innerText")


def log_in(page: Chromium, user: str, password: str) -> None:
    shown(page, "document.activeElement?.name === 'username'")
    for name, value in (("username", user), ("password", password)):
        page.value_of(f"document.querySelector('input[name={name}]').focus()")
        page.write(value)
    page.press("Enter")


def shown(page: Chromium, expression: str) -> None:
    """As `Chromium.wait_for`, while the page may load anew, which ends what is evaluated there."""

    def look() -> bool:
        try:
            return bool(page.value_of(f"Boolean({expression})"))
        except AssertionError:
            return False

    wait_until(look, 20, expression)
