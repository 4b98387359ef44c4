"""kafka-dump-log: what the files of a log hold: segments, snapshots, indexes, producers, aborted transactions."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ottla.kafka_tools.ending import ended
from ottla.kafka_tools.options import Option, OptionParser, Parsed, ToolError
from ottla.kafka_tools.record_json import (
    ConsumerAssignment,
    ConsumerSubscription,
    camel,
    consumer_json,
    json_of,
    type_name,
)
from ottla.log.index import OFFSET_ROW, TIME_ROW
from ottla.records.batch import Batch, CorruptBatch, batches, computed_crc
from ottla.records.record import ControlType, Record, control_type, records
from ottla.wire.record_codec import (
    INT16,
    CoordinatorKey,
    CoordinatorValue,
    MalformedRecord,
    Message,
    Reader,
    fields_of,
    key_type,
    read_key,
    read_value,
)

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
STRING_DECODER = "org.apache.kafka.tools.api.StringDecoder"
ALL_BYTES = 2**31 - 1
DECODERS = (
    "offsets-decoder",
    "transaction-log-decoder",
    "cluster-metadata-decoder",
    "remote-log-metadata-decoder",
    "share-group-state-decoder",
)
PARSER = OptionParser(
    "This tool helps to parse a log file and dump its contents to the console, useful for debugging a seemingly"
    " corrupt log segment.",
    [
        Option("print-data-log", "Print the content of records."),
        Option("verify-index-only", "Verify indexes without printing them."),
        Option("index-sanity-check", "Check indexes as a broker does when it starts."),
        Option("files", "REQUIRED: The files to be dumped.", "file1, file2, ..."),
        Option("max-message-size", "Size of largest message.", "size", default="5242880"),
        Option("max-bytes", "Read at most so many bytes of a log.", "size", default=str(ALL_BYTES)),
        Option("deep-iteration", "Show every record of a batch."),
        Option(
            "value-decoder-class", "The class that decodes values.", "class", STRING_DECODER, True
        ),
        Option("key-decoder-class", "The class that decodes keys.", "class", STRING_DECODER, True),
        Option(DECODERS[0], "Decode records of __consumer_offsets."),
        Option(DECODERS[1], "Decode records of __transaction_state."),
        Option(DECODERS[2], "Decode records of __cluster_metadata."),
        Option(DECODERS[3], "Not served: there is no remote log here."),
        Option(DECODERS[4], "Not served: there are no share groups here."),
        Option("skip-record-metadata", "Skip metadata of records, and control records."),
    ],
)

Parse = Callable[[Record], tuple[str | None, str | None]]
"""Key and payload in words."""


def main(words: list[str]) -> int:
    return ended(lambda: _main(words))


def _main(words: list[str]) -> int:
    options = PARSER.parse(words)
    PARSER.require(options, "files")
    dump = _Dump(options)
    for name in options.text("files").split(","):
        dump.file(Path(name))
    dump.report()
    return 0


class _Dump:
    """One run of the tool. What it finds wrong is reported at the end, on standard error."""

    def __init__(self, options: Parsed) -> None:
        self._contents = any(
            options.has(name)
            for name in ("print-data-log", "value-decoder-class", "key-decoder-class", *DECODERS)
        )
        self._is_deep = options.has("deep-iteration") or self._contents
        self._skip_metadata = options.has("skip-record-metadata")
        self._max_bytes = options.number("max-bytes") or ALL_BYTES
        self._verify_only = options.has("verify-index-only")
        self._sanity_only = options.has("index-sanity-check")
        self._parse = _parser_of(options)
        self._complaints: dict[str, list[str]] = {}

    def file(self, path: Path) -> None:
        print(f"Dumping {path}")
        kinds: dict[str, Callable[[Path], None]] = {
            ".log": self._log,
            ".checkpoint": self._log,
            ".index": self._index,
            ".timeindex": self._time_index,
            ".snapshot": _producers,
            ".txnindex": _aborted,
        }
        kind = kinds.get(path.suffix)
        if kind is None:
            print(f"Ignoring unknown file {path}", file=sys.stderr)
        else:
            kind(path)

    def report(self) -> None:
        for headline, lines in self._complaints.items():
            print(headline, *lines, sep="\n", file=sys.stderr)

    def _complain(self, headline: str, line: str) -> None:
        self._complaints.setdefault(headline, []).append(line)

    # Segments and snapshots

    def _log(self, path: Path) -> None:
        if path.suffix == ".log":
            print(f"Log starting offset: {_base(path)}")
        elif path.name == "bootstrap.checkpoint":
            print("KRaft bootstrap snapshot")
        else:
            offset, epoch = (int(part) for part in path.stem.split("-"))
            print(f"Snapshot end offset: {offset}, epoch: {epoch}")
        data = path.read_bytes()[: self._max_bytes]
        read_to, last = 0, -1
        for batch in _readable(data):
            print(_batch_line(data, batch))
            if self._is_deep:
                last = self._records(path, data, batch, last)
            read_to = batch.end
        if read_to < len(data) and self._max_bytes == ALL_BYTES:
            print(f"Found {len(data) - read_to} invalid bytes at the end of {path.name}")

    def _records(self, path: Path, data: bytes, batch: Batch, last: int) -> int:
        for record in records(data, batch):
            if record.offset != last + 1:
                headline = f"Non-consecutive offsets in {path.absolute()}"
                self._complain(headline, f"  {last} is followed by {record.offset}")
            last = record.offset
            line = "" if self._skip_metadata else _record_line(batch, record)
            if self._contents and not batch.is_control:
                prefix = "| " if self._skip_metadata else " "
                key, payload = self._parse(record)
                if key is not None:
                    line += f"{prefix}key: {key}"
                    prefix = " "
                if payload is not None:
                    line += f"{prefix}payload: {payload}"
            print(line)
        return last

    # Indexes

    def _index(self, path: Path) -> None:
        rows = path.read_bytes()
        base = _base(path)
        if len(rows) < OFFSET_ROW.size:
            print(f"{path} is empty.")
            return
        if self._is_checked(path, len(rows), OFFSET_ROW):
            return
        log = path.with_suffix(".log").read_bytes()
        for number, (relative, position) in enumerate(_rows(OFFSET_ROW, rows)):
            if number and not relative:
                return  # rows that a crash left behind
            found = next(batches(log, position, allow_partial=True)).last_offset
            if found != base + relative:
                self._complain(
                    f"Mismatches in :{path.absolute()}",
                    f"  Index offset: {base + relative}, log offset: {found}",
                )
            if not self._verify_only:
                print(f"offset: {base + relative} position: {position}")

    def _time_index(self, path: Path) -> None:
        rows = path.read_bytes()
        if self._is_checked(path, len(rows), TIME_ROW):
            return
        base, before = _base(path), -1
        log = path.with_suffix(".log").read_bytes()
        headers = list(_readable(log))
        for number, (timestamp, relative) in enumerate(_rows(TIME_ROW, rows)):
            if number and not relative:
                return
            offset = base + relative
            batch = next((each for each in headers if each.last_offset >= offset), None)
            if batch is None or batch.last_offset != offset:
                found = -1 if batch is None else batch.last_offset
                self._complain(
                    f"The following indexed offsets are not found in :{path.absolute()}",
                    f"Indexed offset: {offset}, found log offset: {found}",
                )
            else:
                self._check_time(path, timestamp, before, log, batch)
            if not self._verify_only:
                print(f"timestamp: {timestamp} offset: {offset}")
            before = timestamp

    def _check_time(
        self, path: Path, timestamp: int, before: int, log: bytes, batch: Batch
    ) -> None:
        latest = max((record.timestamp for record in records(log, batch)), default=-1)
        if latest != timestamp:
            self._complain(
                f"Found timestamp mismatch in :{path.absolute()}",
                f"  Index timestamp: {timestamp}, log timestamp: {latest}",
            )
        if before >= timestamp:
            self._complain(
                f"Found out of order timestamp in :{path.absolute()}",
                f"  Index timestamp: {timestamp}, Previously indexed timestamp: {before}",
            )

    def _is_checked(self, path: Path, size: int, row: struct.Struct) -> bool:
        """With --index-sanity-check there is nothing else to do."""
        if not self._sanity_only:
            return False
        if size % row.size:
            raise ToolError(
                f"Index file {path.absolute()} is corrupt, found {size} bytes which is neither positive"
                f" nor a multiple of {row.size}."
            )
        print(f"{path} passed sanity check.")
        return True


def _rows(row: struct.Struct, data: bytes) -> Iterator[tuple[int, int]]:
    return row.iter_unpack(data[: len(data) // row.size * row.size])


def _base(path: Path) -> int:
    try:
        return int(path.name.split(".")[0])
    except ValueError:
        raise ToolError(f"{path}: a log file's name is its first offset") from None


def _readable(data: bytes) -> Iterator[Batch]:
    """The batches up to the first that is none."""
    try:
        yield from batches(data, allow_partial=True)
    except CorruptBatch:
        return


def _time(batch: Batch) -> str:
    return "LogAppendTime" if batch.log_append_time else "CreateTime"


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _optional(value: int | None) -> str:
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def _batch_line(data: bytes, batch: Batch) -> str:
    codec = CODECS[batch.codec] if batch.codec < len(CODECS) else str(batch.codec)
    return (
        f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} count: {batch.count}"
        f" baseSequence: {batch.base_sequence} lastSequence: {batch.last_sequence}"
        f" producerId: {batch.producer_id} producerEpoch: {batch.producer_epoch}"
        f" partitionLeaderEpoch: {batch.leader_epoch} isTransactional: {_flag(batch.is_transactional)}"
        f" isControl: {_flag(batch.is_control)} deleteHorizonMs: {_optional(batch.delete_horizon_ms)}"
        f" position: {batch.position} {_time(batch)}: {batch.max_timestamp} size: {batch.size}"
        f" magic: {batch.magic} compresscodec: {codec} crc: {batch.crc}"
        f" isvalid: {_flag(computed_crc(data, batch) == batch.crc)}"
    )


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _record_line(batch: Batch, record: Record) -> str:
    sequence = -1
    if batch.base_sequence >= 0:
        sequence = (batch.base_sequence + record.offset - batch.base_offset) & 0x7FFFFFFF
    headers = ",".join(name for name, _ in record.headers)
    line = (
        f"| offset: {record.offset} {_time(batch)}: {record.timestamp} keySize: {_size(record.key)}"
        f" valueSize: {_size(record.value)} sequence: {sequence} headerKeys: [{headers}]"
    )
    return line + _control(record) if batch.is_control else line


def _control(record: Record) -> str:
    kind = control_type(record)
    if kind in (ControlType.ABORT, ControlType.COMMIT):
        _, epoch = struct.unpack_from(">hi", record.value or b"")
        return f" endTxnMarker: {ControlType(kind).name} coordinatorEpoch: {epoch}"
    from ottla.raft.control_records import (
        KRaftVersion,
        KRaftVoters,
        LeaderChange,
        SnapshotFooter,
        SnapshotHeader,
        decode_control,
    )

    known: dict[int, tuple[str, type[Message]]] = {
        ControlType.LEADER_CHANGE: ("LeaderChange:", LeaderChange),
        ControlType.SNAPSHOT_HEADER: ("SnapshotHeader", SnapshotHeader),
        ControlType.SNAPSHOT_FOOTER: ("SnapshotFooter", SnapshotFooter),
        ControlType.KRAFT_VERSION: ("KRaftVersion", KRaftVersion),
        ControlType.KRAFT_VOTERS: ("KRaftVoters", KRaftVoters),
    }
    if kind not in known:
        return f" controlType: UNKNOWN({kind})"
    name, cls = known[kind]
    return f" {name} {json_of(decode_control(cls, record.value))}"


def _producers(path: Path) -> None:
    from ottla.log.producer_snapshots import CorruptProducerSnapshot, decode

    try:
        found = decode(path.read_bytes())
    except CorruptProducerSnapshot as error:
        print(f"Snapshot {path} is corrupt: {error}", file=sys.stderr)
        return
    for id, entry in found.items():
        line = (
            f"producerId: {id} producerEpoch: {entry.epoch} coordinatorEpoch: {entry.coordinator_epoch}"
            f" currentTxnFirstOffset: {_optional(entry.txn_first_offset)}"
            f" lastTimestamp: {entry.last_timestamp}"
        )
        for batch in entry.batches[:1]:
            line += (
                f" firstSequence: {batch.first_sequence} lastSequence: {batch.last_sequence}"
                f" lastOffset: {batch.last_offset} offsetDelta: {batch.offset_delta}"
                f" timestamp: {batch.timestamp}"
            )
        print(line)


def _aborted(path: Path) -> None:
    from ottla.log.transaction_index import VERSION, TransactionIndex
    from ottla.runtime.files import RealDisk

    index = TransactionIndex.load(RealDisk(), str(path), _base(path))
    if index is None:
        raise ToolError(f"Aborted transactions in {path} cannot be read")
    for number in range(len(index)):
        row = index.row(number)
        print(
            f"version: {VERSION} producerId: {row.producer_id} firstOffset: {row.first_offset}"
            f" lastOffset: {row.last_offset} lastStableOffset: {row.last_stable_offset}"
        )


# What records hold


def _parser_of(options: Parsed) -> Parse:
    for name in ("value-decoder-class", "key-decoder-class"):
        given = options.value(name)
        if given != STRING_DECODER:
            raise ToolError(f"--{name}: this tool has no Java classes, only {STRING_DECODER}")
    if options.has("offsets-decoder"):
        return _offsets_parser()
    if options.has("transaction-log-decoder"):
        return _transactions_parser()
    if options.has("cluster-metadata-decoder"):
        return _metadata
    for name in DECODERS[3:]:
        if options.has(name):
            raise ToolError(f"--{name}: ottla writes no such records")
    return _strings


def _strings(record: Record) -> tuple[str | None, str | None]:
    return _string(record.key), _string(record.value)


def _string(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


def _metadata(record: Record) -> tuple[str | None, str | None]:
    from ottla.metadata.records import decode

    try:
        found = decode(record.value or b"")
        reader = Reader(record.value or b"")
        _, _, version = (reader.uvarint() for _ in range(3))
        shown = {"type": type_name(type(found)), "version": version, "data": found}
        return None, json_of(shown, version)
    except MalformedRecord as error:
        return None, f"Error at {record.offset}, skipping. {error}"


def _coordinator(
    record: Record, types: dict[int, tuple[type[CoordinatorKey], type[CoordinatorValue] | None]]
) -> tuple[str | None, str | None]:
    if record.key is None:
        raise ToolError(
            f"Failed to decode message at offset {record.offset} using the specified decoder (message had"
            " a missing key)"
        )
    try:
        kind = key_type(record.key)
        if kind not in types:
            return f"Unknown record type {kind} at offset {record.offset}, skipping.", None
        of_key, of_value = types[kind]
        key = json_of({"type": str(kind), "data": read_key(of_key, record.key)})
        if record.value is None or of_value is None:
            return key, "<DELETE>"
        version = int(INT16.read(Reader(record.value)))
        value = _opened(read_value(of_value, record.value), version)
        return key, json_of({"version": str(version), "data": value}, version)
    except MalformedRecord as error:
        return f"Error at offset {record.offset}, skipping. {error}", None


def _opened(value: CoordinatorValue, version: int) -> Any:
    """The subscriptions and assignments of consumers in a classic group are JSON, too."""
    if getattr(value, "protocol_type", None) != "consumer":
        return value
    shown = {camel(name): each for name, each in fields_of(value, version)}
    shown["members"] = [
        {
            camel(name): consumer_json(
                ConsumerSubscription if name == "subscription" else ConsumerAssignment, each
            )
            if name in ("subscription", "assignment")
            else each
            for name, each in fields_of(member, version)
        }
        for member in shown["members"]
    ]
    return shown


def _offsets_parser() -> Parse:
    from ottla.coordinators.groups import group_records

    types = _types_of(group_records)
    types[0] = types[1]  # very old records of offsets
    return lambda record: _coordinator(record, types)


def _transactions_parser() -> Parse:
    from ottla.coordinators.transactions import transaction_records

    types = _types_of(transaction_records)
    return lambda record: _coordinator(record, types)


def _types_of(
    module: Any,
) -> dict[int, tuple[type[CoordinatorKey], type[CoordinatorValue] | None]]:
    """By the type in a key: `XKey` and `XValue` belong together."""
    names = [name for name in vars(module) if name.endswith("Key") and name != "CoordinatorKey"]
    return {
        getattr(module, name).TYPE: (
            getattr(module, name),
            getattr(module, f"{name.removesuffix('Key')}Value", None),
        )
        for name in names
    }
