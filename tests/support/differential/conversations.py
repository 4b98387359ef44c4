"""Conversations from a seed: requests over all APIs that both sides serve, most of them sound, some odd, some wrong.

The layouts come from Kafka's schemas. What stands in a field is drawn by its name: names of topics that exist or do not, offsets around
both ends of a log, epochs that are current, old or unknown. Each conversation has topics, groups and transactions of its own, so that
one difference does not cause another one elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto
from random import Random
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla.records.record import Record, build
from ottla.wire import schema
from ottla.wire.apis import APIS, ApiKey
from support.differential.controller_stories import BROKER_EPOCH, controller_stories
from support.differential.stories import GROUP_EPOCH, Known, Names, Told, stories

YEAR_2020_MS: Final = 1_577_836_800_000
EXCHANGES: Final = 12
STORIES: Final = 2
TRUE_STORIES: Final = 0.4
"""Of them, those in which nothing is odd."""
ODD_SHARE: Final = 0.12
"""Of the fields whose value may be odd."""


class Step(NamedTuple):
    key: ApiKey
    version: int
    fields: Mapping[str, Any]
    is_settled: bool = False
    """Asked again until nothing goes on any more that was begun before it."""

    def __str__(self) -> str:
        return f"{self.key.name} v{self.version}"


class At(Enum):
    """Whom a conversation is with."""

    BROKER = auto()
    CONTROLLER = auto()


class Pool(NamedTuple):
    sound: Sequence[Any]
    odd: Sequence[Any] = ()


NOTHING: Final = Pool(())
"""An array that stays empty."""

# What is never asked: logins belong to other tests, and telemetry's answers are chosen by chance.
LEFT_OUT: Final = frozenset(
    {
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        ApiKey.PUSH_TELEMETRY,
        ApiKey.CONTROLLER_REGISTRATION,  # the cluster would take it for a controller that it has
    }
)

OF_THE_QUORUM: Final = frozenset(
    {
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.REMOVE_RAFT_VOTER,
        ApiKey.UPDATE_RAFT_VOTER,
        ApiKey.VOTE,
    }
)
"""Told as they are: a FetchSnapshot that names no topic, or a voter whose listener has an empty name, ends Kafka's process."""

_INT_ODD: Final = (-1, -2, 0, 1, 2**31 - 1, -(2**31))
_UNKNOWN_ID: Final = UUID(int=0x0123456789ABCDEF0123456789ABCDEF)
_NO_ID: Final = UUID(int=0)


def _records(rng: Random, count: int, **given: Any) -> bytes:
    found = [
        Record(
            number, YEAR_2020_MS + number * 1000, rng.choice([None, b"k", b"l"]), b"v%d" % number
        )
        for number in range(count)
    ]
    return bytes(build(found, **given))


_NAMES: Final = frozenset(
    {
        "name",
        "topic",
        "topic_name",
        "topic_id",
        "partition",
        "partition_index",
        "index",
        "group_id",
        "transactional_id",
        "resource_name",
        "resource_type",
        "producer_id",
        "member_id",
        "mechanism",
        "feature",
        "entity_type",
        "key",
    }
)


def _each_once(structs: list[Any]) -> list[Any]:
    """What a request names twice is odd: chance does that elsewhere."""
    named = {
        repr([(name, each[name]) for name in sorted(_NAMES & each.keys())]): each
        for each in structs
        if isinstance(each, dict)
    }
    return (
        list(named.values())
        if len(named) and all(_NAMES & each.keys() for each in structs)
        else structs
    )


