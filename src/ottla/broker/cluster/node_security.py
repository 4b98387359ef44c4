"""The security of one node's listeners: its keys, who its callers are, and how it calls others.

A node without TLS and SASL does not import this module.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from ottla.broker.cluster.dialer import NodeDialer, NodeLogin
from ottla.config.node_settings import Settings
from ottla.config.security_settings import PREFIX, ListenerSecurity, asked_listeners
from ottla.config.values import ConfigError
from ottla.runtime.seams import Identity, Runtime, Tls, TlsRefused
from ottla.runtime.tls_options import TlsOptions
from ottla.security.names import InvalidName, MappingRules, name_of
from ottla.security.node_claims import certified_nodes
from ottla.security.principals import ANONYMOUS, Principal, user
from ottla.wire.channel import Channel

logger = logging.getLogger(__name__)

WATCH_S = 1.0
"""How often the files of stores are looked at: by time and size, which costs next to nothing."""


class NodeSecurity:
    def __init__(self, settings: Settings, runtime: Runtime) -> None:
        self._settings = settings
        self._runtime = runtime
        self._tls: dict[str, Tls] = {}
        self._to_brokers = NodeDialer(runtime.network)
        self._to_controllers = NodeDialer(runtime.network)
        self.to_brokers = replace(runtime, network=self._to_brokers)
        """For whoever opens channels to brokers."""
        self.to_controllers = replace(runtime, network=self._to_controllers)
        self._watch: asyncio.TimerHandle | None = None
        self._changed: dict[str, str] = {}

    # The beginning

    def load(self) -> None:
        """Before the ports are taken: ConfigError says which certificate cannot be used."""
        own = {listener.name: listener for listener in self._settings.advertised_listeners}
        served = {listener.name for listener in self._settings.listeners}
        for name, security in self._settings.security.items():
            if security.tls is None or name not in served | asked_listeners(self._settings):
                continue
            if self._runtime.make_tls is None:
                raise ConfigError(f"listeners: {name} has TLS, and this runtime has none")
            try:
                tls = self._tls[name] = self._runtime.make_tls(security.tls)
            except TlsRefused as error:
                raise ConfigError(str(error)) from error
            if name in served and security.tls.check_host and not tls.names_host(own[name].host):
                raise ConfigError(
                    f"advertised.listeners: the certificate of listener {name} does not name {own[name].host};"
                    " clients would refuse it"
                )
            self._check_node(name, tls)
        self._prepare(self._to_controllers, self._settings.controller_listener_names[0])
        brokers = self._settings.inter_broker_listener_name
        if self._settings.is_broker and brokers is not None:
            self._prepare(self._to_brokers, brokers)
        else:
            # A controller tells the event log what it did. Brokers' listeners are not in its settings.
            self._prepare(self._to_brokers, self._settings.controller_listener_names[0])

    def _check_node(self, listener: str, tls: Tls) -> None:
        nodes = self.nodes_of(Identity(certificate=tls.certificate))
        node = self._settings.node_id
        if nodes is not None and node not in nodes:
            others = ", ".join(map(str, sorted(nodes))) or "nobody"
            raise ConfigError(
                f"ssl.keystore.location: the certificate of listener {listener} is that of node {others}, and node.id={node};"
                " other nodes would refuse this one"
            )

    def _prepare(self, dialer: NodeDialer, listener: str) -> None:
        dialer.tls = self._tls.get(listener)
        dialer.login = self._login(self._settings.security[listener])

    def _login(self, security: ListenerSecurity) -> NodeLogin | None:
        if security.sasl is None or security.sasl.node_mechanism is None:
            return None
        from ottla.security import jaas
        from ottla.security.sasl_client import ClientLogin

        mechanism = security.sasl.node_mechanism
        text = security.sasl.jaas[mechanism]
        assert text is not None, "settings without it are refused"
        try:
            module = jaas.parse(text.reveal())
        except ValueError as error:
            raise ConfigError(f"sasl.jaas.config of listener {security.name}: {error}") from None
        if module.username is None or module.password is None:
            raise ConfigError(
                f"sasl.jaas.config of listener {security.name}: has no username and password, with which this node"
                " logs in at others"
            )
        login = ClientLogin(mechanism, module.username, module.password)
        random = self._runtime.random
        timeout_s = security.authentication_timeout_ms / 1000

        async def log_in(channel: Channel) -> None:
            await channel.log_in(
                lambda: login.begin(f"{random.getrandbits(192):048x}"), timeout_s=timeout_s
            )

        return log_in

    # Listeners

    def tls(self, listener: str) -> Tls | None:
        return self._tls.get(listener)

    def who(self, listener: str) -> Callable[[Identity | None], Principal | None] | None:
        """Says whom a connection belongs to, None if a login will. ValueError: to nobody."""
        security = self._settings.security[listener]
        if security.is_plain:
            return None
        rules = MappingRules(security.mapping_rules)
        nobody = None if security.sasl is not None else ANONYMOUS

        def principal(identity: Identity | None) -> Principal | None:
            if identity is not None and identity.is_local:
                return self._own_principal(listener, rules)
            if identity is None or identity.certificate is None or security.sasl is not None:
                return nobody
            return user(rules.apply(name_of(identity.certificate)))

        return principal

    def nodes_of(self, identity: Identity | None) -> frozenset[int] | None:
        """The nodes that a connection may say to be; None: any. A local process of our own user could read the keys of all nodes
        that run here, so its word is taken."""
        if identity is None or identity.certificate is None:
            return None
        return certified_nodes(identity.certificate)

    def _own_principal(self, listener: str, rules: MappingRules) -> Principal:
        """Who this node is for others at this listener: so is a local process of its own user."""
        security = self._settings.security[listener]
        if security.sasl is not None and security.sasl.node_mechanism is not None:
            from ottla.security import jaas

            text = security.sasl.jaas[security.sasl.node_mechanism]
            assert text is not None, "settings without it are refused"
            return user(jaas.parse(text.reveal()).username or "")
        tls = self._tls.get(listener)
        if tls is None or tls.certificate is None:
            raise InvalidName("this node has no certificate")
        return user(rules.apply(name_of(tls.certificate)))

    # Changes

    def watch(self) -> None:
        try:
            for name, tls in self._tls.items():
                self._refresh(name, tls)
        finally:
            self._watch = asyncio.get_running_loop().call_later(WATCH_S, self.watch)

    def settings_changed(self, configs: Mapping[str, str]) -> None:
        """What the metadata says for this node. What cannot be is told, and leaves everything as it was."""
        before, changed = self._changed, self._of_listeners(configs)
        if changed == before:
            return
        self._changed = changed
        try:
            settings = self._settings.changed(changed)
        except ConfigError as error:
            logger.error("settings of a listener are not taken reason=%s", error)
            return
        for listener in self._concerned(before, changed):
            self._refresh(listener, self._tls[listener], settings.security[listener].tls)

    def check(self, configs: Mapping[str, str]) -> None:
        """As `settings_changed`, but nothing changes: ConfigError or TlsRefused says why these would not be taken."""
        changed = self._of_listeners(configs)
        settings = self._settings.changed(changed)
        for listener in self._concerned(self._changed, changed):
            options = settings.security[listener].tls
            assert options is not None, "the protocol of a listener stays"
            self._tls[listener].check(options)

    def _of_listeners(self, configs: Mapping[str, str]) -> dict[str, str]:
        """What is set for all nodes may be about listeners that only others have."""
        own = tuple(f"{PREFIX}{listener.lower()}." for listener in self._tls)
        return {name: text for name, text in configs.items() if name.startswith(own)}

    def _concerned(self, before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
        """The listeners whose settings differ."""
        differ = {name for name in {*before, *after} if before.get(name) != after.get(name)}
        return [
            listener
            for listener in self._tls
            if any(name.startswith(f"{PREFIX}{listener.lower()}.") for name in differ)
        ]

    def _refresh(self, name: str, tls: Tls, options: TlsOptions | None = None) -> None:
        try:
            if tls.refresh(options):
                logger.info("certificates of a listener changed listener=%s", name)
        except TlsRefused as error:
            logger.error(
                "certificates of a listener are not taken listener=%s reason=%s", name, error
            )
        except (
            Exception
        ) as error:  # the other listeners, and what else an image changes, must go on
            logger.exception(
                "certificates of a listener are not taken listener=%s reason=%s", name, error
            )

    def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
