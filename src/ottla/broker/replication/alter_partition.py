"""AlterPartition: the leaders here ask the controller for their new ISRs, many in one request.

One request is under way at a time; what is proposed meanwhile goes with the next. An ISR counts only when
the controller's decision comes with the metadata (P13): the answer alone changes nothing here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from uuid import UUID

from ottla.broker.cluster import isr_reasons
from ottla.broker.replication.change_log import tell_of_isrs
from ottla.broker.replication.listener import ReplicaListener
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.events.replication import IsrDecided
from ottla.replica.isr import Proposal
from ottla.replica.partition import Partition
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.types import TopicPartition

logger = logging.getLogger(__name__)

RETRY_S = 0.05

NOT_APPLIED = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED)
"""The controller's knowledge is ours and it did not do it: no controller has done it or ever will."""
OVERTAKEN = (
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NEW_LEADER_ELECTED,
)
"""The partition was changed, perhaps by this very proposal in a request whose answer was lost, or to
complete a reassignment. The proposed members may be in the ISR, so the high watermark waits for them until
the metadata says what became of the partition."""


class NodeToControllerChannel(Protocol):
    """How to reach the active controller, wherever it is."""

    async def request(
        self, api_key: ApiKey, fields: Mapping[str, Any], *, timeout_s: float
    ) -> Any: ...


