"""How commands fail: one line on stderr and an exit code (`local.exit_codes`)."""

from __future__ import annotations

from ottla.local.errors import Conflict, InvalidUse, LocalClusterError, NotFound
from ottla.local.exit_codes import CONFLICT, FAILED, NOT_FOUND, OK, UNREACHABLE, USAGE

__all__ = [
    "CONFLICT",
    "FAILED",
    "NOT_FOUND",
    "OK",
    "UNREACHABLE",
    "USAGE",
    "Failure",
    "exit_code_of",
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
