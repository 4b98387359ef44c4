"""Generated conversations with ottla and with Apache Kafka: whatever they answer differently is decided and documented."""

from __future__ import annotations

import os
from typing import NamedTuple

import pytest

from ottla.wire.apis import ApiKey
from support.differential.conversations import At, Conversation
from support.differential.known import BOTH, DECIDED, KAFKA, OTTLA
from support.differential.run import Exchange, both, both_controllers, converse, versions

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

FIRST = int(os.environ.get("OTTLA_DIFFERENTIAL_SEED", "1"))
"""Other seeds tell other conversations."""
AT_BROKERS = 100
AT_CONTROLLERS = 30
ODD_SHARES = (0.12, 0.3)
EXCHANGES_MIN = 2_000


class Told(NamedTuple):
    exchanges: list[Exchange]
    served: dict[At, set[ApiKey]]
    """What both serve there, and what is asked about at all."""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """All conversations."""
    all_told = Told([], {})
    for at, begin, number in (
        (At.BROKER, both, AT_BROKERS),
        (At.CONTROLLER, both_controllers, AT_CONTROLLERS),
    ):
        with begin(tmp_path_factory.mktemp(at.name.lower())) as (ottla, kafka):
            known = versions(kafka, at)
            all_told.served[at] = set(known)
            for seed in range(FIRST, FIRST + number):
                odd_share = ODD_SHARES[seed % len(ODD_SHARES)]
                all_told.exchanges.extend(
                    converse(ottla, kafka, Conversation(seed, known, odd_share, at))
                )
    return all_told


def test_every_difference_is_decided(told: Told) -> None:
    found = [
        f"seed {each.seed} exchange {each.number} {each.step}: {difference}"
        for each in told.exchanges
        for difference in each.undecided
    ]
    assert not found, "\n".join(found[:20])
    assert len(told.exchanges) >= EXCHANGES_MIN


def test_every_api_that_both_serve_is_asked(told: Told) -> None:
    asked = {each.step.key for each in told.exchanges}
    missing = set().union(*told.served.values()) - asked
    assert not missing, f"never asked: {sorted(key.name for key in missing)}"


def test_every_entry_says_who_is_right_and_why() -> None:
    for each in DECIDED:
        assert each.right in (OTTLA, KAFKA, BOTH), each
        assert len(each.reason.split()) >= 4 and "unknown" not in each.reason, each
