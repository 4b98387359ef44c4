"""PySpark's archives, with bytecode beside the sources.

Spark's Python workers import PySpark from `pyspark.zip`, which comes before everything else on their path and holds sources
only. Python writes no bytecode into an archive, so each kind of worker compiles what it imports, in every session: a
third of a second, four times one after the other before the first row of a first query.
"""

from __future__ import annotations

import marshal
import os
import tempfile
import warnings
from collections.abc import Iterator
from importlib.util import MAGIC_NUMBER, find_spec, source_hash
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

UNCHECKED = (0b01).to_bytes(4, "little")
"""Bytecode that is valid as it is: an archive is replaced as a whole."""
TESTS = "/tests/"


def archives() -> list[Path]:
    """Those that workers on this machine import from."""
    found = find_spec("pyspark")
    home = os.environ.get("SPARK_HOME") or (Path(found.origin or "").parent if found else None)
    return [] if home is None else sorted(Path(home, "python", "lib").glob("*.zip"))


def is_compiled(archive: Path) -> bool:
    """For the Python that runs this."""
    with ZipFile(archive) as file:
        some = next(_modules(file), None)
        if some is None:
            return True
        compiled = f"{some.filename}c"
        return compiled in file.namelist() and file.read(compiled).startswith(MAGIC_NUMBER)


def compile_archive(archive: Path) -> None:
    """Put another in its place. Whoever has it open keeps the old one; OSError if it may not be replaced."""
    handle, unfinished = tempfile.mkstemp(prefix=archive.name, dir=archive.parent)
    try:
        with (
            os.fdopen(handle, "wb") as stream,
            ZipFile(archive) as old,
            ZipFile(stream, "w") as new,
        ):
            modules = {each.filename for each in _modules(old)}
            for info in old.infolist():
                if info.filename.removesuffix("c") in modules and info.filename.endswith(".pyc"):
                    continue  # of another Python, perhaps
                data = old.read(info)
                new.writestr(info, data)
                if info.filename in modules and (code := _bytecode(archive, info, data)):
                    named = ZipInfo(f"{info.filename}c", info.date_time)
                    new.writestr(named, code, ZIP_DEFLATED)
        os.chmod(unfinished, archive.stat().st_mode & 0o777)
        os.replace(unfinished, archive)
    except BaseException:
        os.unlink(unfinished)
        raise


def _modules(file: ZipFile) -> Iterator[ZipInfo]:
    return (
        info
        for info in file.infolist()
        if info.filename.endswith(".py") and TESTS not in info.filename
    )


def _bytecode(archive: Path, info: ZipInfo, source: bytes) -> bytes | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            code = compile(source, f"{archive}/{info.filename}", "exec", dont_inherit=True)
        except SyntaxError:  # for another Python: whoever imports it is told so
            return None
    return MAGIC_NUMBER + UNCHECKED + source_hash(source) + marshal.dumps(code)
