"""What an operator does to the cluster while it is in trouble."""

from __future__ import annotations

import asyncio
from functools import partial

from ottla.broker.apis.offsets import HIGH_WATERMARK
from ottla.metadata.image import PartitionImage
from ottla.metadata.records import NO_LEADER
from ottla.raft.voters import ReplicaKey
from ottla.sim.clients.mover import BALANCE, DRAIN, FACTOR, TIMEOUT_S, MoveOrder
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

    def balance(self) -> bool:
        return self._command(BALANCE)

    def drain(self) -> bool:
        return self._command(DRAIN)

    def factor(self) -> bool:
        return self._command(FACTOR)

    def _command(self, kind: str) -> bool:
        """One at a time. A quarter of them is killed on the way: the moves go on, and their throttle stays."""
        topics = sorted(self._evidence.image.topics)
        if self._mover.is_busy or not topics:
            return False
        order = MoveOrder.draw(kind, list(self._cluster.nodes), topics, self._random)
        self._announce(str(order))
        command = self._mover.begin(order, partial(self._count, kind))
        if self._random.random() < 0.25:
            self._later(0.1, self._random.choice((1.0, 10.0)), lambda: self._kill_command(command))
        return True

    def _kill_command(self, command: asyncio.Task[None]) -> None:
        if not command.done():
            self._announce("kills the command that moves replicas")
            command.cancel()
            mark("move command killed")

    def cancel_moves(self) -> bool:
        """Also those of a command that still runs. If nothing is being moved, something is from now on, slowly."""
        decided = [
            each for topic in self._evidence.image.topics.values() for each in topic.partitions
        ]
        if not any(each.adding or each.removing for each in decided):
            found = self._some_partition()
            if found is None or not self._move_slowly(*found):
                return False
        self._later(0.0, self._random.choice((0.1, 0.5)), self._cancel_all)
        return True

    def _move_slowly(self, key: TopicPartition, partition: PartitionImage) -> bool:
        """To a broker that gets nothing from the leader for a while."""
        others = [id for id in self._cluster.nodes if id not in partition.replicas]
        if not others or partition.leader == NO_LEADER:
            return False
        newcomer = self._random.choice(others)
        leader = self._cluster.nodes[partition.leader].host.name
        wished = [newcomer, *partition.replicas[:-1]]
        self._announce(f"moves {key} from {list(partition.replicas)} to {wished}")
        self._slow(leader, self._cluster.nodes[newcomer].host.name, 0.5, 3.0)
        self._operator.reassign(key, wished)
        return True

    def _cancel_all(self) -> None:
        self._announce("cancels all moves")
        done = partial(self._count, "cancel_moves")
        self._mover.cancel_all(self._random.choice(TIMEOUT_S), done)

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
        goes first. Static voters are upgraded before anything else."""
        quorum = self._evidence.quorum
        if self._operator.is_busy:
            return False
        if quorum.may_upgrade:
            self._announce("upgrades the static voters")
            self._operator.upgrade_voters(partial(self._changed, "upgraded"))
            return True
        if not quorum.is_dynamic:
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
        asks = []
        if others and (how != "remove" or not leaving):
            asks.append(partial(self._add_voter, self._random.choice(others)))
        if leaving and (how != "add" or not others):
            asks.append(partial(self._remove_voter, self._random.choice(leaving)))
        controller = self._active_controller()
        if controller is not None and self._random.random() < 0.3:
            # So that the next leader is asked as soon as it leads.
            self._kill(controller)
            self._start_later(controller)
            asks *= 3
        for number, ask in enumerate(asks):
            self._later(0.0, 0.6 * (number // 2), ask)
        return True

    def _add_voter(self, key: ReplicaKey) -> None:
        self._announce(f"adds voter {key}")
        self._operator.add_voter(key, voter_endpoint(key.id), partial(self._changed, "added"))

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
