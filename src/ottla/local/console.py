"""The console beside a cluster on this machine: a process of its own, which commands start and stop with the nodes.

It gets a socket that listens already. If it got a port's number only, whoever took that port meanwhile would be announced as the
console, and asked for passwords.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ottla.local.errors import LocalClusterError
from ottla.local.ports import free_ports
from ottla.local.processes import KEPT_OUT, Process, started_at, stop_all, wait_gone

PORT: Final = 8080
HOST: Final = "127.0.0.1"
READY_S: Final = 20.0
STOP_S: Final = 5.0
LOOK_EVERY_S: Final = 0.02
BACKLOG: Final = 128
TRIES: Final = 10
"""To have a free port that nobody takes before us."""
LOG: Final = "console.log"


@dataclass(frozen=True)
class LocalConsole:
    port: int
    pid: int | None = None
    started: str = ""

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def process(self) -> Process | None:
        return None if self.pid is None else Process(self.pid, self.started)

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.alive


def start_console(
    directory: Path, before: LocalConsole | None, *, is_anywhere: bool
) -> LocalConsole:
    """Where it was before, if that is free; else at 8080, else at a free port; at a free one also if `is_anywhere`. Returns when it
    answers."""
    listening = _listening(before, is_anywhere=is_anywhere)
    chosen: int = listening.getsockname()[1]
    log = directory / LOG
    environment = {n: v for n, v in os.environ.items() if not n.startswith(KEPT_OUT)}
    with listening, open(log, "ab") as output:
        process = subprocess.Popen(
            [
                *[sys.executable, "-P", "-m", "ottla.cli.main"],
                *["console", "--dir", str(directory), "--host", HOST],
                *["--listen-fd", str(listening.fileno())],
            ],
            pass_fds=[listening.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )
    made = LocalConsole(chosen, process.pid, started_at(process.pid) or "")
    until = time.monotonic() + READY_S
    while not _answers(chosen):
        if process.poll() is not None or time.monotonic() > until:
            stop_console(made)
            lines = log.read_text(errors="replace").strip().splitlines()
            raise LocalClusterError(
                f"the console did not start: {lines[-1] if lines else 'it said nothing'}; see {log}"
            )
        time.sleep(LOOK_EVERY_S)
    return made


def _listening(before: LocalConsole | None, *, is_anywhere: bool) -> socket.socket:
    usual = PORT if before is None else before.port
    if not (is_anywhere and before is None):
        with contextlib.suppress(OSError):
            return _bound(usual)
    for _ in range(TRIES):
        with contextlib.suppress(OSError):
            return _bound(free_ports(1, HOST)[0])
    raise LocalClusterError("the console found no free port")


def _bound(port: int) -> socket.socket:
    """OSError if the port is taken."""
    listening = socket.socket()
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((HOST, port))
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


def _answers(port: int) -> bool:
    """The socket listens from the beginning: whether somebody serves it."""
    connection = http.client.HTTPConnection(HOST, port, timeout=1)
    try:
        connection.request("HEAD", "/")
        return connection.getresponse().status < 500
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def stop_console(console: LocalConsole) -> LocalConsole:
    """It has nothing to lose: who does not stop is killed."""
    if console.process is not None:
        stop_all({0: console.process}, STOP_S)
    return replace(console, pid=None, started="")


def kill_console(console: LocalConsole) -> None:
    if console.process is not None and console.process.signal(signal.SIGKILL):
        wait_gone(console.process)
