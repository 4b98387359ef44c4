"""Formatting the controllers of a local cluster: the first voters where voters may change, and the first users."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

from ottla.local.cluster import HOST, LocalCluster
from ottla.metadata.records import MetadataRecord
from ottla.raft.format import format_directory
from ottla.raft.voters import QuorumEndpoint, Voter, VoterSet
from ottla.runtime.files import RealDisk


def format_controllers(cluster: LocalCluster, records: Sequence[MetadataRecord] = ()) -> None:
    """`records` are the first ones of the metadata, after its features."""
    directories = {
        node.id: (uuid4(), node.controller_port)
        for node in cluster.nodes.values()
        if node.controller_port is not None
    }
    voters = None
    if cluster.dynamic_voters:
        voters = VoterSet.of(
            Voter(id, directory, (QuorumEndpoint("CONTROLLER", HOST, port),))
            for id, (directory, port) in directories.items()
        )
    for id, (directory, _) in directories.items():
        format_directory(
            RealDisk(),
            str(cluster.node_directory(id) / "data"),
            cluster_id=cluster.cluster_id,
            node_id=id,
            directory_id=directory,
            voters=voters,
            records=records,
        )
