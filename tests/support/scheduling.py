"""How long a process wanted a core and had none: what a busy machine adds to a time, as Linux counts it."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import NamedTuple


def run_delay_s(pid: int) -> float:
    """Of its main thread, so far; 0 where the system does not say. A process that ended and was not collected counts."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


def processor_s(pid: int) -> float:
    """What all its threads have used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Run(NamedTuple):
    seconds: float
    delayed_s: float


def timed(command: list[str]) -> Run:
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    seconds, delayed_s = time.monotonic() - began, run_delay_s(process.pid)
    assert process.wait() == 0, command
    return Run(seconds, delayed_s)
