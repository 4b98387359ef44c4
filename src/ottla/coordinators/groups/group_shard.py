"""The coordinator of all groups that hash to one partition of `__consumer_offsets`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ottla.coordinators.groups.classic_group import ClassicGroup
from ottla.coordinators.groups.context import (
    EffectsBuilder,
    GroupConfig,
    GroupContext,
    GroupRequest,
    Topics,
)
from ottla.coordinators.groups.group_descriptions import GroupDescriber
from ottla.coordinators.groups.group_metadata_manager import Group, GroupMetadataManager
from ottla.coordinators.groups.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    read_record,
)
from ottla.coordinators.groups.offset_metadata_manager import OffsetMetadataManager
from ottla.coordinators.groups.offsets import GroupOffsets
from ottla.coordinators.shard import CoordinatorRecord, Effects, ProducerStamp, Token
from ottla.events import Events
from ottla.events.coordination import OpenWork
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.record_codec import CoordinatorKey, CoordinatorValue, MalformedRecord

logger = logging.getLogger(__name__)

EXPIRED_AT_ONCE_MAX = 1000
"""Offsets deleted in one batch; the rest follows at once in the next one."""

FAILED_TIMER_RETRY_MS = 30_000

_EXPIRY = ("expiry",)

Command = Callable[[int, GroupRequest, Token], None]


class GroupShard:
    """Hands records, requests and timers to the managers of groups and of offsets (see `shard.Shard`).

    Messages are `GroupRequest`. Of a request about several groups, a shard gets the part about one: its id
    (DescribeGroups, DeleteGroups) or the group's entry (OffsetFetch).
    """

    def __init__(
        self, config: GroupConfig, topics: Topics, new_id: Callable[[], str], events: Events
    ) -> None:
        self._context = GroupContext(config, topics, new_id, events)
        self._groups = GroupMetadataManager(self._context)
        self._offsets = OffsetMetadataManager(self._context, self._groups)
        describer = GroupDescriber(self._context, self._groups)
        self._commands: dict[int, Command] = {
            ApiKey.JOIN_GROUP: self._groups.join,
            ApiKey.SYNC_GROUP: self._groups.sync,
            ApiKey.HEARTBEAT: self._groups.heartbeat,
            ApiKey.LEAVE_GROUP: self._groups.leave,
            ApiKey.CONSUMER_GROUP_HEARTBEAT: self._groups.consumer.heartbeat,
            ApiKey.OFFSET_COMMIT: self._offsets.commit,
            ApiKey.TXN_OFFSET_COMMIT: self._offsets.commit_in_transaction,
            ApiKey.OFFSET_FETCH: self._offsets.fetch,
            ApiKey.OFFSET_DELETE: self._offsets.delete,
            ApiKey.LIST_GROUPS: describer.list_groups,
            ApiKey.DESCRIBE_GROUPS: describer.describe,
            ApiKey.CONSUMER_GROUP_DESCRIBE: describer.describe_consumers,
            ApiKey.DELETE_GROUPS: self._delete,
        }

    @property
    def groups(self) -> dict[str, Group]:
        return self._groups.groups

    @property
    def offsets(self) -> GroupOffsets:
        return self._offsets.offsets

    def open_work(self) -> OpenWork:
        return OpenWork(
            rebalancing_groups=self._groups.rebalancing(),
            groups_with_offsets=len(self.offsets.groups()),
            groups_with_pending_offsets=sum(map(self.offsets.has_pending, self.groups)),
        )

    # -- records ------------------------------------------------------------------------------------------

    def replay(
        self, offset: int, record: CoordinatorRecord, producer: ProducerStamp | None, now_ms: int
    ) -> None:
        """A record that cannot be read or makes no sense is skipped, as Kafka does: it must not make all groups
        unavailable."""
        try:
            found = read_record(record)
        except MalformedRecord as error:
            logger.error("skipped record of a group coordinator offset=%d error=%s", offset, error)
            return
        if found is None:
            return
        key, value = found
        try:
            self._replay(offset, key, value, producer)
        except Exception:
            logger.exception("skipped record of a group coordinator offset=%d key=%s", offset, key)

    def _replay(
        self,
        offset: int,
        key: CoordinatorKey,
        value: CoordinatorValue | None,
        producer: ProducerStamp | None,
    ) -> None:
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue)
            self.offsets.replay(offset, key, value, producer)
            if value is not None:
                self._groups.replay_offset(key.group)
        elif isinstance(key, GroupMetadataKey):
            assert value is None or isinstance(value, GroupMetadataValue)
            self._groups.replay_classic(key.group, value)
        elif hasattr(key, "group_id"):
            self._groups.replay_consumer(key.group_id, key, value)

    def replay_marker(self, producer: ProducerStamp, committed: bool) -> None:
        self.offsets.end_transaction(producer.producer_id, committed)

    # -- requests and time ----------------------------------------------------------------------------------

    def loaded(self, now: float) -> Effects:
        self._context.out = EffectsBuilder(now, -1, only_records=True)
        self._groups.loaded()
        self._offsets.delete_stale(EXPIRED_AT_ONCE_MAX)
        self._await_expiry(self._context.config.offsets_retention_check_interval_ms)
        return self._context.out.effects()

    def handle(
        self, api_key: int, version: int, message: Any, token: Token, now: float, now_ms: int
    ) -> Effects:
        self._context.out = EffectsBuilder(now, now_ms)
        self._commands[api_key](version, message, token)
        return self._context.out.effects()

    def tick(self, now: float, now_ms: int) -> Effects:
        self._context.out = EffectsBuilder(now, now_ms)
        out = self._context.out
        for name, action in self._context.timers.due(now):
            decided = len(out.records), len(out.replies)
            try:
                action()
            except Exception:
                # It concerns one group: all others go on, and nothing that was half decided is written.
                logger.exception(
                    "timer of a group failed, trying again timer=%s", " of ".join(name[:2])
                )
                del out.records[decided[0] :], out.replies[decided[1] :]
                self._context.after(name, FAILED_TIMER_RETRY_MS, action)
        return out.effects()

    def next_deadline(self) -> float:
        return self._context.timers.next_look()

    # -- deletion -------------------------------------------------------------------------------------------

    def topics_deleted(self, names: list[str], now: float, now_ms: int) -> Effects:
        """Offsets of a deleted topic mean nothing for a new topic of the same name."""
        self._context.out = EffectsBuilder(now, now_ms, only_records=True)
        self._offsets.delete_of_topics(names)
        return self._context.out.effects()

    def _delete(self, version: int, request: GroupRequest, token: Token) -> None:
        """DeleteGroups 0-2, one group: it must have no members; its offsets are deleted with it."""
        group_id: str = request.message
        error = ErrorCode.NONE
        try:
            group = self._groups.find(group_id)
            if not group.is_empty:
                raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
            self._context.out.only_records = True
            self._offsets.delete_all(group_id)
            self._groups.delete(group)
        except KafkaError as failure:
            error = failure.code
        self._context.out.reply(token, {"group_id": group_id, "error_code": error})

    def _await_expiry(self, delay_ms: int) -> None:
        self._context.after(_EXPIRY, delay_ms, self._expire)

    def _expire(self) -> None:
        """Delete offsets that have expired, and groups that have neither members nor offsets."""
        for group in list(self.groups.values()):
            is_bare = self._offsets.expire(group)
            is_joining = isinstance(group, ClassicGroup) and bool(group.pending)
            if is_bare and group.is_empty and not is_joining:
                self._groups.delete(group)
            if len(self._context.out.records) >= EXPIRED_AT_ONCE_MAX:
                self._await_expiry(1)
                return
        self._await_expiry(self._context.config.offsets_retention_check_interval_ms)
