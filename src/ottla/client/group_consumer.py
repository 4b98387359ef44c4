"""A member of a consumer group with the consumer protocol (KIP-848): it gets partitions, and commits what was read.

The caller calls `heartbeat` again and again, reads the partitions in `positions`, and advances them. Partitions come and
go with a heartbeat: those that go are committed before they are given up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from ottla.client.client import EARLIEST, LATEST, Client
from ottla.client.connections import check
from ottla.client.group_admin import GroupAdmin, Place
from ottla.wire.apis import ApiKey

JOIN, LEAVE = 0, -1
REBALANCE_TIMEOUT_MS: Final = 300_000


class GroupConsumer:
    def __init__(
        self,
        client: Client,
        group: str,
        member: str,
        *,
        topics: Sequence[str] = (),
        pattern: str | None = None,
        from_beginning: bool = False,
        commits: bool = True,
    ) -> None:
        """`member`: an id that no other member has. `pattern`: a regular expression of topics instead of names. `from_beginning`: where to begin without a committed
        offset."""
        self.positions: dict[Place, int] = {}
        """Next offset to read of each partition that is assigned."""
        self._client = client
        self._groups = GroupAdmin(client)
        self._group = group
        self._topics = list(topics)
        self._pattern = pattern
        self._from_beginning = from_beginning
        self._commits = commits
        self._member = member
        self._epoch = JOIN
        self._due = 0.0
        self._committed: dict[Place, int] = {}
        self._names: dict[UUID, str] = {}

    async def heartbeat(self) -> None:
        """Join, or stay a member, if it is time. KafkaError if the group does not want this member."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._due:
            return
        answer = await self._beat(self._epoch)
        self._epoch = int(answer.member_epoch)
        self._due = loop.time() + answer.heartbeat_interval.total_seconds() / 2
        if answer.assignment is not None:
            await self._own(await self._places(answer.assignment.topic_partitions))
            self._due = 0.0  # say at once what is owned now

    async def commit(self) -> None:
        changed = {p: o for p, o in self.positions.items() if self._committed.get(p) != o}
        if self._commits and changed:
            await self._groups.commit(self._group, changed, member=self._member, epoch=self._epoch)
            self._committed |= changed

    async def leave(self) -> None:
        await self.commit()
        await self._beat(LEAVE)
        self.positions.clear()

    async def _beat(self, epoch: int) -> Any:
        by_topic: dict[UUID, list[int]] = {}
        ids = {name: id for id, name in self._names.items()}
        for topic, partition in self.positions:
            by_topic.setdefault(ids[topic], []).append(partition)
        fields = {
            "group_id": self._group,
            "member_id": self._member,
            "member_epoch": epoch,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": REBALANCE_TIMEOUT_MS if epoch == JOIN else -1,
            "subscribed_topic_names": None if self._pattern else self._topics,
            "subscribed_topic_regex": self._pattern,
            "server_assignor": None,
            "topic_partitions": [
                {"topic_id": id, "partitions": partitions} for id, partitions in by_topic.items()
            ],
        }

        async def attempt() -> Any:
            broker = await self._groups.coordinator(self._group)
            answer = await self._client.connections.ask(
                ApiKey.CONSUMER_GROUP_HEARTBEAT, fields, broker=broker
            )
            check(answer.error_code, answer.error_message)
            return answer

        return await self._client.connections.retrying(attempt)

    async def _places(self, assigned: Any) -> set[Place]:
        if any(topic.topic_id not in self._names for topic in assigned):
            found = await self._client.metadata()
            self._names |= {topic.id: topic.name for topic in found.topics if topic.id is not None}
        return {
            (self._names[topic.topic_id], int(number))
            for topic in assigned
            if topic.topic_id in self._names
            for number in topic.partitions
        }

    async def _own(self, places: set[Place]) -> None:
        if self.positions.keys() - places:
            await self.commit()
        self.positions = {p: offset for p, offset in self.positions.items() if p in places}
        new = places - self.positions.keys()
        committed = await self._groups.offsets(self._group) if new else {}
        for place in sorted(new):
            begin = EARLIEST if self._from_beginning else LATEST
            known = committed.get(place)
            offset = await self._client.offset(*place, begin) if known is None else known
            self.positions[place] = offset
            self._committed[place] = offset if known is not None else -1
