"""The options of Spark's Kafka connector: names of any case, defaults, precedence, refusals."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.client.security import Security
from ottla.spark.connect.connection import ConnectionOptions
from ottla.spark.errors import OptionError
from ottla.spark.kafka_names import FOLLOWED, OF_KAFKAS_CLIENTS
from ottla.spark.options import (
    EARLIEST,
    LATEST,
    REFUSED,
    Assign,
    AtOffsets,
    AtTime,
    AtTimes,
    Edge,
    Options,
    ReadOptions,
    Subscribe,
    SubscribePattern,
)


def named(given: dict[str, str]) -> dict[str, str]:
    """Dots in names are written as two underscores."""
    return {name.replace("__", "."): value for name, value in given.items()}


def read_options(**given: str) -> ReadOptions:
    return ReadOptions.of(Options({"subscribe": "t", **named(given)}), streaming=False)


def stream_options(**given: str) -> ReadOptions:
    return ReadOptions.of(Options({"subscribe": "t", **named(given)}), streaming=True)


def connection(**given: str) -> ConnectionOptions:
    return ConnectionOptions.of(Options({"kafka.bootstrap.servers": "a:9092", **named(given)}))


def test_defaults_are_those_of_sparks_connector() -> None:
    batch, stream = read_options(), stream_options()
    assert (batch.starting, batch.ending) == (Edge(EARLIEST), Edge(LATEST))
    assert stream.starting == Edge(LATEST)
    assert batch.fail_on_data_loss
    assert batch.poll_timeout_s == 120
    assert (batch.offset_retries, batch.offset_retry_interval_s) == (3, 1)
    assert batch.max_offsets_per_trigger is batch.min_offsets_per_trigger is None
    assert batch.max_trigger_delay_s == 15 * 60
    assert batch.min_partitions is batch.max_records_per_partition is None
    assert batch.group_prefix == "spark-kafka-source"
    assert batch.group_id is None
    assert not batch.include_headers
    assert not batch.read_committed
    assert not batch.latest_if_no_time_matches
    assert batch.commit_progress


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        ("failOnDataLoss", "False", "fail_on_data_loss", False),
        ("kafkaConsumer__pollTimeoutMs", "500", "poll_timeout_s", 0.5),
        ("fetchOffset__numRetries", "0", "offset_retries", 0),
        ("fetchOffset__retryIntervalMs", "10", "offset_retry_interval_s", 0.01),
        ("maxOffsetsPerTrigger", "7", "max_offsets_per_trigger", 7),
        ("minOffsetsPerTrigger", "7", "min_offsets_per_trigger", 7),
        ("maxTriggerDelay", "2m", "max_trigger_delay_s", 120),
        ("maxTriggerDelay", "1500", "max_trigger_delay_s", 1.5),
        ("minPartitions", "12", "min_partitions", 12),
        ("maxRecordsPerPartition", "1000", "max_records_per_partition", 1000),
        ("groupIdPrefix", "mine", "group_prefix", "mine"),
        ("kafka__group__id", "forced", "group_id", "forced"),
        ("includeHeaders", "true", "include_headers", True),
        ("commitProgress", "false", "commit_progress", False),
        ("kafka__group__id", "somebody's", "commit_progress", False),
        ("startingOffsetsByTimestampStrategy", "latest", "latest_if_no_time_matches", True),
        ("kafka__isolation__level", "read_committed", "read_committed", True),
        ("kafka__check__crcs", "false", "check_crcs", False),
        ("kafka__fetch__min__bytes", "5", "fetch_min_bytes", 5),
        ("kafka__fetch__max__wait__ms", "5", "fetch_max_wait_ms", 5),
        ("kafka__fetch__max__bytes", "1000", "fetch_max_bytes", 1000),
        ("kafka__max__partition__fetch__bytes", "2000", "fetch_max_bytes", 2000),
        ("kafka__client__rack", "r1", "rack", "r1"),
        ("events", "true", "events", True),
    ],
)
def test_each_option_is_followed(name: str, value: str, field: str, expected: object) -> None:
    assert getattr(stream_options(**{name: value}), field) == expected
    upper = {name.upper(): value}
    assert getattr(stream_options(**upper), field) == expected


def test_what_to_read_is_assigned_subscribed_or_matched() -> None:
    assert read_options(subscribe=" a, b ,a").subscription == Subscribe(("a", "b"))
    pattern = ReadOptions.of(Options({"subscribePattern": "ord.*"}), streaming=False).subscription
    assert pattern == SubscribePattern("ord.*")
    assert pattern.matches("orders")
    assert pattern.matches("reorders"), "any part of the name may match"
    assert not pattern.matches("invoices")
    assigned = ReadOptions.of(Options({"assign": '{"t": [1, 0], "s": [0]}'}), streaming=False)
    assert assigned.subscription == Assign((("s", 0), ("t", 0), ("t", 1)))
    events = ReadOptions.of(Options({"events": "true"}), streaming=False)
    assert events.subscription == Subscribe(("__ottla_events",)), "unless another is named"


def test_one_time_wins_over_times_which_win_over_offsets() -> None:
    times, offsets = '{"t": {"0": 5}}', '{"t": {"0": 23, "1": -2}}'
    assert read_options(startingOffsets=offsets).starting == AtOffsets({("t", 0): 23, ("t", 1): -2})
    given = {"startingOffsets": offsets, "startingOffsetsByTimestamp": times}
    assert read_options(**given).starting == AtTimes({("t", 0): 5})
    assert read_options(**given, startingTimestamp="9").starting == AtTime(9)
    assert read_options(endingOffsets=" Latest ").ending == Edge(LATEST)
    ends = {"endingOffsets": "latest", "endingOffsetsByTimestamp": times}
    assert read_options(**ends).ending == AtTimes({("t", 0): 5})
    assert read_options(**ends, endingTimestamp="9").ending == AtTime(9)


@pytest.mark.parametrize(
    ("given", "option", "why"),
    [
        ({"assign": "{}"}, "assign", "exclude each other"),
        ({"subscribe": " , "}, "subscribe", "names no topic"),
        ({"includeHeaders": "maybe"}, "includeHeaders", "neither true nor false"),
        ({"includeHeaders": "true", "events": "true"}, "includeHeaders", "no headers"),
        ({"minPartitions": "0"}, "minPartitions", "less than 1"),
        ({"minPartitions": "some"}, "minPartitions", "not a whole number"),
        ({"maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition", "less than 1"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay", "no duration"),
        ({"startingOffsets": "latest"}, "startingOffsets", "cannot begin at latest"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "startingOffsets", "t-0"),
        ({"endingOffsets": "earliest"}, "endingOffsets", "cannot end at earliest"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "endingOffsets", "t-0"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "startingOffsets", "less than -2"),
        ({"startingOffsets": "{"}, "startingOffsets", "no JSON"),
        ({"startingOffsets": "[1]"}, "startingOffsets", "no JSON object"),
        ({"startingOffsets": "{}"}, "startingOffsets", "names no partition"),
        ({"startingOffsets": '{"t": 5}'}, "startingOffsets", "no object"),
        ({"startingOffsets": '{"t": {"a": 5}}'}, "startingOffsets", "no numbers"),
        ({"startingTimestamp": "9", "endingTimestamp": "8"}, "startingTimestamp", "after endingTimestamp"),
        ({"startingOffsets": '{"t":{"0":9}}', "endingOffsets": '{"t":{"0":8}}'}, "startingOffsets", "9 of t-0"),
        ({"startingOffsetsByTimestamp": '{"t":{"0":9}}', "endingOffsetsByTimestamp": '{"t":{"0":8}}'}, "startingOffsetsByTimestamp", "9 of t-0"),
        ({"startingTimestamp": "-5"}, "startingTimestamp", "less than 0"),
        ({"startingOffsetsByTimestampStrategy": "x"}, "startingOffsetsByTimestampStrategy", "none of error, latest"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "minOffsetsPerTrigger", "more than"),
        ({"startingOffset": "earliest"}, "startingoffset", "did you mean 'startingOffsets'"),
        ({"kafka.auto.offset.reset": "earliest"}, "kafka.auto.offset.reset", "'startingOffsets'"),
        ({"kafka.key.deserializer": "x"}, "kafka.key.deserializer", "as bytes"),
        ({"kafka.value.deserializer": "x"}, "kafka.value.deserializer", "as bytes"),
        ({"kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit", "commitProgress"),
        ({"kafka.interceptor.classes": "x"}, "kafka.interceptor.classes", "Java"),
        ({"kafka.isolation.level": "serializable"}, "kafka.isolation.level", "none of"),
    ],
)  # fmt: skip
def test_what_cannot_be_followed_is_refused_with_the_reason(
    given: dict[str, str], option: str, why: str
) -> None:
    with pytest.raises(OptionError) as refused:
        ReadOptions.of(Options({"subscribe": "t", **given}), streaming=False)
    assert f"option '{option}': " in str(refused.value)
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("kafka.isolation.levle", "kafka.isolation.level"),
        ("kafka.isolation_level", "kafka.isolation.level"),
        ("isolation.level", "kafka.isolation.level"),
        ("kafka.bootstrap.server", "kafka.bootstrap.servers"),
        ("bootstrap.servers", "kafka.bootstrap.servers"),
        ("Bootstrap.Server", "kafka.bootstrap.servers"),
        ("kafka.sasl.mechanisms", "kafka.sasl.mechanism"),
        ("kafka.groupid", "kafka.group.id"),
        ("groupIdPrefx", "groupIdPrefix"),
    ],
)
def test_a_name_that_is_nearly_one_that_is_followed_is_refused(name: str, meant: str) -> None:
    with pytest.raises(OptionError) as refused:
        read_options(**{name: "x"})
    assert str(refused.value) == f"option '{name.lower()}': is not known; did you mean '{meant}'?"


def test_a_name_that_kafkas_clients_know_is_no_slip_of_the_pen() -> None:
    other = OF_KAFKAS_CLIENTS - REFUSED.keys()
    read_options(**{f"kafka.{name}": "x" for name in sorted(other)})
    read_options(**{"kafka.of.my.own": "x", "path": "x", "mergeSchema": "x"})


def test_every_kafka_option_that_is_asked_for_is_on_the_list() -> None:
    class Noted(Options):
        def __init__(self, given: dict[str, str]) -> None:
            super().__init__({"kafka.bootstrap.servers": "a:1", "subscribe": "t"} | given)
            self.asked: set[str] = set()

        def text(self, name: str, default: str | None = None) -> str | None:
            self.asked.add(name)
            return super().text(name, default)

    class NotedSettings(dict[str, str]):
        def get(self, name: str, default: Any = None) -> Any:
            reading.asked.add(f"kafka.{name}")
            return super().get(name, default)

    secured = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required"
        ' username="a" password="b";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "…",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "…",
    }
    reading, writing = Noted({}), Noted({"topic": "t"})
    ReadOptions.of(reading, streaming=True)
    ConnectionOptions.of(reading)
    Security.of(NotedSettings(secured))
    asked = {name for name in reading.asked if name.startswith("kafka.")}
    assert asked <= {f"kafka.{name}" for name in FOLLOWED}
    pytest.importorskip("pyspark", reason="needs PySpark: scripts/setup --spark")
    from ottla.spark.write.write_options import WriteOptions

    WriteOptions.of(writing)
    asked |= {name for name in writing.asked if name.startswith("kafka.")}
    assert asked == {f"kafka.{name}" for name in FOLLOWED}


@pytest.mark.parametrize(
    "given",
    [{}, {"assign": "[0]"}, {"assign": '{"t": 0}'}, {"assign": "{}"}, {"subscribePattern": "("}],
)
def test_something_must_be_subscribed_to_rightly(given: dict[str, str]) -> None:
    with pytest.raises(OptionError):
        ReadOptions.of(Options(given), streaming=False)


@pytest.mark.parametrize("name", ["endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    value = "5" if name == "endingTimestamp" else '{"t": {"0": 5}}'
    with pytest.raises(OptionError, match="a stream has no end"):
        stream_options(**{name: value})


def test_options_of_the_cluster() -> None:
    made = connection(
        kafka__bootstrap__servers=" a:1, PLAINTEXT://b.c:2 ,[::1]:3",
        kafka__client__id="me",
        kafka__request__timeout__ms="5000",
        kafka__default__api__timeout__ms="6000",
        kafka__retry__backoff__ms="7",
        kafka__receive__buffer__bytes="65536",
    )
    assert made.bootstrap == (("a", 1), ("b.c", 2), ("::1", 3))
    assert made.client_id == "me"
    assert (made.request_timeout_s, made.api_timeout_s, made.retry_backoff_s) == (5, 6, 0.007)
    assert made.receive_buffer_bytes == 65536


@pytest.mark.parametrize("servers", ["", "a", "a:b", "a:99999", "a:9092,b"])
def test_addresses_of_brokers_are_checked(servers: str) -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers"):
        connection(kafka__bootstrap__servers=servers)
