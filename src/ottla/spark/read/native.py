"""Decoding by machine code: compiled once per machine in the background, loaded in milliseconds ever after.

numba needs seconds to import and compile, in every Python worker of every session: too long for a first query. So what it
makes is kept as an object file, under a name that says which processor, compiler and source it is for, and loaded without
numba. As long as there is none, rows are decoded by `rows.decode`; whoever has a lot to decode starts the compiler.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.records.batch import HEADER_BYTES, RECORD_BYTES_MIN, Batch
from ottla.records.record import unpacked
from ottla.runtime.seams import Buffer
from ottla.spark.read import rows
from ottla.spark.read.rows import ByteColumn, Headers, Rows, Wanted

ENTRY: Final = "ottla_decode"
SEGMENT_FIELDS: Final = 8
_COMPILE_PATIENCE_S: Final = 120.0
_ROWS_WORTH_COMPILING: Final = 100_000
_GROUP_BYTES_MAX: Final = (1 << 31) - 1
"""Arrow counts the bytes of a column in 32 bits."""


class Counts(NamedTuple):
    """What the machine code reports."""

    rows: int
    key_bytes: int
    key_nulls: int
    value_bytes: int
    value_nulls: int
    list_nulls: int
    entries: int
    name_bytes: int
    content_bytes: int
    content_nulls: int
    high_bytes: int
    """Not 0: a header's name is not plain ASCII."""


