"""Somebody else's consumer on whole nodes under faults: aiokafka's, unmodified, with assigned partitions.

What it is shown is checked as our own clients check it: in order, once, only what is committed, and in the end
everything (C1, C2, D11).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest

from ottla.sim import World, borrowed_time
from ottla.sim.cluster.nodes import BROKER_PORT
from ottla.sim.run.options import RunOptions
from ottla.sim.run.scenario import Scenario
from ottla.wire.types import TopicPartition

TROUBLE_S = 6.0
KINDS = ("kill", "power_loss", "stop", "pause", "isolate", "halves", "reset", "hop", "swing")
"""Nothing that deletes or damages records: aiokafka has its own ways with those."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class WithGuest(Scenario):
    """A scenario with one aiokafka consumer of all partitions."""

    def __init__(self, world: World, options: RunOptions) -> None:
        super().__init__(world, options)
        self.read: dict[TopicPartition, list[bytes]] = {}

    def _begin(self) -> None:
        super()._begin()
        self.read = {key: [] for key in sorted(self.evidence.ledgers)}
        self.world.node("guest").run(self._consume())

    async def _consume(self) -> None:
        import aiokafka

        addresses = [f"{node.host.name}:{BROKER_PORT}" for node in self.cluster.nodes.values()]
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=addresses,
            client_id="guest",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            request_timeout_ms=3000,
            metadata_max_age_ms=2000,
        )
        while True:
            try:
                await consumer.start()
                break
            except aiokafka.errors.KafkaError:
                await asyncio.sleep(0.5)
        consumer.assign([aiokafka.TopicPartition(*key) for key in self.read])
        while True:
            self._take(await consumer.getone())

    def _take(self, record: object) -> None:
        key = TopicPartition(record.topic, record.partition)  # type: ignore[attr-defined]
        offset, value = record.offset, record.value  # type: ignore[attr-defined]
        ledger = self.evidence.ledgers[key]
        assert offset == len(self.read[key]), f"{key}: {offset} after {len(self.read[key])}"
        assert offset < ledger.end, f"{key}: was shown {offset}, committed is below {ledger.end}"
        self.read[key].append(value)

    def has_everything(self) -> bool:
        return all(
            len(values) == self.evidence.ledgers[key].end for key, values in self.read.items()
        )


def run(seed: int) -> tuple[str, int]:
    """(hash of the trace, records that it read)"""
    options = RunOptions.draw(seed, TROUBLE_S)
    weights = options.faults.weights
    options.faults.weights = {kind: int(kind in KINDS) for kind in weights}
    options.topic_settings.pop("retention.bytes", None)
    options.topic_settings["unclean.leader.election.enable"] = "false"
    with World(seed) as world, borrowed_time(world):
        scenario = WithGuest(world, options)
        scenario.run()
        assert not any(ledger.losses for ledger in scenario.evidence.ledgers.values())
        assert world.run_until(scenario.has_everything, 60)
        assert world.problems() == []
        written = scenario.workload.history
        for ack in written.acknowledged:
            values = scenario.read[ack.batch.partition][ack.base_offset :]
            assert tuple(values[: len(ack.batch.values)]) == ack.batch.values
        return world.digest(), sum(map(len, scenario.read.values()))


@pytest.mark.parametrize("seed", [1, 4])
def test_C1_C2_aiokafka_reads_everything_once_and_in_order_through_faults(seed: int) -> None:
    _, records = run(seed)
    assert records > 0


def test_C5_a_run_with_aiokafka_repeats_with_its_seed() -> None:
    assert run(2) == run(2)
