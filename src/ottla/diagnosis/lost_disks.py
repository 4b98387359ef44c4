"""A node of this machine whose disk is gone: what brings it back, and what brings back a quorum that lost its majority so.

To start such a node as if nothing had happened would be wrong advice: it comes back empty, and where it had the only replica
in sync nobody would have asked whether that loss is accepted. `ottla brokers replace` asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from ottla.config.sources import read_properties
from ottla.config.values import ConfigError
from ottla.diagnosis.words import listed
from ottla.local.cluster import LocalCluster

VOTERS = "controller.quorum.voters"
PAGE = "docs/A_MACHINE_DIED.md"


@dataclass(frozen=True)
class NodeData:
    """What is left of a node on this machine, and how it votes."""

    node: int
    lost: tuple[str, ...] = ()
    """Its log directories, if all of them are gone."""
    config: str = ""
    """Its file of settings."""
    is_controller: bool = False
    vote: str = ""
    """Its place in `controller.quorum.voters`, where voters are static: ID@HOST:PORT."""

    @property
    def lost_text(self) -> str:
        """What follows a statement about its process."""
        if not self.lost:
            return ""
        which = "its log directory" if len(self.lost) == 1 else "its log directories"
        return f"{which} {listed(self.lost)} {'is' if len(self.lost) == 1 else 'are'} gone"


Ottla = Callable[[str], str]
"""Makes a command of the words after `ottla`."""


def data_of(cluster: LocalCluster, id: int) -> NodeData:
    file = cluster.config_file(id)
    voters = _settings(file).get(VOTERS, "").split(",")
    return NodeData(
        id,
        tuple(map(str, cluster.lost_directories(id))),
        str(file),
        cluster.nodes[id].controller_port is not None,
        next((each.strip() for each in voters if each.strip().startswith(f"{id}@")), ""),
    )


def _settings(file: Path) -> dict[str, str]:
    try:
        return {entry.name: entry.value for entry in read_properties(str(file))}
    except ConfigError:
        return {}


def replace_commands(data: NodeData, ottla: Ottla) -> list[str]:
    """For a node whose disk is gone, while there is an active controller."""
    votes_anew = data.is_controller and not data.vote
    return [
        ottla(f"brokers replace {data.node}"),
        *([ottla(f"controllers replace {data.node}")] if votes_anew else []),
    ]


@dataclass(frozen=True)
class WayBack:
    """How a quorum without a majority comes back. No command: there is none."""

    text: str
    commands: tuple[str, ...] = ()


def recovery(nodes: Mapping[int, NodeData], ended: Iterable[int], ottla: Ottla) -> WayBack | None:
    """None if no disk is gone: then it is enough to start the nodes that ended."""
    gone = [id for id, each in nodes.items() if each.lost]
    if not gone:
        return None
    voters = [each for each in nodes.values() if each.is_controller]
    left = [each for each in voters if not each.lost]
    if 2 * len(left) > len(voters):
        whole = [id for id in ended if not nodes[id].lost]
        return WayBack(
            f"Start the nodes that have their disks. Then put empty ones in the place of {_nodes(gone)}.",
            (
                *(ottla(f"nodes start {id}") for id in whole),
                *(each for id in gone for each in replace_commands(nodes[id], ottla)),
            ),
        )
    lost = f"the disks of {len(voters) - len(left)} of {len(voters)} controllers are gone"
    if not left:
        return WayBack(
            f"{lost.capitalize()}, and with them all metadata: which topics there are, and who may do what. Only a disk that"
            " is found again brings it back."
        )
    if not all(each.vote for each in left):
        return WayBack(
            f"{lost.capitalize()}, and the voters that are named in the metadata log can change only by a majority of them."
            " Only one of these disks, mounted again where it was, brings the quorum back."
        )
    return WayBack(
        f"{lost.capitalize()}. Let {_nodes([each.node for each in left])} vote alone, until the others have copied the metadata;"
        f" then all vote again. What only the others had decided is lost ({PAGE}).",
        _alone(left, ottla),
    )


def _alone(left: Sequence[NodeData], ottla: Ottla) -> tuple[str, ...]:
    """The lines of `controller.quorum.voters` are edited twice: without those that have no disk, and as they were."""
    few = ",".join(each.vote for each in left)
    begin = [
        f"sed -i.all-voters {quote(f's/^controller.quorum.voters=.*/{VOTERS}={few}/')} {quote(each.config)}"
        for each in left
    ]
    end = [
        f"mv {quote(f'{each.config}.all-voters')} {quote(each.config)}"
        f" && {ottla(f'nodes stop {each.node}')} && {ottla(f'nodes start {each.node}')}"
        for each in left
    ]
    return (ottla("down"), *begin, ottla("up --detach"), *end)


def _nodes(ids: Sequence[int]) -> str:
    return f"node{'s' if len(ids) > 1 else ''} {listed(ids)}"
