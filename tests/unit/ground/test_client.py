"""The client's parts that need no cluster."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from ottla.cli import errors
from ottla.cli.main import explain
from ottla.cli.records import BATCH_RECORDS_MAX, _batches, _text, _with_keys
from ottla.client import Unreachable
from ottla.client.model import PartitionInfo, Topic
from ottla.client.partitioner import murmur2, partition_for
from ottla.wire.errors import ErrorCode, KafkaError


def topic(partitions: int) -> Topic:
    return Topic(
        "t",
        None,
        False,
        tuple(PartitionInfo("t", number, 1, 0, (1,), (1,), ()) for number in range(partitions)),
    )


@given(st.binary(max_size=100))
def test_a_keys_hash_is_the_one_of_every_java_client(key: bytes) -> None:
    assert murmur2(key) == kafka_python_murmur2(key)


@given(st.binary(), st.integers(1, 1000))
def test_a_key_falls_into_one_of_the_partitions(key: bytes, count: int) -> None:
    assert 0 <= partition_for(key, count) < count


def test_records_without_a_key_take_the_partitions_in_turn() -> None:
    batches = list(_batches([(None, b"%d" % n) for n in range(5)], topic(2), None))
    assert [(number, [r.value for r in batch]) for number, batch in batches] == [
        (0, [b"0", b"2", b"4"]),
        (1, [b"1", b"3"]),
    ]


def test_batches_are_bounded_and_lose_nothing() -> None:
    lines = [(None, b"%d" % n) for n in range(2 * BATCH_RECORDS_MAX + 1)]
    batches = [batch for _, batch in _batches(lines, topic(1), None)]
    assert [len(batch) for batch in batches] == [BATCH_RECORDS_MAX, BATCH_RECORDS_MAX, 1]
    assert [record.value for batch in batches for record in batch] == [v for _, v in lines]


def test_a_line_is_split_into_key_and_value() -> None:
    assert list(_with_keys([b"a:1", b"b:2:3"], None, ":")) == [(b"a", b"1"), (b"b", b"2:3")]


def test_bytes_that_are_no_text_are_shown_without_loss() -> None:
    assert _text("é".encode()) == "é"
    assert _text(b"\xff") == {"base64": "/w=="}
    assert _text(None) is None


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Unreachable("nobody"), errors.UNREACHABLE),
        (TimeoutError(), errors.UNREACHABLE),
        (ConnectionResetError("reset"), errors.UNREACHABLE),
        (KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), errors.NOT_FOUND),
        (KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS), errors.CONFLICT),
        (KafkaError(ErrorCode.INVALID_CONFIG), errors.USAGE),
        (KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS), errors.FAILED),
    ],
)
def test_exit_codes_are_stable(error: Exception, code: int) -> None:
    explained = explain(error)
    assert explained is not None
    assert explained[0] == code


def test_a_mistake_of_ours_is_not_dressed_up() -> None:
    assert explain(AssertionError("invariant")) is None
