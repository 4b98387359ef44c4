"""Programmes in Go and JavaScript for tests: their clients come from the Go proxy and npm, with the machine's own tools."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

GO_MODULES = {
    "franzgo": ("github.com/twmb/franz-go@v1.20.0",),
    "saramaconfig": ("github.com/IBM/sarama@v1.46.0", "github.com/xdg-go/scram@v1.1.2"),
}
"""By the package with the settings that `ottla users add` writes."""
GO_SETTINGS = {"franzgo": "franz_go.go", "saramaconfig": "sarama.go"}
KAFKAJS = "kafkajs@2.2.4"
INSTALL_TIMEOUT_S = 600


def command(*words: str | Path, where: Path) -> str:
    """What it printed. Fails the test unless it succeeds."""
    if shutil.which(words[0]) is None:
        pytest.fail(f"needs {words[0]} on the PATH", pytrace=False)
    done = subprocess.run(
        words, cwd=where, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def go_programme(where: Path, package: str, main: str, client: Path) -> Path:
    """Built from this text with a client's settings."""
    where.mkdir(exist_ok=True)
    (where / package).mkdir()
    shutil.copy(client / GO_SETTINGS[package], where / package)
    (where / "main.go").write_text(main)
    command("go", "mod", "init", "example", where=where)
    command("go", "get", *GO_MODULES[package], where=where)
    command("go", "mod", "tidy", where=where)
    assert command("go", "vet", "./...", where=where) == ""
    command("go", "build", "-o", "programme", ".", where=where)
    return where / "programme"


def install_kafkajs(where: Path) -> None:
    command("npm", "install", "--silent", "--no-audit", "--no-fund", KAFKAJS, where=where)
