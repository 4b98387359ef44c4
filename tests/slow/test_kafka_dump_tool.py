"""Kafka's own DumpLogSegments reads our segments, indexes and producer snapshots, and finds what we wrote."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from struct import pack
from uuid import UUID

import pytest

from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.resources import LogResources
from ottla.records.batch import batches, read_batch
from ottla.records.compression import Codec
from ottla.records.record import ControlType, Record, build, control_batch
from ottla.runtime.files import RealDisk
from ottla.wire.errors import KafkaError
from support.kafka_dump import DumpedBatch, dump, dump_batches, dump_rows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first one installs Kafka

CONFIG = LogConfig(
    segment_bytes=2500,
    index_interval_bytes=300,
    max_message_bytes=2400,
    retention_ms=-1,
    file_delete_delay_ms=0,
)
START_MS = 1_700_000_000_000


@dataclass
class Expected:
    """One batch as the tool should show it."""

    base_offset: int
    records: list[Record]
    codec: str = "none"
    epoch: int = 0
    producer: tuple[int, int, int] = (-1, -1, -1)
    """Producer id, producer epoch, base sequence."""
    transactional: bool = False
    log_append_time: int | None = None
    marker: str | None = None


@dataclass
class Writer:
    """Appends to a log and remembers what should be in it."""

    log: Log
    now_ms: int = START_MS
    written: list[Expected] = field(default_factory=list)

    def records(self, count: int) -> list[Record]:
        """Of every shape: with and without key, value and headers, some older than the ones before."""
        first = self.log.log_end
        made = []
        for i in range(count):
            number = first + i
            self.now_ms += 7
            made.append(
                Record(
                    i,
                    self.now_ms - (100 if number % 5 == 3 else 0),
                    None if number % 4 == 1 else f"key-{number}".encode(),
                    None if number % 7 == 2 else f"value-{number}-{'abc' * (number % 9)}".encode(),
                    (("trace", b"\x00\x01"), ("empty", None)) if number % 3 == 0 else (),
                )
            )
        return made

    def append(
        self,
        count: int,
        *,
        codec: int = 0,
        epoch: int,
        producer: tuple[int, int, int] = (-1, -1, -1),
        transactional: bool = False,
    ) -> int:
        records = self.records(count)
        producer_id, producer_epoch, sequence = producer
        batch = build(
            records,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
        self.now_ms += 1
        done = self.log.append_as_leader(memoryview(batch), epoch, self.now_ms)
        assert not done.duplicate
        stamp = None if done.log_append_time_ms < 0 else done.log_append_time_ms
        self.written.append(
            Expected(
                done.base_offset,
                [replaced(record, offset=done.base_offset + record.offset) for record in records],
                Codec(codec).name.lower(),
                epoch,
                producer,
                transactional,
                stamp,
            )
        )
        return done.base_offset

    def end_transaction(self, kind: ControlType, *, epoch: int, producer: tuple[int, int]) -> None:
        self.now_ms += 1
        marker = control_batch(
            [(kind, pack(">hi", 0, 5))],
            timestamp=self.now_ms,
            producer_id=producer[0],
            producer_epoch=producer[1],
            transactional=True,
        )
        base = self.log.append_control(marker, epoch, self.now_ms).base_offset
        self.written.append(
            Expected(
                base,
                [Record(base, self.now_ms)],
                epoch=epoch,
                producer=(*producer, -1),
                transactional=True,
                marker=kind.name,
            )
        )

    def truncate_to(self, offset: int) -> None:
        self.log.truncate_to(offset)
        self.written = [batch for batch in self.written if batch.base_offset < self.log.log_end]

    def expire_head(self, log_start: int) -> None:
        """DeleteRecords, and then retention, which drops whole segments."""
        self.log.advance_high_watermark(self.log.log_end)
        self.log.advance_log_start(log_start)
        before = len(self.log.segment_bases)
        assert self.log.delete_old_segments(self.now_ms) > 0
        assert 1 < len(self.log.segment_bases) < before
        first = self.log.segment_bases[0]
        assert first < log_start, "the segment that holds the start stays whole"
        self.written = [batch for batch in self.written if batch.base_offset >= first]


def replaced(record: Record, *, offset: int) -> Record:
    return record._replace(offset=offset)


def new_writer(directory: Path) -> Writer:
    log = Log.create(
        LogResources(RealDisk()),
        str(directory),
        "t",
        0,
        CONFIG,
        topic_id=UUID(int=77),
        now_ms=START_MS,
    )
    return Writer(log)


def write_history(writer: Writer) -> None:
    """A partition's life: all codecs, idempotent and transactional producers, changes of leader,
    truncation, other settings, retention."""
    for codec in Codec:
        for _ in range(4):
            writer.append(12, codec=codec, epoch=0)
    sequence = 0
    for codec in map(Codec, (0, 4, 2, 0, 3, 1, 0, 0)):
        producer = (1000, 0, sequence)
        base = writer.append(6, codec=codec, epoch=2, producer=producer)
        sequence += 6
    retried = build(
        [Record(i, 1) for i in range(6)],
        producer_id=1000,
        producer_epoch=0,
        base_sequence=sequence - 6,
    )
    answer = writer.log.append_as_leader(memoryview(retried), 2, writer.now_ms)
    assert answer.duplicate and answer.base_offset == base, "a retry is answered, not written"
    for _ in range(30):
        writer.append(3, epoch=3)
    writer.truncate_to(writer.log.log_end - 50)  # a new leader never had the end of it
    writer.append(5, epoch=5, producer=(1000, 1, 0))
    writer.append(5, epoch=5, producer=(1001, 0, 2**31 - 3))  # its sequence wraps
    writer.append(4, epoch=6, producer=(2000, 3, 0), transactional=True)
    writer.end_transaction(ControlType.COMMIT, epoch=6, producer=(2000, 3))
    writer.append(4, epoch=6, producer=(2000, 3, 4), transactional=True)  # stays open
    config = writer.log.config
    writer.log.config = replace(config, message_timestamp_type="LogAppendTime")
    for codec in Codec:
        writer.append(4, codec=codec, epoch=7)
    writer.log.config = config
    for codec in Codec:
        for _ in range(3):
            writer.append(9, codec=codec, epoch=9)
    writer.expire_head(writer.log.segment_bases[2] + 5)


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Writer:
    """A log with a history, cleanly closed."""
    writer = new_writer(tmp_path_factory.mktemp("closed"))
    write_history(writer)
    writer.log.close(clean=True)
    return writer


def files(log: Log, suffix: str) -> list[Path]:
    return sorted(Path(log.path).glob(f"*{suffix}"))


def check_batches(dumped: list[DumpedBatch], written: list[Expected]) -> None:
    assert [batch["baseOffset"] for batch in dumped] == [batch.base_offset for batch in written]
    for batch, expected in zip(dumped, written, strict=True):
        producer_id, producer_epoch, sequence = expected.producer
        assert (batch["producerId"], batch["producerEpoch"]) == (producer_id, producer_epoch)
        assert batch["baseSequence"] == sequence
        assert batch["partitionLeaderEpoch"] == expected.epoch
        assert batch.codec == expected.codec
        assert batch.is_transactional == expected.transactional
        assert batch.is_control == (expected.marker is not None)
        newest = max(record.timestamp for record in expected.records)
        if expected.log_append_time is None:
            assert batch["CreateTime"] == newest
        else:
            assert batch["LogAppendTime"] == expected.log_append_time
        for record, wanted in zip(batch.records, expected.records, strict=True):
            assert record.offset == wanted.offset
            assert record.timestamp == (expected.log_append_time or wanted.timestamp)
            if sequence >= 0:
                delta = wanted.offset - expected.base_offset
                assert record.sequence == (sequence + delta) % 2**31
            if expected.marker is not None:
                assert record.control == expected.marker
                assert record.content == {"coordinatorEpoch": 5}
                continue
            assert record.header_keys == [name for name, _ in wanted.headers]
            assert (record.key_size < 0) == (wanted.key is None)
            assert record.key == (None if wanted.key is None else wanted.key.decode())
            assert (record.value_size < 0) == (wanted.value is None)
            assert record.payload == (None if wanted.value is None else wanted.value.decode())


def check_indexes(log: Log) -> None:
    indexes = files(log, ".index") + files(log, ".timeindex")
    assert len(indexes) == 2 * len(log.segment_bases)
    sane = dump(*indexes, options=("--index-sanity-check",))
    for index in indexes:
        empty = f"{index} is empty." in sane
        assert f"{index} passed sanity check." in sane or empty
        if index.with_suffix(".log").stat().st_size > 2 * CONFIG.index_interval_bytes:
            assert not empty, f"{index} has no row for a segment of several intervals"
    dump(*indexes, options=("--verify-index-only",))


def test_kafka_reads_every_record_as_it_was_written(closed: Writer) -> None:
    segments = files(closed.log, ".log")
    assert len(segments) > 3
    assert [int(segment.stem) for segment in segments] == closed.log.segment_bases
    assert {batch.codec for batch in closed.written} == {codec.name.lower() for codec in Codec}
    check_batches(dump_batches(*segments), closed.written)


def test_kafka_finds_the_indexes_in_agreement_with_the_log(closed: Writer) -> None:
    check_indexes(closed.log)


def test_kafka_finds_a_time_index_that_ends_with_the_newest_record(closed: Writer) -> None:
    """As Kafka's own does: the last row of a finished segment carries its largest timestamp."""
    for path in files(closed.log, ".timeindex"):
        newest = max(
            batch.max_timestamp for batch in batches(path.with_suffix(".log").read_bytes())
        )
        rows = dump_rows(path)
        assert rows and rows[-1]["timestamp"] == newest, path


