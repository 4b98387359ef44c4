"""Metrics that librdkafka pushes (KIP-714), seen at the metrics endpoint of the brokers."""

from __future__ import annotations

import gzip
import re
import socket
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer

from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.types import ZERO_UUID
from support.cluster import ProcessCluster, wait_until

CLIENT_METRICS, SET, DELETE = 16, 0, 1


class Cluster(NamedTuple):
    cluster: ProcessCluster
    http: list[int]

    def page(self) -> str:
        pages = (
            urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read()
            for port in self.http
        )
        return "".join(page.decode() for page in pages)

    def ask(self, key: ApiKey, version: int, fields: dict[str, Any]) -> Any:
        return self.cluster.ask(self.cluster.nodes[1], key, version, fields)

    def listed(self) -> list[list[str]]:
        """By each broker: a client asks only one of them, and not again for minutes if nothing is wanted."""
        answers = (
            self.cluster.ask(node, ApiKey.LIST_CONFIG_RESOURCES, 0, {})
            for node in self.cluster.nodes.values()
        )
        return [[each.resource_name for each in answer.config_resources] for answer in answers]

    def alter(self, name: str, configs: Mapping[str, str | None]) -> int:
        changes = [
            {
                "name": each,
                "config_operation": DELETE if value is None else SET,
                "value": value,
            }
            for each, value in configs.items()
        ]
        resource = {"resource_type": CLIENT_METRICS, "resource_name": name, "configs": changes}
        fields = {"resources": [resource], "validate_only": False}
        return int(self.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, fields).responses[0].error_code)


@pytest.fixture(scope="module")
def telemetry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    probes = [socket.socket() for _ in range(2)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    listeners = {
        node: {"metrics.listeners": f"HTTP://127.0.0.1:{port}"}
        for node, port in enumerate(ports, 1)
    }
    directory = tmp_path_factory.mktemp("telemetry")
    with ProcessCluster(directory, 2, {}, listeners) as running:
        yield Cluster(running, ports)


def producer(telemetry: Cluster, client_id: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": telemetry.cluster.bootstrap,
            "client.id": client_id,
            "enable.metrics.push": True,
            "log_level": 0,
        }
    )


def test_a_client_pushes_what_is_subscribed_to(telemetry: Cluster) -> None:
    configs = {
        "metrics": "org.apache.kafka.producer.",
        "interval.ms": "200",
        "match": "client_id=wanted.*",
    }
    assert telemetry.alter("producers", configs) == ErrorCode.NONE
    wait_until(lambda: telemetry.listed() == 2 * [["producers"]], 10, "both know it")
    resource = {"resource_type": CLIENT_METRICS, "resource_name": "producers"}
    asked = {"resources": [resource | {"configuration_keys": None}]}
    described = telemetry.ask(ApiKey.DESCRIBE_CONFIGS, 4, asked).results[0]
    assert {config.name: config.value for config in described.configs} == configs
    topic = telemetry.cluster.create_topic("measured", 2)
    wanted, other = (producer(telemetry, name) for name in ("wanted-1", "unasked"))
    latency = re.compile(
        r'^org_apache_kafka_producer_node_request_latency_avg{[^}]*client_id="wanted-1"[^}]*} ([0-9.]+)$',
        re.MULTILINE,
    )

    def is_measured() -> bool:
        for each in (wanted, other):
            each.produce(topic, b"x")
            each.flush(10)
        return any(float(value) > 0 for value in latency.findall(telemetry.page()))

    wait_until(is_measured, 30, "metrics of the client")
    page = telemetry.page()
    assert "# TYPE org_apache_kafka_producer_connection_creation_total counter" in page
    assert 'client_software_name="confluent-kafka-python"' in page
    assert "unasked" not in page
    counts = re.findall(
        r"^kafka_server_client_metrics_instance_count ([0-9]+)$", page, re.MULTILINE
    )
    assert sum(map(int, counts)) >= 1
    assert telemetry.alter("producers", dict.fromkeys(configs)) == ErrorCode.NONE
    wait_until(lambda: telemetry.listed() == [[], []], 10, "both know that it is gone")


def test_a_push_is_answered_as_kafka_answers_it(telemetry: Cluster) -> None:
    configs = {"metrics": "*", "interval.ms": "60000", "match": "client_id=test"}
    assert telemetry.alter("all", configs) == ErrorCode.NONE

    def get(id: object = ZERO_UUID) -> Any:
        return telemetry.ask(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, {"client_instance_id": id})

    told = wait_until(lambda: (found := get()).requested_metrics and found, 10, "the subscription")
    assert told.requested_metrics == ("*",)
    assert tuple(told.accepted_compression_types) == (4, 3, 1, 2)
    assert told.push_interval.total_seconds() == 60
    assert (told.telemetry_max_bytes, told.delta_temporality) == (1 << 20, True)

    def push(metrics: bytes = b"", **changed: object) -> int:
        fields = {
            "client_instance_id": told.client_instance_id,
            "subscription_id": told.subscription_id,
            "terminating": False,
            "compression_type": 0,
            "metrics": metrics,
        }
        return int(telemetry.ask(ApiKey.PUSH_TELEMETRY, 0, fields | changed).error_code)

    # Each request has its own connection, and an instance ends with the one that it asked over: so no push is early.
    assert push() == ErrorCode.NONE
    assert push() == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    for error, metrics, changed in (
        (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, b"", {"subscription_id": 1}),
        (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, b"", {"compression_type": 9}),
        (ErrorCode.TELEMETRY_TOO_LARGE, bytes((1 << 20) + 1), {}),
        (ErrorCode.INVALID_RECORD, b"\xff", {}),
        (ErrorCode.INVALID_RECORD, b"not zstd", {"compression_type": 4}),
        (ErrorCode.INVALID_RECORD, gzip.compress(b"\x0a\x00" * (4 << 20)), {"compression_type": 1}),
    ):
        told = get()
        assert push(metrics, **changed) == error, error
    assert push(client_instance_id=ZERO_UUID) == ErrorCode.INVALID_REQUEST
    told = get()
    assert push(terminating=True) == ErrorCode.NONE
    assert push() == ErrorCode.INVALID_REQUEST


def test_wrong_subscriptions_are_refused(telemetry: Cluster) -> None:
    for name, configs, error in (
        ("", {"metrics": "*"}, ErrorCode.INVALID_REQUEST),
        ("s", {"metric": "*"}, ErrorCode.INVALID_REQUEST),
        ("s", {"interval.ms": "10"}, ErrorCode.INVALID_REQUEST),
        ("s", {"match": "host=me"}, ErrorCode.INVALID_CONFIG),
    ):
        assert telemetry.alter(name, dict(configs)) == error, configs
