"""Several nodes on one machine: what each is told, so that a machine's loss costs one replica of everything."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.config.node_settings import Settings
from ottla.config.sources import read_properties
from ottla.controller.placement import PlaceableBroker, place
from ottla.local.cluster import LocalCluster
from ottla.local.errors import InvalidUse
from support.counting import stepped


def settings_of(cluster: LocalCluster) -> dict[int, Settings]:
    found = {}
    for id in cluster.nodes:
        entries = read_properties(str(cluster.config_file(id)))
        found[id] = Settings.of({each.name: each.value for each in entries}, "file")
    return found


def test_nodes_of_a_machine_share_a_rack_and_one_controller(tmp_path: Path) -> None:
    cluster = LocalCluster.create(tmp_path, 6, 0, per_machine=2)
    settings = settings_of(cluster)
    racks = [each.broker_rack for each in settings.values()]
    assert racks == ["machine-1", "machine-1", "machine-2", "machine-2", "machine-3", "machine-3"]
    assert [id for id, each in settings.items() if each.is_controller] == [1, 3, 5]
    assert {each.default_replication_factor for each in settings.values()} == {3}
    assert LocalCluster.load(tmp_path).per_machine == 2


def test_there_are_never_more_replicas_than_machines(tmp_path: Path) -> None:
    for machines, replicas in ((1, 1), (2, 2), (4, 3)):
        cluster = LocalCluster.create(tmp_path / str(machines), 4 * machines, 0, per_machine=4)
        for each in settings_of(cluster).values():
            assert each.default_replication_factor == replicas
            assert each.offsets_topic_replication_factor == replicas
            assert each.min_insync_replicas == min(2, machines)


def test_without_machines_nothing_is_said_about_racks(tmp_path: Path) -> None:
    settings = settings_of(LocalCluster.create(tmp_path, 3, 0))
    assert {each.broker_rack for each in settings.values()} == {None}
    assert all(each.is_controller for each in settings.values())


def test_a_rack_of_ones_own_beside_machines_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidUse, match=r"broker\.rack: every node gets its own"):
        LocalCluster.create(tmp_path, 2, 0, {"broker.rack": "mine"}, per_machine=2)


@given(
    sizes=st.lists(st.integers(1, 5), min_size=3, max_size=6),
    factor=st.integers(1, 3),
    dead=st.sets(st.integers(1, 30), max_size=4),
    start=st.integers(0, 50),
)
def test_no_two_replicas_of_a_partition_share_a_machine(
    sizes: list[int], factor: int, dead: set[int], start: int
) -> None:
    """Also if machines differ in their number of nodes, and some nodes are down."""
    machine_of = [number for number, size in enumerate(sizes) for _ in range(size)]
    brokers = [
        PlaceableBroker(id, f"machine-{machine}", id not in dead)
        for id, machine in enumerate(machine_of, 1)
    ]
    if not any(broker.alive for broker in brokers):
        return
    for replicas in place(brokers, 40, factor, start):
        assert len({machine_of[id - 1] for id in replicas}) == len(replicas) == factor


def test_a_partition_costs_no_look_at_every_broker() -> None:
    def steps(machines: int) -> int:
        brokers = [PlaceableBroker(id, f"m{id % machines:04}", True) for id in range(4 * machines)]
        with stepped() as counted:
            place(brokers, 0, 3)
        empty = counted.count
        with stepped() as counted:
            place(brokers, 50, 3)
        return counted.count - empty

    assert steps(100) < 1.1 * steps(10)
