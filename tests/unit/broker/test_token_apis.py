"""Delegation tokens and OAuth tokens at a real node: who gets which, who logs in by them, and what ends with them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from socket import socket
from typing import Any

import pytest

from ottla.broker.node import Node
from ottla.config import ConfigError, Settings
from ottla.controller.credentials import scram_record
from ottla.runtime.real import real_runtime
from ottla.security.acls import Acl
from ottla.security.operations import AclOperation, PatternType, Permission, ResourceType
from ottla.security.principals import Principal
from ottla.security.rights import Rights
from ottla.security.sasl_client import ClientLogin
from ottla.security.secrets import Secret
from ottla.security.tokens import Token, TokenKeys, may_renew
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.channel import Channel
from ottla.wire.errors import ErrorCode, KafkaError
from support.oauth import AUDIENCE, ISSUER, Issuer, claims, handmade

SECRET = "the cluster's secret"
KEYS = TokenKeys(Secret(SECRET))
PASSWORD = Secret("pencil")
USERS = ("alice", "bob", "eve")
MECHANISM = "SCRAM-SHA-256"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ISSUED = Issuer("ES256")


class World:
    """One node: PLAINTEXT for itself and CLIENTS with SASL. Everybody is denied what no ACL allows."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._runtime = real_runtime(asyncio.get_running_loop(), seed=3)

    async def plain(self, listener: str = "PLAINTEXT") -> Channel:
        port = self.node.endpoints[listener].port
        return await Channel.open(self._runtime.network, "127.0.0.1", port, "client")

    async def user(self, name: str) -> Channel:
        return await self._log_in(ClientLogin(MECHANISM, name, PASSWORD))

    async def by_token(self, token_id: str, password: Secret | None = None) -> Channel:
        secret = password or KEYS.password(token_id)
        return await self._log_in(ClientLogin(MECHANISM, token_id, secret, by_token=True))

    async def by_oauth(self, token: str) -> Channel:
        channel = await self.plain("CLIENTS")
        await channel.log_in(lambda: _Bearer(token))
        return channel

    async def _log_in(self, login: ClientLogin) -> Channel:
        channel = await self.plain("CLIENTS")
        await channel.log_in(lambda: login.begin(os.urandom(24).hex()))
        return channel

    def allow(self, who: str, operation: AclOperation, kind: ResourceType, name: str) -> None:
        assert self.node.authorizer is not None
        acl = Acl(kind, PatternType.LITERAL, name, f"User:{who}", "*", operation, Permission.ALLOW)
        self.node.authorizer.change(removed=[], added=[acl])


class _Bearer:
    """The client's half of OAUTHBEARER."""

    mechanism = "OAUTHBEARER"

    def __init__(self, token: str) -> None:
        self._token = token

    def first(self) -> bytes:
        return f"n,,\x01auth=Bearer {self._token}\x01\x01".encode()

    def answer(self, message: bytes) -> bytes | None:
        return b"\x01" if message else None


@asynccontextmanager
async def world(directory: Path, **changed: str) -> AsyncIterator[World]:
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    keys = directory / "keys.json"
    keys.write_bytes(ISSUED.jwks())
    settings = {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0,CONTROLLER://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@127.0.0.1:{port}",
        "log.dirs": str(directory / "data"),
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,OAUTHBEARER",
        "connection.failed.authentication.delay.ms": "0",
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS",
        "delegation.token.secret.key": SECRET,
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        **{name.replace("_", "."): value for name, value in changed.items() if value},
    }
    left_out = {name.replace("_", ".") for name, value in changed.items() if not value}
    kept = {name: value for name, value in settings.items() if name not in left_out}
    node = Node(Settings.of(kept), real_runtime(asyncio.get_running_loop(), seed=1))
    try:
        await node.start()
        assert node.controller is not None
        records = [scram_record(MECHANISM, name, PASSWORD, b"0123456789", 4096) for name in USERS]
        assert node.quorum is not None
        quorum = node.quorum
        if (
            not quorum.image.scram
        ):  # in a later life they are there, and to write them again would end their sessions
            node.controller.decide(lambda draft: draft.add(records) or {})  # type: ignore[func-returns-value]
        await until(lambda: len(quorum.image.scram) == len(USERS))
        yield World(node)
    finally:
        await node.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def run(scenario: Callable[[World], Coroutine[Any, Any, None]], at: Path, **changed: str) -> None:
    async def within() -> None:
        async with world(at, **changed) as found:
            await scenario(found)

    asyncio.run(within())


async def create(channel: Channel, **asked: Any) -> Any:
    fields = {"renewers": (), "max_lifetime": -1, **asked}
    return await channel.request(ApiKey.CREATE_DELEGATION_TOKEN, fields)


