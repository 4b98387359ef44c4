"""A node whose controller elects by a vote, in the manner of Raft.

The product's controller knows from its metadata who may lead: the ISR. With a majority quorum nobody knows that without
asking, because any majority of the replicas may be the one that has the last committed record. An election has three steps:

1. The leader is gone. The controller decides that the partition has no leader, in a new epoch
   (`rules.change_by_majority`).
2. The active controller asks all voters how complete their logs are. A replica answers once it has applied the new
   epoch. It does not fetch from the old leader any more then, so what it answers stays true until a new leader is elected.
   That is the promise that a voter gives in Raft.
3. When a majority of the replicas has answered, the most complete of them becomes the leader, in the next epoch. Every committed record is
   on a majority. Two majorities share a replica, so the winner has it.

The question is Kafka's OffsetForLeaderEpoch: it names the epoch that the replica must have applied, and its answer is
the last epoch of a log and its end. In the product only a leader answers it.

As in Raft, a voter must keep what it has written. A replica that comes back on another disk has lost copies that were counted,
so it may not vote: its broker registers with another directory id, and the controller takes the replica out of the voters. It
counts as failed until a leader has seen it catch up. Voters are the members of ISR and ELR (`rules.voters_of`). Losses that
keep the directory, such as those of a power failure without flushes, go unnoticed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from ottla.broker.apis.offsets import DEBUGGING_REPLICA, NO_OFFSET, OffsetHandlers
from ottla.broker.cluster.controller_service import ControllerService
from ottla.broker.cluster.raft_driver import RaftDriver
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.server.connections import Request
from ottla.broker.server.registration import handlers_of, serves
from ottla.controller.draft import Draft
from ottla.lab.commit.rules import Completeness, elected_by_majority, majority_of, voters_of
from ottla.lab.commit.without_elr import NodeWithoutElr
from ottla.metadata.image import BrokerImage, Delta, MetadataImage
from ottla.metadata.records import NO_LEADER
from ottla.replica.partition import Partition
from ottla.replica.roles import Role
from ottla.runtime import Runtime
from ottla.wire.apis import ApiKey
from ottla.wire.channel import Channel
from ottla.wire.errors import ErrorCode, InvalidFrame, KafkaError

VERSION = 4
ANSWER_S_MAX = 1.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.01, 0.5
"""Before those that have not applied the epoch yet, or could not be reached, are asked again. It doubles each time."""


class MajorityNode(NodeWithoutElr):
    async def start(self) -> None:
        await super().start()
        if self.broker is not None:
            voter = handlers_of(VoterHandlers(self.broker.replicas))
            self._serve(self.settings.broker_listeners, voter)
        if self.controller is not None:
            assert self.quorum is not None
            self.elections = MajorityElections(self.runtime, self.quorum, self.controller)
            self.elections.start()

    async def stop(self) -> None:
        if self.controller is not None:
            self.elections.stop()
        await super().stop()


class VoterHandlers:
    """A replica says how complete its log is, while it has no leader. The question names the debugging id, which stands for
    a replica's own offsets in ListOffsets too. All others are answered as in the product."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas
        self._as_leader = OffsetHandlers(replicas)

    @serves(ApiKey.OFFSET_FOR_LEADER_EPOCH)
    def offset_for_leader_epoch(self, request: Request) -> None:
        """OffsetForLeaderEpoch 4: the last epoch of the log and its end."""
        message = request.message()
        if int(message.replica_id) != DEBUGGING_REPLICA:
            self._as_leader.offset_for_leader_epoch(request)
            return
        request.respond(
            {
                "topics": [
                    {
                        "topic": topic.topic,
                        "partitions": [
                            self._vote(topic.topic, asked.partition, asked.current_leader_epoch)
                            for asked in topic.partitions
                        ],
                    }
                    for topic in message.topics
                ]
            }
        )

    def _vote(self, topic: str, number: int, epoch: int) -> dict[str, Any]:
        try:
            found = _without_leader(self._replicas.get(topic, number), epoch)
            error = ErrorCode.NONE
        except KafkaError as failure:
            found, error = Completeness(-1, NO_OFFSET), failure.code
        return {
            "error_code": error,
            "partition": number,
            "leader_epoch": found.last_epoch,
            "end_offset": found.log_end,
        }


def _without_leader(partition: Partition, epoch: int) -> Completeness:
    error = partition.check_epoch(epoch)
    if error is not None:
        raise KafkaError(error)
    if partition.role is not Role.FOLLOWER or partition.leader != NO_LEADER:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    latest = partition.log.epochs.latest
    return Completeness(-1 if latest is None else latest, partition.log.log_end)


class Vacancy(NamedTuple):
    """A partition without a leader."""

    topic: str
    topic_id: UUID
    partition: int
    epoch: int
    """In which it lost its leader, and in which its replicas vote."""
    replicas: tuple[int, ...]
    voters: tuple[int, ...]
    """At the time of the question."""


