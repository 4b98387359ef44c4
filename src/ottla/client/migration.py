"""Which brokers of a cluster are ottla's and which Apache Kafka's, and what would be refused if all became of one kind.

Nothing is remembered outside the cluster: how far a migration is follows from who is registered, who has replicas, who is
cordoned and who votes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from ottla.balance.departures import crowded
from ottla.balance.model import BalancePlan, Standing, Tolerance
from ottla.balance.planner import Impossible, plan
from ottla.client.admin import BROKER, TOPIC, Admin, ConfigEntry, DescribedTopic
from ottla.client.broker_changes import BrokerChanges
from ottla.client.client import Client
from ottla.client.cluster_picture import ClusterPicture
from ottla.client.connections import Unreachable
from ottla.client.group_admin import GroupAdmin
from ottla.client.model import QuorumInfo, QuorumReplica, Reassignment
from ottla.client.new_broker_file import taken_over
from ottla.client.reassigning import LOOK_AGAIN_S, Reassigner
from ottla.client.voters import are_dynamic
from ottla.config.checking import faults_of
from ottla.config.values import STANDARD_AUTHORIZER
from ottla.wire.apis import ApiKey
from ottla.wire.internal_topics import UNLISTED_TOPICS

OURS_ALONE: Final = "ottla.event.log.enable"
"""A setting that only ottla's brokers know. Apache Kafka's show one that stands in their file, but hide its value."""
AUTHORIZER: Final = "authorizer.class.name"
REMOTE_STORAGE: Final = "remote.storage.enable"
TIERED: Final = "remote.log.storage.system.enable"
RULES: Final = (
    "principal.builder.class",
    "create.topic.policy.class.name",
    "alter.config.policy.class.name",
    "client.quota.callback.class",
    "sasl.enabled.mechanisms",
)
"""Settings that decide who may do what: without them the new brokers have other rules than those that go."""
UNSERVED_GROUPS: Final = frozenset({"share", "streams"})
NAMED_MAX: Final = 5
SILENT_S: Final = 5.0
"""A node that runs fetches the metadata more often than that."""
IN_SYNC: Final = "all replicas are in sync"
RACKS: Final = "as many racks for every partition"

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
    refused_settings: Mapping[str, str]
    """Settings of their files that ottla does not take, and why."""
    kinds: Mapping[int, Kind]
    picture: ClusterPicture
    """As it will be when the moves that go on are over."""
    moving: int
    quorum: QuorumInfo
    is_dynamic: bool
    """Its voters can change."""


class Migration:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._admin = Admin(client)
        self._changes = BrokerChanges(client)

    async def kinds(self, ids: Iterable[int]) -> dict[int, Kind]:
        """Of these brokers, which live; not of one that has just died."""
        found = {}
        for id in sorted(ids):
            resource = (BROKER, str(id))
            try:
                entries = await self._admin.describe_configs([resource], keys=[OURS_ALONE])
            except (OSError, Unreachable):
                continue
            found[id] = _kind(entries[resource])
        return found

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

    async def look(
        self,
        to: Kind,
        kinds: Mapping[int, Kind],
        known_levels: Levels,
        picture: ClusterPicture,
    ) -> Seen:
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
        refused: dict[str, str] = {}
        if to is Kind.OTTLA:
            for id, entries in brokers.items():
                for name, value in taken_over(entries).items():
                    for fault in faults_of({name: value}, f"broker {id}"):
                        refused.setdefault(name, fault)
        groups = (await GroupAdmin(client).all()).answers
        return Seen(
            to,
            features,
            known_levels,
            [(each.id, each.type.lower()) for each in groups],
            topics,
            [name for (_, name), found in remote.items() if _is_true(found, REMOTE_STORAGE)],
            brokers,
            refused,
            kinds,
            picture,
            len(await Reassigner(client).active()),
            quorum,
            await are_dynamic(client, quorum),
        )


def _kind(entries: Sequence[ConfigEntry]) -> Kind:
    known = any(each.name == OURS_ALONE and each.value is not None for each in entries)
    return Kind.OTTLA if known else Kind.KAFKA


def _value(entries: Iterable[ConfigEntry], name: str) -> str | None:
    return next((each.value for each in entries if each.name == name), None)


def _is_true(entries: Iterable[ConfigEntry], name: str) -> bool:
    return (_value(entries, name) or "").lower() == "true"


def migration_plan(
    picture: ClusterPicture,
    to: Kind,
    kinds: Mapping[int, Kind],
    living: Collection[int],
    tolerance: Tolerance,
) -> BalancePlan:
    """The brokers of one kind get everything, also those that are cordoned so far. One of them that died keeps what it has.
    Impossible if there is no room."""

    def standing(id: int) -> Standing:
        if kinds.get(id) is not to:
            return Standing.LEAVING  # also one that is down, and may be of any kind
        return Standing.MEMBER if id in living else Standing.ABSENT

    brokers = [each._replace(standing=standing(each.id)) for each in picture.brokers]
    members = sum(each.standing is Standing.MEMBER for each in brokers)
    partitions = [
        # Our own topics were made when there were more brokers, and no list shows them to who could give them fewer replicas.
        each._replace(factor=min(len(each.replicas), members))
        if each.topic in UNLISTED_TOPICS and members
        else each
        for each in picture.partitions
    ]
    return plan(brokers, partitions, tolerance)


def is_between_kinds(change: Reassignment, kinds: Mapping[int, Kind]) -> bool:
    """Whether a move is one of a migration, in either direction. A broker that is down may be of the other kind."""
    found = {kinds.get(id) for id in (*change.adding, *change.removing)}
    return len(found) > 1 or None in found


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


def findings(seen: Seen, *, in_place: bool = False) -> list[Readiness]:
    """What a check says, each with its reason. Nothing of it is asked of the cluster again. `in_place`: nothing will be
    moved, and the files stay."""
    found = [_whole(seen)]
    if not in_place:
        factors = _factors(seen)
        found += [_moving(seen), factors]
        if not factors.refused:
            found += _planned(seen)
    if seen.to is Kind.OTTLA:
        found += [_features(seen), _groups(seen), _tiered(seen), _authorizer(seen)]
        found.append(_settings(seen, in_place))
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
        return Readiness(IN_SYNC, True, why)
    return Readiness(IN_SYNC, False, f"of {len(seen.topics)} topics")


def _moving(seen: Seen) -> Readiness:
    if seen.moving:
        why = f"partitions that are: {seen.moving}. ottla migrate move goes on with what it began, ottla reassign cancel ends it"
        return Readiness("nothing else is being moved", False, why)
    return Readiness("nothing else is being moved", False, "")


def _factors(seen: Seen) -> Readiness:
    what = f"brokers of {seen.to.value} for every replica"
    there = sum(kind is seen.to for kind in seen.kinds.values())
    counted = [each for each in seen.picture.partitions if each.topic not in UNLISTED_TOPICS]
    most = max(counted, key=lambda each: len(each.replicas), default=None)
    needed = 1 if most is None else len(most.replicas)
    if there < needed:
        cause = "" if most is None else f" for {most.topic}-{most.partition}"
        why = f"{there} live, {needed} are needed{cause}: add more (ottla brokers add --no-balance --host …; docs/MIGRATION.md)"
        return Readiness(what, True, why)
    return Readiness(what, False, f"{there} live, {needed} are needed")


def _planned(seen: Seen) -> list[Readiness]:
    room = "room on the disks"
    try:
        plan = migration_plan(seen.picture, seen.to, seen.kinds, seen.kinds.keys(), Tolerance())
    except Impossible as error:
        return [Readiness(room, True, f"there is no plan: {error}")]
    crowded_places = crowded(seen.picture.brokers, plan)
    places = [each for each in crowded_places if each[0] not in UNLISTED_TOPICS]
    why = (
        f"replicas of {_some([f'{topic}-{number}' for topic, number in places])} would share racks: add brokers in others"
        " (ottla brokers add --rack …), or give ottla migrate move --share-racks"
    )
    return [Readiness(room, False, ""), Readiness(RACKS, bool(places), why if places else "")]


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


def _settings(seen: Seen, in_place: bool) -> Readiness:
    """The new files need none of it, so it is said. Refused is what would mean other rules."""
    what = "settings of the brokers' files that ottla takes"
    unknown = {name: why for name, why in seen.refused_settings.items() if name != AUTHORIZER}
    rules = [why for name, why in unknown.items() if name.endswith(RULES)]
    if rules:
        why = f"{'; '.join(rules)}: brokers of ottla would have other rules. Take it out of the present files, if nobody needs it"
        return Readiness(what, True, why)
    if unknown:
        why = f"{'; '.join([*unknown.values()][:NAMED_MAX])}: leave them out of the new files (ottla check-config FILE)"
        return Readiness(what, in_place, why)
    return Readiness(what, False, "")


def _voters(seen: Seen) -> Readiness:
    what = "controllers that can change"
    voters = seen.quorum.voters
    if not seen.is_dynamic:
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
