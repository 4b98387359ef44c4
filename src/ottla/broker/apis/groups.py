"""Requests about groups: each goes to the shard that coordinates its group, and is answered in the API's shape.

A request about several groups is split into one for each group; the replies are collected into one response.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any
from uuid import UUID

from ottla.broker.cluster.metadata_cache import ClusterView
from ottla.broker.coordination.live_shard import InternalTopic, LiveShard
from ottla.broker.coordination.pending_replies import Reply, ReplyCollector, reply_to
from ottla.broker.coordination.shard_host import Coordination
from ottla.broker.server.connections import Request
from ottla.broker.server.registration import serves
from ottla.config.node_settings import Settings
from ottla.coordinators.groups.classic_protocol import join_failure, sync_failure
from ottla.coordinators.groups.consumer_protocol import heartbeat_failure
from ottla.coordinators.groups.context import GroupConfig, GroupRequest
from ottla.coordinators.groups.group_descriptions import ALL_GROUP_OPERATIONS, UNKNOWN_OPERATIONS
from ottla.coordinators.groups.group_records import OffsetCommitKey, delete
from ottla.coordinators.groups.group_shard import GroupShard
from ottla.coordinators.groups.offset_metadata_manager import NO_OFFSET, commit_failure
from ottla.events import Events
from ottla.metadata.image import Delta
from ottla.metadata.records import GROUP_RESOURCE
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, InvalidFrame, KafkaError
from ottla.wire.internal_topics import GROUP_METADATA_TOPIC, UNLISTED_TOPICS
from ottla.wire.messages import field

GROUP_VERSION = "group.version"
"""The feature that allows the protocol of KIP-848."""
CONSUMER_PROTOCOL = "consumer"
GROUPS_MAX = 10_000
"""Groups that one request may name."""


class ImageTopics:
    """The newest metadata image as a group coordinator sees it."""

    def __init__(self, cluster: ClusterView) -> None:
        self._cluster = cluster

    @property
    def version(self) -> int:
        return self._cluster.generation

    def names(self) -> Sequence[str]:
        return [name for name in self._cluster.image.topics if name not in UNLISTED_TOPICS]

    def id_of(self, name: str) -> UUID | None:
        topic = self._cluster.image.topics.get(name)
        return None if topic is None else topic.id

    def name_of(self, id: UUID) -> str | None:
        topic = self._cluster.image.topics_by_id.get(id)
        return None if topic is None else topic.name

    def partitions(self, name: str) -> int:
        topic = self._cluster.image.topics.get(name)
        return 0 if topic is None else len(topic.partitions)

    def group_setting(self, group_id: str, name: str) -> int | None:
        text = self._cluster.image.config(GROUP_RESOURCE, group_id).get(name)
        return None if text is None else int(text)


def group_config(settings: Settings) -> GroupConfig:
    return GroupConfig(
        initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
        min_session_timeout_ms=settings.group_min_session_timeout_ms,
        max_session_timeout_ms=settings.group_max_session_timeout_ms,
        max_size=settings.group_max_size,
        offset_metadata_max_bytes=settings.offset_metadata_max_bytes,
        offsets_retention_ms=settings.offsets_retention_minutes * 60_000,
        offsets_retention_check_interval_ms=settings.offsets_retention_check_interval_ms,
        consumer_session_timeout_ms=settings.group_consumer_session_timeout_ms,
        consumer_heartbeat_interval_ms=settings.group_consumer_heartbeat_interval_ms,
        consumer_max_size=settings.group_consumer_max_size,
        consumer_assignors=settings.group_consumer_assignors,
        can_upgrade=settings.group_consumer_migration_policy in ("upgrade", "bidirectional"),
        can_downgrade=settings.group_consumer_migration_policy in ("downgrade", "bidirectional"),
    )


def group_topic(
    settings: Settings, cluster: ClusterView, random: Random, events: Events
) -> InternalTopic:
    """`__consumer_offsets`, as Kafka makes it."""
    config, topics = group_config(settings), ImageTopics(cluster)

    def new_id() -> str:
        return str(UUID(int=random.getrandbits(128), version=4))

    return InternalTopic(
        GROUP_METADATA_TOPIC,
        settings.offsets_topic_num_partitions,
        settings.offsets_topic_replication_factor,
        {
            "cleanup.policy": "compact",
            "segment.bytes": str(settings.offsets_topic_segment_bytes),
            "compression.type": "producer",
        },
        lambda _: GroupShard(config, topics, new_id, events),
        lambda api_key, version, message, error: refusal(topics, api_key, version, message, error),
        write_timeout_s=settings.offsets_commit_timeout_ms / 1000,
        confirmation=delete(OffsetCommitKey(group="", topic="", partition=-1)),
    )


def refusal(
    topics: ImageTopics, api_key: ApiKey, version: int, request: Any, error: ErrorCode
) -> dict[str, Any]:
    """The response to a request that no shard has decided, in the API's shape."""
    assert isinstance(request, GroupRequest)
    message = request.message
    match api_key:
        case ApiKey.JOIN_GROUP:
            return join_failure(error, message.member_id)
        case ApiKey.SYNC_GROUP:
            return sync_failure(error)
        case ApiKey.HEARTBEAT:
            # An error would make the member join again, though its group only waits for the shard to load.
            is_loading = error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return {"error_code": ErrorCode.NONE if is_loading else error}
        case ApiKey.OFFSET_COMMIT | ApiKey.TXN_OFFSET_COMMIT:
            return commit_failure(topics, message, error)
        case ApiKey.OFFSET_FETCH:
            return {"group_id": message[0].group_id, "topics": (), "error_code": error}
        case ApiKey.DESCRIBE_GROUPS | ApiKey.CONSUMER_GROUP_DESCRIBE | ApiKey.DELETE_GROUPS:
            return {"group_id": message, "error_code": error}
        case ApiKey.LIST_GROUPS:
            return {"error_code": error, "groups": ()}
        case ApiKey.CONSUMER_GROUP_HEARTBEAT:
            return heartbeat_failure(KafkaError(error), message.member_id)
        case _:
            return {"error_code": error}


