"""Every codec round-trips, reads what clients of other houses write, and refuses bombs in bounded memory."""

from __future__ import annotations

import gzip
import random
import subprocess
import sys
import zlib
from types import SimpleNamespace
from typing import Any

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.records import compression
from ottla.records.compression import (
    GZIP_MEMBERS_MAX,
    RATIO_FREE_BYTES,
    Codec,
    compress,
    decompress,
)
from ottla.wire.errors import ErrorCode, KafkaError

PACKED = [codec for codec in Codec if codec]


@given(st.sampled_from(Codec), st.binary(max_size=1000), st.integers(1, 300))
def test_unpacking_undoes_packing(codec: Codec, data: bytes, times: int) -> None:
    data *= times
    assert decompress(codec, compress(codec, data), max_bytes=len(data)) == data


@pytest.mark.parametrize(
    ("codec", "fast", "slow"), [(Codec.GZIP, 1, 9), (Codec.LZ4, 9, 12), (Codec.ZSTD, -50, 19)]
)
def test_a_slower_level_packs_tighter(codec: Codec, fast: int, slow: int) -> None:
    words = random.Random(1).choices([b"replica", b"leader", b"epoch", b"offset", b"log"], k=20_000)
    data = b" ".join(words)
    packed = compress(codec, data, slow)
    assert len(packed) < len(compress(codec, data, fast))
    assert decompress(codec, packed, max_bytes=len(data)) == data


@pytest.mark.parametrize("codec", Codec)
def test_the_limit_is_exact(codec: Codec) -> None:
    data = b"abcd" * 50_000
    packed = compress(codec, data)
    assert decompress(codec, packed, max_bytes=len(data)) == data
    with pytest.raises(KafkaError) as refused:
        decompress(codec, packed, max_bytes=len(data) - 1)
    assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", PACKED)
@given(data=st.data())
def test_cut_streams_are_corrupt(codec: Codec, data: st.DataObject) -> None:
    plain = bytes(range(256)) * 600
    packed = compress(codec, plain)
    cut = packed[: data.draw(st.integers(1, len(packed) - 1))]
    try:
        unpacked = decompress(codec, cut, max_bytes=1 << 20)
    except KafkaError as error:
        assert error.code == ErrorCode.CORRUPT_MESSAGE
    else:  # xerial framing has no end mark: a cut between its blocks shows in the record count only
        assert codec == Codec.SNAPPY
        assert plain.startswith(unpacked)


@given(st.sampled_from(PACKED), st.binary(max_size=300))
def test_arbitrary_bytes_give_a_kafka_error_or_bytes(codec: Codec, data: bytes) -> None:
    magic = {Codec.GZIP: b"\x1f\x8b\x08\0", Codec.SNAPPY: b"\x82SNAPPY\0" + bytes(8)}
    for each in (data, magic.get(codec, compress(codec, b"x")[:7]) + data):
        try:
            assert len(decompress(codec, each, max_bytes=1 << 20)) <= 1 << 20
        except KafkaError as error:
            assert error.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE)


def test_snappy_is_read_raw_as_librdkafka_sends_it() -> None:
    data = b"raw snappy " * 5000
    assert decompress(2, bytes(cramjam.snappy.compress_raw(data)), max_bytes=1 << 20) == data


def test_lz4_frames_are_read_with_linked_blocks_and_checksums_and_without_a_size() -> None:
    data = bytes(range(256)) * 2000
    assert decompress(3, bytes(cramjam.lz4.compress(data)), max_bytes=1 << 20) == data


def test_lz4_frames_are_written_as_java_clients_read_them() -> None:
    """Version 1, independent blocks, and blocks that do not shrink are stored."""
    flags = compress(Codec.LZ4, b"x" * 100)[4]
    assert flags & 0xE0 == 0x60
    noise = random.Random(1).randbytes(1000)
    assert noise in compress(Codec.LZ4, noise)


def test_gzip_members_are_read_one_after_the_other() -> None:
    packed = gzip.compress(b"one") + gzip.compress(b"two")
    assert decompress(1, packed, max_bytes=6) == b"onetwo"
    with pytest.raises(KafkaError) as refused:
        decompress(1, packed, max_bytes=5)
    assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_batch_of_empty_gzip_members_is_refused_after_a_few() -> None:
    """Each costs a copy of all that follows it: 50,000 of them took seconds of the loop."""
    made = 0

    def counted(wbits: int) -> Any:
        nonlocal made
        made += 1
        return zlib.decompressobj(wbits=wbits)

    empty = gzip.compress(b"")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            compression, "zlib", SimpleNamespace(decompressobj=counted, error=zlib.error)
        )
        assert decompress(1, empty * GZIP_MEMBERS_MAX, max_bytes=1) == b""
        made = 0
        with pytest.raises(KafkaError) as refused:
            decompress(1, empty * 50_000, max_bytes=1)
    assert refused.value.code == ErrorCode.CORRUPT_MESSAGE
    assert made <= GZIP_MEMBERS_MAX


def test_unknown_codecs_are_refused() -> None:
    for call in (lambda: compress(5, b""), lambda: decompress(7, b"", max_bytes=1)):
        with pytest.raises(KafkaError) as refused:
            call()
        assert refused.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_an_implausible_ratio_is_refused_below_the_absolute_limit() -> None:
    data = bytes(RATIO_FREE_BYTES + 1)
    with pytest.raises(KafkaError) as refused:
        decompress(4, compress(4, data), max_bytes=1 << 30)
    assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert len(decompress(4, compress(4, data[1:]), max_bytes=1 << 30)) == RATIO_FREE_BYTES


BOMB = """
import gc, resource, sys, zlib
import cramjam
from ottla.records.compression import compress, decompress
from ottla.wire.errors import ErrorCode, KafkaError
codec = int(sys.argv[1])
if codec == 1:
    packer = zlib.compressobj(wbits=31)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(1024)) + packer.flush()
elif codec == 2:
    bomb = b"\\x80\\x80\\x80\\x80\\x04" + b"\\xfe\\x01\\x00" * 1000   # says 1 GiB
else:
    module = {3: cramjam.lz4, 4: cramjam.zstd}[codec]
    bomb = bytes(module.compress(bytes(1 << 20))) * 1024
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress(codec, bomb, max_bytes=8 << 20)
except KafkaError as error:
    assert error.code == ErrorCode.MESSAGE_TOO_LARGE, error
else:
    raise SystemExit("the bomb was unpacked")
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


@pytest.mark.parametrize("codec", PACKED)
def test_a_bomb_of_one_gibibyte_is_refused_in_bounded_memory(codec: Codec) -> None:
    run = subprocess.run(
        [sys.executable, "-c", BOMB, str(int(codec))], capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) < 40, "megabytes grown while refusing, for a limit of 8"
