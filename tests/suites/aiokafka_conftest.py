"""Takes the place of the conftest.py of aiokafka's tests, which starts a broker in a container: here the broker runs already."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="class")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    asyncio.set_event_loop(made)
    yield made
    made.close()
    gc.collect()
    asyncio.set_event_loop(None)


@pytest.fixture(scope="class")
def setup_test_class_serverless(
    request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop
) -> None:
    request.cls.loop = loop


@pytest.fixture(scope="class")
def setup_test_class(request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop) -> None:
    host, port = os.environ["BROKERS"].split(":")
    request.cls.loop = loop
    request.cls.kafka_host = host
    request.cls.kafka_port = int(port)
    request.cls.kafka_version = os.environ["KAFKA_VERSION"]
    request.cls.hosts = [f"{host}:{port}"]
