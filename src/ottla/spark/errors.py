"""Errors for people who use the data source, in one line each.

An exception in Spark's Python workers reaches the driver as the text of its traceback. Somebody who mistyped an option wants
the last line of that: Spark leaves the rest out when its variable says so, and the worker ends with the exception anyway.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"


class SparkSourceError(Exception):
    """Says what happened, where, and what to do."""


class OptionError(SparkSourceError):
    """An option that cannot be followed."""

    def __init__(self, option: str, why: str) -> None:
        super().__init__(f"option '{option}': {why}")
        self.option = option


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """For every function that Spark calls: errors that are no bug of ours reach the driver without a traceback."""
    try:
        yield
    except SparkSourceError:
        os.environ[_HIDE_TRACEBACK] = "1"
        raise
    except Exception as error:
        # Here and not above: a worker that only looks the source up needs no client.
        from ottla.client import Unreachable
        from ottla.wire.errors import KafkaError

        if not isinstance(error, Unreachable | KafkaError | OSError):
            raise
        os.environ[_HIDE_TRACEBACK] = "1"
        raise SparkSourceError(_said(error)) from None


def _said(error: Exception) -> str:
    """The message of an error. OSError gets its type in front: a timeout has no text of its own."""
    if isinstance(error, TimeoutError):
        return f"no answer in time ({str(error) or 'kafka.request.timeout.ms'})"
    return f"{type(error).__name__}: {error}" if isinstance(error, OSError) else str(error)
