"""A real Prometheus scrapes a real cluster: our dashboard and Strimzi's return data.

promtool fires every alert rule with made-up series, after the time that it waits. test_alert_faults causes them.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla.local.ports import free_ports
from support.clients import Confluent, rows
from support.cluster import ProcessCluster, wait_until
from support.prometheus import ALERT_NAMES, MONITORING, ROOT, Prometheus, prometheus, tool

pytestmark = pytest.mark.slow

DOCUMENT = (ROOT / "docs" / "METRICS.md").read_text()
STRIMZI_SELECTORS = 'namespace="ottla",strimzi_io_cluster="ottla",kubernetes_pod_name=~"ottla-.+"'

SLOW = {'le="0.1"': "0x60", 'le="30.0"': "0+10x60", 'le="+Inf"': "0+10x60"}
"""Of a histogram in which everything takes up to 30 s."""

MADE_UP: dict[str, dict[str, str]] = {
    "OttlaNodeDown": {'up{job="ottla"}': "0x60"},
    "OttlaNodeNotReady": {"ottla_ready": "0x60"},
    "OttlaNodeRestarts": {'process_start_time_seconds{job="ottla"}': "1x10 2x3 3x3 4x44"},
    "OttlaNoActiveController": {
        "kafka_controller_kafkacontroller_activecontrollercount": "0x60",
    },
    "OttlaTwoActiveControllers": {
        'kafka_controller_kafkacontroller_activecontrollercount{instance="a"}': "1x60",
        'kafka_controller_kafkacontroller_activecontrollercount{instance="b"}': "1x60",
    },
    "OttlaOfflinePartitions": {
        "kafka_controller_kafkacontroller_offlinepartitionscount": "3x60",
    },
    "OttlaUnderMinIsr": {"kafka_server_replicamanager_underminisrpartitioncount": "1x60"},
    "OttlaUnderReplicated": {"kafka_server_replicamanager_underreplicatedpartitions": "1x60"},
    "OttlaBrokerFenced": {"kafka_controller_kafkacontroller_fencedbrokercount": "1x60"},
    "OttlaIsrFlapping": {"kafka_server_replicamanager_isrshrinks_total": "0+1x60"},
    "OttlaUncleanElection": {
        "kafka_controller_controllerstats_uncleanleaderelections_total": "0x30 1x30",
    },
    "OttlaCommittedRecordsTruncated": {"ottla_truncated_committed_records_total": "0x30 7x30"},
    "OttlaLogDirectoryOffline": {"kafka_log_logmanager_offlinelogdirectorycount": "1x60"},
    "OttlaOfflineReplicas": {"kafka_server_replicamanager_offlinereplicacount": "2x60"},
    "OttlaDiskFull": {
        'ottla_log_directory_free_bytes{directory="/d"}': "5x60",
        'ottla_log_directory_size_bytes{directory="/d"}': "100x60",
    },
    "OttlaReplicaLag": {"kafka_server_replicafetchermanager_maxlag": "20000x60"},
    "OttlaQuorumLag": {'ottla_quorum_replica_lag_records{replica="2"}': "5000x60"},
    "OttlaMetadataLag": {
        "kafka_server_brokermetadatametrics_last_applied_record_lag_ms": "60000x60",
    },
    "OttlaEventLoopStalls": {
        f"ottla_event_loop_lateness_seconds_bucket{{{le}}}": each for le, each in SLOW.items()
    },
    "OttlaSlowFlushes": {f"ottla_flush_seconds_bucket{{{le}}}": each for le, each in SLOW.items()},
    "OttlaSlowProduce": {
        f'ottla_request_seconds_bucket{{api="Produce",phase="total",{le}}}': each
        for le, each in SLOW.items()
    },
    "OttlaHangingTransactions": {
        "kafka_server_replicamanager_partitionswithlatetransactionscount": "1x60",
    },
    "OttlaTransactionOpenTooLong": {"ottla_open_transaction_age_seconds": "0+60x60"},
    "OttlaFilesRunOut": {
        'process_open_fds{job="ottla"}': "90x60",
        'process_max_fds{job="ottla"}': "100x60",
    },
}
COUNTED_BEFORE_THE_FIRST_SCRAPE = {
    "OttlaUncleanElection": "kafka_controller_controllerstats_uncleanleaderelections_total",
    "OttlaCommittedRecordsTruncated": "ottla_truncated_committed_records_total",
}
"""Rule → what it counts. Both happen most often while a node starts that was down."""
WELL = {
    'up{job="ottla"}': "1x60",
    "ottla_ready": "1x60",
    "kafka_controller_kafkacontroller_activecontrollercount": "1x60",
    "kafka_controller_kafkacontroller_offlinepartitionscount": "0x60",
    "kafka_server_replicamanager_underreplicatedpartitions": "0x60",
}


def test_the_rules_are_right() -> None:
    checked = subprocess.run(
        [tool("promtool"), "check", "rules", str(MONITORING / "alerts.yml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def promtool_test(name: str, series: dict[str, str], firing: bool) -> dict[str, Any]:
    return {
        "name": name,
        "interval": "15s",
        "input_series": [{"series": key, "values": values} for key, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) > 0',
                "eval_time": "14m",
                "exp_samples": [{"labels": "{}", "value": 1}] if firing else [],
            }
        ],
    }


def test_every_rule_fires_at_what_it_is_for_and_not_at_a_cluster_that_is_well(
    tmp_path: Path,
) -> None:
    assert sorted(MADE_UP) == sorted(ALERT_NAMES)
    tests = [promtool_test(name, series, True) for name, series in MADE_UP.items()]
    for name, count in COUNTED_BEFORE_THE_FIRST_SCRAPE.items():
        series = {  # twelve minutes down, and a count from the start
            f'{count}{{instance="a"}}': "0x4 _x47 7x8",
            'process_start_time_seconds{instance="a"}': "1x4 _x47 770x8",
        }
        tests.append(promtool_test(name, series, True))
    tests += [promtool_test(name, WELL, False) for name in ALERT_NAMES]
    content = {
        "rule_files": [str(MONITORING / "alerts.yml")],
        "evaluation_interval": "15s",
        "tests": tests,
    }
    path = tmp_path / "tests.yml"
    path.write_text(json.dumps(content))
    run = subprocess.run(
        [tool("promtool"), "test", "rules", str(path)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr


# -- a real cluster --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ports() -> list[int]:
    return free_ports(3)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, ports: list[int]) -> Iterator[ProcessCluster]:
    listeners = {
        id: {"metrics.listeners": f"HTTP://127.0.0.1:{port}"} for id, port in enumerate(ports, 1)
    }
    directory = tmp_path_factory.mktemp("prometheus") / "cluster"
    with ProcessCluster(directory, 3, node_overrides=listeners) as made:
        made.create_topic("orders", 3)
        yield made


@pytest.fixture(scope="module")
def server(
    cluster: ProcessCluster, ports: list[int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    with prometheus(tmp_path_factory.mktemp("server"), ports) as running:
        yield running


@pytest.fixture(scope="module")
def busy(cluster: ProcessCluster, server: Prometheus) -> Prometheus:
    """Records were written and read, over several scrapes."""

    group = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "billing", "enable.auto.commit": False}
    )
    group.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
    group.close()

    def has_seen_a_rate() -> bool:
        client = Confluent()
        client.produce(cluster.bootstrap, "orders", rows(50))
        assert len(client.consume(cluster.bootstrap, "orders", 50)) >= 50
        rates = (
            'sum(rate(kafka_server_brokertopicmetrics_bytesout_total{topic=""}[1m])) > 0',
            'sum(rate(ottla_request_seconds_count{api="FetchConsumer"}[1m])) > 0',
            'sum(rate(ottla_request_seconds_count{api="Produce"}[1m])) > 0',
        )
        return all(server.query(rate) for rate in rates)

    wait_until(has_seen_a_rate, 60, "Prometheus sees records being read", every=1)
    return server


def test_a_scrape_has_no_error(busy: Prometheus) -> None:
    assert busy.target_errors() == []
    assert busy.query("scrape_samples_scraped") and busy.query("ottla_build_info")


def queries_of_the_dashboard() -> list[str]:
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]


def test_every_query_of_the_dashboard_returns_data(busy: Prometheus) -> None:
    queries = queries_of_the_dashboard()
    assert len(queries) > 40
    without = []
    for query in queries:
        asked = query.replace("$__rate_interval", "1m").replace("$node", ".*")
        if not busy.query(asked):
            without.append(query)
    assert without == []


def test_the_dashboard_shows_how_long_a_produce_takes(busy: Prometheus) -> None:
    (query,) = [each for each in queries_of_the_dashboard() if 'api="Produce"' in each]
    asked = query.replace("$__rate_interval", "1m").replace("$node", ".*")
    phases = {each["metric"]["phase"]: float(each["value"][1]) for each in busy.query(asked)}
    assert set(phases) == {"queue", "local", "remote", "send", "total"}
    assert 0 < phases["local"] < phases["total"] and math.isfinite(phases["total"])


def test_queries_of_strimzis_dashboards_return_data_unchanged(busy: Prometheus) -> None:
    rows = re.findall(r"^\| strimzi-[\w-]+ \| [^|]+ \| `([^`]+)` \|$", DOCUMENT, re.M)
    assert len(rows) > 30
    without = [row for row in rows if not busy.query(row.replace("…", STRIMZI_SELECTORS))]
    assert without == []
