"""The two sides of a fetch session: what the follower names, and what the leader remembers."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from ottla.events import Events
from ottla.replica.fetcher import FetchConversation, FetcherConfig
from ottla.replica.follower import restart_within
from ottla.replica.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
    SessionCache,
    session_key,
)
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.fetch_messages import FetchedPartition, FetchPartition, FetchRequest, FetchResponse
from support.replica_world import World


def response(*partitions: FetchedPartition, session_id: int = 7, error: int = 0) -> FetchResponse:
    return FetchResponse(error, session_id, list(partitions), ())


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def conversation(world: World) -> FetchConversation:
    conversation = FetchConversation(FetcherConfig(node_id=2, backoff_s=0.5))
    conversation.follow(world[2])
    return conversation


def test_P05_the_first_request_is_full_and_the_next_names_only_what_changed(
    world: World, conversation: FetchConversation
) -> None:
    first = conversation.next_request(102, 0.0)
    assert (first.session_id, first.session_epoch) == (0, 0)
    assert [fetch.fetch_offset for fetch in first.partitions] == [0]
    conversation.answered(response(world.ask(2, 1)), 0.0)
    second = conversation.next_request(102, 0.0)
    assert (second.session_id, second.session_epoch) == (7, 1)
    assert second.partitions == []
    world.produce(1, "a")
    conversation.answered(response(world.ask(2, 1)), 0.0)
    third = conversation.next_request(102, 0.0)
    assert third.session_epoch == 2
    assert [(fetch.fetch_offset, fetch.last_fetched_epoch) for fetch in third.partitions] == [
        (1, 0)
    ]


def test_P39_a_partition_that_is_throttled_rests_after_what_it_got(world: World) -> None:
    asked: list[int] = []
    until = 12.5

    def rest(partition: object, received: int, now: float, is_behind: bool) -> float:
        asked.append(received)
        return max(0.0, until - now)

    conversation = FetchConversation(FetcherConfig(node_id=2, backoff_s=0.5), rest)
    conversation.follow(world[2])
    conversation.next_request(102, 0.0)
    conversation.answered(response(world.ask(2, 1)), 10.0)
    assert asked == [] and not conversation.is_idle, "nothing came"
    world.produce(1, "a")
    conversation.next_request(102, 10.0)
    outcome = conversation.answered(response(world.ask(2, 1)), 10.0)
    assert asked == [outcome.bytes_appended] and outcome.bytes_appended > 0
    assert conversation.is_idle and conversation.next_retry_at() == 11.0, "then it asks again"
    conversation.wake(11.0)
    assert conversation.is_idle and conversation.next_retry_at() == 12.0
    until = 0.0  # an operator raises the rate
    again = conversation.next_request(102, 12.0)
    assert [fetch.fetch_offset for fetch in again.partitions] == [1]


@pytest.mark.parametrize(("committed", "is_behind"), [(1, False), (2, True)])
def test_P39_a_throttle_is_told_whether_committed_records_are_missing(
    world: World, committed: int, is_behind: bool
) -> None:
    told: list[bool] = []

    def rest(partition: object, received: int, now: float, is_behind: bool) -> float:
        told.append(is_behind)
        return 0.0

    conversation = FetchConversation(FetcherConfig(node_id=2), rest)
    conversation.follow(world[2])
    world.produce(1, "a")
    conversation.next_request(102, 0.0)
    answer = world.ask(2, 1)._replace(high_watermark=committed)
    conversation.answered(response(answer), 0.0)
    assert told == [is_behind]


def test_P39_whoever_is_waited_for_does_not_rest_to_the_end(world: World) -> None:
    waits = True

    def rest(partition: object, received: int, now: float, is_behind: bool) -> float:
        return 0.9 if waits else 0.0

    conversation = FetchConversation(FetcherConfig(node_id=2), rest)
    conversation.follow(world[2])
    world.produce(1, "a")
    conversation.next_request(102, 0.0)
    conversation.answered(response(world.ask(2, 1)), 0.0)
    assert conversation.next_retry_at() == 0.9
    waits = False
    conversation.hurry(world[2])
    conversation.wake(0.1)
    assert not conversation.is_idle and conversation.has_news


def test_a_partition_in_trouble_leaves_the_session_and_comes_back_after_a_rest(
    world: World, conversation: FetchConversation
) -> None:
    conversation.next_request(102, 0.0)
    failed = FetchedPartition("t", world[2].topic_id, 0, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    outcome = conversation.answered(response(failed), 10.0)
    assert [error.code for _, error in outcome.failed] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert conversation.is_idle and conversation.next_retry_at() == 10.5
    resting = conversation.next_request(102, 10.1)
    assert resting.partitions == [] and list(resting.forgotten) == [(world[2].topic_id, 0)]
    back = conversation.next_request(102, 10.6)
    assert len(back.partitions) == 1 and not back.forgotten


def test_records_that_came_twice_are_applied_once(
    world: World, conversation: FetchConversation
) -> None:
    conversation.next_request(102, 0.0)
    world.produce(1, "a")
    answer, again = world.ask(2, 1), world.ask(2, 1)
    conversation.answered(response(answer), 0.0)
    outcome = conversation.answered(response(again), 0.0)
    assert outcome.bytes_appended == 0 and not outcome.failed
    assert world.values(2) == ["a"]
    assert conversation.has_news, "the leader is told again where we are"


def test_P07_the_high_watermark_counts_that_comes_with_records_that_came_twice(
    world: World, conversation: FetchConversation
) -> None:
    """The leader takes it for known from then on. Found by seed 152: an idle follower stayed behind for ever."""
    world.decide(isr=(1, 2))
    conversation.next_request(102, 0.0)
    world.produce(1, "a")
    answer = world.ask(2, 1)
    world.decide(isr=(1,))
    again = world.ask(2, 1)
    assert (answer.high_watermark, again.high_watermark) == (0, 1)
    conversation.answered(response(answer), 0.0)
    assert world[2].log.high_watermark == 0
    conversation.answered(response(again), 0.0)
    assert world[2].log.high_watermark == 1


def test_a_lost_session_begins_again_with_everything(
    world: World, conversation: FetchConversation
) -> None:
    conversation.next_request(102, 0.0)
    conversation.answered(response(world.ask(2, 1)), 0.0)
    conversation.answered(response(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND), 0.0)
    again = conversation.next_request(102, 0.0)
    assert (again.session_id, again.session_epoch, len(again.partitions)) == (0, 0, 1)


def test_what_only_a_later_full_request_named_is_named_again_in_the_session(
    world: World, conversation: FetchConversation
) -> None:
    """A leader that keeps both sessions, as Apache Kafka's does, would never be asked in the first one."""
    conversation.next_request(102, 0.0)
    conversation.follow(world[2])  # as a partition that comes while the first request is under way
    overtaken = conversation.next_request(102, 0.0)
    assert overtaken.session_epoch == 0 and len(overtaken.partitions) == 1
    conversation.answered(response(world.ask(2, 1)), 0.0)
    named = conversation.next_request(102, 0.0)
    assert (named.session_id, named.session_epoch, len(named.partitions)) == (7, 1, 1)
    conversation.answered(response(world.ask(2, 1), session_id=8), 0.0)
    assert conversation.next_request(102, 0.0).session_id == 7


