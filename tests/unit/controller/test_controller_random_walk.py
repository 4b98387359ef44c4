"""Random histories of a whole controller, beside a model of what each replica really holds.

The model knows, per partition and broker, the length of its log and where the high watermark stands. A kill
may lose a tail. What the controller decides must keep every committed record at each leader that it elected
cleanly (D3, D12), whatever happens in which order; M8, M9 and the tables of states are asserted by the
code itself on every step.
"""

from __future__ import annotations

from random import Random

import pytest
from controller_world import World

from ottla.controller.configs import ConfigChange, ConfigChanges
from ottla.controller.partitions import ElectionType
from ottla.controller.reassignments import ReassignedPartition
from ottla.metadata.image import PartitionImage
from ottla.metadata.records import NO_LEADER, RECOVERED, RECOVERING, TOPIC_RESOURCE
from ottla.wire.errors import ErrorCode

BROKERS = (1, 2, 3, 4)
STEPS = 120


class Walk:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = World(*BROKERS)
        self.minimum = self.random.choice((1, 2, 3))
        self.world.topic(factor=3, partitions=1, min_isr=self.minimum)
        self.epoch = 1
        self.up = set(BROKERS)
        self.clean_epoch: dict[int, int] = {}
        self.held = dict.fromkeys(BROKERS, 0)
        """Records that each replica holds."""
        self.committed = 0
        self.returned_uncleanly: set[int] = set()
        """In the present step."""
        self.may_have_lost = False
        """An election that the controller itself marked as possibly losing records has happened."""

    def step(self) -> None:
        move = self.random.choice(
            (self.append, self.append, self.fetch, self.fetch, self.shrink, self.grow, self.kill,
             self.kill_all, self.stop_cleanly, self.start, self.start, self.isolate, self.heal,
             self.fail_over, self.prefer, self.change_nothing_in_the_minimum, self.reassign,
             self.cancel)
        )  # fmt: skip
        before = self.world.partition()
        self.returned_uncleanly.clear()
        move()
        for broker in {*before.replicas} - {*self.world.partition().replicas}:
            self.held[broker] = 0  # it deletes its log, now or when it is back
        self.check(before)

    def check(self, before: PartitionImage) -> None:
        after = self.world.partition()
        assert after.leader_epoch >= before.leader_epoch
        assert after.partition_epoch >= before.partition_epoch
        if after.leader == NO_LEADER:
            return
        if after.leader_recovery_state == RECOVERING:
            assert before.last_known_elr == (after.leader,), "nobody else may lead with a loss"
            # The last of the ELR left it just now, by returning from an unclean shutdown.
            assert not before.isr and set(before.elr) <= self.returned_uncleanly
            self.may_have_lost = True
            self.committed = min(self.committed, self.held[after.leader])
            self.world.propose([after.leader], recovery=RECOVERED)
        assert self.held[after.leader] >= self.committed, (
            "an elected leader lacks committed records"
        )

    # The data plane, as leader and followers would behave

    def append(self) -> None:
        leader = self.world.partition().leader
        if leader in self.up:
            self.held[leader] += 1
            self.commit()

    def fetch(self) -> None:
        partition = self.world.partition()
        if partition.leader in self.up:
            follower = self.random.choice(partition.replicas)
            if follower in self.up:
                self.held[follower] = self.held[partition.leader]
            self.commit()

    def commit(self) -> None:
        """The high watermark: all of the ISR, and frozen below the minimum."""
        partition = self.world.partition()
        if len(partition.isr) >= min(self.minimum, len(partition.replicas)):
            self.committed = max(self.committed, min(self.held[r] for r in partition.isr))

    def shrink(self) -> None:
        partition = self.world.partition()
        if partition.leader in self.up and len(partition.isr) > 1:
            slow = self.random.choice([r for r in partition.isr if r != partition.leader])
            self.world.propose([r for r in partition.isr if r != slow])
            self.commit()

    def grow(self) -> None:
        partition = self.world.partition()
        if partition.leader not in self.up:
            return
        ready = [
            r for r in partition.replicas
            if r in partition.isr or (r in self.up and self.held[r] >= self.held[partition.leader])
        ]  # fmt: skip
        if all(self.world.image.is_alive(r) for r in ready):
            self.world.propose(ready)
            self.commit()

    # Brokers

    def someone(self, *, up: bool) -> int | None:
        those = [b for b in BROKERS if (b in self.up) is up]
        return self.random.choice(those) if those else None

    def die(self, broker: int) -> None:
        self.up.discard(broker)
        self.clean_epoch.pop(broker, None)
        self.held[broker] -= self.random.randint(0, self.held[broker])  # the unflushed tail

    def kill(self) -> None:
        if (broker := self.someone(up=True)) is not None:
            self.die(broker)
            self.world.kill(broker)

    def kill_all(self) -> None:
        if self.random.random() < 0.3:
            those = sorted(self.up)
            for broker in those:
                self.die(broker)
            self.world.kill(*those)

    def stop_cleanly(self) -> None:
        if (broker := self.someone(up=True)) is None or not self.world.image.is_alive(broker):
            return
        for _ in range(3):
            for other in sorted(self.up - {broker}):
                if not self.world.image.brokers[other].fenced:
                    self.world.beat(other)
            if self.world.beat(broker, want_shutdown=True).response["should_shut_down"]:
                self.up.discard(broker)
                self.clean_epoch[broker] = self.world.image.brokers[broker].epoch
                return
        raise AssertionError("a shutdown was not granted though all others know")

    def start(self) -> None:
        if (broker := self.someone(up=False)) is not None:
            self.up.add(broker)
            previous = self.clean_epoch.pop(broker, -1)
            if previous < 0:
                self.returned_uncleanly.add(broker)
            self.world.start(broker, previous=previous)
            self.truncate(broker)

    def isolate(self) -> None:
        """Alive, but silent past its session: it loses nothing."""
        if (broker := self.someone(up=True)) is not None:
            self.up.discard(broker)
            self.clean_epoch[broker] = -2  # not dead: it may come back under its own epoch
            self.world.kill(broker)

    def heal(self) -> None:
        away = [b for b, epoch in sorted(self.clean_epoch.items()) if epoch == -2]
        if away:
            broker = self.random.choice(away)
            del self.clean_epoch[broker]
            self.up.add(broker)
            self.world.beat(broker)
            self.truncate(broker)

    def truncate(self, broker: int) -> None:
        leader = self.world.partition().leader
        if leader not in (NO_LEADER, broker):
            self.held[broker] = min(self.held[broker], self.held[leader])

    def fail_over(self) -> None:
        image, controller = self.world.image, self.world.controller
        self.epoch += 1
        controller.deactivate()
        controller.activate(image, self.epoch, self.world.now)
        for broker in sorted(self.up):
            self.world.beat(broker)

    def reassign(self) -> None:
        target = self.random.sample(BROKERS, self.random.randint(1, len(BROKERS)))
        wish = ReassignedPartition("t", 0, tuple(target))
        answer = self.world.controller.alter_reassignments([wish]).response
        assert answer["responses"][0]["partitions"][0]["error_code"] == 0

    def cancel(self) -> None:
        before = self.world.partition()
        answer = self.world.controller.alter_reassignments(
            [ReassignedPartition("t", 0, None)]
        ).response
        code = answer["responses"][0]["partitions"][0]["error_code"]
        if not before.adding and not before.removing:
            assert code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        elif code:
            assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
            assert self.world.partition() == before

    def prefer(self) -> None:
        self.world.controller.elect_leaders(ElectionType.PREFERRED, None)

    def change_nothing_in_the_minimum(self) -> None:
        value = str(self.minimum)
        change = ConfigChange("min.insync.replicas", 0, value)
        wish = ConfigChanges(TOPIC_RESOURCE, "t", (change,))
        self.world.controller.incremental_alter_configs([wish])


@pytest.mark.parametrize("seed", range(150))
def test_D3_D12_no_clean_election_ever_loses_a_committed_record(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.step()


def test_the_walk_reaches_the_rare_states() -> None:
    """Otherwise the test above would prove little."""
    names = ("offline", "elr", "recovering", "isr below minimum", "reassigned", "leader removed")
    seen: dict[str, int] = dict.fromkeys(names, 0)
    for seed in range(40):
        walk = Walk(seed)
        for _ in range(STEPS):
            before = walk.world.partition()
            walk.step()
            partition = walk.world.partition()
            seen["reassigned"] += bool(before.adding) and not partition.adding
            gone = partition.leader != NO_LEADER and before.leader not in partition.replicas
            seen["leader removed"] += before.leader != NO_LEADER and gone
            seen["offline"] += partition.leader == NO_LEADER
            seen["elr"] += bool(partition.elr)
            minimum = min(walk.minimum, len(partition.replicas))
            seen["isr below minimum"] += 0 < len(partition.isr) < minimum
        seen["recovering"] += walk.may_have_lost
    assert all(count >= 5 for count in seen.values()), seen