class IsrProposals(ReplicaListener):
    def __init__(
        self,
        node_id: int,
        replicas: ReplicaManager,
        controller: NodeToControllerChannel,
        broker_epoch: Callable[[], int],
        timeout_s: float,
        *,
        tells_reasons: bool = False,
    ) -> None:
        """`tells_reasons`: there is an event log, which wants to know why."""
        self._node_id = node_id
        self._replicas = replicas
        self._controller = controller
        self._broker_epoch = broker_epoch
        self._timeout_s = timeout_s
        self._tells_reasons = tells_reasons
        self._waiting: dict[Partition, None] = {}
        self._sender: asyncio.Task[None] | None = None
        self._changed: list[tuple[TopicPartition, tuple[int, ...], str]] = []
        """What one answer accepted, to be logged together."""
        replicas.listeners.append(self)

    def isr_proposed(self, partition: Partition) -> None:
        self._waiting[partition] = None
        if self._sender is None:
            self._sender = asyncio.get_running_loop().create_task(self._send_all())

    async def stop(self) -> None:
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.wait([self._sender])

    async def _send_all(self) -> None:
        try:
            # One turn of the loop later, everything that this turn proposes is here.
            await asyncio.sleep(0)
            while self._waiting:
                proposals = self._next_proposals()
                if proposals:
                    await self._send(proposals)
        finally:
            self._sender = None

    def _next_proposals(self) -> dict[tuple[UUID, int], tuple[Partition, Proposal]]:
        """As many of those that wait as one request can hold: all of them, unless their reasons are too long a text."""
        proposals: dict[tuple[UUID, int], tuple[Partition, Proposal]] = {}
        room = isr_reasons.TEXT_BYTES_MAX
        for partition in list(self._waiting):
            proposal = partition.proposal
            if proposal is not None and self._tells_reasons:
                room -= isr_reasons.size_max(proposal.reasons)
                if room < 0:
                    break
            del self._waiting[partition]
            if proposal is not None:
                proposals[partition.topic_id, partition.partition] = partition, proposal
        return proposals

    async def _send(self, proposals: dict[tuple[UUID, int], tuple[Partition, Proposal]]) -> None:
        fields = self._request(proposals)
        try:
            answer = await self._controller.request(
                ApiKey.ALTER_PARTITION, fields, timeout_s=self._timeout_s
            )
        except (OSError, TimeoutError, KafkaError) as error:
            logger.info("AlterPartition was not answered, it is sent again error=%s", error)
            self._propose_again(proposals)
            await asyncio.sleep(RETRY_S)
            return
        if int(answer.error_code) != ErrorCode.NONE:
            logger.info(
                "AlterPartition failed, it is sent again error=%s",
                ErrorCode(int(answer.error_code)).name,
            )
            self._propose_again(proposals)
            await asyncio.sleep(RETRY_S)
            return
        now = self._replicas.clock.monotonic()
        undecided = {}
        for topic in answer.topics:
            for result in topic.partitions:
                key = topic.topic_id, result.partition_index
                partition, proposal = proposals.pop(key)
                if not self._decided(partition, proposal, result, now):
                    undecided[key] = partition, proposal
        assert not proposals, "every proposal is answered"
        changed, self._changed = self._changed, []
        tell_of_isrs(changed)
        if undecided:
            self._propose_again(undecided)
            await asyncio.sleep(RETRY_S)

    def _propose_again(self, proposals: dict[tuple[UUID, int], tuple[Partition, Proposal]]) -> None:
        """The outcome is unknown: the proposal stands until the controller says yes or no."""
        for partition, proposal in proposals.values():
            if partition.proposal is proposal:
                self._waiting[partition] = None

    def _decided(self, partition: Partition, proposal: Proposal, result: Any, now: float) -> bool:
        """False if another controller must be asked."""
        error = ErrorCode(int(result.error_code))
        proposed = tuple(id for id, _ in proposal.isr)
        if IsrDecided in self._replicas.events:
            self._replicas.events.emit(
                IsrDecided(partition.key, proposal.replaces, proposed, proposal.cause, error)
            )
        if error != ErrorCode.NONE:
            logger.info(
                "ISR refused partition=%s-%d isr=%s error=%s cause=%s",
                *partition.key,
                ",".join(map(str, proposed)),
                error.name,
                proposal.cause,
            )
            if error is ErrorCode.INELIGIBLE_REPLICA and partition.leadership is not None:
                partition.leadership.isr_changes.refused(proposal, now)
            elif error in NOT_APPLIED:
                _withdraw(partition, proposal, now)
            return error in NOT_APPLIED or error in OVERTAKEN
        self._changed.append((partition.key, tuple(result.isr), proposal.cause))
        # It counts when the metadata brings it, in order with everything else that was decided: with a
        # higher min.insync.replicas, say, that came before it (D9). Until then the larger set counts.
        if result.partition_epoch <= partition.partition_epoch:
            _withdraw(partition, proposal, now)  # it has come already, or nothing changed
        return True

    def _request(
        self, proposals: dict[tuple[UUID, int], tuple[Partition, Proposal]]
    ) -> Mapping[str, Any]:
        topics: dict[UUID, list[Mapping[str, Any]]] = {}
        for (topic_id, index), (_, proposal) in proposals.items():
            topics.setdefault(topic_id, []).append(
                {
                    "partition_index": index,
                    "leader_epoch": proposal.leader_epoch,
                    "new_isr_with_epochs": [
                        {
                            "broker_id": id,
                            "broker_epoch": self._broker_epoch() if id == self._node_id else epoch,
                        }
                        for id, epoch in proposal.isr
                    ],
                    "leader_recovery_state": 0,
                    "partition_epoch": proposal.partition_epoch,
                }
            )
        return {
            "broker_id": self._node_id,
            "broker_epoch": self._broker_epoch(),
            "ottla_isr_reasons": self._reasons(proposals),
            "topics": [
                {"topic_id": topic_id, "partitions": partitions}
                for topic_id, partitions in topics.items()
            ],
        }

    def _reasons(self, proposals: dict[tuple[UUID, int], tuple[Partition, Proposal]]) -> bytes:
        if not self._tells_reasons:
            return b""
        return isr_reasons.written(
            (topic_id, index, proposal.reasons)
            for (topic_id, index), (_, proposal) in proposals.items()
        )


def _withdraw(partition: Partition, proposal: Proposal, now: float) -> None:
    if partition.leadership is not None:
        partition.leadership.isr_changes.withdraw(proposal, now)