def test_a_forgotten_partition_is_named_once_as_forgotten(
    world: World, conversation: FetchConversation
) -> None:
    conversation.next_request(102, 0.0)
    conversation.answered(response(world.ask(2, 1)), 0.0)
    conversation.forget(world[2].topic_id, 0)
    assert list(conversation.next_request(102, 0.0).forgotten) == [(world[2].topic_id, 0)]
    assert not conversation.next_request(102, 0.0).forgotten


def request(*offsets: int, id: int = 0, epoch: int = 0) -> FetchRequest:
    return FetchRequest(
        replica_id=-1,
        replica_epoch=-1,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1,
        isolation_level=0,
        session_id=id,
        session_epoch=epoch,
        cluster_id=None,
        rack_id="",
        partitions=[
            FetchPartition("t", UUID(int=1), number, -1, offset, -1, -1, 1)
            for number, offset in enumerate(offsets)
        ],
        forgotten=[],
    )


def test_a_session_remembers_positions_and_what_is_hot() -> None:
    session = FetchSession(7, False, 0.0)
    added, removed = session.update(request(5, 6))
    assert len(added) == 2 and not removed and len(session.hot) == 2
    session.hot.clear()
    session.update(request(9))
    [known] = session.hot
    assert known.fetch.fetch_offset == 9
    assert session.partitions[session_key(known.fetch)] is known


@pytest.mark.parametrize("epoch", [INITIAL_EPOCH, FINAL_EPOCH])
def test_a_full_request_forgets_nothing_that_it_names(epoch: int) -> None:
    session = FetchSession(7, False, 0.0)
    full = request(5)
    [fetch] = full.partitions
    full.session_epoch, full.forgotten = epoch, [session_key(fetch)]
    session.update(full)
    assert list(session.partitions) == [session_key(fetch)]
    full.session_epoch, full.partitions = 1, []
    session.update(full)
    assert not session.partitions


def test_a_request_of_the_wrong_epoch_or_of_an_unknown_session_is_refused() -> None:
    ids = iter([0, 11, 12, 13])
    cache = SessionCache(2, lambda: next(ids), Events())
    session, _ = cache.create(False, 0.0)
    assert session.id == 11, "0 means no session"
    assert cache.resume(request(id=11, epoch=1), 1.0) is session
    with pytest.raises(KafkaError) as wrong:
        cache.resume(request(id=11, epoch=1), 1.0)
    assert wrong.value.code is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    with pytest.raises(KafkaError) as unknown:
        cache.resume(request(id=99, epoch=1), 1.0)
    assert unknown.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_full_cache_makes_room_for_a_follower_or_by_a_session_long_unused() -> None:
    """Seed 177: three followers and two slots. Taking each other's session in turn, none of them was ever
    answered and their high watermarks stood still."""
    ids = iter(range(1, 10))
    cache = SessionCache(2, lambda: next(ids), Events())
    first, _ = cache.create(True, 0.0)
    consumer, _ = cache.create(False, 5.0)
    refused, evicted = cache.create(False, 9.0)
    assert refused.id == NO_SESSION and evicted is None
    second, evicted = cache.create(True, 9.0)
    assert evicted is consumer and list(cache.sessions()) == [first, second]
    third, evicted = cache.create(True, 20.0)
    assert third.id == NO_SESSION and evicted is None
    third, evicted = cache.create(True, 121.0)
    assert evicted is first and list(cache.sessions()) == [second, third]


