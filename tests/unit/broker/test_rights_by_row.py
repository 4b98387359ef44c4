"""The table of exchanges on a node in this process, where one sees that a refused request changes nothing; and that the table leaves
out no row of `security.needs`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import ruled_node
from ruled_node import RuledNode

from ottla.security.needs import ON_BROKER, ON_CONTROLLER, Needs
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.internal_topics import UNLISTED_TOPICS
from support.rights.exchange import (
    TOPIC,
    Exchange,
    Fields,
    Given,
    Known,
    Listener,
    Outcome,
    filled,
    outcome,
)
from support.rights.stage import set_stage
from support.rights.table import CASES, NO_EXCHANGE, TOKEN_APIS, forms

LISTENERS = {Listener.BROKER: ruled_node.BROKER, Listener.CONTROLLER: ruled_node.CONTROLLER}
TABLES: Mapping[Listener, Mapping[int, Needs]] = {
    Listener.BROKER: ON_BROKER,
    Listener.CONTROLLER: ON_CONTROLLER,
}
HERE = [
    (listener, each)
    for listener, each in CASES
    # Nobody asks about tokens without a login.
    if each.is_served_by_ottla(listener) and each.key not in TOKEN_APIS
]


class Stage:
    def __init__(self, ruled: RuledNode) -> None:
        def ask(key: ApiKey, fields: Fields, version: int | None = None) -> Any:
            return ruled.ask(ruled.admin, key, dict(fields), version=version)

        self.ruled = ruled
        self.known: Mapping[Known, object] = set_stage(ask, 1)

    def outcome(self, listener: Listener, each: Exchange, held: frozenset[Given]) -> Outcome:
        name = self.ruled.somebody(*held)
        channel = self.ruled.log_in(name, LISTENERS[listener], each.client_id)
        try:
            fields = filled(each.fields, self.known)
            answer = self.ruled.ask(channel, each.key, fields, version=each.version)
        finally:
            channel.close()
        return outcome(answer, each.looks_at, self.known)

    def state(self) -> tuple[Any, ...]:
        """What nobody may change without a right."""
        quorum, broker = self.ruled.node.quorum, self.ruled.node.broker
        assert quorum is not None and broker is not None
        image = quorum.image
        return (
            quorum.epoch,
            quorum.leader_id,
            image.brokers,
            # Refusals are told in a topic, which is made when it is needed.
            {name: topic for name, topic in image.topics.items() if name not in UNLISTED_TOPICS},
            image.next_producer_id,
            image.controllers,
            broker.replicas.get(TOPIC, 0).log.log_end,  # nodes write into their own topics any time
        )


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    ruled = RuledNode(tmp_path_factory.mktemp("ruled"))
    yield Stage(ruled)
    ruled.close()


@pytest.mark.parametrize(
    ("listener", "each"), HERE, ids=[f"{listener.value}: {each}" for listener, each in HERE]
)
def test_what_is_needed_is_asked_for_and_is_enough(
    stage: Stage, listener: Listener, each: Exchange
) -> None:
    *refused, (rights, served, _) = each.right_sets()
    before = stage.state()
    for held, expected, _ in refused:
        assert stage.outcome(listener, each, held) == expected, f"with {sorted(held)}"
    if not each.are_apart:  # then something is done each time
        assert stage.state() == before
    assert stage.outcome(listener, each, rights) == served


def test_every_form_of_every_row_has_an_exchange() -> None:
    wanted = {
        (listener, key, when)
        for listener, table in TABLES.items()
        for key in table
        for when in [form.when for form in forms(listener, key)] or [""]
    }
    tried = {(listener, int(each.key), each.when) for listener, each in CASES}
    assert wanted - tried == NO_EXCHANGE.keys()
    assert tried <= wanted


@pytest.mark.parametrize("listener", Listener)
def test_exchanges_need_what_the_rows_say(listener: Listener) -> None:
    tried: dict[int, set[tuple[Any, ...]]] = {}
    for at, each in CASES:
        if at is not listener:
            continue
        needs = [(need, form.left_out) for form in forms(listener, each.key) for need in form.needs]
        for lack in each.lacks:
            kind, _, operation = lack.right
            tried.setdefault(each.key, set()).add((kind, operation))
            codes = {code for path, code in lack.outcome.items() if path.endswith("error_code")}
            assert any(
                (kind, operation) == right[:2]
                and (
                    codes == {int(need.denied)}
                    or (each.are_apart and need.denied in codes)
                    or (left_out and not codes)
                )
                for need, left_out in needs
                for right in need.any_of
            ), f"{each}: {lack}"
    for key in TABLES[listener]:
        named = {
            right[:2]
            for form in forms(listener, key)
            if (listener, key, form.when) not in NO_EXCHANGE
            for need in form.needs
            for right in need.any_of
        }
        assert named <= tried.get(key, set()), APIS.get(ApiKey(key), key)
