"""The launcher: a process that has imported all that a node needs, and forks the nodes.

Importing takes most of a node's start, 0.2 s a node. The launcher does it once for all nodes that a process starts,
also for those that it starts later. The nodes share that memory as long as none of them writes to it.

It reads requests from the socket that is its standard input. A request is a JSON object with the node's `config` and
`log` files, the directory to run in (`cwd`) and whether the node `outlives` the process that asked; the writing end of
a pipe comes with it. The launcher answers with the process id. The node writes `ready` into the pipe; when it has
ended, the launcher writes `ended CODE`. When the socket is closed, the launcher kills the nodes that shall not outlive
the process that asked, and ends.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
import sys
from typing import Any, NamedTuple, NoReturn

REQUEST_BYTES_MAX = 64 * 1024


class _Child(NamedTuple):
    told: int  # the pipe to the process that asked for it
    outlives: bool


def main() -> int:
    _import_all_that_a_node_needs()
    gc.collect()
    gc.freeze()  # a collection in a node would otherwise write to, and so copy, all of these pages
    control = socket.socket(fileno=os.dup(0))
    children: dict[int, _Child] = {}
    signal.signal(signal.SIGCHLD, lambda *_: _report_ended(children))
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # the process that started us decides what an interrupt means
    while True:
        data, fds, _, _ = socket.recv_fds(control, REQUEST_BYTES_MAX, 1)
        if not data:
            break
        request, told = json.loads(data), fds[0]
        # A child must not be reaped before its pid is in `children`.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        pid = os.fork()
        if pid == 0:
            control.close()
            for child in children.values():
                os.close(child.told)
            _be_node(request, told)
        children[pid] = _Child(told, request["outlives"])
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        control.sendall(b"%d\n" % pid)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for pid, child in children.items():
        if not child.outlives:
            os.kill(pid, signal.SIGKILL)
    return 0


def _import_all_that_a_node_needs() -> None:
    import ctypes  # noqa: F401 (of process_title)

    import ottla.broker.node
    import ottla.broker.observability.endpoint  # `ottla up` sets metrics.listeners
    import ottla.local.node
    import ottla.runtime.real  # noqa: F401
    from ottla.wire import messages
    from ottla.wire.apis import APIS, ApiKey

    said_while_starting = (
        ApiKey.API_VERSIONS,
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.CONTROLLER_REGISTRATION,
    )
    for key in said_while_starting:
        messages.preload(key, APIS[key].max_version)


def _report_ended(children: dict[int, _Child]) -> None:
    for pid in list(children):
        try:
            ended, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            continue  # the handler interrupted itself for another child, and has reaped this one already
        if ended:
            told = children.pop(pid).told
            with contextlib.suppress(BrokenPipeError):  # the process that asked has gone
                os.write(told, b"ended %d\n" % os.waitstatus_to_exitcode(status))
            os.close(told)


def _be_node(request: dict[str, Any], told: int) -> NoReturn:
    from ottla.local.exit_codes import CONFLICT
    from ottla.local.node import main as run_node
    from ottla.local.node_log import open_log, take_as_output

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    os.setsid()
    os.chdir(request["cwd"])
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    try:
        log = open_log(request["log"])
    except BlockingIOError:
        sys.exit(CONFLICT)  # the node runs already, and says so in that log
    take_as_output(log)
    os.close(log)
    options = ["--config", request["config"], "--log-file", request["log"], "--ready-fd", str(told)]
    sys.argv = ["ottla node", *options]
    sys.exit(run_node(options))


if __name__ == "__main__":
    sys.exit(main())
