"""Faults of disks."""

from __future__ import annotations

import errno
from functools import partial

from ottla.records.batch import HEADER_BYTES
from ottla.sim.cluster.nodes import DATA, METADATA, SimNode
from ottla.sim.faults.context import FaultContext
from ottla.sim.oracle.ledger import SeenBatch
from ottla.wire.types import TopicPartition


class DiskFaults(FaultContext):
    """A disk is slow, full, failing, damaged or empty."""

    def slow_disk(self) -> bool:
        node = self._pick("up")
        if node is None:
            return False
        self._announce(f"slows the disk of node {node.id}")
        node.host.slow_disk(0.01, self._random.choice((0.1, 0.5, 2.0)))
        self._later(1.0, 10.0, lambda: node.host.slow_disk(0.00005, 0.002))
        return True

    def disk_fault(self) -> bool:
        """One operation fails, so the node ends: its nodes have one log directory, and one for the metadata."""
        node = self._pick("up")
        if node is None or not self._may_harm(node):
            return False
        operation = self._random.choice(("write", "flush", "rename", "flush_dir", "open"))
        where = self._random.choice((DATA, DATA, METADATA))
        error = self._random.choice((errno.EIO, errno.ENOSPC))
        self._announce(f"lets a {operation} of node {node.id} in {where} fail")
        strikes = partial(self._count, "disk_fault")
        node.host.disk.fail(operation, where, error=error, times=1, strikes=strikes)
        self._mend_later(node)
        return True

    def full_disk(self) -> bool:
        """Writes fail with ENOSPC after at most 5000 bytes."""
        node = self._pick("up")
        if node is None or not self._may_harm(node):
            return False
        self._announce(f"fills the disk of node {node.id}")
        on_full = partial(self._count, "full_disk")
        node.host.disk.fill(self._random.choice((0, 100, 5000)), on_full)
        self._mend_later(node)
        return True

    def _mend_later(self, node: SimNode) -> None:
        self._failing_soon.add(node.id)

        def mend() -> None:
            self._failing_soon.discard(node.id)
            # Nobody restarts it: a node that cannot go on ends by itself, or the run never settles.
            node.host.disk.mend()

        self._later(1.0, 10.0, mend)

    def empty_disk(self) -> bool:
        """A machine comes back with a new disk. Other nodes hold all that it held."""
        node = self._random.choice(list(self._cluster.nodes.values()))
        voters = [other.node.quorum for other in self._cluster.nodes.values() if other.node]
        if self._evidence.quorum.is_dynamic:
            all_vote = self._evidence.quorum.can_lose(node.id) and not self._operator.is_busy
        else:
            all_vote = all(quorum is not None and quorum.raft.has_vote for quorum in voters)
        if not (
            self._may_harm(node)
            and self._evidence.may_lose(node.id)
            and all_vote
            and len(voters) == len(self._cluster.nodes)
        ):
            return False
        self._empty_disk(node)
        self._start_later(node)
        return True

    def rot(self) -> bool:
        """A bit of a closed and flushed segment changes."""
        found = self._some_closed_segment()
        if found is None:
            return False
        node, key, path, batch = found
        for callback in self.on_wrong_disk:
            callback()
        self._evidence.disk_is_wrong(node.id, key)
        at = self._random.randrange(batch.position + HEADER_BYTES, batch.position + batch.size)
        self._announce(f"lets a bit of {path} on node {node.id} rot, at {at}")
        node.host.disk.rot(path, at)
        return True

    def misdirect(self) -> bool:
        """The next append to a log is written elsewhere in the file."""
        node = self._pick("up")
        if node is None or not (self._may_harm(node) and self._evidence.may_lose(node.id)):
            return False
        keys = self._evidence.replicas_on(node.id)
        if not keys:
            return False
        key = self._random.choice(keys)
        log = self._evidence.log_of(node.id, key)
        path = f"{log.path}/{log.segment_bases[-1]:020d}.log"
        self._announce(f"misdirects the next write to {path} on node {node.id}")

        def strikes() -> None:
            for callback in self.on_wrong_disk:
                callback()
            self._evidence.disk_is_wrong(node.id, key)
            self._count("misdirect")

        node.host.disk.fail("misdirect", path, times=1, strikes=strikes)
        self._mend_later(node)
        return True

    def _some_closed_segment(self) -> tuple[SimNode, TopicPartition, str, SeenBatch] | None:
        node = self._pick("up")
        if node is None or not (self._may_harm(node) and self._evidence.may_lose(node.id)):
            return None
        found = []
        for key in self._evidence.replicas_on(node.id):
            log = self._evidence.log_of(node.id, key)
            found += [
                (node, key, f"{log.path}/{batch.segment:020d}.log", batch)
                for batch in self._evidence.copy_of(node.id, key).batches
                if batch.segment in log.segment_bases[:-1] and batch.end <= log.recovery_point
            ]
        return self._random.choice(found) if found else None
