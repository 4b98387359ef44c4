"""Members of groups, on the client's side: by the classic protocol and by that of KIP-848.

A member polls: each poll joins, or sends the heartbeat that is due. Each assignment is reported to the oracle (C4: one
owner of a partition in a generation).
"""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from ottla.coordinators.groups.consumer_group import JOINING, LEAVING, LEAVING_FOR_A_WHILE
from ottla.coordinators.groups.subscription import PROTOCOL_TYPE, read_assignment, write_assignment
from ottla.sim.clients.connections import REQUEST_TIMEOUT_S, ClientConnections
from ottla.sim.oracle.group_oracle import GroupOracle
from ottla.wire.apis import ApiKey
from ottla.wire.errors import RETRIABLE, ErrorCode, InvalidFrame
from ottla.wire.types import TopicPartition

GROUP, TRANSACTION = 0, 1
"""Key types of FindCoordinator."""
JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION = 9, 5, 4, 5
CONSUMER_HEARTBEAT_VERSION = 1
COMMIT_VERSION, FETCH_VERSION = 9, 9
HEARTBEAT_S = 1.0
REBALANCE_TIMEOUT_MS = 4000
PROTOCOL = "rotated"


class Coordinator:
    """Requests of one client to the coordinator of a group or transactional id, wherever that is."""

    def __init__(self, connections: ClientConnections, kind: int, key: str) -> None:
        self._connections = connections
        self._kind = kind
        self._key = key
        self._address: tuple[str, int] | None = None
        self.answered_by = ""
        """The host that answered last."""

    def forget(self) -> None:
        self._address = None

    async def find(self) -> tuple[str, int]:
        """FindCoordinator. The first one of a cluster also creates the topic of the coordinators."""
        fields = {"key_type": self._kind, "coordinator_keys": [self._key]}
        answer = await self._connections.ask(ApiKey.FIND_COORDINATOR, fields)
        (found,) = answer.coordinators
        if int(found.error_code) != ErrorCode.NONE:
            raise ConnectionError(f"{self._key} has no coordinator")
        return found.host, int(found.port)

    async def ask(
        self,
        key: ApiKey,
        fields: Mapping[str, Any],
        version: int,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> Any:
        """OSError, TimeoutError or InvalidFrame if there is no answer; the next request finds the coordinator again."""
        try:
            if self._address is None:
                self._address = await self.find()
            host, _ = self._address
            channel = await self._connections.at(self._address)
            request = channel.request(key, fields, version=version, timeout_s=timeout_s)
            answer = await self._connections.answer(channel, request)
            self.answered_by = host
            return answer
        except (OSError, TimeoutError, InvalidFrame):
            self.forget()
            raise


class MemberClient:
    """A member of a group: what both protocols have in common."""

    def __init__(
        self,
        connections: ClientConnections,
        oracle: GroupOracle,
        group: str,
        name: str,
        partitions: Sequence[TopicPartition],
        chance: random.Random,
        *,
        instance_id: str | None,
        session_timeout_ms: int,
    ) -> None:
        self.group = group
        self.name = name
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.owned: tuple[TopicPartition, ...] = ()
        self.is_joined = False
        self.coordinator = Coordinator(connections, GROUP, group)
        self._connections = connections
        self._oracle = oracle
        self._partitions = partitions
        self._topic = partitions[0].topic
        self._random = chance
        self._session_timeout_ms = session_timeout_ms
        self._next_heartbeat = 0.0

    async def poll(self) -> None:
        """Join, or send a heartbeat if it is time."""
        now = asyncio.get_running_loop().time()
        if not self.is_joined:
            self._next_heartbeat = now + HEARTBEAT_S
            await self.join()
        elif now >= self._next_heartbeat:
            self._next_heartbeat = now + HEARTBEAT_S
            await self.heartbeat()

    async def join(self) -> None:
        raise AssertionError("of the protocol")

    async def heartbeat(self) -> None:
        raise AssertionError("of the protocol")

    async def leave(self) -> None:
        raise AssertionError("of the protocol")

    def is_over(self, member_id: str, generation: int) -> bool:
        """Whether that generation is over, as far as this client knows: nobody may commit in it."""
        return generation < self.generation

    def crash(self) -> None:
        """Its process ends without leaving the group; the next one joins as a new member."""
        self.member_id, self.generation = "", -1
        self._give_up()

    def _give_up(self) -> None:
        self.owned, self.is_joined = (), False

    def _own(self, generation: int, owned: Sequence[TopicPartition]) -> None:
        self.generation, self.owned, self.is_joined = generation, tuple(sorted(owned)), True
        who = self.instance_id or self.member_id
        self._oracle.assigned(self.group, generation, who, self.owned)

    def refused(self, code: ErrorCode) -> None:
        """A commit was refused because of our member id or generation: join again."""
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.crash()
        elif code in RETRIABLE:
            self.coordinator.forget()
        else:
            self._next_heartbeat = 0.0


class ClassicMemberClient(MemberClient):
    """JoinGroup, SyncGroup, Heartbeat. The group leader assigns each partition to another member than in the
    generation before, if it can."""

    async def join(self) -> None:
        name = self._topic.encode()
        subscription = struct.pack(f">hih{len(name)}si", 0, 1, len(name), name, -1)
        fields = {
            "group_id": self.group,
            "session_timeout": self._session_timeout_ms,
            "rebalance_timeout": REBALANCE_TIMEOUT_MS,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "protocol_type": PROTOCOL_TYPE,
            "protocols": [{"name": PROTOCOL, "metadata": subscription}],
        }
        timeout_s = REBALANCE_TIMEOUT_MS / 1000 + REQUEST_TIMEOUT_S
        answer = await self.coordinator.ask(ApiKey.JOIN_GROUP, fields, JOIN_VERSION, timeout_s)
        code = ErrorCode(int(answer.error_code))
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            await self.join()
            return
        if code is not ErrorCode.NONE:
            self._not_joined(code)
            return
        self.member_id, self.generation = answer.member_id, int(answer.generation_id)
        assignments = []
        if answer.leader == self.member_id and not answer.skip_assignment:
            assignments = self._assign([each.member_id for each in answer.members])
        await self._sync(assignments)

    def _assign(self, members: Sequence[str]) -> list[dict[str, Any]]:
        order = sorted(members)
        parts: dict[str, set[int]] = {id: set() for id in order}
        for partition in self._partitions:
            turn = (partition.partition + self.generation) % len(order)
            parts[order[turn]].add(partition.partition)
        return [
            {
                "member_id": id,
                "assignment": write_assignment(0, {self._topic: frozenset(part)} if part else {}),
            }
            for id, part in parts.items()
        ]

    async def _sync(self, assignments: list[dict[str, Any]]) -> None:
        fields = {**self._identity(), "assignments": assignments}
        fields |= {"protocol_type": PROTOCOL_TYPE, "protocol_name": PROTOCOL}
        timeout_s = REBALANCE_TIMEOUT_MS / 1000 + REQUEST_TIMEOUT_S
        answer = await self.coordinator.ask(ApiKey.SYNC_GROUP, fields, SYNC_VERSION, timeout_s)
        code = ErrorCode(int(answer.error_code))
        if code is not ErrorCode.NONE:
            self._not_joined(code)
            return
        places = read_assignment(bytes(answer.assignment))
        assert places is not None
        numbers = sorted(places.get(self._topic, ()))
        self._own(self.generation, [TopicPartition(self._topic, number) for number in numbers])

    def _identity(self) -> dict[str, Any]:
        return {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
        }

    async def heartbeat(self) -> None:
        answer = await self.coordinator.ask(ApiKey.HEARTBEAT, self._identity(), HEARTBEAT_VERSION)
        code = ErrorCode(int(answer.error_code))
        if code is not ErrorCode.NONE:
            self._not_joined(code)

    def _not_joined(self, code: ErrorCode) -> None:
        if code in RETRIABLE:
            self.coordinator.forget()
            return
        self._give_up()
        if code is not ErrorCode.REBALANCE_IN_PROGRESS and code is not ErrorCode.ILLEGAL_GENERATION:
            self.member_id = ""

    async def leave(self) -> None:
        identity = {"member_id": self.member_id, "group_instance_id": self.instance_id}
        fields = {"group_id": self.group, "members": [identity]}
        self.crash()
        await self.coordinator.ask(ApiKey.LEAVE_GROUP, fields, LEAVE_VERSION)


class ConsumerMemberClient(MemberClient):
    """The protocol of KIP-848: everything is in ConsumerGroupHeartbeat."""

    _topic_id: UUID | None = None
    _missed_something = False

    def is_over(self, member_id: str, generation: int) -> bool:
        """In this protocol each member has an epoch of its own."""
        return member_id == self.member_id and generation < self.generation

    async def join(self) -> None:
        if self._topic_id is None:
            place, _ = await self._connections.leader(self._partitions[0])
            self._topic_id = place.topic_id
        if not self.member_id:
            self.member_id = str(UUID(int=self._random.getrandbits(128), version=4))
        self.generation = JOINING
        await self._beat(
            {
                "rebalance_timeout": REBALANCE_TIMEOUT_MS,
                "subscribed_topic_names": [self._topic],
                "topic_partitions": [],
            }
        )

    async def heartbeat(self) -> None:
        """A full heartbeat after an error or a missing answer: otherwise the coordinator would not send our assignment
        again."""
        numbers = [partition.partition for partition in self.owned]
        owned = [{"topic_id": self._topic_id, "partitions": numbers}] if numbers else []
        await self._beat(
            {
                "rebalance_timeout": REBALANCE_TIMEOUT_MS if self._missed_something else -1,
                "subscribed_topic_names": [self._topic] if self._missed_something else None,
                "topic_partitions": owned,
            }
        )

    async def _beat(self, fields: Mapping[str, Any]) -> None:
        fields = {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": self.generation,
            "instance_id": self.instance_id,
            "rack_id": None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            **fields,
        }
        self._missed_something = True
        answer = await self.coordinator.ask(
            ApiKey.CONSUMER_GROUP_HEARTBEAT, fields, CONSUMER_HEARTBEAT_VERSION
        )
        code = ErrorCode(int(answer.error_code))
        self._missed_something = code is not ErrorCode.NONE
        if code in RETRIABLE:
            self.coordinator.forget()
        elif code is not ErrorCode.NONE:
            self._give_up()
            if code is ErrorCode.FENCED_INSTANCE_ID:
                self.member_id = ""
        elif fields["member_epoch"] >= JOINING:
            owned = self.owned
            if answer.assignment is not None:
                owned = tuple(
                    TopicPartition(self._topic, int(number))
                    for part in answer.assignment.topic_partitions
                    for number in part.partitions
                )
                self._next_heartbeat = 0.0  # the new ownership is reported at once
            self._own(int(answer.member_epoch), owned)

    async def leave(self) -> None:
        epoch = LEAVING if self.instance_id is None else LEAVING_FOR_A_WHILE
        member_id, self.generation = self.member_id, epoch
        self._give_up()
        try:
            if member_id:
                await self._beat(
                    {
                        "rebalance_timeout": -1,
                        "subscribed_topic_names": None,
                        "topic_partitions": None,
                    }
                )
        finally:
            self.crash()
