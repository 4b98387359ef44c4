"""The same seed is the same run, event for event, on each Python that ottla promises to work with (C5).

Between versions runs may differ: a seed is named with its Python. Each version gets an environment of its own;
where the machine has no such Python, and uv cannot fetch one, it is skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SEED = 17

DIGEST = f"""
import logging
from ottla.sim.run.scenario import run_seed
logging.disable(logging.CRITICAL)
outcome = run_seed({SEED})
print(outcome.verdict.name, outcome.digest)
"""


def pythons(version: str) -> list[str]:
    """Where it may be: on the path, with pyenv, or wherever uv finds one."""
    found = [shutil.which(f"python{version}")]
    found += map(str, sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python")))
    return [*filter(None, found), version]


def environment(version: str, path: Path) -> Path:
    uv = shutil.which("uv") or str(ROOT / ".cache/uv/bin/uv")
    for python in pythons(version):
        made = subprocess.run(
            [uv, "venv", "--quiet", "--clear", "--python", python, str(path)],
            capture_output=True,
            check=False,
        )
        if made.returncode == 0:
            break
    else:
        pytest.skip(f"no Python {version} here")
    installs = (["--require-hashes", "-r", "requirements/dev.txt"], ["--no-deps", str(ROOT)])
    for words in installs:
        command = [uv, "pip", "install", "--quiet", "--python", str(path / "bin/python"), *words]
        subprocess.run(command, cwd=ROOT, check=True)
    return path / "bin/python"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", ["3.11", "3.13"])
def test_a_seed_runs_the_same_whatever_the_hashes(version: str, tmp_path: Path) -> None:
    python = environment(version, tmp_path / "environment")
    told = []
    for hash_seed in ("0", "1", "4711"):
        ran = subprocess.run(
            [str(python), "-c", DIGEST],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": ""},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        told.append(ran.stdout.strip())
    assert told[0].startswith("PASSED ")
    assert told == [told[0]] * 3
