"""TxnOffsetCommit: a group's offsets as part of a producer's transaction.

The partition of `__consumer_offsets` takes part like any other: before the first offsets of a transaction are written
there, the transaction's coordinator is asked. From v5 on the same request adds the partition.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.apis.groups import GroupHandlers, Readable
from ottla.broker.coordination.shard_host import Coordination
from ottla.broker.coordination.verification import Beginning, Verifier, client_error
from ottla.broker.server.connections import Request
from ottla.broker.server.registration import serves
from ottla.runtime import Clock
from ottla.security import needs
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.internal_topics import GROUP_METADATA_TOPIC

ABORTABLE_FROM = 4
IMPLICIT_ADD_FROM = 5
NO_SEQUENCE = 0
"""Commits of offsets have no sequence numbers, so none can be missing before them."""


class TxnOffsetCommitHandler:
    def __init__(
        self, clock: Clock, groups: GroupHandlers, coordination: Coordination, verifier: Verifier
    ) -> None:
        self._clock = clock
        self._groups = groups
        self._coordination = coordination
        self._verifier = verifier

    @serves(ApiKey.TXN_OFFSET_COMMIT)
    def __call__(self, request: Request) -> None:
        """TxnOffsetCommit 0-5: the group's shard decides, once the transaction is known to have its partition."""
        asked = request.message()
        readable = self._readable(request, asked)
        if readable is None:
            return
        message = readable.message
        if not message.group_id:
            readable.reply(self._groups.refusal(request, message, ErrorCode.INVALID_GROUP_ID))
            return
        if message.producer_id < 0 or message.producer_epoch < 0:
            # Such a transaction has no producer, and no marker would ever end it.
            error = ErrorCode.INVALID_PRODUCER_ID_MAPPING
            readable.reply(self._groups.refusal(request, message, error))
            return
        beginning = self._beginning(message)
        if beginning is None:
            self._groups.ask_for(request, readable)
            return
        request.connection.hold()
        request.connection.server.spawn(self._verify(request, asked, beginning))

    def _readable(self, request: Request, message: Any) -> Readable | None:
        """What of it its sender may commit. None if that is nothing, and it is answered."""
        rights = request.rights
        for need, name in (
            (needs.WRITE_TRANSACTION, message.transactional_id),
            (needs.READ_GROUP, message.group_id),
        ):
            if not need.met(rights, name):
                self._groups.refuse(request, message, need.denied)
                return None
        readable = self._groups.readable(request, message)
        if not readable.message.topics:
            readable.reply({"topics": ()})
            return None
        return readable

    def _beginning(self, message: Any) -> Beginning | None:
        try:
            live = self._coordination.shard(GROUP_METADATA_TOPIC, message.group_id)
        except KafkaError:
            return None  # `GroupHandlers` answer with the error
        leadership = live.partition.leadership
        if leadership is None:
            return None
        verified = leadership.begin_verification_of(
            message.producer_id, message.producer_epoch, NO_SEQUENCE, self._clock.wall_ms()
        )
        return None if verified is None else Beginning(live.partition, verified)

    async def _verify(self, request: Request, message: Any, beginning: Beginning) -> None:
        try:
            verdicts = await self._verifier.verify(
                message.transactional_id, {0: beginning}, add=request.version >= IMPLICIT_ADD_FROM
            )
            if request.connection.closed:
                return
            readable = self._readable(request, message)  # a right may be gone meanwhile
            if readable is None:
                return
            if verdicts.refused:
                error = client_error(
                    verdicts.refused[0],
                    knows_abortable=request.version >= ABORTABLE_FROM,
                    try_again=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                )
                readable.reply(self._groups.refusal(request, readable.message, error.code))
            else:
                self._groups.ask_for(request, readable)
        except Exception:
            request.connection.fail(request)
        finally:
            request.connection.release()
