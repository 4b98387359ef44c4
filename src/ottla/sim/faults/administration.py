"""What an operator does to the cluster while it is in trouble."""

from __future__ import annotations

from functools import partial

from ottla.broker.apis.offsets import HIGH_WATERMARK
from ottla.raft.voters import ReplicaKey
from ottla.sim.clients.operator import (
    PREFERRED,
    other_replicas,
)
from ottla.sim.cluster.nodes import voter_endpoint
from ottla.sim.faults.context import FaultContext
from ottla.sim.oracle.coverage import mark
from ottla.sim.oracle.quorum_checker import VOTERS_TO_LOSE_ONE
from ottla.wire.types import TopicPartition


class Administration(FaultContext):
    """Partitions move, settings change, records and topics are deleted."""

    def elect_preferred(self) -> bool:
        found = self._some_partition()
        if found is None:
            return False
        self._announce(f"elects the preferred leader of {found[0]}")
        self._operator.elect(found[0], PREFERRED, partial(self._count, "elect_preferred"))
        return True

    def reassign(self) -> bool:
        """Perhaps to brokers that are down; in four of ten cases it is cancelled soon."""
        found = self._some_partition()
        if found is None:
            return False
        key, partition = found
        wished = other_replicas(partition, list(self._cluster.nodes), self._random)
        self._announce(f"moves {key} from {list(partition.replicas)} to {wished}")
        self._operator.reassign(key, wished, partial(self._count, "reassign"))
        if self._random.random() < 0.4:
            longest = self._random.choice((0.02, 0.2, 3.0))
            self._later(0.001, longest, lambda: self._cancel(key))
        return True

    def _cancel(self, key: TopicPartition) -> None:
        self._announce(f"cancels the reassignment of {key}")
        self._operator.reassign(key, None)

    def swing(self) -> bool:
        """The leadership of one partition moves round its replicas, which stay in sync. One of them may receive the
        metadata late."""
        found = self._some_partition()
        if found is None:
            return False
        key, partition = found
        controller = self._active_controller()
        if controller is not None and self._random.random() < 0.7:
            late = self._cluster.nodes[self._random.choice(partition.replicas)].host.name
            self._slow(late, controller.host.name, self._random.choice((0.2, 1.0)), 10.0)
        replicas, at = list(partition.replicas), 0.0
        for _ in range(self._random.randint(2, 8)):
            replicas = [*replicas[1:], replicas[0]]
            self._later(at, at, partial(self._move_leadership, key, replicas))
            at += self._random.uniform(0.05, 1.5)
        return True

    def min_isr(self) -> bool:
        found = self._some_partition()
        if found is None:
            return False
        value = str(self._random.randint(1, len(found[1].replicas)))
        self._announce(f"sets min.insync.replicas of {found[0].topic} to {value}")
        done = partial(self._count, "min_isr")
        self._operator.configure(found[0].topic, "min.insync.replicas", value, done)
        return True

    def retention(self) -> bool:
        found = self._some_partition()
        if found is None:
            return False
        value = self._random.choice(("-1", "0", "2000", "20000"))
        self._announce(f"sets retention.bytes of {found[0].topic} to {value}")
        done = partial(self._count, "retention")
        self._operator.configure(found[0].topic, "retention.bytes", value, done)
        return True

    def delete_records(self) -> bool:
        found = self._some_partition()
        if found is None:
            return False
        key = found[0]
        end = self._evidence.ledgers[key].end if key in self._evidence.ledgers else 0
        offset = HIGH_WATERMARK if self._random.random() < 0.3 else self._random.randint(0, end)
        self._announce(f"deletes the records of {key} below {offset}")
        self._evidence.expiry.asked(key, offset)
        self._operator.delete_records(key, offset, partial(self._count, "delete_records"))
        return True

    def change_voters(self) -> bool:
        """A controller becomes a voter, or a voter no longer is one. The former identity of a node whose disk was replaced
        goes first."""
        quorum = self._evidence.quorum
        if not quorum.is_dynamic or self._operator.is_busy:
            return False
        voters = sorted(quorum.committed_sets[-1].keys)
        lost = [key for key in voters if not quorum.is_whole(key)]
        if lost and self._random.random() < 0.8:
            self._remove_voter(self._random.choice(lost))
            return True
        ids = {key.id for key in voters}
        others = [
            ReplicaKey(id, seen.directory)
            for id, seen in quorum.voters.items()
            if id not in ids and seen.directory is not None
        ]
        smallest = min(len(keys) for keys in quorum.sets_that_may_count())
        leaving = voters if smallest > VOTERS_TO_LOSE_ONE and not lost else []
        if not others and not leaving:
            return False
        how = self._random.choice(
            ("add", "remove", "both")
        )  # the leader makes one of both, or one after the other
        if others and (how != "remove" or not leaving):
            key = self._random.choice(others)
            self._announce(f"adds voter {key}")
            self._operator.add_voter(key, voter_endpoint(key.id), partial(self._changed, "added"))
        if leaving and (how != "add" or not others):
            self._remove_voter(self._random.choice(leaving))
        return True

    def _remove_voter(self, key: ReplicaKey) -> None:
        self._announce(f"removes voter {key}")
        self._operator.remove_voter(key, partial(self._changed, "removed"))

    def _changed(self, how: str) -> None:
        self._count("change_voters")
        mark(f"voter {how}")

    def recreate(self) -> bool:
        """One at a time: its settings are read from the metadata before it is deleted."""
        found = self._some_partition()
        if found is None or self._operator.is_busy:
            return False
        name = found[0].topic
        self._announce(f"deletes {name} and makes it anew")
        wait_s = self._random.choice((0.0, 0.1, 2.0))
        done = partial(self._count, "recreate")
        self._operator.recreate(self._evidence.image, name, wait_s, done)
        return True