def test_kafka_reads_the_producers_from_the_snapshot_of_a_clean_close(closed: Writer) -> None:
    newest = files(closed.log, ".snapshot")[-1]
    assert int(newest.stem) == closed.log.log_end
    found = {row["producerId"]: row for row in dump_rows(newest)}
    assert sorted(found) == [1000, 1001, 2000]
    for producer_id, row in found.items():
        last = [
            batch
            for batch in closed.written
            if batch.producer[0] == producer_id and batch.marker is None
        ][-1]
        _, epoch, sequence = last.producer
        delta = len(last.records) - 1
        assert row["producerEpoch"] == epoch
        assert row["lastSequence"] == (sequence + delta) % 2**31
        assert row["firstSequence"] == sequence
        assert row["lastOffset"] == last.records[-1].offset
        assert row["offsetDelta"] == delta
        assert row["lastTimestamp"] == max(record.timestamp for record in last.records)
        open_since = last.base_offset if last.transactional else -1
        assert row["currentTxnFirstOffset"] == open_since
        assert row["coordinatorEpoch"] == (5 if last.transactional else -1)


def test_kafka_reads_every_older_producer_snapshot(closed: Writer) -> None:
    snapshots = files(closed.log, ".snapshot")
    assert len(snapshots) > 2, "one at each roll"
    dump(*snapshots)


