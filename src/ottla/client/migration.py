"""Which brokers of a cluster are ottla's and which Apache Kafka's, and what would be refused if all became of one kind.

Nothing is remembered outside the cluster: how far a migration is follows from who is registered, who has replicas, who is
cordoned and who votes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from ottla.client.admin import BROKER, TOPIC, Admin, ConfigEntry, DescribedTopic
from ottla.client.broker_changes import BrokerChanges
from ottla.client.client import Client
from ottla.client.group_admin import GroupAdmin
from ottla.client.model import QuorumInfo, QuorumReplica
from ottla.client.new_broker_file import taken_over
from ottla.client.reassigning import LOOK_AGAIN_S, Reassigner
from ottla.config.checking import faults_of
from ottla.config.values import STANDARD_AUTHORIZER
from ottla.wire.apis import ApiKey
from ottla.wire.internal_topics import UNLISTED_TOPICS

OURS_ALONE: Final = "ottla.event.log.enable"
"""A setting that only ottla's brokers know. Apache Kafka's show one that stands in their file, but hide its value."""
AUTHORIZER: Final = "authorizer.class.name"
REMOTE_STORAGE: Final = "remote.storage.enable"
TIERED: Final = "remote.log.storage.system.enable"
UNSERVED_GROUPS: Final = frozenset({"share", "streams"})
NAMED_MAX: Final = 5
SILENT_S: Final = 5.0
"""A node that runs fetches the metadata more often than that."""


Levels = Mapping[str, tuple[int, int]]
"""Features with their least and greatest level that ottla's nodes register."""


class Kind(Enum):
    OTTLA = "ottla"
    KAFKA = "kafka"

    @property
    def other(self) -> Kind:
        return Kind.KAFKA if self is Kind.OTTLA else Kind.OTTLA


class Readiness(NamedTuple):
    """Something that a check looked at."""

    what: str
    refused: bool
    why: str
    """Also what to do, if it is refused."""


class Seen(NamedTuple):
    """What a check looks at; gathered from the cluster, so that `findings` needs none."""

    to: Kind
    features: Mapping[str, int]
    """Finalized levels."""
    known_levels: Levels
    groups: Sequence[tuple[str, str]]
    """Name and type."""
    topics: Mapping[str, DescribedTopic]
    tiered_topics: Sequence[str]
    brokers: Mapping[int, Sequence[ConfigEntry]]
    """Settings of those brokers that shall go."""
    refused_settings: Sequence[str]
    """Lines of their files that ottla does not take."""
    kinds: Mapping[int, Kind]
    moving: int
    quorum: QuorumInfo


