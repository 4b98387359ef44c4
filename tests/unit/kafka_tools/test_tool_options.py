"""How Kafka's tools read a command line, lines to produce, and records to print."""

from __future__ import annotations

import pytest

from ottla.kafka_tools.console_consumer import ConsumedRecord, Formatter
from ottla.kafka_tools.console_producer import LineReader
from ottla.kafka_tools.consumer_groups import _datetime_ms, _duration_ms
from ottla.kafka_tools.filters import include_filter
from ottla.kafka_tools.options import Option, OptionParser, ToolError
from ottla.records.record import Record

PARSER = OptionParser(
    "about",
    [
        Option("topic", "…", "topic"),
        Option("time", "…", "time", default="latest"),
        Option("state", "…", "states", optional=True),
        Option("list", "…"),
        Option("describe", "…"),
    ],
)


def test_values_follow_or_stand_behind_an_equals_sign_and_may_begin_with_a_dash() -> None:
    given = PARSER.parse(["--topic=a=b", "--time", "-1", "--list", "--topic", "c"])
    assert given.values("topic") == ["a=b", "c"]
    assert given.value("time") == "-1" and given.has("list") and not given.has("describe")
    assert given.order == [("topic", "a=b"), ("time", "-1"), ("list", None), ("topic", "c")]


def test_the_beginning_of_a_name_is_enough_and_a_default_counts_as_not_given() -> None:
    given = PARSER.parse(["--desc"])
    assert given.has("describe") and not given.has("time") and given.value("time") == "latest"


def test_an_optional_value_is_not_the_next_option() -> None:
    assert PARSER.parse(["--state", "--list"]).value("state") is None
    assert PARSER.parse(["--state", "Stable"]).value("state") == "Stable"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--foo"], "foo is not a recognized option"),
        (["--t", "x"], "t is not a recognized option"),
        (["--topic"], "Option topic requires an argument"),
    ],
)
def test_wrong_words_are_refused_in_kafkas_words(words: list[str], message: str) -> None:
    with pytest.raises(ToolError, match=message):
        PARSER.parse(words)


def test_one_value_was_meant() -> None:
    with pytest.raises(ToolError, match="Found multiple arguments for option topic"):
        PARSER.parse(["--topic", "a", "--topic", "b"]).value("topic")


@pytest.mark.parametrize("words", [[], ["--help"]])
def test_help_is_on_standard_error_with_exit_code_1(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        PARSER.parse(words)
    said = capsys.readouterr()
    assert ended.value.code == 1 and said.out == ""
    assert said.err.startswith("about\nOption ") and "--topic <topic>" in said.err


def test_a_topic_is_a_regular_expression_in_which_a_comma_is_or() -> None:
    allows = include_filter("'orders, pay.*'")
    assert [allows(name) for name in ("orders", "payments", "xorders", "orders2")] == [
        True,
        True,
        False,
        False,
    ]
    with pytest.raises(ToolError, match="is an invalid regex"):
        include_filter("a(")


def test_a_line_has_headers_a_key_and_a_value() -> None:
    reader = LineReader(
        {"parse.key": "true", "parse.headers": "TRUE", "key.separator": "|", "null.marker": "-"}
    )
    record = reader.record(b"h:1,i:-\tk|v|w")
    assert (record.key, record.value) == (b"k", b"v|w")
    assert record.headers == (("h", b"1"), ("i", None))
    nothing = reader.record(b"-\t-|-")
    assert (nothing.key, nothing.value, nothing.headers) == (None, None, ())
    with pytest.raises(ToolError, match="No key separator found on line number 3: 'h:1\tk'"):
        reader.record(b"h:1\tk")
    lenient = LineReader({"parse.key": "true", "ignore.error": "true"})
    assert lenient.record(b"v").key is None
    with pytest.raises(ToolError, match=r"null\.marker and key\.separator may not be equal"):
        LineReader({"key.separator": "-", "null.marker": "-"})


def test_a_record_is_printed_as_kafkas_formatter_prints_it() -> None:
    record = Record(7, 12, b"\x00\x00\x00\x05", None, (("a", b"1"), ("b", None)))
    found = ConsumedRecord("t", 3, record, False)
    names = ("timestamp", "partition", "offset", "epoch", "headers", "key")
    everything = {f"print.{name}": "true" for name in names}
    assert Formatter({}).line(found) == b"null\n"
    assert Formatter(everything | {"key.deserializer": "Integer"}).line(found) == (
        b"CreateTime:12\tPartition:3\tOffset:7\tEpoch:NOT_PRESENT\ta:1,b:null\t5\tnull\n"
    )
    bare = ConsumedRecord("t", 3, Record(0, 5, b"k", b"v"), True)
    settings = {"print.headers": "true", "print.timestamp": "true", "key.separator": ";"}
    assert Formatter(settings).line(bare) == b"LogAppendTime:5;NO_HEADERS;v\n"


def test_a_value_of_another_size_is_an_error() -> None:
    found = ConsumedRecord("t", 0, Record(0, 5, b"k", b"v"), False)
    with pytest.raises(ToolError, match="Size of data received is not 8"):
        Formatter({"value.deserializer": "Long"}).line(found)


def test_times_of_a_reset() -> None:
    assert _datetime_ms("1970-01-01T00:00:01.500") == 1500
    assert _datetime_ms("1970-01-01T02:00:00.000+02:00") == 0
    assert _duration_ms("P1DT2H3M4.5S") == 93_784_500
    assert _duration_ms("PT30M") == 1_800_000
    for wrong in ("P", "1D", "PT"):
        with pytest.raises(ToolError, match="Duration"):
            _duration_ms(wrong)
    with pytest.raises(ToolError, match="Unparseable date"):
        _datetime_ms("yesterday")
