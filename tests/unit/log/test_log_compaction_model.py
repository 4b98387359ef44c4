"""Compaction against a dictionary: whatever was written in whatever order, a reader's table stays the same, through
any number of rounds, restarts, and a crash at any step of a round."""

from __future__ import annotations

import random

import pytest
from compactkit import (
    COMPACT,
    clean,
    commit,
    end_transaction,
    names_in,
    pairs_in,
    transactional,
    view,
    write,
)
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from logkit import batches_in, new_log, producers_of, reopen, sim_disk

from ottla.log.log import Log
from ottla.sim.engine.disk import SimDisk

KEYS = ("a", "b", "c", "a key of more than sixteen bytes", "another of more than sixteen bytes")
PAIRS = st.lists(
    st.tuples(st.sampled_from(KEYS), st.sampled_from(("value", None))), min_size=1, max_size=4
)
IDEMPOTENT, FIRST, SECOND = 5, 7, 8
Pairs = list[tuple[str, str | None]]


def last_sequences(log: Log) -> dict[int, list[tuple[int, int, int]]]:
    """Of each producer: its last batch's sequence numbers and last offset."""
    return {
        key: [written[:3] for written in state[1][-1:]] for key, state in producers_of(log).items()
    }


class CompactionMachine(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 1 << 16))
    def begin(self, seed: int) -> None:
        self.disk = sim_disk(seed)
        self.log = new_log(self.disk, COMPACT)
        self.log.flush()
        self.written: dict[int, tuple[str, str | None]] = {}
        self.table: dict[str, str] = {}
        self.open: dict[int, dict[str, str | None]] = {}
        """By producer: what its open transaction has written."""
        self.sequences = dict.fromkeys((IDEMPOTENT, FIRST, SECOND), 0)
        self.gone: set[int] = set()
        """Offsets whose transaction was aborted."""
        self.known: dict[int, int] = {}
        """The producer of each offset that was ever in the log."""
        self.count = 0
        self.now_ms = 10_000

    def _numbered(self, pairs: Pairs) -> Pairs:
        found: Pairs = []
        for key, value in pairs:
            self.count += 1
            found.append((key, None if value is None else f"{value} {self.count}"))
        return found

    def _note(self, base: int, pairs: Pairs) -> None:
        for number, pair in enumerate(pairs):
            self.written[base + number] = pair

    def _apply(self, pairs: Pairs) -> None:
        for key, value in pairs:
            if value is None:
                self.table.pop(key, None)
            else:
                self.table[key] = value

    @rule(pairs=PAIRS, codec=st.sampled_from((0, 0, 3, 4)))
    def append(self, pairs: Pairs, codec: int) -> None:
        pairs = self._numbered(pairs)
        self._note(write(self.log, *pairs, codec=codec), pairs)
        self._apply(pairs)

    @rule(pairs=PAIRS)
    def append_idempotent(self, pairs: Pairs) -> None:
        pairs = self._numbered(pairs)
        fields = {
            "producer_id": IDEMPOTENT,
            "producer_epoch": 0,
            "base_sequence": self.sequences[IDEMPOTENT],
        }
        base = write(self.log, *pairs, **fields)
        self._note(base, pairs)
        self._apply(pairs)
        self.sequences[IDEMPOTENT] += len(pairs)
        self.retry = (pairs, fields, base)

    @precondition(lambda self: self.sequences[IDEMPOTENT])
    @rule()
    def retry_the_last(self) -> None:
        pairs, fields, base = self.retry
        assert write(self.log, *pairs, **fields) == base
        assert self.log.log_end == max(self.log.log_end, base + len(pairs))

    @rule(pairs=PAIRS, producer=st.sampled_from((FIRST, SECOND)))
    def append_in_transaction(self, pairs: Pairs, producer: int) -> None:
        pairs = self._numbered(pairs)
        self._note(transactional(self.log, producer, self.sequences[producer], *pairs), pairs)
        self.sequences[producer] += len(pairs)
        self.open.setdefault(producer, {}).update(pairs)

    @rule(producer=st.sampled_from((FIRST, SECOND)), committed=st.booleans())
    def end(self, producer: int, committed: bool) -> None:
        """Two open transactions that write the same key are ordered by their records, not their ends; so
        keys of a transaction that is still open are compared only when it has ended."""
        pairs = self.open.pop(producer, None)
        if pairs is None:
            return
        end_transaction(self.log, producer, committed=committed)
        self._recount()

    def _recount(self) -> None:
        """The table from all that was ever written, with what is aborted left out."""
        aborted = self.log.aborted_transactions(0, self.log.log_end)
        for row in aborted:
            for offset, producer in self._producers_of_offsets().items():
                if producer == row.producer_id and row.first_offset <= offset <= row.last_offset:
                    self.gone.add(offset)
        self.table = {}
        for offset in sorted(self.written):
            if offset not in self.gone:
                self._apply([self.written[offset]])

    def _producers_of_offsets(self) -> dict[int, int]:
        for batch in batches_in(self.log):
            for offset in range(batch.base_offset, batch.next_offset):
                self.known[offset] = batch.producer_id
        return self.known

    @rule(roll=st.booleans())
    def commit(self, roll: bool) -> None:
        self._producers_of_offsets()
        commit(self.log, roll=roll)

    @rule(keys_max=st.sampled_from((1, 3, 100)), later=st.sampled_from((0, 500, 5000)))
    def clean(self, keys_max: int, later: int) -> None:
        self._producers_of_offsets()
        self.now_ms += later
        clean(self.disk, self.log, self.now_ms, keys_max)

    @rule(orderly=st.booleans())
    def restart(self, orderly: bool) -> None:
        self._producers_of_offsets()
        commit(self.log, roll=False)
        before = pairs_in(self.log)
        remembered = last_sequences(self.log)
        high_watermark, cleaned = self.log.high_watermark, self.log.cleaned
        self.log.close(clean=orderly)
        if not orderly:
            self.disk.lose_power()
        self.log = reopen(
            self.disk, config=COMPACT, recovery_point=self.log.recovery_point, clean=orderly
        )
        self.log.cleaned = cleaned
        self.log.set_high_watermark(high_watermark)
        assert pairs_in(self.log) == before
        assert remembered == last_sequences(self.log)

    @invariant()
    def nothing_is_read_that_was_never_written(self) -> None:
        if hasattr(self, "log"):
            for offset, key, value in pairs_in(self.log):
                assert self.written[offset] == (key, value)

    @invariant()
    def the_newest_value_of_each_key_is_there(self) -> None:
        if hasattr(self, "log") and not self.open:
            self._producers_of_offsets()
            self._recount()
            assert view(self.log) == self.table


