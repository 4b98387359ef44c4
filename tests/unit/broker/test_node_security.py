"""The security of a node's listeners: which certificates it starts with, who callers are, what changes at run time."""

from __future__ import annotations

import asyncio
import datetime
import logging
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest

from ottla.broker.cluster.dialer import NodeDialer
from ottla.broker.cluster.node_security import NodeSecurity
from ottla.broker.node import Broker
from ottla.config import ConfigError, Settings
from ottla.local.certificates import issue_node, new_authority
from ottla.metadata.records import BROKER_RESOURCE
from ottla.runtime.real import real_runtime
from ottla.runtime.seams import Identity, TlsRefused
from ottla.security.principals import ANONYMOUS, user
from ottla.wire.channel import Channel
from ottla.wire.errors import ErrorCode, KafkaError
from support.certificates import certified, of_unknown_version


def stored(path: Path, *hosts: str) -> str:
    leaf = certified().leaf("nodes", *hosts)
    path.write_bytes(leaf.private_key_and_cert_chain_pem.bytes())
    return str(path)


def settings(directory: Path, **changes: str) -> Settings:
    trust = directory / "ca.pem"
    trust.write_bytes(certified().authority("nodes").cert_pem.bytes())
    return Settings.of(
        {
            "node.id": "1",
            "process.roles": "broker,controller",
            "controller.quorum.voters": "1@localhost:9093",
            "controller.listener.names": "CONTROLLER",
            "listeners": "CLIENTS://127.0.0.1:9092,INTERNAL://127.0.0.1:9094,CONTROLLER://127.0.0.1:9093",
            "listener.security.protocol.map": "CLIENTS:SASL_SSL,INTERNAL:SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": "INTERNAL",
            "ssl.keystore.location": stored(directory / "node.pem"),
            "ssl.truststore.location": str(trust),
            "ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            **{name.replace("_", "."): value for name, value in changes.items()},
        }
    )


def loaded(given: Settings) -> NodeSecurity:
    loop = asyncio.new_event_loop()
    try:
        security = NodeSecurity(given, real_runtime(loop))
        security.load()
        return security
    finally:
        loop.close()


def test_a_node_does_not_start_with_a_certificate_for_another_host(tmp_path: Path) -> None:
    given = settings(tmp_path)
    stored(tmp_path / "node.pem", "example.org")
    with pytest.raises(ConfigError, match=r"of listener CLIENTS does not name 127\.0\.0\.1"):
        loaded(given)


def test_a_node_does_not_start_with_a_store_that_cannot_be_read(tmp_path: Path) -> None:
    given = settings(tmp_path)
    (tmp_path / "node.pem").write_text("nonsense")
    with pytest.raises(ConfigError, match=r"node\.pem of listener CLIENTS: contains no private"):
        loaded(given)


def bound(path: Path, node: int) -> None:
    """A certificate that names this node."""
    now = datetime.datetime.now(datetime.UTC)
    path.write_bytes(issue_node(new_authority("nodes", now), node, [], now))


def test_a_node_does_not_start_with_the_certificate_of_another(tmp_path: Path) -> None:
    given = settings(tmp_path)
    bound(tmp_path / "node.pem", 1)
    loaded(given)
    bound(tmp_path / "node.pem", 2)
    with pytest.raises(ConfigError, match=r"of listener CLIENTS is that of node 2, and node\.id=1"):
        loaded(given)


def test_a_connection_may_be_the_nodes_of_its_certificate(tmp_path: Path) -> None:
    given = settings(tmp_path)
    unbound = loaded(given).tls("INTERNAL")
    bound(tmp_path / "node.pem", 1)
    security = loaded(given)
    own = security.tls("INTERNAL")
    assert own is not None and unbound is not None
    assert security.nodes_of(Identity(certificate=own.certificate)) == frozenset({1})
    for any_node in (
        None,  # a listener without TLS
        Identity(),
        Identity(is_local=True),
        Identity(certificate=unbound.certificate),
    ):
        assert security.nodes_of(any_node) is None


def test_a_certificate_names_a_principal_where_no_login_does(tmp_path: Path) -> None:
    security = loaded(settings(tmp_path, ssl_principal_mapping_rules="RULE:^CN=(.*?),.*$/$1/"))
    own = security.tls("INTERNAL")
    assert own is not None and own.certificate is not None
    shown = Identity(certificate=own.certificate)
    internal, clients = security.who("INTERNAL"), security.who("CLIENTS")
    assert internal is not None and clients is not None
    assert internal(shown) == user("node")
    assert internal(Identity()) == ANONYMOUS
    assert clients(shown) is None, "the login says who it is"
    for who in (internal, clients):
        assert who(Identity(is_local=True)) == user("node")


def test_a_certificate_that_no_rule_fits_is_nobodys(tmp_path: Path) -> None:
    security = loaded(settings(tmp_path, ssl_principal_mapping_rules="RULE:^OU=(.*)$/$1/"))
    own, who = security.tls("INTERNAL"), security.who("INTERNAL")
    assert own is not None and who is not None
    with pytest.raises(ValueError, match="no rule"):
        who(Identity(certificate=own.certificate))


