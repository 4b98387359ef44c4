"""How commands fail: one line on stderr and an exit code (`local.exit_codes`)."""

from __future__ import annotations

from ottla.local.errors import (
    Conflict,
    DamagedCluster,
    InvalidUse,
    LocalClusterError,
    NoCluster,
    NotFound,
)
from ottla.local.exit_codes import (
    CONFLICT,
    FAILED,
    NOT_FOUND,
    OK,
    SERIOUS,
    UNREACHABLE,
    USAGE,
)

__all__ = [
    "CONFLICT",
    "FAILED",
    "NOT_FOUND",
    "OK",
    "SERIOUS",
    "UNREACHABLE",
    "USAGE",
    "Failure",
    "exit_code_of",
    "line_of",
]


class Failure(Exception):
    """The command could not do what was asked. The message is one line: what, where, what to do."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


def exit_code_of(error: LocalClusterError) -> int:
    match error:
        case InvalidUse():
            return USAGE
        case NotFound():
            return NOT_FOUND
        case Conflict():
            return CONFLICT
    return FAILED


OPTIONS = {"port": "--port", "settings": "--config", "timeout_s": "--timeout"}
"""The options behind the parameters of `local.cluster`."""


def line_of(error: LocalClusterError) -> str:
    """The error with the option or the command that helps: `local` knows neither."""
    match error:
        case NoCluster():
            return f"{error} (ottla up starts one)"
        case DamagedCluster():
            return f"{error}; ottla purge removes the cluster with all its data"
    option = OPTIONS.get(error.parameter)
    return str(error) if option is None else f"{option}: {error}"
