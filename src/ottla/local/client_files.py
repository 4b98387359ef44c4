"""placeholder"""

from __future__ import annotations

from pathlib import Path


def admin_file(directory: Path) -> Path:
    return directory / "clients" / "admin" / "java.properties"
