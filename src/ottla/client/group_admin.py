"""Consumer groups as a client sees them: members, committed offsets, lag, and what a rebalance waits for."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from ottla.client.all_brokers import BrokerAnswers, ask_all_brokers
from ottla.client.client import Client
from ottla.client.connections import check, error_of
from ottla.client.coordinators import GROUP_KEY, find_coordinator
from ottla.client.group_lag import AT_ONCE_MAX, LagReader
from ottla.client.group_lag import PartitionLag as PartitionLag
from ottla.client.group_lag import Place as Place
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError


class ListedGroup(NamedTuple):
    id: str
    state: str
    type: str
    """classic or consumer; empty where the cluster does not say."""
    protocol: str
    coordinator: int


class GroupMember(NamedTuple):
    id: str
    instance_id: str | None
    client_id: str
    host: str
    assigned: tuple[Place, ...]
    epoch: int | None
    """Of the consumer protocol."""


class GroupDescription(NamedTuple):
    id: str
    type: str
    state: str
    assignor: str
    coordinator: int
    members: tuple[GroupMember, ...]
    epoch: int | None
    hold_up: Mapping[str, Any] | None
    """What a rebalance waits for. Only ottla's brokers say it."""


class GroupAdmin:
    """What a `Client` can do about consumer groups."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._connections = client.connections

    async def all(self) -> BrokerAnswers[ListedGroup]:
        """Each broker lists the groups that it coordinates."""
        asked = await ask_all_brokers(self._client, self._listed_by)
        found = {group.id: group for groups in asked.answers for group in groups}
        return BrokerAnswers(sorted(found.values()), asked.silent)

    async def _listed_by(self, broker: int) -> list[ListedGroup]:
        answer = await self._connections.ask(ApiKey.LIST_GROUPS, {}, broker=broker)
        check(answer.error_code, f"groups of broker {broker}")
        return [
            ListedGroup(
                group.group_id,
                getattr(group, "group_state", ""),
                getattr(group, "group_type", ""),
                group.protocol_type,
                broker,
            )
            for group in answer.groups
        ]

    async def coordinator(self, group: str) -> int:
        return await find_coordinator(
            self._connections, GROUP_KEY, group, f"coordinator of group {group}"
        )

    async def describe(self, group: str) -> GroupDescription:
        """KafkaError GROUP_ID_NOT_FOUND if there is none."""
        kind, found, broker = await self.answer(group)
        return (_consumer_group if kind == "consumer" else _classic_group)(found, broker)

    async def answer(self, group: str) -> tuple[str, Any, int]:
        """What its coordinator says of a group: `consumer` or `classic`, the answer as it came, and the coordinator.
        KafkaError GROUP_ID_NOT_FOUND if there is none."""

        async def attempt() -> tuple[str, Any, int]:
            broker = await self.coordinator(group)
            channel = await self._connections.to(broker)
            absent = f"there is no group {group}"
            if ApiKey.CONSUMER_GROUP_DESCRIBE in channel.versions:
                fields = {"group_ids": [group], "include_authorized_operations": False}
                answer = await channel.request(ApiKey.CONSUMER_GROUP_DESCRIBE, fields)
                (found,) = answer.groups
                if int(found.error_code) != ErrorCode.GROUP_ID_NOT_FOUND:
                    check(found.error_code, f"group {group}")
                    return "consumer", found, broker
                # It says more than the answer about a classic group.
                absent = found.error_message or absent
            fields = {"groups": [group], "include_authorized_operations": False}
            answer = await channel.request(ApiKey.DESCRIBE_GROUPS, fields)
            (found,) = answer.groups
            if found.group_state == "Dead":
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, absent)
            check(found.error_code, f"group {group}")
            return "classic", found, broker

        return await self._connections.retrying(attempt)

    async def offsets(self, group: str) -> dict[Place, int]:
        """Every committed offset."""
        return {place: offset for place, (offset, _) in (await self.committed(group)).items()}

    async def committed(self, group: str) -> dict[Place, tuple[int, int]]:
        """Every committed offset, and the leader epoch that was committed with it, or -1."""

        async def attempt() -> dict[Place, tuple[int, int]]:
            broker = await self.coordinator(group)
            channel = await self._connections.to(broker)
            # Up to version 9 topics have names, also those that are deleted.
            version = min(channel.version_for(ApiKey.OFFSET_FETCH), 9)
            fields: dict[str, Any] = {"group_id": group, "topics": None}
            if version >= 8:
                fields = {"groups": [fields]}
            answer = await channel.request(ApiKey.OFFSET_FETCH, fields, version=version)
            found = answer.groups[0] if version >= 8 else answer
            check(getattr(found, "error_code", 0), f"offsets of group {group}")
            return {
                (topic.name, partition.partition_index): (
                    partition.committed_offset,
                    getattr(partition, "committed_leader_epoch", -1),
                )
                for topic in found.topics
                for partition in topic.partitions
                if partition.committed_offset >= 0
            }

        return await self._connections.retrying(attempt)

    async def lags(self, group: str, assigned: tuple[Place, ...] = ()) -> list[PartitionLag]:
        """Of every partition that the group has committed, or that is `assigned` to one of its members."""
        lags, _ = await self.known_lags(group, assigned)
        return lags

    async def known_lags(
        self, group: str, assigned: tuple[Place, ...] = (), *, read_committed: bool = False
    ) -> tuple[list[PartitionLag], list[Place]]:
        """The same, and the partitions that nobody answers for."""
        offsets = await self.offsets(group)
        reader = LagReader(self._client, read_committed=read_committed)
        unknown = await reader.locate({*offsets, *assigned})
        lags = await reader.lags({**dict.fromkeys(assigned), **offsets})
        return lags, unknown

    async def lags_of_all(
        self, groups: Iterable[str], *, read_committed: bool = False
    ) -> dict[str, list[PartitionLag]]:
        """By group. A group whose lag is not known in every partition is left out."""
        turns = asyncio.Semaphore(AT_ONCE_MAX)

        async def offsets(group: str) -> dict[Place, int] | None:
            async with turns:
                try:
                    return await self.offsets(group)
                except (KafkaError, OSError):
                    return None  # it was deleted, or its coordinator does not answer

        names = list(groups)
        told = zip(names, await asyncio.gather(*map(offsets, names)), strict=True)
        committed = {group: found for group, found in told if found is not None}
        reader = LagReader(self._client, read_committed=read_committed)
        unknown = set(await reader.locate({place for each in committed.values() for place in each}))
        return {
            group: await reader.lags(each)
            for group, each in committed.items()
            if unknown.isdisjoint(each)
        }

    async def commit(
        self, group: str, offsets: Mapping[Place, int], *, member: str = "", epoch: int = -1
    ) -> None:
        """Set offsets of a group without members, or as one of its members."""
        by_topic: dict[str, list[dict[str, Any]]] = {}
        for (topic, partition), offset in sorted(offsets.items()):
            by_topic.setdefault(topic, []).append(
                {
                    "partition_index": partition,
                    "committed_offset": offset,
                    "committed_leader_epoch": -1,
                    "committed_metadata": "",
                }
            )

        async def attempt() -> None:
            channel = await self._connections.to(await self.coordinator(group))
            fields = {
                "group_id": group,
                "generation_id_or_member_epoch": epoch,
                "member_id": member,
                "topics": [
                    {"name": topic, "partitions": partitions}
                    for topic, partitions in by_topic.items()
                ],
            }
            version = min(channel.version_for(ApiKey.OFFSET_COMMIT), 9)
            answer = await channel.request(ApiKey.OFFSET_COMMIT, fields, version=version)
            for topic in answer.topics:
                for partition in topic.partitions:
                    place = f"{topic.name}-{partition.partition_index}"
                    check(partition.error_code, f"group {group}, {place}")

        await self._connections.retrying(attempt, final=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    async def delete(self, group: str) -> None:
        async def attempt() -> None:
            broker = await self.coordinator(group)
            fields = {"groups_names": [group]}
            answer = await self._connections.ask(ApiKey.DELETE_GROUPS, fields, broker=broker)
            check(answer.results[0].error_code, f"group {group}")

        await self._connections.retrying(attempt)

    async def delete_offsets(
        self, group: str, places: Sequence[Place]
    ) -> dict[Place, KafkaError | None]:
        """The outcome for each partition. KafkaError if the group does not allow any."""
        topics = [
            {"name": topic, "partitions": [{"partition_index": number} for _, number in some]}
            for topic, some in groupby(sorted(places), lambda place: place[0])
        ]
        fields = {"group_id": group, "topics": topics}

        async def attempt() -> dict[Place, KafkaError | None]:
            broker = await self.coordinator(group)
            answer = await self._connections.ask(ApiKey.OFFSET_DELETE, fields, broker=broker)
            check(answer.error_code, f"group {group}")
            return {
                (topic.name, int(each.partition_index)): error_of(each.error_code, None)
                for topic in answer.topics
                for each in topic.partitions
            }

        return await self._connections.retrying(attempt)


def _hold_up(message: str | None) -> Mapping[str, Any] | None:
    try:
        parsed = json.loads(message or "null")
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


def _consumer_group(found: Any, broker: int) -> GroupDescription:
    members = tuple(
        GroupMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host.lstrip("/"),
            tuple(
                (topic.topic_name, partition)
                for topic in member.assignment.topic_partitions
                for partition in topic.partitions
            ),
            member.member_epoch,
        )
        for member in found.members
    )
    return GroupDescription(
        found.group_id,
        "consumer",
        found.group_state,
        found.assignor_name,
        broker,
        members,
        found.group_epoch,
        _hold_up(found.error_message),
    )


def _classic_group(found: Any, broker: int) -> GroupDescription:
    members = tuple(
        GroupMember(
            member.member_id,
            getattr(member, "group_instance_id", None),
            member.client_id,
            member.client_host.lstrip("/"),
            classic_assignment(bytes(member.member_assignment))
            if found.protocol_type == "consumer"
            else (),
            None,
        )
        for member in found.members
    )
    return GroupDescription(
        found.group_id,
        "classic",
        found.group_state,
        found.protocol_data,
        broker,
        members,
        None,
        _hold_up(getattr(found, "error_message", None)),
    )


def classic_assignment(raw: bytes) -> tuple[Place, ...]:
    """A consumer's assignment in the classic protocol: version, topics with partitions, user data."""
    places: list[Place] = []
    try:
        (topics,) = struct.unpack_from(">i", raw, 2)
        position = 6
        for _ in range(topics):
            (length,) = struct.unpack_from(">h", raw, position)
            name = raw[position + 2 : position + 2 + length].decode()
            position += 2 + length
            (count,) = struct.unpack_from(">i", raw, position)
            partitions = struct.unpack_from(f">{count}i", raw, position + 4)
            position += 4 + 4 * count
            places.extend((name, partition) for partition in partitions)
    except (struct.error, UnicodeDecodeError):
        return ()
    return tuple(places)
