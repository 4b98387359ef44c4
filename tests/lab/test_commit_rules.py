"""The rules of commit and election of the lab, without a cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from ottla.controller.elections import Election, PartitionAssignment, Rules
from ottla.lab.commit.rules import (
    Completeness,
    change_by_majority,
    change_without_elr,
    committed_by_majority,
    elected_by_majority,
    most_complete,
    voters_of,
)
from ottla.metadata.image import PartitionImage
from ottla.metadata.records import DIRECTORY_LOST, NO_LEADER
from ottla.replica.follower_progress import UNKNOWN_OFFSET

TOPIC = UUID(int=1)


def leadership(own_end: int, followers: list[int], epoch_start: int = 0) -> Any:
    return cast(
        Any,
        SimpleNamespace(
            log=SimpleNamespace(log_end=own_end),
            followers={id: SimpleNamespace(log_end=end) for id, end in enumerate(followers)},
            epoch_start=epoch_start,
        ),
    )


@pytest.mark.parametrize(
    ("own_end", "followers", "committed"),
    [
        (10, [], 10),
        (10, [4], 4),
        (10, [9, 4], 9),
        (10, [9, 7, 3, UNKNOWN_OFFSET], 7),
        (10, [UNKNOWN_OFFSET, UNKNOWN_OFFSET], UNKNOWN_OFFSET),
    ],
)
def test_P41_a_majority_commits_what_its_fastest_half_has(
    own_end: int, followers: list[int], committed: int
) -> None:
    assert committed_by_majority(leadership(own_end, followers), 0.0) == committed


def test_P41_a_leader_commits_no_older_record_before_one_of_its_own() -> None:
    assert committed_by_majority(leadership(8, [8, 8], epoch_start=8), 0.0) == UNKNOWN_OFFSET
    assert committed_by_majority(leadership(9, [8, 8], epoch_start=8), 0.0) == UNKNOWN_OFFSET
    assert committed_by_majority(leadership(9, [9, 2], epoch_start=8), 0.0) == 9


def everyone(replica: int) -> bool:
    return True


def test_P41_a_vote_needs_a_majority() -> None:
    assert most_complete((1, 2, 3), {1: Completeness(4, 10)}, everyone) == NO_LEADER


def test_P41_a_later_last_epoch_beats_a_longer_log() -> None:
    logs = {1: Completeness(3, 100), 2: Completeness(4, 50)}
    assert most_complete((1, 2, 3), logs, everyone) == 2


def test_P41_of_equal_logs_the_first_replica_leads_and_a_dead_one_never() -> None:
    logs = {1: Completeness(3, 9), 2: Completeness(4, 9), 3: Completeness(4, 9)}
    assert most_complete((1, 2, 3), logs, everyone) == 2
    assert most_complete((1, 2, 3), logs, lambda replica: replica != 2) == 3
    assert most_complete((1, 2, 3), logs, lambda replica: replica == 1) == NO_LEADER


def partition(leader: int, isr: tuple[int, ...], elr: tuple[int, ...] = ()) -> PartitionImage:
    return PartitionImage(
        replicas=(1, 2, 3),
        isr=isr,
        removing=(),
        adding=(),
        leader=leader,
        leader_epoch=5,
        partition_epoch=9,
        leader_recovery_state=0,
        directories=(UUID(int=101), UUID(int=102), UUID(int=103)),
        elr=elr,
        last_known_elr=(),
    )


def alive(*brokers: int, unclean: bool = False) -> Rules:
    election = Election.UNCLEAN if unclean else Election.CLEAN
    return Rules(may_lead=lambda replica: replica in brokers, min_isr=2, election=election)


def test_P41_a_majority_partition_first_loses_its_leader_and_keeps_its_voters() -> None:
    before = partition(1, (1, 2, 3))
    change = change_by_majority(TOPIC, 0, before, alive(2, 3), isr=[2, 3])
    assert change is not None
    assert change.leader == NO_LEADER
    after = before.changed_by(change)
    assert (after.isr, after.elr, sorted(voters_of(after))) == ((2, 3), (1,), [1, 2, 3])


def test_P41_a_majority_keeps_its_leader_and_its_voters_without_a_follower() -> None:
    before = partition(1, (1, 2, 3))
    change = change_by_majority(TOPIC, 0, before, alive(1, 2), isr=[1, 2])
    assert change is not None
    after = before.changed_by(change)
    assert (after.leader, after.leader_epoch, sorted(voters_of(after))) == (1, 5, [1, 2, 3])


def test_P41_a_replica_on_another_disk_votes_again_when_the_leader_proposes_it() -> None:
    before = partition(1, (1, 2, 3))
    moved = PartitionAssignment.of(before).moved(3, UUID(int=203))
    change = change_by_majority(TOPIC, 0, before, alive(1, 2), emptied=[3], assignment=moved)
    assert change is not None
    without = before.changed_by(change)
    assert sorted(voters_of(without)) == [1, 2]
    again = change_by_majority(TOPIC, 0, without, alive(1, 2, 3), isr=[1, 2, 3])
    assert again is not None
    assert sorted(voters_of(without.changed_by(again))) == [1, 2, 3]


def test_P41_a_replica_whose_directory_is_lost_votes_no_longer_and_a_killed_one_does() -> None:
    before = partition(1, (1, 2, 3))
    killed = change_by_majority(TOPIC, 0, before, alive(1, 2), lost=[3])
    assert killed is not None
    assert sorted(voters_of(before.changed_by(killed))) == [1, 2, 3]
    moved = PartitionAssignment.of(before).moved(3, DIRECTORY_LOST)
    lost = change_by_majority(TOPIC, 0, before, alive(1, 2), lost=[3], assignment=moved)
    assert lost is not None
    assert sorted(voters_of(before.changed_by(lost))) == [1, 2]


def test_P41_only_voters_count_in_a_vote() -> None:
    vacant = partition(NO_LEADER, (2,), elr=(3,))
    logs = {1: Completeness(-1, 0), 3: Completeness(4, 50)}
    assert elected_by_majority(TOPIC, 0, vacant, logs, everyone) is None
    logs[2] = Completeness(4, 110)
    change = elected_by_majority(TOPIC, 0, vacant, logs, everyone)
    assert change is not None and change.leader == 2
    logs[3] = Completeness(5, 1)
    change = elected_by_majority(TOPIC, 0, vacant, logs, everyone)
    assert change is not None
    assert (change.leader, change.isr, change.eligible_leader_replicas) == (3, (2, 3), ())


def test_P41_an_unclean_election_takes_a_voter_first_and_all_others_must_catch_up() -> None:
    vacant = partition(NO_LEADER, (), elr=(3,))
    change = change_by_majority(TOPIC, 0, vacant, alive(1, 2, 3, unclean=True))
    assert change is not None
    assert (change.leader, change.isr, change.eligible_leader_replicas) == (3, (3,), ())
    change = change_by_majority(TOPIC, 0, vacant, alive(1, 2, unclean=True))
    assert change is not None and (change.leader, change.isr) == (1, (1,))


def test_P42_without_elr_the_last_member_stays_in_the_isr_and_is_waited_for() -> None:
    change = change_without_elr(TOPIC, 0, partition(1, (1,)), alive(2, 3), isr=[])
    assert change is not None
    assert (change.leader, change.isr, change.eligible_leader_replicas) == (NO_LEADER, None, None)
    back = change_without_elr(TOPIC, 0, partition(NO_LEADER, (1,)), alive(1, 2, 3))
    assert back is not None and back.leader == 1


def test_P42_without_elr_the_last_member_leads_again_whatever_it_lost() -> None:
    assert change_without_elr(TOPIC, 0, partition(NO_LEADER, (1,)), alive(2, 3), lost=[1]) is None


def test_P30_without_elr_an_unclean_election_takes_any_replica() -> None:
    change = change_without_elr(TOPIC, 0, partition(1, (1,)), alive(3, unclean=True), isr=[])
    assert change is not None
    assert (change.leader, change.isr) == (3, (3,))