async def change(channel: Channel, key: ApiKey, hmac: bytes, period_ms: int = -1) -> Any:
    name = "renew_period" if key is ApiKey.RENEW_DELEGATION_TOKEN else "expiry_time_period"
    return await channel.request(key, {"hmac": hmac, name: period_ms})


async def described(channel: Channel, owners: Any = None) -> list[str]:
    answer = await channel.request(ApiKey.DESCRIBE_DELEGATION_TOKEN, {"owners": owners})
    assert answer.error_code == ErrorCode.NONE
    return sorted(each.token_id for each in answer.tokens)


def as_user(name: str) -> dict[str, str]:
    return {"principal_type": "User", "principal_name": name}


async def is_refused(login: Coroutine[Any, Any, Channel]) -> bool:
    with pytest.raises(KafkaError) as refusal:
        await login
    return refusal.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


ASKING: dict[ApiKey, dict[str, Any]] = {
    ApiKey.CREATE_DELEGATION_TOKEN: {"renewers": (), "max_lifetime": -1},
    ApiKey.RENEW_DELEGATION_TOKEN: {"hmac": b"x", "renew_period": -1},
    ApiKey.EXPIRE_DELEGATION_TOKEN: {"hmac": b"x", "expiry_time_period": -1},
    ApiKey.DESCRIBE_DELEGATION_TOKEN: {"owners": None},
}


def test_a_token_lets_its_holder_in_as_its_owner_and_ends_his_sessions_with_it(
    tmp_path: Path,
) -> None:
    async def scenario(at: World) -> None:
        alice = await at.user("alice")
        made = await create(alice, renewers=[as_user("bob")])
        assert made.error_code == ErrorCode.NONE
        assert made.hmac == KEYS.hmac(made.token_id)
        job, disturbed = await at.by_token(made.token_id), await at.by_token(made.token_id)
        assert (await job.request(ApiKey.METADATA, {"topics": None})).brokers

        # Renewing disturbs nobody.
        renewed = await change(alice, ApiKey.RENEW_DELEGATION_TOKEN, made.hmac)
        assert renewed.error_code == ErrorCode.NONE
        assert renewed.expiry_timestamp >= made.expiry_timestamp
        assert (await job.request(ApiKey.METADATA, {"topics": None})).brokers

        removed = await change(await at.user("bob"), ApiKey.EXPIRE_DELEGATION_TOKEN, made.hmac)
        assert removed.error_code == ErrorCode.NONE
        await until(lambda: job.closed and disturbed.closed)
        assert await is_refused(at.by_token(made.token_id))
        assert not alice.closed

    run(scenario, tmp_path)


def test_a_token_that_is_over_lets_nobody_in_before_it_is_swept(tmp_path: Path) -> None:
    async def scenario(at: World) -> None:
        alice = await at.user("alice")
        made = await create(alice)
        shortened = await change(alice, ApiKey.EXPIRE_DELEGATION_TOKEN, made.hmac, 0)
        assert shortened.error_code == ErrorCode.NONE
        assert await is_refused(at.by_token(made.token_id))
        assert await described(alice) == [made.token_id]
        for key in (ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN):
            answer = await change(alice, key, made.hmac, 1000)
            assert answer.error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED

    run(scenario, tmp_path)


def test_tokens_that_are_over_are_swept(tmp_path: Path) -> None:
    async def scenario(at: World) -> None:
        alice = await at.user("alice")
        await create(alice, max_lifetime=1)
        living = await create(alice)
        async with asyncio.timeout(20):
            while await described(alice) != [living.token_id]:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    run(scenario, tmp_path, **{"delegation.token.expiry.check.interval.ms": "50"})


def test_sessions_end_when_their_token_is_over(tmp_path: Path) -> None:
    async def scenario(at: World) -> None:
        made = await create(await at.user("alice"), max_lifetime=1_500)
        job = await at.by_token(made.token_id)
        with pytest.raises((OSError, KafkaError)):
            async with asyncio.timeout(20):
                while True:
                    await job.request(ApiKey.METADATA, {"topics": None})
                    await asyncio.sleep(0.02)

    run(scenario, tmp_path)


def test_who_did_not_prove_to_be_somebody_is_refused_and_so_is_who_has_a_token(
    tmp_path: Path,
) -> None:
    async def scenario(at: World) -> None:
        made = await create(await at.user("alice"))
        for channel in (
            await at.plain(),
            await at.plain("CONTROLLER"),
            await at.by_token(made.token_id),
        ):
            for key, fields in ASKING.items():
                for version in range(APIS[key].min_version, APIS[key].max_version + 1):
                    answer = await channel.request(key, fields, version=version)
                    assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert await described(await at.user("alice")) == [made.token_id]

    run(scenario, tmp_path)


