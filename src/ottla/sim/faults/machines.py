"""What happens to machines and the processes on them."""

from __future__ import annotations

import random
from functools import partial

from ottla.replica.isr import Proposal
from ottla.replica.partition import Partition
from ottla.sim.cluster.nodes import SimNode
from ottla.sim.engine.disk import CHANGES
from ottla.sim.faults.fault import Deeds
from ottla.sim.oracle.coverage import mark

CLOCK_SLOW_MS_MAX = 50 * 60 * 1000
"""A record from more than an hour ahead is refused (message.timestamp.after.max.ms)."""
CLOCK_FAST_MS_MAX = 6 * 60 * 60 * 1000
"""Less than what a silent producer's state outlives, by the wall clock."""


class MachineFaults(Deeds):
    """Processes die, machines go dark, clocks are wrong."""

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
        """A planned one: the process stops in good order first, so nothing is lost."""
        if not self.stop():
            return False
        self._to_unplug.update(n.id for n in self._cluster.nodes.values() if n.is_stopping)
        return True

    def relapse(self) -> bool:
        """A machine that loses its power again and again, each time when it is just back; two others may
        not hear of it from each other meanwhile, or what they tell the controller comes late."""
        node = self._pick("up")
        if node is None or not self._cut_power(node):
            return False
        one, other = [name for name in self._names() if name != node.host.name][:2]
        disturbance = self._random.choice(("none", "cut", "slow", "slow"))
        if disturbance == "cut":
            self._say(f"parts {one} from {other} only")
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
        """A machine goes down and is back at once. Either it loses it again when it is proposed for an
        ISR, and proposals reach the controller late; or its leaders hear late from it how far it has got."""
        controller = self._active_controller()
        nodes = [node for node in self._cluster.up if node.state == "up" and node is not controller]
        if controller is None or not nodes:
            return False
        node = self._random.choice(nodes)
        if not self._fell(node):
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

    def _spring(self, partition: Partition, proposal: Proposal) -> None:
        for id, _ in proposal.isr:
            if id not in partition.isr and id in self._ambushed and not self._is_over:
                chance, node = self._ambushed.pop(id), self._cluster.nodes[id]
                after_s = self._cluster.world.loop.after_s
                after_s(chance.uniform(0.0, 0.02), partial(self._fell_again, node))
                after_s(chance.uniform(0.03, 0.1), self._start, node)

    def _fell_again(self, node: SimNode) -> None:
        self._fell(node)

    def _fell(self, node: SimNode) -> bool:
        """The process dies, and everybody sees its connections close; then the power goes. So the controller
        need not wait for a session to end before the next life may register."""
        if self._is_over or not self._may_harm(node):
            return False
        self._kill(node)
        return self._cut_power(node)

    def blackout(self) -> bool:
        """All processes are killed at once."""
        self._say("kills all nodes")
        for node in self._cluster.up:
            node.kill()
            self._start_later(node)
        return True

    def outage(self) -> bool:
        """Several machines lose their power in the same moment, or all of them."""
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
        """Two machines that are not up together: each comes back when the other is just gone. If there are
        partitions with no other replicas, they are those of one of them."""
        pairs = [
            [self._cluster.nodes[id] for id in partition.replicas]
            for topic in self._checkers.image.topics.values()
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
        """Half of the time, the active controller."""
        node = self._active_controller() if self._random.random() < 0.5 else self._pick("up")
        if node is None:
            return False
        self._say(f"stops node {node.id}")
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
        self._say(f"sets the clock of node {node.id} to {error_ms / 1000:+.3f} s")
        node.host.clock.wall_error_ms = error_ms
        return True

    def pause(self) -> bool:
        node = self._pick("up", "starting")
        if node is None:
            return False
        self._say(f"pauses node {node.id}")
        node.host.pause()
        process = node.process

        def resume() -> None:
            if node.process is process and process is not None and process.paused:
                self._say(f"resumes node {node.id}")
                node.host.resume()

        self._later(0.05, self._random.choice((0.5, 5.0, 20.0)), resume)
        return True

    def die_midway(self) -> bool:
        """A process dies between two changes of its disk: while it runs, stops or starts. Sometimes its machine
        loses its power then."""
        node = self._pick("up", "starting", "stopping")
        if node is None or node.host.disk.is_doomed:
            return False
        change = self._random.choice((None, None, "rename", "remove", "truncate", *CHANGES))
        countdown = self._random.randint(1, self._random.choice((1, 3, 30 if change else 300)))
        with_power = self._random.random() < 0.5
        self._say(f"lets node {node.id} die before its {countdown}. {change or 'change'} from now")

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
        self._say(f"node {node.id} dies before a {change}, {how}")
        self._happened("die_midway")
        mark(f"died before a {change}")
        self._checkers.died_midway(node.id)
        if power_loss:
            self._checkers.power_lost(node.id)
        node.kill(power_loss=power_loss)
        with self._drawing_from(self._departures[node.id]):
            self._start_later(node)
