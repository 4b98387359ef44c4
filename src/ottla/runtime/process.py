"""What the system says about this process. Reads of /proc, which do not wait for a disk; empty where there is none."""

from __future__ import annotations

import os
import resource
import threading
import time
from contextlib import suppress
from typing import NamedTuple


class ProcessFigures(NamedTuple):
    cpu_s: float
    threads: int
    resident_bytes: int | None
    virtual_bytes: int | None
    open_fds: int | None
    fds_max: int
    started_s: float | None
    """Unix seconds."""
    disk_read_bytes: int | None
    disk_written_bytes: int | None


def thread_cpu_s() -> float:
    """Processor time of the calling thread."""
    return time.thread_time()


def process_figures() -> ProcessFigures:
    resident = virtual = fds = started = read = written = None
    with suppress(OSError, ValueError, IndexError):
        with open("/proc/self/stat") as file:
            words = file.read().rpartition(")")[2].split()
        page = resource.getpagesize()
        virtual, resident = int(words[20]), int(words[21]) * page
        with open("/proc/stat") as file:
            boot = next(int(line.split()[1]) for line in file if line.startswith("btime"))
        started = boot + int(words[19]) / os.sysconf("SC_CLK_TCK")
    with suppress(OSError):
        fds = len(os.listdir("/proc/self/fd"))
    with suppress(OSError, ValueError, KeyError):  # some systems do not let a process read it
        with open("/proc/self/io") as file:
            io = dict(line.split(": ") for line in file)
        read, written = int(io["read_bytes"]), int(io["write_bytes"])
    return ProcessFigures(
        cpu_s=time.process_time(),
        threads=threading.active_count(),
        resident_bytes=resident,
        virtual_bytes=virtual,
        open_fds=fds,
        fds_max=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        started_s=started,
        disk_read_bytes=read,
        disk_written_bytes=written,
    )
