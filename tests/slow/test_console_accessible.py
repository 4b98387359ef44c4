"""Every page of the console, looked at by axe-core: no serious finding, light and dark, wide and narrow."""

from __future__ import annotations

import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.browsed import PAGES, SETTINGS, Browsed
from support.chromium import CHROMIUM, Chromium
from support.cluster import ProcessCluster
from support.console import ConsoleProcess
from support.secure import secure_cluster

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
    pytest.mark.timeout(300),
]

AXE = "axe-core@4.14.0"
SERIOUS = ("serious", "critical")


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Its published script."""
    place = tmp_path_factory.mktemp("axe")
    command = ["npm", "pack", "--silent", AXE]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=120, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    with tarfile.open(place / done.stdout.strip()) as packed:
        script = packed.extractfile("package/axe.min.js")
        assert script is not None
        return script.read().decode()


def found_by(axe: str, page: Chromium) -> list[str]:
    page.value_of(axe + "; true")
    found = page.value_of(
        """axe.run(document, { resultTypes: ["violations"] }).then((told) => told.violations.map((each) =>
            [each.impact, each.id, each.nodes.slice(0, 3).map((node) => `${node.target}: ${node.failureSummary}`).join("; ")]))"""
    )
    return [f"{id}: {where}" for impact, id, where in found if impact in SERIOUS]


@pytest.fixture(scope="module")
def browsed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsed]:
    directory = tmp_path_factory.mktemp("browsed")
    with (
        ProcessCluster(directory / "cluster", 3, SETTINGS) as cluster,
        Chromium(directory / "profile") as browser,
        ConsoleProcess("-b", cluster.bootstrap, "--allow-writes") as console,
    ):
        made = Browsed(cluster, console, browser)
        made.fill()
        # Something is wrong, so that all of a page is there to be looked at.
        cluster.kill(3)
        with console.page("plain") as page:
            page.wait(lambda p: p.table("problems"), 30, "a problem")
        yield made


@pytest.mark.parametrize("path", PAGES)
def test_a_page_has_no_serious_finding(browsed: Browsed, axe: str, path: str) -> None:
    for width, scheme in ((1440, "light"), (1440, "dark"), (360, "light")):
        page = browsed.visit(path, width, 900, scheme)
        page.wait_for("document.querySelector('main h1')")
        page.wait_for("!document.querySelector('[aria-busy=true]')", 30)
        assert not found_by(axe, page), (path, width, scheme)


def test_the_login_has_no_serious_finding(axe: str, tmp_path: Path) -> None:
    with (
        secure_cluster(tmp_path / "cluster") as cluster,
        ConsoleProcess("--dir", str(cluster.directory)) as console,
        Chromium(tmp_path / "profile") as browser,
    ):
        for scheme in ("light", "dark"):
            browser.resize(1300, 900, scheme)
            browser.visit(console.url)
            browser.wait_for("document.querySelector('input[type=password]')")
            assert not found_by(axe, browser), scheme
