"""README.md, docs/CLUSTER.md and docs/CLIENTS.md do what they say: their commands are run, and print what is shown
(numbers may differ)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.cluster import wait_until

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
CLUSTER = ROOT / "docs" / "CLUSTER.md"
CLIENTS = ROOT / "docs" / "CLIENTS.md"


def blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", document.read_text(), re.S)


def commands(block: str) -> Iterator[tuple[str, str]]:
    """Each command with the output shown under it."""
    for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
        line, _, output = part.partition("\n")
        yield line.partition("  #")[0].strip(), output


def pattern(shown: str) -> str:
    """What is shown, with any number for a number, any path for a path, and … for anything."""
    text = re.escape(shown.strip())
    text = re.sub(r"\\~/\S*", r"\\S+", text)
    text = re.sub(r"\d+", r"\\d+", text)
    text = text.replace("…", r"[\s\S]*")
    return re.sub(r"(?:\\ |\\\n|\s)+", r"\\s+", text)


def run(line: str, directory: Path) -> str:
    environment = os.environ | {
        "OTTLA_DIR": str(directory),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    environment.pop("OTTLA_BOOTSTRAP", None)
    done = subprocess.run(
        line, shell=True, capture_output=True, text=True, env=environment, check=False, timeout=60
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout


def has_events(directory: Path) -> bool:
    """It is written behind what happens."""
    try:
        return bool(run("ottla events", directory).strip())
    except AssertionError:
        return False  # its topic is about to be made


def session(document: Path) -> list[tuple[str, str]]:
    """The commands of `ottla` that a document shows, in order, with their output."""
    shown = [pair for block in blocks(document, "console") for pair in commands(block)]
    return [(line, output) for line, output in shown if "ottla" in line]


@pytest.mark.parametrize("document", [README, CLUSTER], ids=lambda path: path.name)
def test_a_cluster_as_the_documents_show_it(document: Path, tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    shown = session(document)
    assert shown[0][0] == "ottla up --detach"
    assert shown[-1][0] == "ottla purge"
    try:
        for line, output in shown:
            if line.startswith("ottla explain"):
                wait_until(lambda: has_events(directory), 30, "the event log tells something")
            printed = run(line.replace("--detach", "--detach --port 0"), directory)
            assert re.fullmatch(pattern(output), printed.strip()), (
                f"$ {line}\n--- shown\n{output}\n--- printed\n{printed}"
            )
    finally:
        if directory.exists():
            run("ottla purge", directory)


def test_the_documents_python_client_reads_what_it_wrote(cluster: Any) -> None:
    cluster.create_topic("orders", partitions=3)
    (program,) = blocks(CLIENTS, "python")
    program = program.replace("127.0.0.1:9092", cluster.bootstrap)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "from librdkafka" in done.stdout


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_the_documents_kcat_commands_work(cluster: Any, tmp_path: Path) -> None:
    cluster.create_topic("kcat-orders", partitions=1)
    for line, _ in commands(blocks(CLIENTS, "console")[-1]):
        words = line.replace("127.0.0.1:9092", cluster.bootstrap.split(",")[0])
        printed = run(words.replace(" orders", " kcat-orders"), tmp_path)
        if "-C" in words:
            assert printed == "hello\n"


def test_the_documents_settings_are_right(tmp_path: Path) -> None:
    (text,) = blocks(CLIENTS, "properties")
    file = tmp_path / "server.properties"
    file.write_text(text)
    assert "are right" in run(f"ottla node --check --config {file}", tmp_path)
