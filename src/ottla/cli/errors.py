"""How commands fail: one line on stderr and an exit code that scripts can rely on.

| code | meaning |
|---|---|
| 0 | done |
| 1 | tried and failed |
| 2 | wrong usage or wrong settings; nothing was done |
| 3 | what was named does not exist |
| 4 | nobody answers at that address |
| 5 | conflict: it exists already, is in use, or belongs to another |
"""

from __future__ import annotations

from typing import Final

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
NOT_FOUND: Final = 3
UNREACHABLE: Final = 4
CONFLICT: Final = 5


class Failure(Exception):
    """The command could not do what was asked. The message is one line: what, where, what to do."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code
