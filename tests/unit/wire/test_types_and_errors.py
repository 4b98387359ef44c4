from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode

from ottla.wire.errors import RETRIABLE, ErrorCode, KafkaError
from ottla.wire.types import ZERO_UUID, TopicPartition, uuid_from_text, uuid_to_text


@given(st.uuids())
def test_the_text_of_an_id_is_22_characters_and_leads_back_to_it(value: UUID) -> None:
    text = uuid_to_text(value)
    assert len(text) == 22
    assert uuid_from_text(text) == value


def test_ids_are_printed_as_kafka_prints_them() -> None:
    assert uuid_to_text(UUID(int=1)) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert uuid_to_text(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"


@pytest.mark.parametrize("text", ["", "A" * 21, "A" * 23, "A" * 21 + "B", "+" + "A" * 21, "é" * 22])
def test_other_text_is_no_id(text: str) -> None:
    with pytest.raises(ValueError):
        uuid_from_text(text)


def test_error_codes_are_kafkas() -> None:
    assert {code.name.lower(): int(code) for code in ErrorCode} == {
        code.name: int(code) for code in KioErrorCode
    }
    assert {int(code) for code in RETRIABLE} == {
        int(code) for code in KioErrorCode if code.retriable
    }


def test_a_code_from_the_future_is_an_unknown_server_error() -> None:
    assert ErrorCode(9999) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_an_error_says_its_code_and_message() -> None:
    error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "2 leads orders-0")
    assert str(error) == "NOT_LEADER_OR_FOLLOWER: 2 leads orders-0"
    assert error.retriable
    assert str(TopicPartition("orders", 3)) == "orders-3"
