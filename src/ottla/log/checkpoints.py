"""The small text files of a log directory, in Kafka's formats.

Offset checkpoints (`recovery-point-offset-checkpoint`, `replication-offset-checkpoint`,
`log-start-offset-checkpoint`, `cleaner-offset-checkpoint`), `leader-epoch-checkpoint`, `meta.properties`, `partition.metadata` and
`.kafka_cleanshutdown`. Each is replaced as a whole, so that a crash leaves the old or the new one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from ottla.log.errors import CorruptCheckpoint
from ottla.runtime.seams import Disk
from ottla.wire.types import TopicPartition, uuid_from_text, uuid_to_text

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANED_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
META_PROPERTIES = "meta.properties"
PARTITION_METADATA = "partition.metadata"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"

_INTEGER = re.compile(r"-?[0-9]{1,19}")


def _lines(disk: Disk, path: str) -> list[list[str]]:
    """The entries of a checkpoint of version 0: `0`, the count, then that many lines of words."""
    return _entries(path, _text(disk, path))


def _entries(path: str, text: str) -> list[list[str]]:
    lines = text.split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    if not lines or lines[0] != "0":
        raise CorruptCheckpoint(path, 1, "version 0 expected")
    if len(lines) < 2 or _INTEGER.fullmatch(lines[1]) is None:
        raise CorruptCheckpoint(path, 2, "the number of entries expected")
    if int(lines[1]) != len(lines) - 2:
        raise CorruptCheckpoint(path, 2, f"{lines[1]} entries announced, {len(lines) - 2} there")
    return [line.split(" ") for line in lines[2:]]


def _text(disk: Disk, path: str) -> str:
    try:
        return disk.read(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptCheckpoint(path, 1, "not UTF-8") from error


def _number(path: str, line: int, text: str) -> int:
    if _INTEGER.fullmatch(text) is None:
        raise CorruptCheckpoint(path, line, f"{text!r} is not a number")
    return int(text)


def _checkpoint(entries: Iterable[str]) -> bytes:
    lines = list(entries)
    return "\n".join(["0", str(len(lines)), *lines, ""]).encode("utf-8")


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """An offset checkpoint; empty where there is no file yet."""
    if not disk.exists(path):
        return {}
    offsets: dict[TopicPartition, int] = {}
    for line, words in enumerate(_lines(disk, path), start=3):
        if len(words) != 3 or not words[0]:
            raise CorruptCheckpoint(path, line, "topic, partition and offset expected")
        key = TopicPartition(words[0], _number(path, line, words[1]))
        if key in offsets:
            raise CorruptCheckpoint(path, line, f"{key} is there twice")
        offsets[key] = _number(path, line, words[2])
    return offsets


def read_cleaned(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """Kafka makes this file when it starts and writes it when it has cleaned something: until then it is empty."""
    if disk.exists(path) and not disk.read(path):
        return {}
    return read_offsets(disk, path)


def write_offsets(
    disk: Disk, path: str, offsets: Mapping[TopicPartition, int], *, durable: bool = True
) -> None:
    lines = (f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(offsets.items()))
    disk.replace(path, _checkpoint(lines), durable=durable)


def read_epochs(disk: Disk, path: str) -> list[tuple[int, int]] | None:
    """(epoch, start offset) pairs, strictly rising in both. None where nothing was written yet: there is no file, or an empty
    one, as Kafka makes it with each log."""
    text = _text(disk, path) if disk.exists(path) else ""
    if not text:
        return None
    entries: list[tuple[int, int]] = []
    for line, words in enumerate(_entries(path, text), start=3):
        if len(words) != 2:
            raise CorruptCheckpoint(path, line, "epoch and start offset expected")
        epoch, start = (_number(path, line, word) for word in words)
        epoch_before, start_before = entries[-1] if entries else (-1, -1)
        if epoch <= epoch_before or start <= start_before:
            raise CorruptCheckpoint(path, line, "epochs and offsets must rise")
        entries.append((epoch, start))
    return entries


def epochs_text(entries: Iterable[tuple[int, int]]) -> bytes:
    return _checkpoint(f"{epoch} {start}" for epoch, start in entries)


class MetaProperties(NamedTuple):
    """Whose directory this is."""

    cluster_id: str
    node_id: int
    directory_id: UUID | None


def read_meta_properties(disk: Disk, path: str) -> MetaProperties:
    values: dict[str, str] = {}
    for line, text in enumerate(_text(disk, path).splitlines(), start=1):
        if not text.strip() or text.lstrip().startswith(("#", "!")):
            continue
        name, equals, value = text.partition("=")
        if not equals:
            raise CorruptCheckpoint(path, line, "name=value expected")
        values[name.strip()] = value.strip().replace("\\=", "=").replace("\\:", ":")
    if values.get("version") not in ("0", "1"):
        raise CorruptCheckpoint(path, 1, f"version {values.get('version')} is not known")
    node_id = values.get("node.id", values.get("broker.id", ""))
    if not values.get("cluster.id") or not node_id:
        raise CorruptCheckpoint(path, 1, "cluster.id and node.id expected")
    directory_id = values.get("directory.id")
    try:
        directory = None if directory_id is None else uuid_from_text(directory_id)
    except ValueError as error:
        raise CorruptCheckpoint(path, 1, f"directory.id: {error}") from error
    return MetaProperties(values["cluster.id"], _number(path, 1, node_id), directory)


def write_meta_properties(disk: Disk, path: str, properties: MetaProperties) -> None:
    lines = ["#", "version=1", f"cluster.id={properties.cluster_id}"]
    lines.append(f"node.id={properties.node_id}")
    if properties.directory_id is not None:
        lines.append(f"directory.id={uuid_to_text(properties.directory_id)}")
    disk.replace(path, ("\n".join(lines) + "\n").encode("utf-8"))


def read_partition_metadata(disk: Disk, path: str) -> UUID:
    lines = _text(disk, path).splitlines()
    if not lines or lines[0] != "version: 0":
        raise CorruptCheckpoint(path, 1, "version: 0 expected")
    if len(lines) != 2 or not lines[1].startswith("topic_id: "):
        raise CorruptCheckpoint(path, 2, "topic_id expected")
    try:
        return uuid_from_text(lines[1].removeprefix("topic_id: "))
    except ValueError as error:
        raise CorruptCheckpoint(path, 2, str(error)) from error


def partition_metadata_text(topic_id: UUID) -> bytes:
    return f"version: 0\ntopic_id: {uuid_to_text(topic_id)}".encode("ascii")


def read_clean_shutdown(disk: Disk, path: str) -> int | None:
    """The broker epoch of the clean stop, or None if there was none. The empty marker of older Kafkas says
    that the logs were closed, and no more: its epoch is -1."""
    if not disk.exists(path):
        return None
    text = _text(disk, path)
    if not text:
        return -1
    try:
        epoch = json.loads(text)["brokerEpoch"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptCheckpoint(path, 1, "no marker of a clean stop") from error
    if type(epoch) is not int:
        raise CorruptCheckpoint(path, 1, f"the broker epoch is {epoch!r}")
    return epoch


def write_clean_shutdown(disk: Disk, path: str, broker_epoch: int) -> None:
    content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    disk.replace(path, content.encode("ascii"))
