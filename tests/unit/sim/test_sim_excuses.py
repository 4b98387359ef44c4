"""What the oracle excuses, and what it does not: logs that begin late, losses, partitions that nobody leads."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from ottla.broker.apis.offsets import HIGH_WATERMARK
from ottla.metadata.image import (
    BrokerImage,
    Delta,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from ottla.metadata.records import NO_LEADER, RECOVERED, TOPIC_RESOURCE
from ottla.sim.oracle.eligibility import EligibleLeaders
from ottla.sim.oracle.expiry import LATE_S, ExpiryRules
from ottla.sim.oracle.ledger import Ledger, LogCopy, SeenBatch
from ottla.wire.types import TopicPartition

KEY = TopicPartition("t", 0)
TOPIC = UUID(int=1)
LED = PartitionImage(
    replicas=(1, 2, 3),
    isr=(1,),
    removing=(),
    adding=(),
    leader=1,
    leader_epoch=0,
    partition_epoch=0,
    leader_recovery_state=RECOVERED,
    directories=(UUID(int=101), UUID(int=102), UUID(int=103)),
    elr=(2,),
    last_known_elr=(),
)
FORGOTTEN = replace(LED, isr=(), elr=(), leader=NO_LEADER)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def of_batches(count: int) -> LogCopy:
    copy, size = LogCopy(), 100
    for base in range(count):
        copy.add(SeenBatch(base, base + 1, 0, b"%d" % base, 0, base * size, size))
    return copy


def broker(id: int, epoch: int = 5, directory: int | None = None) -> BrokerImage:
    disk = UUID(int=directory or 100 + id)
    return BrokerImage(id, epoch, UUID(int=7), (), (), None, False, False, (disk,), None)


def image(partition: PartitionImage, *brokers: BrokerImage) -> MetadataImage:
    topic = TopicImage("t", TOPIC, (partition,))
    by_id = {each.id: each for each in (broker(1), broker(2), broker(3), *brokers)}
    return MetadataImage(brokers=by_id, topics={"t": topic}, topics_by_id={TOPIC: topic})


def eligible_leaders() -> EligibleLeaders:
    found = EligibleLeaders()
    delta = Delta(changed_partitions=[(TOPIC, 0)])
    found.decided(1, image(LED), image(LED), delta)
    found.decided(1, image(LED), image(FORGOTTEN), delta)
    return found


def test_a_log_begins_no_higher_than_somebody_asked_for() -> None:
    expiry = ExpiryRules(Clock())
    assert expiry.permits(KEY, 0, of_batches(10), committed=10)
    assert not expiry.permits(KEY, 1, of_batches(10), committed=10)
    expiry.asked(KEY, 4)
    assert expiry.permits(KEY, 4, of_batches(10), committed=10)
    assert not expiry.permits(KEY, 5, of_batches(10), committed=10)


def test_all_that_is_committed_may_be_asked_for_and_done_soon_after() -> None:
    clock = Clock()
    expiry = ExpiryRules(clock)
    expiry.asked(KEY, HIGH_WATERMARK)
    assert not expiry.permits(KEY, 9, of_batches(10), committed=8)
    assert expiry.permits(KEY, 8, of_batches(10), committed=8)
    clock.now += LATE_S + 1
    assert expiry.permits(KEY, 8, of_batches(10), committed=10), "another may take that over"
    assert not expiry.permits(KEY, 9, of_batches(10), committed=10)


def test_retention_leaves_as_much_as_it_was_ever_told_to_keep() -> None:
    expiry = ExpiryRules(Clock())
    for value in ("300", "900", "-1"):
        after = MetadataImage(configs={(TOPIC_RESOURCE, "t"): {"retention.bytes": value}})
        expiry.decided(1, after, after, Delta(changed_configs=[(TOPIC_RESOURCE, "t")]))
    assert not expiry.permits(KEY, 8, of_batches(10), committed=10), "that leaves 200 bytes"
    assert expiry.permits(KEY, 7, of_batches(10), committed=10)
    gone = Delta(deleted_topics=[TopicImage("t", TOPIC, (LED,))])
    expiry.decided(1, MetadataImage(), MetadataImage(), gone)
    assert not expiry.permits(KEY, 1, of_batches(10), committed=10), "the next topic of that name"


def test_a_loss_excuses_what_former_leaders_had_there_and_nothing_else() -> None:
    ledger = Ledger(KEY)
    ledger.commit(of_batches(10), 10)
    ledger.lose_from(6, 3, of_batches(6))
    assert ledger.excuses(6, 2) and ledger.excuses(9, 0)
    assert not ledger.excuses(5, 2), "below what was lost"
    assert not ledger.excuses(6, 3), "written by the leader that began without it"


def test_what_a_controller_forgets_is_not_lost() -> None:
    now = image(FORGOTTEN)
    assert list(eligible_leaders().candidates(now, TOPIC, 0, FORGOTTEN)) == [1, 2]
    assert eligible_leaders().last_resort(now, TOPIC, 0) == {1}


def test_a_restarted_replica_is_no_candidate_unless_it_led_last() -> None:
    now = image(FORGOTTEN, broker(1, epoch=9), broker(2, epoch=9))
    assert list(eligible_leaders().candidates(now, TOPIC, 0, FORGOTTEN)) == [1]


def test_no_candidate_is_left_when_the_last_leader_has_another_disk_and_the_others_restarted() -> (
    None
):
    now = image(FORGOTTEN, broker(1, epoch=9, directory=999), broker(2, epoch=9))
    assert eligible_leaders().candidates(now, TOPIC, 0, FORGOTTEN) == {}
    assert eligible_leaders().last_resort(now, TOPIC, 0) == {1, 2}, (
        "whoever was in sync with it, then"
    )


def test_a_replica_that_was_taken_away_has_nothing_when_it_comes_again() -> None:
    """Seed 9800804: a cancelled move took the last leader's replica, and the next move gave it an empty one."""
    found, now = eligible_leaders(), image(FORGOTTEN)
    delta = Delta(changed_partitions=[(TOPIC, 0)])
    without = replace(FORGOTTEN, replicas=(2, 3))
    found.decided(1, now, image(without), delta)
    found.decided(1, image(without), now, delta)
    assert found.last_resort(now, TOPIC, 0) == {2}
    assert list(found.candidates(now, TOPIC, 0, FORGOTTEN)) == [2]


def test_what_a_deposed_leader_goes_on_committing_is_lost_by_the_unclean_election() -> None:
    """Seeds 2283 and 2472: the new leader had everything when it began."""
    everything = of_batches(3)
    clean, unclean = Ledger(KEY), Ledger(KEY)
    unclean.unclean_in = 4
    for ledger in (clean, unclean):
        ledger.commit(everything, 3)
        ledger.lose_from(3, 4, everything)
    assert not clean.losses
    assert unclean.excuses(3, 3) and not unclean.excuses(2, 3) and not unclean.excuses(3, 4)
