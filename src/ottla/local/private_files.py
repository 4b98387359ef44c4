"""Files with secrets: 0600 in directories of 0700, and never half written."""

from __future__ import annotations

import os
from pathlib import Path

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700


def private_directory(path: Path) -> Path:
    """Make it, or close it to others."""
    path.mkdir(parents=True, exist_ok=True, mode=DIRECTORY_MODE)
    path.chmod(DIRECTORY_MODE)
    return path


def write_private(path: Path, content: str | bytes) -> None:
    """A reader sees the old content or the new one. Nobody else can open the file, not even while it is written."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    data = content.encode() if isinstance(content, str) else content
    with os.fdopen(
        os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE), "wb"
    ) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
