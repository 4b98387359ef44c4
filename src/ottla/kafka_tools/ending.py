"""How a tool ends: what it says of an error, and its exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable

from ottla.kafka_tools.java import message_of
from ottla.kafka_tools.options import ToolError
from ottla.wire.errors import KafkaError


def ended(tool: Callable[[], int]) -> int:
    """The exit code of a tool. What it raises is said on standard error."""
    try:
        return tool()
    except ToolError as error:
        print(error, file=sys.stderr)
    except Exception as error:
        text = said(error)
        if text is None:
            raise
        print(text, file=sys.stderr)
    return 1


def said(error: Exception) -> str | None:
    """What a person reads of an error; None if it must be a bug of ours."""
    if isinstance(error, KafkaError):
        return message_of(error)
    if isinstance(error, BrokenPipeError):
        return None  # nobody reads any more: `names.run` ends the tool
    if isinstance(error, TimeoutError):
        return "the cluster did not answer in time"
    if isinstance(error, (OSError, ToolError)):
        return str(error)
    # Imported here: a tool that reads files has no client.
    from ottla.client.connections import Unreachable

    if isinstance(error, Unreachable):
        return f"{error}; is the cluster up, is --bootstrap-server right, does it want TLS or a login (--command-config)?"
    return None
