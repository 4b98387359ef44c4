"""Why an ISR should change: what the leader finds, and the text that carries it to the controller."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.cluster import isr_reasons
from ottla.events.replication import IsrCause, IsrReason, Lag
from support.replica_world import LAG_S, World

lags = st.builds(Lag, st.integers(0, 2**62), st.integers(0, 2**62), st.none() | st.floats(0, 1e9))
reasons = st.dictionaries(
    st.integers(0, 2**31 - 1), st.builds(IsrReason, st.sampled_from(IsrCause), lags), max_size=3
)
proposals = st.dictionaries(st.tuples(st.uuids(), st.integers(0, 2**31 - 1)), reasons, max_size=4)


@given(proposals)
def test_reasons_are_read_as_they_were_written(
    given: dict[tuple[UUID, int], dict[int, IsrReason]],
) -> None:
    text = isr_reasons.written((*key, each) for key, each in given.items())
    assert isr_reasons.read(text) == given


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"1",
        b"[1]",
        b'[["x",0,[]]]',
        b'[["00",0,[[1,"no",0,0,0]]]]',
        b"\xff",
        b"[" * 2000,
    ],
)
def test_a_text_that_is_not_ours_gives_no_reason_and_no_error(text: bytes) -> None:
    assert isr_reasons.read(text) == {}


def test_a_follower_that_does_not_fetch_is_silent_and_one_that_does_is_slow(tmp_path: Path) -> None:
    world = World(tmp_path, brokers=3)
    world.fetch(2, 1)
    world.fetch(3, 1)
    world.produce(1, "a", "b", "c")
    leadership = world.replicas[1].leadership
    assert leadership is not None
    slow = leadership.followers[3]
    world.now += LAG_S + 1
    slow.fetched_at = world.now - 1  # it fetches, and never catches up
    leadership.isr_changes.review(world.now)
    proposal = world.replicas[1].proposal
    assert proposal is not None and [id for id, _ in proposal.isr] == [1]
    assert {id: why.cause for id, why in proposal.reasons.items()} == {
        2: IsrCause.SILENT,
        3: IsrCause.SLOW,
    }
    size = leadership.log.size_bytes
    assert proposal.reasons[2].lag == Lag(3, size, LAG_S + 1)


def test_a_follower_that_joins_has_caught_up(tmp_path: Path) -> None:
    world = World(tmp_path, brokers=2)
    world.decide(isr=(1,))
    world.fetch(2, 1)
    proposal = world.replicas[1].proposal
    assert proposal is not None
    assert proposal.reasons[2] == IsrReason(IsrCause.CAUGHT_UP, Lag(0, 0, 0.0))
