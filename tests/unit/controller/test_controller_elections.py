"""The rules of leadership for one partition."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.elections import Election, Rules, change
from ottla.metadata.image import PartitionImage
from ottla.metadata.records import (
    LEADER_UNCHANGED,
    NO_LEADER,
    RECOVERED,
    RECOVERING,
    PartitionChangeRecord,
)

TOPIC = UUID(int=7)


def partition(
    replicas: tuple[int, ...] = (1, 2, 3),
    isr: tuple[int, ...] = (1, 2, 3),
    leader: int = 1,
    elr: tuple[int, ...] = (),
    last_known: tuple[int, ...] = (),
    recovery: int = RECOVERED,
) -> PartitionImage:
    directories = tuple(UUID(int=1) for _ in replicas)
    return PartitionImage(
        replicas, isr, (), (), leader, 5, 9, recovery, directories, elr, last_known
    )


def rules(*alive: int, min_isr: int = 2, election: Election = Election.CLEAN) -> Rules:
    return Rules(may_lead=lambda replica: replica in alive, min_isr=min_isr, election=election)


def test_nothing_to_change_gives_no_record() -> None:
    assert change(TOPIC, 0, partition(), rules(1, 2, 3)) is None


def test_a_leader_that_stays_keeps_its_epoch_when_the_isr_shrinks() -> None:
    record = change(TOPIC, 0, partition(), rules(1, 2), isr=[1, 2])
    assert record == PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=(1, 2))
    assert record.leader == LEADER_UNCHANGED


def test_P13_D12_only_a_live_member_of_the_isr_becomes_leader() -> None:
    record = change(TOPIC, 0, partition(isr=(1, 3)), rules(2, 3), isr=[3])
    assert record is not None and record.leader == 3


def test_the_preferred_replica_is_taken_first() -> None:
    record = change(TOPIC, 0, partition(leader=3), rules(1, 2), isr=[2, 1])
    assert record is not None and record.leader == 1


def test_P37_among_equals_the_one_that_leads_least_is_elected() -> None:
    loads = {2: 5, 3: 4}
    busy = Rules(may_lead=lambda r: r != 1, min_isr=1, leads=lambda r: loads[r])
    record = change(TOPIC, 0, partition(), busy, isr=[2, 3])
    assert record is not None and record.leader == 3


def test_P37_a_preferred_election_moves_leadership_back_only_to_an_in_sync_replica() -> None:
    wish = rules(1, 2, 3, election=Election.PREFERRED)
    record = change(TOPIC, 0, partition(leader=2), wish)
    assert record is not None and record.leader == 1 and record.isr is None
    assert change(TOPIC, 0, partition(leader=2, isr=(2, 3)), wish) is None


def test_members_that_leave_a_too_small_isr_become_eligible() -> None:
    record = change(TOPIC, 0, partition(), rules(3), isr=[3])
    assert record is not None
    assert (record.isr, record.leader, record.eligible_leader_replicas) == ((3,), 3, (1, 2))


def test_an_isr_at_the_minimum_clears_the_eligible_replicas() -> None:
    record = change(TOPIC, 0, partition(isr=(1,), elr=(2,)), rules(1, 3), isr=[1, 3])
    assert record is not None and record.eligible_leader_replicas == ()


def test_a_minimum_above_the_number_of_replicas_means_all_of_them() -> None:
    before = partition(replicas=(1, 2), isr=(1,), elr=(2,))
    record = change(TOPIC, 0, before, rules(1, 2, min_isr=3), isr=[1, 2])
    assert record is not None and record.eligible_leader_replicas == ()


def test_a_partition_without_isr_goes_offline_and_remembers_its_last_leader() -> None:
    record = change(TOPIC, 0, partition(isr=(2,), leader=2), rules(), isr=[])
    assert record is not None
    assert (record.isr, record.leader) == ((), NO_LEADER)
    assert (record.eligible_leader_replicas, record.last_known_elr) == ((2,), (2,))


def test_an_eligible_replica_is_elected_when_the_isr_is_empty_and_that_is_clean() -> None:
    offline = partition(isr=(), leader=NO_LEADER, elr=(1, 2), last_known=(2,))
    record = change(TOPIC, 0, offline, rules(1))
    assert record is not None
    assert (record.leader, record.isr, record.eligible_leader_replicas) == (1, (1,), (2,))
    assert record.last_known_elr == () and record.leader_recovery_state == -1


def test_an_eligible_replica_takes_over_at_once_when_the_last_isr_member_dies() -> None:
    record = change(TOPIC, 0, partition(isr=(2,), leader=2, elr=(1,)), rules(1), isr=[])
    assert record is not None
    assert (record.leader, record.isr, record.eligible_leader_replicas) == (1, (1,), (2,))


def test_a_replica_outside_isr_and_elr_is_not_elected() -> None:
    offline = partition(isr=(), leader=NO_LEADER, elr=(1,), last_known=(1,))
    assert change(TOPIC, 0, offline, rules(2, 3)) is None


def test_the_last_known_leader_leads_again_only_when_isr_and_elr_are_empty() -> None:
    waiting = partition(isr=(), leader=NO_LEADER, elr=(1,), last_known=(2,))
    assert change(TOPIC, 0, waiting, rules(2)) is None
    alone = partition(isr=(), leader=NO_LEADER, last_known=(2,))
    record = change(TOPIC, 0, alone, rules(2))
    assert record is not None
    assert (record.leader, record.isr, record.leader_recovery_state) == (2, (2,), RECOVERING)
    assert record.last_known_elr == ()


def test_who_left_the_elr_last_is_remembered_when_the_leader_after_it_had_nothing() -> None:
    """It was elected before the controller heard that its disk was another one (seed 65)."""
    offline = partition(isr=(), leader=NO_LEADER, elr=(2,))
    record = change(TOPIC, 0, offline, rules(1), lost=[2])
    assert record is not None
    assert (record.eligible_leader_replicas, record.last_known_elr) == ((), (2,))
    emptied = change(TOPIC, 0, offline, rules(1), emptied=[2])
    assert emptied is not None
    assert (emptied.eligible_leader_replicas, emptied.last_known_elr) == ((), None)


def test_D12_an_absent_last_known_leader_is_never_elected() -> None:
    alone = partition(isr=(), leader=NO_LEADER, last_known=(2,))
    assert change(TOPIC, 0, alone, rules(1, 3)) is None


def test_P30_an_unclean_election_takes_any_live_replica_and_marks_it_recovering() -> None:
    offline = partition(isr=(), leader=NO_LEADER, elr=(1,), last_known=(1,))
    record = change(TOPIC, 0, offline, rules(3, election=Election.UNCLEAN))
    assert record is not None
    assert (record.leader, record.isr, record.leader_recovery_state) == (3, (3,), RECOVERING)
    assert record.eligible_leader_replicas == ()


def test_P30_an_unclean_election_still_prefers_an_eligible_replica() -> None:
    offline = partition(isr=(), leader=NO_LEADER, elr=(2,), last_known=(1,))
    record = change(TOPIC, 0, offline, rules(1, 2, 3, election=Election.UNCLEAN))
    assert record is not None and record.leader == 2 and record.leader_recovery_state == -1


def test_a_replica_back_from_an_unclean_shutdown_leaves_isr_and_elr() -> None:
    record = change(TOPIC, 0, partition(isr=(2, 3), leader=2), rules(3), lost=[2])
    assert record is not None
    assert (record.leader, record.isr, record.eligible_leader_replicas) == (3, (3,), None)
    offline = partition(isr=(), leader=NO_LEADER, elr=(1, 2), last_known=(2,))
    record = change(TOPIC, 0, offline, rules(), lost=[2])
    assert record is not None and record.eligible_leader_replicas == (1,)


def test_a_replica_on_a_replaced_disk_is_not_even_the_last_known_leader() -> None:
    offline = partition(isr=(), leader=NO_LEADER, elr=(2,), last_known=(2,))
    record = change(TOPIC, 0, offline, rules(2), emptied=[2])
    assert record is not None
    assert (record.leader, record.eligible_leader_replicas) == (LEADER_UNCHANGED, ())
    assert record.last_known_elr == ()


replicas = st.permutations([1, 2, 3, 4]).flatmap(
    lambda order: st.integers(1, 4).map(lambda n: tuple(order[:n]))
)


@given(replicas, st.data())
def test_M8_every_change_keeps_leader_isr_and_elr_consistent(
    assigned: tuple[int, ...], data: st.DataObject
) -> None:
    subset = st.lists(st.sampled_from(assigned), unique=True)
    min_isr = data.draw(st.integers(1, 4))
    minimum = min(min_isr, len(assigned))
    alive = data.draw(subset)
    before = partition(assigned, assigned, assigned[0])
    for _ in range(data.draw(st.integers(1, 6))):
        election = data.draw(st.sampled_from(Election))
        wish = rules(*alive, min_isr=min_isr, election=election)
        target = [r for r in before.isr if r in alive]
        lost = [r for r in data.draw(subset) if r not in alive]
        record = change(TOPIC, 0, before, wish, isr=target, lost=lost)
        after = before if record is None else before.changed_by(record)
        assert after.leader == NO_LEADER or (after.leader in after.isr and after.leader in alive)
        assert not set(after.isr) & set(after.elr) and not set(after.elr) & set(lost)
        assert len(after.isr) < minimum or not after.elr
        entitled = {*before.isr, *before.elr} - set(lost)
        if after.leader not in (NO_LEADER, before.leader) and election is not Election.UNCLEAN:
            again = before.last_known_elr == (after.leader,) and not entitled
            assert after.leader in entitled or again
            assert after.leader in entitled or after.leader_recovery_state == RECOVERING
        before = after
        alive = data.draw(subset)
