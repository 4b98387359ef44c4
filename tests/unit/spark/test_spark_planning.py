"""What is read, from options and a cluster; and what the driver says when it is not there. The cluster is a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

import pytest

from ottla.client.model import Metadata, PartitionInfo, Topic
from ottla.spark.connect.cluster import EpochEnd, Found
from ottla.spark.errors import OptionError, SparkSourceError
from ottla.spark.options import EARLIEST, LATEST, AtOffsets, Options, Place, ReadOptions
from ottla.spark.read.loss import DataLoss
from ottla.spark.read.offsets import Mark, StreamOffset, rate_limited
from ottla.spark.read.planner import Planner
from ottla.spark.read.stream_planner import StreamPlanner
from ottla.wire.errors import KafkaError

ID, OTHER_ID = UUID(int=1), UUID(int=2)


@dataclass
class Log:
    start: int
    end: int
    epoch: int = 0
    epoch_ends: dict[int, int] = field(default_factory=dict)
    stable: int | None = None
    """Where the first open transaction begins, if one is open."""
    by_time: dict[int, int] = field(default_factory=dict)


class TableCluster:
    def __init__(self, logs: dict[Place, Log]) -> None:
        self.logs = logs
        self.ids: dict[str, UUID] = {}

    def metadata(self, topics: Iterable[str] | None) -> tuple[Metadata, dict[str, KafkaError]]:
        names = sorted({topic for topic, _ in self.logs}) if topics is None else list(topics)
        return Metadata(None, (), tuple(self.topics(names))), {}

    def topics(self, names: list[str]) -> list[Topic]:
        return [
            Topic(name, self.ids.get(name, ID), False, partitions)
            for name in names
            if (
                partitions := tuple(
                    PartitionInfo(topic, number, 1, 0, (1,), (1,), ())
                    for topic, number in self.logs
                    if topic == name
                )
            )
        ]

    def offsets(
        self, times: Mapping[Place, int], *, read_committed: bool = False
    ) -> dict[Place, Found | None]:
        found: dict[Place, Found | None] = {}
        for place, time in times.items():
            log = self.logs[place]
            if time in (EARLIEST, LATEST):
                is_cut = read_committed and log.stable is not None
                end = log.stable if is_cut and log.stable is not None else log.end
                found[place] = Found(log.start if time == EARLIEST else end, log.epoch)
            else:
                offset = log.by_time.get(time)
                found[place] = None if offset is None else Found(offset, log.epoch)
        return found

    def epoch_ends(self, epochs: Mapping[Place, int]) -> dict[Place, EpochEnd]:
        return {
            place: EpochEnd(epoch, self.logs[place].epoch_ends.get(epoch, self.logs[place].end))
            for place, epoch in epochs.items()
        }


def options(streaming: bool = False, **given: str) -> ReadOptions:
    return ReadOptions.of(Options({"subscribe": "t", **given}), streaming=streaming)


def batch(logs: dict[Place, Log], **given: str) -> list[tuple[int, int, int]]:
    ranges = Planner(TableCluster(logs), options(False, **given)).batch_ranges()
    return [(each.partition, each.start, each.end) for each in ranges]


TWO = {("t", 0): Log(5, 20, by_time={100: 8}), ("t", 1): Log(0, 3, by_time={100: 1})}


def test_a_batch_reads_all_there_is() -> None:
    assert batch(TWO) == [(0, 5, 20), (1, 0, 3)]


def test_a_batch_between_given_offsets() -> None:
    given = {
        "startingOffsets": '{"t": {"0": 7, "1": -2}}',
        "endingOffsets": '{"t": {"0": 9, "1": -1}}',
    }
    assert batch(TWO, **given) == [(0, 7, 9), (1, 0, 3)]


def test_a_batch_between_given_times() -> None:
    assert batch(TWO, startingTimestamp="100") == [(0, 8, 20), (1, 1, 3)]
    assert batch(TWO, endingTimestamp="100") == [(0, 5, 8), (1, 0, 1)]
    assert batch(TWO, endingTimestamp="200") == [(0, 5, 20), (1, 0, 3)], "no match: to the end"
    by_partition = '{"t": {"0": 100, "1": 200}}'
    with pytest.raises(OptionError, match="t-1 has no record at or after 200"):
        batch(TWO, startingOffsetsByTimestamp=by_partition)
    assert batch(
        TWO,
        startingOffsetsByTimestamp=by_partition,
        startingOffsetsByTimestampStrategy="latest",
    ) == [(0, 8, 20), (1, 3, 3)]


def test_every_partition_must_be_named_and_no_other() -> None:
    with pytest.raises(OptionError, match="does not name t-1"):
        batch(TWO, startingOffsets='{"t": {"0": 7}}')
    with pytest.raises(OptionError, match="nobody subscribes to, t-2"):
        batch(TWO, startingOffsets='{"t": {"0": 7, "1": 0, "2": 0}}')


def test_a_topic_that_does_not_exist_is_named_with_its_neighbour() -> None:
    cluster = TableCluster({("orders", 0): Log(0, 1)})
    with pytest.raises(OptionError, match=r"topic order does not exist; did you mean 'orders'\?"):
        Planner(cluster, options(subscribe="order")).batch_ranges()
    with pytest.raises(
        OptionError, match=r"topic orders-7 does not exist; did you mean 'orders'\?"
    ):
        Planner(cluster, options(subscribe="orders-7")).batch_ranges()
    wanted = ReadOptions.of(Options({"assign": '{"orders": [0, 7]}'}), streaming=False)
    several = "partition orders-7 does not exist; topic orders has 1 of them, numbered from 0"
    with pytest.raises(OptionError, match=several):
        Planner(cluster, wanted).batch_ranges()
    wanted = ReadOptions.of(Options({"subscribePattern": "x.*"}), streaming=False)
    with pytest.raises(OptionError, match="no topic matches"):
        Planner(cluster, wanted).batch_ranges()


def test_offsets_that_are_not_there_are_told_with_their_number() -> None:
    aged = {"startingOffsets": '{"t": {"0": 2, "1": 0}}'}
    with pytest.raises(DataLoss, match=r"t-0: 3 records, offsets 2 to 4, aged out"):
        batch(TWO, **aged)
    assert batch(TWO, **aged, failOnDataLoss="false") == [(0, 5, 20), (1, 0, 3)]
    beyond = {"endingOffsets": '{"t": {"0": 25, "1": 3}}'}
    with pytest.raises(DataLoss, match=r"t-0: 5 records, offsets 20 to 24, are not there"):
        batch(TWO, **beyond)
    assert batch(TWO, **beyond, failOnDataLoss="false") == [(0, 5, 20), (1, 0, 3)]
    with pytest.raises(DataLoss, match="t-1: 7 records, offsets 3 to 9"):
        batch(TWO, startingOffsets='{"t": {"0": 5, "1": 10}}')


# -- streams


def planner(cluster: TableCluster, **given: str) -> StreamPlanner:
    return StreamPlanner(cluster, options(streaming=True, **given), pause=lambda _: None)


def at(offset: int, epoch: int = 0, lost: int = 0, partition: int = 0) -> StreamOffset:
    return StreamOffset("g", {("t", partition): Mark(ID.hex, offset, epoch, lost)})


def read(ranges: list) -> list[tuple[int, int, int]]:
    return [(each.partition, each.start, each.end) for each in ranges]


def test_offsets_survive_json() -> None:
    offset = StreamOffset("g", {("t", 0): Mark(ID.hex, 5, 1, 7), ("s", 3): Mark(None, 0, -1)})
    assert StreamOffset.of_json(offset.to_json()) == offset


def test_an_offset_of_sparks_own_connector_is_told_so_that_it_can_be_pasted() -> None:
    with pytest.raises(SparkSourceError, match="did not write") as refused:
        StreamOffset.of_json({"t": {"0": 5}})
    _, said = str(refused.value).split("startingOffsets=")
    assert options(startingOffsets=said).starting == AtOffsets({("t", 0): 5})


def test_a_stream_begins_where_it_is_told() -> None:
    cluster = TableCluster({("t", 0): Log(5, 20, epoch=3)})
    assert planner(cluster).initial("g") == at(20, 3)
    assert planner(cluster, startingOffsets="earliest").initial("g") == at(5, 3)
    assert planner(cluster, startingOffsets='{"t": {"0": 9}}').initial("g") == at(9, 3)
    with pytest.raises(DataLoss, match="offsets 20 to 29, are not there"):
        planner(cluster, startingOffsets='{"t": {"0": 30}}').initial("g")
    with pytest.raises(DataLoss, match="aged out"):
        planner(cluster, startingOffsets='{"t": {"0": 2}}').initial("g")


def test_a_micro_batch_reads_what_is_new() -> None:
    cluster = TableCluster({("t", 0): Log(0, 20)})
    stream = planner(cluster)
    end = stream.latest(at(5), 0, limited=False)
    assert end == at(20)
    assert read(stream.ranges(at(5), end)) == [(0, 5, 20)]
    assert stream.latest(end, 1, limited=False) == end


def test_an_election_without_new_records_makes_no_micro_batch() -> None:
    cluster = TableCluster({("t", 0): Log(0, 20, epoch=4)})
    assert planner(cluster).latest(at(20, 3), 0, limited=False) == at(20, 3)


def test_a_partition_that_was_added_is_read_from_its_beginning() -> None:
    cluster = TableCluster({("t", 0): Log(0, 20), ("t", 1): Log(0, 4)})
    stream = planner(cluster)
    end = stream.latest(at(20), 0, limited=False)
    assert read(stream.ranges(at(20), end)) == [(1, 0, 4)]


def test_a_limit_is_shared_out_by_volume_and_nobody_starves() -> None:
    ranges = {("t", 0): (0, 1000), ("t", 1): (0, 100), ("t", 2): (5, 6), ("t", 3): (9, 9)}
    ends = rate_limited(ranges, 110)
    assert ends == {("t", 0): 99, ("t", 1): 9, ("t", 2): 6, ("t", 3): 9}
    assert rate_limited(ranges, 5000)[("t", 0)] == 1000
    cluster = TableCluster({("t", 0): Log(0, 20)})
    assert planner(cluster, maxOffsetsPerTrigger="3").latest(at(5), 0, limited=True) == at(8)
    assert planner(cluster, maxOffsetsPerTrigger="3").latest(at(5), 0, limited=False) == at(20)


def test_few_records_wait_for_more_but_not_forever() -> None:
    cluster = TableCluster({("t", 0): Log(0, 7)})
    stream = planner(cluster, minOffsetsPerTrigger="10", maxTriggerDelay="60s")
    assert stream.latest(at(5), 0, limited=True) == at(7), "the first does not wait"
    cluster.logs["t", 0].end = 9
    assert stream.latest(at(7), 30, limited=True) == at(7)
    assert stream.latest(at(7), 61, limited=True) == at(9)
    cluster.logs["t", 0].end = 30
    assert stream.latest(at(9), 62, limited=True) == at(30)


def test_available_now_reads_nothing_that_came_later() -> None:
    cluster = TableCluster({("t", 0): Log(0, 20)})
    stream = planner(cluster, maxOffsetsPerTrigger="15", minOffsetsPerTrigger="15")
    stream.only_what_is_there_now()
    cluster.logs["t", 0].end = 50
    cluster.logs["t", 1] = Log(0, 5)
    assert stream.latest(at(0), 0, limited=True) == at(15)
    assert stream.latest(at(15), 0, limited=True) == at(20)
    assert stream.latest(at(20), 0, limited=True) == at(20)


@pytest.mark.parametrize("fail", ["true", "false"])
def test_available_now_goes_on_without_a_topic_that_was_deleted(fail: str) -> None:
    cluster = TableCluster({("s", 0): Log(0, 20)})
    given = options(streaming=True, subscribe="s,t", failOnDataLoss=fail)
    stream = StreamPlanner(cluster, given, pause=lambda _: None)
    stream.only_what_is_there_now()
    start = StreamOffset("g", {**at(5).marks, ("s", 0): Mark(ID.hex, 5, 0)})
    if fail == "true":
        with pytest.raises(DataLoss, match="t-0: records from offset 5 on are gone"):
            stream.latest(start, 0, limited=False)
    else:
        assert set(stream.latest(start, 0, limited=False).marks) == {("s", 0)}


def test_what_an_open_transaction_hides_is_waited_for_and_not_lost() -> None:
    """A stream that read all that was there goes on with read_committed."""
    cluster = TableCluster({("t", 0): Log(0, 16, stable=10)})
    stream = planner(cluster, **{"kafka.isolation.level": "read_committed"})
    assert stream.latest(at(16), 0, limited=False) == at(16)
    assert read(stream.ranges(at(10), at(16))) == [(0, 10, 16)], (
        "planned before, read when it is over"
    )
    cluster.logs["t", 0] = Log(0, 18)
    assert stream.latest(at(16), 0, limited=False) == at(18)
    hidden = {("t", 0): Log(0, 16, stable=10)}
    given = {"kafka.isolation.level": "read_committed", "endingOffsets": '{"t": {"0": 16}}'}
    assert batch(hidden, **given) == [(0, 0, 16)]
    assert batch(hidden, **{"kafka.isolation.level": "read_committed"}) == [(0, 0, 10)]


def test_records_that_come_while_a_time_is_looked_up_are_not_lost() -> None:
    """The end was asked for before; the first record of that time is behind it."""
    growing = {("t", 0): Log(0, 20, by_time={100: 25})}
    assert batch(growing, startingTimestamp="100") == [(0, 20, 20)]
    assert batch(growing, endingTimestamp="100") == [(0, 0, 20)]
    cluster = TableCluster(growing)
    assert planner(cluster, startingTimestamp="100").initial("g") == at(20)


def test_aged_out_records_are_told_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = TableCluster({("t", 0): Log(8, 20)})
    with pytest.raises(DataLoss, match="t-0: 3 records, offsets 5 to 7, aged out"):
        planner(cluster).latest(at(5), 0, limited=False)
    stream = planner(cluster, failOnDataLoss="false")
    end = stream.latest(at(5, lost=4), 0, limited=False)
    assert end == at(20, lost=7)
    assert read(stream.ranges(at(5), end)) == [(0, 8, 20)]
    assert capsys.readouterr().err.count("offsets 5 to 7, aged out") == 1


def test_a_log_that_was_cut_is_told_by_its_epochs(capsys: pytest.CaptureFixture[str]) -> None:
    """Read up to 15 in epoch 3; the leader of epoch 4 had only 12 of them, and has written on since."""
    cluster = TableCluster({("t", 0): Log(0, 40, epoch=4, epoch_ends={3: 12})})
    with pytest.raises(DataLoss, match="t-0: 3 records, offsets 12 to 14, were cut off"):
        planner(cluster).latest(at(15, 3), 0, limited=False)
    stream = planner(cluster, failOnDataLoss="false")
    end = stream.latest(at(15, 3), 0, limited=False)
    assert end == at(40, 4, lost=3)
    assert read(stream.ranges(at(15, 3), end)) == [(0, 12, 40)], "what took their place is new"
    assert "were cut off" in capsys.readouterr().err


def test_a_log_that_is_shorter_than_what_was_read_was_cut() -> None:
    cluster = TableCluster({("t", 0): Log(0, 12, epoch=4, epoch_ends={3: 12})})
    with pytest.raises(DataLoss, match="offsets 12 to 14, were cut off"):
        planner(cluster).latest(at(15, 3), 0, limited=False)


def test_a_topic_that_was_made_anew_is_told_by_its_id() -> None:
    cluster = TableCluster({("t", 0): Log(0, 20)})
    cluster.ids["t"] = OTHER_ID
    with pytest.raises(DataLoss, match="t-0: records from offset 5 on are gone with their topic"):
        planner(cluster).latest(at(5), 0, limited=False)
    stream = planner(cluster, failOnDataLoss="false")
    end = stream.latest(at(5), 0, limited=False)
    assert end.marks["t", 0] == Mark(OTHER_ID.hex, 20, 0)
    assert read(stream.ranges(at(5), end)) == [(0, 0, 20)]
    assert read(stream.ranges(at(5), at(15))) == [], "planned before it was made anew"


def test_a_topic_that_is_gone_is_told_after_a_second_look() -> None:
    cluster = TableCluster({("s", 0): Log(0, 20)})
    looks = []
    stream = StreamPlanner(
        cluster, options(streaming=True, subscribe="s,t"), pause=lambda seconds: looks.append(seconds)
    )  # fmt: skip
    start = StreamOffset("g", {**at(5).marks, ("s", 0): Mark(ID.hex, 20, 0)})
    with pytest.raises(DataLoss, match=r"t-0: records from offset 5 on are gone .* was deleted"):
        stream.latest(start, 0, limited=False)
    assert looks == [1, 1, 1]


def test_a_planned_micro_batch_whose_end_was_cut_is_told() -> None:
    cluster = TableCluster({("t", 0): Log(0, 12, epoch=4, epoch_ends={3: 12})})
    with pytest.raises(DataLoss, match="3 records, offsets 12 to 14, were cut off"):
        planner(cluster).ranges(at(5, 3), at(15, 3))
    stream = planner(cluster, failOnDataLoss="false")
    assert read(stream.ranges(at(5, 3), at(15, 3))) == [(0, 5, 12)]
