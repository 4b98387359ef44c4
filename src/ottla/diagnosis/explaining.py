"""From a name to explanations, of a cluster that runs: what the name may be, what is looked at, who puts it into words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Self

from ottla.client import Client
from ottla.client.connections import Address
from ottla.diagnosis.explain_broker import explain_broker
from ottla.diagnosis.explain_group import explain_group
from ottla.diagnosis.explain_partition import explain_partition
from ottla.diagnosis.explanation import Explanation
from ottla.diagnosis.happened import Happened
from ottla.diagnosis.history import fetched_history
from ottla.diagnosis.looking import Look, NodeHere
from ottla.diagnosis.lost_disks import data_of
from ottla.diagnosis.now import ClusterNow, Commands
from ottla.diagnosis.topics import merged
from ottla.local.cluster import LocalCluster
from ottla.local.processes import is_paused
from ottla.runtime.seams import Clock


class Subject(NamedTuple):
    """What the name may be."""

    name: str
    topic: bool
    group: bool
    broker: bool

    @classmethod
    def of(cls, about: str) -> Self | None:
        """From `partition:orders-0`, `topic:orders`, `group:billing` or `broker:2`; None from anything else."""
        kind, _, name = about.partition(":")
        if kind not in ("partition", "topic", "group", "broker") or not name:
            return None
        return cls(name, kind in ("partition", "topic"), kind == "group", kind == "broker")

    @property
    def broker_id(self) -> int | None:
        match = re.fullmatch(r"(?:broker-?)?(\d+)", self.name)
        return int(match[1]) if match is not None and self.broker else None

    def places(self) -> list[tuple[str, int | None]]:
        """A topic, or a topic and a partition: `a-1` may be both."""
        if not self.topic:
            return []
        topic, dash, number = self.name.rpartition("-")
        is_partition = bool(dash and topic) and number.isdecimal()
        return [(self.name, None), *([(topic, int(number))] if is_partition else [])]


class Here(NamedTuple):
    """What the directory of a cluster on this machine says of it; empty for any other cluster."""

    nodes: Mapping[int, NodeHere] = {}
    voters: tuple[int, ...] = ()

    @classmethod
    def of(cls, local: LocalCluster) -> Here:
        nodes = {
            id: NodeHere(
                node.address,
                node.running,
                str(local.config_file(id)),
                node.pid if node.running else None,
                None if (ended := local.end_time(id)) is None else round(ended * 1000),
                node.pid is not None and node.running and is_paused(node.pid),
                data_of(local, id),
            )
            for id, node in local.nodes.items()
        }
        controllers = (node.id for node in local.nodes.values() if node.controller_port is not None)
        return cls(nodes, tuple(controllers))


class Circumstances(NamedTuple):
    """A cluster now, and what happened in it before."""

    look: Look
    cluster: ClusterNow
    entries: list[Happened]
    missing: str
    """What is not known of what happened; empty if nothing."""


async def situation(
    client: Client, clock: Clock, bootstrap: Sequence[Address], here: Here
) -> Circumstances:
    """Unreachable if no broker answers."""
    look = Look(client, clock, bootstrap, here.nodes, here.voters)
    cluster = await look.cluster()
    entries, missing = await fetched_history(client, cluster.now_ms, cluster.unreachable)
    return Circumstances(look, cluster, entries, missing)


async def explained(wanted: Subject, found: Circumstances, commands: Commands) -> list[Explanation]:
    """Of everything that has the name; empty if there is nothing."""
    look, cluster, entries = found.look, found.cluster, found.entries
    if found.missing:
        look.unknown.append(found.missing)

    def known() -> ClusterNow:
        return replace(cluster, unknown=tuple(look.unknown))

    explanations: list[Explanation] = []
    for topic, partition in wanted.places():
        told = await look.partitions(topic, partition, cluster)
        explanations += merged(
            [explain_partition(each, known(), entries, commands) for each in told]
        )
    if wanted.group and (group := await look.group(wanted.name, cluster)) is not None:
        explanations.append(explain_group(group, known(), entries, commands))
    if wanted.broker_id is not None and wanted.broker_id in cluster.brokers:
        duties = await look.duties(wanted.broker_id)
        broker = cluster.brokers[wanted.broker_id]
        explanations.append(explain_broker(broker, duties, known(), entries, commands))
    return explanations
