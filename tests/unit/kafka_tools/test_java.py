"""What Kafka's tools owe to Java: the order of a HashMap, numbers, identifiers, exceptions."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.kafka_tools.java import (
    EXCEPTIONS,
    double_text,
    exception_text,
    names_in_order,
    place_hash,
    string_hash,
    uuid_of,
    uuid_text,
)
from ottla.wire.errors import ErrorCode, KafkaError


def test_hashes_are_javas() -> None:
    """Values of java.lang.String.hashCode and of Kafka's TopicPartition, as unsigned numbers."""
    assert string_hash("hello") == 99162322
    assert string_hash("cleanup.policy") == 3756979132
    assert string_hash("ä𝄞") == 1991502
    assert place_hash(("orders", 1)) == (31 * 32 + string_hash("orders")) & 0xFFFFFFFF


def test_names_come_in_the_order_of_a_hash_map() -> None:
    """As `kafka-topics --describe` lists them; larger tables have another order."""
    assert names_in_order(["version", "brokers"]) == ["brokers", "version"]
    assert names_in_order(["partition", "size", "offsetLag", "isFuture"]) == [
        "partition",
        "size",
        "offsetLag",
        "isFuture",
    ]
    many = names_in_order(f"topic-{number}" for number in range(14))
    assert [int(name.removeprefix("topic-")) for name in many] == [
        *(6, 7, 8, 9, 0, 1, 2, 3, 10, 4, 11, 5, 12, 13)
    ]
    assert names_in_order(["consumer_byte_rate", "producer_byte_rate"], 2) == [
        "consumer_byte_rate",
        "producer_byte_rate",
    ]


@given(st.lists(st.text(max_size=8)))
def test_no_name_is_lost(names: list[str]) -> None:
    assert sorted(names_in_order(names)) == sorted(set(names))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1024.0, "1024.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (123456789.25, "1.2345678925E8"),
        (-2e20, "-2.0E20"),
        (float("inf"), "Infinity"),
    ],
)
def test_a_double_is_written_as_java_writes_it(value: float, text: str) -> None:
    assert double_text(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_can_be_read_again(value: float) -> None:
    assert float(double_text(value)) == value


@given(st.uuids())
def test_an_identifier_survives(id: UUID) -> None:
    assert uuid_of(uuid_text(id)) == id
    assert len(uuid_text(id)) == 22


def test_an_identifier_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="decoded as 2 bytes"):
        uuid_of("abc")


def test_every_error_has_an_exception() -> None:
    assert EXCEPTIONS.keys() == set(ErrorCode) - {ErrorCode.NONE}
    default = KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
    assert exception_text(default) == (
        "org.apache.kafka.common.errors.GroupIdNotFoundException: The group id does not exist."
    )
