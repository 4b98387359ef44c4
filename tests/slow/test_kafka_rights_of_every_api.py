"""The table of rights that our cluster keeps to, against Apache Kafka with its StandardAuthorizer: the same requests by the same
users are answered in the same way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.kafka_server import kafka_instead
from support.rights.exchange import Listener
from support.rights.stage import RightsCluster, cluster_of_rights
from support.rights.table import CASES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RightsCluster]:
    """Our node makes the directory. Kafka's programme then runs with the same settings."""
    with cluster_of_rights(tmp_path_factory.mktemp("rights"), 1) as logins:
        logins.cluster.stop(1)
        with kafka_instead(logins.cluster):
            yield RightsCluster(logins)


@pytest.mark.parametrize("listener", Listener)
def test_kafka_answers_as_the_table_says(kafka: RightsCluster, listener: Listener) -> None:
    different = [
        difference
        for at, each in CASES
        if at is listener
        for difference in kafka.differences(at, each, kafka=True)
    ]
    assert not different, "\n" + "\n".join(different)
