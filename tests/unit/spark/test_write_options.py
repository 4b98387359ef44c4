"""The options of the writer, and which columns can be written; without a session."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="needs PySpark: scripts/setup --spark")

from pyspark.sql.types import ArrayType, BinaryType, DataType, StringType, StructType

from ottla.records.compression import Codec
from ottla.spark.errors import OptionError, SparkSourceError
from ottla.spark.options import Options
from ottla.spark.write.write_options import (
    BATCH_BYTES,
    TRANSACTION_TIMEOUT_MS,
    WriteOptions,
    check_columns,
)

BOOTSTRAP = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


ENTRY = StructType().add("key", StringType()).add("value", BinaryType())


def schema(**columns: str | DataType) -> StructType:
    found = StructType()
    for name, kind in columns.items():
        found = found.add(name, kind)
    return found


def options(**given: str) -> WriteOptions:
    named = {name.replace("_", "."): value for name, value in given.items()}
    return WriteOptions.of(Options(BOOTSTRAP | named))


def test_the_defaults_are_transactions_and_no_compression() -> None:
    found = options()
    assert found.topic is None
    assert found.transactions
    assert found.transaction_timeout_ms == TRANSACTION_TIMEOUT_MS
    assert found.delivery_timeout_s == 120
    assert found.codec is Codec.NONE
    assert found.batch_bytes == BATCH_BYTES
    assert found.first_batch == 0
    assert found.connection.request_timeout_s == 30


def test_each_option_is_followed() -> None:
    found = options(
        TOPIC="t",
        kafka_client_id="me",
        kafka_Enable_Transactions="false",
        kafka_transaction_timeout_ms="1000",
        kafka_delivery_timeout_ms="5000",
        kafka_request_timeout_ms="2000",
        kafka_compression_type="ZSTD",
        kafka_batch_size="16384",
        kafka_acks="-1",
        firstBatch="7",
    )
    assert found.topic == "t"
    assert found.connection.client_id == "me"
    assert not found.transactions
    assert found.transaction_timeout_ms == 1000
    assert found.delivery_timeout_s == 5
    assert found.connection.request_timeout_s == 2
    assert found.codec is Codec.ZSTD
    assert found.batch_bytes == 16384
    assert found.first_batch == 7


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("kafka_acks", "1", "acks=all"),
        ("kafka_acks", "0", "acks=all"),
        ("kafka_compression_type", "rar", "none of none, gzip, snappy, lz4, zstd"),
        ("kafka_batch_size", "0", "less than 1"),
        ("kafka_enable_transactions", "no", "neither true nor false"),
        ("kafka_enable_idempotence", "false", "cannot be switched off"),
        ("kafka_transactional_id", "mine", "an id of its own"),
        ("kafka_key_serializer", "X", "cast them"),
        ("kafka_value_serializer", "X", "cast them"),
        ("kafka_interceptor_classes", "X", "Java class"),
        ("kafka_partitioner_class", "X", "column 'partition'"),
        ("kafka_security_protocol", "TLS", "none of PLAINTEXT, SSL"),
        ("firstBach", "1", "did you mean 'firstBatch'"),
        ("topic", " ", "' ' is no name of a topic"),
        ("topic", "a b", "'a b' is no name of a topic"),
        ("firstBatch", "-1", "less than 0"),
    ],
)
def test_what_cannot_be_followed_is_refused_with_its_name(name: str, value: str, said: str) -> None:
    with pytest.raises(OptionError, match=said) as error:
        options(**{name: value})
    assert error.value.option.lower() == name.replace("_", ".").lower()


def test_brokers_have_to_be_named() -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers"):
        WriteOptions.of(Options({"topic": "t"}))


@pytest.mark.parametrize(
    "columns",
    [
        schema(value="binary"),
        schema(value="string", key="string"),
        schema(value="binary", key="binary", partition="integer", headers=ArrayType(ENTRY, False)),
        schema(value="binary", topic="string", another="double"),
    ],
    ids=lambda columns: columns.simpleString(),
)
def test_columns_that_can_be_written(columns: StructType) -> None:
    check_columns(columns, "t")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (schema(val="binary"), "no column 'value'"),
        (schema(value="integer"), "'value' is int; it has to be string or binary"),
        (schema(value="binary", key="double"), "'key' is double"),
        (schema(value="binary", topic="binary"), "'topic' is binary; it has to be string"),
        (schema(value="binary", partition="long"), "'partition' is bigint; it has to be int"),
        (schema(value="binary", headers=ArrayType(StringType())), "'headers' is array<string>"),
    ],
)
def test_columns_that_cannot(columns: StructType, said: str) -> None:
    with pytest.raises(SparkSourceError, match=said):
        check_columns(columns, "t")


def test_something_has_to_say_where_to_write() -> None:
    check_columns(schema(value="string", topic="string"), None)
    with pytest.raises(SparkSourceError, match="set the option 'topic'"):
        check_columns(schema(value="string"), None)
