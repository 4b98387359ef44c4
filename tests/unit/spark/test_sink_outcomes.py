"""How a transaction ended, as the log tells it: by what is there, and never by what is not."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, cast

import pytest

from ottla.client.client import Client
from ottla.client.connections import BrokerConnections, Unreachable
from ottla.client.model import FetchedRecords, TransactionMarker
from ottla.client.transaction_admin import ProducerIdentity
from ottla.records.batch import Batch, batches
from ottla.records.record import Record, build
from ottla.spark.errors import SparkSourceError, told_in_one_line
from ottla.spark.options import Options, ReadOptions
from ottla.spark.read.fetcher import Fetcher
from ottla.spark.read.splits import Range
from ottla.spark.write import sink
from ottla.spark.write.decisions import (
    Abort,
    CommitTransactions,
    TaskTransaction,
    TransactionOutcome,
)
from ottla.spark.write.sink import SinkDriver
from ottla.wire.errors import ErrorCode, KafkaError

PRODUCER, EPOCH, FIRST, END = 7, 3, 10, 100


def batch_of(producer_id: int, base_offset: int = FIRST) -> Batch:
    (found,) = batches(build([Record(0, 0, b"k", b"v")], producer_id=producer_id))
    return found._replace(base_offset=base_offset)


def marker(offset: int, *, is_commit: bool, epoch: int = EPOCH + 1) -> TransactionMarker:
    return TransactionMarker(offset, PRODUCER, epoch, is_commit)


class Log:
    """One partition: what a committed read at `FIRST` and any read behind it bring."""

    def __init__(
        self,
        *,
        aborted: tuple[tuple[int, int], ...] = (),
        first: Batch | None = None,
        markers: tuple[TransactionMarker, ...] = (),
    ) -> None:
        self.aborted, self.markers = aborted, markers
        self.batches = () if first is None else (first,)
        self.connections = self
        self.timeout_s = 1.0

    async def fetch(self, topic: str, partition: int, offset: int, **how: Any) -> FetchedRecords:
        aborted = self.aborted if how.get("committed") else ()
        return FetchedRecords([], END, END, 0, END, aborted, self.batches, self.markers)


def outcome(log: Log, version: int = 2) -> TransactionOutcome:
    identity = ProducerIdentity("id", PRODUCER, EPOCH, version)
    written = TaskTransaction(0, identity, 1, 1, "t", 0, FIRST)
    driver = SinkDriver(cast(Client, log), "q", lambda: 0)
    return asyncio.run(driver._outcome_in_log(written))


@pytest.mark.parametrize("begin", [FIRST - 4, FIRST])
def test_an_aborted_transaction_is_known_by_where_it_lies(begin: int) -> None:
    """The first batch may have been acknowledged without an offset, so that a later one is the first that is known."""
    assert outcome(Log(aborted=((PRODUCER, begin),))) is TransactionOutcome.ABORTED


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("is_commit", [True, False])
def test_the_marker_behind_the_records_tells(version: int, is_commit: bool) -> None:
    later = marker(90, is_commit=not is_commit, epoch=EPOCH + 2)
    log = Log(first=batch_of(PRODUCER), markers=(marker(50, is_commit=is_commit), later))
    assert outcome(log, version) is (
        TransactionOutcome.COMMITTED if is_commit else TransactionOutcome.ABORTED
    )


def test_what_compaction_has_forgotten_is_not_taken_for_committed() -> None:
    """Of an aborted transaction neither the records remain nor, in the end, a word of the abort."""
    for log in (
        Log(),
        Log(first=batch_of(PRODUCER + 1)),
        Log(markers=(marker(90, is_commit=True, epoch=EPOCH + 2),)),
    ):
        with pytest.raises(SparkSourceError, match="nobody knows any more"):
            outcome(log)


def test_where_epochs_are_not_for_one_transaction_a_marker_without_its_records_tells_nothing() -> (
    None
):
    log = Log(markers=(marker(50, is_commit=True, epoch=EPOCH),))
    assert outcome(log, version=2) is TransactionOutcome.COMMITTED
    with pytest.raises(SparkSourceError, match="nobody knows any more"):
        outcome(log, version=1)


@pytest.mark.parametrize("patient", [True, False])
def test_that_nobody_answers_for_a_moment_passes_for_who_is_patient(patient: bool) -> None:
    connections = BrokerConnections(cast(Any, None), [("127.0.0.1", 1)], "c", 5.0, patient=patient)
    tried = 0

    async def attempt() -> int:
        nonlocal tried
        tried += 1
        if tried < 3:
            raise Unreachable("no broker answers")
        return tried

    if patient:
        assert asyncio.run(connections.retrying(attempt)) == 3
    else:
        with pytest.raises(Unreachable):
            asyncio.run(connections.retrying(attempt))


@pytest.mark.parametrize("answers", [True, False])
def test_the_last_chance_to_commit_is_not_given_up_at_the_first_silence(
    answers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "LAST_CHANCE_S", 0.3)
    tried = 0

    class Silent(SinkDriver):
        async def commit(self, written: TaskTransaction) -> TransactionOutcome:
            nonlocal tried
            tried += 1
            if answers and tried == 3:
                return TransactionOutcome.COMMITTED
            raise TimeoutError

    written = TaskTransaction(0, ProducerIdentity("id", 1, 0, 2), 1, 1, "t", 0, FIRST)
    driver = Silent(cast(Client, Log()), "q", lambda: 0)
    (found,) = asyncio.run(driver.do(CommitTransactions((written,), is_last_chance=True)))
    assert found is (TransactionOutcome.COMMITTED if answers else TransactionOutcome.UNKNOWN)
    with pytest.raises(TimeoutError):
        asyncio.run(driver.do(CommitTransactions((written,))))


def test_what_cannot_be_swept_does_not_fail_a_batch_that_is_committed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    driver = SinkDriver(cast(Client, Log()), "q", lambda: 0)

    async def abort(transactional_id: str) -> None:
        raise Unreachable("no broker answers")

    driver._transactions.abort = abort  # type: ignore[method-assign]
    asyncio.run(driver.do(Abort(("id",))))
    assert "transaction not aborted id=id error=no broker answers" in caplog.text


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (TimeoutError(), "no answer in time"),
        (ConnectionResetError("gone"), "ConnectionResetError: gone"),
        (ssl.SSLError("bad decrypt"), "bad decrypt"),
    ],
)
def test_errors_of_the_system_are_told_in_one_line_too(
    error: OSError, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_HIDE_TRACEBACK", raising=False)
    with pytest.raises(SparkSourceError, match=said), told_in_one_line():
        raise error
    monkeypatch.delenv("SPARK_HIDE_TRACEBACK")


def test_what_is_refused_is_not_said_to_have_been_waited_for() -> None:
    class Refusing:
        def topics(self, names: list[str]) -> list[Any]:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "t")

    options = ReadOptions.of(Options({"subscribe": "t"}), streaming=False)
    fetcher = Fetcher(cast(Any, Refusing()), Range("t", None, 0, 5, 9), options)
    with pytest.raises(SparkSourceError, match="t-0 cannot be read from offset 5 on: TOPIC_AUTH"):
        next(iter(fetcher))