def test_kafka_reads_what_a_follower_copied(closed: Writer, tmp_path: Path) -> None:
    leader, log = closed.log, new_writer(tmp_path).log
    log.truncate_fully(leader.segment_bases[0])
    for segment in files(leader, ".log"):
        log.append_as_follower(memoryview(segment.read_bytes()), 99)
    log.close(clean=True)
    check_batches(dump_batches(*files(log, ".log")), closed.written)
    check_indexes(log)
    assert dump_rows(files(log, ".snapshot")[-1]), "the producers are known there too"


def test_kafka_reads_what_recovery_left_of_a_torn_log(tmp_path: Path) -> None:
    writer = new_writer(tmp_path)
    write_history(writer)
    writer.log.flush()
    writer.append(9, epoch=9)
    writer.log.close(clean=False)
    segment = files(writer.log, ".log")[-1]
    with segment.open("r+b") as file:
        file.truncate(segment.stat().st_size - 10)
    for index in files(writer.log, ".index") + files(writer.log, ".timeindex"):
        index.unlink()
    log = Log.open(
        LogResources(RealDisk()),
        str(tmp_path),
        "t",
        0,
        CONFIG,
        recovery_point=0,
        log_start=writer.log.log_start,
        clean=False,
        now_ms=writer.now_ms,
    )
    del writer.written[-1]
    log.close(clean=True)
    check_batches(dump_batches(*files(log, ".log")), writer.written)
    check_indexes(log)


def test_kafka_reads_a_log_that_was_cut_within_a_segment_and_reopened(tmp_path: Path) -> None:
    writer = new_writer(tmp_path)
    write_history(writer)
    middle = read_batch(files(writer.log, ".log")[-2].read_bytes(), 0).base_offset + 20
    writer.truncate_to(middle)
    writer.log.close(clean=True)
    log = Log.open(
        LogResources(RealDisk()),
        str(tmp_path),
        "t",
        0,
        CONFIG,
        recovery_point=writer.log.log_end,
        log_start=writer.log.log_start,
        clean=True,
        now_ms=writer.now_ms,
    )
    writer.log = log
    for _ in range(10):
        writer.append(6, epoch=12)
    with pytest.raises(KafkaError):  # and what is refused leaves no trace
        writer.append(1, epoch=12, producer=(1000, 0, 5))
    log.close(clean=True)
    check_batches(dump_batches(*files(log, ".log")), writer.written)
    check_indexes(log)
    dump(*files(log, ".snapshot"))


@pytest.mark.parametrize(
    ("suffix", "position", "option"),
    [
        (".log", 100, "--print-data-log"),
        (".index", 3, "--verify-index-only"),
        (".timeindex", 7, "--verify-index-only"),
        (".snapshot", 20, "--deep-iteration"),
    ],
)
def test_the_tool_notices_one_wrong_byte(
    closed: Writer, tmp_path: Path, suffix: str, position: int, option: str
) -> None:
    """So that its silence in the other tests means something."""
    copy = tmp_path / "t-0"
    shutil.copytree(closed.log.path, copy)
    path = sorted(copy.glob(f"*{suffix}"))[-1]
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
    with pytest.raises(AssertionError, match="Kafka complains"):
        dump(path, options=(option,))
