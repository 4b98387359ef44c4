"""`ottla node`: one node in the foreground, as every node process runs.

Three nodes on two cores must be ready within a second and a half. So this module imports only what a node needs: no
command-line library, no client.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import ottla
from ottla.config import ConfigError, Settings
from ottla.local.exit_codes import CONFLICT, FAILED, OK, USAGE
from ottla.local.node_log import JsonLines, NodeLog, TextLines
from ottla.local.process_title import set_title

if TYPE_CHECKING:
    from ottla.broker.node import Node
    from ottla.local.systemd import Systemd

USAGE_TEXT = """\
Usage: ottla node [OPTIONS]

  Run one node in the foreground.

  Settings have Kafka's names and come from a properties file and from the
  environment: KAFKA_NODE_ID is node.id, and so on; the environment wins.

Options:
  --config <path>  A properties file with Kafka's names.
  --check          Only check the settings.
  -h, --help       Show this message and exit.
"""

log = logging.getLogger("ottla.node")


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    config: str | None = None
    log_file: str | None = None
    ready_fd: int | None = None
    check = False
    words = iter(arguments)
    for word in words:
        if word in ("-h", "--help"):
            print(USAGE_TEXT, end="")
            return OK
        if word == "--check":
            check = True
        elif word in ("--config", "--log-file", "--ready-fd"):
            value = next(words, None)
            if value is None:
                return _fail(f"{word} needs a value", USAGE)
            if word == "--config":
                config = value
            elif word == "--log-file":
                log_file = value
            else:
                ready_fd = int(value)
        else:
            return _fail(f"unknown argument {word} (see ottla node --help)", USAGE)
    if not __debug__:
        return _fail("does not run under python -O: assertions protect the data", USAGE)
    try:
        settings = Settings.load(config, os.environ)
    except ConfigError as error:
        return _fail(str(error), USAGE)
    if check:
        print(f"{config or 'environment'}: the settings of node {settings.node_id} are right")
        return OK
    set_title(settings.node_id, config, is_fork=log_file is not None)
    return _run(settings, log_file, ready_fd)


def _take_all_descriptors() -> None:
    """Raise the limit of open files as far as allowed. Each connection takes one; without any left, opening a log file
    fails, and the node would take its disk for broken."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # macOS reports "unlimited" and accepts only a number
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _leave_no_core(settings: Settings) -> None:
    """A core file would hold the keys and passwords of a node that has any."""
    if not all(security.is_plain for security in settings.security.values()):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _fail(message: str, code: int) -> int:
    with suppress(OSError):  # where it is printed, the disk may be full
        print(f"ottla node: {message}", file=sys.stderr, flush=True)
    return code


def _begin_log(settings: Settings, file: str | None) -> None:
    """`file`: the one that standard output and error are, if they are one."""
    written = NodeLog(file, settings.ottla_log_file_max_bytes, settings.ottla_log_file_backups)
    written.setFormatter(JsonLines() if settings.ottla_log_format == "json" else TextLines())
    logging.root.addHandler(written)
    logging.root.setLevel(logging.INFO)


def _run(settings: Settings, log_file: str | None, ready_fd: int | None) -> int:
    from ottla.broker.cluster.lifecycle import RegistrationRefused
    from ottla.broker.cluster.raft_driver import QuorumFailed
    from ottla.broker.node import Node
    from ottla.log.errors import (
        CorruptCheckpoint,
        CorruptLog,
        FatalDirectory,
        LogDirError,
        WrongDirectory,
        remedy,
    )
    from ottla.raft.election_state import CorruptQuorumState
    from ottla.raft.snapshots import CorruptSnapshot
    from ottla.runtime.real import keep_for_good, real_runtime, run

    _begin_log(settings, log_file)
    _take_all_descriptors()
    _leave_no_core(settings)
    log.info(
        "node starts node=%d version=%s roles=%s listeners=%s log_dirs=%s",
        settings.node_id,
        ottla.__version__,
        ",".join(sorted(settings.process_roles)),
        ",".join(map(str, settings.listeners)),
        ",".join(settings.log_dirs),
    )
    for name in settings.ignored:
        log.info("setting has no effect here name=%s", name)

    systemd: Systemd | None = None

    def ready() -> None:
        log.info("node is ready node=%d", settings.node_id)
        if systemd is not None:
            systemd.ready()
        if ready_fd is not None:
            with suppress(BrokenPipeError):  # the process that started it no longer waits
                os.write(ready_fd, b"ready\n")
            os.close(ready_fd)
        keep_for_good()

    async def until_signalled() -> None:
        loop = asyncio.get_running_loop()
        runtime = real_runtime(loop, near=settings.uses_local_sockets)
        made = Node(settings, runtime)
        node = asyncio.ensure_future(made.run(ready))
        nonlocal systemd
        if "NOTIFY_SOCKET" in os.environ:
            systemd = _systemd(made)

        def stop(name: str) -> None:
            if node.cancelling():
                log.warning("second signal, exiting at once signal=%s", name)
                os._exit(FAILED)
            log.info("shutting down signal=%s", name)
            if systemd is not None:
                systemd.stopping()
            node.cancel(name)

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop, number.name)
        try:
            await node
        except asyncio.CancelledError:
            if not node.cancelling():
                raise
        finally:
            if systemd is not None:
                systemd.close()

    try:
        run(until_signalled())
    except ConfigError as error:
        used = isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE
        return _fail(str(error), CONFLICT if used else USAGE)
    except WrongDirectory as error:
        # It belongs to another node or process, unless the system could not read it.
        cause = error.__cause__
        if not isinstance(cause, OSError) or isinstance(cause, BlockingIOError):
            return _fail(str(error), CONFLICT)
        return _fail(f"{error}; {remedy(cause)}", FAILED)
    except (CorruptCheckpoint, CorruptLog, CorruptQuorumState, CorruptSnapshot) as error:
        return _fail(str(error), FAILED)
    except LogDirError as error:
        is_told = isinstance(error, FatalDirectory)
        return _fail(str(error) if is_told else f"{error}; {remedy(error.cause)}", FAILED)
    except (QuorumFailed, RegistrationRefused, OSError) as error:
        return _fail(str(error), FAILED)
    log.info("node stopped node=%d", settings.node_id)
    return OK


def _systemd(node: Node) -> Systemd:
    from ottla.broker.observability.health import Health
    from ottla.local.systemd import Systemd

    health = Health(node)

    def words() -> str:
        reasons = health.why_not_ready()
        return f"not ready: {'; '.join(reasons)}" if reasons else "ready"

    systemd = Systemd(os.environ, words, lambda: not health.why_dead())
    systemd.start()
    return systemd


if __name__ == "__main__":
    sys.exit(main())
