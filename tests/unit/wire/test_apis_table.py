"""The table of served APIs against Kafka's schemas as kio carries them."""

from __future__ import annotations

import pytest
from kio.schema.index import api_key_map, schema_name_map

from ottla.wire import schema
from ottla.wire.apis import APIS, Api, ApiKey

# kio has a version that Kafka 4.3 does not announce yet (two-phase commit, KIP-939).
NEWEST_NOT_ANNOUNCED = {ApiKey.INIT_PRODUCER_ID}
# Kafka 4.3.1 announces these on its controller listener, of the ones that we serve.
ON_CONTROLLER = {
    1, 17, 18, 19, 20, 29, 30, 31, 32, 33, 36, 37, 38, 39, 40, 41, 43, 44, 45, 46, 49, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 62, 63, 64, 67, 70, 73, 80, 81, 82,
}  # fmt: skip
ONLY_ON_CONTROLLER = {52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82}


def test_every_request_of_kafka_has_its_key_and_name() -> None:
    assert {int(key): key.name.lower() for key in ApiKey} == dict(api_key_map)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_versions_and_flexibility_are_those_of_the_schemas(api: Api) -> None:
    versions = schema_name_map[api.key.name.lower()]
    assert api.min_version == min(versions)
    assert api.max_version == max(versions) - (api.key in NEWEST_NOT_ANNOUNCED)
    for version in range(api.min_version, api.max_version + 1):
        for direction in ("request", "response"):
            struct = schema.message(api.key, version, direction)
            assert struct.flexible == api.flexible(version), (version, direction)


def test_listeners_are_those_of_kafka() -> None:
    assert {key for key, api in APIS.items() if api.on_controller} == ON_CONTROLLER
    assert {key for key, api in APIS.items() if not api.on_broker} == ONLY_ON_CONTROLLER
    for api in APIS.values():
        assert api.on_broker or api.on_controller
        if api.forwarded:
            assert api.on_broker
            assert api.on_controller


def test_produce_is_announced_from_0_and_served_from_3() -> None:
    produce = APIS[ApiKey.PRODUCE]
    assert produce.advertised_min_version == 0
    assert not produce.serves(2)
    assert produce.serves(3)
    assert APIS[ApiKey.FETCH].advertised_min_version == 4