def test_what_a_follower_could_not_use_is_told_again() -> None:
    """Seed 354: the high watermark came with a diverging answer, of which a follower takes only where to cut;
    it never heard of it again."""
    session = FetchSession(7, True, 0.0)
    session.update(request(5))
    [known] = session.partitions.values()
    plain = FetchedPartition(None, known.fetch.topic_id, 0, 0, high_watermark=4, log_start_offset=0)
    known.sent(plain._replace(diverging=(1, 3)))
    assert known.is_news(plain)
    known.sent(plain)
    assert not known.is_news(plain)
    known.update(known.fetch._replace(fetch_offset=6))
    assert not known.is_news(plain)
    known.update(known.fetch._replace(current_leader_epoch=9))
    assert known.is_news(plain)


def test_idle_partitions_are_looked_at_when_their_follower_has_another_broker_epoch() -> None:
    """Apache Kafka's broker fetches before it is registered. Its idle replicas would never be in sync again."""
    session = FetchSession(7, True, 0.0)
    session.update(request(5))
    [known] = session.partitions.values()
    session.hot.clear()
    session.update(request(id=7, epoch=1))
    assert not session.hot
    registered = request(id=7, epoch=2)
    registered.replica_epoch = 75
    session.update(registered)
    assert list(session.hot) == [known]
    session.hot.clear()
    session.update(registered)
    assert not session.hot


def test_D8_an_answer_to_a_fetch_of_an_earlier_epoch_changes_nothing(
    world: World, conversation: FetchConversation
) -> None:
    """Leadership leaves and comes back to the same broker while an answer of its first epoch is late."""
    conversation.next_request(102, 0.0)
    world.produce(1, "a")
    late = world.ask(2, 1)
    world.decide(leader=2, isr=(2,))
    world.decide(leader=1, isr=(1,))
    conversation.follow(world[2])
    conversation.next_request(102, 0.0)
    outcome = conversation.answered(response(late), 0.0)
    assert outcome.bytes_appended == 0 and world[2].log.log_end == 0
    for _ in range(2):  # the first forgets the epoch in which it led and wrote nothing
        conversation.answered(response(world.ask(2, 1)), 0.0)
        conversation.next_request(102, 0.0)
    assert world.values(2) == ["a"]


def test_an_answer_on_a_new_connection_is_not_taken_for_one_of_the_last(
    world: World, conversation: FetchConversation
) -> None:
    conversation.next_request(102, 0.0)
    conversation.connected()
    conversation.next_request(102, 0.0)
    world.produce(1, "a")
    conversation.answered(response(world.ask(2, 1)), 0.0)
    assert world.values(2) == ["a"]


def test_a_follower_takes_the_batch_into_which_the_leaders_log_start_has_moved(
    world: World, conversation: FetchConversation
) -> None:
    """DeleteRecords cut into a batch while this follower was away."""
    world.decide(isr=(1,))
    world.eligible[2] = None
    world.produce(1, *(f"m{number}" for number in range(10)))
    world[1].log.advance_log_start(5)
    restart_within(world[2], 5, world[1].log.log_end)
    conversation.next_request(102, 0.0)
    outcome = conversation.answered(response(world.ask(2, 1)), 0.0)
    assert not outcome.failed and world[2].log.log_end == 10


def test_D10_a_follower_whose_own_retention_moved_its_start_says_so_though_it_is_idle(
    world: World, conversation: FetchConversation
) -> None:
    """Simulator seed 113: its leader had deleted as much before, and never heard that it may take it in."""
    world.produce(1, "a", "b")
    for _ in range(2):
        conversation.next_request(102, 0.0)
        conversation.answered(response(world.ask(2, 1)), 0.0)
    assert conversation.next_request(102, 0.0).partitions == []
    world[2].log.advance_log_start(1)
    conversation.log_start_moved(world[2])
    assert conversation.has_news
    (told,) = conversation.next_request(102, 0.0).partitions
    assert (told.fetch_offset, told.log_start_offset) == (2, 1)


def test_one_rotten_batch_rests_its_own_partition_only(
    world: World, conversation: FetchConversation
) -> None:
    conversation.next_request(102, 0.0)
    world.produce(1, "a")
    rotten = world.ask(2, 1)
    assert isinstance(rotten.records, memoryview)
    rotten.records[16] ^= 0xFF  # the magic byte
    outcome = conversation.answered(response(rotten), 10.0)
    assert [error.code for _, error in outcome.failed] == [ErrorCode.CORRUPT_MESSAGE]
    assert conversation.next_retry_at() == 10.5
