"""A log against a list of batches: whatever is done in whatever order, both say the same, also after the
process or the machine died in between."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from logkit import COMPACTED, batch_of, content, new_log, reopen, sim_disk

from ottla.log.log import Log
from ottla.log.producer_state import BATCHES_REMEMBERED
from ottla.records.batch import Batch, assign, batches, read_batch

PRODUCERS = (7, 8)


class Model:
    """Batches as bytes, with the marks a log keeps."""

    def __init__(self, start: int = 0) -> None:
        self.batches: list[tuple[Batch, bytes]] = []
        self.written: list[Batch] = []  # of producers with an id, also where the log begins later
        self.start = start
        self.end = start

    def append(self, data: bytes) -> None:
        batch = read_batch(data, 0)
        self.batches.append((batch, data))
        self.end = batch.next_offset
        if batch.producer_id >= 0:
            self.written.append(batch)

    def cut(self, offset: int) -> None:
        while self.batches and self.batches[-1][0].next_offset > offset:
            self.batches.pop()
        self.written = [batch for batch in self.written if batch.last_offset < offset]

    def next_sequence(self, producer: int) -> int:
        sequences = [batch.last_sequence for batch in self.written if batch.producer_id == producer]
        return sequences[-1] + 1 if sequences else 0

    def epochs(self) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for batch, _ in self.batches:
            if batch.next_offset > self.start and (not found or batch.leader_epoch > found[-1][0]):
                found.append((batch.leader_epoch, max(batch.base_offset, self.start)))
        return found

    def content(self) -> bytes:
        return b"".join(data for batch, data in self.batches if batch.next_offset > self.start)


class LogMachine(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 1 << 16))
    def begin(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.disk = sim_disk(seed)
        self.log = new_log(self.disk, COMPACTED)
        self.log.flush()
        self.model = Model()
        self.epoch = 0
        self.checkpointed = 0
        self.cut_since_flush = False
        self._watch()

    def _watch(self) -> None:
        def lower(log: Log, offset: int) -> None:
            self.checkpointed = min(self.checkpointed, offset)

        self.log.before_recovery_point_falls = lower

    def _compare_end(self, at_most: int) -> None:
        """The log ends with its last batch; an empty one where its segment begins."""
        end = self.log.log_end
        assert end <= at_most
        if self.model.batches:
            assert end == self.model.batches[-1][0].next_offset
        self.model.end = end
        self.model.start = min(self.model.start, end)

    @rule(count=st.integers(1, 4), size=st.sampled_from((1, 40, 150)), now=st.integers(0, 5000))
    def append(self, count: int, size: int, now: int) -> None:
        data = batch_of(count, timestamp=now, value=b"v" * size)
        appended = self.log.append_as_leader(data, self.epoch, now)
        assert appended.base_offset == self.model.end
        self.model.append(bytes(data))

    @rule(producer=st.sampled_from(PRODUCERS), count=st.integers(1, 3))
    def append_idempotent(self, producer: int, count: int) -> None:
        fields = {
            "producer_id": producer,
            "producer_epoch": 0,
            "base_sequence": self.model.next_sequence(producer),
        }
        data = batch_of(count, **fields)
        appended = self.log.append_as_leader(data, self.epoch, 0)
        assert not appended.duplicate and appended.base_offset == self.model.end
        self.model.append(bytes(data))
        repeated = self.log.append_as_leader(batch_of(count, **fields), self.epoch, 0)
        assert repeated == appended._replace(duplicate=True)

    @rule(
        counts=st.lists(st.integers(1, 3), min_size=1, max_size=5), gap=st.sampled_from((0, 0, 3))
    )
    def append_as_follower(self, counts: list[int], gap: int) -> None:
        data = bytearray()
        offset = self.model.end
        for count in counts:
            one = batch_of(count, timestamp=offset)
            assign(one, read_batch(one, 0), offset, self.epoch)
            data += one
            offset += count + gap
        cut_off = batch_of(2)[: self.random.randrange(70)]
        self.log.append_as_follower(memoryview(bytes(data) + bytes(cut_off)), self.epoch)
        for batch in batches(data):
            self.model.append(bytes(data[batch.position : batch.end]))

    @rule()
    def follow_a_new_leader(self) -> None:
        self.epoch += 1

    @rule()
    def become_leader(self) -> None:
        self.epoch += 1
        self.log.epochs.assign(self.epoch, self.log.log_end)
        assert self.log.epochs.latest == self.epoch

    @rule()
    def roll(self) -> None:
        self.log.roll(0)

    @rule(back=st.integers(0, 30))
    def truncate(self, back: int) -> None:
        offset = max(self.model.start, self.model.end - back)
        self.log.truncate_to(offset)
        self.cut_since_flush = True
        self.model.cut(offset)
        self._compare_end(offset)

    @rule(forward=st.integers(0, 50))
    def truncate_fully(self, forward: int) -> None:
        self.log.truncate_fully(self.model.end + forward)
        self.cut_since_flush = True
        self.model = Model(self.model.end + forward)

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.cut_since_flush = False
        assert self.log.recovery_point == self.log.log_end

    @rule()
    def checkpoint(self) -> None:
        self.checkpointed = self.log.recovery_point

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        self.log.advance_high_watermark(self.log.log_end)
        offset = self.model.start + int((self.model.end - self.model.start) * share)
        self.log.advance_log_start(offset)
        self.model.start = offset
        self.log.delete_old_segments(0)
        assert self.log.log_start == offset
        kept = self.log.segment_bases[0]
        self.model.batches = [item for item in self.model.batches if item[0].next_offset > kept]

    @rule()
    def stop_and_start(self) -> None:
        end, content_before = self.log.log_end, content(self.log)
        self.log.close(clean=True)
        assert self.log.recovery_point == end
        self.log = reopen(
            self.disk, recovery_point=end, clean=True, log_start=self.model.start, config=COMPACTED
        )
        self.checkpointed = end
        self.cut_since_flush = False
        assert content(self.log) == content_before
        self._compare_end(end)
        self._watch()

    @rule()
    def kill(self) -> None:
        """The page cache survives: nothing at all is lost."""
        self.disk.forget_process()
        self.log = reopen(
            self.disk,
            recovery_point=self.checkpointed,
            log_start=self.model.start,
            config=COMPACTED,
        )
        self._compare_end(self.model.end)
        self._watch()

    @rule()
    def lose_power(self) -> None:
        """Any suffix of what was not flushed may be gone, nothing else. Where something was cut away
        since the last flush the old tail may be back, as it was; a follower begins anew then."""
        self.disk.lose_power()
        self.log = reopen(
            self.disk,
            recovery_point=self.checkpointed,
            log_start=self.model.start,
            config=COMPACTED,
        )
        self._watch()
        assert self.log.log_end >= self.checkpointed
        if self.cut_since_flush:
            self.log.truncate_fully(self.model.end)
            self.model = Model(self.model.end)
        else:
            self.model.cut(self.log.log_end)
            self._compare_end(self.model.end)

    @invariant()
    def same_content(self) -> None:
        self.log.invariants()
        assert (self.log.log_start, self.log.log_end) == (self.model.start, self.model.end)
        assert content(self.log) == self.model.content()

    @invariant()
    def same_epochs(self) -> None:
        """Of all epochs that wrote something. The first may begin in a gap before its first batch."""
        known = [entry for entry in self.log.epochs.entries if entry[1] < self.log.log_end]
        expected = self.model.epochs()
        assert known[1:] == expected[1:]
        assert [epoch for epoch, _ in known[:1]] == [epoch for epoch, _ in expected[:1]]
        if known:
            assert self.model.start <= known[0][1] <= expected[0][1]

    @invariant()
    def same_producers(self) -> None:
        """Of each producer at least the last batch is known, and nothing that is not in the log."""
        for producer in PRODUCERS:
            written = [batch for batch in self.model.written if batch.producer_id == producer]
            known = self.log.producers.producers.get(producer)
            if known is None:
                assert all(batch.last_offset < self.model.start for batch in written)
                continue
            assert 1 <= len(known.batches) <= BATCHES_REMEMBERED
            for batch, remembered in zip(reversed(written), reversed(known.batches), strict=False):
                assert remembered.last_offset == batch.last_offset
                assert remembered.first_sequence == batch.base_sequence
                assert remembered.last_sequence == batch.last_sequence


LogMachine.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow],
)
test_a_log_says_the_same_as_a_list_of_batches = LogMachine.TestCase
