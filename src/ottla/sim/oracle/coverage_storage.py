"""The rare states of a node's logs, marked for the coverage (see `coverage`) as the node emits events of them."""

from __future__ import annotations

from ottla.events import Event
from ottla.events.storage import (
    CleanShutdownRecognized,
    DuplicateBatchAnswered,
    LogDirectoryFailed,
    LogSetAside,
    MarkerRefused,
    ProducerFenced,
    SegmentsExpired,
    TornTailCut,
)
from ottla.sim.cluster.nodes import DATA, SimNode
from ottla.sim.oracle.coverage import mark

_STATES: dict[type[Event], str] = {
    CleanShutdownRecognized: "clean stop recognized",
    DuplicateBatchAnswered: "retry answered with its offset",
    LogDirectoryFailed: "log directory failed",
    LogSetAside: "log set aside",
    MarkerRefused: "marker refused",
    ProducerFenced: "producer fenced by a partition",
    SegmentsExpired: "records expired",
    TornTailCut: "torn tail cut",
}


def mark_storage(node: SimNode, event: Event) -> None:
    if isinstance(event, SegmentsExpired | TornTailCut) and not event.directory.startswith(DATA):
        return  # the metadata log
    state = _STATES.get(type(event))
    if state is not None:
        mark(state)
