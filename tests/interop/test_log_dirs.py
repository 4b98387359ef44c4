"""Real admin clients move replicas between the directories of a broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import kafka
import kafka.errors
import pytest

from support.cluster import ProcessCluster, wait_until
from support.disks import give_second_disks, second_disk


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    cluster = ProcessCluster(tmp_path_factory.mktemp("dirs"), 1)
    give_second_disks(cluster)
    with cluster:
        yield cluster


def test_kafka_python_moves_a_replica_to_another_directory(cluster: ProcessCluster) -> None:
    topic = cluster.create_topic("moved", assignment=[[1]])
    both = [cluster.nodes[1].data, second_disk(cluster, 1)]

    def lies_in() -> list[Path]:
        return [each for each in both if (each / f"{topic}-0").is_dir()]

    (before,) = lies_in()
    (other,) = set(both) - {before}
    admin = kafka.KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        replica = (topic, 0, 1)
        (refused,) = admin.alter_replica_log_dirs({replica: "/nowhere"}).values()
        assert refused is kafka.errors.LogDirNotFoundError
        (moved,) = admin.alter_replica_log_dirs({replica: str(other)}).values()
        assert moved is kafka.errors.NoError
        wait_until(lambda: lies_in() == [other], 20, "moved")
    finally:
        admin.close()
