"""TxnOffsetCommit at the broker's door."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.apis.groups import Readable
from ottla.broker.apis.txn_offsets import TxnOffsetCommitHandler
from ottla.wire.errors import ErrorCode


class Groups:
    def __init__(self) -> None:
        self.refused: list[ErrorCode] = []

    def readable(self, request: Any, message: Any) -> Readable:
        return Readable(message, (), self.refused.append)  # type: ignore[arg-type]

    def refusal(self, request: Any, message: Any, error: ErrorCode) -> ErrorCode:
        return error


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, -1), (-1, 0), (7, -1)])
def test_offsets_of_nobodys_transaction_come_no_further(producer_id: int, epoch: int) -> None:
    groups: Any = Groups()
    nothing: Any = None
    handler = TxnOffsetCommitHandler(nothing, groups, nothing, nothing)
    message = SimpleNamespace(
        group_id="g",
        transactional_id="x",
        producer_id=producer_id,
        producer_epoch=epoch,
        topics=("t",),
    )
    request: Any = SimpleNamespace(message=lambda: message, rights=None)
    handler(request)
    assert groups.refused == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
