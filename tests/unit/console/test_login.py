"""What logging in takes from the console's own settings, and what it tells those who have not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.client.client import Client
from ottla.console.web.answers import AnswerRefused
from ottla.console.web.login import LoginForm, LoginSettings
from ottla.console.web.login_throttle import FREE
from ottla.console.web.visits import Registered
from ottla.runtime.real import RealClock

OF_THE_CONSOLE = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.jaas.config": 'o.a.k.ScramLoginModule required username="admin" password="secret";',
    "ssl.keystore.type": "PEM",
    "ssl.keystore.certificate.chain": "certificate of the console",
    "ssl.keystore.key": "key of the console",
    "ssl.endpoint.identification.algorithm": "",
}


def test_of_the_consoles_settings_a_visit_gets_the_trust_alone() -> None:
    settings = LoginSettings([("localhost", 9092)], OF_THE_CONSOLE)
    assert settings.mechanism == "SCRAM-SHA-256"
    made = settings.by_name("alice", "password", "PLAIN")
    assert made.tls is not None
    assert not made.tls.check_host
    assert (made.tls.certificate, made.tls.key, made.tls.key_password) == (None, None, None)
    assert made.sasl is not None
    assert made.sasl.user == "alice"


class NoNetwork:
    async def connect(self, *_: Any, **__: Any) -> Any:
        raise ConnectionRefusedError


def test_who_has_not_logged_in_does_not_hear_where_the_brokers_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def connecting(*_: Any) -> Any:
        network: Any = NoNetwork()
        return lambda: Client(network, [("broker.internal", 9092)], timeout_s=0.1)

    monkeypatch.setattr(LoginSettings, "connecting", connecting)
    settings = LoginSettings([("broker.internal", 9092)], {"security.protocol": "SASL_PLAINTEXT"})

    async def run() -> None:
        form = LoginForm(settings, Registered(RealClock(), lambda: "secret"))
        for _ in range(FREE + 1):  # nobody was refused, so nobody waits
            with pytest.raises(AnswerRefused) as refused:
                await form.enter(
                    "1.2.3.4", "alice", lambda: settings.by_name("alice", "p", "PLAIN")
                )
            assert (refused.value.status, refused.value.text) == (
                502,
                "The cluster does not answer.",
            )

    asyncio.run(run())
