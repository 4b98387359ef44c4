"""The majority design itself: with up to f failures at a time no acknowledged record is lost. Without that, comparing it would
mean nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from ottla.lab.commit import majority, rules
from ottla.lab.commit.rules import Completeness, majority_of
from ottla.lab.experiments.f_failures import (
    CUT_OFF_S,
    PARTITION,
    PRACTICE,
    QUORUM,
    WAIT_S,
    Laboratory,
    laboratory,
    variants,
)
from ottla.metadata.image import PartitionImage
from ottla.metadata.records import NO_LEADER
from support.lab_history import DISKS_REPLACED, history_of


@pytest.mark.parametrize(("replicas", "seeds"), [(3, (3, 5)), (5, (1, 5))])
def test_P41_a_majority_loses_no_acknowledged_record_with_f_failures_at_a_time(
    replicas: int, seeds: tuple[int, ...]
) -> None:
    histories = [history_of(seed, "majority", replicas, (replicas - 1) // 2) for seed in seeds]
    assert sum(each.leader_epoch for each in histories) > 2 * len(seeds), "too few elections"
    assert all(each.acknowledged > 500 for each in histories), histories
    assert [(each.lost, each.read_and_lost) for each in histories] == [(0, 0)] * len(seeds)
    assert not any(each.is_offline for each in histories)


def test_P41_a_majority_that_elects_the_least_complete_log_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def least_complete(
        replicas: Sequence[int], logs: Mapping[int, Completeness], may_lead: Callable[[int], bool]
    ) -> int:
        alive = [replica for replica in replicas if replica in logs and may_lead(replica)]
        enough = len(alive) >= majority_of(len(replicas))
        return min(alive, key=lambda replica: logs[replica]) if enough else NO_LEADER

    monkeypatch.setattr(rules, "most_complete", least_complete)
    assert any(history_of(seed, "majority", 5, 2).lost for seed in (1, 3))


@pytest.mark.parametrize(("replicas", "seeds"), [(3, (1,)), (5, (2,))])
def test_P41_a_majority_loses_no_acknowledged_record_when_f_disks_at_a_time_are_replaced(
    replicas: int, seeds: tuple[int, ...]
) -> None:
    failures = (replicas - 1) // 2
    histories = [history_of(seed, "majority", replicas, failures, DISKS_REPLACED) for seed in seeds]
    assert all(each.acknowledged > 500 for each in histories), histories
    assert [(each.lost, each.read_and_lost) for each in histories] == [(0, 0)] * len(seeds)
    assert not any(each.is_offline for each in histories)


def test_P41_a_history_in_which_replicas_on_replaced_disks_vote_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rules, "voters_of", everyone_votes)
    monkeypatch.setattr(majority, "voters_of", everyone_votes)
    assert history_of(1, "majority", 3, 1, DISKS_REPLACED).lost > 0


def everyone_votes(partition: PartitionImage) -> tuple[int, ...]:
    return partition.replicas


def acknowledged_and_kept(label: str) -> tuple[int, int]:
    """The leader comes back on an empty disk, one follower had lagged before, and the other one, which has everything, has a
    slow line to the controller: its session goes on, and its votes are late. One machine fails, so nothing may be lost. The
    acknowledged records, and those of them that can be read and are on some disk."""
    variant = {each.label: each for each in variants(1)}[label]
    with laboratory(0, variant) as lab:
        network = lab.cluster.world.network
        acknowledged = set(lab.produce(1.0, 0.02).acknowledged_at)
        leader = lab.leader
        complete, lagging = (id for id in lab.brokers if id != leader)
        cut = network.partition([lab.name(lagging)], [lab.name(leader), lab.name(complete)])
        acknowledged |= set(lab.produce(CUT_OFF_S, 1.0).acknowledged_at)
        node = lab.cluster.sim.nodes[leader]
        node.kill(power_loss=True)
        node.host.disk.wipe()
        node.start()
        network.unblock(cut)
        slow = lab.cluster.world.network.conditions.slow_links
        slow[lab.name(complete), lab.controller] = 1.5
        lab.cluster.run_for(WAIT_S)
        slow.clear()
        lab.cluster.run_for(WAIT_S)
        assert lab.can_write()
        return len(acknowledged), len(acknowledged & lab.readable() & on_disks(lab))


def on_disks(lab: Laboratory) -> set[str]:
    records = (each for id in lab.brokers for each in lab.cluster.records_on_disk(id, PARTITION))
    return {record.value for record in records}


@pytest.mark.parametrize("label", [QUORUM, PRACTICE])
def test_P41_a_replica_on_a_replaced_disk_elects_nobody(label: str) -> None:
    acknowledged, kept = acknowledged_and_kept(label)
    assert kept == acknowledged > 50


def test_P41_a_vote_of_a_replica_on_a_replaced_disk_would_lose_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rules, "voters_of", everyone_votes)
    monkeypatch.setattr(majority, "voters_of", everyone_votes)
    acknowledged, kept = acknowledged_and_kept(QUORUM)
    assert kept < acknowledged


def test_P41_a_majority_history_is_the_same_for_the_same_seed() -> None:
    assert history_of(3, "majority", 3, 1) == history_of(3, "majority", 3, 1)
