"""What a real node says at /metrics: every family of docs/METRICS.md and no other, with figures that are right."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from one_node import alone, create
from test_counted_work import produce_body, produced

from ottla.broker.node import Node
from ottla.broker.observability import request_metrics
from ottla.broker.observability.http import HttpRequest
from ottla.broker.observability.loop_metrics import TICK_S
from ottla.broker.observability.request_metrics import RequestMetrics
from ottla.config import ConfigError, Settings
from ottla.events.replication import IsrDecided, Truncated, TruncationCause
from ottla.wire.apis import APIS, PRIVATE_APIS, ApiKey
from ottla.wire.channel import Channel
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.types import TopicPartition
from support import exposition as reader
from support.private_requests import PRIVATE_QUESTIONS, asked_privately

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "METRICS.md"

Talk = Callable[[Node, Channel], Awaitable[None]]


def with_node(directory: Path, talk: Talk, **settings: str) -> None:
    async def run() -> None:
        here = {"metrics_listeners": "HTTP://127.0.0.1:0"}
        node, channel = await alone(directory, **(here | settings))
        try:
            await talk(node, channel)
        finally:
            channel.close()
            await node.stop()

    asyncio.run(run())


async def get(node: Node, path: str, accept: str = "") -> tuple[int, str]:
    """(status, body)"""
    assert node.observability is not None
    (address,) = node.observability.addresses
    reading, writing = await asyncio.open_connection(address.host, address.port)
    request = f"GET {path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
    writing.write(request.encode())
    head, _, body = (await reading.read()).partition(b"\r\n\r\n")
    writing.close()
    return int(head.split()[1]), body.decode()


async def families(node: Node) -> dict[str, reader.ReadFamily]:
    status, body = await get(node, "/metrics")
    assert status == 200
    return reader.read(body)


def value(family: reader.ReadFamily, **labels: str) -> float:
    (found,) = [each for _, pairs, each in family.samples if pairs == labels]
    return found


def test_every_family_is_in_the_document_and_every_name_there_is_served(tmp_path: Path) -> None:
    documented = dict(re.findall(r"^\| `([a-z_0-9]+)` \| (\w+) \|", DOCUMENT.read_text(), re.M))

    async def talk(node: Node, channel: Channel) -> None:
        served = {name: family.kind for name, family in (await families(node)).items()}
        assert served == documented

    with_node(tmp_path, talk)


def test_all_formats_say_the_same(tmp_path: Path) -> None:
    async def talk(node: Node, channel: Channel) -> None:
        await create(channel, "t", [[1]])
        text = await families(node)
        _, body = await get(node, "/metrics", "application/openmetrics-text;version=1.0.0")
        open_metrics = reader.read(body)
        _, body = await get(node, "/metrics?format=json")
        as_json = {each["name"]: each for each in json.loads(body)["families"]}
        assert {name.removesuffix("_total") for name in text} == set(open_metrics)
        assert set(as_json) == set(text)
        size = text["kafka_log_log_size"].samples
        assert [
            (each["name"], each["labels"], each["value"])
            for each in as_json["kafka_log_log_size"]["samples"]
        ] == size

    with_node(tmp_path, talk)


def test_topics_count_what_goes_in(tmp_path: Path) -> None:
    async def talk(node: Node, channel: Channel) -> None:
        await create(channel, "t", [[1]])
        await create(channel, "other", [[1]])
        body = produce_body("t", records=10)
        await produced(channel, body, 3)
        found = await families(node)
        messages = found["kafka_server_brokertopicmetrics_messagesin_total"]
        assert value(messages) == value(messages, topic="t") == 30
        assert value(messages, topic="other") == 0
        in_bytes = found["kafka_server_brokertopicmetrics_bytesin_total"]
        assert value(in_bytes, topic="t") == value(
            found["kafka_log_log_size"], topic="t", partition="0"
        )
        assert value(found["kafka_topic_partition_current_offset"], topic="t", partition="0") == 30
        assert value(found["kafka_server_replicamanager_leadercount"]) == 2

    with_node(tmp_path, talk)


def test_topics_and_partitions_have_series_up_to_a_limit(tmp_path: Path) -> None:
    async def talk(node: Node, channel: Channel) -> None:
        for name in ("a", "b", "c"):
            await create(channel, name, [[1]] * 2)
            await produced(channel, produce_body(name))
        found = await families(node)
        messages = found["kafka_server_brokertopicmetrics_messagesin_total"]
        assert [pairs.get("topic") for _, pairs, _ in messages.samples] == [None, "a", "b"]
        assert value(messages) == 3
        assert value(found["ottla_metrics_topics_left_out"]) == 1
        shown = {
            (pairs["topic"], pairs["partition"])
            for _, pairs, _ in found["kafka_log_log_size"].samples
        }
        assert shown == {("a", "0"), ("a", "1"), ("b", "0")}
        assert value(found["ottla_metrics_partitions_left_out"]) == 3
        assert value(found["kafka_server_replicamanager_partitioncount"]) == 6

    with_node(tmp_path, talk, ottla_metrics_topics_max="2", ottla_metrics_partitions_max="3")


def test_a_refused_produce_counts_as_failed(tmp_path: Path) -> None:
    async def talk(node: Node, channel: Channel) -> None:
        await create(channel, "t", [[1]])
        with pytest.raises(AssertionError):
            await produced(channel, produce_body("t", size=2_000_000))
        found = await families(node)
        failed = found["kafka_server_brokertopicmetrics_failedproducerequests_total"]
        assert value(failed) == value(failed, topic="t") == 1
        rejected = found["kafka_server_brokertopicmetrics_bytesrejected_total"]
        assert value(rejected, topic="t") > 2_000_000

    with_node(tmp_path, talk)


def test_a_page_is_whole_after_each_request_that_is_served(tmp_path: Path) -> None:
    async def ask_all(node: Node, listener: str, keys: list[int]) -> set[int]:
        """Those of them that were answered. Most refuse a request without anything, some close the connection."""
        address = node.endpoints[listener]
        answered = set()
        for key in keys:
            channel = await Channel.open(node.runtime.network, address.host, address.port, "each")
            with contextlib.suppress(KafkaError, OSError, TimeoutError):
                await channel.negotiate()
                await channel.request(key, {}, timeout_s=2)
                answered.add(key)
            channel.close()
        return answered

    async def talk(node: Node, channel: Channel) -> None:
        of_brokers = [int(api.key) for api in APIS.values() if api.on_broker]
        of_controllers = [int(api.key) for api in APIS.values() if api.on_controller]
        answered = await ask_all(node, "PLAINTEXT", of_brokers)
        answered |= await ask_all(node, "CONTROLLER", of_controllers)
        assert len(answered) > 0.8 * len({*of_brokers, *of_controllers})
        for key, question in PRIVATE_QUESTIONS.items():
            await asked_privately(channel, key, question)
        found = await families(node)
        assert value(found["ottla_metrics_families_left_out_total"], why="failed") == 0
        counted = found["kafka_network_requestmetrics_requests_total"].samples
        names = {APIS[ApiKey(key)].name for key in answered} | set(PRIVATE_APIS.values())
        shown = {pairs["request"] for _, pairs, _ in counted}
        assert names - {"Fetch"} <= shown and "FetchConsumer" in shown

    with_node(tmp_path, talk)


def test_each_request_is_timed_in_all_its_phases(tmp_path: Path) -> None:
    async def talk(node: Node, channel: Channel) -> None:
        await create(channel, "t", [[1]])
        await produced(channel, produce_body("t"), 7)
        found = await families(node)
        seconds = found["ottla_request_seconds"]
        sums = {
            pairs["phase"]: each
            for name, pairs, each in seconds.samples
            if name.endswith("_sum") and pairs["api"] == "Produce"
        }
        counts = {
            pairs["phase"]: each
            for name, pairs, each in seconds.samples
            if name.endswith("_count") and pairs["api"] == "Produce"
        }
        assert set(counts.values()) == {7}
        assert sums["total"] == pytest.approx(
            sums["queue"] + sums["local"] + sums["remote"] + sums["send"]
        )
        # Seven came in one read: all but the first waited for their turn, and all were sent together.
        assert sums["local"] > 0 and sums["queue"] > 0 and sums["send"] > 0
        requests = found["kafka_network_requestmetrics_requests_total"]
        assert value(requests, request="Produce") == 7
        total = found["kafka_network_requestmetrics_totaltimems"]
        assert value(total, request="Produce", quantile="0.99") > 0

    with_node(tmp_path, talk)


def test_a_parked_request_waits_in_the_phase_remote(tmp_path: Path) -> None:
    async def talk(node: Node, channel: Channel) -> None:
        # Describing the quorum needs no wait; a metadata fetch of the broker itself does.
        await channel.request(
            ApiKey.CREATE_TOPICS, {"topics": [], "timeout": 60_000, "validate_only": False}
        )
        found = (await families(node))["ottla_request_seconds"]
        by_phase = {
            pairs["phase"]: each
            for name, pairs, each in found.samples
            if name.endswith("_sum") and pairs["api"] == "CreateTopics"
        }
        assert by_phase["remote"] > 0

    with_node(tmp_path, talk)


def test_folding_drops_what_cannot_be_folded() -> None:
    requests = RequestMetrics()
    requests.times.append((2.0, [(-7, False, 1.0, 1.0, 0.0, 1.5)]))
    with pytest.raises(ValueError):
        requests.fold()
    assert not requests.fold() and requests.times == []


def test_folding_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_metrics, "FOLDED_AT_ONCE_MAX", 2)
    requests = RequestMetrics()
    timing = (int(ApiKey.METADATA), False, 1.0, 1.0, 0.0, 1.5)
    requests.times.extend([(2.0, [timing])] * 5)
    assert requests.fold() and requests.fold() and not requests.fold()
    (phases,) = requests._by_name.values()
    queue, local, remote, send, total = phases.histograms
    assert (queue.sum, local.sum, remote.sum, send.sum, total.sum) == (0, 2.5, 0, 2.5, 5.0)
    assert total.count == 5


def test_quantiles_forget_what_is_older_than_their_window() -> None:
    requests = RequestMetrics()

    def noted(seconds: float) -> None:
        requests.times.append((seconds, [(int(ApiKey.METADATA), False, 0.0, 0.0, 0.0, 0.0)]))
        requests.fold()

    noted(9.0)
    for _ in range(request_metrics.WINDOW_MINUTES):
        requests.minute_passed()
    noted(0.0001)
    (phases,) = requests._by_name.values()
    assert sum(phases.recent(4)) == 1
    assert phases.count == 2


def test_a_page_gives_the_node_its_turns(tmp_path: Path) -> None:
    async def talk(node: Node, channel: Channel) -> None:
        for number in range(5):
            await create(channel, f"t{number}", [[1]] * 40)
        assert node.observability is not None
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        counting = asyncio.ensure_future(count())
        page = await node.observability._metrics_page(HttpRequest("GET", "/metrics", "", {}, True))
        counting.cancel()
        assert len(page.body) > 100_000
        assert turns >= 2

    with_node(tmp_path, talk)


def test_changes_of_the_isr_and_truncations_are_counted(tmp_path: Path) -> None:
    async def talk(node: Node, channel: Channel) -> None:
        events, key = node.runtime.events, TopicPartition("t", 0)
        for before, proposed in (((1, 2, 3), (1, 2)), ((1, 2), (1, 2, 3)), ((1, 2, 3), (1, 3))):
            events.emit(IsrDecided(key, before, proposed, "a cause", ErrorCode.NONE))
        events.emit(IsrDecided(key, (1,), (1, 2), "a cause", ErrorCode.INVALID_UPDATE_VERSION))
        cut = (90, 110, 95, 90, 0, 2, 7, (6, 90), 95, 2000, (5,), None)
        events.emit(Truncated(key, TruncationCause.DIVERGING, *cut))
        found = await families(node)
        manager = "kafka_server_replicamanager"
        assert value(found[f"{manager}_isrshrinks_total"]) == 2
        assert value(found[f"{manager}_isrexpands_total"]) == 1
        assert value(found[f"{manager}_failedisrupdates_total"]) == 1
        assert value(found["ottla_truncated_records_total"]) == 20
        assert value(found["ottla_truncated_committed_records_total"]) == 5

    with_node(tmp_path, talk)


def test_a_stall_of_the_event_loop_and_a_flush_are_seen(tmp_path: Path) -> None:
    async def talk(node: Node, channel: Channel) -> None:
        def late() -> float:
            (counted,) = [
                each
                for name, pairs, each in found["ottla_event_loop_lateness_seconds"].samples
                if pairs.get("le") == "0.025"
            ]
            (total,) = [
                each
                for name, _, each in found["ottla_event_loop_lateness_seconds"].samples
                if name.endswith("_count")
            ]
            return total - counted

        async with asyncio.timeout(30):
            found = await families(node)
            while not late():
                time.sleep(TICK_S)  # noqa: ASYNC251 (this is the stall)
                await asyncio.sleep(TICK_S / 2)
                found = await families(node)
        (flushes,) = [
            each
            for name, _, each in found["ottla_flush_seconds"].samples
            if name.endswith("_count")
        ]
        assert flushes > 0  # those of the metadata quorum

    with_node(tmp_path, talk)


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    async def talk(node: Node, channel: Channel) -> None:
        assert node.observability is not None
        taken = node.observability.addresses[0]
        with pytest.raises(ConfigError, match=rf"metrics.listeners: HTTP://127.0.0.1:{taken.port}"):
            await alone(tmp_path / "other", metrics_listeners=str(taken))

    with_node(tmp_path / "one", talk)


@pytest.mark.parametrize("text", ["HTTPS://x:1", "127.0.0.1:9404", "HTTP://x"])
def test_a_listener_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"metrics\.listeners"):
        Settings.of(
            {
                "node.id": "1",
                "process.roles": "broker",
                "controller.quorum.voters": "2@x:1",
                "controller.listener.names": "C",
                "metrics.listeners": text,
            }
        )


def test_a_node_without_the_setting_does_not_import_metrics(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys, ottla.broker.node, ottla.local.node;"
        "print([m for m in sys.modules if m.startswith(('ottla.metrics', 'ottla.broker.observability'))])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_a_secured_node_shows_its_metrics_on_loopback_addresses_only(tmp_path: Path) -> None:
    async def talk(node: Node, channel: Channel) -> None:
        assert node.observability is not None
        everywhere, loopback = node.observability.addresses

        async def asked(port: int, path: str) -> tuple[int, str]:
            node.observability.addresses[:] = [loopback._replace(port=port)]  # type: ignore[union-attr]
            return await get(node, path)

        status, said = await asked(everywhere.port, "/metrics")
        assert status == 403 and "ottla.metrics.without.login" in said
        assert await asked(everywhere.port, "/livez?format=json") == (200, "alive\n")
        assert await asked(everywhere.port, "/readyz") == (200, "ready\n")
        status, said = await asked(loopback.port, "/metrics")
        assert status == 200 and "ottla_unauthenticated_connections" in said

    with_node(
        tmp_path,
        talk,
        metrics_listeners="HTTP://0.0.0.0:0,HTTP://127.0.0.1:0",
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users="User:ANONYMOUS",
    )
