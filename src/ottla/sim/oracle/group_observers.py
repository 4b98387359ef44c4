"""What is left of the patches for groups and transactions: two of the partitions' producer state."""

from __future__ import annotations

from typing import Any

from ottla.log.producer_state import Marker, ProducerState
from ottla.records.batch import Batch
from ottla.sim.engine.patches import Patch
from ottla.sim.oracle.coverage import mark
from ottla.wire.errors import KafkaError


def coordinators() -> list[Patch]:
    check_epoch, check_marker = ProducerState._check_epoch, ProducerState.check_marker

    def epoch_checked(self: ProducerState, batch: Batch, producer: Any) -> None:
        if batch.producer_epoch < producer.epoch and not batch.is_control:
            mark("producer fenced by a partition")
        check_epoch(self, batch, producer)

    def marker_checked(
        self: ProducerState, batch: Batch, marker: Marker, *, bumps_epoch: bool = False
    ) -> None:
        try:
            check_marker(self, batch, marker, bumps_epoch=bumps_epoch)
        except KafkaError:
            mark("marker refused")
            raise

    return [
        Patch(ProducerState, "_check_epoch", epoch_checked),
        Patch(ProducerState, "check_marker", marker_checked),
    ]
