"""Each API has one handler on each listener that announces it, and the handler says which versions it serves."""

from __future__ import annotations

import re

import pytest
from fuzzed_node import FuzzedNode

from ottla.broker.server.connections import Request
from ottla.broker.server.registration import handlers_of, serves
from ottla.wire.apis import APIS, PRIVATE_APIS, ApiKey
from support.api_handlers import PASS_ON, deciders, left_out, named_versions
from support.damage import BROKER, CONTROLLER


class Topics:
    @serves(ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS)
    def both(self, request: Request) -> None:
        pass


class FewerTopics(Topics):
    def both(self, request: Request) -> None:
        raise NotImplementedError


class Deleting:
    @serves(ApiKey.DELETE_TOPICS)
    def __call__(self, request: Request) -> None:
        pass


def test_a_listener_serves_exactly_what_it_announces_and_what_only_ottla_asks() -> None:
    with FuzzedNode() as node:
        served = {name: set(server.handlers) for name, server in node.node.servers.items()}
    announced = {api.key for api in APIS.values() if api.on_broker}
    assert served[BROKER] == announced | PRIVATE_APIS.keys()
    assert served[CONTROLLER] == {api.key for api in APIS.values() if api.on_controller}


def test_what_decides_on_an_api_names_its_versions() -> None:
    said: set[ApiKey] = set()
    for function, keys in deciders():
        wanted = {APIS[key].name: (APIS[key].min_version, APIS[key].max_version) for key in keys}
        assert named_versions(function) == wanted, f"the docstring of {function.__qualname__}"
        said.update(keys)
    assert said == APIS.keys()


def test_what_is_left_out_ends_the_docstring() -> None:
    read = left_out()
    for function, keys in deciders():
        if "left out" in (function.__doc__ or "").lower():
            assert read.keys() >= set(keys), f"the docstring of {function.__qualname__}"
    assert read[ApiKey.FIND_COORDINATOR] == "share groups (key type 2)"


def test_what_passes_requests_on_leaves_the_versions_to_what_decides() -> None:
    for method in PASS_ON:
        assert not named_versions(method)
        assert re.search(r"`controller_commands`", method.__doc__ or "")


def test_marked_methods_are_collected_bound() -> None:
    topics = Topics()
    handlers = handlers_of(topics)
    assert handlers == {
        ApiKey.CREATE_TOPICS: topics.both,
        ApiKey.DELETE_TOPICS: topics.both,
    }


def test_an_object_with_one_api_is_its_handler() -> None:
    """No method is bound for each request."""
    deleting = Deleting()
    assert handlers_of(deleting)[ApiKey.DELETE_TOPICS] is deleting


def test_an_override_serves_what_it_overrides() -> None:
    fewer = FewerTopics()
    assert handlers_of(fewer)[ApiKey.CREATE_TOPICS] == fewer.both


def test_an_api_with_two_handlers_is_refused() -> None:
    with pytest.raises(AssertionError, match=r"DELETE_TOPICS.* has two handlers: .*Topics\.both"):
        handlers_of(Topics(), Deleting())


def test_an_object_without_handlers_is_refused() -> None:
    with pytest.raises(AssertionError, match="object serves no API"):
        handlers_of(object())


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ((), "at least one"),
        ((ApiKey.SHARE_FETCH,), "SHARE_FETCH.* no row in wire/apis.py"),
        ((ApiKey.FETCH, ApiKey.FETCH), "twice"),
    ],
)
def test_a_wrong_mark_is_refused(keys: tuple[ApiKey, ...], why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        serves(*keys)


def test_a_method_is_marked_once() -> None:
    with pytest.raises(AssertionError, match="marked already"):
        serves(ApiKey.FETCH)(Topics.both)
