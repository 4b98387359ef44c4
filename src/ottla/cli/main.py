"""The `ottla` command: from the words on the command line to an exit code.

`ottla node` does not load the command-line library, which a node does not need; nor does `ottla top`, which shall be there at once.
All others are in `commands`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from ottla.cli.errors import (
    CONFLICT,
    FAILED,
    NOT_FOUND,
    UNREACHABLE,
    USAGE,
    Failure,
    exit_code_of,
    line_of,
)
from ottla.local.errors import LocalClusterError

WHO_RUNS = "ottla status shows which nodes run, ottla doctor what is wrong"


def main() -> None:
    if sys.argv[1:2] == ["node"]:
        from ottla.local.node import main as run_node

        sys.exit(run_node(sys.argv[2:]))

    if sys.argv[1:2] and sys.argv[1].startswith("kafka-"):
        # These have options and exit codes of their own, and start without the command-line library.
        from ottla.kafka_tools.names import run, tool_of

        name = tool_of(sys.argv[1])
        if name is not None:
            sys.exit(run(name, sys.argv[2:]))
        if sys.argv[1].removesuffix(".sh") == "kafka-acls":
            sys.exit("ottla has no kafka-acls: ottla acls add, list, remove and test do it (Apache Kafka's tool works, too)")  # fmt: skip

    if sys.argv[1:2] == ["top"]:
        from ottla.cli.top_run import plain_options, run_top

        options = plain_options(sys.argv[2:])
        if options is not None:
            sys.exit(_code_of(lambda: run_top(options)))

    if sys.argv[1:2] == ["up"] and not {"-h", "--help"} & set(sys.argv):
        from ottla.local.processes import Launcher

        Launcher.get()  # imports what nodes need, while this process imports what commands need

    from ottla.cli.commands import app

    sys.exit(_code_of(lambda: app(prog_name="ottla")))  # also as python -m


def _code_of(command: Callable[[], object]) -> int:
    """The exit code. How it failed is said on stderr."""
    try:
        command()
    except Failure as failure:
        code, message = failure.code, str(failure)
    except LocalClusterError as error:
        code, message = exit_code_of(error), line_of(error)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        explained = explain(error)
        if explained is None:
            raise
        code, message = explained
    else:
        return 0
    from ottla.wire.printable import printable

    print("\n".join(map(printable, f"ottla: {message}".split("\n"))), file=sys.stderr)
    return code


def explain(error: Exception) -> tuple[int, str] | None:
    """Exit code and message for an error of the cluster; None for an error that must be a bug of ours."""
    from ottla.client import Unreachable
    from ottla.client.connections import SecurityRefused
    from ottla.wire.errors import ErrorCode, KafkaError

    if isinstance(error, SecurityRefused):
        return FAILED, f"{error} (--command-config says how to log in)"
    if isinstance(error, Unreachable):
        return UNREACHABLE, f"{error}; is the cluster up (ottla status), is --bootstrap right?"
    if isinstance(error, TimeoutError):
        return UNREACHABLE, f"the cluster did not answer in time (--timeout); {WHO_RUNS}"
    if isinstance(error, ConnectionError):
        return UNREACHABLE, str(error)
    if isinstance(error, KafkaError):
        codes = {
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: NOT_FOUND,
            ErrorCode.UNKNOWN_TOPIC_ID: NOT_FOUND,
            ErrorCode.TOPIC_ALREADY_EXISTS: CONFLICT,
            ErrorCode.INVALID_CONFIG: USAGE,
            ErrorCode.INVALID_TOPIC_EXCEPTION: USAGE,
            ErrorCode.INVALID_PARTITIONS: USAGE,
            ErrorCode.INVALID_REPLICATION_FACTOR: USAGE,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT: USAGE,
        }
        lacks_nodes = (
            ErrorCode.LEADER_NOT_AVAILABLE,
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            ErrorCode.REQUEST_TIMED_OUT,
        )
        forbidden = (
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        )
        advice = f"; {WHO_RUNS}" if error.code in lacks_nodes else ""
        if error.code in forbidden:
            advice = "; an admin sees why by: ottla acls test USER OPERATION NAME"
        return codes.get(error.code, FAILED), f"{error}{advice}"
    return None


if __name__ == "__main__":
    main()
