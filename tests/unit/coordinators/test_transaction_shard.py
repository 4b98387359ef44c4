"""The transaction coordinator: each state, each way to be refused, and what a failover leaves."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transaction_world import CONFIG, ID, A, B, Coordinator

from ottla.coordinators.shard import CoordinatorRecord
from ottla.coordinators.transactions.transaction_records import (
    TransactionMetadata,
    TransactionState,
    read_transaction,
    tombstone,
    transaction_record,
)
from ottla.coordinators.transactions.transaction_shard import (
    EPOCH_MAX,
    EXPIRED_AT_ONCE_MAX,
    PATIENCE_S,
    AddPartitions,
    DescribeTransaction,
    EndTransaction,
    InitProducerId,
    ListTransactions,
    MarkersWritten,
    SendMarkers,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.record_codec import MalformedRecord
from ottla.wire.types import TopicPartition

VERSIONS = pytest.mark.parametrize("v", [0, 2])


# -- records ----------------------------------------------------------------------------------------------


def test_records_have_kafkas_bytes():
    ongoing = TransactionMetadata(
        producer_id=7,
        producer_epoch=3,
        state=TransactionState.ONGOING,
        timeout_ms=60_000,
        partitions=frozenset({TopicPartition("t", 1), TopicPartition("t", 0)}),
        previous_producer_id=7,
        last_update_ms=258,
        start_ms=257,
        client_version=2,
    )
    record = transaction_record("id", ongoing)
    assert record.key.hex() == "0000" + "0002" + b"id".hex()
    assert record.value is not None
    assert record.value.hex() == "".join(
        (
            "0001",
            "0000000000000007",  # producer id
            "0003",
            "0000ea60",
            "01",  # Ongoing
            "02" + "02" + b"t".hex() + "03" + "00000000" + "00000001" + "00",
            "0000000000000102",
            "0000000000000101",
            "02",  # two tagged fields
            "00" + "08" + "0000000000000007",
            "02" + "02" + "0002",
        )
    )
    assert read_transaction(record) == ("id", ongoing)


def test_records_of_the_old_format_are_read():
    value = bytes.fromhex(
        "0000" + "0000000000000007" + "0003" + "0000ea60" + "00" + "ffffffff"
        "0000000000000102" + "ffffffffffffffff"
    )
    found = read_transaction(CoordinatorRecord(b"\x00\x00\x00\x02id", value))
    assert found == (
        "id",
        TransactionMetadata(7, 3, TransactionState.EMPTY, 60_000, last_update_ms=258),
    )


def test_a_tombstone_deletes_and_nonsense_is_refused():
    assert read_transaction(tombstone("id")) == ("id", None)
    for key, value in (
        (b"\x00\x05\x00\x00", None),
        (b"\x00", None),
        (b"\x00\x00\x00\x01i", b"\x00\x09"),
    ):
        with pytest.raises(MalformedRecord):
            read_transaction(CoordinatorRecord(key, value))


def test_a_record_that_cannot_be_read_takes_no_other_id_away():
    world = Coordinator()
    producer = world.init()
    world.log.insert(0, CoordinatorRecord(b"\x00\x09", b"\x00\x00"))
    world.fail_over()
    assert world.add(producer, A) is ErrorCode.NONE


# -- the way of a transaction -----------------------------------------------------------------------------


@VERSIONS
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_begins_is_decided_and_completed(v: int, commit: bool):
    world = Coordinator()
    producer = world.init()
    assert world.state() is TransactionState.EMPTY
    assert world.add(producer, A, v=v) is ErrorCode.NONE
    assert world.add(producer, B, v=v) is ErrorCode.NONE
    assert world.state() is TransactionState.ONGOING and world.transaction.partitions == {A, B}
    answer = world.end(producer, commit, v=v)
    epoch = producer[1] + (1 if v == 2 else 0)
    assert answer == {"error": 0, "producer_id": producer[0], "producer_epoch": epoch}
    assert world.state() is (
        TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
    )
    (markers,) = world.markers
    assert markers == SendMarkers(ID, producer[0], epoch, commit, frozenset({A, B}), v)
    world.write_markers()
    assert world.state() is (
        TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
    )
    assert world.add((producer[0], epoch), A, v=v) is ErrorCode.NONE
    assert world.state() is TransactionState.ONGOING and world.transaction.partitions == {A}


def test_partitions_that_are_in_already_need_no_record():
    world = Coordinator()
    producer = world.init()
    world.add(producer, A, B)
    before = len(world.log)
    assert world.add(producer, B) is ErrorCode.NONE
    assert len(world.log) == before


@VERSIONS
def test_what_a_failover_leaves_is_sent_again_and_completed(v: int):
    world = Coordinator()
    producer = world.init()
    world.add(producer, A, B, v=v)
    world.end(producer, True, v=v)
    sent = list(world.markers)
    world.fail_over()
    assert world.markers == sent
    world.write_markers()
    assert world.state() is TransactionState.COMPLETE_COMMIT
    world.fail_over()
    assert not world.markers and world.state() is TransactionState.COMPLETE_COMMIT


def test_a_decision_that_is_not_written_did_not_happen():
    world = Coordinator()
    producer = world.init()
    world.add(producer, A)
    world.writable = False
    assert world.end(producer, True)["error"] is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.state() is TransactionState.ONGOING and not world.markers
    world.writable = True
    assert world.end(producer, True)["error"] is ErrorCode.NONE


def test_markers_are_reported_once_and_late_reports_are_harmless():
    world = Coordinator()
    producer = world.init()
    world.add(producer, A)
    bumped = world.end(producer, True)["producer_epoch"]
    world.write_markers()
    world.add((producer[0], bumped), A)
    late = world.ask(MarkersWritten(ID, producer[0], bumped))
    assert late["error"] is ErrorCode.NONE and world.state() is TransactionState.ONGOING


# -- InitProducerId ---------------------------------------------------------------------------------------


def test_a_new_producer_of_the_same_id_gets_the_next_epoch_and_fences_the_last():
    world = Coordinator()
    old = world.init()
    new = world.init()
    assert new == (old[0], old[1] + 1)
    assert world.add(old, A) is ErrorCode.PRODUCER_FENCED
    assert world.end(old, True)["error"] is ErrorCode.PRODUCER_FENCED
    # It cannot go on by asking for an epoch as one who had an error, either (KIP-360).
    assert world.ask(InitProducerId(ID, 30_000, old))["error"] is ErrorCode.PRODUCER_FENCED


@VERSIONS
def test_a_new_producer_aborts_what_the_last_left_open(v: int):
    world = Coordinator()
    old = world.init()
    world.add(old, A, v=v)
    token = world.begin(InitProducerId(ID, 30_000))
    assert token not in world.replies and world.state() is TransactionState.PREPARE_ABORT
    (markers,) = world.markers
    assert not markers.commit and markers.producer_epoch > old[1]
    for request in (world.add(old, B, v=v), world.end(old, True, v=v)["error"]):
        assert request is ErrorCode.PRODUCER_FENCED
    world.write_markers()
    world.wait(0)
    assert world.replies[token]["error"] is ErrorCode.NONE
    assert world.replies[token]["producer_epoch"] > markers.producer_epoch
    assert world.end(old, False, v=v)["error"] is ErrorCode.PRODUCER_FENCED


def test_a_zombie_that_takes_its_fencing_for_an_error_does_not_end_its_heirs_work():
    world = Coordinator()
    zombie = world.init()
    heir = world.init()
    world.add(heir, A)
    assert world.ask(InitProducerId(ID, 30_000, zombie))["error"] is ErrorCode.PRODUCER_FENCED
    assert world.state() is TransactionState.ONGOING and world.transaction.producer_epoch == heir[1]


def test_a_new_producer_is_sent_away_if_the_markers_take_long():
    world = Coordinator()
    world.add(world.init(), A)
    token = world.begin(InitProducerId(ID, 30_000))
    world.wait(PATIENCE_S)
    assert world.replies[token]["error"] is ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_new_producer_does_not_spin_while_nothing_can_be_written():
    world = Coordinator()
    world.add(world.init(), A)
    world.writable = False
    token = world.begin(InitProducerId(ID, 30_000))
    assert world.shard.next_deadline() == world.now + PATIENCE_S
    world.wait(PATIENCE_S)
    assert world.replies[token]["error"] is ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_producer_goes_on_after_an_error_with_the_next_epoch_and_may_ask_twice():
    world = Coordinator()
    producer = world.init()
    bumped = world.init(expected=producer)
    assert bumped == (producer[0], producer[1] + 1)
    assert world.init(expected=producer) == bumped  # the answer was lost
    world.add(bumped, A)
    late = world.ask(InitProducerId(ID, 30_000, producer))
    assert late["error"] is ErrorCode.PRODUCER_FENCED and world.state() is TransactionState.ONGOING
    world.end(bumped, True, v=0)
    world.write_markers()
    assert world.init(expected=bumped) == (bumped[0], bumped[1] + 1)
    stranger = (producer[0] + 5, 0)
    assert world.ask(InitProducerId(ID, 30_000, stranger))["error"] is ErrorCode.PRODUCER_FENCED


def test_used_up_epochs_bring_another_producer_id():
    world = Coordinator()
    producer = world.init()
    world.log.append(
        transaction_record(ID, replace(world.transaction, producer_epoch=EPOCH_MAX - 1))
    )
    world.fail_over()
    last = (producer[0], EPOCH_MAX - 1)
    new = world.init(expected=last)
    assert new[0] != producer[0] and new[1] == 0
    assert world.init(expected=last) == new  # the answer was lost


@pytest.mark.parametrize("timeout_ms", [0, -1, CONFIG.timeout_ms_max + 1])
def test_a_timeout_out_of_bounds_is_refused(timeout_ms: int):
    answer = Coordinator().ask(InitProducerId(ID, timeout_ms))
    assert answer["error"] is ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_without_a_producer_id_to_give_the_client_comes_again():
    world = Coordinator()
    world.ids = None
    answer = world.ask(InitProducerId(ID, 1))
    assert answer["error"] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert ID not in world.shard.transactions


# -- adding -----------------------------------------------------------------------------------------------


def test_only_the_producer_of_the_id_adds_partitions():
    world = Coordinator()
    id, epoch = world.init()
    assert world.add((id + 1, epoch), A) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert world.add((id, epoch + 1), A) is ErrorCode.PRODUCER_FENCED
    other = AddPartitions("other", id, epoch, frozenset({A}))
    assert world.ask(other)["error"] is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    nameless = AddPartitions("", id, epoch, frozenset({A}))
    assert world.ask(nameless)["error"] is ErrorCode.INVALID_REQUEST


@VERSIONS
def test_the_next_transaction_waits_for_the_markers_of_the_last(v: int):
    world = Coordinator()
    producer = world.init()
    world.add(producer, A, v=v)
    answer = world.end(producer, True, v=v)
    now = (producer[0], answer["producer_epoch"])
    add = AddPartitions(ID, *now, frozenset({B}), client_version=v)
    token, late = world.begin(add), world.begin(add)
    assert token not in world.replies
    world.write_markers()
    world.wait(0)
    assert world.replies[token]["error"] is world.replies[late]["error"] is ErrorCode.NONE
    assert world.state() is TransactionState.ONGOING and world.transaction.partitions == {B}


def test_the_next_transaction_is_sent_away_if_the_markers_take_long():
    world = Coordinator()
    id, epoch = producer = world.init()
    world.add(producer, A, v=0)
    world.end(producer, True, v=0)
    token = world.begin(AddPartitions(ID, id, epoch, frozenset({B})))
    world.wait(PATIENCE_S)
    assert world.replies[token]["error"] is ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_leader_may_ask_whether_its_partition_takes_part():
    world = Coordinator()
    id, epoch = producer = world.init()

    def verify(*partitions: TopicPartition):
        return world.ask(AddPartitions(ID, id, epoch, frozenset(partitions), verify_only=True))

    assert verify(A)["missing"] == {A}
    world.add(producer, A, v=0)
    before = len(world.log)
    assert verify(A)["missing"] == frozenset()
    assert verify(A, B)["missing"] == {B}
    world.end(producer, True, v=0)
    before += 1
    assert verify(A)["error"] is ErrorCode.CONCURRENT_TRANSACTIONS
    assert len(world.log) == before


# -- ending -----------------------------------------------------------------------------------------------


def test_an_end_that_is_repeated_gets_the_same_answer():
    world = Coordinator()
    producer = world.init()
    world.add(producer, A)
    first = world.end(producer, True)
    assert world.end(producer, True)["error"] is ErrorCode.CONCURRENT_TRANSACTIONS
    world.write_markers()
    assert world.end(producer, True) == first
    world.fail_over()
    assert world.end(producer, True) == first
    assert world.end(producer, False)["error"] is ErrorCode.INVALID_TXN_STATE


def test_an_old_producers_end_that_is_repeated_gets_the_same_answer():
    world = Coordinator()
    producer = world.init()
    world.add(producer, A, v=0)
    world.end(producer, False, v=0)
    assert world.end(producer, False, v=0)["error"] is ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.end(producer, True, v=0)["error"] is ErrorCode.INVALID_TXN_STATE
    world.write_markers()
    assert world.end(producer, False, v=0)["error"] is ErrorCode.NONE
    assert world.end(producer, True, v=0)["error"] is ErrorCode.INVALID_TXN_STATE


def test_S6_an_end_held_up_on_its_way_does_not_end_the_next_transaction():
    """KIP-890: the client repeated it on another connection, and has gone on since."""
    world = Coordinator()
    id, epoch = producer = world.init()
    world.add(producer, A)
    held = EndTransaction(ID, id, epoch, commit=True, client_version=2)
    second = (id, world.end(producer, True)["producer_epoch"])
    world.write_markers()
    world.add(second, B)
    for commit in (True, False):
        answer = world.ask(replace(held, commit=commit))
        assert answer["error"] in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    assert world.state() is TransactionState.ONGOING and world.transaction.partitions == {B}
    world.fail_over()
    assert world.ask(held)["error"] is ErrorCode.PRODUCER_FENCED
    assert world.state() is TransactionState.ONGOING


def test_there_is_nothing_to_commit_in_an_empty_transaction():
    world = Coordinator()
    producer = world.init()
    assert world.end(producer, True)["error"] is ErrorCode.INVALID_TXN_STATE
    assert world.end(producer, False, v=0)["error"] is ErrorCode.INVALID_TXN_STATE


def test_an_empty_transaction_may_be_aborted_where_that_brings_an_epoch():
    """The producer cannot know whether its first batch has been added to it."""
    world = Coordinator()
    producer = world.init()
    for _ in range(2):
        answer = world.end(producer, False)
        producer = (producer[0], producer[1] + 1)
        assert (answer["producer_id"], answer["producer_epoch"]) == producer
        world.write_markers()
        assert world.state() is TransactionState.COMPLETE_ABORT
    assert world.end(producer, True)["error"] is ErrorCode.INVALID_TXN_STATE


def test_the_last_epoch_ends_its_transaction_and_brings_another_producer_id():
    world = Coordinator()
    world.init()
    world.log.append(
        transaction_record(ID, replace(world.transaction, producer_epoch=EPOCH_MAX - 1))
    )
    world.fail_over()
    last = (world.transaction.producer_id, EPOCH_MAX - 1)
    world.add(last, A)
    answer = world.end(last, True)
    new = (answer["producer_id"], answer["producer_epoch"])
    assert new[0] != last[0] and new[1] == 0
    assert [(m.producer_id, m.producer_epoch) for m in world.markers] == [(last[0], EPOCH_MAX)]
    world.fail_over()
    world.write_markers()
    assert world.end(last, True) == answer  # the answer was lost
    assert world.add(new, B) is ErrorCode.NONE
    assert world.end(last, True)["error"] is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def _at_last_epoch(world: Coordinator) -> tuple[int, int]:
    world.init()
    world.log.append(
        transaction_record(ID, replace(world.transaction, producer_epoch=EPOCH_MAX - 1))
    )
    world.fail_over()
    return world.transaction.producer_id, EPOCH_MAX - 1


@pytest.mark.parametrize("markers_written", [False, True])
def test_a_producer_fenced_in_its_last_epoch_is_not_given_the_coordinators(markers_written: bool):
    world = Coordinator()
    last = _at_last_epoch(world)
    world.add(last, A)
    world.wait(60)  # overdue
    assert [m.producer_epoch for m in world.markers] == [EPOCH_MAX]
    if markers_written:
        world.write_markers()
    for commit in (False, True):
        assert world.end(last, commit)["error"] is ErrorCode.PRODUCER_FENCED
    world.write_markers()
    assert world.add(last, A) is ErrorCode.PRODUCER_FENCED
    new = world.init()
    assert new[0] != last[0] and new[1] == 0
    assert world.end(last, False)["error"] is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert world.state() is TransactionState.EMPTY


def test_no_request_with_the_coordinators_own_epoch_is_served():
    world = Coordinator()
    last = _at_last_epoch(world)
    world.add(last, A)
    world.wait(60)
    world.write_markers()
    beyond = (last[0], EPOCH_MAX)
    assert world.add(beyond, A) is ErrorCode.PRODUCER_FENCED
    for commit in (False, True):
        assert world.end(beyond, commit)["error"] is ErrorCode.PRODUCER_FENCED
    assert world.state() is TransactionState.COMPLETE_ABORT


def test_a_transaction_left_open_in_the_coordinators_own_epoch_ends_with_a_marker_of_that_epoch():
    world = Coordinator()
    last = _at_last_epoch(world)
    world.add(last, A)
    world.log.append(transaction_record(ID, replace(world.transaction, producer_epoch=EPOCH_MAX)))
    world.fail_over()
    world.wait(60)
    assert [(m.producer_epoch, m.transaction_version) for m in world.markers] == [(EPOCH_MAX, 1)]
    world.write_markers()
    assert world.state() is TransactionState.COMPLETE_ABORT


def test_strangers_end_nothing():
    world = Coordinator()
    id, epoch = world.init()
    world.add((id, epoch), A)
    assert world.end((id + 1, epoch), True)["error"] is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    for other in (epoch + 1, epoch - 1):
        assert world.end((id, other), True)["error"] is ErrorCode.PRODUCER_FENCED
    nobody = EndTransaction("nobody", id, epoch, True)
    assert world.ask(nobody)["error"] is ErrorCode.INVALID_PRODUCER_ID_MAPPING


# -- time -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("server", [1, 2])
@VERSIONS
def test_a_transaction_open_beyond_its_timeout_is_aborted_and_its_producer_fenced(
    v: int, server: int
):
    world = Coordinator(transaction_version=server)
    producer = world.init()
    world.add(producer, A, v=v)
    world.wait(30)
    assert world.state() is TransactionState.ONGOING
    world.wait(10)
    assert (
        world.state() is TransactionState.PREPARE_ABORT
        and world.markers[0].producer_epoch > producer[1]
    )
    for _ in range(2):
        assert world.end(producer, True, v=v)["error"] is ErrorCode.PRODUCER_FENCED
        assert world.add(producer, B, v=v) is ErrorCode.PRODUCER_FENCED
        world.write_markers()
    assert world.state() is TransactionState.COMPLETE_ABORT


def test_the_timeout_counts_from_the_transactions_begin_across_failovers():
    world = Coordinator()
    world.add(world.init(), A)
    world.wait(25)
    world.fail_over()
    world.wait(10)
    assert world.state() is TransactionState.PREPARE_ABORT


def test_a_transaction_that_begins_in_the_future_is_aborted():
    """The clock of its first coordinator was ahead: the transaction would stay open for as long as that."""
    world = Coordinator()
    world.clock_error_ms = 3_600_000
    world.add(world.init(), A)
    world.clock_error_ms = 0
    world.fail_over()
    world.wait(20)
    assert world.state() is TransactionState.PREPARE_ABORT


def test_a_clock_that_is_a_little_ahead_does_no_harm():
    world = Coordinator()
    world.clock_error_ms = 5_000
    world.add(world.init(), A)
    world.clock_error_ms = 0
    world.fail_over()
    world.wait(20)
    assert world.state() is TransactionState.ONGOING
    world.wait(30)
    assert world.state() is TransactionState.PREPARE_ABORT


def test_ids_without_a_transaction_expire_and_others_do_not():
    world = Coordinator()
    world.add(world.init(), A)
    idle = world.ask(InitProducerId("idle", 1))
    assert idle["error"] is ErrorCode.NONE
    world.wait(1200)
    assert "idle" not in world.shard.transactions
    assert world.state() is TransactionState.PREPARE_ABORT  # its markers are still on their way
    world.fail_over()
    assert list(world.shard.transactions) == [ID]
    world.write_markers()
    world.wait(1200)
    assert not world.shard.transactions and world.shard.next_deadline() == float("inf")


def test_of_very_many_ids_that_expire_one_batch_goes_at_a_time():
    world = Coordinator()
    count = EXPIRED_AT_ONCE_MAX + 1
    for number in range(count):
        world.ask(InitProducerId(f"id{number}", 1))
    sizes: list[tuple[float, int]] = []
    while world.shard.transactions:
        world.wait(0.5)
        if not sizes or sizes[-1][1] != len(world.shard.transactions):
            sizes.append((world.now, len(world.shard.transactions)))
    (_, before), (first_at, left), (last_at, none) = sizes
    assert (before, left, none) == (count, 1, 0)
    assert last_at - first_at == 1.0, "and the next a second later"


# -- showing ----------------------------------------------------------------------------------------------


def test_transactions_are_described_and_listed():
    world = Coordinator()
    world.add(world.init(), A)
    world.ask(InitProducerId("other", 1))
    assert world.ask(DescribeTransaction(ID))["transaction"] == world.transaction
    missing = world.ask(DescribeTransaction("nobody"))["error"]
    assert missing is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    def listed(**filters):
        return sorted(id for id, _ in world.ask(ListTransactions(**filters))["transactions"])

    assert listed() == [ID, "other"]
    assert listed(states=frozenset({TransactionState.ONGOING})) == [ID]
    assert listed(producer_ids=frozenset({world.shard.transactions["other"].producer_id})) == [
        "other"
    ]
    assert listed(open_for_ms=1000) == []
    world.wait(2)
    assert listed(open_for_ms=1000) == [ID]


# -- whatever happens -------------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ("init", "recover", "add", "commit", "abort", "markers", "fail over", "wait", "disk")
        ),
        st.integers(0, 1),
    ),
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@given(steps=STEPS, v=st.sampled_from((0, 2)))
def test_C3_one_outcome_whatever_is_repeated_lost_or_late(steps, v):
    """Two producers of one id act as they like, each with the epoch that it was given last. Whoever was
    given an epoch last is the only one who may act; what is decided stays decided."""
    world = Coordinator()
    held: dict[int, tuple[int, int]] = {}
    newest: tuple[int, int] | None = None
    decided: dict[tuple[int, int], bool] = {}
    for what, who in steps:
        producer = held.get(who)
        before = world.shard.transactions.get(ID)
        if what == "init" or (what == "recover" and producer is not None):
            expected = producer if what == "recover" else None
            answer = world.ask_or_wait(InitProducerId(ID, 30_000, expected))
            if expected is not None and newest is not None and expected != newest:
                assert answer["error"] is not ErrorCode.NONE or before.last_producer_epoch >= 0
                assert before == world.shard.transactions[ID] or answer["error"] is ErrorCode.NONE
            if answer["error"] is ErrorCode.NONE:
                newest = held[who] = (answer["producer_id"], answer["producer_epoch"])
        elif what == "add" and producer is not None:
            answer = world.ask_or_wait(
                AddPartitions(ID, *producer, frozenset({A}), client_version=v)
            )
            if answer["error"] is ErrorCode.NONE:
                assert producer == newest
        elif what in ("commit", "abort") and producer is not None:
            answer = world.ask_or_wait(EndTransaction(ID, *producer, what == "commit", v))
            if answer["error"] is ErrorCode.NONE:
                if newest == producer:
                    newest = (answer["producer_id"], answer["producer_epoch"])
                held[who] = (answer["producer_id"], answer["producer_epoch"])
        elif what == "markers" and world.writable:
            world.write_markers()
        elif what == "fail over":
            world.fail_over()
        elif what == "wait":
            world.wait(41)
            after = world.shard.transactions.get(ID)
            if after is not None and before is not None and after != before:
                newest = None if after.producer_epoch > before.producer_epoch else newest
        elif what == "disk":
            world.writable = not world.writable
        for sent in world.markers:
            outcome = decided.setdefault((sent.producer_id, sent.producer_epoch), sent.commit)
            if v == 2:
                assert outcome is sent.commit
            elif world.state() in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT):
                assert sent.commit is (world.state() is TransactionState.PREPARE_COMMIT)
        after = world.shard.transactions.get(ID)
        if before is not None and after is not None:
            assert (after.producer_id, after.producer_epoch) >= (
                before.producer_id,
                before.producer_epoch,
            )
