"""A small batch that unpacks to very much: stored as it is, and never opened to its end by a broker."""

from __future__ import annotations

from dataclasses import replace

import pytest
from crc32c import crc32c
from logkit import SMALL, batch_of, new_log, sim_disk

from ottla.log import unpacking
from ottla.log.config import LogConfig
from ottla.records.batch import CRC_START, HEADER, HEADER_BYTES, LENGTH_END, MAGIC
from ottla.records.compression import compress
from ottla.wire.errors import ErrorCode, KafkaError

BIG = replace(SMALL, max_message_bytes=1 << 20, segment_bytes=1 << 24)


def bomb(codec: int, unpacked: bytes, count: int, newest: int = 1000) -> memoryview:
    """A batch whose header and CRC are right, whatever is inside."""
    packed = compress(codec, unpacked)
    size = HEADER_BYTES + len(packed)
    fields = (codec, count - 1, newest, newest, -1, -1, -1, count)
    head = HEADER.pack(0, size - LENGTH_END, -1, MAGIC, 0, *fields)
    crc = crc32c(head[CRC_START:] + packed)
    return memoryview(
        bytearray(HEADER.pack(0, size - LENGTH_END, -1, MAGIC, crc, *fields) + packed)
    )


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "config",
    [
        replace(BIG, cleanup_policy=("compact",)),
        replace(BIG, compression_type="uncompressed"),
    ],
    ids=["compacted", "packed anew"],
)
def test_a_batch_that_unpacks_to_too_much_is_too_large_where_it_must_be_opened(
    codec: int, config: LogConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacking, "BYTES_MAX", 1 << 20)
    log = new_log(sim_disk(), config)
    with pytest.raises(KafkaError) as refused:
        log.append_as_leader(bomb(codec, bytes(2 << 20), 1), 0, 1000)
    assert ErrorCode.MESSAGE_TOO_LARGE == refused.value.code == 10
    assert log.log_end == 0


def test_a_batch_of_too_many_records_is_too_large_where_it_must_be_opened() -> None:
    log = new_log(sim_disk(), replace(BIG, cleanup_policy=("compact",)))
    with pytest.raises(KafkaError) as refused:
        log.append_as_leader(bomb(4, bytes(8 << 20), unpacking.RECORDS_MAX + 1), 0, 1000)
    assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_an_ordinary_topic_stores_it_and_a_search_by_time_does_not_open_it() -> None:
    log = new_log(sim_disk(), BIG)
    log.append_as_leader(batch_of(3, timestamp=500), 0, 1000)
    log.append_as_leader(bomb(4, bytes(8 << 20), unpacking.RECORDS_MAX + 1, newest=900), 0, 1000)
    log.advance_high_watermark(log.log_end)
    assert log.offset_for_timestamp(500, log.log_end) == (500, 0)
    assert log.offset_for_timestamp(800, log.log_end) == (900, 3), "its first offset, at the latest"
    assert log.max_timestamp_offset(log.log_end) == (900, 3)
    assert log.offset_for_timestamp(901, log.log_end) is None
