"""A skewed cluster is balanced, with real bytes and at the default tolerance (P39)."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.cluster import ProcessCluster
from support.skewed import check_that_a_skewed_cluster_is_balanced, command

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_P39_a_topic_with_most_bytes_on_one_broker_is_spread_with_few_bytes_moved(
    tmp_path: Path,
) -> None:
    with ProcessCluster(tmp_path / "cluster", 4) as cluster:
        check_that_a_skewed_cluster_is_balanced(cluster, 20_000_000, 40)
        (again,) = command(cluster, "balance", "plan", "--tolerance", "12")
        assert again["bytes_to_move"] == 0