def group_request(request: Request, message: Any) -> GroupRequest:
    return GroupRequest(message, request.client_id, f"/{request.connection.peer_host}")


class GroupHandlers:
    def __init__(
        self, settings: Settings, coordination: Coordination, cluster: ClusterView
    ) -> None:
        self._protocols = settings.group_coordinator_rebalance_protocols
        self._cluster = cluster
        self._coordination = coordination
        self._topics = ImageTopics(cluster)

    def topics_changed(self, delta: Delta, now: float, now_ms: int) -> None:
        """Offsets of deleted topics are deleted too."""
        names = [topic.name for topic in delta.deleted_topics]
        if not names:
            return
        for live in self._coordination.shards(GROUP_METADATA_TOPIC):
            shard = live.shard
            assert isinstance(shard, GroupShard)
            if live.is_loaded:
                live.apply(shard.topics_deleted(names, now, now_ms))

    # -- one group ----------------------------------------------------------------------------------------

    @serves(
        ApiKey.SYNC_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_DELETE,
    )
    def about_one(self, request: Request) -> None:
        """SyncGroup 0-5, Heartbeat 0-4, LeaveGroup 0-5, OffsetCommit 2-10, OffsetDelete 0: the shard of the group
        decides."""
        self.ask(request, request.message())

    @serves(ApiKey.CONSUMER_GROUP_HEARTBEAT)
    def consumer_heartbeat(self, request: Request) -> None:
        """ConsumerGroupHeartbeat 0-1, where group.version and the settings allow the protocol of KIP-848."""
        message = request.message()
        is_finalized = self._cluster.image.features.get(GROUP_VERSION, 0) >= 1
        if is_finalized and CONSUMER_PROTOCOL in self._protocols:
            self.ask(request, message)
        else:
            self.refuse(request, message, ErrorCode.UNSUPPORTED_VERSION)

    def ask(self, request: Request, message: Any) -> None:
        self._ask(request, message.group_id, message, reply_to(request))

    def refuse(self, request: Request, message: Any, error: ErrorCode) -> None:
        api_key, asked = ApiKey(request.header.api_key), group_request(request, message)
        reply_to(request)(refusal(self._topics, api_key, request.version, asked, error))

    @serves(ApiKey.JOIN_GROUP)
    def join(self, request: Request) -> None:
        """JoinGroup 0-9. Before v7 an answer without a protocol has an empty name."""
        message = request.message()
        reply = reply_to(request)

        def with_protocol(fields: Mapping[str, Any]) -> None:
            if request.version < 7 and fields["protocol_name"] is None:
                fields = {**fields, "protocol_name": ""}
            reply(fields)

        self._ask(request, message.group_id, message, with_protocol)

    def _ask(self, request: Request, group_id: str, message: Any, reply: Reply) -> None:
        asked = group_request(request, message)
        api_key, version = ApiKey(request.header.api_key), request.version
        try:
            live = self._coordination.shard(GROUP_METADATA_TOPIC, group_id)
        except KafkaError as error:
            reply(refusal(self._topics, api_key, version, asked, error.code))
            return
        live.ask(api_key, version, asked, reply)

    # -- several groups -----------------------------------------------------------------------------------

    def _ask_each(
        self,
        request: Request,
        messages: Sequence[tuple[str, Any]],
        done: Callable[[list[Mapping[str, Any]]], None],
    ) -> None:
        """`messages`: (group id, the message about it) of each group."""
        if len(messages) > GROUPS_MAX:
            raise InvalidFrame(f"{len(messages)} groups in one request")
        collector = ReplyCollector(len(messages), done)
        for index, (group_id, message) in enumerate(messages):
            self._ask(request, group_id, message, collector.reply(index))

    @serves(ApiKey.OFFSET_FETCH)
    def fetch_offsets(self, request: Request) -> None:
        """OffsetFetch 1-10. v2: all topics; an error for all. v7: only stable offsets (KIP-447).
        v8: several groups (KIP-709). v9: a member's epoch. v10: topics by id."""
        message = request.message()
        reply = reply_to(request)
        stable = field(message, "require_stable", False)
        if request.version >= 8:
            self._ask_each(
                request,
                [(group.group_id, (group, stable)) for group in message.groups],
                lambda groups: reply({"groups": groups}),
            )
            return

        def about_one(groups: list[Mapping[str, Any]]) -> None:
            answer = groups[0]
            if request.version < 2 and answer["error_code"] != ErrorCode.NONE:
                answer = _failed_in_each(message, answer["error_code"])
            reply(answer_without_group(answer))

        self._ask_each(request, [(message.group_id, (message, stable))], about_one)

    @serves(ApiKey.LIST_GROUPS)
    def list_groups(self, request: Request) -> None:
        """ListGroups 0-5: the groups coordinated here."""
        message = request.message()
        reply = reply_to(request)

        def done(answers: list[Mapping[str, Any]]) -> None:
            errors = [answer["error_code"] for answer in answers]
            # Groups of partitions whose leadership ended meanwhile are listed by their new coordinators.
            error = next(
                (code for code in errors if code not in (0, ErrorCode.NOT_COORDINATOR)),
                ErrorCode.NONE,
            )
            groups = [group for answer in answers for group in answer["groups"]]
            reply({"error_code": error, "groups": groups})

        shards: list[LiveShard] = self._coordination.shards(GROUP_METADATA_TOPIC)
        collector = ReplyCollector(len(shards), done)
        asked = GroupRequest(message, request.client_id, request.connection.peer_host)
        for index, live in enumerate(shards):
            live.ask(ApiKey.LIST_GROUPS, request.version, asked, collector.reply(index))

    @serves(ApiKey.DESCRIBE_GROUPS, ApiKey.CONSUMER_GROUP_DESCRIBE)
    def describe(self, request: Request) -> None:
        """DescribeGroups 0-6, ConsumerGroupDescribe 0-1: each group by its shard."""
        message = request.message()
        reply = reply_to(request)
        wants = field(message, "include_authorized_operations", False)
        operations = ALL_GROUP_OPERATIONS if wants else UNKNOWN_OPERATIONS

        def done(groups: list[Mapping[str, Any]]) -> None:
            reply({"groups": [{**group, "authorized_operations": operations} for group in groups]})

        ids = field(message, "groups", None) or field(message, "group_ids", ())
        self._ask_each(request, [(id, id) for id in ids], done)

    @serves(ApiKey.DELETE_GROUPS)
    def delete(self, request: Request) -> None:
        """DeleteGroups 0-2: each group by its shard."""
        message = request.message()
        reply = reply_to(request)
        self._ask_each(
            request,
            [(id, id) for id in dict.fromkeys(message.groups_names)],
            lambda results: reply({"results": results}),
        )


def answer_without_group(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name != "group_id"}


def _failed_in_each(message: Any, error: ErrorCode) -> dict[str, Any]:
    """OffsetFetch 1 has no error for the whole request: each partition carries it."""
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": index,
                        "committed_offset": NO_OFFSET,
                        "metadata": "",
                        "error_code": error,
                    }
                    for index in topic.partition_indexes
                ],
            }
            for topic in message.topics
        ]
    }
