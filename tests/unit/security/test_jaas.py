"""`sasl.jaas.config`: Kafka's texts are read, and no class is ever loaded."""

from __future__ import annotations

import sys
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.security import jaas
from ottla.security.jaas import JaasError

PASSWORD = "s3cret-that-must-not-be-shown"


def test_a_clients_text() -> None:
    module = jaas.parse(
        f'{jaas.SCRAM} required\n  username="alice" // who\n  password="{PASSWORD}" /* how */;'
    )
    assert (module.name, module.username, module.by_token) == (jaas.SCRAM, "alice", False)
    assert module.password is not None
    assert module.password.reveal() == PASSWORD
    assert PASSWORD not in repr(module)


def test_a_brokers_text_names_its_accounts() -> None:
    module = jaas.parse(
        f'{jaas.PLAIN} required username="n" password="p" user_alice="a=b;c" user_bob=\'b\' user_x=y;'
    )
    assert {name: each.reveal() for name, each in module.accounts.items()} == {
        "alice": "a=b;c",
        "bob": "b",
        "x": "y",
    }
    assert not module.options


def test_a_token_is_marked() -> None:
    assert jaas.parse(f'{jaas.SCRAM} REQUIRED username="i" password="h" tokenauth="true";').by_token


def test_options_of_oauth_are_kept() -> None:
    module = jaas.parse(f'{jaas.OAUTHBEARER} required clientId="me" scope="all";')
    assert {name: each.reveal() for name, each in module.options.items()} == {
        "clientId": "me",
        "scope": "all",
    }


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (r"a\"b", 'a"b'),
        (r"a\\b", "a\\b"),
        (r"a\tb", "a\tb"),
        (r"\101", "A"),
        ("ä€", "ä€"),
        ("", ""),
    ],
)
def test_escapes_are_those_of_java(said: str, meant: str) -> None:
    password = jaas.parse(f'{jaas.PLAIN} required password="{said}";').password
    assert password is not None
    assert password.reveal() == meant


@pytest.mark.parametrize(
    "name",
    [
        "com.sun.security.auth.module.JndiLoginModule",  # CVE-2023-25194
        "com.sun.security.auth.module.LdapLoginModule",  # CVE-2025-27818
        "com.sun.security.auth.module.Krb5LoginModule",
        "org.apache.kafka.connect.rest.basic.auth.extension.PropertyFileLoginModule",
        "os.system",
        "antigravity",
    ],
)
def test_any_other_class_is_refused_and_not_loaded(name: str) -> None:
    before = set(sys.modules)
    with pytest.raises(JaasError):
        jaas.parse(f'{name} required user.provider.url="ldap://evil/x";')
    assert set(sys.modules) == before


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        jaas.PLAIN,
        f"{jaas.PLAIN};",
        f'{jaas.PLAIN} username="a";',
        f'{jaas.PLAIN} required username="a"',
        f"{jaas.PLAIN} required username;",
        f"{jaas.PLAIN} required username=;",
        f'{jaas.PLAIN} required ="a";',
        f'{jaas.PLAIN} required username="{PASSWORD}',
        f"{jaas.PLAIN} required password={PASSWORD}!;",
        f'{jaas.PLAIN} required password="{PASSWORD}" password="{PASSWORD}";',
        f'{jaas.PLAIN} required; {jaas.SCRAM} required username="{PASSWORD}";',
    ],
)
def test_a_broken_text_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(JaasError) as caught:
        jaas.parse(text)
    assert PASSWORD not in str(caught.value)


@given(st.text(alphabet=" \n=;\"'\\/*x9_" + "required", max_size=60))
def test_arbitrary_options_raise_nothing_else(rest: str) -> None:
    with suppress(JaasError):
        jaas.parse(f"{jaas.SCRAM} required {rest}")
