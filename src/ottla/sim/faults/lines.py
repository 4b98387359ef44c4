"""Faults of the lines between machines."""

from __future__ import annotations

from functools import partial

from ottla.metadata.records import NO_LEADER
from ottla.sim.faults.context import CLIENTS, FaultContext
from ottla.wire.types import TopicPartition


class LineFaults(FaultContext):
    """A line is cut, one way or both, or delays what it carries; its connections are reset, or one of them stalls."""

    def isolate(self) -> bool:
        name = self._names()[0]
        others = [other for other in self._names() if other != name]
        if self._random.random() < 0.5:
            others.append(CLIENTS)
        self._announce(f"isolates {name}")
        self._heal_later(self._network.partition([name], others))
        return True

    def halves(self) -> bool:
        names = self._names()
        cut = self._random.randint(1, len(names) - 1)
        self._announce(f"parts {sorted(names[:cut])} from {sorted(names[cut:])}")
        self._heal_later(self._network.partition(names[:cut], names[cut:]))
        return True

    def one_way(self) -> bool:
        source, target = self._names()[:2]
        self._announce(f"lets nothing pass from {source} to {target}")
        self._network.block(source, target)
        self._heal_later([(source, target)])
        return True

    def bridge(self) -> bool:
        one, other = self._names()[:2]
        self._announce(f"parts {one} from {other} only")
        self._heal_later(self._network.partition([one], [other]))
        return True

    def flap(self) -> bool:
        """A line is cut and healed, several times."""
        one, other = self._names()[:2]
        self._announce(f"lets the line between {one} and {other} flap")
        at = 0.0
        for _ in range(self._random.randint(2, 6)):
            at += self._random.uniform(0.05, 2.0)
            lasting_s = self._random.uniform(0.05, 2.0)
            self._later(at, at, partial(self._partition_for, lasting_s, [one], [other]))
            at += lasting_s
        return True

    def reset(self) -> bool:
        node = self._pick("up", "starting", "paused")
        if node is None:
            return False
        self._announce(f"resets the connections of node {node.id}")
        node.host.reset_connections()
        return True

    def slow_line(self) -> bool:
        """Half of the time, the line from a node to the active controller."""
        source, target = self._names()[:2]
        controller = self._active_controller()
        if controller is not None and self._random.random() < 0.5:
            target = controller.host.name
            source = next(name for name in self._names() if name != target)
        self._slow(source, target, self._random.choice((0.02, 0.2, 1.0)), 15.0)
        return True

    def freeze(self) -> bool:
        """One connection of a node, as if a firewall on its way had forgotten it. Half of the time it leads to the
        active controller: perhaps the one for heartbeats."""
        node = self._pick("up", "starting", "paused")
        if node is None or node.process is None:
            return False
        ends = [end for end in node.process.sockets.values() if end.other.host is not end.host]
        controller = self._active_controller()
        if controller is not None and self._random.random() < 0.5:
            name = controller.host.name
            ends = [end for end in ends if end.other.host.name == name] or ends
        if not ends:
            return False
        end = self._random.choice(ends)
        self._announce(
            f"freezes connection {end.number} of {node.host.name} with {end.other.host.name}"
        )
        self._network.freeze(end)

        def thaw() -> None:
            self._announce(f"thaws connection {end.number} of {node.host.name}")
            self._network.thaw(end)

        self._later(0.1, self._random.choice((1.0, 5.0, 20.0)), thaw)
        return True

    def tug(self) -> bool:
        """Two replicas of a partition cannot reach each other, lead it in turn and both stay in the ISR, so that each
        has records that the other lacks. After some turns they reach each other, and go on leading in turn."""
        found, controller = self._some_partition(), self._active_controller()
        if found is None or controller is None:
            return False
        key, partition = found
        able = [
            id
            for id in partition.isr
            if id != controller.id and self._cluster.nodes[id].state == "up"
        ]
        if len(able) < 2:
            return False
        one, other = self._random.sample(able, 2)
        others = [id for id in partition.replicas if id not in (one, other)]
        apart = [self._cluster.nodes[id].host.name for id in (one, other)]
        self._announce(f"parts {apart[0]} from {apart[1]}, which are to lead {key} in turn")
        ways = self._network.partition(apart[:1], apart[1:])
        at = 0.0
        meet = self._random.randint(3, 7)
        for turn in range(meet + self._random.randint(1, 5)):
            if turn == meet:
                self._later(at, at, partial(self._network.unblock, ways))
            self._later(at, at, partial(self._move_leadership, key, [one, other, *others]))
            at += self._random.uniform(0.3, 1.2)
            one, other = other, one
        return True

    def hop(self) -> bool:
        """The leadership of one partition moves several times: each leader is cut off from the other nodes for a
        while, but not from clients."""
        found = self._some_partition()
        if found is None:
            return False
        at = 0.0
        for _ in range(self._random.randint(2, 5)):
            lasting_s = self._random.uniform(0.5, 5.0)
            self._later(at, at, partial(self._cut_off_leader, found[0], lasting_s))
            at += lasting_s + self._random.uniform(0.05, 3.0)
        return True

    def _cut_off_leader(self, key: TopicPartition, lasting_s: float) -> None:
        topic = self._evidence.image.topics.get(key.topic)
        leader = NO_LEADER if topic is None else topic.partitions[key.partition].leader
        if leader != NO_LEADER:
            name = self._cluster.nodes[leader].host.name
            self._announce(f"isolates {name}, which leads {key}")
            self._partition_for(
                lasting_s, [name], [other for other in self._names() if other != name]
            )
