"""The five codecs of a record batch, with a bound on the decompressed size.

A batch says nothing trustworthy about its decompressed size, so no decoder gets more memory than the caller allows:
either the output buffer is ours and grows in steps up to the limit, or the decoder takes the limit as an argument.
Output above the limit is MESSAGE_TOO_LARGE; an invalid stream is CORRUPT_MESSAGE.

Two formats have peculiarities. Java clients wrap snappy in the framing of the xerial library, librdkafka sends it
raw: both are read, the first is written. Java clients read LZ4 frames only if their blocks are independent of each
other, so the frame around the blocks is written here.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import Any

import cramjam

from ottla.runtime.seams import Buffer
from ottla.wire.errors import ErrorCode, KafkaError


class Codec(IntEnum):
    """The codec is the low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


RATIO_MAX = 1024
"""The limit of decompressed to compressed bytes, above `RATIO_FREE_BYTES`. Ordinary records stay below 100."""
RATIO_FREE_BYTES = 16 << 20
"""Below this size any ratio is allowed: an ordinary batch of one repeated byte is no attack."""

GZIP_MEMBERS_MAX = 16
"""Producers write one member. Each further one costs a copy of all that follows it, so 50,000 empty ones, which fit into a
batch, would take seconds."""

_STEP_MIN = 64 << 10
_GZIP_WINDOW = 31  # 15 bits of window, plus 16: a gzip header and trailer

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + bytes((0, 0, 0, 1, 0, 0, 0, 1))
_XERIAL_BLOCK_BYTES = 32 << 10
_INT32 = Struct(">i")

# Magic; version 1 with independent blocks and no checksums; blocks of up to 64 KiB; header checksum.
_LZ4_HEADER = bytes.fromhex("04224d18604082")
_LZ4_BLOCK_BYTES = 64 << 10
_LZ4_STORED = 1 << 31
_LZ4_END = bytes(4)


USUAL_LEVELS: dict[int, int] = {Codec.GZIP: -1, Codec.LZ4: 9, Codec.ZSTD: 3}
"""Kafka's. That of LZ4 stands for its fast compressor, which has no levels; any other one for the slow one."""


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """With the codec's usual level, unless another is given."""
    if level is None:
        level = USUAL_LEVELS.get(codec, 0)
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return zlib.compress(data, level, wbits=_GZIP_WINDOW)
        case Codec.SNAPPY:
            return _compress_snappy(memoryview(data))
        case Codec.LZ4:
            return _compress_lz4(memoryview(data), level)
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level))
    raise _unknown(codec)


def decompress(codec: int, data: Buffer, *, max_bytes: int) -> bytes:
    """All of `data` decompressed, or KafkaError: MESSAGE_TOO_LARGE above `max_bytes` or above `RATIO_MAX`,
    CORRUPT_MESSAGE if it is not a complete stream of this codec."""
    limit = min(max_bytes, max(len(data) * RATIO_MAX, RATIO_FREE_BYTES))
    match codec:
        case Codec.NONE:
            if len(data) > max_bytes:
                raise _too_large(max_bytes)
            return bytes(data)
        case Codec.GZIP:
            return _decompress_gzip(data, limit)
        case Codec.SNAPPY:
            return _decompress_snappy(bytes(data), limit)
        case Codec.LZ4:
            return _decompress_growing(cramjam.lz4.decompress_into, data, limit)
        case Codec.ZSTD:
            return _decompress_growing(cramjam.zstd.decompress_into, data, limit)
    raise _unknown(codec)


def _unknown(codec: int) -> KafkaError:
    return KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown codec {codec}")


def _too_large(limit: int) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE, f"the batch unpacks to more than {limit} bytes, the limit here"
    )


def _corrupt(codec: Codec, why: object) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"not a whole {codec.name.lower()} stream: {why}")


def _decompress_gzip(data: Buffer, limit: int) -> bytes:
    """A gzip file may consist of several members in sequence."""
    unpacked = b""
    rest: Buffer = data
    for _ in range(GZIP_MEMBERS_MAX):
        decoder = zlib.decompressobj(wbits=_GZIP_WINDOW)
        try:
            # One byte more than allowed separates "too large" from "just fits"; 0 would mean no bound.
            unpacked += decoder.decompress(rest, limit - len(unpacked) + 1)
        except zlib.error as error:
            raise _corrupt(Codec.GZIP, error) from error
        if len(unpacked) > limit:
            raise _too_large(limit)
        if not decoder.eof:
            raise _corrupt(Codec.GZIP, "it ends early")
        rest = decoder.unused_data
        if not rest:
            return unpacked
    raise _corrupt(Codec.GZIP, f"it has more than {GZIP_MEMBERS_MAX} members")


def _compress_snappy(data: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: bytes, limit: int) -> bytes:
    """Snappy blocks state their decompressed size, so the sum is known before anything is decompressed."""
    blocks = _xerial_blocks(data) if data.startswith(_XERIAL_MAGIC) else [data]
    try:
        if sum(cramjam.snappy.decompress_raw_len(block) for block in blocks) > limit:
            raise _too_large(limit)
        return b"".join(bytes(cramjam.snappy.decompress_raw(block)) for block in blocks)
    except cramjam.DecompressionError as error:
        raise _corrupt(Codec.SNAPPY, error) from error


def _xerial_blocks(data: bytes) -> list[bytes]:
    blocks = []
    position = len(_XERIAL_HEADER)
    while position < len(data):
        if len(data) - position < _INT32.size:
            raise _corrupt(Codec.SNAPPY, "it ends inside a block size")
        (size,) = _INT32.unpack_from(data, position)
        position += _INT32.size
        if not 0 <= size <= len(data) - position:
            raise _corrupt(Codec.SNAPPY, f"a block claims {size} of {len(data) - position} bytes")
        blocks.append(data[position : position + size])
        position += size
    return blocks


def _compress_lz4(data: memoryview, level: int) -> bytes:
    parts = [_LZ4_HEADER]
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        plain = data[start : start + _LZ4_BLOCK_BYTES]
        packed = _lz4_block(plain, level)
        if len(packed) < len(plain):
            parts += (len(packed).to_bytes(4, "little"), packed)
        else:
            parts += ((len(plain) | _LZ4_STORED).to_bytes(4, "little"), bytes(plain))
    parts.append(_LZ4_END)
    return b"".join(parts)


def _lz4_block(plain: memoryview, level: int) -> bytes:
    """cramjam gives its blocks no level, but its frames. The first block of a frame refers to no other."""
    if level == USUAL_LEVELS[Codec.LZ4]:
        return bytes(cramjam.lz4.compress_block(plain, store_size=False))
    frame = bytes(cramjam.lz4.compress(plain, level=level))
    begin = len(_LZ4_HEADER) + 4
    size = int.from_bytes(frame[begin - 4 : begin], "little") & ~_LZ4_STORED
    return frame[begin : begin + size]


def _decompress_growing(
    decompress_into: Callable[[Any, bytearray], int], data: Buffer, limit: int
) -> bytes:
    """LZ4 and zstd frames may omit their size, so retry with a larger buffer until it suffices. The steps
    are fourfold: all failed ones together cost less than half of the last."""
    codec = Codec.LZ4 if decompress_into is cramjam.lz4.decompress_into else Codec.ZSTD
    room = min(limit, max(_STEP_MIN, 4 * len(data)))
    while True:
        output = bytearray(room)
        try:
            size = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if "failed to write whole buffer" not in str(error):
                raise _corrupt(codec, error) from error
            if room == limit:
                raise _too_large(limit) from error
            room = min(limit, 4 * room)
        else:
            return bytes(memoryview(output)[:size])
