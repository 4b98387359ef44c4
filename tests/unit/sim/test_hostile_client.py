"""Garbage and replayed requests: what is repeated, and that a cluster goes on as if nothing had been."""

from __future__ import annotations

import pytest

from ottla.records.record import Record, build
from ottla.sim.clients.hostile import HostilePlan, _may_be_repeated
from ottla.sim.run.options import RunOptions
from ottla.sim.run.outcome import Verdict
from ottla.sim.run.scenario import run_seed
from ottla.wire import produce
from ottla.wire.apis import ApiKey
from ottla.wire.types import TopicPartition

VERSION = 12
SEED = 13


@pytest.mark.parametrize("producer_id", [-1, 7])
def test_only_batches_of_idempotent_producers_are_repeated(producer_id: int) -> None:
    partition = TopicPartition("t0", 0)
    data = build([Record(0, 0, None, b"v")], producer_id=producer_id, base_sequence=0)
    part = produce.PartitionData(
        partition.topic, None, partition.partition, memoryview(bytearray(data))
    )
    body = produce.write_request(VERSION, produce.ProduceRequest(None, -1, 1000, [part]))
    assert _may_be_repeated(ApiKey.PRODUCE, VERSION, body) == (producer_id != -1)


def test_nobody_minds_garbage_and_requests_of_long_ago() -> None:
    options = RunOptions.draw(SEED, 5.0)
    options.hostile = HostilePlan(pause_s=0.02, replay=0.5)
    outcome = run_seed(SEED, options=options)
    assert outcome.verdict is Verdict.PASSED, outcome.problem
    assert outcome.marks["garbage sent"] and outcome.marks["request replayed"]