class Conversation:
    """One seed's: an opening that makes two topics with records, then what chance chooses."""

    def __init__(
        self,
        seed: int,
        versions: Mapping[ApiKey, range],
        odd_share: float = ODD_SHARE,
        at: At = At.BROKER,
    ) -> None:
        self.seed = seed
        self.at = at
        self.broker_id = 1_000 + seed
        """Of a broker that only this conversation knows."""
        self.rng = Random(seed)
        self.odd_share = odd_share
        self.versions = versions
        self.a, self.b, self.new = f"d{seed}-a", f"d{seed}-b", f"d{seed}-new"
        self.group, self.txn = f"d{seed}-group", f"d{seed}-txn"
        self.pools = self._pools()

    def is_others(self, name: str) -> bool:
        """Whether another conversation gave this name to something."""
        return re.match(r"d\d+-", name) is not None and not name.startswith(f"d{self.seed}-")

    def steps(self) -> Iterator[Step]:
        yield from self._opening()
        keys = sorted(self.versions.keys() - OF_THE_QUORUM)
        theme = self.rng.sample(keys, 6)
        """Half of the requests come from few APIs, so that one sees what the other did."""
        told = self._stories()
        for name in self.rng.sample(sorted(told), STORIES):
            yield from self._in_own_words(told[name])
        for _ in range(EXCHANGES):
            key = self.rng.choice(theme if self.rng.random() < 0.5 else keys)
            version = self.rng.choice(self.versions[key])
            yield Step(key, version, self._struct(schema.message(key, version, "request"), key))

    def _stories(self) -> Mapping[str, Iterator[Told]]:
        names = Names(self.a, self.b, self.new, self.group, self.txn)
        if self.at is At.BROKER:
            return stories(names, self.rng)
        return controller_stories(names, self.rng, self.broker_id)

    def _in_own_words(self, story: Iterable[Told]) -> Iterator[Step]:
        """Mostly as it is told, in versions of our own."""
        is_true = self.rng.random() < TRUE_STORIES
        for told in story:
            known = self.versions.get(told.key, range(0))
            versions = [each for each in known if told.low <= each <= told.high]
            if not versions or (not is_true and self.rng.random() < self.odd_share / 2):
                continue
            version = self.rng.choice(versions)
            struct = schema.message(told.key, version, "request")
            fields = self._as_in(struct, told.fields)
            may_be_odd = not is_true and told.key not in OF_THE_QUORUM
            if may_be_odd and self.rng.random() < self.odd_share:
                fields = self._with_something_odd(struct, fields, told.key)
            step = Step(told.key, version, fields, told.is_settled)
            yield step
            if not is_true and self.rng.random() < self.odd_share / 2:
                yield step

    def _as_in(self, struct: schema.Struct, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Those fields that this version has, as it can say them."""
        found = {}
        for field in struct.fields:
            if field.name not in fields:
                continue
            value = fields[field.name]
            if field.struct is not None and isinstance(value, list):
                value = [self._as_in(field.struct, each) for each in value]
            if value is None and not field.nullable:
                value = [] if field.array else _NO_ID if field.kind == "uuid" else ""
            found[field.name] = value
        return found

    def _with_something_odd(
        self, struct: schema.Struct, fields: Mapping[str, Any], key: ApiKey, parent: str = ""
    ) -> dict[str, Any]:
        """One field of it, however deep, is drawn anew."""
        field = self.rng.choice([each for each in struct.fields if each.name in fields] or [None])
        if field is None:
            return dict(fields)
        value = fields[field.name]
        if field.struct is not None and value and isinstance(value, list):
            number = self.rng.randrange(len(value))
            inner = self._with_something_odd(field.struct, value[number], key, field.name)
            return {**fields, field.name: [*value[:number], inner, *value[number + 1 :]]}
        odd_share, self.odd_share = self.odd_share, 0.9
        try:
            return {**fields, field.name: self._field(field, key, parent)}
        finally:
            self.odd_share = odd_share

    def _opening(self) -> Iterator[Step]:
        topics = [
            {"name": self.a, "num_partitions": 2, "replication_factor": 1},
            {"name": self.b, "num_partitions": 1, "replication_factor": 1},
        ]
        yield Step(ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeout": 10_000}, True)
        if self.at is At.CONTROLLER:
            yield Step(ApiKey.DESCRIBE_CLUSTER, 1, {"endpoint_type": 2}, True)
            metadata = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
            yield Step(ApiKey.DESCRIBE_QUORUM, 2, {"topics": [metadata]}, True)
            return
        for topic in (self.a, self.b):
            parts = [{"index": 0, "records": _records(self.rng, 3)}]
            fields = {
                "acks": -1,
                "timeout": 5_000,
                "topic_data": [{"name": topic, "partition_data": parts}],
            }
            yield Step(ApiKey.PRODUCE, 9, fields, True)
        yield Step(
            ApiKey.INIT_PRODUCER_ID,
            4,
            {"transactional_id": None, "transaction_timeout": 60_000},
            True,
        )

    def _struct(self, struct: schema.Struct, key: ApiKey, parent: str = "") -> dict[str, Any]:
        return {
            each.name: self._field(each, key, parent)
            for each in struct.fields
            if not each.name.startswith("ottla_") and (each.tag is None or self.rng.random() < 0.3)
        }

    def _field(self, field: schema.Field, key: ApiKey, parent: str) -> Any:
        rng = self.rng
        pool = self._pool(field.name, key, parent)
        if pool is NOTHING:
            return []
        if field.array and (pool is None or field.kind == "struct"):
            if field.nullable and rng.random() < 0.1:
                return None
            # An array that names nothing is odd.
            count = (
                0 if rng.random() < self.odd_share / 3 else rng.choices((1, 2, 3), (12, 5, 1))[0]
            )
            element = replace(field, array=False, nullable=False)
            found = _each_once([self._one(element, key, pool) for _ in range(count)])
            return [*found, found[0]] if found and rng.random() < self.odd_share / 3 else found
        if field.array:
            assert pool is not None
            if field.nullable and rng.random() < 0.2:
                return None
            count = 0 if rng.random() < self.odd_share else rng.choices((1, 2), (8, 3))[0]
            drawn = [self._drawn(pool) for _ in range(count)]
            drawn = [each for each in drawn if each is not None]
            return drawn if rng.random() < self.odd_share else list(dict.fromkeys(drawn))
        if field.kind == "struct" and field.nullable and rng.random() < 0.5:
            return None
        return self._one(field, key, pool)

    def _pool(self, name: str, key: ApiKey, parent: str) -> Pool | None:
        name, parent = (each.removeprefix("v3_and_below_") for each in (name, parent))
        for found in (
            (key, f"{parent}.{name}"),
            (None, f"{parent}.{name}"),
            (key, name),
            (None, name),
        ):
            if found in self.pools:
                return self.pools[found]
        return None

    def _one(self, field: schema.Field, key: ApiKey, pool: Pool | None) -> Any:
        if field.struct is not None:
            return self._struct(field.struct, key, field.name)
        if pool is not None:
            drawn = self._drawn(pool)
            return "" if drawn is None and not field.nullable else drawn
        if field.nullable and self.rng.random() < 0.5:
            return None
        return self._any(field)

    def _drawn(self, pool: Pool) -> Any:
        odd = pool.odd and self.rng.random() < self.odd_share
        drawn = self.rng.choice(pool.odd if odd else pool.sound)
        return drawn() if callable(drawn) else drawn

    def _any(self, field: schema.Field) -> Any:
        """A field whose name says nothing."""
        if field.kind == "bool":
            return self.rng.random() < 0.5
        if field.kind == "string":
            return self.rng.choice(("", "some", "other"))
        if field.kind in ("bytes", "records"):
            return self.rng.choice((b"", b"some bytes"))
        if field.kind == "uuid":
            return self.rng.choice((_NO_ID, _UNKNOWN_ID))
        if self.rng.random() < self.odd_share and not field.kind.startswith(
            ("timedelta", "uint", "int8", "int16")
        ):
            return self.rng.choice(_INT_ODD)
        return self.rng.choice((0, 1))

    def _pools(self) -> dict[tuple[ApiKey | None, str], Pool]:
        a, b, new, rng = self.a, self.b, self.new, self.rng
        absent, nobody = f"{a}-absent", f"{a}-nobody"
        odd_names = (
            absent,
            absent,
            "",
            f"{a} is no name!",
            ".",
            "..",
            "x" * 250,
            a.replace("-", "_"),
        )
        topic = Pool((a, a, a, b), odd_names)
        topic_id = Pool(
            (Known("topic", a), Known("topic", a), Known("topic", b)), (_NO_ID, _UNKNOWN_ID)
        )
        partition = Pool((0, 0, 0, 1), (2, 7, -1, 2**31 - 1))
        group = Pool((self.group,), (f"{self.group}-2", "", f"{self.group}-{'g' * 280}"))
        txn = Pool((self.txn,), (f"{self.txn}-2", "", None))
        offset = Pool((0, 1, 2, 3), (-1, -2, -3, 4, 100, 2**62, -100))
        epoch = Pool((-1, 0), (1, 5, -2, 2**31 - 1))
        timeout = Pool((5_000,), (0, 1_000))
        producer_id = Pool((Known("producer_id", 0), Known("producer_id", 1)), (-1, 0, 12_345_678))
        producer_epoch = Pool((0, 0, 1), (-1, 2, 32_767))
        member = Pool(
            ("", Known("member_id", 0), Known("member_id", 0)), ("nobody", Known("member_id", 1))
        )
        generation = Pool((-1, 1), (0, 2, 100, -2))
        setting = Pool(
            (
                "retention.ms",
                "max.message.bytes",
                "cleanup.policy",
                "min.insync.replicas",
                "segment.bytes",
            ),
            ("no.such.setting", "", "log.retention.ms", "leader.replication.throttled.replicas"),
        )
        # Nothing to append, or an operation that does not exist: at a controller, either ends the leadership of Kafka's.
        none, no_operation = (None, 9) if self.at is At.BROKER else ("", 3)
        setting_value = Pool(
            ("100000", "compact", "1", "delete", "3600000"),
            ("", "-1", "-2", "many", none, "compact,delete", "1:1,0:1", "*"),
        )
        brokers = Pool((1,), (2, 99, -1))
        batch = Pool(
            (lambda: _records(rng, 1), lambda: _records(rng, 3)),
            (
                None,
                b"",
                lambda: _records(rng, 2)[:-3],
                self._damaged,
                self._old_magic,
                lambda: _records(rng, 1) * 2,
            ),
        )
        old_epoch = Pool((0,), (-1,))
        """In which nobody is elected any more."""
        named: dict[str, Pool] = {
            "topic_id": topic_id,
            "topic": topic,
            "topic_name": topic,
            "partition": partition,
            "partition_index": partition,
            "index": partition,
            "partitions": partition,
            "partition_indexes": partition,
            "group_id": group,
            "groups": group,
            "groups_names": group,
            "group_ids": group,
            "transactional_id": txn,
            "transactional_ids": txn,
            "fetch_offset": offset,
            "offset": offset,
            "committed_offset": Pool((0, 1, 3), (-1, -5, 2**62)),
            "current_leader_epoch": epoch,
            "leader_epoch": epoch,
            "last_fetched_epoch": Pool((-1,), (0, 1, 7)),
            "committed_leader_epoch": epoch,
            "log_start_offset": Pool((-1,), (0, 5)),
            "timeout": timeout,
            "max_wait": Pool((0, 100), (300,)),
            "min_bytes": Pool((1,), (0, 100_000)),
            "max_bytes": Pool((1 << 20,), (0, 1, 50)),
            "partition_max_bytes": Pool((1 << 20,), (0, 1)),
            "isolation_level": Pool((0, 1), (2,)),
            "session_id": Pool((0,), (12345, Known("session_id", 0))),
            "session_epoch": Pool((-1, 0), (1, 2)),
            "replica_id": Pool((-1,), (-2,)),
            "producer_id": producer_id,
            "producer_epoch": producer_epoch,
            "member_id": member,
            "generation_id": generation,
            "generation_id_or_member_epoch": generation,
            "member_epoch": Pool((0, 1), (-1, -2, 2, 9)),
            "group_instance_id": Pool((None, None, "static-1"), ("static-2",)),
            "instance_id": Pool((None, None, "static-1"), ("static-2", "")),
            "session_timeout": Pool((30_000,), (1, 10_000_000)),
            "rebalance_timeout": Pool((300, 1000), (-1,)),
            "protocol_type": Pool(("consumer",), ("connect", "")),
            "protocol_name": Pool(("range", None), ("sticky",)),
            "reason": Pool((None, "because")),
            "acks": Pool((-1, 1), (2, -2)),
            "records": batch,
            "broker_id": Pool((99, 7), (-1,)),
            "broker_ids": brokers,
            "replicas": brokers,
            "resource_type": Pool((2,), (4, 0, 3, 8, 16, 32, 99)),
            "resource_name": Pool((a, b), (absent, "1", "", f"{a} is no name!")),
            "configuration_keys": setting,
            "configs.name": setting,
            "value": setting_value,
            "rack_id": Pool(("", "here")),
            "transaction_timeout": Pool((60_000,), (0, -1, 10_000_000)),
            "states_filter": Pool(("Empty", "Stable"), ("", "nonsense", "empty")),
            "types_filter": Pool(("classic", "consumer"), ("nonsense", "Classic")),
            "state_filters": Pool(("Ongoing", "Empty"), ("nonsense",)),
            "producer_id_filters": producer_id,
            "duration_filter": Pool((-1,), (0, 10_000_000)),
            "transactional_id_pattern": Pool((None, "d.*"), ("[", "")),
            "coordinator_keys": Pool((self.group, self.txn), ("",)),
            "key": Pool((self.group, self.txn), ("",)),
            "key_type": Pool((0, 1), (2, 3, -1)),
            "coordinator_epoch": Pool((0,), (-1, 5)),
            "cluster_id": Pool((None,), ("nonsense",)),
            "response_partition_limit": Pool((2000,), (1, 2, 0, -1)),
            "subscribed_topic_names": Pool((a, b), (absent,)),
            "subscribed_topic_regex": Pool((None,), ("d.*", "[")),
            "server_assignor": Pool((None, "uniform", "range"), ("nonsense",)),
            "assignment": Pool((b"assigned", b"")),
            "metadata": Pool((b"\0\1\0\0\0\0\0\0\0\0", b"")),
            "committed_metadata": Pool((None, "", "mine"), ("x" * 5000,)),
        }
        pools: dict[tuple[ApiKey | None, str], Pool] = {
            (None, name): pool for name, pool in named.items()
        }
        k = ApiKey
        pools.update(
            {
                (k.CREATE_TOPICS, "name"): Pool((new, new, f"{new}-2"), (a, *odd_names)),
                (k.CREATE_TOPICS, "num_partitions"): Pool((1, 2, -1), (0, -2, 20_000)),
                (k.CREATE_TOPICS, "replication_factor"): Pool((1, -1), (0, 2, -2)),
                (k.CREATE_TOPICS, "assignments"): NOTHING,
                (k.CREATE_TOPICS, "timeout"): Pool((5_000,)),
                (k.CONSUMER_GROUP_HEARTBEAT, "member_epoch"): Pool((0, GROUP_EPOCH), (-1, -2, 9)),
                (k.DELETE_TOPICS, "name"): Pool((new, b), (None, *odd_names)),
                (k.DELETE_TOPICS, "topic_names"): Pool((new, b), odd_names),
                (k.DELETE_TOPICS, "topic_id"): Pool((_NO_ID,), (Known("topic", b), _UNKNOWN_ID)),
                (k.CREATE_PARTITIONS, "count"): Pool((3, 2), (1, 0, -1, 20_000)),
                (k.METADATA, "topic_id"): Pool((_NO_ID,), (Known("topic", a), _UNKNOWN_ID)),
                (k.METADATA, "allow_auto_topic_creation"): Pool((False,)),
                (k.LIST_OFFSETS, "timestamp"): Pool(
                    (-1, -2, YEAR_2020_MS + 1000), (-3, -4, -5, -6, 0, 2**62)
                ),
                (k.JOIN_GROUP, "name"): Pool(("range",), ("sticky", "")),
                (k.DESCRIBE_CONFIGS, "resource_name"): Pool(
                    (a, b), (absent, "1", "", f"{a} is no name!")
                ),
                (k.INCREMENTAL_ALTER_CONFIGS, "config_operation"): Pool(
                    (0, 1), (2, 3, no_operation)
                ),
                (k.INCREMENTAL_ALTER_CONFIGS, "resource_type"): Pool((2,), (32, 99, 16)),
                (k.ALTER_CONFIGS, "resource_type"): Pool((2,), (32, 99, 16)),
                (k.DESCRIBE_CLIENT_QUOTAS, "entity_type"): Pool(
                    ("user", "client-id"), ("ip", "nonsense", "")
                ),
                (k.DESCRIBE_CLIENT_QUOTAS, "match_type"): Pool((0, 1, 2), (3, -1)),
                (k.DESCRIBE_CLIENT_QUOTAS, "match"): Pool((f"{a}-user", None)),
                (k.ALTER_CLIENT_QUOTAS, "entity_type"): Pool(
                    ("user", "client-id"), ("ip", "nonsense")
                ),
                (k.ALTER_CLIENT_QUOTAS, "entity_name"): Pool((f"{a}-user",), ("",)),
                (k.ALTER_CLIENT_QUOTAS, "key"): Pool(
                    ("producer_byte_rate", "consumer_byte_rate", "request_percentage"),
                    ("nonsense", "connection_creation_rate"),
                ),
                (k.ALTER_CLIENT_QUOTAS, "value"): Pool((1e6, 50.0), (0.0, -1.0, 0.5)),
                (k.DESCRIBE_USER_SCRAM_CREDENTIALS, "name"): Pool((f"{a}-user",), ("", nobody)),
                (k.ALTER_USER_SCRAM_CREDENTIALS, "name"): Pool((f"{a}-user",), ("", nobody)),
                (k.ALTER_USER_SCRAM_CREDENTIALS, "mechanism"): Pool((1, 2), (0, 3)),
                (k.ALTER_USER_SCRAM_CREDENTIALS, "iterations"): Pool(
                    (4096, 8192), (1, 4095, 16385)
                ),
                (k.ALTER_USER_SCRAM_CREDENTIALS, "salt"): Pool(
                    (b"0123456789abcdef",), (b"", b"1234")
                ),
                (k.ALTER_USER_SCRAM_CREDENTIALS, "salted_password"): Pool(
                    (b"p" * 32, b"p" * 64), (b"",)
                ),
                (k.UPDATE_FEATURES, "feature"): Pool(
                    ("metadata.version", "group.version", "transaction.version"), ("nonsense", "")
                ),
                (k.UPDATE_FEATURES, "max_version_level"): Pool((1, 2, 27), (0, -1, 999)),
                (k.UPDATE_FEATURES, "upgrade_type"): Pool((1, 2, 3), (0, 4)),
                (k.UPDATE_FEATURES, "validate_only"): Pool((True,)),
                (k.UPDATE_FEATURES, "allow_downgrade"): Pool((False,)),
                (k.DESCRIBE_QUORUM, "topic_name"): Pool(("__cluster_metadata",), (a,)),
                (k.DESCRIBE_QUORUM, "partition_index"): Pool((0,), (1,)),
                (k.DESCRIBE_CLUSTER, "endpoint_type"): Pool((1,), (2, 0, 3)),
                (k.ELECT_LEADERS, "election_type"): Pool((0, 1), (2, -1)),
                (k.LIST_CONFIG_RESOURCES, "resource_types"): Pool((2, 32, 16), (4, 8, 99)),
                (k.WRITE_TXN_MARKERS, "producer_id"): Pool((12_345_678,), (-1,)),
                (k.WRITE_TXN_MARKERS, "transaction_version"): Pool((0, 1, 2), (9,)),
                (k.OFFSET_FETCH, "member_id"): Pool((None,), (nobody,)),
                (k.OFFSET_FETCH, "member_epoch"): Pool((-1,), (0, 5)),
                (k.INIT_PRODUCER_ID, "transactional_id"): Pool(
                    (None, self.txn), (f"{self.txn}-2", "")
                ),
                (k.INIT_PRODUCER_ID, "producer_id"): Pool(
                    (-1,), (Known("producer_id", 0), 12_345_678)
                ),
                (k.INIT_PRODUCER_ID, "producer_epoch"): Pool((-1,), (0, 1)),
                (k.PRODUCE, "transactional_id"): Pool((None,), (self.txn,)),
                (k.API_VERSIONS, "client_software_name"): Pool(
                    ("some",), ("", "no good name!", "-x")
                ),
                (k.API_VERSIONS, "client_software_version"): Pool(("1.0",), ("", "§")),
                (None, "resource_type_filter"): Pool((1, 2, 3), (0, 99)),
                (None, "pattern_type_filter"): Pool((1, 3), (0, 9)),
                (None, "permission_type"): Pool((2, 3), (0, 1, 9)),
                (None, "operation"): Pool((3, 4), (0, 1, 99)),
                (k.CREATE_ACLS, "resource_pattern_type"): Pool((3, 4), (0, 1, 2, 9)),
                (k.CREATE_ACLS, "principal"): Pool(("User:some",), ("", "some", "User:")),
                (k.CREATE_ACLS, "host"): Pool(("*",), ("", "nowhere")),
                (k.REMOVE_RAFT_VOTER, "voter_id"): Pool((99,), (-1,)),
                (k.ADD_RAFT_VOTER, "voter_id"): Pool((99,), (-1,)),
                (k.VOTE, "replica_epoch"): old_epoch,
                (k.VOTE, "candidate_epoch"): old_epoch,
                (k.BEGIN_QUORUM_EPOCH, "leader_epoch"): old_epoch,
                (k.END_QUORUM_EPOCH, "leader_epoch"): old_epoch,
                (None, "broker_epoch"): Pool((BROKER_EPOCH, 0), (-1, 1 << 40)),
            }
        )
        topics_by_name = (
            k.PRODUCE,
            k.FETCH,
            k.LIST_OFFSETS,
            k.METADATA,
            k.OFFSET_COMMIT,
            k.OFFSET_FETCH,
            k.DELETE_RECORDS,
            k.OFFSET_FOR_LEADER_EPOCH,
            k.ADD_PARTITIONS_TO_TXN,
            k.WRITE_TXN_MARKERS,
            k.TXN_OFFSET_COMMIT,
            k.CREATE_PARTITIONS,
            k.ALTER_PARTITION_REASSIGNMENTS,
            k.LIST_PARTITION_REASSIGNMENTS,
            k.OFFSET_DELETE,
            k.DESCRIBE_PRODUCERS,
            k.DESCRIBE_TOPIC_PARTITIONS,
        )
        pools.update({(key, "name"): topic for key in topics_by_name})
        return pools

    def _damaged(self) -> bytes:
        batch = bytearray(_records(self.rng, 2))
        batch[-1] ^= 1
        return bytes(batch)

    def _old_magic(self) -> bytes:
        batch = bytearray(_records(self.rng, 1))
        batch[16] = 1
        return bytes(batch)


def versions_of_both(
    kafka: Mapping[int, tuple[int, int]], at: At = At.BROKER
) -> dict[ApiKey, range]:
    """What both announce there."""
    found = {}
    for key, api in APIS.items():
        is_there = api.on_broker if at is At.BROKER else api.on_controller
        if is_there and key not in LEFT_OUT and key in kafka:
            low, high = kafka[key]
            found[key] = range(max(low, api.min_version), min(high, api.max_version) + 1)
    return found
