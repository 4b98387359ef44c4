"""Snapshots of the producer state of a log (`<offset>.snapshot`, Kafka's format).

A snapshot holds the last batch of each producer, not all five: the format has no place for more. Recovery looks for the
other four in the log (`ProducerStateManager.recall`), because a producer whose answers were lost in a restart retries all
five. Snapshots are written without a flush: a torn one fails its CRC, and then an older one serves, with more of the log
to read.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from ottla.events import Events
from ottla.log.producer_state import BatchMetadata, ProducerStateEntry, ProducerStateManager
from ottla.log.segment import file_name
from ottla.records.crc import crc32c
from ottla.runtime.seams import Buffer, Disk
from ottla.wire.types import TopicPartition

VERSION = 1
_HEAD = Struct(">hIi")
_ENTRY = Struct(">qhiqiqiq")
_CRC_END = 6


class CorruptProducerSnapshot(Exception):
    """These bytes are not a whole snapshot."""


def encode(state: ProducerStateManager) -> bytes:
    body = bytearray(_HEAD.pack(VERSION, 0, len(state.producers)))
    for producer_id, producer in state.producers.items():
        last = producer.batches[-1] if producer.batches else None
        body += _ENTRY.pack(
            producer_id,
            producer.epoch,
            producer.last_sequence,
            last.last_offset if last else -1,
            last.offset_delta if last else 0,
            producer.last_timestamp,
            producer.coordinator_epoch,
            -1 if producer.txn_first_offset is None else producer.txn_first_offset,
        )
    crc = crc32c(memoryview(body)[_CRC_END:])
    _HEAD.pack_into(body, 0, VERSION, crc, len(state.producers))
    return bytes(body)


def decode(data: Buffer) -> dict[int, ProducerStateEntry]:
    """By producer id. CorruptProducerSnapshot unless all bytes are as they were written."""
    if len(data) < _HEAD.size:
        raise CorruptProducerSnapshot(f"{len(data)} bytes")
    version, crc, count = _HEAD.unpack_from(data, 0)
    if version != VERSION:
        raise CorruptProducerSnapshot(f"version {version}")
    if crc32c(memoryview(data)[_CRC_END:]) != crc:
        raise CorruptProducerSnapshot("CRC")
    if len(data) != _HEAD.size + count * _ENTRY.size:
        raise CorruptProducerSnapshot(f"{count} producers in {len(data)} bytes")
    producers: dict[int, ProducerStateEntry] = {}
    for producer_id, *fields in _ENTRY.iter_unpack(memoryview(data)[_HEAD.size :]):
        producers[producer_id] = _entry(*fields)
    return producers


def _entry(
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    txn_first_offset: int,
) -> ProducerStateEntry:
    producer = ProducerStateEntry(epoch)
    producer.whole = False
    if last_offset >= 0:
        first_sequence = (last_sequence - offset_delta) & 0x7FFFFFFF
        producer.batches.append(
            BatchMetadata(first_sequence, last_sequence, last_offset, offset_delta, timestamp)
        )
    producer.last_timestamp = timestamp
    producer.coordinator_epoch = coordinator_epoch
    if txn_first_offset >= 0:
        producer.txn_first_offset = txn_first_offset
    return producer


class ProducerSnapshots:
    """The snapshot files of one log."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        offsets: list[int],
        partition: TopicPartition,
        events: Events,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self.offsets = sorted(offsets)
        self._partition = partition
        self.events = events

    def moved_to(self, directory: str) -> None:
        """The directory has another name."""
        self._directory = directory

    def path(self, offset: int) -> str:
        return f"{self._directory}/{file_name(offset, '.snapshot')}"

    def take(self, state: ProducerStateManager, offset: int) -> None:
        file = self._disk.open(self.path(offset), create=True)
        try:
            if file.size:
                file.truncate(0)
            file.append(encode(state))
        finally:
            file.close()
        if offset not in self.offsets:
            self.offsets = sorted([*self.offsets, offset])

    def latest(self, up_to: int) -> tuple[ProducerStateManager, int]:
        """The newest readable snapshot not beyond `up_to`, and its offset; an empty state and -1 if there is none.
        Unreadable ones are removed."""
        state = ProducerStateManager(self._partition, self.events)
        while candidates := [offset for offset in self.offsets if offset <= up_to]:
            newest = candidates[-1]
            try:
                state.restore(decode(self._disk.read(self.path(newest))))
                return state, newest
            except CorruptProducerSnapshot:
                self._remove(newest)
        return state, -1

    def remove_above(self, offset: int) -> bool:
        """Whether there were any."""
        above = [taken for taken in self.offsets if taken > offset]
        for taken in reversed(above):
            self._remove(taken)
        return bool(above)

    def remove_below(self, offset: int) -> None:
        for taken in [taken for taken in self.offsets if taken < offset]:
            self._remove(taken)

    def remove(self, offsets: Sequence[int]) -> None:
        for taken in offsets:
            if taken in self.offsets:
                self._remove(taken)

    def _remove(self, offset: int) -> None:
        self._disk.remove(self.path(offset))
        self.offsets.remove(offset)
