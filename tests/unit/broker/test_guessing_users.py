"""Nobody learns by time which users there are (CVE-2021-38153): a login costs the same work, whoever is asked about."""

from __future__ import annotations

import asyncio
import base64
import math
import os
import random
import sys
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

import pytest

from ottla.broker.server.credentials import KnownUsers
from ottla.broker.server.gate import GatedListener, GateLimits, Logins
from ottla.broker.server.server import Server
from ottla.controller.credentials import scram_record
from ottla.metadata.records import UserScramCredentialRecord
from ottla.runtime.real import RealClock
from ottla.runtime.sockets import RealNetwork
from ottla.security.login import Accepted, Challenge, Conversation, LoginRefused, Work
from ottla.security.scram import MECHANISMS, Decoys
from ottla.security.secrets import Secret
from ottla.wire.apis import ApiKey
from ottla.wire.channel import Channel
from ottla.wire.errors import ErrorCode

PASSWORD = Secret("pencil")
SALT_BYTES = 24
SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
TRIES, P_MIN = 10_000, 0.01
WHO = {"known": "known", "unknown": "stray", "removed": "moved", "another mechanism": "older"}
"""Names of one length."""


def stored(user: str, mechanism: str) -> UserScramCredentialRecord:
    return scram_record(mechanism, user, PASSWORD, os.urandom(SALT_BYTES), 4096)


def users(mechanism: str) -> Callable[[], Mapping[tuple[str, int], UserScramCredentialRecord]]:
    """As many by one mechanism as by the other, and one was removed."""
    other = SHA_512 if mechanism == SHA_256 else SHA_256
    here = [stored(name, mechanism) for name in ("known", "moved", "usual")]
    records = [*here, stored("older", other), stored("usual", other), stored("other", other)]
    found = {(record.name, record.mechanism): record for record in records}
    removed = ("moved", MECHANISMS[mechanism].number)
    left = {key: record for key, record in found.items() if key != removed}
    return lambda: left


def known_users(mechanism: str) -> KnownUsers:
    return KnownUsers(users(mechanism), Decoys(Secret("decoy"), os.urandom), os.urandom)


def scram_guess(mechanism: str, name: str) -> tuple[bytes, Callable[[bytes], bytes]]:
    """The first message, and the final one that follows from the challenge. The proof is wrong."""
    proof = base64.b64encode(bytes(MECHANISMS[mechanism].size)).decode()

    def final(challenge: bytes) -> bytes:
        nonce = challenge.split(b",")[0][2:].decode()
        return f"c=biws,r={nonce},p={proof}".encode()

    return f"n,,n={name},r=nonce".encode(), final


def guess(begin: Callable[[], Conversation], mechanism: str, name: str) -> str:
    first, final = scram_guess(mechanism, name)
    login = begin()
    challenge = login.evaluate(first)
    assert isinstance(challenge, Challenge)
    try:
        login.evaluate(final(challenge.message))
    except LoginRefused as refusal:
        return str(refusal)
    raise AssertionError("let in")


def guess_plain(begin: Callable[[], Conversation], name: str) -> Accepted | None:
    work = begin().evaluate(f"\0{name}\0wrong".encode())
    assert isinstance(work, Work)
    return work.run()


def calls_of(work: Callable[[], Any]) -> list[str]:
    """Every call that it makes, of Python's and of C's functions, in their order."""
    calls: list[str] = []

    def note(frame: FrameType, event: str, about: Any) -> None:
        if event == "call":
            calls.append(frame.f_code.co_qualname)
        elif event == "c_call":
            calls.append(about.__qualname__)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_a_guess_makes_the_same_calls_for_everybody(mechanism: str) -> None:
    begin = known_users(mechanism).rules([mechanism], {}, {}).mechanisms[mechanism]
    refusals = {who: guess(begin, mechanism, name) for who, name in WHO.items()}
    assert refusals.pop("known") == "the proof is wrong"
    assert set(refusals.values()) == {"there is no such user"}
    made = {
        who: calls_of(lambda name=name: guess(begin, mechanism, name))  # type: ignore[misc]
        for who, name in WHO.items()
    }
    assert "Decoys.credential" in made["known"]
    assert all(calls == made["known"] for calls in made.values())


