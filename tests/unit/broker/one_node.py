"""A real node in the test's own process, where its parts can be looked at and replaced."""

from __future__ import annotations

import asyncio
from pathlib import Path
from socket import socket

from ottla.broker.node import Node
from ottla.config import Settings
from ottla.runtime.real import real_runtime
from ottla.wire.apis import ApiKey
from ottla.wire.channel import Channel


async def alone(directory: Path, **changed: str) -> tuple[Node, Channel]:
    """A node of its own in this process, and a connection to it."""
    runtime = real_runtime(asyncio.get_running_loop(), seed=1)
    with socket() as probe:  # a voter's port must be known before it listens
        probe.bind(("127.0.0.1", 0))
        controller_port = probe.getsockname()[1]
    settings = {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "log.dirs": str(directory),
        "min.insync.replicas": "1",
        "default.replication.factor": "1",
        **{name.replace("_", "."): value for name, value in changed.items()},
    }
    node = Node(Settings.of(settings), runtime)
    await node.start()
    port = node.endpoints["PLAINTEXT"].port
    return node, await Channel.open(runtime.network, "127.0.0.1", port, "client")


async def create(channel: Channel, topic: str, replicas: list[list[int]], **settings: str) -> None:
    """Settings are given with `_` for `.`"""
    assignments = [
        {"partition_index": number, "broker_ids": brokers}
        for number, brokers in enumerate(replicas)
    ]
    wanted = {
        "name": topic,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": assignments,
        "configs": [
            {"name": name.replace("_", "."), "value": value} for name, value in settings.items()
        ],
    }
    answer = await channel.request(
        ApiKey.CREATE_TOPICS, {"topics": [wanted], "timeout": 60_000, "validate_only": False}
    )
    assert int(answer.topics[0].error_code) == 0
