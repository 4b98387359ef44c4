"""`ottla node`: one node in the foreground, as every node process runs.

Three nodes on two cores are to be ready within a second and a half, so this module imports only what
a node needs: no command-line library, no client.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence

from ottla.cli.errors import FAILED, OK, USAGE
from ottla.config import ConfigError, Settings

USAGE_TEXT = """\
usage: ottla node [--config FILE] [--check]

Runs one node in the foreground, with Kafka's property names from FILE and from the environment
(KAFKA_NODE_ID is node.id, and so on; the environment wins).

  --config FILE   a Java properties file
  --check         say whether the settings are right, and stop
"""

log = logging.getLogger("ottla.node")


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    config: str | None = None
    ready_fd: int | None = None
    check = False
    words = iter(arguments)
    for word in words:
        if word in ("-h", "--help"):
            print(USAGE_TEXT, end="")
            return OK
        if word == "--check":
            check = True
        elif word in ("--config", "--ready-fd"):
            value = next(words, None)
            if value is None:
                return _fail(f"{word} needs a value", USAGE)
            if word == "--config":
                config = value
            else:
                ready_fd = int(value)
        else:
            return _fail(f"unknown argument {word} (see ottla node --help)", USAGE)
    if not __debug__:
        return _fail("refuses to run under python -O: assertions guard the data", USAGE)
    try:
        settings = Settings.load(config, os.environ)
    except ConfigError as error:
        return _fail(str(error), USAGE)
    if check:
        print(f"{config or 'environment'}: the settings of node {settings.node_id} are right")
        return OK
    return _run(settings, ready_fd)


def _fail(message: str, code: int) -> int:
    print(f"ottla node: {message}", file=sys.stderr, flush=True)
    return code


def _run(settings: Settings, ready_fd: int | None) -> int:
    from ottla.broker.lifecycle import RegistrationRefused
    from ottla.broker.node import run_node
    from ottla.log.errors import CorruptCheckpoint, CorruptLog, LogDirError, WrongDirectory
    from ottla.metadata.quorum_state import CorruptQuorumState
    from ottla.metadata.snapshots import CorruptSnapshot
    from ottla.runtime.real import real_runtime, run

    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s.%(msecs)03d %(levelname)s %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
    )
    for name in settings.ignored:
        log.info("%s is set, and has no meaning here", name)

    def ready() -> None:
        log.info("node %d is ready", settings.node_id)
        if ready_fd is not None:
            os.write(ready_fd, b"ready\n")
            os.close(ready_fd)

    async def until_signalled() -> None:
        loop = asyncio.get_running_loop()
        node = asyncio.ensure_future(run_node(settings, real_runtime(loop), ready))

        def stop(name: str) -> None:
            if node.cancelling():
                log.warning("%s again: ending at once", name)
                os._exit(FAILED)
            log.info("%s: shutting down", name)
            node.cancel(name)

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop, number.name)
        try:
            await node
        except asyncio.CancelledError:
            if not node.cancelling():
                raise

    try:
        run(until_signalled())
    except ConfigError as error:
        return _fail(str(error), USAGE)
    except (CorruptCheckpoint, CorruptLog, CorruptQuorumState, CorruptSnapshot) as error:
        return _fail(str(error), FAILED)
    except (LogDirError, RegistrationRefused, WrongDirectory, OSError) as error:
        return _fail(str(error), FAILED)
    return OK


if __name__ == "__main__":
    sys.exit(main())
