"""Node processes: started apart from this one, and signalled only when they surely are what we started."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

# Settings in our own environment must not reach the nodes: their files say all.
KEPT_OUT = ("KAFKA_", "CLUSTER_ID")


class Process(NamedTuple):
    """A process that can be told from a later one with the same number."""

    pid: int
    started: str

    @property
    def alive(self) -> bool:
        return started_at(self.pid) == self.started

    def signal(self, number: signal.Signals) -> bool:
        """Send it; False when the process is no more (also when another has its number now)."""
        if not self.alive:
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True


def started_at(pid: int) -> str | None:
    """When the process began, in whatever form the system tells; None if there is none (or a zombie)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _started_at_by_ps(pid)
    except ProcessLookupError:
        return None
    # The second field is the program's name in parentheses, and may hold anything.
    state, *rest = text.rpartition(")")[2].split()
    return None if state in "ZX" else rest[18]


def _started_at_by_ps(pid: int) -> str | None:
    done = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    state, _, started = done.stdout.strip().partition(" ")
    return started.strip() if started and not state.startswith("Z") else None


class Starting:
    """A node process on its way: `wait` says when it is ready, and when it never will be."""

    def __init__(self, config: Path, log: Path) -> None:
        self.log = log
        reader, writer = os.pipe()
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(KEPT_OUT)
        }
        with open(log, "ab") as output:
            self._log_begins = output.tell()
            # -P: the working directory's files must not stand in for the library's.
            self._child = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "ottla.cli.node"),
                    *("--config", str(config), "--ready-fd", str(writer)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                pass_fds=(writer,),
                start_new_session=True,
            )
        os.close(writer)
        self._ready = open(reader, "rb", buffering=0)  # noqa: SIM115 (closed when it has spoken)
        self._is_ready = False
        self.process = Process(self._child.pid, started_at(self._child.pid) or "")

    def wait(self, deadline: float) -> bool | None:
        """True when it is ready, False when it ended before that, None when it is neither by then."""
        if not self._ready.closed:
            patience_s = max(0.0, deadline - time.monotonic())
            readable, _, _ = select.select([self._ready], [], [], patience_s)
            if not readable:
                return None
            self._is_ready = bool(self._ready.read(16))
            self._ready.close()
            if not self._is_ready:
                self._child.wait()
        return self._is_ready

    def exit_code(self) -> int | None:
        return self._child.poll()

    def last_words(self) -> str:
        """The last line that it wrote, without the command's name."""
        with open(self.log, "rb") as file:
            file.seek(self._log_begins)
            lines = file.read().decode(errors="replace").strip().splitlines()
        return lines[-1].removeprefix("ottla node: ") if lines else ""


def stop_all(processes: Mapping[int, Process], patience_s: float) -> list[int]:
    """SIGTERM to each, then wait; whoever outlives the patience is killed. Returns those ids."""
    waiting = {id: process for id, process in processes.items() if process.signal(signal.SIGTERM)}
    deadline = time.monotonic() + patience_s
    while waiting and time.monotonic() < deadline:
        _reap(waiting)
        waiting = {id: process for id, process in waiting.items() if process.alive}
        time.sleep(0.01)
    for process in waiting.values():
        process.signal(signal.SIGKILL)
    for process in waiting.values():
        wait_gone(process)
    return sorted(waiting)


def wait_gone(process: Process) -> None:
    while process.alive:
        _reap({0: process})
        time.sleep(0.005)


def _reap(processes: Mapping[int, Process]) -> None:
    """Our own children stay zombies until someone asks for them."""
    for process in processes.values():
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process.pid, os.WNOHANG)
