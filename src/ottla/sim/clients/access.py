"""Users and their rights in a secure run: an operator who changes them all the time, and visitors who try what they may not.

Each visitor has few rights, which come and go. It asks everything, and reports each answer to the checker
(`oracle.access_checker`): what it got must have been allowed, and what it was refused must not have been.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from ottla.records.batch import CorruptBatch, batches
from ottla.records.record import Record, build
from ottla.records.record import records as records_of
from ottla.security.operations import CLUSTER_NAME, AclOperation, ResourceType
from ottla.sim.clients.connections import CONNECT_TIMEOUT_S, ClientConnections
from ottla.sim.clients.logins import (
    ITERATIONS,
    NUMBERS,
    SimUser,
    log_in_once,
    salted_password,
    stored_key,
)
from ottla.sim.cluster.nodes import BROKER_PORT
from ottla.sim.cluster.security import ADMIN, ClusterSecurity
from ottla.sim.engine.world import WALL_START_MS, SimHost
from ottla.sim.oracle.access_checker import (
    ALLOW,
    ANYTHING,
    DENY,
    EVERYONE,
    LITERAL,
    PREFIXED,
    REVOKED_S,
    AccessChecker,
    AccessQuestion,
    Need,
    Question,
)
from ottla.sim.oracle.coverage import mark
from ottla.wire import fetch, produce
from ottla.wire.apis import ApiKey
from ottla.wire.channel import Channel
from ottla.wire.errors import ErrorCode, InvalidFrame, KafkaError
from ottla.wire.fetch_messages import FetchPartition, FetchRequest, FetchResponse
from ottla.wire.types import TopicPartition

RATE = 0.1
"""The share of seeds with security."""
WORKER = "worker"
"""Whom the producers and consumers of the run log in as. Its rights never change."""
MOLE = "mole"
"""A user without rights, whose password an intruder knows."""
VISITORS = ("alice", "bob", "carol")
TOPICS = ("private-a", "private-b")
"""Only visitors, and the operator, use them."""
GROUP, TRANSACTION = "private-group", "private-transaction"
ELSEWHERE = "10.9.9.9"
ACLS_MAX = 30
DENIALS = frozenset((29, 30, 31, 53))
UNDECIDED = frozenset((ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID))
"""Answers that tell nothing about rights."""
REQUEST_S_MAX = 3.0
LONG_POLL_MS, PATIENT_POLL_MS = 2000, 8000
FETCH_VERSION = PRODUCE_VERSION = 12
"""The last that name topics."""
STRANGER: dict[str, Any] = {"producer_id": 10**12, "producer_epoch": 0}
"""A producer that no coordinator knows."""
SESSION_NOT_FOUND = ErrorCode.FETCH_SESSION_ID_NOT_FOUND

OP, R = AclOperation, ResourceType
OPERATIONS: Mapping[ResourceType, Sequence[AclOperation]] = {
    R.TOPIC: (
        OP.READ,
        OP.WRITE,
        OP.DESCRIBE,
        OP.DESCRIBE_CONFIGS,
        OP.ALTER_CONFIGS,
        OP.CREATE,
        OP.ALL,
    ),
    R.GROUP: (OP.READ, OP.DESCRIBE, OP.ALL),
    R.TRANSACTIONAL_ID: (OP.WRITE, OP.DESCRIBE, OP.ALL),
    # Never CLUSTER_ACTION or ALTER: with these a visitor would be a node, or an operator.
    R.CLUSTER: (OP.CREATE, OP.DESCRIBE, OP.DESCRIBE_CONFIGS, OP.ALTER_CONFIGS, OP.IDEMPOTENT_WRITE),
}
NAMES: Mapping[ResourceType, Sequence[str]] = {
    R.TOPIC: TOPICS,
    R.GROUP: (GROUP,),
    R.TRANSACTIONAL_ID: (TRANSACTION,),
    R.CLUSTER: (CLUSTER_NAME,),
}


@dataclass
class AccessPlan:
    change_s: float
    """Mean time between changes of users and ACLs."""
    visit_s: float
    """Mean time between the requests of a visitor."""
    reauth_ms: int
    mechanism: str
    """Of the worker."""

    @staticmethod
    def draw(seed: int) -> AccessPlan | None:
        chance = random.Random(f"{seed}/access")
        if chance.random() >= RATE:
            return None
        return AccessPlan(
            chance.choice((0.2, 0.5, 2.0)),
            chance.choice((0.15, 0.4)),
            chance.choice((0, 0, 4_000, 20_000)),
            chance.choice(("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")),
        )

    @property
    def security(self) -> ClusterSecurity:
        return ClusterSecurity(self.reauth_ms)

    def describe(self) -> str:
        return (
            f"logins by {self.mechanism}, which count for {self.reauth_ms} ms, users and ACLs change every "
            f"{self.change_s} s, visitors ask every {self.visit_s} s"
        )


NODE_SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
"""Small internal topics: visitors may make brokers create them."""


class AclRow(NamedTuple):
    resource_type: ResourceType
    pattern_type: int
    resource_name: str
    principal: str
    host: str
    operation: AclOperation
    permission_type: int

    def creation(self) -> dict[str, Any]:
        fields = self._asdict()
        fields["resource_pattern_type"] = fields.pop("pattern_type")
        return fields

    def filter(self) -> dict[str, Any]:
        return {
            "resource_type_filter": self.resource_type,
            "resource_name_filter": self.resource_name,
            "pattern_type_filter": self.pattern_type,
            "principal_filter": self.principal,
            "host_filter": self.host,
            "operation": self.operation,
            "permission_type": self.permission_type,
        }


def some_acl(chance: random.Random, host: str) -> AclRow:
    kind = chance.choice((R.TOPIC,) * 5 + (R.GROUP, R.TRANSACTIONAL_ID, R.CLUSTER))
    name = chance.choice(NAMES[kind])
    pattern = LITERAL if kind is R.CLUSTER else chance.choice((LITERAL, LITERAL, PREFIXED))
    who = f"User:{chance.choice(VISITORS)}"
    if pattern == PREFIXED:
        name = name[: chance.choice((1, 7, 8, len(name)))]
    elif kind is not R.CLUSTER and chance.random() < 0.2:
        name = ANYTHING
    if name != ANYTHING and kind is not R.CLUSTER and len(name) > 1 and chance.random() < 0.15:
        who = EVERYONE  # never for what the worker needs
    return AclRow(
        kind,
        pattern,
        name,
        who,
        chance.choice((ANYTHING,) * 8 + (host, ELSEWHERE)),
        chance.choice(OPERATIONS[kind]),
        chance.choice((ALLOW,) * 7 + (DENY,) * 3),
    )


def some_question(host: str) -> Callable[[random.Random], tuple[str, str, Question]]:
    def draw(chance: random.Random) -> tuple[str, str, Question]:
        kind = chance.choice(list(NAMES))
        operation = chance.choice([each for each in OPERATIONS[kind] if each is not OP.ALL])
        name = chance.choice(NAMES[kind])
        return (
            chance.choice((*VISITORS, WORKER)),
            chance.choice((host, ELSEWHERE, "10.8.8.8")),
            (operation, kind, name),
        )

    return draw


WORKER_ACLS = [
    AclRow(kind, LITERAL, ANYTHING, f"User:{WORKER}", ANYTHING, OP.ALL, ALLOW)
    for kind in (R.TOPIC, R.GROUP, R.TRANSACTIONAL_ID)
] + [
    AclRow(R.CLUSTER, LITERAL, CLUSTER_NAME, f"User:{WORKER}", ANYTHING, each, ALLOW)
    for each in (OP.CREATE, OP.DESCRIBE, OP.IDEMPOTENT_WRITE)
]


def codes(answer: Any) -> Iterator[int]:
    """All error codes of an answer, at whatever depth."""
    if isinstance(answer, tuple):
        for each in answer:
            yield from codes(each)
    elif dataclasses.is_dataclass(answer):
        for field in dataclasses.fields(answer):
            value = getattr(answer, field.name)
            if field.name.endswith("error_code"):
                yield int(value)
            else:
                yield from codes(value)


def stored_as(user: SimUser) -> SimUser:
    """By PLAIN one logs in with the credential of another mechanism."""
    return user if user.mechanism in NUMBERS else user._replace(mechanism="SCRAM-SHA-256")


# The operator


class AccessOperator:
    """Creates, changes and removes users and ACLs, and writes records that visitors want to read."""

    def __init__(
        self,
        plan: AccessPlan,
        host: SimHost,
        connections: ClientConnections,
        worker: SimUser,
        chance: random.Random,
    ) -> None:
        self.is_stopping = False
        self.passwords: dict[str, list[SimUser]] = {}
        """All that a user had, the newest last. Some may never have been in force: their request was lost."""
        self._worker = worker
        self._plan = plan
        self._host = host
        self._connections = connections
        self._random = chance
        self._acls: list[AclRow] = []
        self._count = 0

    async def prepare(self) -> None:
        await self._until_done(
            ApiKey.CREATE_ACLS, {"creations": [row.creation() for row in WORKER_ACLS]}
        )
        for user in map(stored_as, (self._worker, self._worker._replace(name=MOLE))):
            await self._until_done(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, self._upsertion(user))
        for name in VISITORS:
            fields = self._upsertion(self._new_password(name))
            await self._until_done(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, fields)

    async def _until_done(self, key: ApiKey, fields: Mapping[str, Any]) -> None:
        while True:
            with suppress(OSError, TimeoutError, InvalidFrame):
                if not any(codes(await self._connections.ask(key, fields))):
                    return
            await asyncio.sleep(0.1)

    async def run(self) -> None:
        while not self.is_stopping:
            await asyncio.sleep(self._random.expovariate(1 / self._plan.change_s))
            with suppress(OSError, TimeoutError, InvalidFrame):
                await self._change()

    async def _change(self) -> None:
        chosen = self._random.random()
        if chosen < 0.12:
            user = self._new_password(self._random.choice(VISITORS))
            fields = self._upsertion(user)
            if chosen < 0.03:
                deletion = {"name": user.name, "mechanism": NUMBERS[user.mechanism]}
                fields = {"deletions": [deletion], "upsertions": []}
            await self._connections.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, fields)
        elif chosen < 0.4:
            # One right that is used all the time comes and goes.
            row = AclRow(
                R.TOPIC,
                LITERAL,
                self._random.choice(TOPICS),
                f"User:{self._random.choice(VISITORS)}",
                ANYTHING,
                self._random.choice((OP.READ, OP.READ, OP.WRITE)),
                ALLOW,
            )
            await (self._remove if row in self._acls else self._add)(row)
        elif len(self._acls) < ACLS_MAX and chosen < 0.75:
            await self._add(some_acl(self._random, self._host.address))
        elif self._acls:
            await self._remove(self._random.choice(self._acls))

    async def _add(self, row: AclRow) -> None:
        if row not in self._acls:
            self._acls.append(row)
        await self._connections.ask(ApiKey.CREATE_ACLS, {"creations": [row.creation()]})

    async def _remove(self, row: AclRow) -> None:
        answer = await self._connections.ask(ApiKey.DELETE_ACLS, {"filters": [row.filter()]})
        if not any(codes(answer)):
            self._acls.remove(row)
            mark("right taken away")

    def _new_password(self, name: str) -> SimUser:
        mechanism = self._random.choice(list(NUMBERS))
        if name in self.passwords:
            mechanism = self.passwords[name][0].mechanism
        self._count += 1
        user = SimUser(name, f"{name} {self._count}", mechanism)
        self.passwords.setdefault(name, []).append(user)
        return user

    def _upsertion(self, user: SimUser) -> dict[str, Any]:
        salt = self._random.randbytes(24)
        upsertion = {
            "name": user.name,
            "mechanism": NUMBERS[user.mechanism],
            "iterations": ITERATIONS,
            "salt": salt,
            "salted_password": salted_password(user.mechanism, user.password, salt, ITERATIONS),
        }
        return {"deletions": [], "upsertions": [upsertion]}

    async def write(self) -> None:
        while not self.is_stopping:
            await asyncio.sleep(self._random.expovariate(1.0))
            partition = TopicPartition(self._random.choice(TOPICS), 0)
            try:
                _, channel = await self._connections.leader(partition)
                call = produce_call(partition.topic, self._host, ADMIN)
                result = await self._connections.call(channel, ApiKey.PRODUCE, *call)
                if result.error != ErrorCode.NONE:
                    self._connections.forget(partition)
            except (OSError, TimeoutError, InvalidFrame):
                self._connections.forget(partition)


def produce_call(
    topic: str, host: SimHost, name: str, transactional_id: str | None = None
) -> tuple[int, bytes, Callable[[memoryview, int], produce.PartitionResult]]:
    """A record that says when it was sent, and by whom."""
    value = f"{host.clock.monotonic():.9f} {name}".encode()
    record = Record(0, WALL_START_MS, None, value)
    data = (
        build([record])
        if transactional_id is None
        else build([record], transactional=True, base_sequence=0, **STRANGER)
    )
    partition = produce.PartitionData(topic, None, 0, memoryview(data))
    request = produce.ProduceRequest(transactional_id, 1, 1000, [partition])

    def read(frame: memoryview, start: int) -> produce.PartitionResult:
        return produce.read_response(PRODUCE_VERSION, frame, start).results[0]

    return PRODUCE_VERSION, produce.write_request(PRODUCE_VERSION, request), read


# Visitors


class Attempt(NamedTuple):
    """A request that needs rights."""

    key: ApiKey
    fields: Mapping[str, Any]
    needs: tuple[Need, ...]
    version: int | None = None
    by_controller: bool = False


def _on(operation: AclOperation, kind: ResourceType, name: str) -> Need:
    return ((operation, kind, name),)


def _cluster(operation: AclOperation) -> Question:
    return operation, R.CLUSTER, CLUSTER_NAME


def attempts(topic: str, group: str = GROUP, transaction: str = TRANSACTION) -> list[Attempt]:
    producer = {"transactional_id": transaction, **STRANGER}
    member = {"group_id": group, "generation_id": 1, "member_id": "m"}
    offsets = [{"name": topic, "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
    config = {"resource_type": 2, "resource_name": topic}
    writes = _on(OP.WRITE, R.TRANSACTIONAL_ID, transaction)
    joins = _on(OP.READ, R.GROUP, group)
    sees_group = _on(OP.DESCRIBE, R.GROUP, group)
    sees = _on(OP.DESCRIBE, R.TOPIC, topic)
    new = {"name": topic, "num_partitions": 1, "replication_factor": 1}
    quota = {"entity": [{"entity_type": "user", "entity_name": "nobody"}], "ops": []}
    index = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    named = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
    filter = AclRow(R.TOPIC, LITERAL, topic, EVERYONE, ANYTHING, OP.READ, DENY).filter()
    return [
        Attempt(ApiKey.METADATA, named, (sees,)),
        Attempt(
            ApiKey.LIST_OFFSETS,
            {
                "replica_id": -1,
                "isolation_level": 0,
                "topics": [{"name": topic, "partitions": [index]}],
            },
            (sees,),
            9,
        ),
        Attempt(
            ApiKey.DESCRIBE_CONFIGS,
            {"resources": [{**config, "configuration_keys": []}]},
            (_on(OP.DESCRIBE_CONFIGS, R.TOPIC, topic),),
        ),
        Attempt(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            {"resources": [{**config, "configs": []}], "validate_only": True},
            (_on(OP.ALTER_CONFIGS, R.TOPIC, topic),),
            by_controller=True,
        ),
        Attempt(
            ApiKey.CREATE_TOPICS,
            {
                "topics": [{**new, "assignments": [], "configs": []}],
                "timeout": 1000,
                "validate_only": True,
            },
            ((_cluster(OP.CREATE), (OP.CREATE, R.TOPIC, topic)),),
            4,  # without the settings in the answer, which need another right
            by_controller=True,
        ),
        Attempt(
            ApiKey.ALTER_CLIENT_QUOTAS,
            {"entries": [quota], "validate_only": True},
            ((_cluster(OP.ALTER_CONFIGS),),),
            by_controller=True,
        ),
        Attempt(ApiKey.DESCRIBE_ACLS, filter, ((_cluster(OP.DESCRIBE),),)),
        Attempt(
            ApiKey.CREATE_ACLS,
            {
                "creations": [
                    AclRow(R.TOPIC, LITERAL, "none", EVERYONE, ANYTHING, OP.READ, DENY).creation()
                ]
            },
            ((_cluster(OP.ALTER),),),
            by_controller=True,
        ),
        Attempt(
            ApiKey.FIND_COORDINATOR, {"coordinator_keys": [group], "key_type": 0}, (sees_group,)
        ),
        Attempt(
            ApiKey.FIND_COORDINATOR,
            {"coordinator_keys": [transaction], "key_type": 1},
            (_on(OP.DESCRIBE, R.TRANSACTIONAL_ID, transaction),),
        ),
        Attempt(ApiKey.HEARTBEAT, member, (joins,)),
        Attempt(ApiKey.DESCRIBE_GROUPS, {"groups": [group]}, (sees_group,)),
        Attempt(
            ApiKey.OFFSET_COMMIT,
            {
                "group_id": group,
                "generation_id_or_member_epoch": 5,
                "member_id": "m",
                "group_instance_id": None,
                "topics": offsets,
            },
            (joins, _on(OP.READ, R.TOPIC, topic)),
            9,
        ),
        Attempt(
            ApiKey.INIT_PRODUCER_ID,
            {"transactional_id": transaction, "transaction_timeout": 1000},
            (writes,),
        ),
        Attempt(ApiKey.END_TXN, {**producer, "committed": True}, (writes,)),
        Attempt(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            {
                **{f"v3_and_below_{name}": value for name, value in producer.items()},
                "v3_and_below_topics": [{"name": topic, "partitions": [0]}],
            },
            (writes, _on(OP.WRITE, R.TOPIC, topic)),
            3,
        ),
        Attempt(ApiKey.ADD_OFFSETS_TO_TXN, {**producer, "group_id": group}, (writes, joins)),
    ]


ATTEMPTS = [attempt for topic in TOPICS for attempt in attempts(topic)]


@dataclass
class VisitorSession:
    """An open connection of a visitor."""

    channel: Channel
    node: int
    user: SimUser
    ends_at: float | None
    rests_on: list[Any]
    """The credential records that may have been those of the login."""
    fetch_session: int = 0


Leaders: TypeAlias = Callable[[TopicPartition], int | None]


class Visitor:
    def __init__(
        self,
        name: str,
        plan: AccessPlan,
        host: SimHost,
        nodes: Sequence[int],
        checker: AccessChecker,
        users: Mapping[str, Sequence[SimUser]],
        leader_of: Leaders,
        chance: random.Random,
    ) -> None:
        self.is_stopping = False
        self.name = name
        self.sessions: dict[int, VisitorSession] = {}
        self.others: list[Visitor] = []
        self._plan = plan
        self._host = host
        self._nodes = nodes
        self._checker = checker
        self._users = users
        self._leader_of = leader_of
        self._random = chance
        self._position: dict[str, int] = {}

    def _now(self) -> float:
        return self._host.clock.monotonic()

    async def run(self) -> None:
        while not self.is_stopping:
            await asyncio.sleep(self._random.expovariate(1 / self._plan.visit_s))
            node = self._random.choice(self._nodes)
            try:
                chosen = self._random.random()
                topic = self._random.choice(TOPICS)
                leader = self._leader_of(TopicPartition(topic, 0))
                if leader is not None and chosen < 0.5:
                    node = leader
                session = await self._session(node)
                if chosen < 0.2:
                    await self._fetch(session, topic)
                elif chosen < 0.3:
                    await self._produce(session, topic)
                elif chosen < 0.35:
                    await self._produce(session, topic, TRANSACTION)
                elif chosen < 0.45:
                    await self._use_fetch_session_of_another(session)
                elif chosen < 0.55:
                    await self._list_topics(session)
                else:
                    await self._try(session, self._random.choice(ATTEMPTS))
            except (OSError, TimeoutError, InvalidFrame):
                self._drop(node)

    def _drop(self, node: int) -> None:
        broken = self.sessions.pop(node, None)
        if broken is not None:
            broken.channel.abort()

    # Logins

    async def _session(self, node: int) -> VisitorSession:
        session = self.sessions.get(node)
        if session is not None and not session.channel.closed:
            if self._random.random() > 0.05:
                return session
            session.channel.close()
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            channel = await Channel.open(
                self._host.runtime.network, f"n{node}", BROKER_PORT, self.name
            )
        known = self._users[self.name]
        user = known[-1] if self._random.random() < 0.8 else self._random.choice(known)
        if self._random.random() < 0.2:
            user = user._replace(mechanism="PLAIN")
        sent_at = self._now()
        try:
            lifetime_ms = await log_in_once(channel, user.conversation(self._random))
        except KafkaError as error:
            channel.abort()
            if error.code is ErrorCode.SASL_AUTHENTICATION_FAILED:
                self._refused(user, node, sent_at)
            raise ConnectionError("not logged in") from error
        session = self.sessions[node] = VisitorSession(
            channel,
            node,
            user,
            self._now() + lifetime_ms / 1000 if lifetime_ms else None,
            self._matching(user, node, sent_at),
        )
        if not session.rests_on:
            self._checker.report(
                "A1", node, f"{user.name} logged in with a password that is not valid"
            )
        mark("visitor logged in")
        return session

    def _known(self, user: SimUser, node: int, since: float) -> list[Any]:
        """What the node knew of the user since then. By PLAIN one logs in with the credential of any mechanism, and each
        visitor has only one."""
        mechanism = self._users[user.name][0].mechanism
        return self._checker.credentials_of(user.name, NUMBERS[mechanism], node, since, self._now())

    def _is_right(self, user: SimUser, record: Any) -> bool:
        mechanism = self._users[user.name][0].mechanism
        if record is None:
            return False
        salted = salted_password(mechanism, user.password, record.salt, record.iterations)
        return stored_key(mechanism, salted) == bytes(record.stored_key)

    def _matching(self, user: SimUser, node: int, since: float) -> list[Any]:
        return [each for each in self._known(user, node, since) if self._is_right(user, each)]

    def _refused(self, user: SimUser, node: int, since: float) -> None:
        if all(self._is_right(user, each) for each in self._known(user, node, since)):
            self._checker.report("A8", node, f"{user.name} was refused, with the right password")

    # Requests

    def _asked(
        self, session: VisitorSession, what: str, needs: tuple[Need, ...], sent_at: float, by_controller: bool = False
    ) -> AccessQuestion:  # fmt: skip
        """After an answer. The session must have been good when it was asked."""
        now = self._now()
        if session.ends_at is not None and sent_at > session.ends_at + REVOKED_S:
            self._checker.report(
                "A1", session.node, f"{self.name} did {what} after the end of its session"
            )
        if session.rests_on:
            known = self._known(session.user, session.node, sent_at - REVOKED_S)
            if not any(each in session.rests_on for each in known):
                self._checker.report(
                    "A6",
                    session.node,
                    f"{self.name} did {what} after its credential was taken away",
                )
        return AccessQuestion(
            self.name, self._host.address, session.node, what, needs, sent_at, now, by_controller
        )

    def _judge(self, asked: AccessQuestion, found: Sequence[int]) -> None:
        if DENIALS & set(found):
            self._checker.denied(asked)
            mark("visitor refused")
        elif not UNDECIDED & set(found):
            self._checker.granted(asked)
            mark("visitor allowed")

    async def _try(self, session: VisitorSession, attempt: Attempt) -> None:
        sent_at = self._now()
        answer = await session.channel.request(
            attempt.key, attempt.fields, version=attempt.version, timeout_s=REQUEST_S_MAX
        )
        asked = self._asked(
            session, attempt.key.name, attempt.needs, sent_at, attempt.by_controller
        )
        self._judge(asked, list(codes(answer)))

    async def _list_topics(self, session: VisitorSession) -> None:
        """It sees no other names than of topics that it may describe."""
        sent_at = self._now()
        answer = await session.channel.request(
            ApiKey.METADATA, {"topics": None}, timeout_s=REQUEST_S_MAX
        )
        for topic in answer.topics:
            need = _on(OP.DESCRIBE, R.TOPIC, topic.name)
            self._checker.granted(self._asked(session, "METADATA of all topics", (need,), sent_at))

    async def _produce(
        self, session: VisitorSession, topic: str, transactional_id: str | None = None
    ) -> None:
        sent_at = self._now()
        version, body, read = produce_call(topic, self._host, self.name, transactional_id)
        result = await session.channel.answer(
            ApiKey.PRODUCE, version, body, read, timeout_s=REQUEST_S_MAX
        )
        needs: tuple[Need, ...] = (_on(OP.WRITE, R.TOPIC, topic),)
        if transactional_id is not None:
            needs = (_on(OP.WRITE, R.TRANSACTIONAL_ID, transactional_id), *needs)
        self._judge(self._asked(session, "PRODUCE", needs, sent_at), [result.error])

    async def _fetch(
        self, session: VisitorSession, topic: str, wait_ms: int = LONG_POLL_MS
    ) -> None:
        """It waits for records at the end, with a session of its own."""
        sent_at = self._now()
        offset = self._position.get(topic, 0)
        wanted = FetchPartition(topic, None, 0, -1, offset, -1, -1, 1 << 16)
        request = FetchRequest(
            max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, session_epoch=0, partitions=[wanted]
        )  # fmt: skip
        answer, data = await fetch_answer(session.channel, request)
        session.fetch_session = answer.session_id
        needs = (_on(OP.READ, R.TOPIC, topic),)
        asked = self._asked(session, "FETCH", needs, sent_at)
        if not answer.partitions:
            return
        (found,) = answer.partitions
        self._judge(asked, [found.error])
        if found.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._position[topic] = 0
        with suppress(CorruptBatch):
            written = []
            for batch in batches(data):
                self._position[topic] = batch.next_offset
                written += [
                    float((each.value or b"0").split()[0]) for each in records_of(data, batch)
                ]
            self._checker.read(asked, written)

    async def _use_fetch_session_of_another(self, session: VisitorSession) -> None:
        other = self._random.choice(self.others).sessions.get(session.node)
        if other is None or not other.fetch_session:
            return
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, session_id=other.fetch_session, session_epoch=1
        )
        answer, _ = await fetch_answer(session.channel, request)
        mark("fetch session of another")
        if answer.error != SESSION_NOT_FOUND:
            self._checker.report(
                "A2", session.node, f"{self.name} used a fetch session of another: {answer.error}"
            )


class PatientReader(Visitor):
    """A visitor that only waits for records, each time for long: when its right is taken away, most likely a fetch is parked,
    and what is written a second later and more is written before that fetch has to be answered."""

    async def run(self) -> None:
        while not self.is_stopping:
            await asyncio.sleep(self._random.expovariate(1 / self._plan.visit_s))
            topic = self._random.choice(TOPICS)
            leader = self._leader_of(TopicPartition(topic, 0))
            if leader is None:
                continue
            try:
                session = await self._session(leader)
                await self._fetch(session, topic, PATIENT_POLL_MS)
            except (OSError, TimeoutError, InvalidFrame):
                self._drop(leader)


async def fetch_answer(channel: Channel, request: FetchRequest) -> tuple[FetchResponse, bytes]:
    """And a copy of the records of its partitions."""

    def read(frame: memoryview, start: int) -> tuple[FetchResponse, bytes]:
        answer = fetch.read_response(FETCH_VERSION, frame, start)
        data = b"".join(
            bytes(each.records)
            for each in answer.partitions
            if isinstance(each.records, memoryview)
        )
        answer.partitions = [each._replace(records=None) for each in answer.partitions]
        return answer, data

    body = fetch.write_request(FETCH_VERSION, request)
    timeout_s = max(REQUEST_S_MAX, request.max_wait_ms / 1000 + 1.0)
    return await channel.answer(ApiKey.FETCH, FETCH_VERSION, body, read, timeout_s=timeout_s)
