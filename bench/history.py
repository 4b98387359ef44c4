"""Every run of the benchmarks that was written into the documents, one JSON object a line: the tables show only the last.

    {"date": "2026-05-04T10:11:12+00:00", "commit": "e8e42b5…", "machine": {"cores": 2, …}, "under": "…", "cases": {…}}

`cases` is case → target → figure → rounds. Lines are appended, and never changed. Those
without a `machine` were taken from the repository's history: their commit is the one that recorded them.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.report import Rounds

ROOT = Path(__file__).resolve().parents[1]


def append(file: Path, rounds: Rounds, under: str) -> None:
    line = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": machine(),
        "under": under,
        "cases": rounds,
    }
    with file.open("a") as lines:
        lines.write(json.dumps(line, sort_keys=True) + "\n")


def commit() -> str:
    """What was measured: the commit, with a `+` where files differ from it; empty outside of a repository."""
    try:
        found = _git("rev-parse", "HEAD")
        return f"{found}+" if _git("status", "--porcelain", "--untracked-files=no") else found
    except (OSError, subprocess.CalledProcessError):
        return ""


def _git(*words: str) -> str:
    return subprocess.check_output(
        ["git", *words], cwd=ROOT, text=True, stderr=subprocess.DEVNULL
    ).strip()


def machine() -> dict[str, Any]:
    pages, page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "memory_gb": round(pages * page / 1e9),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if "model name" in line), "")
