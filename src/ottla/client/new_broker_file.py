"""The properties file of a broker that joins a cluster, made from what a broker says that is there.

A broker describes its own settings (DescribeConfigs), and the quorum says where controllers listen. What differs from
machine to machine is replaced. Secrets and files of keys are not told by any broker: they are named in the file as what is
to be filled in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.client.admin import BROKER, Admin, ConfigEntry
from ottla.client.client import Client
from ottla.client.model import QuorumInfo
from ottla.client.voters import are_dynamic
from ottla.config.values import join_address, split_address

STATIC = 4
"""Kafka's source of settings that stand in a broker's file."""
OTHERS = (
    "node.id",
    "broker.id",
    "process.roles",
    "broker.rack",
    "listeners",
    "advertised.listeners",
    "controller.quorum.voters",
    "controller.quorum.bootstrap.servers",
    "metadata.log.dir",
    "metrics.listeners",
    "cordoned.log.dirs",
)
"""Settings that are not taken over as they are."""
KEYS = ("keystore", "truststore")
EVERYWHERE = ("", "0.0.0.0", "::")


class NewBroker(NamedTuple):
    id: int
    host: str
    rack: str | None
    more: Mapping[str, str]
    """Settings that win over all others."""


async def new_broker_file(client: Client, new: NewBroker, like: int) -> str:
    """The text of its file; `like` is a broker that lives."""
    cluster = await client.describe_cluster()
    quorum = await client.describe_quorum()
    resource = (BROKER, str(like))
    entries = (await Admin(client).describe_configs([resource]))[resource]
    is_dynamic = await are_dynamic(client, quorum)
    return file_text(new, like, cluster.cluster_id, quorum, entries, is_dynamic=is_dynamic)


def file_text(
    new: NewBroker,
    like: int,
    cluster_id: str,
    quorum: QuorumInfo,
    entries: Sequence[ConfigEntry],
    *,
    is_dynamic: bool,
) -> str:
    """`is_dynamic`: the voters can change, so nobody names them in his file."""
    given = {each.name: each for each in entries if each.source == STATIC}
    values = {name: each.value or "" for name, each in given.items()}
    controllers = _names(values.get("controller.listener.names", "CONTROLLER"))
    settings = {"node.id": str(new.id), "process.roles": "broker"}
    has_vote = "controller" in new.more.get("process.roles", "")
    settings |= _listeners({**values, **new.more}, () if has_vote else controllers, new.host)
    settings["controller.listener.names"] = ",".join(controllers)
    settings |= _quorum(values, quorum, is_dynamic)
    if new.rack is not None:
        settings["broker.rack"] = new.rack
    shared = taken_over(entries)
    missing = []
    for name, each in sorted(given.items()):
        if name in settings or name in OTHERS:
            continue
        if name in shared:
            settings[name] = shared[name]
        else:
            missing.append(f"#{name}={'' if each.sensitive else values[name]}")
    settings |= new.more
    missing = [line for line in missing if line[1:].partition("=")[0] not in new.more]
    first = " --no-initial-controllers" if has_vote else ""
    lines = [
        f"# Broker {new.id} of cluster {cluster_id}, with the settings of broker {like}.",
        "# Once, on the new machine, with this file as server.properties:",
        f"#   ottla kafka-storage format --cluster-id {cluster_id} --config server.properties{first}",
        "# and then:",
        "#   ottla node --config server.properties",
        "# (of Apache Kafka: kafka-storage.sh format, kafka-server-start.sh)",
        f"# Look at the paths: they are those of broker {like}. What was set for all brokers while they ran",
        "# (kafka-configs --entity-default) holds for this one, too, and is not written here.",
        *(f"{name}={_escaped(value)}" for name, value in settings.items()),
    ]
    if missing:
        lines += ["", "# Of this machine alone: fill in, and remove the #.", *missing]
    return "\n".join(lines) + "\n"


def taken_over(entries: Sequence[ConfigEntry]) -> dict[str, str]:
    """Settings of a broker's file that hold for any other broker, too."""
    return {
        each.name: each.value or ""
        for each in entries
        if each.source == STATIC
        and each.name not in OTHERS
        and not each.sensitive
        and not any(word in each.name for word in KEYS)
    }


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _listeners(values: Mapping[str, str], left_out: Sequence[str], host: str) -> dict[str, str]:
    """The same names and ports, on another machine. All are advertised, that of a controller too: without a name for it, a node
    says where its own machine calls itself, and that may be localhost."""
    bound, advertised = [], []
    for each in _names(values.get("listeners", "")) or ["PLAINTEXT://:9092"]:
        name, _, address = each.partition("://")
        if name in left_out:
            continue
        at, port = split_address(address)
        is_everywhere = at in EVERYWHERE
        bound.append(f"{name}://{f':{port}' if is_everywhere else join_address(host, port)}")
        advertised.append(f"{name}://{join_address(host, port)}")
    found = {"listeners": ",".join(bound)}
    return found if bound == advertised else found | {"advertised.listeners": ",".join(advertised)}


def _quorum(values: Mapping[str, str], quorum: QuorumInfo, is_dynamic: bool) -> dict[str, str]:
    at = {each.id: each.listeners[0] for each in quorum.voters if each.listeners}
    if is_dynamic and at:
        servers = ",".join(join_address(host, port) for _, host, port in at.values())
        return {"controller.quorum.bootstrap.servers": servers}
    named = values.get("controller.quorum.voters")
    voters = named or ",".join(
        f"{id}@{join_address(host, port)}" for id, (_, host, port) in at.items()
    )
    return {"controller.quorum.voters": voters}


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\")
