"""An intruder in a secure run: it logs in wrongly, asks before it has logged in, and pretends to be a node.

It knows the passwords of two ordinary users, and it has certificates: none, one that has expired, one of another authority, and
one of the cluster's authority that names nobody of importance. It must be refused each time (A1, A3, A7).
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from ottla.metadata.image import MetadataImage
from ottla.runtime import Connection, Tls
from ottla.runtime.tls_options import KeyStore, TlsOptions, TrustStore
from ottla.security.principal_data import principal_to_bytes
from ottla.security.principals import user as principal_of
from ottla.security.secrets import Secret
from ottla.sim.clients.access import (
    ATTEMPTS,
    DENIALS,
    TOPICS,
    codes,
    fetch_answer,
    stored_as,
)
from ottla.sim.clients.connections import CONNECT_TIMEOUT_S
from ottla.sim.clients.logins import PlainConversation, ScramConversation, SimUser, log_in_once
from ottla.sim.cluster.nodes import BROKER_PORT, CONTROLLER_PORT
from ottla.sim.cluster.security import ADMIN, AUTHORITY, NODES_PORT
from ottla.sim.engine.toy_tls import FOREVER_MS, ToyCertificate
from ottla.sim.engine.world import SimHost
from ottla.sim.oracle.access_checker import AccessChecker
from ottla.sim.oracle.coverage import mark
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.channel import Channel, LoginConversation
from ottla.wire.errors import ErrorCode, InvalidFrame, KafkaError
from ottla.wire.fetch_messages import FetchPartition, FetchRequest
from ottla.wire.headers import request_frame
from ottla.wire.internal_topics import CLUSTER_METADATA_TOPIC, CLUSTER_METADATA_TOPIC_ID
from ottla.wire.messages import write_request

PAUSE_S = 0.5
PATIENCE_S = 2.0
STRANGE = 99
"""The id of a node that does not exist."""
GUEST = ToyCertificate("guest", "clients", AUTHORITY)
CERTIFICATES: Mapping[str, ToyCertificate | None] = {
    "no certificate": None,
    "an expired certificate": ToyCertificate("n1", "n1", AUTHORITY, not_after_ms=1),
    "a certificate of another authority": ToyCertificate("n1", "n1", "another", FOREVER_MS),
    "the certificate of a guest": GUEST,
}


class _OtherNonce(ScramConversation):
    def returned_nonce(self, nonce: str) -> str:
        return self.nonce + nonce[: -len(self.nonce)]


class _ActingAs(ScramConversation):
    def header(self) -> str:
        return f"n,a={ADMIN},"


class _ShortProof(ScramConversation):
    size = 0

    def proof(self, right: bytes) -> bytes:
        return right[: self.size]


class _UnsignedToken:
    """OAUTHBEARER, with a token that nobody has signed, or that names a key and has a wrong signature."""

    mechanism = "OAUTHBEARER"

    def __init__(self, name: str, wall_ms: int, header: Mapping[str, str]) -> None:
        now = wall_ms // 1000
        claims = {"iss": "issuer", "aud": "cluster", "sub": name, "iat": now, "exp": now + 60}
        signature = b"" if header["alg"] == "none" else bytes(64)
        parts = (json.dumps(header).encode(), json.dumps(claims).encode(), signature)
        self._token = ".".join(
            base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts
        )

    def first(self) -> bytes:
        return f"n,,\x01auth=Bearer {self._token}\x01\x01".encode()

    def answer(self, message: bytes) -> bytes | None:
        return b"\x01" if message else None


class Intruder:
    def __init__(
        self,
        host: SimHost,
        nodes: Sequence[int],
        checker: AccessChecker,
        users: tuple[SimUser, SimUser],
        image: Callable[[], MetadataImage],
        chance: random.Random,
    ) -> None:
        """`users`: two whose passwords it knows. They have no rights of nodes."""
        self.is_stopping = False
        self._host = host
        self._nodes = nodes
        self._checker = checker
        self._users = users
        self._image = image
        self._random = chance

    async def run(self) -> None:
        doings: list[Callable[[int], Awaitable[None]]] = [
            self._ask_before_login,
            self._log_in_wrongly,
            self._log_in_as_another,
            self._pretend_to_follow,
            self._pretend_to_be_a_broker,
            self._pretend_to_be_a_node,
        ]
        while not self.is_stopping:
            await asyncio.sleep(self._random.expovariate(1 / PAUSE_S))
            with suppress(OSError, TimeoutError, InvalidFrame):
                await self._random.choice(doings)(self._random.choice(self._nodes))

    async def _open(self, node: int, port: int = BROKER_PORT, tls: Tls | None = None) -> Channel:
        made: list[Channel] = []

        def receive(connection: Connection) -> Channel:
            made.append(Channel(connection, "intruder"))
            return made[0]

        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await self._host.runtime.network.connect(f"n{node}", port, receive, tls=tls)
        return made[0]

    # Logins

    async def _ask_before_login(self, node: int) -> None:
        """A1. Within a login, any other request is answered with ILLEGAL_SASL_STATE."""
        attempt = self._random.choice(ATTEMPTS)
        channel = await self._open(node)
        expected: set[int] = set()
        if self._random.random() < 0.3:
            handshake = {"mechanism": "SCRAM-SHA-256"}
            await channel.request(ApiKey.SASL_HANDSHAKE, handshake, version=1, timeout_s=PATIENCE_S)
            expected = {ErrorCode.ILLEGAL_SASL_STATE}
        try:
            answer = await channel.request(
                attempt.key, attempt.fields, version=attempt.version, timeout_s=PATIENCE_S
            )
        except ConnectionError:
            mark("request before a login")
            return
        finally:
            channel.abort()
        if not expected or set(codes(answer)) - {ErrorCode.NONE} != expected:
            self._checker.report("A1", node, f"{attempt.key.name} was answered before a login")

    async def _log_in_wrongly(self, node: int) -> None:
        """A1."""
        user = self._random.choice(self._users)
        nonce = f"{self._random.getrandbits(128):032x}"
        scram = stored_as(user)
        plain = user._replace(mechanism="PLAIN")
        short = _ShortProof(scram, nonce)
        short.size = self._random.choice((0, 0, 1, 16))
        logins: list[tuple[str, LoginConversation]] = [
            ("with another nonce", _OtherNonce(scram, nonce)),
            ("as somebody else", _ActingAs(scram, nonce)),
            ("with a part of the proof", short),
            ("as somebody else by PLAIN", PlainConversation(plain, ADMIN)),
            ("with a wrong password", ScramConversation(scram._replace(password="?"), nonce)),
            ("with a wrong password by PLAIN", PlainConversation(plain._replace(password="?"))),
            ("as nobody", ScramConversation(scram._replace(name="nobody"), nonce)),
        ]
        wall_ms = self._host.clock.wall_ms()
        for header in ({"alg": "none"}, {"alg": "ES256", "kid": "issuer"}):
            logins.append(
                ("with a token that is not signed", _UnsignedToken(ADMIN, wall_ms, header))
            )
        what, conversation = self._random.choice(logins)
        channel = await self._open(node)
        if await self._is_accepted(channel, conversation):
            self._checker.report("A1", node, f"{user.name} logged in {what}")
        channel.abort()

    async def _is_accepted(self, channel: Channel, conversation: LoginConversation) -> bool:
        try:
            await log_in_once(channel, conversation)
        except KafkaError as error:
            if error.code is ErrorCode.SASL_AUTHENTICATION_FAILED:
                mark("login refused")
            # The server's own proof is wrong if it lets in somebody whose proof it could not check.
            return "does not know the password" in str(error)
        return True

    async def _log_in_as_another(self, node: int) -> None:
        """A3: the second login of a connection is that of the first."""
        first, second = (each._replace(mechanism="PLAIN") for each in self._users)
        channel = await self._open(node)
        try:
            await log_in_once(channel, PlainConversation(first))
        except KafkaError:
            channel.abort()
            return
        if await self._is_accepted(channel, PlainConversation(second)):
            self._checker.report(
                "A3", node, f"a connection of {first.name} became one of {second.name}"
            )
        channel.abort()

    # Nodes

    def _is_refused(self, found: Sequence[int], node: int, what: str) -> None:
        """A7. Rights are looked at first: no other answer comes before a denial."""
        if DENIALS & set(found):
            mark("forged node refused")
        else:
            self._checker.report("A7", node, f"an intruder did {what}, as if it were a node")

    async def _worker(self, node: int) -> Channel:
        channel = await self._open(node)
        try:
            await log_in_once(channel, self._users[0].conversation(self._random))
        except KafkaError as error:
            channel.abort()
            raise ConnectionError("not logged in") from error
        return channel

    async def _pretend_to_follow(self, node: int) -> None:
        """Whoever is believed to be a follower moves the high watermark by the offset that it asks for."""
        topic = self._random.choice(TOPICS)
        follower = self._random.choice(self._nodes)
        wanted = FetchPartition(topic, None, 0, -1, 10**9, -1, 0, 1 << 16)
        request = FetchRequest(replica_id=follower, max_wait_ms=0, partitions=[wanted])
        channel = await self._worker(node)
        answer, _ = await fetch_answer(channel, request)
        channel.close()
        found = [answer.error, *(each.error for each in answer.partitions)]
        self._is_refused(found, node, "a follower's FETCH")

    async def _pretend_to_be_a_broker(self, node: int) -> None:
        """At the listener of clients."""
        topics = [{"name": TOPICS[0], "partition_indexes": [0]}]
        marker = {"producer_id": 1, "producer_epoch": 0, "transaction_result": True}
        adding = {"producer_id": 1, "producer_epoch": 0, "verify_only": False}
        added = {
            "transactional_id": "x",
            **adding,
            "topics": [{"name": TOPICS[0], "partitions": [0]}],
        }
        key, fields = self._random.choice(
            [
                (ApiKey.WRITE_TXN_MARKERS, {"markers": [{**marker, "coordinator_epoch": 999, "topics": topics}]}),
                (ApiKey.ADD_PARTITIONS_TO_TXN, {"transactions": [added]}),
            ]
        )  # fmt: skip
        channel = await self._worker(node)
        answer = await channel.request(key, fields, timeout_s=PATIENCE_S)
        channel.close()
        self._is_refused(list(codes(answer)), node, key.name)

    async def _pretend_to_be_a_node(self, node: int) -> None:
        """At the listeners of nodes, with a certificate that is no node's."""
        shown = self._random.choice(list(CERTIFICATES))
        certificate = CERTIFICATES[shown]
        port = self._random.choice((CONTROLLER_PORT, CONTROLLER_PORT, NODES_PORT))
        key, fields = self._forged(node, port)
        channel = await self._open(node, port, self._tls(certificate))
        try:
            answer = await channel.request(key, fields, timeout_s=PATIENCE_S)
        except ConnectionError:
            if certificate is not GUEST:
                mark("wrong certificate refused")
            return
        finally:
            channel.close()
        if certificate is not GUEST:
            self._checker.report("A7", node, f"{shown} was taken for {key.name}")
        self._is_refused(list(codes(answer)), node, key.name)

    def _tls(self, certificate: ToyCertificate | None) -> Tls:
        make_tls = self._host.runtime.make_tls
        assert make_tls is not None
        chain = None if certificate is None else Secret(certificate.text())
        keys = (
            None
            if chain is None
            else KeyStore("PEM", key=Secret("toy key"), certificate_chain=chain)
        )
        trust = TrustStore("PEM", certificates=Secret(AUTHORITY))
        return make_tls(TlsOptions("INTRUDER", keys, trust))

    def _forged(self, node: int, port: int) -> tuple[ApiKey, Mapping[str, Any]]:
        """What the node would obey, if another node had sent it."""
        image = self._image()
        if port == NODES_PORT:
            topics = [{"name": TOPICS[0], "partition_indexes": [0]}]
            marker = {"producer_id": 1, "producer_epoch": 0, "transaction_result": True}
            return ApiKey.WRITE_TXN_MARKERS, {
                "markers": [{**marker, "coordinator_epoch": 999, "topics": topics}]
            }
        registered = image.brokers.get(node)
        broker = {"broker_id": node, "broker_epoch": -1 if registered is None else registered.epoch}
        version = APIS[ApiKey.UNREGISTER_BROKER].max_version
        body = write_request(ApiKey.UNREGISTER_BROKER, version, {"broker_id": STRANGE})
        inner = request_frame(ApiKey.UNREGISTER_BROKER, version, 1, "1", body)[4:]
        envelope = {
            "request_data": inner,
            "request_principal": principal_to_bytes(principal_of(ADMIN)),
            "client_host_address": bytes((127, 0, 0, 1)),
        }
        fetched = {
            "partition": 0,
            "fetch_offset": 0,
            "current_leader_epoch": -1,
            "last_fetched_epoch": 0,
            "partition_max_bytes": 1000,
        }
        fetching = {
            "cluster_id": None,
            "replica_state": {"replica_id": node, "replica_epoch": -1},
            "max_wait": 0,
            "min_bytes": 0,
            "topics": [{"topic_id": CLUSTER_METADATA_TOPIC_ID, "partitions": [fetched]}],
        }
        vote = {
            "partition_index": 0,
            "replica_epoch": 10**6,
            "replica_id": node,
            "replica_directory_id": UUID(int=9),
            "voter_directory_id": UUID(int=9),
            "last_offset_epoch": 10**6,
            "last_offset": 10**6,
            "pre_vote": False,
        }
        leading = {"partition_index": 0, "leader_id": STRANGE, "leader_epoch": 10**6}
        registration = {
            "broker_id": STRANGE,
            "cluster_id": "",
            "incarnation_id": UUID(int=66),
            "listeners": [],
            "features": [],
            "rack": None,
            "log_dirs": [UUID(int=9 << 64)],
        }
        forged: list[tuple[ApiKey, Mapping[str, Any]]] = [
            (ApiKey.ENVELOPE, envelope),
            (ApiKey.FETCH, fetching),
            (ApiKey.VOTE, {"cluster_id": None, "topics": [_raft(vote)]}),
            (ApiKey.BEGIN_QUORUM_EPOCH, {"cluster_id": None, "topics": [_raft(leading)]}),
            (
                ApiKey.BROKER_HEARTBEAT,
                {
                    **broker,
                    "current_metadata_offset": 0,
                    "want_fence": True,
                    "want_shut_down": True,
                },
            ),
            (ApiKey.BROKER_REGISTRATION, registration),
            (ApiKey.ALLOCATE_PRODUCER_IDS, broker),
            (ApiKey.ALTER_PARTITION, {**broker, "topics": []}),
        ]
        return self._random.choice(forged)


def _raft(partition: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"topic_name": CLUSTER_METADATA_TOPIC, "partitions": [partition]}
