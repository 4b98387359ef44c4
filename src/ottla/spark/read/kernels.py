"""The inner loop of decoding, in the subset of Python that numba compiles, and its compiler.

Nobody imports this to decode: importing numba takes a second and compiling several. `python -m ottla.spark.read.kernels PATH` does
both in a process of its own and leaves machine code at PATH, which `native.py` loads in milliseconds.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from llvmlite import binding as llvm
from numba import cfunc, int32, int64, njit, types, uint8, uint64

from ottla.spark.read.native import ENTRY, SEGMENT_FIELDS
from ottla.spark.read.rows import TIMESTAMP_MS_MAX

_RECORD_BYTES_MIN = 6  # after its length
_BYTES = types.CPointer(uint8)
_INTS = types.CPointer(int32)
_LONGS = types.CPointer(int64)


@njit(inline="always")
def _varint(data: Any, position: Any, end: Any) -> Any:
    """A zigzag number and where it ends; -1 if it does not end before `end`."""
    value = uint64(0)
    shift = uint64(0)
    while position < end and shift <= uint64(63):
        byte = uint64(data[position])
        position += 1
        value |= (byte & uint64(0x7F)) << shift
        if byte < uint64(0x80):
            return int64(value >> uint64(1)) ^ -int64(value & uint64(1)), position
        shift += uint64(7)
    return int64(0), int64(-1)


@njit(inline="always")
def _copy(data: Any, position: Any, size: Any, into: Any, at: Any) -> Any:
    for i in range(size):
        into[at + i] = data[position + i]


@njit(inline="always")
def _mark(bits: Any, row: Any) -> Any:
    bits[row >> 3] |= uint8(1 << (row & 7))


def _fill(
    data: Any, segments: Any, segment_count: Any, start: Any, end: Any,
    want_key: Any, want_value: Any, want_headers: Any,
    key_offsets: Any, key_data: Any, key_bits: Any,
    value_offsets: Any, value_data: Any, value_bits: Any,
    offsets: Any, timestamps: Any, timestamp_types: Any,
    list_offsets: Any, list_bits: Any,
    name_offsets: Any, name_data: Any, content_offsets: Any, content_data: Any, content_bits: Any,
    counts: Any,
) -> Any:  # fmt: skip
    """0, or 1 if a segment is not what its header says; which the slow decoder then tells. `counts` is a `native.Counts`."""
    row = key_size = value_size = entry = name_size = content_size = int64(0)
    key_nulls = value_nulls = list_nulls = content_nulls = high = int64(0)
    key_offsets[0] = value_offsets[0] = list_offsets[0] = int32(0)
    name_offsets[0] = content_offsets[0] = int32(0)
    for s in range(segment_count):
        position = segments[s * SEGMENT_FIELDS]
        segment_end = segments[s * SEGMENT_FIELDS + 1]
        base_offset = segments[s * SEGMENT_FIELDS + 2]
        last_offset = segments[s * SEGMENT_FIELDS + 3]
        base_timestamp = segments[s * SEGMENT_FIELDS + 4]
        append_timestamp = segments[s * SEGMENT_FIELDS + 5]
        by_broker = segments[s * SEGMENT_FIELDS + 6]
        count = segments[s * SEGMENT_FIELDS + 7]
        before = base_offset - 1
        for _ in range(count):
            size, position = _varint(data, position, segment_end)
            if position < 0 or size < _RECORD_BYTES_MIN or size > segment_end - position:
                return 1
            record_end = position + size
            delta, position = _varint(data, position + 1, record_end)
            if position < 0:
                return 1
            timestamp = append_timestamp if by_broker else base_timestamp + delta
            delta, position = _varint(data, position, record_end)
            if position < 0:
                return 1
            offset = base_offset + delta
            if offset <= before or offset > last_offset:
                return 1
            before = offset
            key_length, position = _varint(data, position, record_end)
            if position < 0 or key_length < -1 or key_length > record_end - position:
                return 1
            key_at = position
            position += max(key_length, 0)
            value_length, position = _varint(data, position, record_end)
            if position < 0 or value_length < -1 or value_length > record_end - position:
                return 1
            value_at = position
            position += max(value_length, 0)
            headers, position = _varint(data, position, record_end)
            if position < 0 or headers < 0 or headers > (record_end - position) >> 1:
                return 1
            keep = start <= offset < end
            for _ in range(headers):
                name_length, position = _varint(data, position, record_end)
                if position < 0 or name_length < 0 or name_length > record_end - position:
                    return 1
                name_at = position
                position += name_length
                length, position = _varint(data, position, record_end)
                if position < 0 or length < -1 or length > record_end - position:
                    return 1
                if keep and want_headers:
                    for i in range(name_length):
                        high |= int64(data[name_at + i]) & 0x80
                    _copy(data, name_at, name_length, name_data, name_size)
                    name_size += name_length
                    if length < 0:
                        content_nulls += 1
                    else:
                        _copy(data, position, length, content_data, content_size)
                        content_size += length
                        _mark(content_bits, entry)
                    entry += 1
                    name_offsets[entry] = int32(name_size)
                    content_offsets[entry] = int32(content_size)
                position += max(length, 0)
            if position != record_end:
                return 1
            if not keep:
                continue
            offsets[row] = offset
            if timestamp > TIMESTAMP_MS_MAX or timestamp < -TIMESTAMP_MS_MAX:
                return 1  # the decoder in Python says what is wrong
            timestamps[row] = timestamp * 1000
            timestamp_types[row] = int32(by_broker)
            if want_key:
                if key_length < 0:
                    key_nulls += 1
                else:
                    _copy(data, key_at, key_length, key_data, key_size)
                    key_size += key_length
                    _mark(key_bits, row)
                key_offsets[row + 1] = int32(key_size)
            if want_value:
                if value_length < 0:
                    value_nulls += 1
                else:
                    _copy(data, value_at, value_length, value_data, value_size)
                    value_size += value_length
                    _mark(value_bits, row)
                value_offsets[row + 1] = int32(value_size)
            if want_headers:
                if headers:
                    _mark(list_bits, row)
                else:
                    list_nulls += 1
                list_offsets[row + 1] = int32(entry)
            row += 1
        if position != segment_end:
            return 1
    told = (row, key_size, key_nulls, value_size, value_nulls, list_nulls,
            entry, name_size, content_size, content_nulls, high)  # fmt: skip
    for i in range(len(told)):
        counts[i] = told[i]
    return 0


_SIGNATURE = int64(
    _BYTES, _LONGS, int64, int64, int64,
    int64, int64, int64,
    _INTS, _BYTES, _BYTES,
    _INTS, _BYTES, _BYTES,
    _LONGS, _LONGS, _INTS,
    _INTS, _BYTES,
    _INTS, _BYTES, _INTS, _BYTES, _BYTES,
    _LONGS,
)  # fmt: skip


def machine_code() -> bytes:
    """An object file with one function, `ENTRY`, that needs nothing of numba."""
    compiled = cfunc(_SIGNATURE, nopython=True, error_model="numpy")(_fill)
    module = llvm.parse_assembly(compiled.inspect_llvm().replace(compiled.native_name, ENTRY))
    # What is around the loop for Python's sake (errors that it never raises) goes away when nobody else can call it.
    for function in module.functions:
        if not function.is_declaration and function.name != ENTRY:
            function.linkage = llvm.Linkage.internal
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        reloc="pic",
        codemodel="jitdefault",
        jit=True,
    )
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(3))
    passes.getModulePassManager().run(module, passes)
    return bytes(machine.emit_object(module))


def main() -> None:
    os.nice(10)  # somebody is decoding the slow way meanwhile
    path = sys.argv[1]
    unfinished = f"{path}.{os.getpid()}"
    with open(unfinished, "wb") as file:
        file.write(machine_code())
    os.replace(unfinished, path)


if __name__ == "__main__":
    main()
