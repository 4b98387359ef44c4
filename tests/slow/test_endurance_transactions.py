"""Exactly once for minutes, while brokers die all the time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.pipeline import endure


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_C3_each_input_has_one_output_while_brokers_are_killed_for_two_minutes(
    new_cluster: Callable[..., Any], protocol: str
) -> None:
    endure(new_cluster(3), protocol, seconds=120, every=(2.0, 6.0), seed=5)