class Migration:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._admin = Admin(client)
        self._changes = BrokerChanges(client)

    async def kinds(self, ids: Iterable[int]) -> dict[int, Kind]:
        """Of these brokers, which live."""
        resources = [(BROKER, str(id)) for id in sorted(ids)]
        found = (
            await self._admin.describe_configs(resources, keys=[OURS_ALONE]) if resources else {}
        )
        return {int(name): _kind(entries) for (_, name), entries in found.items()}

    async def has_majority_without(self, id: int) -> bool:
        """Whether the quorum goes on if this voter stops. A new leader has yet to hear of the others."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + SILENT_S
        while not majority_without(await self._client.describe_quorum(), id):
            if loop.time() >= deadline:
                return False
            await asyncio.sleep(LOOK_AGAIN_S)
        return True

    async def wait_stopped(self, id: int, timeout_s: float) -> bool:
        """Whether the node is stopped within this time: as a broker it is fenced then, and fetches no metadata any more. A
        controller that is no broker is known by its fetches alone."""
        loop = asyncio.get_running_loop()
        fetched = loop.time()  # as far as we know
        deadline = fetched + SILENT_S + timeout_s
        while True:
            quorum = await self._client.describe_quorum()
            now = loop.time()
            silences = map(quorum.silent_ms, _replicas_of(quorum, id))
            fetched = max([fetched, *(now - each / 1000 for each in silences if each is not None)])
            is_silent = now >= fetched + SILENT_S
            if is_silent and id not in (await self._changes.standings()).living:
                return True
            if now >= deadline:
                return False
            await asyncio.sleep(LOOK_AGAIN_S)

    async def look(self, to: Kind, kinds: Mapping[int, Kind], known_levels: Levels) -> Seen:
        """All that a check needs. `kinds` are those of the living brokers."""
        admin, client = self._admin, self._client
        leaving = sorted(id for id, kind in kinds.items() if kind is not to)
        fields = {"client_software_name": "ottla", "client_software_version": "1"}
        versions = await admin.ask(ApiKey.API_VERSIONS, fields)
        features = {each.name: int(each.max_version_level) for each in versions.finalized_features}
        names = {each.name for each in await admin.list_topics()}
        described = await admin.describe_topics(sorted(names | UNLISTED_TOPICS))
        topics = {
            name: found for name, found in described.items() if isinstance(found, DescribedTopic)
        }
        resources = [(TOPIC, name) for name in sorted(topics)]
        remote = await admin.describe_configs(resources, keys=[REMOTE_STORAGE]) if resources else {}
        settings = (
            await admin.describe_configs([(BROKER, str(id)) for id in leaving]) if leaving else {}
        )
        quorum = await client.describe_quorum()
        brokers = {int(name): entries for (_, name), entries in settings.items()}
        refused: dict[str, None] = {}
        if to is Kind.OTTLA:
            for id, entries in brokers.items():
                refused |= dict.fromkeys(faults_of(taken_over(entries), f"broker {id}"))
        groups = (await GroupAdmin(client).all()).answers
        return Seen(
            to,
            features,
            known_levels,
            [(each.id, each.type.lower()) for each in groups],
            topics,
            [name for (_, name), found in remote.items() if _is_true(found, REMOTE_STORAGE)],
            brokers,
            list(refused),
            kinds,
            len(await Reassigner(client).active()),
            quorum,
        )


def _kind(entries: Sequence[ConfigEntry]) -> Kind:
    known = any(each.name == OURS_ALONE and each.value is not None for each in entries)
    return Kind.OTTLA if known else Kind.KAFKA


def _value(entries: Iterable[ConfigEntry], name: str) -> str | None:
    return next((each.value for each in entries if each.name == name), None)


def _is_true(entries: Iterable[ConfigEntry], name: str) -> bool:
    return (_value(entries, name) or "").lower() == "true"


def may_run(quorum: QuorumInfo, id: int) -> bool:
    """Whether the node may still fetch the metadata."""
    return any(_is_heard(quorum, each, True) for each in _replicas_of(quorum, id))


def majority_without(quorum: QuorumInfo, id: int) -> bool:
    """Whether the other voters that are heard of are a majority of all."""
    heard = sum(_is_heard(quorum, each, False) for each in quorum.voters if each.id != id)
    return 2 * heard > len(quorum.voters)


def _is_heard(quorum: QuorumInfo, replica: QuorumReplica, unknown: bool) -> bool:
    silent_ms = quorum.silent_ms(replica)
    return unknown if silent_ms is None else silent_ms <= SILENT_S * 1000


def _replicas_of(quorum: QuorumInfo, id: int) -> list[QuorumReplica]:
    return [each for each in (*quorum.voters, *quorum.observers) if each.id == id]


def findings(seen: Seen) -> list[Readiness]:
    """What a check says, each with its reason. Nothing of it is asked of the cluster again."""
    found = [_whole(seen), _moving(seen), _factors(seen)]
    if seen.to is Kind.OTTLA:
        found += [_features(seen), _groups(seen), _tiered(seen), _authorizer(seen), _settings(seen)]
    found.append(_voters(seen))
    return found


def _whole(seen: Seen) -> Readiness:
    behind = [
        f"{name}-{each.partition}"
        for name, topic in sorted(seen.topics.items())
        for each in topic.partitions
        if each.leader < 0 or set(each.isr) != set(each.replicas)
    ]
    if behind:
        why = f"{len(behind)} are not: {_some(behind)}. Wait for them, or see why: ottla explain"
        return Readiness("all replicas are in sync", True, why)
    return Readiness("all replicas are in sync", False, f"of {len(seen.topics)} topics")


def _moving(seen: Seen) -> Readiness:
    if seen.moving:
        why = f"{seen.moving} partitions are: ottla migrate move goes on with what it began, ottla reassign cancel ends it"
        return Readiness("nothing else is being moved", False, why)
    return Readiness("nothing else is being moved", False, "")


def _factors(seen: Seen) -> Readiness:
    what = f"brokers of {seen.to.value} for every replica"
    there = sum(kind is seen.to for kind in seen.kinds.values())
    needed = max((len(p.replicas) for t in seen.topics.values() for p in t.partitions), default=0)
    if there < needed:
        why = (
            f"a partition has {needed} replicas, and {there} live: add more (ottla brokers add --no-balance --host …;"
            " docs/MIGRATION.md)"
        )
        return Readiness(what, True, why)
    return Readiness(what, False, f"{there} live, {needed} are needed")


def _features(seen: Seen) -> Readiness:
    what = "feature levels that ottla knows"
    known = seen.known_levels
    above = [
        f"{name} is {level}" + (f", ottla knows up to {known[name][1]}" if name in known else "")
        for name, level in sorted(seen.features.items())
        if level > 0 and (name not in known or not known[name][0] <= level <= known[name][1])
    ]
    if above:
        why = f"{'; '.join(above)}: an ottla node that registers is refused. kafka-features downgrade, where that is possible"
        return Readiness(what, True, why)
    return Readiness(what, False, f"metadata.version {seen.features.get('metadata.version', '?')}")


def _groups(seen: Seen) -> Readiness:
    what = "no share groups, no streams groups"
    unserved = [f"{name} ({type})" for name, type in seen.groups if type in UNSERVED_GROUPS]
    if unserved:
        why = f"ottla does not serve {_some(unserved)}: end and delete them, or let them stay with Apache Kafka"
        return Readiness(what, True, why)
    return Readiness(what, False, f"{len(seen.groups)} groups")


def _tiered(seen: Seen) -> Readiness:
    what = "no tiered storage"
    brokers = [id for id, entries in seen.brokers.items() if _is_true(entries, TIERED)]
    if seen.tiered_topics:
        why = (
            f"{_some(seen.tiered_topics)} have records in tiered storage, which ottla cannot read: copy them to topics"
            " without it (MirrorMaker 2), or switch it off (remote.storage.enable=false, remote.log.delete.on.disable=true)"
        )
        return Readiness(what, True, why)
    return Readiness(
        what, False, f"switched on at brokers {brokers}, no topic uses it" if brokers else ""
    )


def _authorizer(seen: Seen) -> Readiness:
    what = "an authorizer that ottla has"
    classes = {_value(entries, AUTHORIZER) or "" for entries in seen.brokers.values()}
    others = sorted(classes - {"", STANDARD_AUTHORIZER})
    if others:
        why = f"{_some(others)} is code of its own, which ottla cannot run: its rights must become ACLs of the StandardAuthorizer"
        return Readiness(what, True, why)
    return Readiness(what, False, "StandardAuthorizer" if classes - {""} else "none is used")


def _settings(seen: Seen) -> Readiness:
    what = "settings of the brokers' files that ottla takes"
    refused = [line for line in seen.refused_settings if AUTHORIZER not in line]
    if refused:
        why = f"{'; '.join(refused[:NAMED_MAX])}: leave them out of the new files (ottla check-config FILE)"
        return Readiness(what, True, why)
    return Readiness(what, False, "")


def _voters(seen: Seen) -> Readiness:
    what = "controllers that can change"
    voters = seen.quorum.voters
    if any(each.directory is None for each in voters):
        why = (
            "the voters are static: brokers can move, controllers only in place, one by one (docs/MIGRATION.md), or after"
            " kafka-features upgrade --feature kraft.version=1"
        )
        return Readiness(what, False, why)
    return Readiness(what, False, f"voters {', '.join(str(each.id) for each in voters)}")


def _some(names: Sequence[object]) -> str:
    shown = ", ".join(map(str, names[:NAMED_MAX]))
    more = len(names) - NAMED_MAX
    return f"{shown} and {more} more" if more > 0 else shown
