"""/livez and /readyz of a real node, while it starts, when it is fenced, and after it left the quorum."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path

import pytest
from test_metrics_page import get, with_node

from ottla.broker.cluster.lifecycle import BrokerState
from ottla.broker.cluster.raft_driver import QuorumFailed
from ottla.broker.node import Node
from ottla.config import Settings
from ottla.local.ports import free_ports
from ottla.log.manager import LogManager
from ottla.log.progress import OpeningProgress
from ottla.runtime.real import real_runtime
from ottla.wire.channel import Channel


def test_a_node_that_serves_is_alive_and_ready(tmp_path: Path) -> None:
    async def talk(node: Node, channel: Channel) -> None:
        assert await get(node, "/livez") == (200, "alive\n")
        assert await get(node, "/readyz") == (200, "ready\n")
        status, body = await get(node, "/readyz?format=json")
        assert status == 200
        assert json.loads(body) == {
            "live": True,
            "ready": True,
            "reasons": [],
            "recovery": {"logs": 0, "recovered": 0, "per_second": None, "seconds_left": 0.0},
        }

    with_node(tmp_path, talk)


def test_a_fenced_broker_is_alive_and_not_ready(tmp_path: Path) -> None:
    async def talk(node: Node, channel: Channel) -> None:
        assert node.broker is not None
        lifecycle = node.broker.lifecycle
        lifecycle.state = BrokerState.RECOVERY
        lifecycle.ready.clear()
        status, body = await get(node, "/readyz")
        assert status == 503
        assert body == f"not ready: fenced; {BrokerState.RECOVERY.value}\n"
        assert (await get(node, "/livez"))[0] == 200

    with_node(tmp_path, talk)


def test_a_broker_without_answers_of_a_controller_is_not_ready(tmp_path: Path) -> None:
    async def talk(node: Node, channel: Channel) -> None:
        assert node.broker is not None
        node.broker.lifecycle._was_unfenced_at = float("-inf")
        status, body = await get(node, "/readyz")
        assert status == 503 and "no controller has answered" in body

    with_node(tmp_path, talk)


def test_a_node_that_left_the_quorum_is_not_alive(tmp_path: Path) -> None:
    async def talk(node: Node, channel: Channel) -> None:
        assert node.quorum is not None
        node.quorum.failed = QuorumFailed("its disk failed")
        for path, word in (("/livez", "alive"), ("/readyz", "ready")):
            status, body = await get(node, path)
            assert status == 503
            assert body == (
                f"not {word}: it has left the metadata quorum, restart it: its disk failed\n"
            )
        node.quorum.failed = None

    with_node(tmp_path, talk)


def test_a_node_that_recovers_its_logs_says_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening, go_on = threading.Event(), threading.Event()

    def start(self: LogManager, *arguments: object) -> None:
        self.progress.total, self.progress.done = 40, 10
        opening.set()
        assert go_on.wait(30)
        start_really(self, *arguments)  # type: ignore[arg-type]

    start_really = LogManager.start
    monkeypatch.setattr(LogManager, "start", start)

    async def run() -> None:
        runtime = real_runtime(asyncio.get_running_loop(), seed=1)
        settings = Settings.of(
            {
                "node.id": "1",
                "process.roles": "broker",
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": "2@127.0.0.1:1",
                "log.dirs": str(tmp_path),
                "metrics.listeners": "HTTP://127.0.0.1:0",
            }
        )
        node = Node(settings, runtime)
        starting = asyncio.ensure_future(node.start())
        await asyncio.get_running_loop().run_in_executor(None, opening.wait, 30)
        status, body = await get(node, "/readyz")
        assert status == 503
        assert body.startswith("not ready: recovering logs: 10 of 40, ")
        assert body.endswith(" s left\n")
        _, text = await get(node, "/metrics")
        assert "\nottla_recovery_logs 40\n" in text
        assert "\nottla_recovery_logs_done 10\n" in text
        assert "\nottla_ready 0\n" in text
        go_on.set()
        starting.cancel()
        await asyncio.wait([starting])
        await node.stop()

    asyncio.run(run())


def test_a_controller_alone_has_health_and_metrics_too(tmp_path: Path) -> None:
    async def run() -> None:
        runtime = real_runtime(asyncio.get_running_loop(), seed=1)
        (port,) = free_ports(1)
        settings = Settings.of(
            {
                "node.id": "1",
                "process.roles": "controller",
                "listeners": f"CONTROLLER://127.0.0.1:{port}",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": f"1@127.0.0.1:{port}",
                "log.dirs": str(tmp_path),
                "metrics.listeners": "HTTP://127.0.0.1:0",
            }
        )
        node = Node(settings, runtime)
        await node.start()
        try:
            assert node.quorum is not None
            async with asyncio.timeout(30):
                await node.quorum.wait_for_leader()
                while not node.quorum.is_active:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert await get(node, "/readyz") == (200, "ready\n")
            _, text = await get(node, "/metrics")
            assert "\nkafka_controller_kafkacontroller_activecontrollercount 1\n" in text
            assert "replicamanager" not in text
        finally:
            await node.stop()

    asyncio.run(run())


def test_progress_is_told_in_words() -> None:
    progress = OpeningProgress()
    progress.total = 100
    assert progress.words(5.0) == "0 of 100"
    progress.began_at, progress.done = 0.0, 20
    assert progress.words(4.0) == "20 of 100, 5 a second, 16 s left"
    progress.done, progress.is_complete = 100, True
    assert progress.words(20.0) == "100 of 100"
    assert progress.seconds_left(20.0) == 0.0
