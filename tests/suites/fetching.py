"""Sources of packages, through the package managers of Debian and Python, into a directory that git ignores."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "suites"
DEBIAN = "sid"
"""The stable releases have versions of the clients that are years old."""
FETCH_TIMEOUT_S = 600
BUILD_TIMEOUT_S = 1800
_MIRROR = re.compile(r"^(?:URIs:|deb\s+(?:\[[^]]*\]\s+)?)\s*(\S+/debian)/?(?:\s|$)", re.MULTILINE)


class Missing(Exception):
    """Something that has to be installed first."""


def run(
    *words: str | Path,
    where: Path,
    timeout_s: float = FETCH_TIMEOUT_S,
    environment: Mapping[str, str] | None = None,
) -> str:
    done = subprocess.run(
        words,
        cwd=where,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=timeout_s,
        check=False,
    )
    if done.returncode:
        raise Missing(f"{' '.join(map(str, words))}: exit code {done.returncode}\n{done.stdout[-2000:]}")  # fmt: skip
    return done.stdout


def debian_source(package: str) -> Path:
    """As its authors released it, from Debian's unstable release, unpacked. The machine's own lists of packages are left as
    they are."""
    if found := _only_directory(CACHE / package):
        return found
    apt = CACHE / "apt"
    (apt / "lists").mkdir(parents=True, exist_ok=True)
    (apt / "archives").mkdir(exist_ok=True)
    (apt / "sources.list").write_text(f"deb-src {_debian_mirror()} {DEBIAN} main\n")
    options = {
        "Dir::Etc::sourcelist": apt / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": apt / "lists",
        "Dir::Cache": apt,
        "APT::Sandbox::User": "root",  # the directory is not for others
    }
    command = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in options.items())]
    run(*command, "update", where=apt)
    directory = CACHE / package
    directory.mkdir(exist_ok=True)
    run(*command, "source", "--tar-only", "--download-only", package, where=directory)
    (archive,) = directory.glob("*.orig.tar.*")
    unpacked = directory / archive.name.partition(".orig.")[0]
    unpacked.mkdir()
    run("tar", "-xf", archive, "--strip-components=1", "-C", unpacked, where=directory)
    return unpacked


def _debian_mirror() -> str:
    files = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    for file in files:
        if file.suffix in (".list", ".sources") and file.exists() and (found := _MIRROR.search(file.read_text())):  # fmt: skip
            return found[1]
    raise Missing("no Debian mirror in /etc/apt; this machine needs to be a Debian")


def python_source(package: str, version: str) -> Path:
    """Unpacked, as PyPI has it."""
    directory = CACHE / f"{package}-{version}"
    if found := _only_directory(directory):
        return found
    directory.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:"]
    run(*pip, f"{package}=={version}", where=directory)
    (archive,) = directory.glob("*.tar.gz")
    run("tar", "-xf", archive, where=directory)
    return _required(directory)


def python_with(name: str, *packages: str) -> str:
    """An environment of this name with these packages of PyPI; its Python."""
    directory = CACHE / f"{name}-python"
    run(sys.executable, "-m", "venv", directory, where=CACHE)
    python = directory / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", *packages, where=CACHE)
    return str(python)


def _only_directory(directory: Path) -> Path | None:
    found = [each for each in directory.iterdir() if each.is_dir()] if directory.is_dir() else []
    return found[0] if len(found) == 1 else None


def _required(directory: Path) -> Path:
    if (found := _only_directory(directory)) is None:
        raise Missing(f"{directory}: there should be one directory in it")
    return found