class MajorityElections:
    """Elects leaders while this node is the active controller."""

    def __init__(self, runtime: Runtime, quorum: RaftDriver, controller: ControllerService) -> None:
        self._runtime = runtime
        self._quorum = quorum
        self._controller = controller
        self._channels: dict[int, Channel] = {}
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._quorum.on_image.append(self._image_changed)
        self._quorum.on_leadership.append(self._leadership_changed)
        self._news.set()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        for channel in self._channels.values():
            channel.abort()

    def _image_changed(self, image: MetadataImage, delta: Delta) -> None:
        if delta.changed_partitions or delta.changed_brokers:
            self._news.set()

    def _leadership_changed(self, active: bool, epoch: int) -> None:
        self._news.set()

    async def _run(self) -> None:
        while True:
            await self._news.wait()
            pause_s = FIRST_PAUSE_S
            while self._quorum.is_active and (vacancies := _vacancies(self._quorum.image)):
                if self._news.is_set():
                    self._news.clear()
                    pause_s = FIRST_PAUSE_S
                await self._vote(vacancies)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            self._news.clear()

    async def _vote(self, vacancies: list[Vacancy]) -> None:
        """One round: ask all voters, and elect where a majority of the replicas has answered."""
        logs: dict[Vacancy, dict[int, Completeness]] = {each: {} for each in vacancies}
        brokers = self._quorum.image.brokers
        voters = {replica for each in vacancies for replica in each.voters if replica in brokers}
        loop = asyncio.get_running_loop()
        asked = {
            loop.create_task(
                self._ask(brokers[voter], [v for v in vacancies if voter in v.voters], logs)
            )
            for voter in sorted(voters)
        }
        try:
            until = self._runtime.clock.monotonic() + ANSWER_S_MAX
            while asked and not all(len(logs[v]) >= majority_of(len(v.replicas)) for v in logs):
                left_s = until - self._runtime.clock.monotonic()
                done, asked = await asyncio.wait(
                    asked, timeout=left_s, return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    break
        finally:
            for task in asked:
                task.cancel()
        self._controller.decide(partial(_elect, logs))

    async def _ask(
        self,
        voter: BrokerImage,
        vacancies: list[Vacancy],
        logs: Mapping[Vacancy, dict[int, Completeness]],
    ) -> None:
        by_place = {(each.topic, each.partition): each for each in vacancies}
        fields = {
            "replica_id": DEBUGGING_REPLICA,
            "topics": [
                {
                    "topic": topic,
                    "partitions": [
                        {
                            "partition": each.partition,
                            "current_leader_epoch": each.epoch,
                            "leader_epoch": each.epoch,
                        }
                        for each in vacancies
                        if each.topic == topic
                    ],
                }
                for topic in dict.fromkeys(each.topic for each in vacancies)
            ],
        }
        try:
            channel = await self._channel(voter)
            answer = await channel.request(
                ApiKey.OFFSET_FOR_LEADER_EPOCH, fields, version=VERSION, timeout_s=ANSWER_S_MAX
            )
        except (OSError, TimeoutError, InvalidFrame):
            return
        for topic in answer.topics:
            for found in topic.partitions:
                if found.error_code == ErrorCode.NONE:
                    logs[by_place[topic.topic, int(found.partition)]][voter.id] = Completeness(
                        int(found.leader_epoch), int(found.end_offset)
                    )

    async def _channel(self, voter: BrokerImage) -> Channel:
        channel = self._channels.get(voter.id)
        if channel is None or channel.closed:
            at = voter.endpoints[0]
            name = f"elections-{self._quorum.node_id}"
            channel = await Channel.open(self._runtime.network, at.host, at.port, name)
            self._channels[voter.id] = channel
        return channel


def _vacancies(image: MetadataImage) -> list[Vacancy]:
    return [
        Vacancy(
            topic.name,
            topic.id,
            index,
            partition.leader_epoch,
            partition.replicas,
            voters_of(partition),
        )
        for topic in image.topics.values()
        for index, partition in enumerate(topic.partitions)
        if partition.leader == NO_LEADER
    ]


def _elect(logs: Mapping[Vacancy, Mapping[int, Completeness]], draft: Draft) -> dict[str, Any]:
    """The decision about a vote. It is void for a partition that has changed its epoch since the question."""
    for vacancy, answers in logs.items():
        topic = draft.image.topics_by_id.get(vacancy.topic_id)
        if topic is None:
            continue
        partition = topic.partitions[vacancy.partition]
        if (partition.leader, partition.leader_epoch) != (NO_LEADER, vacancy.epoch):
            continue
        may_lead = draft.image.is_alive
        record = elected_by_majority(topic.id, vacancy.partition, partition, answers, may_lead)
        if record is not None:
            draft.add([record])
    return {}
