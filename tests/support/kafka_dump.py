"""What Kafka's DumpLogSegments says about a file, taken apart again.

The tool exits with 0 whatever it finds, so its complaints are looked for in what it prints.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.kafka_jars import DUMP_LOG, run_tool

_COMPLAINT = re.compile(
    "Mismatches in|Found timestamp mismatch|Found out of order timestamp"
    "|indexed offsets are not found|invalid bytes at the end|isvalid: false"
    "|Ignoring unknown file|Error at|orrupt|Exception| WARN | ERROR "
)
# 4.3 also says "-1 is followed by" the first offset of any segment that does not begin at 0.
_GAP = re.compile(r"^  \d+ is followed by")
_FIELD = re.compile(r"(\w+): (\[[^\]]*\]|\S+)")
_RECORD = re.compile(
    r"\| (?P<fields>offset: .*? headerKeys: \[[^\]]*\])"
    r"(?: (?P<control>[A-Z]\w+):? (?P<content>\{.*\})| endTxnMarker: (?P<marker>\w+) coordinatorEpoch: (?P<coordinator>-?\d+)"
    r"| controlType: (?P<type>\w+)\(\d+\))?"
    r"(?: key: (?P<key>.*?))?(?: payload: (?P<payload>.*))?"
)


@dataclass
class DumpedRecord:
    offset: int
    timestamp: int
    key_size: int
    value_size: int
    sequence: int
    header_keys: list[str]
    key: str | None
    payload: str | None
    control: str | None
    """The kind of a control record."""
    content: Any
    """A control record's fields, where the tool prints them."""

    @property
    def json(self) -> Any:
        """The payload as --cluster-metadata-decoder prints it."""
        assert self.payload is not None, self
        return json.loads(self.payload)


@dataclass
class DumpedBatch:
    fields: dict[str, str]
    records: list[DumpedRecord] = field(default_factory=list)

    def __getitem__(self, name: str) -> int:
        return int(self.fields[name])

    @property
    def codec(self) -> str:
        return self.fields["compresscodec"]

    @property
    def delete_horizon_ms(self) -> int | None:
        horizon = _number(self.fields["deleteHorizonMs"])
        return None if horizon < 0 else horizon

    @property
    def is_control(self) -> bool:
        return self.fields["isControl"] == "true"

    @property
    def is_transactional(self) -> bool:
        return self.fields["isTransactional"] == "true"


def dump(*files: Path, options: tuple[str, ...] = (), has_gaps: bool = False) -> str:
    """What the tool prints about the files, once it is clear that it has nothing to complain of."""
    assert files, "nothing to dump"
    output = run_tool(DUMP_LOG, *options, "--files", ",".join(map(str, files)))
    complaints = [
        line
        for line in output.splitlines()
        if _COMPLAINT.search(line) or (_GAP.search(line) and not has_gaps)
    ]
    assert not complaints, "\n".join(["Kafka complains:", *complaints, "in:", output])
    for file in files:
        assert f"Dumping {file}\n" in output, f"{file} was not read:\n{output}"
    return output


def dump_batches(*files: Path, metadata: bool = False, has_gaps: bool = False) -> list[DumpedBatch]:
    """Every batch of the segments or checkpoints, with its records."""
    option = "--cluster-metadata-decoder" if metadata else "--print-data-log"
    batches: list[DumpedBatch] = []
    for line in dump(*files, options=(option,), has_gaps=has_gaps).splitlines():
        if line.startswith("baseOffset: "):
            batches.append(DumpedBatch(dict(_FIELD.findall(line))))
        elif line.startswith("|"):
            batches[-1].records.append(_record(line))
    for batch in batches:
        assert len(batch.records) == batch["count"], batch
    return batches


def dump_rows(file: Path) -> list[dict[str, int]]:
    """The rows of an index, or the producers of a snapshot."""
    lines = dump(file).splitlines()
    return [
        {name: _number(value) for name, value in _FIELD.findall(line)}
        for line in lines
        if line.startswith(("offset: ", "timestamp: ", "producerId: "))
    ]


def _number(text: str) -> int:
    """Of an index or a snapshot; Java's empty OptionalLong is -1, as in the file."""
    optional = re.fullmatch(r"OptionalLong(?:\[(-?\d+)\]|\.empty)", text)
    return int(text) if optional is None else int(optional[1] or -1)


def _record(line: str) -> DumpedRecord:
    found = _RECORD.fullmatch(line)
    assert found is not None, f"a record that cannot be taken apart: {line}"
    fields: dict[str, str] = dict(_FIELD.findall(found["fields"]))
    content = json.loads(found["content"]) if found["content"] else None
    if found["marker"]:
        content = {"coordinatorEpoch": int(found["coordinator"])}
    return DumpedRecord(
        offset=int(fields["offset"]),
        timestamp=int(fields.get("CreateTime", fields.get("LogAppendTime", "-1"))),
        key_size=int(fields["keySize"]),
        value_size=int(fields["valueSize"]),
        sequence=int(fields["sequence"]),
        header_keys=[name for name in fields["headerKeys"][1:-1].split(",") if name],
        key=found["key"],
        payload=found["payload"],
        control=found["control"] or found["marker"] or found["type"],
        content=content,
    )
