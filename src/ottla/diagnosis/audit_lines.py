"""The authorizer's lines in a node's log, read as they are written."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final, NamedTuple

_TEXT: Final = re.compile(
    r"(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}) \w+ (?P<text>Principal = .*)"
)
_DECISION: Final = re.compile(
    r"Principal = (?P<principal>.*) is (?P<verdict>Allowed|Denied) operation = "
)


class AuditEntry(NamedTuple):
    at: str
    principal: str
    allowed: bool
    text: str


def audit_entry(line: str) -> AuditEntry | None:
    """None for a line that is about something else."""
    at, text = "", ""
    if line.startswith("{"):
        try:
            told = json.loads(line)
            at, text = str(told["at"]), str(told["text"])
        except (ValueError, KeyError, TypeError):
            return None
    elif found := _TEXT.match(line):
        at, text = found["at"], found["text"]
    # The last place where it fits: a principal's name may contain the words before it.
    decision = _DECISION.match(text)
    if decision is None:
        return None
    return AuditEntry(at, decision["principal"], decision["verdict"] == "Allowed", text)


class AuditTail:
    """A log file from its beginning; each `read` gives what is new. A file that was rotated is begun again."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._position = 0
        self._inode = 0
        self._rest = b""

    def read(self) -> list[AuditEntry]:
        try:
            with open(self._file, "rb") as file:
                inode = self._file.stat().st_ino
                if inode != self._inode or self._file.stat().st_size < self._position:
                    self._inode, self._position, self._rest = inode, 0, b""
                file.seek(self._position)
                data = self._rest + file.read()
                self._position = file.tell()
        except FileNotFoundError:
            return []
        *lines, self._rest = data.split(b"\n")
        entries = (audit_entry(line.decode("utf-8", "replace")) for line in lines)
        return [each for each in entries if each is not None]
