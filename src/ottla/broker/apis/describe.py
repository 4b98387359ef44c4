"""What the cluster looks like: ApiVersions, Metadata, DescribeCluster, DescribeTopicPartitions.

All of it comes from the newest metadata image. Metadata is asked often and changes rarely: an encoded answer
is kept until the image changes.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias
from uuid import UUID

from ottla.broker.cluster.controller_channel import ControllerChannel
from ottla.broker.cluster.leader_liveness import LeaderLiveness
from ottla.broker.cluster.metadata_cache import ClusterView
from ottla.broker.server.connections import Request
from ottla.broker.server.registration import serves
from ottla.config.node_settings import Settings
from ottla.metadata.features import KRAFT_VERSION, SUPPORTED
from ottla.metadata.image import MetadataImage, PartitionImage, TopicImage
from ottla.security.needs import CREATE_TOPIC, DESCRIBE_CLUSTER, DESCRIBE_TOPIC
from ottla.security.operations import CLUSTER_NAME, ResourceType
from ottla.security.rights import Rights
from ottla.wire import messages
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.errors import ErrorCode, InvalidFrame, KafkaError
from ottla.wire.internal_topics import INTERNAL_TOPICS, UNLISTED_TOPICS
from ottla.wire.printable import NAME_CHARACTERS
from ottla.wire.types import ZERO_UUID, is_valid_topic_name

UNKNOWN_OPERATIONS = -(2**31)
ALL_TOPIC_OPERATIONS = 0b0000_1101_1111_1000
"""Read, Write, Create, Delete, Alter, Describe, DescribeConfigs, AlterConfigs: without ACLs, all of them."""
ALL_CLUSTER_OPERATIONS = 0b0001_1111_1010_0000
BROKERS, CONTROLLERS = 1, 2
"""Kafka's types of endpoints (KIP-919)."""
CACHED_ANSWERS_MAX = 256
CACHED_BYTES_MAX = 32 * 1024 * 1024
"""Of all answers. The topics that were asked for are kept, too, but they take no more: an answer has their names."""
CACHED_TOPICS_MAX = 1000
"""An answer about more topics than this is not kept, unless it is about all of them."""
AUTO_CREATE_TIMEOUT_S = 5.0
NULL_NAMES_FROM = 12
"""The version of Metadata from which on a topic can be named by its id alone."""
AUTO_CREATE_MAX = 1000
"""Topics that one request makes; a client that names more asks again for those that it lacks."""

Asked: TypeAlias = tuple[tuple[str | None, UUID | None], ...] | None
"""The topics that a Metadata request names, by name or id; None for all."""

_CLIENT_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class ApiVersionsHandler:
    """What one kind of listener announces: the rows of wire/apis.py that it serves."""

    def __init__(
        self,
        image: Callable[[], MetadataImage],
        kraft_version: Callable[[], int] = lambda: 0,
        *,
        listener_is_controller: bool = False,
    ) -> None:
        self._image = image
        self._kraft_version = kraft_version
        self._keys = [
            {
                "api_key": int(api.key),
                "min_version": api.advertised_min_version,
                "max_version": api.max_version,
            }
            for api in APIS.values()
            if (api.on_controller if listener_is_controller else api.on_broker)
        ]

    @serves(ApiKey.API_VERSIONS)
    def __call__(self, request: Request) -> None:
        """ApiVersions 0-4. An unknown version gets the version 0 answer with UNSUPPORTED_VERSION (KIP-511)."""
        version = request.version
        if not APIS[ApiKey.API_VERSIONS].serves(version):
            fields = {"error_code": ErrorCode.UNSUPPORTED_VERSION, "api_keys": self._keys}
            request.respond_chunks([messages.write_response(ApiKey.API_VERSIONS, 0, fields)])
            return
        if version >= 3:
            message = request.message()
            for text in (message.client_software_name, message.client_software_version):
                if not _CLIENT_SOFTWARE.fullmatch(text):
                    request.respond({"error_code": ErrorCode.INVALID_REQUEST, "api_keys": ()})
                    return
            # Who has not logged in may say it, too: of a long one the beginning is kept.
            request.connection.client_software = (
                message.client_software_name[:NAME_CHARACTERS],
                message.client_software_version[:NAME_CHARACTERS],
            )
        now = self._image()
        finalized = dict(now.features)
        if (kraft_version := self._kraft_version()) > 0:
            finalized[KRAFT_VERSION] = kraft_version
        request.respond(
            {
                "error_code": ErrorCode.NONE,
                "api_keys": self._keys,
                "supported_features": [
                    {"name": name, "min_version": low, "max_version": high}
                    # Before v4 a minimum of 0 could not be said (KIP-1022).
                    for name, (low, high) in sorted(SUPPORTED.items())
                    if version >= 4 or low > 0
                ],
                "finalized_features_epoch": now.offset,
                "finalized_features": [
                    {"name": name, "max_version_level": level, "min_version_level": level}
                    for name, level in sorted(finalized.items())
                ],
            }
        )


