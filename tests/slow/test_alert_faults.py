"""Every alert rule is fired by a real fault in a real cluster that a real Prometheus scrapes, and by nothing before it.

The rules are those that are shipped, but they fire at once: test_prometheus lets promtool wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from ottla.local.ports import free_ports
from support.alert_faults import (
    BROKERS,
    CAUSES,
    LOOKS_BACK,
    SECOND_DISK_OF,
    SECOND_DISK_SIZE,
    SETTINGS,
    Scene,
)
from support.clients import Confluent, rows
from support.cluster import ProcessCluster, wait_until
from support.disks import give_second_disks, may_mount, tiny_file_system
from support.prometheus import ALERT_NAMES, OF_THE_MACHINE, prometheus

pytestmark = pytest.mark.slow

QUIET_S = 30


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    directory = tmp_path_factory.mktemp("faults")
    ports = dict(enumerate(free_ports(BROKERS), 1))
    listeners = {
        id: {"metrics.listeners": f"HTTP://127.0.0.1:{port}"} for id, port in ports.items()
    }
    cluster = ProcessCluster(directory / "cluster", BROKERS, SETTINGS, listeners)
    give_second_disks(cluster)
    with ExitStack() as stack:
        if may_mount():
            stack.enter_context(tiny_file_system(cluster, SECOND_DISK_OF, SECOND_DISK_SIZE))
        stack.enter_context(cluster)
        server = stack.enter_context(prometheus(directory / "server", ports.values()))
        yield Scene(cluster, server, ports, directory)


@contextmanager
def load(cluster: ProcessCluster, topic: str) -> Iterator[list[int]]:
    """Records are written and read all the time. Yields how many were read each time."""
    read: list[int] = []
    over = threading.Event()

    def work() -> None:
        client = Confluent()
        while not over.is_set():
            client.produce(cluster.bootstrap, topic, rows(200), acks="all")
            read.append(len(client.consume(cluster.bootstrap, topic, 200)))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield read
    finally:
        over.set()
        thread.join()


def test_every_rule_has_its_fault() -> None:
    assert sorted(CAUSES) == sorted(ALERT_NAMES)


def test_no_rule_fires_while_a_healthy_cluster_works(scene: Scene) -> None:
    topic = scene.cluster.create_topic("busy", 3)
    scene.server.becomes_quiet(30, but=OF_THE_MACHINE)  # it has begun to scrape
    with load(scene.cluster, topic) as read:
        until = time.monotonic() + QUIET_S
        while time.monotonic() < until:
            assert scene.server.firing() - OF_THE_MACHINE == set()
            time.sleep(1)
    assert len(read) > 1, "there was no load"


@pytest.mark.parametrize("fault", dict.fromkeys(CAUSES.values()), ids=lambda fault: fault.__name__)
def test_a_fault_fires_its_alerts(scene: Scene, fault: Callable[[Scene], None]) -> None:
    scene.cluster.mend()
    names = {name for name, cause in CAUSES.items() if cause is fault}
    others = names - OF_THE_MACHINE
    wait_until(lambda: not others & scene.server.firing(), 30, f"{others} do not fire before")
    fault(scene)
    assert names <= scene.fired


def test_alerts_end_when_the_faults_are_mended(scene: Scene) -> None:
    scene.server.becomes_quiet(60, but=OF_THE_MACHINE | LOOKS_BACK)
