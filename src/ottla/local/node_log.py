"""A node's log: one line for each event, a fixed text first and then key=value; or one JSON object a line.

Both come from the same call. In `logger.info("ISR changed partition=%s-%d isr=%s", …)` the fixed text is what stands
before the first key; a value that has blanks is quoted, and a long one is cut: names come from strangers. `NodeLog` writes the lines, and rotates the file that they go
to. It never fails: a full disk costs lines, not the node.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import time
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

STDOUT, STDERR = 1, 2
VALUE_CHARACTERS = 2000
"""Of a longer value a line has the beginning. Nobody reads more, and a stranger could send a megabyte."""

_FIELD = re.compile(r"\s(\w+)=(\S+)")
_CONVERSION = re.compile(r"%(?!%)[-+ #0]*\d*(?:\.\d+)?[a-zA-Z]")
_NEEDS_QUOTES = re.compile(r'[\s"]|^$')


class _Field(NamedTuple):
    key: str
    format: str
    places: int
    """How many values the format takes."""


class LineTemplate(NamedTuple):
    text: str
    fields: tuple[_Field, ...]


@cache
def template(format: str) -> LineTemplate | None:
    """A format in two parts; None if it is not a fixed text that is followed by fields alone."""
    found = list(_FIELD.finditer(format))
    start = found[0].start() if found else len(format)
    rest = _FIELD.sub("", format[start:])
    if _CONVERSION.search(format[:start]) or rest.strip():
        return None
    fields = tuple(
        _Field(each[1], each[2], len(_CONVERSION.findall(each[2].replace("%%", ""))))
        for each in found
    )
    return LineTemplate(format[:start].replace("%%", "%"), fields)


def parts(record: logging.LogRecord) -> tuple[str, dict[str, Any]]:
    """The fixed text and the fields of a line. Numbers stay numbers. A line of another library is all text."""
    arguments = record.args if isinstance(record.args, tuple) else ()
    found = template(record.msg) if isinstance(record.msg, str) else None
    if found is None or sum(field.places for field in found.fields) != len(arguments):
        return _cut(record.getMessage()), {}
    fields: dict[str, Any] = {}
    position = 0
    for field in found.fields:
        values = arguments[position : position + field.places]
        position += field.places
        is_number = len(values) == 1 and isinstance(values[0], int | float)
        whole = field.format in ("%s", "%d", "%g", "%r")
        fields[field.key] = values[0] if is_number and whole else _cut(field.format % values)
    return found.text, fields


def _cut(text: str) -> str:
    if len(text) <= VALUE_CHARACTERS:
        return text
    return f"{text[:VALUE_CHARACTERS]}… ({len(text)} characters)"


def quoted(value: object) -> str:
    """As it is if it has no blanks; else as JSON writes it, on one line."""
    text = str(value)
    if text.isprintable() and not _NEEDS_QUOTES.search(text):
        return text
    return _json(text, ascii_only=not text.isprintable())


def _json(value: object, *, ascii_only: bool = False) -> str:
    import json  # when the first line needs it: a node starts without it

    return json.dumps(value, ensure_ascii=ascii_only)


class TextLines(logging.Formatter):
    """`2026-11-16 17:31:41.465 INFO ISR changed partition=orders-0 isr=1,2 cause="it is slow"`"""

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03d %(levelname)s %(message)s", "%Y-%m-%d %H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:
        text, fields = parts(record)
        record.message = " ".join([text, *(f"{key}={quoted(fields[key])}" for key in fields)])
        return super().formatMessage(record)


class JsonLines(logging.Formatter):
    """One object a line: at, level, logger, text, fields, and trace after an exception."""

    def format(self, record: logging.LogRecord) -> str:
        text, fields = parts(record)
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "at": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "text": text,
            "fields": fields,
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return _json(line)


class NodeLog(logging.Handler):
    """Writes to standard error. With a `path`, standard output and error are that file, and it is rotated: the file with
    the highest number is the oldest."""

    def __init__(self, path: str | None, bytes_max: int, backups: int) -> None:
        super().__init__()
        self._path = path
        self._bytes_max = bytes_max
        self._backups = backups
        self._dropped = 0
        self._is_torn = False
        """Whether only a part of the last line is in the file."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception:
            self.handleError(record)
            return
        if self._dropped:
            line = f"{line}\n{self._line_about_dropped(record)}"
        data = f"{line}\n".encode(errors="backslashreplace")
        if self._is_torn:
            data = b"\n" + data
        try:
            self._rotate_before(len(data))
            written = os.write(STDERR, data)
        except OSError:
            written = 0
        self._is_torn = 0 < written < len(data)
        self._dropped = 0 if written == len(data) else self._dropped + 1

    def _line_about_dropped(self, record: logging.LogRecord) -> str:
        about = "log lines could not be written count=%d"
        return self.format(
            logging.LogRecord(__name__, logging.WARNING, "", 0, about, (self._dropped,), None)
        )

    def _rotate_before(self, more: int) -> None:
        if self._path is None or not self._bytes_max:
            return
        size = os.fstat(STDERR).st_size
        if size and size + more > self._bytes_max:
            with suppress(OSError):  # then it goes on growing, which is better than to stop
                self._rotate(self._path)

    def _rotate(self, path: str) -> None:
        """The new file first: if the disk has no room for it, nothing has changed."""
        new = open_log(f"{path}.new")
        try:
            for number in range(self._backups, 0, -1):
                newer = path if number == 1 else f"{path}.{number - 1}"
                with suppress(FileNotFoundError):
                    os.replace(newer, f"{path}.{number}")
            os.replace(f"{path}.new", path)
            take_as_output(new)
        finally:
            os.close(new)


def open_log(path: str) -> int:
    """A file that only this process writes. BlockingIOError if another one does."""
    opened = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(opened)
        raise
    return opened


def take_as_output(opened: int) -> None:
    """Standard output and error go there from now on, also what the interpreter itself prints."""
    for target in (STDOUT, STDERR):
        os.dup2(opened, target)
