"""The families of groups: what each name says, and what is left out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from one_node import alone, create

from ottla.broker.coordination.group_lag import GroupLag, LagReport, TopicLag
from ottla.broker.coordination.offset_lag import OffsetLag
from ottla.broker.node import Node
from ottla.broker.observability.group_metrics import GroupMetrics, families
from ottla.log.unread import FirstRecord
from ottla.records.record import Record, build
from ottla.wire.apis import ApiKey
from ottla.wire.channel import Channel
from ottla.wire.types import TopicPartition
from support.metrics_page import written

NOW_MS = 1_000_000


def lag(partition: int, committed: int, end: int, *ages_s: float | None) -> OffsetLag:
    """`ages_s`: of the next record for both isolation levels; None: there is none."""
    first, second = (
        None if age_s is None else FirstRecord(NOW_MS - int(age_s * 1000), committed)
        for age_s in ages_s
    )
    return OffsetLag(TopicPartition("orders", partition), committed, end, first, second)


def shown(*lags: OffsetLag) -> str:
    total = TopicLag()
    for each in lags:
        total.add(each)
    group = GroupLag("billing", "Stable", "classic", "consumer", 2, lags, {"orders": total})
    report = LagReport((group,), 3, 4)
    return written(families(report, "cluster-1", NOW_MS))


def test_both_exporters_names_tell_the_same() -> None:
    text = shown(lag(0, 5, 9, 30.0, 20.0), lag(1, 7, 7, None, None))
    place = 'topic="orders",partition="0"'
    for line in (
        f'kafka_consumergroup_current_offset{{consumergroup="billing",{place}}} 5',
        f'kafka_consumergroup_lag{{consumergroup="billing",{place}}} 4',
        'kafka_consumergroup_current_offset_sum{consumergroup="billing",topic="orders"} 12',
        'kafka_consumergroup_lag_sum{consumergroup="billing",topic="orders"} 4',
        'kafka_consumergroup_members{consumergroup="billing"} 2',
        f'kafka_consumergroup_group_offset{{cluster_name="cluster-1",group="billing",{place}}} 5',
        f'kafka_consumergroup_group_lag{{cluster_name="cluster-1",group="billing",{place}}} 4',
        f'kafka_consumergroup_group_lag_seconds{{cluster_name="cluster-1",group="billing",{place}}} 30.0',
        'kafka_consumergroup_group_max_lag{cluster_name="cluster-1",group="billing"} 4',
        'kafka_consumergroup_group_max_lag_seconds{cluster_name="cluster-1",group="billing"} 30.0',
        'kafka_consumergroup_group_sum_lag{cluster_name="cluster-1",group="billing"} 4',
        'kafka_consumergroup_group_topic_sum_lag{cluster_name="cluster-1",group="billing",topic="orders"} 4',
        f'ottla_consumergroup_lag_seconds{{consumergroup="billing",{place},isolation_level="read_uncommitted"}} 30.0',
        f'ottla_consumergroup_lag_seconds{{consumergroup="billing",{place},isolation_level="read_committed"}} 20.0',
        'ottla_consumergroup_state{consumergroup="billing",type="classic",state="Stable"} 1',
        "ottla_consumergroup_lag_unknown 3",
        "ottla_consumergroup_lag_left_out 4",
    ):
        assert f"{line}\n" in text, line
    assert '"billing",topic="orders",partition="1"} 0.0\n' in text


def test_a_record_without_a_timestamp_has_no_age() -> None:
    unknown = FirstRecord(-1, 5)
    text = shown(OffsetLag(TopicPartition("orders", 0), 5, 9, unknown, unknown))
    assert 'lag_seconds{cluster_name="cluster-1",group="billing",topic' not in text
    assert "kafka_consumergroup_lag{" in text


def test_a_record_from_the_future_is_not_behind() -> None:
    assert 'group_max_lag_seconds{cluster_name="cluster-1",group="billing"} 0.0' in shown(
        lag(0, 5, 9, -7.0, -7.0)
    )


PARTITIONS, GROUPS, RECORDS = 40, 10, 20


async def accepted(ask: Callable[[], Awaitable[int]]) -> None:
    """Retry while the coordinators come up."""
    deadline = time.monotonic() + 30
    while await ask() != 0:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


async def commit(channel: Channel, group: str, offset: int) -> None:
    places = [
        {
            "partition_index": number,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        for number in range(PARTITIONS)
    ]
    fields = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [{"name": "t", "partitions": places}],
    }

    async def find() -> int:
        asked = {"key_type": 0, "coordinator_keys": [group]}
        answer = await channel.request(ApiKey.FIND_COORDINATOR, asked)
        return int(answer.coordinators[0].error_code)

    async def once() -> int:
        answer = await channel.request(ApiKey.OFFSET_COMMIT, fields, version=9)
        return int(answer.topics[0].partitions[0].error_code)

    await accepted(find)
    await accepted(once)


def fill(node: Node) -> None:
    """A batch in each partition, every second one compressed."""
    assert node.broker is not None
    for number in range(PARTITIONS):
        log = node.broker.replicas.get("t", number).log
        written = [Record(i, 5000 + i, None, b"x" * 50) for i in range(RECORDS)]
        log.append_as_leader(memoryview(build(written, codec=4 * (number % 2))), 0, 0)
        log.advance_high_watermark(log.log_end)


@pytest.mark.parametrize("limit", [0, PARTITIONS + 1, 10_000])
def test_a_limit_leaves_whole_groups_out_and_counts_them(tmp_path: Path, limit: int) -> None:
    async def run() -> LagReport:
        node, channel = await alone(
            tmp_path,
            offsets_topic_replication_factor="1",
            offsets_topic_num_partitions="2",
            ottla_metrics_group_partitions_max=str(limit),
        )
        metrics = GroupMetrics(node)
        try:
            await create(channel, "t", [[1]] * PARTITIONS)
            assert node.broker is not None
            await channel.negotiate()
            for number in range(GROUPS):
                await commit(channel, f"g{number}", number)
            fill(node)
            first, second = asyncio.create_task(metrics.prepare()), metrics.prepare()
            await second
            await first
            assert metrics._report is not None
            return metrics._report
        finally:
            metrics.close()
            await node.stop()

    report = asyncio.run(run())
    taken = min(limit // PARTITIONS, GROUPS)
    assert report.left_out == (GROUPS - taken) * PARTITIONS
    assert report.unknown == 0
    assert len(report.groups) == GROUPS
    known = [(group.id, lag) for group in report.groups for lag in group.partitions]
    assert len(known) == taken * PARTITIONS
    for group, each in known:
        offset = int(group[1:])
        assert (each.committed, each.end) == (offset, RECORDS)
        assert each.unread == each.unread_committed == FirstRecord(5000 + offset, offset)