CompactionMachine.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
test_readers_cannot_tell = CompactionMachine.TestCase


class Crash(BaseException):
    pass


class CrashingDisk(SimDisk):
    """Dies before its nth change."""

    def __init__(self, seed: int) -> None:
        super().__init__(random.Random(seed))
        self.left: int | None = None

    def raise_drawn_fault(self, operation: str, path: str) -> None:
        self._count(operation)
        super().raise_drawn_fault(operation, path)

    def drawn_fault(self, operation: str, path: str) -> int | None:
        self._count(operation)
        return super().drawn_fault(operation, path)

    def _count(self, operation: str) -> None:
        if self.left is not None and operation in (
            "write",
            "flush",
            "rename",
            "remove",
            "flush_dir",
        ):
            self.left -= 1
            if self.left < 0:
                raise Crash


def dirty_log(seed: int) -> tuple[CrashingDisk, Log]:
    disk = CrashingDisk(seed)
    disk.make_dirs("/data")
    disk.flush_dir("/")
    log = new_log(disk, COMPACT)
    chance = random.Random(seed)
    sequence = 0
    for number in range(24):
        pairs = [(chance.choice(KEYS), chance.choice(("v" * 20 + str(number), None)))]
        if number % 3 == 0:
            transactional(log, FIRST, sequence, *pairs)
            sequence += 1
            end_transaction(log, FIRST, committed=number % 2 == 0)
        else:
            write(log, *pairs)
    commit(log)
    return disk, log


@pytest.mark.parametrize("power_lost", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_a_crash_at_any_step_of_a_round_leaves_every_reader_the_same_table(
    seed: int, power_lost: bool
) -> None:
    step = 0
    while True:
        disk, log = dirty_log(seed)
        expected, last = view(log), producers_of(log)[FIRST][1][-1]
        disk.left = step
        try:
            clean(disk, log)
        except Crash:
            disk.left = None
        else:
            assert step > 12
            return
        if power_lost:
            disk.lose_power()
        else:
            disk.forget_process()
        again = reopen(disk, config=COMPACT, recovery_point=log.recovery_point)
        assert view(again) == expected, step
        assert again.log_end == log.log_end
        assert producers_of(again)[FIRST][1][-1] == last
        assert not [name for name in names_in(disk, again) if name.endswith((".cleaned", ".swap"))]
        commit(again)
        clean(disk, again, now_ms=9000)
        assert view(again) == expected, step
        step += 1
