"""The rules of PROMISES A to D, one conversation each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ottla.replica.follower import next_fetch_position, restart_within
from ottla.replica.roles import Role
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.fetch_messages import FetchPartition
from support.replica_world import LAG_S, World


def consumer_fetch(offset: int, epoch: int = -1) -> FetchPartition:
    return FetchPartition(
        topic="t",
        topic_id=None,
        partition=0,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        max_bytes=1 << 20,
    )


def test_P02_a_partition_has_one_leader_and_its_factor_counts_it(tmp_path: Path) -> None:
    world = World(tmp_path, brokers=3)
    assert [world[id].role for id in world.ids] == [Role.LEADER, Role.FOLLOWER, Role.FOLLOWER]
    assert world[1].replicas == (1, 2, 3)


def test_P01_a_factor_of_one_is_a_leader_without_followers(tmp_path: Path) -> None:
    world = World(tmp_path, brokers=1)
    due = world.produce(1, "a", acks=-1)
    assert world[1].log.high_watermark == due


def test_P03_a_write_to_a_follower_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    with pytest.raises(KafkaError) as refused:
        world.produce(2, "a")
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_P03_a_consumer_that_names_its_rack_is_sent_to_the_follower_there(tmp_path: Path) -> None:
    world = World(tmp_path, brokers=3)
    world.produce(1, "a")
    world.settle()
    racks = {1: "r1", 2: "r2", 3: "r2"}
    assert world.leading(1).nearest_replica("r2", 0, racks.get) == 2
    assert world.leading(1).nearest_replica("r1", 0, racks.get) is None
    answer = world[2].serve_consumer(consumer_fetch(0), False, 1 << 20, True, from_follower=True)
    assert answer.error == 0 and answer.records is not None
    old_client = world[2].serve_consumer(
        consumer_fetch(0), False, 1 << 20, True, from_follower=False
    )
    assert old_client.error == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_P04_followers_hold_the_same_bytes_at_the_same_offsets(tmp_path: Path) -> None:
    world = World(tmp_path, brokers=3)
    for number in range(5):
        world.produce(1, f"a{number}", f"b{number}")
    world.settle()
    world.assert_identical()
    assert world.entries(2)[3] == (3, 0, "b1")


def test_P05_a_follower_that_was_away_copies_many_batches_in_one_fetch(tmp_path: Path) -> None:
    world = World(tmp_path)
    for number in range(20):
        world.produce(1, f"m{number}")
    world.fetch(2, 1)
    assert world[2].log.log_end == 20


def test_P07_ends_move_at_append_and_the_high_watermark_at_the_fetch_after_it(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    leader, follower = world[1], world[2]

    def state() -> tuple[int, int, int, int]:
        return (
            leader.log.log_end,
            leader.log.high_watermark,
            follower.log.log_end,
            follower.log.high_watermark,
        )

    world.fetch(2, 1)
    world.produce(1, "m")
    assert state() == (1, 0, 0, 0)  # the leader's end moves at append
    world.fetch(2, 1)
    assert state() == (1, 0, 1, 0)  # the follower's at its own; the leader has learnt nothing yet
    answer = world.ask(2, 1)
    assert state() == (1, 1, 1, 0)  # the next fetch names offset 1: now the leader knows
    world.follow(2, answer)
    assert state() == (1, 1, 1, 1)  # and the follower's HW = min(leader's HW, own end)


def test_P07_a_high_watermark_never_goes_back_within_an_epoch(tmp_path: Path) -> None:
    """Not the leader's when a follower fetches from an earlier offset again, nor a follower's by an older answer."""
    world = World(tmp_path, brokers=3)
    world.produce(1, "a")
    world.settle()
    earlier, older_answer = world.position(2), world.ask(2, 1)
    assert (earlier.fetch_offset, older_answer.high_watermark) == (1, 1)
    for value in "bc":
        world.produce(1, value)
        world.settle()
    assert [world[id].log.high_watermark for id in world.ids] == [3, 3, 3]
    world.ask(2, 1, earlier)  # as after a power loss that took the follower's tail
    assert world.seen[1].went_back == 1
    assert world[1].log.high_watermark == 3
    world.follow(2, older_answer)
    assert world[2].log.high_watermark == 3
    for id in world.ids:
        assert world.seen[id].high_watermarks == [1, 2, 3]


def test_P11_a_follower_that_lags_leaves_the_isr_and_one_that_is_idle_stays(tmp_path: Path) -> None:
    world = World(tmp_path, brokers=3)
    world.produce(1, "a")
    world.settle()
    world.now += 10 * LAG_S
    world.isr_changes(1).review(world.now)
    assert world[1].proposal is None, "nothing was written: nobody lags"
    world.produce(1, "b")
    world.fetch(2, 1, times=2)
    world.now += LAG_S + 1
    world.fetch(2, 1)
    world.isr_changes(1).review(world.now)
    assert [id for id, _ in world.proposal(1).isr] == [1, 2]


def test_P12_the_leader_removes_a_follower_that_stopped_fetching(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.fetch(2, 1)
    world.produce(1, "a")
    world.now += LAG_S + 1
    world.isr_changes(1).review(world.now)
    assert [id for id, _ in world.proposal(1).isr] == [1]


def test_P13_an_isr_change_counts_only_when_the_controller_has_committed_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.produce(1, "a")
    world.now += LAG_S + 1
    world.isr_changes(1).review(world.now)
    world.leading(1).reconsider(world.now)
    assert list(world[1].isr) == [1, 2]
    assert world[1].log.high_watermark == 0, "the larger set counts while the proposal is pending"
    world.accept_proposal(1)
    assert world[1].isr == (1,)
    assert world[1].log.high_watermark == 1


def test_P13_a_refused_proposal_changes_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.produce(1, "a")
    world.now += LAG_S + 1
    world.isr_changes(1).review(world.now)
    world.isr_changes(1).withdraw(world.proposal(1), world.now)
    assert world[1].isr == (1, 2) and world[1].log.high_watermark == 0


def test_P14_a_removed_follower_lets_the_high_watermark_advance_and_comes_back_when_caught_up(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.produce(1, "a")
    world.now += LAG_S + 1
    world.isr_changes(1).review(world.now)
    world.accept_proposal(1)
    world.produce(1, "b")
    assert world[1].log.high_watermark == 2
    world.fetch(2, 1)
    assert world[1].proposal is None, "it has the records, but the leader cannot know it yet"
    world.fetch(2, 1)
    assert [id for id, _ in world.proposal(1).isr] == [1, 2]
    world.accept_proposal(1)
    assert world[1].isr == (1, 2)


def test_P14_of_two_that_are_refused_together_the_one_that_may_join_does(tmp_path: Path) -> None:
    """The controller refuses both if the disk of one is full; and the topic is idle, so they stay caught up."""
    world = World(tmp_path, brokers=3)
    world.settle()
    world.decide(isr=(1,))
    asked = []
    for _ in range(4):
        proposal = world.proposal(1)
        asked.append([id for id, _ in proposal.isr])
        if 3 in asked[-1]:
            world.isr_changes(1).refused(proposal, world.now)
        else:
            world.accept_proposal(1)
        world.isr_changes(1).maybe_expand(world.now)
    assert asked == [[1, 2, 3], [1, 2], [1, 2, 3], [1, 2, 3]]


def test_P14_a_replica_that_was_about_to_join_and_died_holds_nothing_back(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.decide(isr=(1,))
    world.fetch(2, 1)
    world.isr_changes(1).withdraw(world.proposal(1), world.now)
    world.produce(1, "a")
    assert world[1].log.high_watermark == 0
    world.eligible[2] = None
    world.leading(1).reconsider(world.now)
    assert world[1].log.high_watermark == 1


def test_P12_a_follower_that_stopped_is_not_taken_back_before_it_fetches_again(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.fetch(2, 1)
    world.produce(1, "a")
    world.now += LAG_S + 1
    world.isr_changes(1).review(world.now)
    world.accept_proposal(1)
    world.leading(1).reconsider(world.now)
    world.isr_changes(1).review(world.now)
    assert world[1].isr == (1,) and world[1].proposal is None
    assert world[1].log.high_watermark == 1


def test_P14_an_idle_follower_joins_again_when_it_is_unfenced_though_it_says_nothing(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.eligible[2] = None
    world.decide(isr=(1,))
    world.fetch(2, 1)
    assert world[1].proposal is None
    world.eligible[2] = 102
    world.leading(1).reconsider(world.now)
    assert [id for id, _ in world.proposal(1).isr] == [1, 2]


@pytest.mark.parametrize("why", ["fenced", "restarted"])
def test_P13_a_follower_that_is_not_eligible_is_not_proposed(tmp_path: Path, why: str) -> None:
    world = World(tmp_path)
    world.decide(isr=(1,))
    answer_epoch = world.epochs[2]
    world.eligible[2] = None if why == "fenced" else answer_epoch + 50
    fetch = consumer_fetch(0, epoch=world[1].leader_epoch)
    world.leading(1).serve_follower(fetch, 2, answer_epoch, 1 << 20, True, world.now)
    assert world[1].proposal is None


def test_KAFKA_7128_a_follower_behind_the_start_of_the_epoch_does_not_join(tmp_path: Path) -> None:
    world = World(tmp_path, brokers=3)
    world.produce(1, "a")
    world.fetch(2, 1)  # 2 has a, HW still 0 everywhere
    world.decide(leader=2, isr=(2,))
    assert world.leading(2).epoch_start == 1 and world[2].log.high_watermark >= 0
    world.fetch(3, 2)  # a fetch for offset 0: at the HW perhaps, but below the epoch's start
    assert world[2].proposal is None or 3 not in [id for id, _ in world[2].proposal.isr]


def test_D10_a_follower_that_has_not_deleted_what_the_leader_has_does_not_join(
    tmp_path: Path,
) -> None:
    """Simulator seed 43: it had other records there, of an epoch that the leader's log no longer tells of,
    and would have shown them as a leader."""
    world = World(tmp_path)
    world.produce(1, "never committed")
    world.decide(leader=2, isr=(2,), to=(2,))
    world.produce(2, "committed")
    world[2].log.advance_log_start(1)
    world.spread()
    world.ask(1, 2)
    assert world[2].proposal is None
    world.fetch(1, 2)
    assert world[1].log.log_start == 1
    world.fetch(1, 2)
    proposal = world[2].proposal
    assert proposal is not None and [id for id, _ in proposal.isr] == [2, 1]


def test_a_fetch_that_comes_late_and_takes_its_follower_back_is_told_to_the_sessions(
    tmp_path: Path,
) -> None:
    """Simulator seed 679: it had been sent on a connection that its follower gave up since. In the session that
    followed, the partition was idle and was never named again: the leader took its follower for behind, for good,
    and never proposed it."""
    world = World(tmp_path)
    late = world.position(2)
    world.produce(1, "a")
    world.fetch(2, 1, times=2)
    assert (world.leading(1).followers[2].log_end, world.seen[1].went_back) == (1, 0)
    world.ask(2, 1, late)
    assert (world.leading(1).followers[2].log_end, world.seen[1].went_back) == (0, 1)


def test_P18_acks_all_is_refused_when_the_isr_is_smaller_than_the_minimum(tmp_path: Path) -> None:
    world = World(tmp_path, brokers=3, min_isr=2)
    world.decide(isr=(1,))
    with pytest.raises(KafkaError) as refused:
        world.produce(1, "a", acks=-1)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert world[1].log.log_end == 0


def test_P18_the_minimum_is_never_more_than_there_are_replicas(tmp_path: Path) -> None:
    world = World(tmp_path, brokers=1, min_isr=2)
    assert world.produce(1, "a", acks=-1) == world[1].log.high_watermark


def test_P19_a_record_is_invisible_until_all_of_the_isr_have_it(tmp_path: Path) -> None:
    world = World(tmp_path, brokers=3, min_isr=2)
    world.fetch(2, 1)
    world.fetch(3, 1)
    world.produce(1, "a", acks=1)
    read = world[1].serve_consumer(consumer_fetch(0), False, 1 << 20, True, True)
    assert read.records is None and read.high_watermark == 0
    world.fetch(2, 1, times=2)
    assert world[1].log.high_watermark == 0, "3 is in the ISR and has nothing"
    world.fetch(3, 1, times=2)
    read = world[1].serve_consumer(consumer_fetch(0), False, 1 << 20, True, True)
    assert read.records is not None


def test_a_consumer_that_names_a_negative_epoch_names_none(tmp_path: Path) -> None:
    world = World(tmp_path, brokers=1)
    world.produce(1, "a", acks=1)
    for epoch in (-1, -2, -(1 << 31)):
        read = world[1].serve_consumer(consumer_fetch(0, epoch), False, 1 << 20, True, True)
        assert read.error == ErrorCode.NONE and read.records is not None


def test_P19_below_the_minimum_isr_nothing_becomes_visible_whatever_acks_was(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, brokers=3, min_isr=2)
    world.decide(isr=(1,))
    world.produce(1, "a", acks=1)
    world.produce(1, "b", acks=0)
    assert world[1].log.high_watermark == 0
    read = world[1].serve_consumer(consumer_fetch(0), False, 1 << 20, True, True)
    assert read.records is None
    world.settle()
    assert world[1].log.high_watermark == 2


def test_P20_with_a_minimum_of_one_a_lone_leader_acknowledges_and_the_record_can_be_lost(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, min_isr=1)
    world.produce(1, "safe")
    world.settle()
    world.eligible[2] = None  # fenced
    world.decide(isr=(1,))
    due = world.produce(1, "alone", acks=-1)
    assert world[1].log.high_watermark == due, "acknowledged, and visible"
    world.eligible[2] = 202
    world.decide(leader=2, isr=(2,))  # 1 is destroyed, unclean election of 2
    world.settle()
    assert world.values(1) == ["safe"]
    [lost] = world.seen[1].truncations
    assert lost.below_high_watermark, "and the loss is on record"


def test_P23_the_epoch_rises_with_each_leader_and_is_stamped_into_each_batch(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.produce(1, "a")
    world.settle()
    world.decide(leader=2)
    world.produce(2, "b")
    world.settle()
    assert world.entries(1) == [(0, 0, "a"), (1, 1, "b")]
    world.assert_identical()


def test_P24_each_replica_keeps_the_start_of_each_epoch(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.produce(1, "a", "b")
    world.settle()
    world.decide(leader=2)
    world.produce(2, "c")
    world.settle()
    assert world[1].log.epochs.entries == world[2].log.epochs.entries == [(0, 0), (1, 2)]


def test_P25_a_fetch_names_offset_and_last_epoch_and_brings_records_and_high_watermark(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.produce(1, "a")
    world.settle()
    world.produce(1, "b")
    assert next_fetch_position(world[2]) == (1, 0)
    answer = world.ask(2, 1)
    assert answer.records is not None and answer.high_watermark == 1


def test_P26_a_new_leader_behind_the_old_high_watermark_says_not_available_never_out_of_range(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.fetch(2, 1)
    world.produce(1, "a")
    world.fetch(2, 1)
    world.ask(2, 1)  # 1's HW is 1 now, the answer that would tell 2 is lost
    assert (world[1].log.high_watermark, world[2].log.high_watermark) == (1, 0)
    world.decide(leader=2, isr=(2, 1))
    with pytest.raises(KafkaError) as refused:
        world[2].latest_offset(read_committed=False)
    assert refused.value.code is ErrorCode.OFFSET_NOT_AVAILABLE
    read = world[2].serve_consumer(consumer_fetch(1), False, 1 << 20, True, True)
    assert read.error == 0 and read.records is None
    world.fetch(1, 2)
    assert world[2].latest_offset(read_committed=False) == 1


def test_P27_a_diverging_follower_truncates_to_the_point_of_agreement_and_fetches_on(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.produce(1, "a")
    world.settle()
    world.produce(1, "never replicated", "nor this")
    world.decide(leader=2, isr=(2,))
    world.produce(2, "x")
    answer = world.ask(1, 2)
    assert answer.diverging == (0, 1) and answer.records is None
    before = world[1].log.high_watermark
    world.follow(1, answer)
    assert world[1].log.log_end == 1
    assert world[1].log.high_watermark == before, "truncated before its HW moved (KAFKA-14704)"
    world.settle()
    world.assert_identical()
    [cut] = world.seen[1].truncations
    assert (cut.first_offset, cut.end_offset, cut.below_high_watermark) == (1, 3, False)


def test_P28_the_old_leader_copies_what_it_missed_before_it_rejoins(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.produce(1, "a")
    world.settle()
    world.decide(leader=2, isr=(2,))
    world.produce(2, "b")
    world.produce(2, "c")
    world.fetch(1, 2)
    assert world[2].proposal is None
    world.settle()
    assert world.decision.isr == (2, 1)
    world.assert_identical()


def test_P29_S1_a_leader_that_dies_before_telling_its_high_watermark_loses_nothing(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)  # leader 1 (B of the story), follower 2 (A)
    world.produce(1, "m0")
    world.settle()
    due = world.produce(1, "m1", acks=-1)
    world.fetch(2, 1)
    world.ask(2, 1)  # the leader acknowledges m1; its answer is lost
    assert world[1].log.high_watermark == due
    assert world[2].log.high_watermark == 1
    world.decide(leader=1)  # an epoch passes; the follower reconciles
    assert world[2].log.log_end == 2, "it must not truncate to its high watermark"
    world.decide(leader=2, isr=(2,))  # the leader dies before the follower fetched
    assert world.values(2) == ["m0", "m1"]
    world.settle()
    world.assert_identical()


def test_P29_S2_two_logs_of_the_same_length_that_differ_are_made_equal(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.produce(1, "m0")
    world.settle()
    world.produce(1, "m1")
    # Both fail; 2 never had m1 (its tail was lost), comes back alone and takes other records.
    world.decide(leader=2, isr=(2,))
    world.produce(2, "x")
    assert world[1].log.log_end == world[2].log.log_end == 2
    world.settle()
    assert world.values(1) == world.values(2) == ["m0", "x"]
    world.assert_identical()


@pytest.mark.parametrize("n", [15, 20, 25])
def test_S3_KIP_279_fast_leader_changes_do_not_diverge(tmp_path: Path, n: int) -> None:
    world = World(tmp_path)
    world.decide(leader=1)  # epoch 1
    for offset in range(11):
        world.produce(1, f"a{offset}")
    world.settle()
    for offset in range(11, 21):
        world.produce(1, f"a{offset}")
    world.decide(leader=2, to=(2,))  # epoch 2: broker 1 does not hear of it
    for offset in range(11, n + 1):
        world.produce(2, f"b{offset}")
    world.decide(leader=1)  # epoch 3: 1 leads again and never truncated
    for offset in range(21, 31):
        world.produce(1, f"c{offset}")
    world.settle()
    world.assert_identical()
    assert world[2].log.log_end == 31


def test_two_round_truncation_across_several_unclean_leaders_ends_equal(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.produce(1, "m")
    world.settle()
    world.decide(leader=2, isr=(2,), to=(2,))
    world.produce(2, "b1")
    world.decide(leader=1, isr=(1,), to=(1,))
    for value in ("a1", "a2", "a3"):
        world.produce(1, value)
    world.decide(leader=2, isr=(2,), to=(2,))
    world.produce(2, "b2")
    world.decide(leader=1, isr=(1,), to=(1,))
    for value in ("a4", "a5"):
        world.produce(1, value)
    world.spread()
    world.settle()
    world.assert_identical()


def test_a_follower_whose_leader_parts_from_it_below_its_log_start_begins_anew(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.produce(1, "a")
    world.produce(1, "b")
    world[1].log.advance_log_start(1)
    world.decide(leader=2, isr=(2,))  # unclean: it has nothing
    for value in ("x", "y", "z"):
        world.produce(2, value)
    world.settle()
    world.assert_identical()
    assert world[1].log.log_start == 0


def test_a_leader_of_an_epoch_without_records_can_follow_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.produce(1, "a")
    world.settle()
    world.decide(leader=1, to=(1,))  # epoch 1 at broker 1 only, nothing written in it
    world.decide(leader=2, isr=(2,))
    world.produce(2, "b")
    world.settle()
    world.assert_identical()
    assert world[1].log.epochs.entries == world[2].log.epochs.entries


def test_a_fetch_of_an_older_or_newer_epoch_is_fenced(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.decide(leader=1, to=(1,))
    assert world.ask(2, 1).error == ErrorCode.FENCED_LEADER_EPOCH
    newer = consumer_fetch(0, epoch=9)
    answer = world.leading(1).serve_follower(newer, 2, 102, 1 << 20, True, world.now)
    assert answer.error == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_an_answer_from_an_earlier_epoch_changes_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.produce(1, "a")
    late = world.ask(2, 1)
    epoch = world[2].leader_epoch
    world.decide(leader=2, isr=(2,))
    world.decide(leader=1, isr=(1,))
    assert world.follow(2, late, epoch) == 0
    assert world[2].log.log_end == 0


def test_a_stale_decision_is_ignored(tmp_path: Path) -> None:
    world = World(tmp_path)
    old = world.decision
    world.decide(leader=2, isr=(2, 1))
    world[1].become_leader(old, world.now)
    assert world[1].role is Role.FOLLOWER


def test_P22_an_append_does_not_flush(tmp_path: Path) -> None:
    world = World(tmp_path, brokers=1)
    world.produce(1, "a")
    assert world[1].log.recovery_point == 0
    world[1].log.flush()
    assert world[1].log.recovery_point == 1


def test_P22_flush_messages_flushes_before_the_record_counts(tmp_path: Path) -> None:
    world = World(tmp_path)
    for id in world.ids:
        world[id].log.config = replace(world.config, flush_messages=1)
    world.produce(1, "a")
    world.settle()
    assert [world[id].log.recovery_point for id in world.ids] == [1, 1]


def test_P14_a_dead_follower_that_had_everything_is_not_waited_for(tmp_path: Path) -> None:
    world = World(tmp_path, brokers=3)
    world.settle()
    world.eligible[3] = None
    world.decide(isr=(1, 2))
    world.produce(1, "a")
    world.fetch(2, 1, times=2)
    world.eligible[3] = 203  # registered again, but it has not fetched since
    world.produce(1, "b")
    world.now += LAG_S + 1
    world.fetch(2, 1, times=2)
    assert world[1].log.high_watermark == 2


def test_D9_a_lower_minimum_lets_the_high_watermark_go_at_once(tmp_path: Path) -> None:
    world = World(tmp_path, brokers=3, min_isr=2)
    world.eligible[2] = world.eligible[3] = None
    world.decide(isr=(1,))
    world.produce(1, "a", acks=1)
    assert world[1].log.high_watermark == 0
    world[1].log.config = replace(world.config, min_insync_replicas=1)
    world.leading(1).reconsider(world.now)
    assert world[1].log.high_watermark == 1


def test_P25_an_emptied_log_beyond_the_new_leaders_end_begins_anew_with_all_it_has(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    for value in "abcdefghij":
        world.produce(1, value)
    world.decide(isr=(1,))
    world[1].log.advance_log_start(10)
    world[1].log.epochs.truncate_from_end(10)  # as a restart leaves it: no record, no epoch
    world.decide(leader=2, isr=(2,))  # unclean: it has nothing of that
    world.produce(2, "x", "y")
    assert world.ask(1, 2).error == ErrorCode.OFFSET_OUT_OF_RANGE
    restart_within(world[1], world[2].log.log_start, world[2].log.log_end)
    (lost,) = world.seen[1].truncations
    assert (lost.first_offset, lost.end_offset, lost.diverging) == (0, 10, (-1, 2))
    assert lost.below_high_watermark
    world.settle()
    assert world.values(1) == ["x", "y"]
    world.assert_identical()


def test_P25_a_follower_above_its_leaders_end_cuts_only_what_lies_beyond(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.produce(1, "a")
    world.produce(1, "b")
    world.settle()
    world.decide(isr=(1,))
    world.produce(1, "c")
    world[1].log.epochs.clear()  # nothing tells where it diverges
    world.decide(leader=2, isr=(2,))
    assert world.ask(1, 2).error == ErrorCode.OFFSET_OUT_OF_RANGE
    restart_within(world[1], 0, 2)
    assert [(lost.first_offset, lost.end_offset) for lost in world.seen[1].truncations] == [(2, 3)]
    assert world.values(1) == ["a", "b"]
    world.produce(2, "d")
    world.settle()
    assert world.values(1) == ["a", "b", "d"]


def test_a_follower_between_two_answers_of_a_leader_that_moved_on_begins_at_its_start(
    tmp_path: Path,
) -> None:
    """The leader's end is asked first, its start later: records may have been written and deleted in between."""
    world = World(tmp_path)
    world.produce(1, "a")
    world.produce(1, "b")
    world.settle()
    world[2].log.advance_log_start(1)
    restart_within(world[2], leader_log_start=50, leader_log_end=1)
    log = world[2].log
    assert (log.log_start, log.high_watermark, log.log_end) == (50, 50, 50)


def test_a_follower_within_its_leaders_log_is_left_alone(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.produce(1, "a")
    world.settle()
    for start, end in ((0, 1), (1, 1), (0, 5)):
        restart_within(world[2], start, end)
        assert world.values(2) == ["a"] and not world.seen[2].truncations


def test_who_is_cut_below_its_start_begins_where_the_leaders_log_begins(tmp_path: Path) -> None:
    """Found by a seed: it was in sync without what the leader had below."""
    world = World(tmp_path)
    world.produce(1, "a")
    world.produce(1, "b")
    world.fetch(2, 1)
    world.decide(isr=(1,))
    world.produce(1, "c")
    world.produce(1, "d")
    world[1].log.advance_log_start(3)
    world.decide(leader=2, isr=(2,))
    world.fetch(1, 2, times=3)
    world.assert_identical()
    assert world.entries(1) == [(0, 0, "a"), (1, 0, "b")]
