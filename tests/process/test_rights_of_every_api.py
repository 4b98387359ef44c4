"""Every row of the table of rights on a cluster of three processes, by users who log in: with exactly the rights, and without each
of them. The broker that is asked is not the active controller, so that what it passes on travels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.rights.exchange import Listener
from support.rights.stage import RightsCluster, cluster_of_rights
from support.rights.table import CASES

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RightsCluster]:
    with cluster_of_rights(tmp_path_factory.mktemp("rights"), 3) as logins:
        yield RightsCluster(logins)


@pytest.mark.parametrize("listener", Listener)
def test_each_request_is_answered_as_the_table_says(
    cluster: RightsCluster, listener: Listener
) -> None:
    different = [
        difference
        for at, each in CASES
        if at is listener and each.is_served_by_ottla(at)
        for difference in cluster.differences(at, each, kafka=False)
    ]
    assert not different, "\n" + "\n".join(different)