def test_every_version_is_answered(tmp_path: Path) -> None:
    async def scenario(at: World) -> None:
        alice = await at.user("alice")
        made = await create(alice)
        for key, asked in ASKING.items():
            fields = {**asked, "hmac": made.hmac} if "hmac" in asked else asked
            for version in range(APIS[key].min_version, APIS[key].max_version + 1):
                if key is ApiKey.EXPIRE_DELEGATION_TOKEN:
                    fields = {"hmac": (await create(alice)).hmac, "expiry_time_period": -1}
                answer = await alice.request(key, fields, version=version)
                assert answer.error_code == ErrorCode.NONE, (key, version)

    run(scenario, tmp_path)


def test_without_a_secret_there_are_no_tokens(tmp_path: Path) -> None:
    async def scenario(at: World) -> None:
        alice = await at.user("alice")
        for key, fields in ASKING.items():
            answer = await alice.request(key, fields)
            assert answer.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        assert await is_refused(at.by_token("any"))

    run(scenario, tmp_path, **{"delegation.token.secret.key": ""})


def test_a_token_for_somebody_else_needs_the_right_to_make_it(tmp_path: Path) -> None:
    async def scenario(at: World) -> None:
        eve = await at.user("eve")
        for_bob = {"owner_principal_type": "User", "owner_principal_name": "bob"}
        denied = await create(eve, **for_bob)
        assert denied.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        assert (denied.token_id, denied.hmac) == ("", b"")
        at.allow("eve", AclOperation.CREATE_TOKENS, ResourceType.USER, "User:bob")
        made = await create(eve, **for_bob)
        assert made.error_code == ErrorCode.NONE
        assert (made.principal_name, made.token_requester_principal_name) == ("bob", "eve")
        # She has the HMAC, as in Kafka, but the token is bob's.
        answer = await change(eve, ApiKey.RENEW_DELEGATION_TOKEN, made.hmac)
        assert answer.error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert await described(eve) == []
        assert await described(await at.user("bob")) == [made.token_id]

        own = {"owner_principal_type": "User", "owner_principal_name": "eve"}
        assert (await create(eve, **own)).error_code == ErrorCode.NONE
        groups = [{"principal_type": "Group", "principal_name": "x"}]
        wrong = await create(eve, renewers=groups)
        assert wrong.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE

    run(scenario, tmp_path)


def test_one_sees_own_and_renewable_tokens_and_others_by_right(tmp_path: Path) -> None:
    async def scenario(at: World) -> None:
        alice, bob, eve = [await at.user(name) for name in USERS]
        shared = (await create(alice, renewers=[as_user("bob")])).token_id
        own = (await create(alice)).token_id
        bobs = (await create(bob)).token_id
        assert await described(alice) == sorted([shared, own])
        assert await described(bob) == sorted([shared, bobs])
        assert await described(eve) == []
        assert await described(alice, []) == []
        assert await described(alice, [as_user("alice")]) == sorted([shared, own])
        assert await described(alice, [as_user("bob")]) == [shared]
        assert await described(alice, [as_user("eve")]) == []
        at.allow("eve", AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, own)
        assert await described(eve) == [own]
        at.allow("eve", AclOperation.DESCRIBE_TOKENS, ResourceType.USER, "User:bob")
        assert await described(eve) == sorted([own, bobs])

    run(scenario, tmp_path)


def test_a_list_of_all_tokens_takes_no_place_of_denials_in_the_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    async def scenario(at: World) -> None:
        alice, eve = await at.user("alice"), await at.user("eve")
        for _ in range(3):
            await create(alice)
        monkeypatch.setattr(Rights, "_tell", lambda _, question, verdict: told.append(question[2]))
        assert await described(eve) == []
        assert told == []
        assert await described(eve, [as_user("alice")]) == []
        assert set(told) == {"User:alice"}, "whom she asked for by name"

    run(scenario, tmp_path)


def test_each_token_is_looked_at_once_however_many_owners_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    def counted(token: Token, principal: Principal) -> bool:
        nonlocal looks
        looks += 1
        return may_renew(token, principal)

    monkeypatch.setattr("ottla.broker.apis.tokens.may_renew", counted)

    async def scenario(at: World) -> None:
        alice = await at.user("alice")
        own = sorted([(await create(alice)).token_id for _ in range(3)])
        strangers = [as_user(f"user-{number}") for number in range(1_000)]
        assert await described(alice, strangers) == []
        assert await described(alice, [*strangers, as_user("alice")]) == own
        assert looks == len(own)

    run(scenario, tmp_path)


# OAuth


