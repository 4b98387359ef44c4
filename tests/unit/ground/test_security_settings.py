"""Which security a listener has, by settings that are bare or for one listener, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.config import ConfigError, Settings
from ottla.config.checking import check_file
from ottla.config.dynamic import NotDynamic, validate_broker_config

PLANTED = "correct-horse"

SECURE = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.quorum.voters": "1@localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "CLIENTS://:9092,INTERNAL://:9094,CONTROLLER://:9093",
    "listener.security.protocol.map": "CLIENTS:SASL_SSL,INTERNAL:SSL,CONTROLLER:SSL",
    "inter.broker.listener.name": "INTERNAL",
    "ssl.keystore.location": "/node.pem",
    "ssl.truststore.location": "/nodes-ca.pem",
    "ssl.client.auth": "required",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
}

OAUTH: dict[str, str | None] = {
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.oauthbearer.jwks.endpoint.url": "https://issuer.example/keys",
    "sasl.oauthbearer.expected.issuer": "https://issuer.example",
    "sasl.oauthbearer.expected.audience": "kafka",
}


def settings_with(changes: dict[str, str | None]) -> Settings:
    values = {**SECURE, **changes}
    return Settings.of({name: value for name, value in values.items() if value is not None})


def login(password: str, module: str = "scram.ScramLoginModule") -> str:
    return (
        f'org.apache.kafka.common.security.{module} required username="node" password="{password}";'
    )


def plain(changes: dict[str, str]) -> Settings:
    return settings_with(
        {
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "listener.security.protocol.map": None,
            "inter.broker.listener.name": None,
            **dict.fromkeys(name for name in SECURE if name.startswith(("ssl.", "sasl."))),
            **changes,
        }
    )


def test_each_listener_has_the_protocol_of_the_map() -> None:
    found = settings_with({}).security
    assert {name: (each.protocol, each.number) for name, each in found.items()} == {
        "CLIENTS": ("SASL_SSL", 3),
        "INTERNAL": ("SSL", 1),
        "CONTROLLER": ("SSL", 1),
    }
    assert found["CLIENTS"].tls is not None and found["CLIENTS"].sasl is not None
    assert found["INTERNAL"].tls is not None and found["INTERNAL"].sasl is None


def test_without_a_map_the_protocols_name_themselves() -> None:
    found = settings_with(
        {
            "listeners": "SSL://:9092,CONTROLLER://:9093",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": None,
            "security.inter.broker.protocol": "SSL",
        }
    )
    assert found.security["SSL"].protocol == "SSL"
    assert found.inter_broker_listener_name == "SSL"


def test_without_security_every_listener_is_plain() -> None:
    found = plain({}).security
    assert {each.protocol for each in found.values()} == {"PLAINTEXT"}
    assert all(each.tls is None and each.sasl is None and each.is_plain for each in found.values())


def test_the_longest_form_of_a_setting_wins() -> None:
    found = settings_with(
        {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "connections.max.reauth.ms": "1000",
            "listener.name.clients.connections.max.reauth.ms": "2000",
            "listener.name.clients.scram-sha-512.connections.max.reauth.ms": "3000",
            "listener.name.internal.ssl.keystore.location": "/internal.pem",
        }
    ).security
    sasl, internal, controller = (
        found["CLIENTS"].sasl,
        found["INTERNAL"].tls,
        found["CONTROLLER"].tls,
    )
    assert sasl is not None and internal is not None and controller is not None
    assert sasl.reauth_ms == {"PLAIN": 2000, "SCRAM-SHA-256": 2000, "SCRAM-SHA-512": 3000}
    assert internal.key_store is not None and controller.key_store is not None
    assert internal.key_store.location == "/internal.pem"
    assert controller.key_store.location == "/node.pem"


def test_issuer_audience_and_keys_are_needed_unless_the_operator_says_otherwise() -> None:
    found = settings_with(OAUTH).security["CLIENTS"].sasl
    assert found is not None and found.oauth is not None
    assert found.oauth.expected_audience == ("kafka",)
    settings_with(
        OAUTH
        | {
            "sasl.oauthbearer.expected.issuer": None,
            "sasl.oauthbearer.allow.unverified.issuer": "true",
            "sasl.oauthbearer.expected.audience": None,
            "listener.name.clients.oauthbearer.sasl.oauthbearer.allow.unverified.audience": "true",
        }
    )
    unsecured: dict[str, str | None] = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "ottla.allow.unsecured.jwt": "true",
    }
    assert settings_with(unsecured)
    without = settings_with({}).security["CLIENTS"].sasl
    assert without is not None and without.oauth is None


def test_a_listener_may_have_dots_in_its_name() -> None:
    found = settings_with(
        {
            "listeners": "A://:9092,A.B://:9094,CONTROLLER://:9093",
            "listener.security.protocol.map": "A:SSL,A.B:SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": "A",
            "listener.name.a.b.ssl.client.auth": "none",
        }
    ).security
    assert [found[name].tls.client_auth for name in ("A", "A.B")] == ["required", "none"]  # type: ignore[union-attr]


def test_the_bare_client_auth_is_not_for_sasl() -> None:
    found = settings_with({}).security["CLIENTS"].tls
    assert found is not None and found.client_auth == "none"
    found = settings_with({"listener.name.clients.ssl.client.auth": "requested"}).security["CLIENTS"].tls  # fmt: skip
    assert found is not None and found.client_auth == "requested"


def test_a_broker_knows_how_to_reach_controllers_that_are_elsewhere() -> None:
    found = settings_with(
        {
            "process.roles": "broker",
            "node.id": "7",
            "listeners": "CLIENTS://:9092,INTERNAL://:9094",
        }
    )
    assert found.security["CONTROLLER"].protocol == "SSL"


def test_cipher_suites_decide_which_versions_are_left() -> None:
    found = settings_with({"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"})
    tls = found.security["INTERNAL"].tls
    assert tls is not None
    assert (tls.protocols, tls.ciphers) == (("TLSv1.2",), ("ECDHE-ECDSA-AES128-GCM-SHA256",))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ssl.keystore.type": "JKS"}, "keytool -importkeystore"),
        ({"listener.name.internal.ssl.truststore.type": "JKS"}, "keytool -importkeystore"),
        ({"ssl.keystore.password": PLANTED}, "is given for a PEM store, which has none"),
        ({"ssl.truststore.password": PLANTED}, "is given for a PEM store, which has none"),
        ({"ssl.keystore.key": PLANTED}, "is given together with a key or certificates as text"),
        ({"ssl.keystore.location": None, "ssl.keystore.key": PLANTED}, "one is missing"),
        ({"ssl.keystore.location": None}, "CLIENTS speaks SASL_SSL and needs a certificate"),
        ({"ssl.truststore.location": None}, "ssl.truststore.location: is missing"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "older ones are not safe"),
        ({"ssl.cipher.suites": "TLS_RSA_WITH_AES_128_CBC_SHA"}, "is not one of TLS_AES_128"),
        ({"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "OpenSSL turns on and off together"),
        ({"ssl.client.auth": "maybe"}, "'maybe' is not one of none, requested, required"),
        ({"ssl.principal.mapping.rules": "RULE:x"}, "'RULE:x' is neither DEFAULT nor RULE:"),
        ({"ssl.endpoint.identification.algorithm": "ldaps"}, "neither https nor empty"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "GSSAPI (Kerberos) is not served"),
        (OAUTH | {"sasl.oauthbearer.jwks.endpoint.url": None}, "jwks.endpoint.url: is missing"),
        (OAUTH | {"sasl.oauthbearer.expected.issuer": None}, "expected.issuer: is missing"),
        (OAUTH | {"sasl.oauthbearer.expected.audience": None}, "expected.audience: is missing"),
        (
            OAUTH | {"sasl.oauthbearer.jwks.endpoint.url": "http://issuer.example/keys"},
            "is neither https://… nor file:///path",
        ),
        (
            OAUTH | {"listener.name.clients.scram-sha-512.sasl.oauthbearer.expected.issuer": "x"},
            "is not a setting of one mechanism",
        ),
        (
            OAUTH
            | {
                "inter.broker.listener.name": "CLIENTS",
                "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            },
            "nodes cannot log in by OAUTHBEARER",
        ),
        (
            {"sasl.oauthbearer.token.endpoint.url": "https://x"},
            "nodes do not log in by OAUTHBEARER",
        ),
        ({"delegation.token.master.key": "x"}, "delegation.token.secret.key now"),
        ({"sasl.enabled.mechanisms": "SCRAM"}, "'SCRAM' is not one of PLAIN"),
        ({"sasl.enabled.mechanisms": None}, "CLIENTS speaks SASL_SSL; for example SCRAM-SHA-512"),
        (
            {"listener.security.protocol.map": "CLIENTS:SASL_SSL,INTERNAL:SSL"},
            "does not say what CONTROLLER speaks",
        ),
        (
            {"security.inter.broker.protocol": "SSL"},
            "is given together with inter.broker.listener.name",
        ),
        ({"inter.broker.listener.name": "CONTROLLER"}, "is not one of the broker's listeners"),
        (
            {
                "listener.security.protocol.map": "CLIENTS:SASL_SSL,INTERNAL:SSL,CONTROLLER:SASL_SSL",
                "sasl.mechanism.controller.protocol": "SCRAM-SHA-512",
            },
            "SCRAM cannot be used at the controllers' listener CONTROLLER",
        ),
        (
            {"listener.security.protocol.map": "CLIENTS:SASL_SSL,INTERNAL:SASL_SSL,CONTROLLER:SSL"},
            "sasl.mechanism.inter.broker.protocol: is missing",
        ),
        (
            {
                "listener.security.protocol.map": "CLIENTS:SASL_SSL,INTERNAL:SASL_SSL,CONTROLLER:SSL",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
            },
            "PLAIN is not enabled at listener INTERNAL",
        ),
        (
            {
                "listener.security.protocol.map": "CLIENTS:SASL_SSL,INTERNAL:SASL_SSL,CONTROLLER:SSL",
                "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            },
            "give listener.name.internal.scram-sha-512.sasl.jaas.config",
        ),
        (
            {
                "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,INTERNAL:SSL,CONTROLLER:SSL",
                "sasl.enabled.mechanisms": "PLAIN",
            },
            "PLAIN would send passwords without encryption at listener CLIENTS",
        ),
        ({"listener.name.elsewhere.ssl.client.auth": "none"}, "no listener has this name"),
        ({"listener.name.clients.log.dirs": "/x"}, "log.dirs is not a setting of one listener"),
        (
            {"listener.name.clients.plain.ssl.client.auth": "none"},
            "ssl.client.auth is not a setting of one mechanism",
        ),
        (
            {"connection.failed.authentication.delay.ms": "700000"},
            "700000 is not below connections.max.idle.ms",
        ),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(
    change: dict[str, str | None], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        settings_with(change)
    assert message in str(caught.value)
    assert PLANTED not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (PLANTED, "none of Kafka's"),
        (
            f'com.sun.security.auth.module.JndiLoginModule required user.provider.url="{PLANTED}";',
            "none of",
        ),
        (login(PLANTED).replace("scram", "ldap"), "none of Kafka's"),
        (login(PLANTED, "plain.PlainLoginModule"), "another login module than"),
        (login(PLANTED)[:-1], "semicolon"),
    ],
)
def test_a_jaas_text_that_is_none_of_ours_is_refused_without_showing_it(
    text: str, why: str
) -> None:
    for name in ("sasl.jaas.config", "listener.name.clients.scram-sha-512.sasl.jaas.config"):
        with pytest.raises(ConfigError, match=why) as caught:
            settings_with({name: text})
        assert PLANTED not in str(caught.value)


def test_a_node_that_logs_in_needs_a_name_and_a_password() -> None:
    changes = {
        "listener.security.protocol.map": "CLIENTS:SASL_SSL,INTERNAL:SASL_SSL,CONTROLLER:SSL",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    }
    settings_with({**changes, "sasl.jaas.config": login(PLANTED)})
    nameless = login(PLANTED).replace('username="node" ', "")
    with pytest.raises(ConfigError, match="no username"):
        settings_with({**changes, "sasl.jaas.config": nameless})


def test_secrets_are_not_shown() -> None:
    settings = settings_with(
        {
            "ssl.key.password": PLANTED,
            "listener.name.clients.scram-sha-512.sasl.jaas.config": login(PLANTED),
            "ottla.decoy.secret": PLANTED,
        }
    )
    assert settings.ssl_key_password is not None
    assert settings.ssl_key_password.reveal() == PLANTED
    sasl = settings.security["CLIENTS"].sasl
    assert sasl is not None and (jaas := sasl.jaas["SCRAM-SHA-512"]) is not None
    assert jaas.reveal() == login(PLANTED)
    for shown in (settings.texts(), settings.given, settings.security, settings.per_listener):
        assert PLANTED not in repr(shown)
    assert settings.texts()["ssl.key.password"] == "[hidden]"


def test_a_file_with_a_secret_that_is_no_setting_does_not_show_it(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"ssl.key.pasword {PLANTED}\nlistener.name.x.ssl.key.password {PLANTED}\n")
    report = check_file(str(file))
    assert len(report.wrong) == 2
    assert PLANTED not in str(report)


def test_javas_choices_have_no_effect() -> None:
    settings = settings_with(
        {"ssl.protocol": "TLSv1.3", "listener.name.clients.ssl.provider": "SunJSSE"}
    )
    assert settings.ignored == ("ssl.protocol", "listener.name.clients.ssl.provider")


def test_only_stores_of_one_listener_change_at_run_time() -> None:
    validate_broker_config({"listener.name.clients.ssl.keystore.location": "/new.pem"})
    for name in ("ssl.keystore.location", "listener.name.clients.ssl.client.auth"):
        with pytest.raises(NotDynamic):
            validate_broker_config({name: "none"})
    with pytest.raises(ConfigError, match="keytool"):
        validate_broker_config({"listener.name.clients.ssl.keystore.type": "JKS"})


def test_settings_change_as_the_metadata_says() -> None:
    before = settings_with({})
    after = before.changed({"listener.name.internal.ssl.keystore.location": "/new.pem"})
    stores = [each.security["INTERNAL"].tls.key_store.location for each in (before, after)]  # type: ignore[union-attr]
    assert stores == ["/node.pem", "/new.pem"]
    with pytest.raises(ConfigError, match="which has none"):
        before.changed({"listener.name.internal.ssl.keystore.password": PLANTED})