class DescribeHandlers:
    def __init__(
        self,
        settings: Settings,
        cluster: ClusterView,
        controller: ControllerChannel,
        cluster_id: str,
        liveness: LeaderLiveness,
    ) -> None:
        self._liveness = liveness
        self._settings = settings
        self._cluster = cluster
        self._controller = controller
        self._cluster_id = cluster_id
        self._answers: dict[tuple[Any, ...], bytes] = {}
        self._answers_of = -1
        self._answers_bytes = 0

    # -- Metadata ------------------------------------------------------------------------------------

    @serves(ApiKey.METADATA)
    def metadata(self, request: Request) -> None:
        """Metadata 0-13. No list of topics means all of them (v0: an empty list does)."""
        message = request.message()
        version = request.version
        topics = message.topics
        if topics is not None and version == 0 and not topics:
            topics = None
        if 10 <= version < NULL_NAMES_FROM and not all(
            t.name and not t.topic_id for t in topics or ()
        ):
            # Null and ids can be said in these versions, and are not allowed: Kafka's answer.
            wrong = {"error_code": ErrorCode.INVALID_REQUEST, "is_internal": False}
            rows = [
                {**wrong, "name": t.name or "", "topic_id": t.topic_id or ZERO_UUID}
                for t in topics or ()
            ]
            request.respond({"topics": rows})
            return
        asked = (
            None
            if topics is None
            # Each topic once, as Kafka does: the answer is then never much larger than the metadata.
            else tuple(dict.fromkeys((t.name, messages.field(t, "topic_id", None)) for t in topics))
        )
        may_create = (
            messages.field(message, "allow_auto_topic_creation", True)
            and self._settings.auto_create_topics_enable
        )
        with_operations = messages.field(message, "include_topic_authorized_operations", False)
        rights = request.connection.rights
        visible = asked if rights is None else self._visible(rights, asked)
        missing = self._missing(visible) if may_create else []
        refused = {
            name: int(CREATE_TOPIC.denied) for name in missing if not CREATE_TOPIC.met(rights, name)
        }
        missing = [name for name in missing if name not in refused][:AUTO_CREATE_MAX]
        if missing:
            request.run(
                self._create_then_describe(request, asked, missing, refused, with_operations)
            )
            return
        if refused:
            request.respond(_failed(self._metadata(request, asked, with_operations), refused))
            return
        if messages.field(message, "include_cluster_authorized_operations", False):
            fields = self._metadata(request, asked, with_operations)
            request.respond(
                {**fields, "cluster_authorized_operations": _cluster_operations(rights)}
            )
            return
        leaders = self._liveness.leaders_to_try(name for name, _ in visible or () if name)
        if leaders:
            self._when_elected(request, leaders, asked, with_operations)
        else:
            self._answer_metadata(request, asked, with_operations)

    def _when_elected(
        self, request: Request, leaders: list[int], asked: Asked, with_operations: bool
    ) -> None:
        async def wait() -> None:
            await self._liveness.wait_for_elections(leaders)
            if not request.connection.closed:
                self._answer_metadata(request, asked, with_operations)

        request.connection.server.spawn(wait())

    def _answer_metadata(self, request: Request, asked: Asked, with_operations: bool) -> None:
        if (
            self._answers_of != self._cluster.generation
            or len(self._answers) > CACHED_ANSWERS_MAX
            or self._answers_bytes > CACHED_BYTES_MAX
        ):
            self._answers.clear()
            self._answers_bytes = 0
            self._answers_of = self._cluster.generation
        if request.throttle_ms:
            request.respond(self._metadata(request, asked, with_operations))
            return
        version = request.version
        rights = request.connection.rights
        who = None  # one answer for all who see everything
        if rights is not None and not rights.is_super_user:
            who = rights.principal, rights.host, rights.generation
        key = (version, request.connection.listener, asked, with_operations, who)
        answer = self._answers.get(key)
        if answer is None:
            answer = messages.write_response(
                ApiKey.METADATA, version, self._metadata(request, asked, with_operations)
            )
            if asked is None or len(asked) <= CACHED_TOPICS_MAX:
                self._answers[key] = answer
                self._answers_bytes += len(answer)
        request.respond_chunks([answer])

    def _visible(self, rights: Rights, asked: Asked) -> Asked:
        """Of the named topics, those that the client may know of."""
        return tuple(
            (name, topic_id)
            for name, topic_id in asked or ()
            if (known := self._cluster.topic_name(name, topic_id or None)) is not None
            and DESCRIBE_TOPIC.sees(rights, known)
        )

    def _missing(self, asked: Asked) -> list[str]:
        topics = self._cluster.image.topics
        return [
            name
            for name, topic_id in asked or ()
            if name and not topic_id and name not in topics and name not in UNLISTED_TOPICS
        ]

    async def _create_then_describe(
        self,
        request: Request,
        asked: Asked,
        missing: list[str],
        refused: Mapping[str, int],
        with_operations: bool,
    ) -> Mapping[str, Any]:
        """A topic that a client names is made at once, and the answer waits for it, so that a first
        produce need not come back."""
        failed = dict(refused)
        try:
            answer = await self._controller.request_for(
                request,
                ApiKey.CREATE_TOPICS,
                {
                    "topics": [
                        {"name": name, "num_partitions": -1, "replication_factor": -1}
                        for name in dict.fromkeys(missing)
                    ],
                    "timeout": int(AUTO_CREATE_TIMEOUT_S * 1000),
                    "validate_only": False,
                },
                timeout_s=AUTO_CREATE_TIMEOUT_S,
            )
        except (OSError, TimeoutError, KafkaError, InvalidFrame):
            failed |= dict.fromkeys(missing, int(ErrorCode.LEADER_NOT_AVAILABLE))
        else:
            for topic in answer.topics:
                code = int(topic.error_code)
                if code in (
                    ErrorCode.INVALID_TOPIC_EXCEPTION,
                    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                ):
                    failed[topic.name] = code
            try:
                await asyncio.wait_for(
                    self._cluster.wait_for(
                        lambda image: all(
                            name in image.topics for name in missing if name not in failed
                        )
                    ),
                    1.0 if all(int(t.error_code) == 0 for t in answer.topics) else 0.05,
                )
            except TimeoutError:
                for name in missing:
                    failed.setdefault(name, int(ErrorCode.LEADER_NOT_AVAILABLE))
        return _failed(self._metadata(request, asked, with_operations), failed)

    def _metadata(
        self,
        request: Request,
        asked: Asked,
        with_operations: bool,
    ) -> Mapping[str, Any]:
        image = self._cluster.image
        rights, listener = request.connection.rights, request.connection.listener
        brokers = self._cluster.brokers(listener)
        if asked is None:
            topics = [
                self._topic(topic, rights, listener, with_operations, request.version)
                for name, topic in sorted(image.topics.items())
                if name not in UNLISTED_TOPICS and DESCRIBE_TOPIC.sees(rights, name)
            ]
        else:
            topics = [
                self._asked_topic(
                    name, topic_id, rights, listener, with_operations, request.version
                )
                for name, topic_id in asked
            ]
        return {
            "brokers": [
                {"node_id": b.id, "host": b.host, "port": b.port, "rack": b.rack} for b in brokers
            ],
            "cluster_id": self._cluster_id,
            "controller_id": self._some_broker(brokers),
            "topics": topics,
            "cluster_authorized_operations": UNKNOWN_OPERATIONS,
        }

    def _some_broker(self, brokers: Iterable[Any]) -> int:
        """Clients send admin requests to "the controller": any broker does, it forwards. This one names
        itself, for it is alive; of another that just died, librdkafka would await the return."""
        ids = [broker.id for broker in brokers]
        own = self._settings.node_id
        return own if own in ids else (ids[0] if ids else -1)

    def _asked_topic(
        self,
        name: str | None,
        topic_id: UUID | None,
        rights: Rights | None,
        listener: str,
        with_operations: bool,
        version: int,
    ) -> dict[str, Any]:
        image = self._cluster.image
        topic = image.topics_by_id.get(topic_id) if topic_id else image.topics.get(name or "")
        if rights is not None and (topic is not None or not topic_id):
            known = name or "" if topic is None else topic.name
            if not DESCRIBE_TOPIC.met(rights, known):
                return _refused(None if topic_id else name or "", topic_id)
        if topic is not None:
            return self._topic(topic, rights, listener, with_operations, version)
        if topic_id:
            error = ErrorCode.UNKNOWN_TOPIC_ID
        elif not is_valid_topic_name(name or ""):
            error = ErrorCode.INVALID_TOPIC_EXCEPTION
        else:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return {
            "error_code": error,
            "name": name if name is not None or version >= 12 else "",
            "topic_id": topic_id or ZERO_UUID,
            "is_internal": name in INTERNAL_TOPICS,
            "partitions": (),
            "topic_authorized_operations": _topic_operations(rights, name or "")
            if with_operations and not topic_id
            else UNKNOWN_OPERATIONS,
        }

    def _topic(
        self,
        topic: TopicImage,
        rights: Rights | None,
        listener: str,
        with_operations: bool,
        version: int,
    ) -> dict[str, Any]:
        return {
            "error_code": ErrorCode.NONE,
            "name": topic.name,
            "topic_id": topic.id,
            "is_internal": topic.name in INTERNAL_TOPICS,
            "partitions": [
                self._partition(number, partition, listener, version)
                for number, partition in enumerate(topic.partitions)
            ],
            "topic_authorized_operations": _topic_operations(rights, topic.name)
            if with_operations
            else UNKNOWN_OPERATIONS,
        }

    def _partition(
        self, number: int, partition: PartitionImage, listener: str, version: int
    ) -> dict[str, Any]:
        image = self._cluster.image
        error = ErrorCode.NONE
        if partition.leader < 0:
            error = ErrorCode.LEADER_NOT_AVAILABLE
        elif self._cluster.address(partition.leader, listener) is None:
            error = ErrorCode.LISTENER_NOT_FOUND if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
        return {
            "error_code": error,
            "partition_index": number,
            "leader_id": partition.leader,
            "leader_epoch": partition.leader_epoch,
            "replica_nodes": partition.replicas,
            "isr_nodes": partition.isr,
            "offline_replicas": self._offline(image, partition),
        }

    @staticmethod
    def _offline(image: MetadataImage, partition: PartitionImage) -> list[int]:
        """Replicas on brokers that are gone or fenced, or in a directory that their broker lost."""
        offline = []
        for replica, directory in zip(partition.replicas, partition.directories, strict=True):
            broker = image.brokers.get(replica)
            if (
                broker is None
                or broker.fenced
                or (directory.int > 100 and directory not in broker.directories)
            ):
                offline.append(replica)
        return offline

    # -- DescribeCluster, DescribeTopicPartitions ----------------------------------------------------

    @serves(ApiKey.DESCRIBE_CLUSTER)
    def describe_cluster(self, request: Request) -> None:
        """DescribeCluster 0-2, for brokers (endpoint type 1)."""
        message = request.message()
        if (wanted := messages.field(message, "endpoint_type", BROKERS)) != BROKERS:
            request.respond(
                {
                    "error_code": ErrorCode.MISMATCHED_ENDPOINT_TYPE
                    if wanted == CONTROLLERS
                    else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
                    "error_message": "This listener describes brokers; ask a controller's listener"
                    " for controllers.",
                    "cluster_authorized_operations": UNKNOWN_OPERATIONS,
                }
            )
            return
        listener = request.connection.listener
        with_fenced = messages.field(message, "include_fenced_brokers", False)
        brokers = [
            {
                "broker_id": broker.id,
                "host": address.host,
                "port": address.port,
                "rack": address.rack,
                "is_fenced": broker.fenced,
            }
            for broker in sorted(self._cluster.image.brokers.values(), key=lambda b: b.id)
            if (with_fenced or not broker.fenced or broker.id == self._settings.node_id)
            and (address := self._cluster.address(broker.id, listener)) is not None
        ]
        request.respond(
            {
                "error_code": ErrorCode.NONE,
                "endpoint_type": 1,
                "cluster_id": self._cluster_id,
                "controller_id": self._some_broker(self._cluster.brokers(listener)),
                "brokers": brokers,
                "cluster_authorized_operations": _cluster_operations(request.rights)
                if message.include_cluster_authorized_operations
                else UNKNOWN_OPERATIONS,
            }
        )

    @serves(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
    def describe_topic_partitions(self, request: Request) -> None:
        """DescribeTopicPartitions 0: pages through topics and partitions in order, with the ELR."""
        message = request.message()
        image = self._cluster.image
        rights, listener = request.rights, request.connection.listener
        limit = max(
            1,
            min(message.response_partition_limit, self._settings.max_request_partition_size_limit),
        )
        cursor = message.cursor
        start_topic, start_partition = ("", 0)
        if cursor is not None:
            start_topic, start_partition = cursor.topic_name, cursor.partition_index
        names = sorted(
            {topic.name for topic in message.topics} or image.topics.keys() - UNLISTED_TOPICS
        )
        if start_partition < 0 or (message.topics and start_topic and start_topic not in names):
            # Nothing but what was asked for: the client may not know of others.
            asked = sorted({topic.name for topic in message.topics})
            request.respond({"topics": [_invalid_request(name) for name in asked]})
            return
        topics: list[dict[str, Any]] = []
        refused: list[dict[str, Any]] = []
        next_cursor = None
        for name in names:
            if name < start_topic:
                continue
            if not message.topics:
                if not DESCRIBE_TOPIC.sees(rights, name):
                    continue
            elif not DESCRIBE_TOPIC.met(rights, name):
                refused.append(_refused(name, None))
                continue
            topic = image.topics.get(name)
            if topic is None:
                topics.append(self._asked_topic(name, None, rights, listener, True, 12))
                continue
            if limit == 0:
                next_cursor = {"topic_name": name, "partition_index": 0}
                break
            first = start_partition if name == start_topic else 0
            shown = topic.partitions[first : first + limit]
            described = self._topic(topic, rights, listener, True, 12)
            described["partitions"] = [
                {
                    **self._partition(first + index, partition, listener, 12),
                    "eligible_leader_replicas": partition.elr,
                    "last_known_elr": partition.last_known_elr,
                }
                for index, partition in enumerate(shown)
            ]
            topics.append(described)
            limit -= len(shown)
            if first + len(shown) < len(topic.partitions):
                next_cursor = {"topic_name": name, "partition_index": first + len(shown)}
                break
        request.respond({"topics": [*topics, *refused], "next_cursor": next_cursor})


def _topic_operations(rights: Rights | None, name: str) -> int:
    if rights is None:
        return ALL_TOPIC_OPERATIONS
    return rights.authorized_operations(ResourceType.TOPIC, name)


def _cluster_operations(rights: Rights | None) -> int:
    if rights is None:
        return ALL_CLUSTER_OPERATIONS
    if not DESCRIBE_CLUSTER.met(rights):
        return 0
    return rights.authorized_operations(ResourceType.CLUSTER, CLUSTER_NAME)


def _failed(fields: Mapping[str, Any], failed: Mapping[str, int]) -> Mapping[str, Any]:
    """The answer, with why topics were not created instead of that they are missing."""
    for topic in fields["topics"]:
        if topic["name"] in failed and topic["error_code"]:
            topic["error_code"] = failed[topic["name"]]
            topic["topic_authorized_operations"] = UNKNOWN_OPERATIONS
    return fields


def _refused(name: str | None, topic_id: UUID | None) -> dict[str, Any]:
    """The same whether the topic exists or not. Only who knows the id of a topic learns that it exists, as in Kafka."""
    return {
        "error_code": DESCRIBE_TOPIC.denied,
        "name": name,
        "topic_id": topic_id or ZERO_UUID,
        "is_internal": False,
        "partitions": (),
        "topic_authorized_operations": UNKNOWN_OPERATIONS,
    }


def _invalid_request(name: str) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.INVALID_REQUEST,
        "name": name,
        "topic_authorized_operations": UNKNOWN_OPERATIONS,
    }
