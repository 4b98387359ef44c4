"""Which batches of a fetch hold rows: not the markers of transactions and, for `read_committed`, nothing that was aborted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ottla.records.batch import Batch
from ottla.records.record import ControlType, control_type, records
from ottla.runtime.seams import Buffer


def visible(
    data: Buffer,
    fetched: Iterable[Batch],
    *,
    start: int,
    end: int,
    aborted: Sequence[tuple[int, int]] | None,
) -> Iterator[Batch]:
    """Those with offsets from `start` up to, not including, `end`. `aborted` has producer id and first offset of each
    aborted transaction that reaches into the fetch; None: they are to be seen too."""
    coming = sorted(aborted or (), key=lambda transaction: transaction[1], reverse=True)
    under_way: set[int] = set()
    for batch in fetched:
        if batch.base_offset >= end:
            return
        while coming and coming[-1][1] <= batch.last_offset:
            under_way.add(coming.pop()[0])
        if batch.is_control:
            if batch.producer_id in under_way and _is_abort(data, batch):
                under_way.discard(batch.producer_id)
            continue
        if batch.is_transactional and batch.producer_id in under_way:
            continue
        if batch.last_offset >= start and batch.count > 0:
            yield batch


def _is_abort(data: Buffer, batch: Batch) -> bool:
    return any(control_type(record) == ControlType.ABORT for record in records(data, batch))
