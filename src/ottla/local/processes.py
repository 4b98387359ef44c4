"""Node processes: started in sessions of their own, and signalled only if they are the ones that we started."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ottla.local import launcher
from ottla.local.errors import LocalClusterError

# Kafka's variables in our environment must not reach the nodes: their settings are in files.
KEPT_OUT = ("KAFKA_", "CLUSTER_ID")


class Process(NamedTuple):
    """A process, distinguished from a later one with the same pid by its start time."""

    pid: int
    started: str

    @property
    def alive(self) -> bool:
        return started_at(self.pid) == self.started

    def signal(self, number: signal.Signals) -> bool:
        """Send the signal. False if the process has ended, also if another has its pid now."""
        if not self.alive:
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True


def is_paused(pid: int) -> bool:
    """Whether a signal has stopped the process (SIGSTOP, Ctrl-Z in its shell). Where the system does not say it: no."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] == "T"


def started_at(pid: int) -> str | None:
    """The start time of the process, in the form that the system gives; None if it has ended or is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _started_at_by_ps(pid)
    except ProcessLookupError:
        return None
    # The second field is the program's name in parentheses, which may contain any character.
    state, *rest = text.rpartition(")")[2].split()
    return rest[18] if state not in "ZX" or _has_other_threads(pid) else None


def _has_other_threads(pid: int) -> bool:
    """When a process is killed, its first thread may end before the others. Its ports stay in use until all have ended."""
    try:
        return len(os.listdir(f"/proc/{pid}/task")) > 1
    except (FileNotFoundError, ProcessLookupError):  # it is reaped just now
        return False


def _started_at_by_ps(pid: int) -> str | None:
    done = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    state, _, started = done.stdout.strip().partition(" ")
    return started.strip() if started and not state.startswith("Z") else None


class Launcher:
    """The process that forks nodes (see `launcher`). One serves all nodes that this process starts."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(KEPT_OUT)
        }
        with theirs:
            # -P: files in the working directory must not hide modules of the library.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", launcher.__name__],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        self._socket = ours
        self._lock = threading.Lock()

    @staticmethod
    def get() -> Launcher:
        """The launcher of this process. A fork needs another one, and so does a process whose launcher has ended."""
        ours = _launchers.get(os.getpid())
        if ours is None or ours._process.poll() is not None:
            ours = _launchers[os.getpid()] = Launcher()
        return ours

    def fork(self, config: Path, log: Path, *, outlives: bool, told: int) -> int:
        """Start a node and return its process id. `told` is the pipe for `ready` and `ended CODE`."""
        request = {
            "config": str(config),
            "log": str(log),
            "cwd": os.getcwd(),
            "outlives": outlives,
        }
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], [told])
            answer = self._socket.recv(32)
        if not answer:
            raise LocalClusterError("the process that starts the nodes ended; its error is above")
        return int(answer)


_launchers: dict[int, Launcher] = {}


class Starting:
    """A node process that is starting. `wait` returns when it is ready or has ended."""

    def __init__(self, config: Path, log: Path, *, outlives: bool = True) -> None:
        self.log = log
        self._log_begins = log.stat().st_size if log.exists() else 0
        self._news, told = os.pipe()
        try:
            pid = Launcher.get().fork(config, log, outlives=outlives, told=told)
        finally:
            os.close(told)
        # Closed at the end of the pipe, and at the latest with this object.
        self._close = weakref.finalize(self, os.close, self._news)
        self._heard = b""
        self.process = Process(pid, started_at(pid) or "")

    @property
    def has_told(self) -> bool:
        """Whether it is ready or has ended, as far as was listened to it."""
        return bool(self._heard) or not self._close.alive

    def wait(self, deadline: float) -> bool | None:
        """True if it is ready, False if it ended before that, None if neither happened before the deadline."""
        while not self.has_told:
            if not self._listen(max(0.0, deadline - time.monotonic())):
                return None
        return self._heard.startswith(b"ready")

    def exit_code(self, patience_s: float = 0.0) -> int | None:
        """None if it still runs after `patience_s`; -N if signal N ended it."""
        while b"ended " not in self._heard and self._listen(patience_s):
            pass
        _, ended, code = self._heard.partition(b"ended ")
        return int(code) if ended else None

    def _listen(self, patience_s: float) -> bool:
        if not self._close.alive or not self._has_news(patience_s):
            return False
        heard = os.read(self._news, 64)
        self._heard += heard
        if not heard:
            self._close()
        return True

    def _has_news(self, patience_s: float) -> bool:
        return bool(_readable([self._news], patience_s))

    def last_words(self) -> str:
        """The last line that it wrote, without the command's name; empty if it has not written yet."""
        if not self.log.exists():
            return ""
        with open(self.log, "rb") as file:
            file.seek(self._log_begins)
            lines = file.read().decode(errors="replace").strip().splitlines()
        return lines[-1].removeprefix("ottla node: ") if lines else ""


def first_to_tell(starting: Mapping[int, Starting], deadline: float) -> list[int]:
    """Those of these nodes that are ready or have ended, as soon as there is one; none if the deadline comes first."""
    by_pipe = {node._news: id for id, node in starting.items() if not node.has_told}
    told = [id for id in starting if id not in by_pipe.values()]
    patience_s = 0.0 if told else max(0.0, deadline - time.monotonic())
    return told + [by_pipe[pipe] for pipe in _readable(list(by_pipe), patience_s)]


def _readable(pipes: Sequence[int], patience_s: float) -> list[int]:
    # Not select(), which cannot watch descriptors beyond 1023.
    poll = select.poll()
    for pipe in pipes:
        poll.register(pipe, select.POLLIN)
    return [pipe for pipe, _ in poll.poll(1000 * patience_s)]


def stop_all(processes: Mapping[int, Process], patience_s: float) -> list[int]:
    """Send SIGTERM to each and wait. Those that still run after `patience_s` are killed; their ids are returned."""
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
    """Children of this process stay zombies until they are waited for."""
    for process in processes.values():
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process.pid, os.WNOHANG)
