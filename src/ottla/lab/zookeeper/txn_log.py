"""The transactions of a server on its disk. Those that wait for a flush share the next one, as in ZooKeeper."""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import Callable
from contextlib import suppress

from ottla.runtime import Disk

DIRECTORY = "/zookeeper"
_HEAD = struct.Struct(">II")
"""Size and checksum."""


class TxnLog:
    def __init__(self, disk: Disk, on_durable: Callable[[], None]) -> None:
        """Reads what is on the disk. A torn end, which nobody was told of, is cut off."""
        self._on_durable = on_durable
        disk.make_dirs(DIRECTORY)
        self._file = disk.open(f"{DIRECTORY}/log", create=True)
        self.txns: list[bytes] = []
        """The transaction with zxid 1 first."""
        self._ends: list[int] = []
        """Where each of them ends in the file."""
        content = self._file.read_at(0, self._file.size)
        position = 0
        with suppress(struct.error):
            while position < len(content):
                size, checksum = _HEAD.unpack_from(content, position)
                start = position + _HEAD.size
                txn = content[start : start + size]
                if len(txn) < size or zlib.crc32(txn) != checksum or not size:
                    break
                position = start + size
                self.txns.append(txn)
                self._ends.append(position)
        self._file.truncate(position)
        self._file.flush()
        disk.flush_dir(DIRECTORY)
        disk.flush_dir("/")
        self.durable = len(self.txns)
        """The last zxid that would survive a power loss."""
        self._flushing: asyncio.Task[None] | None = None
        self._cuts = 0

    @property
    def last_zxid(self) -> int:
        return len(self.txns)

    def append(self, txn: bytes) -> None:
        self.txns.append(txn)
        self._file.append(_HEAD.pack(len(txn), zlib.crc32(txn)) + txn)
        self._ends.append(self._file.size)
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush())

    def truncate(self, zxid: int) -> None:
        """Forget what comes after it."""
        if zxid < self.last_zxid:
            del self.txns[zxid:], self._ends[zxid:]
            self._file.truncate(self._ends[-1] if self._ends else 0)
            self._file.flush()
            self.durable = zxid
            self._cuts += 1

    async def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        while self.durable < self.last_zxid:
            flushed, cuts = self.last_zxid, self._cuts
            await loop.run_in_executor(None, self._file.flush)
            if cuts == self._cuts:
                self.durable = flushed
                self._on_durable()
        self._flushing = None