def test_the_metadata_may_give_a_listener_another_store(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    security = loaded(settings(tmp_path))
    internal, clients = security.tls("INTERNAL"), security.tls("CLIENTS")
    assert internal is not None and clients is not None
    before = internal.certificate, clients.certificate
    name = "listener.name.internal.ssl.keystore.location"
    security.settings_changed({name: stored(tmp_path / "new.pem")})
    assert internal.certificate != before[0]
    assert clients.certificate == before[1]
    after = internal.certificate
    security.settings_changed({name: str(tmp_path / "absent.pem")})
    assert internal.certificate == after
    assert "are not taken listener=INTERNAL reason=" in caplog.text
    # Taken back: the file's setting counts again.
    security.settings_changed({})
    assert internal.certificate == before[0]


def test_an_odd_certificate_leaves_all_as_it_was(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    security = loaded(settings(tmp_path))
    internal, clients = security.tls("INTERNAL"), security.tls("CLIENTS")
    assert internal is not None and clients is not None
    before = clients.certificate
    odd = tmp_path / "odd.pem"
    odd.write_bytes(of_unknown_version(certified().authority("nodes").cert_pem.bytes()))
    security.settings_changed(
        {
            "listener.name.internal.ssl.truststore.location": str(odd),
            "listener.name.clients.ssl.keystore.location": stored(tmp_path / "new.pem"),
        }
    )
    assert "are not taken listener=INTERNAL reason=trust store" in caplog.text
    assert clients.certificate != before, "the other listener has its own"


def test_files_are_watched_for_ever_whatever_an_attempt_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("ottla.broker.cluster.node_security.WATCH_S", 0.001)
    security = loaded(settings(tmp_path))
    looks: dict[str, int] = dict.fromkeys(("CLIENTS", "INTERNAL", "CONTROLLER"), 0)

    async def main() -> None:
        every = asyncio.Event()

        def look(name: str) -> bool:
            looks[name] += 1
            if min(looks.values()) >= 3:
                every.set()
            raise RuntimeError("nobody foresaw this")

        for name in looks:
            monkeypatch.setattr(security.tls(name), "refresh", lambda options, n=name: look(n))
        security.watch()
        try:
            await asyncio.wait_for(every.wait(), 20)
        finally:
            security.stop()

    asyncio.run(main())
    assert "are not taken listener=INTERNAL reason=nobody foresaw this" in caplog.text


def test_a_setting_that_cannot_be_is_told_and_everybody_else_hears_of_the_image(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker, image, delta = Mock(spec=Broker), Mock(), Mock()
    for part in ("cluster", "quotas", "replicas", "runtime", "groups", "transactions", "fetches"):
        setattr(broker, part, Mock())
    broker._limits = Mock()
    broker.is_serving = True
    broker._settings_changed = partial(Broker._settings_changed, broker)
    broker._put_settings_into_effect.side_effect = RuntimeError("nobody foresaw this")
    delta.changed_configs = {(BROKER_RESOURCE, "1")}
    Broker._image_changed(broker, image, delta)
    assert "settings of the metadata are not in effect" in caplog.text
    assert broker.groups.topics_changed.called
    assert broker.transactions.brokers_changed.called
    assert broker.fetches.rights_changed.called


class Fake:
    """A network that connects to nobody."""

    def __init__(self, identity: Identity | None) -> None:
        self.identity = identity
        self.aborted = False
        self.closed = False
        self.peer = self.local = ("127.0.0.1", 1)

    async def connect(
        self, host: str, port: int, receiver: Callable[[object], object], **_: object
    ) -> object:
        receiver(self)
        return self

    def abort(self) -> None:
        self.aborted = True


@pytest.mark.parametrize("is_local", [False, True])
def test_a_dialer_logs_in_unless_the_other_end_is_local(is_local: bool) -> None:
    fake = Fake(Identity(is_local=True) if is_local else None)
    dialer = NodeDialer(fake)  # type: ignore[arg-type]
    seen: list[Channel] = []

    async def log_in(channel: Channel) -> None:
        seen.append(channel)

    dialer.login = log_in
    opened = asyncio.run(Channel.open(dialer, "h", 1, "c"))
    assert seen == ([] if is_local else [opened])


def test_a_login_that_fails_is_a_connection_that_could_not_be_made() -> None:
    fake = Fake(None)
    dialer = NodeDialer(fake)  # type: ignore[arg-type]

    async def log_in(channel: Channel) -> None:
        raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "no")

    dialer.login = log_in
    with pytest.raises(ConnectionError, match="not logged in at h:1"):
        asyncio.run(Channel.open(dialer, "h", 1, "c"))
    assert fake.aborted


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"ssl.keystore.location": "absent.pem"}, "absent.pem"),
        ({"ssl.keystore.type": "PKCS12"}, "PKCS12"),
        ({"ssl.keystore.key": "x"}, "ssl.keystore"),
        (
            {"ssl.truststore.certificates": "x"},
            "is given together with ssl.truststore.certificates",
        ),
    ],
)
def test_stores_that_cannot_be_are_refused_before_they_are_set(
    tmp_path: Path, changes: dict[str, str], why: str
) -> None:
    security = loaded(settings(tmp_path))
    internal = security.tls("INTERNAL")
    assert internal is not None
    before = internal.certificate
    named = {f"listener.name.internal.{name}": value for name, value in changes.items()}
    with pytest.raises((ConfigError, TlsRefused), match=re.escape(why)):
        security.check(named)
    security.check({"listener.name.internal.ssl.keystore.location": stored(tmp_path / "new.pem")})
    security.check({"listener.name.others.ssl.keystore.location": "of another node"})
    assert internal.certificate == before, "a check changes nothing"
