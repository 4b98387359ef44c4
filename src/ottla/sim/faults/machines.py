"""Faults of machines and of the processes on them."""

from __future__ import annotations

import random
from functools import partial

from ottla.replica.isr import Proposal
from ottla.replica.partition import Partition
from ottla.sim.cluster.nodes import SimNode
from ottla.sim.engine.disk import CHANGES
from ottla.sim.faults.context import FaultContext
from ottla.sim.oracle.coverage import mark

CLOCK_SLOW_MS_MAX = 50 * 60 * 1000
"""A record from more than an hour ahead is refused (message.timestamp.after.max.ms)."""
CLOCK_FAST_MS_MAX = 6 * 60 * 60 * 1000
"""Less than the time after which the state of a silent producer expires (producer.id.expiration.ms)."""


class MachineFaults(FaultContext):
    """Processes die or stand still, machines lose their power, clocks are wrong."""

    def kill(self) -> bool:
        node = self._pick("up", "up", "starting", "paused", "stopping")
        if node is None:
            return False
        self._kill(node)
        self._start_later(node)
        return True

    def power_loss(self) -> bool:
        node = self._pick("up", "starting", "paused", "down")
        if node is None or not self._cut_power(node):
            return False
        self._start_later(node)
        return True

    def power_off(self) -> bool:
        """Planned: the process shuts down first, so nothing is lost."""
        if not self.stop():
            return False
        self._to_unplug.update(n.id for n in self._cluster.nodes.values() if n.is_stopping)
        return True

    def relapse(self) -> bool:
        """A machine loses its power several times, each time when it is just back. Meanwhile two other nodes may be
        cut off from each other, or their requests to the controller may be delayed."""
        node = self._pick("up")
        if node is None or not self._cut_power(node):
            return False
        one, other = [name for name in self._names() if name != node.host.name][:2]
        disturbance = self._random.choice(("none", "cut", "slow", "slow"))
        if disturbance == "cut":
            self._announce(f"parts {one} from {other} only")
            self._heal_later(self._network.partition([one], [other]))
        elif disturbance == "slow":
            controller = self._active_controller()
            delay_s = self._random.choice((0.3, 0.7, 1.4))
            for name in self._names():
                if controller is not None and name != node.host.name:
                    self._slow(name, controller.host.name, delay_s, 10.0)
        at = 0.0
        for _ in range(self._random.randint(2, 5)):
            at += self._random.uniform(0.01, 0.2)
            self._later(at, at, lambda: self._start(node))
            at += self._random.choice((0.3, 1.0, 3.0)) * self._random.uniform(0.3, 1.0)
            self._later(at, at, lambda: self._cut_power(node))
        at += self._random.uniform(0.02, 3.0)
        self._later(at, at, lambda: self._start(node))
        return True

    def ambush(self) -> bool:
        """A machine loses its power and is back at once. Then either it loses it again when it is proposed for an ISR,
        while proposals reach the controller late; or its fetches reach its leaders late."""
        controller = self._active_controller()
        nodes = [node for node in self._cluster.up if node.state == "up" and node is not controller]
        if controller is None or not nodes:
            return False
        node = self._random.choice(nodes)
        if not self._crash_without_power(node):
            return False
        others = [
            name for name in self._names() if name not in (node.host.name, controller.host.name)
        ]
        delay_s = self._random.choice((0.3, 0.7, 1.4))
        if self._random.random() < 0.5:
            self._ambushed[node.id] = random.Random(self._random.getrandbits(64))
            for name in others:
                self._slow(name, controller.host.name, delay_s, 10.0)
        else:
            for name in others:
                self._slow(node.host.name, name, delay_s, 10.0)
        self._later(0.01, 0.2, partial(self._start, node))
        return True

    def isr_proposed(self, partition: Partition, proposal: Proposal) -> None:
        """A leader proposes an ISR: an ambushed member loses its power now."""
        for id, _ in proposal.isr:
            if id not in partition.isr and id in self._ambushed and not self._is_over:
                chance, node = self._ambushed.pop(id), self._cluster.nodes[id]
                after_s = self._cluster.world.loop.after_s
                after_s(chance.uniform(0.0, 0.02), partial(self._crash_again, node))
                after_s(chance.uniform(0.03, 0.1), self._start, node)

    def _crash_again(self, node: SimNode) -> None:
        self._crash_without_power(node)

    def _crash_without_power(self, node: SimNode) -> bool:
        """The process dies first, so that its connections close, then the power is cut. The controller need not wait
        for the session timeout before the broker may register again."""
        if self._is_over or not self._may_harm(node):
            return False
        self._kill(node)
        return self._cut_power(node)

    def blackout(self) -> bool:
        """kill -9 of all nodes at once."""
        self._announce("kills all nodes")
        for node in self._cluster.up:
            node.kill()
            self._start_later(node)
        return True

    def outage(self) -> bool:
        """Two machines, or all of them, lose their power at the same moment."""
        nodes = list(self._cluster.nodes.values())
        if not self._all_are_whole():
            return False
        count = self._random.choice((2, len(nodes), len(nodes)))
        for node in self._random.sample(nodes, count):
            self._lose_power(node)
            self._start_later(node)
        return True

    def _all_are_whole(self) -> bool:
        return all(self._may_harm(node) for node in self._cluster.nodes.values())

    def seesaw(self) -> bool:
        """Two nodes are up in turn: each starts when the other was just killed. If some partition has only two
        replicas, they are its nodes."""
        pairs = [
            [self._cluster.nodes[id] for id in partition.replicas]
            for topic in self._evidence.image.topics.values()
            for partition in topic.partitions
            if len(partition.replicas) == 2
        ]
        one, other = self._random.sample(
            self._random.choice(pairs or [list(self._cluster.nodes.values())]), 2
        )
        at = 0.0
        for _ in range(self._random.randint(2, 5)):
            self._later(at, at, partial(self._kill, one))
            back = at + self._random.uniform(0.02, 0.5)
            self._later(back, back, partial(self._start, other))
            at += self._random.uniform(0.5, 4.0)
            one, other = other, one
        for node in (one, other):
            self._later(at, at + 2.0, partial(self._start, node))
        return True

    def stop(self) -> bool:
        """Controlled shutdown, half of the time of the active controller."""
        node = self._active_controller() if self._random.random() < 0.5 else self._pick("up")
        if node is None:
            return False
        self._announce(f"stops node {node.id}")
        node.stop()
        return True

    def clock(self) -> bool:
        """A wall clock is set, forward or back."""
        node = self._random.choice(list(self._cluster.nodes.values()))
        error_ms = self._random.choice(
            (
                0,
                -self._random.randrange(CLOCK_SLOW_MS_MAX),
                self._random.randrange(CLOCK_FAST_MS_MAX),
            )
        )
        self._announce(f"sets the clock of node {node.id} to {error_ms / 1000:+.3f} s")
        node.host.clock.wall_error_ms = error_ms
        return True

    def pause(self) -> bool:
        node = self._pick("up", "starting")
        if node is None:
            return False
        self._pause(node, 0.05, self._random.choice((0.5, 5.0, 20.0)))
        return True

    def _pause(self, node: SimNode, shortest_s: float, longest_s: float) -> None:
        if node.state not in ("up", "starting"):
            return
        self._announce(f"pauses node {node.id}")
        node.host.pause()
        process = node.process

        def resume() -> None:
            if node.process is process and process is not None and process.paused:
                self._announce(f"resumes node {node.id}")
                node.host.resume()

        self._later(shortest_s, longest_s, resume)

    def die_midway(self) -> bool:
        """A process dies between two changes of its disk, while it runs, stops or starts. Half of the time its machine
        loses its power then."""
        node = self._pick("up", "starting", "stopping")
        if node is None or node.host.disk.is_doomed:
            return False
        change = self._random.choice((None, None, "rename", "remove", "truncate", *CHANGES))
        countdown = self._random.randint(1, self._random.choice((1, 3, 30 if change else 300)))
        with_power = self._random.random() < 0.5
        self._announce(
            f"lets node {node.id} die before its {countdown}. {change or 'change'} from now"
        )

        def is_power_loss() -> bool:
            return with_power and self._may_harm(node)

        node.host.die_before(change, countdown, is_power_loss, partial(self._died, node))
        occasion = self._random.choice(("none", "none", "stop", "start"))
        if occasion == "stop" and node.state == "up":
            node.stop()
        elif occasion == "start":
            self._kill(node)
            self._later(0.001, 0.2, partial(self._start, node))
        self._later(1.0, 20.0, node.host.disk.forget_death)
        return True

    def _died(self, node: SimNode, change: str, power_loss: bool) -> None:
        how = "with the power of its machine" if power_loss else "alone"
        self._announce(f"node {node.id} dies before a {change}, {how}")
        self._count("die_midway")
        mark(f"died before a {change}")
        self._evidence.died_midway(node.id)
        if power_loss:
            self._evidence.power_lost(node.id)
        node.kill(power_loss=power_loss)
        with self._drawing_from(self._restart_random[node.id]):
            self._start_later(node)
