"""A plugin for pytest in the suites of Python's clients: what their tests do in plaintext is done through SASL_SSL.

The tests do not know of it. Each suite has one place through which every client passes; the login is added there.
"""

from __future__ import annotations

import functools
import json
import os
import random
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

LOGIN = "OTTLA_SUITE_LOGIN"
"""A client's file with the login, in the form that `ottla users add` writes for this client."""
CLIENT = "OTTLA_SUITE_CLIENT"


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    random.seed(0)  # some tests have random names
    client = os.environ[CLIENT]
    if client == "kafka-python":
        _complete_kafka_python()
    if LOGIN in os.environ:
        PLACES[client](json.loads(Path(os.environ[LOGIN]).read_text()))


class ExternalService:
    """A broker that runs already. What kafka-python has for it is not in its package."""

    def __init__(self, host: str, port: int) -> None:
        pass


def _complete_kafka_python() -> None:
    module = ModuleType("test.service")
    module.__dict__.update(ExternalService=ExternalService, SpawnedService=None)
    sys.modules[module.__name__] = module


def _kafka_python(login: dict[str, Any]) -> None:
    fixture = import_module("test.integration.fixtures").KafkaFixture
    del login["bootstrap_servers"]  # the tests want one broker
    original = fixture._enrich_client_params

    @functools.wraps(original)
    def enriched(self: Any, params: dict[str, Any], **defaults: Any) -> dict[str, Any]:
        made: dict[str, Any] = original(self, {**login, **params}, **defaults)
        return made

    fixture._enrich_client_params = enriched


def _aiokafka(login: dict[str, Any]) -> None:
    connection = import_module("aiokafka.conn").AIOKafkaConnection
    context = import_module("aiokafka.helpers").create_ssl_context(cafile=login.pop("ssl_cafile"))
    del login["bootstrap_servers"]
    original = connection.__init__

    @functools.wraps(original)
    def made(self: Any, *args: Any, **options: Any) -> None:
        named = options.get("sasl_plain_username") is not None  # a test of logins
        if options.get("security_protocol", "PLAINTEXT") == "PLAINTEXT" and not named:
            options |= {**login, "ssl_context": context}
        original(self, *args, **options)

    connection.__init__ = made


def _confluent_kafka(login: dict[str, Any]) -> None:
    fixture = import_module("tests.integration.cluster_fixture").ByoFixture
    original = fixture.__init__

    @functools.wraps(original)
    def made(self: Any, conf: dict[str, Any]) -> None:
        original(self, conf | login)

    fixture.__init__ = made


PLACES: dict[str, Callable[[dict[str, Any]], None]] = {
    "kafka-python": _kafka_python,
    "aiokafka": _aiokafka,
    "confluent-kafka": _confluent_kafka,
}