def test_an_oauth_token_lets_its_user_in_and_nobody_else(tmp_path: Path) -> None:
    async def scenario(at: World) -> None:
        channel = await at.by_oauth(ISSUED.token(claims("carol")))
        made = await create(channel)
        assert (made.error_code, made.principal_name) == (ErrorCode.NONE, "carol")
        unsigned = {"alg": "none", "kid": "k1"}
        for worthless in (
            handmade(unsigned, claims("carol")),
            Issuer("ES256").token(claims("carol")),
            ISSUED.token(claims("carol", aud="another service")),
            ISSUED.token(claims("carol", lifetime_s=-1)),
            "a.b.c",
            "x" * 400_000,
        ):
            assert await is_refused(at.by_oauth(worthless))
        with pytest.raises(OSError):  # a frame too large for a login
            await at.by_oauth("x" * 1_000_000)

    run(scenario, tmp_path)


def test_a_session_ends_with_the_oauth_token(tmp_path: Path) -> None:
    async def scenario(at: World) -> None:
        tokens = [ISSUED.token(claims("carol", lifetime_s=3)), ISSUED.token(claims("carol", -9))]
        channel = await at.plain("CLIENTS")
        await channel.log_in(lambda: _Bearer(tokens.pop(0)))
        assert (await channel.request(ApiKey.METADATA, {"topics": None})).brokers
        await until(lambda: channel.closed)

    run(scenario, tmp_path)


def test_unsecured_tokens_count_where_the_operator_wants_them(tmp_path: Path) -> None:
    async def scenario(at: World) -> None:
        channel = await at.by_oauth(handmade({"alg": "none"}, claims("carol", iss=None, aud=None)))
        assert (await channel.request(ApiKey.METADATA, {"topics": None})).brokers
        assert await is_refused(at.by_oauth(ISSUED.token(claims("carol"))))  # no key is known

    left_out = dict.fromkeys(
        (
            "sasl.oauthbearer.jwks.endpoint.url",
            "sasl.oauthbearer.expected.issuer",
            "sasl.oauthbearer.expected.audience",
        ),
        "",
    )
    run(scenario, tmp_path, **left_out, **{"ottla.allow.unsecured.jwt": "true"})


@pytest.mark.parametrize("content", [None, b"", b"{}"])
def test_a_node_whose_file_of_keys_is_none_does_not_start(
    tmp_path: Path, content: bytes | None
) -> None:
    keys = tmp_path / "other.json"
    if content is not None:
        keys.write_bytes(content)

    async def nothing(_: World) -> None:
        pass

    with pytest.raises(ConfigError, match=r"other\.json cannot be used"):
        run(nothing, tmp_path, **{"sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}"})


@pytest.mark.parametrize("missing", ["jwks.endpoint.url", "expected.issuer", "expected.audience"])
def test_a_node_that_could_not_know_whose_tokens_to_believe_does_not_start(
    tmp_path: Path, missing: str
) -> None:
    async def nothing(_: World) -> None:
        pass

    with pytest.raises(ConfigError, match="is missing: clients log in by OAUTHBEARER"):
        run(nothing, tmp_path, **{f"sasl.oauthbearer.{missing}": ""})


def test_a_token_outlives_the_secret_that_it_was_made_with(tmp_path: Path) -> None:
    """Its owner is shown the password that it has now, which counts when the previous secret is gone."""
    next_secret = {"delegation.token.secret.key": "the next secret"}
    rotated = {**next_secret, "delegation.token.secret.key.previous": SECRET}
    now = TokenKeys(Secret("the next secret"))
    ids: list[str] = []

    async def make(at: World) -> None:
        ids.append((await create(await at.user("alice"))).token_id)

    async def use_both(at: World) -> None:
        alice = await at.user("alice")
        answer = await alice.request(ApiKey.DESCRIBE_DELEGATION_TOKEN, {"owners": None})
        assert [each.hmac for each in answer.tokens] == [now.hmac(ids[0])]
        for password in (KEYS.password(ids[0]), now.password(ids[0])):
            job = await at.by_token(ids[0], password)
            assert (await job.request(ApiKey.METADATA, {"topics": None})).brokers
        for hmac in (KEYS.hmac(ids[0]), now.hmac(ids[0])):
            renewed = await change(alice, ApiKey.RENEW_DELEGATION_TOKEN, hmac)
            assert renewed.error_code == ErrorCode.NONE

    async def use_one(at: World) -> None:
        await at.by_token(ids[0], now.password(ids[0]))
        assert await is_refused(at.by_token(ids[0]))

    run(make, tmp_path)
    run(use_both, tmp_path, **rotated)
    run(use_one, tmp_path, **next_secret)


def test_a_previous_secret_alone_is_refused(tmp_path: Path) -> None:
    async def nothing(at: World) -> None: ...

    with pytest.raises(ConfigError, match="is given without"):
        changed = {"delegation.token.secret.key.previous": "old", "delegation.token.secret.key": ""}
        run(nothing, tmp_path, **changed)
