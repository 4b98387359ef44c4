"""From manifests to losses, and from kept batches to records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.losses import manifest as manifests
from ottla.losses.manifest import BadManifest, EpochRange, LossKind, Manifest, State
from ottla.losses.merge import NamedLoss, Piece, merge
from ottla.losses.open_elections import open_elections
from ottla.losses.recovering import BatchReader, Recovered, Recovery, identity_of, missing
from ottla.records.batch import assign, read_batch
from ottla.records.record import ControlType, Record, build, control_batch


def manifest(broker: int, *epochs: tuple[int, int, int], committed: int, **fields) -> Manifest:
    ranges = tuple(EpochRange(*each) for each in epochs)
    made = Manifest(
        id=f"{broker}-{ranges[0].first}-{ranges[0].epoch}",
        kind=LossKind.TRUNCATION,
        state=State.KEPT,
        topic="orders",
        topic_id="id",
        partition=0,
        first_offset=ranges[0].first,
        committed_end=committed,
        end_offset=ranges[-1].end,
        epochs=ranges,
        records=ranges[-1].end - ranges[0].first,
        bytes=100,
        at_ms=1000 + broker,
        cause="a test",
        leader=9,
        leader_epoch=7,
        broker=broker,
    )
    return made._replace(**fields)


def test_two_brokers_that_hold_the_same_records_are_one_loss_and_the_one_that_knew_more_counts():
    follower = manifest(1, (3, 100, 140), committed=120)
    leader = manifest(2, (3, 100, 150), committed=150)
    (loss,) = merge([follower, leader])
    assert (loss.first, loss.end, loss.possible_end) == (100, 150, 150)
    assert [each.broker for each in loss.held_by] == [1, 2]


def test_without_the_leader_that_knew_the_rest_is_only_possible():
    (loss,) = merge([manifest(1, (3, 100, 140), committed=120)])
    assert (loss.end, loss.possible_end) == (120, 140)
    assert loss.holds(3, 119, possible=False) and not loss.holds(3, 120, possible=False)
    assert loss.holds(3, 139, possible=True)


def test_a_loss_of_which_nothing_is_certain_has_an_empty_certain_range():
    (loss,) = merge([manifest(1, (3, 100, 110), (4, 110, 140), committed=100)])
    assert (loss.first, loss.end, loss.possible_end) == (100, 100, 140)


def test_epochs_that_were_cut_off_together_are_one_loss():
    (loss,) = merge([manifest(1, (3, 100, 110), (4, 110, 140), committed=115)])
    assert loss.pieces == [Piece(3, 100, 110, 110), Piece(4, 110, 115, 140)]


def test_a_log_that_was_cut_in_rounds_is_one_loss():
    first = manifest(1, (4, 110, 140), committed=140)
    second = manifest(1, (3, 100, 110), committed=110)
    (loss,) = merge([first, second])
    assert (loss.first, loss.end) == (100, 140)
    assert [each.first_offset for each in loss.held_by] == [100, 110]


def test_the_same_offsets_lost_twice_in_two_epochs_are_two_losses():
    found = merge(
        [
            manifest(1, (3, 100, 110), committed=110),
            manifest(2, (5, 100, 120), committed=120, leader_epoch=8),
        ]
    )
    assert [(loss.first, loss.end, loss.pieces[0].epoch) for loss in found] == [
        (100, 110, 3),
        (100, 120, 5),
    ]


def test_what_is_about_to_be_cut_does_not_count():
    assert merge([manifest(1, (3, 100, 110), committed=110, state=State.CUTTING)]) == []


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 20), st.integers(1, 20), st.integers(0, 40)),
        min_size=1,
        max_size=6,
    )
)
def test_merging_keeps_every_record_and_adds_none(cuts):
    """Brokers cut off one and the same log (one epoch) at various places."""
    given_ = [
        manifest(broker, (3, first, first + size), committed=min(max(first, known), first + size))
        for broker, first, size, known in cuts
    ]
    losses = merge(given_)
    named = {
        offset for each in given_ for _, first, end in each.epochs for offset in range(first, end)
    }
    certain = {offset for each in given_ for offset in range(each.first_offset, each.committed_end)}
    assert named == {
        offset for loss in losses for p in loss.pieces for offset in range(p.first, p.possible)
    }
    assert certain <= {
        offset for loss in losses for p in loss.pieces for offset in range(p.first, p.certain)
    }


def test_a_manifest_is_read_as_it_was_written():
    made = manifest(1, (3, 100, 110), (4, 110, 140), committed=115, recovered_to="t")
    assert manifests.parse(manifests.text_of(made)) == made


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b"\xff", b'{"version": 2}'])
def test_what_is_no_manifest_is_refused(text):
    with pytest.raises(BadManifest):
        manifests.parse(text)


@pytest.mark.parametrize(
    "field", [name for name in Manifest._fields if name not in ("why_not", "recovered_to")]
)
@pytest.mark.parametrize("value", [None, True, 1.5, {}, [1]], ids=str)
def test_a_manifest_with_a_field_of_another_type_is_refused(field, value):
    fields = {**manifest(1, (3, 100, 110), committed=110).as_json(), field: value}
    with pytest.raises(BadManifest):
        manifests.from_json(fields)


@pytest.mark.parametrize("field", ["at_ms", "bytes", "first_offset", "leader_epoch"])
def test_a_manifest_with_text_for_a_number_is_refused(field):
    fields = {**manifest(1, (3, 100, 110), committed=110).as_json(), field: "7"}
    with pytest.raises(BadManifest):
        manifests.from_json(fields)


# Recovering


def batch(offset: int, *values: bytes, epoch: int = 3, **fields) -> bytes:
    made = [Record(n, 1000 + n, b"k", value, (("h", b"x"),)) for n, value in enumerate(values)]
    data = build(made, **fields)
    return bytes(_placed(data, offset, epoch))


def marker(offset: int, kind: ControlType, producer: int) -> bytes:
    data = control_batch(
        [(kind, b"\x00\x00\x00\x00\x00\x00")],
        timestamp=1,
        producer_id=producer,
        producer_epoch=0,
    )
    return bytes(_placed(data, offset, 3))


def _placed(data: bytearray, offset: int, epoch: int) -> bytearray:
    assign(memoryview(data), read_batch(data, 0), offset, epoch)
    return data


def recovered(loss: NamedLoss, *files: bytes, possible: bool = False):
    recovery = Recovery(loss, possible=possible)
    found: list[Recovered] = []
    for pass_ in ("survey", "records"):
        for broker, file in enumerate(files):
            reader = BatchReader(manifest(broker, (3, 0, 100), committed=100))
            for at in range(0, len(file), 37):
                for data, header in reader.batches(file[at : at + 37]):
                    if pass_ == "survey":
                        recovery.survey(data, header)
                    else:
                        found += recovery.records(data, header, broker, "kept")
    return recovery, [each.record for each in found]


def a_loss(first: int, end: int, possible: int | None = None) -> NamedLoss:
    pieces = [Piece(3, first, end, end if possible is None else possible)]
    return NamedLoss(LossKind.TRUNCATION, "orders", "id", 0, pieces)


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_exactly_the_lost_records_come_back_with_all_that_they_had(codec):
    file = batch(10, b"a", b"b", b"c", codec=codec) + batch(13, b"d", b"e", codec=codec)
    _, found = recovered(a_loss(11, 14), file)
    assert [(each.offset, each.key, each.value, each.timestamp) for each in found] == [
        (11, b"k", b"b", 1001),
        (12, b"k", b"c", 1002),
        (13, b"k", b"d", 1000),
    ]
    headers = dict(found[0].headers)
    assert found[0].headers[0] == ("h", b"x")
    assert headers["ottla.recovered.from"] == b"orders-0"
    assert headers["ottla.recovered.offset"] == b"11"
    assert headers["ottla.recovered.epoch"] == b"3"
    assert headers["ottla.recovered.broker"] == b"0" and headers["ottla.recovered.kept"] == b"kept"
    assert identity_of(found[0]) == ("orders-0", "id", "11", "3")
    assert identity_of(Record(0, 0)) is None


def test_records_of_a_topic_that_was_created_again_are_not_taken_for_those_of_the_old_one():
    old, new = a_loss(10, 11), replace(a_loss(10, 11), topic_id="another")
    one, other = (recovered(loss, batch(10, b"a"))[1][0] for loss in (old, new))
    assert identity_of(one) != identity_of(other)


def test_what_two_brokers_hold_comes_back_once():
    file = batch(10, b"a", b"b")
    _, found = recovered(a_loss(10, 15), file, file + batch(12, b"c"))
    assert [each.value for each in found] == [b"a", b"b", b"c"]


def test_records_of_another_epoch_at_the_same_offsets_are_not_mixed_up():
    _, found = recovered(a_loss(10, 12), batch(10, b"other", epoch=5), batch(10, b"a", b"b"))
    assert [each.value for each in found] == [b"a", b"b"]


def test_what_is_only_possible_comes_back_if_it_is_asked_for():
    file = batch(10, b"a", b"b", b"c")
    assert len(recovered(a_loss(10, 11, 13), file)[1]) == 1
    assert len(recovered(a_loss(10, 11, 13), file, possible=True)[1]) == 3


def test_aborted_transactions_are_left_out_and_undecided_ones_are_told():
    fields = {"producer_epoch": 0, "base_sequence": 0, "transactional": True}
    file = (
        batch(10, b"aborted", producer_id=1, **fields)
        + batch(11, b"committed", producer_id=2, **fields)
        + marker(12, ControlType.ABORT, 1)
        + marker(13, ControlType.COMMIT, 2)
        + batch(14, b"open", producer_id=1, **fields)
    )
    recovery, found = recovered(a_loss(10, 20), file)
    assert [each.value for each in found] == [b"committed", b"open"]
    assert (recovery.aborted, recovery.undecided, recovery.markers) == (1, 1, 2)
    assert dict(found[1].headers)["ottla.recovered.transaction"] == b"open"


FILE = b"".join(batch(10 + n, b"%d" % n) for n in range(4))
ONE = len(FILE) // 4


def read(broker: int, file: bytes, *, epoch: int = 3) -> tuple[BatchReader, list[int]]:
    """What a reader gives of a copy of FILE."""
    made = manifest(broker, (epoch, 10, 14), committed=14, bytes=len(FILE))
    reader = BatchReader(made)
    parts = [file[at : at + 37] for at in range(0, len(file), 37)]
    return reader, [header.base_offset for part in parts for _, header in reader.batches(part)]


def damaged(at: int) -> bytes:
    return FILE[:at] + bytes((FILE[at] ^ 0xFF,)) + FILE[at + 1 :]


@pytest.mark.parametrize(
    ("file", "good", "unread"),
    [
        (FILE, [10, 11, 12, 13], []),
        (FILE[:-1], [10, 11, 12], [(13, 14)]),
        (FILE[: 3 * ONE], [10, 11, 12], [(13, 14)]),
        (FILE[: 3 * ONE + 5], [10, 11, 12], [(13, 14)]),
        (b"", [], [(10, 14)]),
        (FILE[:ONE] + FILE[2 * ONE :], [10, 12, 13], [(11, 12)]),
        (damaged(2 * ONE - 1), [10, 12, 13], [(11, 12)]),
        (damaged(ONE + 16), [10], [(11, 14)]),
    ],
    ids=["whole", "torn", "short", "header", "empty", "hole", "damaged", "damaged header"],
)
def test_a_reader_goes_on_after_damage_and_says_which_offsets_are_missing(file, good, unread):
    reader, found = read(1, file)
    assert (found, reader.unread()) == (good, unread)
    assert missing(a_loss(10, 14), [reader], possible=False) == unread


def test_offsets_that_compaction_has_removed_are_not_missing():
    file = batch(10, b"a") + batch(13, b"b")
    reader = BatchReader(manifest(1, (3, 10, 14), committed=14, bytes=len(file)))
    assert len(list(reader.batches(file))) == 2
    assert reader.unread() == []


def test_what_one_copy_lacks_another_one_gives():
    one, other = read(1, damaged(2 * ONE - 1))[0], read(2, FILE[: 3 * ONE])[0]
    assert missing(a_loss(10, 14), [one, other], possible=False) == []
    _, found = recovered(a_loss(10, 14), damaged(2 * ONE - 1), FILE[: 3 * ONE])
    assert sorted(each.offset for each in found) == [10, 11, 12, 13]


def test_the_records_of_another_epoch_do_not_make_up_for_it():
    one, other = read(1, FILE[: 2 * ONE])[0], read(2, FILE, epoch=5)[0]
    assert missing(a_loss(10, 14), [one, other], possible=False) == [(12, 14)]


def test_what_is_only_possible_is_missing_only_if_it_is_asked_for():
    reader, _ = read(1, FILE[: 2 * ONE])
    assert missing(a_loss(10, 12, 14), [reader], possible=False) == []
    assert missing(a_loss(10, 12, 14), [reader], possible=True) == [(12, 14)]


# Elections that may still cost something


def election(how: str, leader: int, epoch: int, isr: list[int], previous: int = -1):
    return {
        "kind": "election",
        "partition": "orders-0",
        "at": "now",
        "how": how,
        "leader": leader,
        "leader_epoch": epoch,
        "isr": isr,
        "previous_leader": previous,
    }


def test_an_unclean_election_is_open_until_the_former_members_are_in_sync_again():
    entries = [
        election("clean", 1, 3, [1, 2]),
        {"kind": "isr_shrink", "partition": "orders-0", "isr": []},
        election("unclean", 3, 5, [3]),
        {"kind": "leader_start", "partition": "orders-0", "leader_epoch": 5, "log_end": 70},
    ]
    (found,) = open_elections(entries)
    assert (found.first_offset, found.may_be_held_by) == (70, (1, 2))
    entries.append({"kind": "isr_expand", "partition": "orders-0", "isr": [3, 1]})
    (found,) = open_elections(entries)
    assert found.may_be_held_by == (2,)
    entries.append({"kind": "isr_expand", "partition": "orders-0", "isr": [3, 1, 2]})
    assert open_elections(entries) == []


def test_clean_elections_leave_nothing_open():
    assert open_elections([election("clean", 1, 3, [1, 2]), election("elr", 2, 4, [2], 1)]) == []


def test_a_bad_entry_of_the_event_log_hides_no_open_election():
    whole = [election("clean", 1, 3, [1, 2]), election("unclean", 3, 4, [3], 1)]
    bad: list[dict[str, Any]] = [
        {"partition": "orders-0", "kind": "election", "how": "unclean"},
        {"partition": "orders-0", "kind": "election", "how": "unclean", "leader": None},
        {"partition": "orders-0", "kind": "isr_shrink", "isr": 5},
        {"partition": "orders-0", "kind": "isr_shrink", "isr": [[]]},
        {"partition": "orders-0", "kind": "leader_start", "leader_epoch": []},
    ]
    assert open_elections(bad + whole) == open_elections(whole) != []
