"""Changes of a listener's settings, looked at by the broker that they are about: what it could not take goes no further."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.apis.listener_configs import ListenerConfigsHandler
from ottla.config.values import ConfigError
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE, ConfigRecord
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode

KEY = "listener.name.clients.ssl.keystore.location"
TYPE = "listener.name.clients.ssl.keystore.type"


class Changes:
    """A broker, node 1, whose metadata already names a type of store."""

    def __init__(self, refused: str | None = None, may: bool = True) -> None:
        self.seen: list[Mapping[str, str]] = []
        self.forwarded = 0
        self.answer: Any = None
        self._refused = refused
        self._may = may
        records = [
            ConfigRecord(
                resource_type=BROKER_RESOURCE, resource_name="1", name=TYPE, value="PKCS12"
            )
        ]
        image, _ = MetadataImage().apply(records, 0, 1)
        self._handler = ListenerConfigsHandler(1, lambda: image, self._check, self._forward)

    def _check(self, configs: Mapping[str, str]) -> None:
        self.seen.append(configs)
        if self._refused is not None:
            raise ConfigError(self._refused)

    def _forward(self, request: Any) -> None:
        self.forwarded += 1

    def _respond(self, fields: Any) -> None:
        self.answer = fields["responses"]

    def ask(
        self, *resources: tuple[int, str, Mapping[str, str | None]], incremental: bool = True
    ) -> None:
        """None removes a setting."""
        key = ApiKey.INCREMENTAL_ALTER_CONFIGS if incremental else ApiKey.ALTER_CONFIGS
        message = SimpleNamespace(
            resources=[
                SimpleNamespace(
                    resource_type=kind,
                    resource_name=name,
                    configs=[
                        SimpleNamespace(name=each, value=value, config_operation=int(value is None))
                        for each, value in configs.items()
                    ],
                )
                for kind, name, configs in resources
            ]
        )
        rights = None if self._may else SimpleNamespace(sees=lambda *_: False)
        request = SimpleNamespace(
            message=lambda: message,
            rights=rights,
            header=SimpleNamespace(api_key=key),
            respond=self._respond,
        )
        self._handler.pass_on(cast(Any, request))


@pytest.mark.parametrize(
    ("name", "changes", "incremental", "after"),
    [
        ("1", {KEY: "a.p12"}, True, {KEY: "a.p12", TYPE: "PKCS12"}),
        ("1", {TYPE: None, KEY: "a.pem"}, True, {KEY: "a.pem"}),
        ("1", {KEY: "a.pem"}, False, {KEY: "a.pem"}),
        ("", {KEY: "a.p12", TYPE: "PEM"}, True, {KEY: "a.p12", TYPE: "PKCS12"}),
    ],
)
def test_all_that_the_metadata_would_say_is_looked_at(
    name: str, changes: Mapping[str, str | None], incremental: bool, after: Mapping[str, str]
) -> None:
    broker = Changes()
    broker.ask((BROKER_RESOURCE, name, changes), incremental=incremental)
    assert broker.seen == [after] and broker.forwarded == 1


def test_what_cannot_be_is_refused_with_the_reason_and_nothing_else_is_changed() -> None:
    broker = Changes("ssl.keystore.type: does not fit")
    broker.ask((TOPIC_RESOURCE, "t", {"retention.ms": "1"}), (BROKER_RESOURCE, "1", {KEY: "a"}))
    assert broker.forwarded == 0
    assert [each["error_code"] for each in broker.answer] == [ErrorCode.INVALID_CONFIG] * 2
    of_topic, of_broker = (each["error_message"] for each in broker.answer)
    assert of_broker == "ssl.keystore.type: does not fit"
    assert of_topic.startswith("Nothing is changed, because of broker 1: ")


def test_only_the_broker_itself_changes_its_listeners() -> None:
    broker = Changes()
    broker.ask((BROKER_RESOURCE, "2", {KEY: "a"}))
    assert broker.seen == [] and broker.forwarded == 0
    assert broker.answer[0]["error_code"] == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("resource", "may"),
    [
        ((TOPIC_RESOURCE, "1", {KEY: "a"}), True),
        ((BROKER_RESOURCE, "2", {"log.cleaner.threads": "2"}), True),
        ((BROKER_RESOURCE, "1", {KEY: "a"}), False),
    ],
    ids=["of a topic", "of no listener", "without the right"],
)
def test_all_else_is_for_the_controller(
    resource: tuple[int, str, Mapping[str, str | None]], may: bool
) -> None:
    broker = Changes("cannot be", may=may)
    broker.ask(resource)
    assert broker.seen == [] and broker.forwarded == 1