class Decoder:
    """Decodes by machine code if there is some, else slowly; and sees to it that there will be."""

    def __init__(self, code: Path | None = None) -> None:
        self._code = code
        self._function: Any = None
        self._engine: Any = None
        self._slow_rows = 0
        self._asked = False

    def decode(self, data: Buffer, group: Sequence[Batch], wanted: Wanted) -> Rows:
        """CorruptBatch on anything malformed."""
        if self._function is None:
            self._look()
        found = None if self._function is None else self._fast(data, group, wanted)
        if found is None:
            found = rows.decode(data, group, wanted)
            self._slow_rows += found.rows
        return found

    def _look(self) -> None:
        if self._code is None:
            self._code = code_path()
        if self._code is None:
            return
        if self._code.exists():
            self._function, self._engine = load(self._code.read_bytes())
        elif self._slow_rows > _ROWS_WORTH_COMPILING and not self._asked:
            self._asked = True
            compile_in_background(self._code)

    def _fast(self, data: Buffer, group: Sequence[Batch], wanted: Wanted) -> Rows | None:
        """None: the slow one shall look at it, because it is malformed or a header's name is not ASCII."""
        if any(batch.codec for batch in group):
            bodies = [unpacked(data, batch) for batch in group]
            ends = array("q")
            total = 0
            for body in bodies:
                total += len(body)
                ends.append(total)
            starts = [0, *ends[:-1]]
            data = b"".join(bodies)
        else:
            starts = [batch.position + HEADER_BYTES for batch in group]
            ends = array("q", (batch.end for batch in group))
            total = sum(ends) - sum(starts)
        segments = array(
            "q",
            chain.from_iterable(
                (
                    start,
                    end,
                    batch.base_offset,
                    batch.last_offset,
                    batch.base_timestamp,
                    batch.max_timestamp,
                    int(batch.log_append_time),
                    batch.count,
                )
                for start, end, batch in zip(starts, ends, group, strict=True)
            ),
        )
        count = sum(batch.count for batch in group)
        if count * RECORD_BYTES_MIN > total or total > _GROUP_BYTES_MAX:
            return None
        return self._filled(data, segments, count, total, wanted)

    def _filled(
        self, data: Buffer, segments: array[int], most: int, size: int, wanted: Wanted
    ) -> Rows | None:
        """`most` rows and `size` bytes bound every column. What is not touched of the buffers costs nothing."""
        import numpy

        def ints(count: int) -> Any:
            return numpy.empty(count, numpy.int32)

        def longs(count: int) -> Any:
            return numpy.empty(count, numpy.int64)

        def block(count: int) -> Any:
            return numpy.empty(count, numpy.uint8)

        def bits(count: int) -> Any:
            return numpy.zeros(-(-count // 8), numpy.uint8)

        none = block(1)
        entries = size // 2 if wanted.headers else 0
        key = [ints(most + 1), block(size) if wanted.key else none, bits(most)]
        value = [ints(most + 1), block(size) if wanted.value else none, bits(most)]
        offset, timestamp, kind = longs(most), longs(most), ints(most)
        lists = [ints(most + 1), bits(most)]
        names = [ints(entries + 1), block(size) if wanted.headers else none]
        contents = [ints(entries + 1), block(size) if wanted.headers else none, bits(entries + 1)]
        told = array("q", [0]) * len(Counts._fields)
        outcome = self._function(
            numpy.frombuffer(data, numpy.uint8).ctypes.data,
            segments.buffer_info()[0],
            len(segments) // SEGMENT_FIELDS,
            wanted.start,
            wanted.end,
            wanted.key,
            wanted.value,
            wanted.headers,
            *(
                each.ctypes.data
                for each in (*key, *value, offset, timestamp, kind, *lists, *names, *contents)
            ),
            told.buffer_info()[0],
        )
        counts = Counts(*told)
        if outcome != 0 or counts.high_bytes:
            return None

        def column(made: list[Any], rows: int, size: int, nulls: int) -> ByteColumn:
            return ByteColumn(
                made[0][: rows + 1], made[1][:size], made[2] if nulls else None, nulls
            )

        headers = None
        if wanted.headers:
            headers = Headers(
                lists[0][: counts.rows + 1],
                lists[1] if counts.list_nulls else None,
                counts.list_nulls,
                counts.entries,
                column([*names, None], counts.entries, counts.name_bytes, 0),
                column(contents, counts.entries, counts.content_bytes, counts.content_nulls),
            )
        return Rows(
            counts.rows,
            column(key, counts.rows, counts.key_bytes, counts.key_nulls) if wanted.key else None,
            column(value, counts.rows, counts.value_bytes, counts.value_nulls)
            if wanted.value
            else None,
            offset[: counts.rows],
            timestamp[: counts.rows],
            kind[: counts.rows],
            headers,
        )


# -- where machine code is kept


def code_path() -> Path | None:
    """Named by all that it depends on; None if numba is not installed. The directory is ours alone: what lies there is
    executed."""
    numba = find_spec("numba")
    if numba is None or numba.origin is None:
        return None
    import llvmlite
    from llvmlite import binding as llvm

    # Not importlib.metadata: it would take longer than all the rest.
    source = Path(__file__).with_name("kernels.py").read_bytes()
    source += Path(numba.origin).with_name("_version.py").read_bytes()
    told = (
        llvmlite.__version__,
        llvm.get_default_triple(),
        llvm.get_host_cpu_name(),
        llvm.get_host_cpu_features().flatten(),
    )
    name = hashlib.sha256(source + "\n".join(told).encode()).hexdigest()[:32]
    return _directory() / f"{name}.o"


def _directory() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    for candidate in (Path(home) / "ottla", Path(tempfile.gettempdir()) / f"ottla-{os.getuid()}"):
        try:
            candidate.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            continue
        status = candidate.stat()
        if status.st_uid == os.getuid() and not status.st_mode & 0o022:
            return candidate
    return Path(tempfile.mkdtemp(prefix="ottla-"))


def _compiler(code: Path) -> list[str]:
    return [sys.executable, "-m", "ottla.spark.read.kernels", str(code)]


def compile_now() -> bool:
    """Whether there is machine code now; not without numba."""
    code = code_path()
    if code is not None and not code.exists():
        subprocess.run(_compiler(code), check=True)
    return code is not None


def compile_in_background(code: Path) -> None:
    """At most one compiler at a time; one that did not finish is forgotten after a while."""
    lock = code.with_suffix(".lock")
    try:
        if time.time() - lock.stat().st_mtime < _COMPILE_PATIENCE_S:
            return
        lock.unlink(missing_ok=True)
    except FileNotFoundError:
        pass
    try:
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return
    subprocess.Popen(
        _compiler(code),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def load(code: bytes) -> tuple[Any, Any]:
    """The function, and what must live as long as it."""
    from llvmlite import binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    arguments = [ctypes.c_void_p] * 2 + [ctypes.c_int64] * 6 + [ctypes.c_void_p] * 17
    function = ctypes.CFUNCTYPE(ctypes.c_int64, *arguments)(engine.get_function_address(ENTRY))
    return function, engine
