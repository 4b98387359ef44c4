"""Requests about groups: each goes to the shard that coordinates its group, and is answered in the API's shape.

A request about several groups is split into one for each group; the replies are collected into one response.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, NamedTuple
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
from ottla.coordinators.groups.offset_metadata_manager import (
    NO_OFFSET,
    commit_failure,
    named,
    no_offset,
)
from ottla.events import Events
from ottla.metadata.image import Delta
from ottla.metadata.records import GROUP_RESOURCE
from ottla.patterns.pace import PatternPace
from ottla.security import needs
from ottla.security.needs import Need
from ottla.security.operations import ResourceType
from ottla.security.rights import Rights
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
        consumer_assignment_interval_ms=settings.group_consumer_assignment_interval_ms,
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
            return commit_failure(topics, message.topics, error)
        case ApiKey.OFFSET_FETCH:
            return {"group_id": message[0].group_id, "topics": (), "error_code": error}
        case ApiKey.DESCRIBE_GROUPS | ApiKey.CONSUMER_GROUP_DESCRIBE | ApiKey.DELETE_GROUPS:
            return {"group_id": message, "error_code": error}
        case ApiKey.LIST_GROUPS:
            return {"error_code": error, "groups": ()}
        case ApiKey.CONSUMER_GROUP_HEARTBEAT:
            return heartbeat_failure(KafkaError(error))
        case _:
            return {"error_code": error}


def group_request(request: Request, message: Any, pace: PatternPace) -> GroupRequest:
    host, rights = f"/{request.connection.peer_host}", request.rights
    if rights is None:
        return GroupRequest(message, request.client_id, host)
    return GroupRequest(
        message,
        request.client_id,
        host,
        partial(needs.DESCRIBE_TOPIC.sees, rights),
        partial(pace.select, request.connection.principal),
    )


class Readable(NamedTuple):
    """What of a request about offsets is left when those partitions are taken out that do not exist, or that its sender may
    not READ."""

    message: Any
    refused: Sequence[Mapping[str, Any]]
    """The answers about those."""
    reply: Reply
    """Answers with them, and with what is said about the rest."""


class GroupHandlers:
    def __init__(
        self, settings: Settings, coordination: Coordination, cluster: ClusterView
    ) -> None:
        self._protocols = settings.group_coordinator_rebalance_protocols
        self._cluster = cluster
        self._coordination = coordination
        self._topics = ImageTopics(cluster)
        self._pace = PatternPace()

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

    @serves(ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP)
    def about_one(self, request: Request) -> None:
        """SyncGroup 0-5, Heartbeat 0-4, LeaveGroup 0-5: the shard of the group decides."""
        message, rights = request.message(), request.rights
        if None in (field(message, "protocol_type", ""), field(message, "protocol_name", "")):
            # SyncGroup 5 must name both. Kafka looks at it first.
            self.refuse(request, message, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif rights is not None and not needs.READ_GROUP.met(rights, message.group_id):
            self.refuse(request, message, needs.READ_GROUP.denied)
        elif request.header.api_key == ApiKey.SYNC_GROUP:
            reply = self._if_still_allowed(request, message, reply_to(request))
            self._ask(request, message.group_id, message, reply)
        else:
            self.ask(request, message)

    @serves(ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_DELETE)
    def offsets_of_one(self, request: Request) -> None:
        """OffsetCommit 2-10, OffsetDelete 0: the shard of the group decides."""
        message, rights = request.message(), request.rights
        is_commit = request.header.api_key == ApiKey.OFFSET_COMMIT
        need = needs.READ_GROUP if is_commit else needs.DELETE_GROUP
        if rights is not None and not need.met(rights, message.group_id):
            self.refuse(request, message, need.denied)
        else:
            self.ask_about_topics(request, message)

    @serves(ApiKey.CONSUMER_GROUP_HEARTBEAT)
    def consumer_heartbeat(self, request: Request) -> None:
        """ConsumerGroupHeartbeat 0-1, where group.version and the settings allow the protocol of KIP-848."""
        message, rights = request.message(), request.rights
        is_finalized = self._cluster.image.features.get(GROUP_VERSION, 0) >= 1
        if not is_finalized or CONSUMER_PROTOCOL not in self._protocols:
            self.refuse(request, message, ErrorCode.UNSUPPORTED_VERSION)
        elif rights is not None and not needs.READ_GROUP.met(rights, message.group_id):
            self.refuse(request, message, needs.READ_GROUP.denied)
        elif rights is not None and not all(
            needs.DESCRIBE_TOPIC.met(rights, name) for name in message.subscribed_topic_names or ()
        ):
            self.refuse(request, message, needs.DESCRIBE_TOPIC.denied)
        else:
            self.ask(request, message)

    def ask(self, request: Request, message: Any) -> None:
        self._ask(request, message.group_id, message, reply_to(request))

    def ask_about_topics(self, request: Request, message: Any) -> None:
        """Offsets of several topics. What does not exist or may not be READ is refused, the rest is asked about."""
        readable = self.readable(request, message)
        is_commit = request.header.api_key == ApiKey.OFFSET_COMMIT
        if is_commit and not readable.message.topics:
            readable.reply({"topics": ()})
        else:
            self.ask_for(request, readable)

    def readable(self, request: Request, message: Any) -> Readable:
        rights, reply = request.rights, reply_to(request)
        topics, denied = message.topics, ()
        if rights is not None:
            topics, denied = self._split(rights, needs.READ_TOPIC, topics)
        rows = self._refused(denied, needs.READ_TOPIC.denied)
        known = []
        for topic in topics:
            name, _ = named(self._topics, topic)
            if name is None:
                rows += self._refused([topic], ErrorCode.UNKNOWN_TOPIC_ID)
                continue
            count = self._topics.partitions(name)
            strange = [each for each in topic.partitions if not 0 <= each.partition_index < count]
            if strange:
                absent = replace(topic, partitions=tuple(strange))
                rows += self._refused([absent], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                there = tuple(each for each in topic.partitions if each not in strange)
                topic = replace(topic, partitions=there)
            if topic.partitions:
                known.append(topic)
        if len(known) == len(message.topics) and not rows:
            return Readable(message, (), reply)

        def with_refused(fields: Mapping[str, Any]) -> None:
            failed = fields.get("error_code", ErrorCode.NONE) != ErrorCode.NONE
            reply(fields if failed else {**fields, "topics": _merged([*rows, *fields["topics"]])})

        return Readable(replace(message, topics=tuple(known)), rows, with_refused)

    def _refused(self, topics: Sequence[Any], error: ErrorCode) -> list[Mapping[str, Any]]:
        rows: list[Mapping[str, Any]] = commit_failure(self._topics, topics, error)["topics"]
        return rows

    def _split(
        self, rights: Rights, need: Need, topics: Iterable[Any]
    ) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Those that this need is met for, and the others. An id that names no topic is refused for that, later."""
        allowed: list[Any] = []
        refused: list[Any] = []
        for topic in topics:
            name, _ = named(self._topics, topic)
            (allowed if name is None or need.met(rights, name) else refused).append(topic)
        return tuple(allowed), tuple(refused)

    def refuse(self, request: Request, message: Any, error: ErrorCode) -> None:
        reply_to(request)(self.refusal(request, message, error))

    def refusal(self, request: Request, message: Any, error: ErrorCode) -> dict[str, Any]:
        api_key, asked = ApiKey(request.header.api_key), group_request(request, message, self._pace)
        return refusal(self._topics, api_key, request.version, asked, error)

    @serves(ApiKey.JOIN_GROUP)
    def join(self, request: Request) -> None:
        """JoinGroup 0-9. Before v7 an answer without a protocol has an empty name."""
        message, rights = request.message(), request.rights
        reply = reply_to(request)

        def with_protocol(fields: Mapping[str, Any]) -> None:
            if request.version < 7 and fields["protocol_name"] is None:
                fields = {**fields, "protocol_name": ""}
            reply(fields)

        if rights is not None and not needs.READ_GROUP.met(rights, message.group_id):
            with_protocol(self.refusal(request, message, needs.READ_GROUP.denied))
        else:
            allowed = self._if_still_allowed(request, message, with_protocol)
            self._ask(request, message.group_id, message, allowed)

    def _if_still_allowed(self, request: Request, message: Any, reply: Reply) -> Reply:
        """JoinGroup and SyncGroup wait for the other members, for minutes, and their answers tell of them. So whether their
        sender may know is asked again when they are answered."""

        def answer(fields: Mapping[str, Any]) -> None:
            connection = request.connection
            gate = connection.sasl
            if connection.closed or (gate is not None and gate.ends_if_over()):
                return
            if not needs.READ_GROUP.met(request.rights, message.group_id):
                fields = self.refusal(request, message, needs.READ_GROUP.denied)
            reply(fields)

        return answer

    def ask_for(self, request: Request, readable: Readable) -> None:
        self._ask(request, readable.message.group_id, readable.message, readable.reply)

    def _ask(self, request: Request, group_id: str, message: Any, reply: Reply) -> None:
        asked = group_request(request, message, self._pace)
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
        need: Need,
        messages: Sequence[tuple[str, Any]],
        done: Callable[[list[Mapping[str, Any]]], None],
    ) -> None:
        """`messages`: (group id, the message about it) of each group. Groups that `need` is not met for are refused."""
        if len(messages) > GROUPS_MAX:
            raise InvalidFrame(f"{len(messages)} groups in one request")
        collector = ReplyCollector(len(messages), done)
        for index, (group_id, message) in enumerate(messages):
            if need.met(request.rights, group_id):
                self._ask(request, group_id, message, collector.reply(index))
            else:
                collector.reply(index)(self.refusal(request, message, need.denied))

    @serves(ApiKey.OFFSET_FETCH)
    def fetch_offsets(self, request: Request) -> None:
        """OffsetFetch 1-10. v2: all topics; an error for all. v7: only stable offsets (KIP-447).
        v8: several groups (KIP-709). v9: a member's epoch. v10: topics by id."""
        message = request.message()
        reply = reply_to(request)
        stable = field(message, "require_stable", False)
        by_group = request.version >= 8
        entries = message.groups if by_group else (message,)
        seen, hidden = entries, [()] * len(entries)
        if (rights := request.rights) is not None:
            seen, hidden = self._without_hidden(rights, entries)

        def done(groups: list[Mapping[str, Any]]) -> None:
            if rights is not None:
                groups = [
                    self._with_hidden(rights, asked, answer, unseen)
                    for asked, answer, unseen in zip(entries, groups, hidden, strict=True)
                ]
            if by_group:
                reply({"groups": groups})
                return
            answer = groups[0]
            if request.version < 2 and answer["error_code"] != ErrorCode.NONE:
                answer = _failed_in_each(message, answer["error_code"])
            reply(answer_without_group(answer))

        asked = [(entry.group_id, (entry, stable)) for entry in seen]
        self._ask_each(request, needs.DESCRIBE_GROUP, asked, done)

    def _without_hidden(
        self, rights: Rights, entries: Sequence[Any]
    ) -> tuple[list[Any], list[tuple[Any, ...]]]:
        """Entries of OffsetFetch without the topics that the sender may not DESCRIBE, and those topics."""
        seen, hidden = [], []
        for entry in entries:
            allowed, refused = None, ()
            if entry.topics is not None:
                allowed, refused = self._split(rights, needs.DESCRIBE_TOPIC, entry.topics)
            seen.append(replace(entry, topics=allowed))
            hidden.append(refused)
        return seen, hidden

    def _with_hidden(
        self, rights: Rights, asked: Any, answer: Mapping[str, Any], hidden: tuple[Any, ...]
    ) -> Mapping[str, Any]:
        """Topics that were named are refused. Those that were not are left out."""
        if answer["error_code"] != ErrorCode.NONE:
            return answer
        if asked.topics is None:
            return {
                **answer,
                "topics": [row for row in answer["topics"] if self._sees(rights, row)],
            }
        error = needs.DESCRIBE_TOPIC.denied
        rows = [
            {
                **named(self._topics, topic)[1],
                "partitions": [no_offset(index, error) for index in topic.partition_indexes],
            }
            for topic in hidden
        ]
        return {**answer, "topics": [*answer["topics"], *rows]}

    def _sees(self, rights: Rights, row: Mapping[str, Any]) -> bool:
        name = row["name"] if "name" in row else self._topics.name_of(row["topic_id"])
        return name is not None and needs.DESCRIBE_TOPIC.sees(rights, name)

    @serves(ApiKey.LIST_GROUPS)
    def list_groups(self, request: Request) -> None:
        """ListGroups 0-5: the groups coordinated here."""
        message, rights = request.message(), request.rights
        reply = reply_to(request)

        def done(answers: list[Mapping[str, Any]]) -> None:
            errors = [answer["error_code"] for answer in answers]
            # Groups of partitions whose leadership ended meanwhile are listed by their new coordinators.
            error = next(
                (code for code in errors if code not in (0, ErrorCode.NOT_COORDINATOR)),
                ErrorCode.NONE,
            )
            groups = [
                group
                for answer in answers
                for group in answer["groups"]
                if needs.SEE_GROUP.sees(rights, group["group_id"])
            ]
            reply({"error_code": error, "groups": groups})

        shards: list[LiveShard] = self._coordination.shards(GROUP_METADATA_TOPIC)
        collector = ReplyCollector(len(shards), done)
        asked = GroupRequest(message, request.client_id, request.connection.peer_host)
        for index, live in enumerate(shards):
            live.ask(ApiKey.LIST_GROUPS, request.version, asked, collector.reply(index))

    @serves(ApiKey.DESCRIBE_GROUPS, ApiKey.CONSUMER_GROUP_DESCRIBE)
    def describe(self, request: Request) -> None:
        """DescribeGroups 0-6, ConsumerGroupDescribe 0-1: each group by its shard."""
        message, rights = request.message(), request.rights
        reply = reply_to(request)
        wants = field(message, "include_authorized_operations", False)

        def done(groups: list[Mapping[str, Any]]) -> None:
            if rights is not None:
                groups = [_as_seen(rights, group) for group in groups]
            reply({"groups": [_with_operations(rights, group, wants) for group in groups]})

        ids = field(message, "groups", None) or field(message, "group_ids", ())
        self._ask_each(request, needs.DESCRIBE_GROUP, [(id, id) for id in ids], done)

    @serves(ApiKey.DELETE_GROUPS)
    def delete(self, request: Request) -> None:
        """DeleteGroups 0-2: each group by its shard."""
        message = request.message()
        reply = reply_to(request)
        self._ask_each(
            request,
            needs.DELETE_GROUP,
            [(id, id) for id in dict.fromkeys(message.groups_names)],
            lambda results: reply({"results": _audited(request, results)}),
        )


