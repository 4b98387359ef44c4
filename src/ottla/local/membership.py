"""Nodes that join and leave a cluster on this machine, after it was made.

A node that joins gets the settings of those that are there. Who votes is changed by `ottla controllers`.
No record is deleted when a node leaves or loses its disk: its directory gets another name, since kept records and logs may be
of use.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ottla.config.sources import read_lines
from ottla.local.cluster import HOST, OF_EACH_NODE, SECURED, LocalCluster, LocalNode
from ottla.local.errors import Conflict
from ottla.local.ports import free_ports, reserve

RACK = "broker.rack"
QUORUM = ("controller.quorum.voters", "controller.quorum.bootstrap.servers")
"""These name nodes that come and go, and are always the cluster's."""


def join(
    cluster: LocalCluster,
    id: int,
    rack: str | None,
    settings: Mapping[str, str] | None = None,
    *,
    controller: bool = False,
) -> LocalNode:
    """A new node of the cluster, which is not started yet. `settings` win over those of the other nodes. `controller`: it
    can get a vote, too."""
    if id in cluster.nodes:
        raise Conflict(f"{cluster.directory}: has a node {id}")
    directory = cluster.node_directory(id)
    if _has_been_used(directory, cluster.config_file(id).name):
        raise Conflict(f"{directory}: exists, and is no node of this cluster; remove it first")
    more = _settings_of_all(cluster)
    if rack is not None:
        more[RACK] = rack
    others = list(cluster.nodes.values())
    count = 1 + controller + any(o.metrics_port for o in others) + cluster.secure
    ports = iter(_ports(cluster, count))
    node = LocalNode(
        id,
        next(ports),
        next(ports) if controller else None,
        next(ports) if any(other.metrics_port for other in others) else None,
        next(ports) if cluster.secure else None,
    )
    cluster.nodes[id] = node
    try:
        cluster._check(settings or {})
        directory.mkdir(parents=True, exist_ok=True)
        if cluster.secure:
            from ottla.local.private_files import private_directory
            from ottla.local.secure import renew_nodes

            private_directory(directory)
            renew_nodes(cluster, [id])
        cluster.configure(id, more | dict(settings or {}))
    except BaseException:
        del cluster.nodes[id]
        raise
    cluster.save()
    return node


def become_controller(cluster: LocalCluster, id: int) -> LocalNode:
    """The node, which does not run, can get a vote when it is started. No other node's file changes."""
    node = cluster.node(id)
    if node.controller_port is not None:
        return node
    own = _own_settings(cluster, id)
    (port,) = _ports(cluster, 1)
    cluster.nodes[id] = replace(node, controller_port=port)
    cluster.configure(id, own)
    cluster.save()
    return cluster.nodes[id]


def voters_may_change(cluster: LocalCluster) -> None:
    """The log says who votes, since kraft.version is 1. A node on an empty disk must not ask those that its file names: they
    may be gone. So the files say where controllers listen, as those of a cluster that was made so."""
    if cluster.dynamic_voters:
        return
    own = {id: _own_settings(cluster, id) for id in cluster.nodes}
    cluster.dynamic_voters = True
    for id, settings in own.items():
        cluster.configure(id, settings)
    cluster.save()


def _own_settings(cluster: LocalCluster, id: int) -> dict[str, str]:
    """What the node's file has beside what the cluster gives it."""
    given = cluster._settings(cluster.nodes[id])
    return {
        entry.name: entry.value
        for entry in read_lines(str(cluster.config_file(id)))
        if given.get(entry.name) != entry.value and entry.name not in QUORUM
    }


def _has_been_used(directory: Path, settings: str) -> bool:
    """What an interrupted `join` left is made again: only a node that was started has more than settings and keys."""
    made = {"tls", settings, f"{settings}.new"}
    return directory.exists() and any(each.name not in made for each in directory.iterdir())


def leave(cluster: LocalCluster, id: int) -> Path | None:
    """The node, which does not run, is no longer part of the cluster, and its key is deleted. Where its files are now."""
    cluster.node(id)
    shutil.rmtree(cluster.node_directory(id) / "tls", ignore_errors=True)
    kept = _put_aside(cluster.node_directory(id), "removed")
    del cluster.nodes[id]
    cluster.save()
    return kept


def empty_disk(cluster: LocalCluster, id: int) -> Path | None:
    """The node, which does not run, starts with nothing next time. Where its records are now, if it has any."""
    cluster.node(id)
    return _put_aside(cluster.node_directory(id) / "data", "lost")


def _put_aside(path: Path, word: str) -> Path | None:
    if not path.exists():
        return None
    number = 1
    while (aside := path.with_name(f"{path.name}.{word}-{number}")).exists():
        number += 1
    return path.rename(aside)


def _settings_of_all(cluster: LocalCluster) -> dict[str, str]:
    """What the nodes' files have in common, but for what `LocalCluster` gives to each of them."""
    found: list[dict[str, str]] = []
    for id in cluster.nodes:
        file = cluster.config_file(id)
        if file.exists():
            found.append({entry.name: entry.value for entry in read_lines(str(file))})
    # Super users are those of the others, so that all nodes agree who they are; a new node has its rights by ACLs.
    own = {*OF_EACH_NODE, *SECURED, RACK} - {"super.users"}
    first, *rest = found or [{}]
    return {
        name: value
        for name, value in first.items()
        if name not in own
        and not name.startswith("listener.name.")
        and all(each.get(name) == value for each in rest)
    }


def _ports(cluster: LocalCluster, count: int) -> list[int]:
    """Those after the cluster's own, if they are free: people open ranges in firewalls."""
    highest = max(port for node in cluster.nodes.values() for port in node.ports)
    following = list(range(highest + 1, highest + 1 + count))
    if following[-1] <= 65535 and reserve(following, HOST):
        return following
    return free_ports(count)
