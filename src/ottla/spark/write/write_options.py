"""The options of Spark's Kafka connector for writing, and those of the exactly-once sink; and what may be written."""

from __future__ import annotations

from typing import Final, NamedTuple

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
)

from ottla.records.compression import Codec
from ottla.spark.connect.connection import ConnectionOptions
from ottla.spark.errors import OptionError, SparkSourceError
from ottla.spark.options import KAFKA, Options
from ottla.spark.write.decisions import FIRST_BATCH
from ottla.wire.types import is_valid_topic_name

BATCH_BYTES: Final = 512 << 10
"""Before compression. Kafka's own producer takes 16 KiB, which costs every side more."""
TRANSACTION_TIMEOUT_MS: Final = 15 * 60 * 1000
"""The most that brokers allow, unless they are told otherwise."""

_REFUSED: Final = {
    "key.serializer": "keys are bytes or strings; cast them in the DataFrame",
    "value.serializer": "values are bytes or strings; cast them in the DataFrame",
    "interceptor.classes": "a Java class cannot be called from here",
    "partitioner.class": "a Java class cannot be called from here; fill the column 'partition' instead",
    "transactional.id": "the sink gives each task an id of its own",
    "enable.idempotence": "retries never write a row twice, and that cannot be switched off",
}
_SINK_OPTIONS: Final = ("topic", FIRST_BATCH)


class WriteOptions(NamedTuple):
    """What a writer was asked for, checked."""

    connection: ConnectionOptions
    topic: str | None
    transactions: bool
    transaction_timeout_ms: int
    delivery_timeout_s: float
    codec: Codec
    batch_bytes: int
    first_batch: int

    @classmethod
    def of(cls, options: Options) -> WriteOptions:
        options.refuse_near_misses(_SINK_OPTIONS)
        for name, why in _REFUSED.items():
            if KAFKA + name in options:
                raise OptionError(KAFKA + name, f"is not supported: {why}")
        acks = options.text(KAFKA + "acks", "all")
        if acks not in ("all", "-1"):
            raise OptionError(
                KAFKA + "acks",
                f"is '{acks}', but rows are always written with acks=all: with less they could be lost",
            )
        connection = ConnectionOptions.of(options)
        topic = options.text("topic")
        if topic is not None and not is_valid_topic_name(topic):
            raise OptionError(
                "topic",
                f"'{topic}' is no name of a topic: 1 to 249 letters, digits, dots, dashes and underscores",
            )
        return cls(
            connection,
            topic,
            options.flag(KAFKA + "enable.transactions", True),
            options.number(KAFKA + "transaction.timeout.ms", TRANSACTION_TIMEOUT_MS),
            options.number(KAFKA + "delivery.timeout.ms", 120_000) / 1000,
            _codec(options),
            options.number(KAFKA + "batch.size", BATCH_BYTES),
            options.number(FIRST_BATCH, 0, least=0),
        )


def _codec(options: Options) -> Codec:
    name = KAFKA + "compression.type"
    value = options.text(name) or "none"
    try:
        return Codec[value.strip().upper()]
    except KeyError:
        known = ", ".join(codec.name.lower() for codec in Codec)
        raise OptionError(name, f"'{value}' is none of {known}") from None


def check_columns(schema: StructType, topic: str | None) -> None:
    """As Spark's connector does; columns that it does not know it leaves out."""
    types = {field.name: field.dataType for field in schema}
    if "value" not in types:
        there = ", ".join(types) or "none"
        raise SparkSourceError(
            f"there is no column 'value' to write; the columns are: {there}. Kafka's records are made of the columns value, "
            "key, headers, topic and partition"
        )
    if topic is None and "topic" not in types:
        raise SparkSourceError(
            "nothing says where to write: set the option 'topic', or add a column 'topic'"
        )
    for name, allowed in _TYPES.items():
        if name in types and not any(_is_a(types[name], each) for each in allowed):
            wanted = " or ".join(each.simpleString() for each in allowed)
            raise SparkSourceError(
                f"column '{name}' is {types[name].simpleString()}; it has to be {wanted}"
            )


_ENTRY: Final = StructType().add("key", StringType()).add("value", BinaryType())
_TYPES: Final[dict[str, tuple[DataType, ...]]] = {
    "value": (StringType(), BinaryType()),
    "key": (StringType(), BinaryType()),
    "headers": (ArrayType(_ENTRY),),
    "topic": (StringType(),),
    "partition": (IntegerType(),),
}


def _is_a(found: DataType, wanted: DataType) -> bool:
    """Whether something may be null does not count."""
    return bool(found.simpleString() == wanted.simpleString())