def _merged(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """One row for each topic, with all of its partitions."""
    topics: dict[Any, dict[str, Any]] = {}
    for row in rows:
        key = row["name"] if "name" in row else row["topic_id"]
        found = topics.setdefault(key, {**row, "partitions": []})
        found["partitions"] += row["partitions"]
    return list(topics.values())


def _audited(request: Request, results: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    for deleted in results:
        if not deleted.get("error_code"):
            request.changed("DELETE", f"Group:{deleted['group_id']}")
    return results


def _as_seen(rights: Rights, group: Mapping[str, Any]) -> Mapping[str, Any]:
    """A described group, unless one of its members reads a topic that one may not know of."""
    names = {
        assigned["topic_name"]
        for member in group.get("members", ())
        for part in ("assignment", "target_assignment")
        if part in member and isinstance(member[part], Mapping)
        for assigned in member[part]["topic_partitions"]
    }
    if all(needs.DESCRIBE_TOPIC.sees(rights, name) for name in sorted(names)):
        return group
    return {
        "group_id": group["group_id"],
        "error_code": needs.DESCRIBE_TOPIC.denied,
        "error_message": "The group has described topic(s) that the client is not authorized to"
        " describe.",
    }


def _with_operations(
    rights: Rights | None, group: Mapping[str, Any], wants: bool
) -> Mapping[str, Any]:
    """Only of a group that is described."""
    operations = UNKNOWN_OPERATIONS
    if wants and group["error_code"] == ErrorCode.NONE:
        operations = (
            ALL_GROUP_OPERATIONS
            if rights is None
            else rights.authorized_operations(ResourceType.GROUP, group["group_id"])
        )
    return {**group, "authorized_operations": operations}


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