def test_a_guess_by_plain_makes_the_same_calls_for_everybody() -> None:
    accounts = {"admin": Secret("geheim")}
    begin = known_users(SHA_512).rules(["PLAIN"], accounts, {}).mechanisms["PLAIN"]
    names = [*WHO.values(), "admin"]
    assert {guess_plain(begin, name) for name in names} == {None}
    made = [calls_of(lambda name=name: guess_plain(begin, name)) for name in names]  # type: ignore[misc]
    assert sum("pbkdf2" in call for call in made[0]) == 1
    assert all(calls == made[0] for calls in made)


# By the clock


def kolmogorov_smirnov(one: list[float], other: list[float]) -> float:
    """The probability of samples that differ as much, if both come from one distribution."""
    one, other = sorted(one), sorted(other)
    apart = max(
        abs(bisect_right(one, each) / len(one) - bisect_right(other, each) / len(other))
        for each in (*one, *other)
    )
    effective = math.sqrt(len(one) * len(other) / (len(one) + len(other)))
    scaled = (effective + 0.12 + 0.11 / effective) * apart
    series = sum((-1) ** (k - 1) * math.exp(-2 * (k * scaled) ** 2) for k in range(1, 101))
    return min(1.0, max(0.0, 2 * series))


def test_the_comparison_of_samples_notices_a_difference() -> None:
    chance = random.Random(1)
    one, same = ([chance.gauss(100, 10) for _ in range(5_000)] for _ in range(2))
    assert kolmogorov_smirnov(one, same) > P_MIN
    assert kolmogorov_smirnov(one, [each + 1 for each in same]) < P_MIN


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_guess_takes_the_same_time_for_everybody() -> None:
    """As a stranger sees it: from each token to its answer, over a connection of its own."""

    async def scenario() -> dict[str, list[float]]:
        network = RealNetwork(asyncio.get_running_loop())
        rules = known_users(SHA_512).rules([SHA_512], {}, {})
        limits = GateLimits(10_000, timeout_s=30, failure_delay_s=0, waiting_max=1_000)
        server = Server(
            "CLIENTS",
            {ApiKey.API_VERSIONS: lambda request: request.respond({"error_code": 0})},
            frame_bytes_max=1 << 20,
            idle_max_s=600,
        )
        server.gated = GatedListener(Logins(RealClock()), rules, limits)
        address = await server.listen(network, "127.0.0.1", 0)

        async def timed(name: str) -> float:
            first, final = scram_guess(SHA_512, name)
            channel = await Channel.open(network, *address, "stranger")
            await channel.request(ApiKey.SASL_HANDSHAKE, {"mechanism": SHA_512}, version=1)
            began = time.perf_counter()
            told = await channel.request(ApiKey.SASL_AUTHENTICATE, {"auth_bytes": first}, version=2)
            asked = time.perf_counter()
            last = final(bytes(told.auth_bytes))
            sent = time.perf_counter()
            told = await channel.request(ApiKey.SASL_AUTHENTICATE, {"auth_bytes": last}, version=2)
            seconds = asked - began + time.perf_counter() - sent
            assert told.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            channel.abort()
            return seconds

        found: dict[str, list[float]] = defaultdict(list)
        order = list(WHO.items())
        for number in range(TRIES + 500):
            random.shuffle(order)  # whatever else the machine does is everybody's
            for who, name in order:
                seconds = await timed(name)
                if number >= 500:
                    found[who].append(seconds)
        server.close()
        return found

    found = asyncio.run(scenario())
    known = found.pop("known")
    for who, times in found.items():
        probability = kolmogorov_smirnov(known, times)
        assert probability > P_MIN, f"{who}: p = {probability:g}"
