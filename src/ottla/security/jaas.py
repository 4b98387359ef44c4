"""The text of `sasl.jaas.config`: whose password is used, and who may log in by PLAIN.

In Java such a text names a class, which is then loaded; some classes gave an attacker the machine (CVE-2023-25194). Here
nothing is loaded. The names of Kafka's own login modules are words that we know, and all others are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ottla.security.secrets import Secret

PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
KERBEROS: Final = "com.sun.security.auth.module.Krb5LoginModule"

_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_ACCOUNT: Final = "user_"
_TOKEN: Final = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/
    | (?P<word>[\w.$\-]+)
    | "(?P<double>(?:[^"\\\n]|\\.)*)"
    | '(?P<single>(?:[^'\\\n]|\\.)*)'
    | (?P<sign>[=;])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_NAMED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class JaasError(ValueError):
    """What is wrong with the text. It never has a value of it, since that may be a password."""


@dataclass(frozen=True)
class LoginModule:
    name: str
    """Kafka's class."""
    username: str | None = None
    password: Secret | None = None
    accounts: Mapping[str, Secret] = field(default_factory=dict)
    """`user_NAME="password"`: who may log in by PLAIN."""
    by_token: bool = False
    """`tokenauth="true"`: the user is the id of a delegation token."""
    options: Mapping[str, Secret] = field(default_factory=dict)
    """The others, which OAuth has."""


def parse(text: str) -> LoginModule:
    """`org.apache.kafka….ScramLoginModule required username="alice" password="…";`"""
    tokens = _tokens(text)
    if not tokens:
        raise JaasError("names no login module")
    name, rest = tokens[0].text, tokens[1:]
    if name == KERBEROS:
        raise JaasError("Kerberos is not supported; use SCRAM, PLAIN or mutual TLS")
    if name not in (PLAIN, SCRAM, OAUTHBEARER):
        known = ", ".join(each.rpartition(".")[2] for each in (PLAIN, SCRAM, OAUTHBEARER))
        raise JaasError(f"begins with a login module that is none of Kafka's ({known})")
    if not rest or rest[0].text.lower() not in _FLAGS:
        raise JaasError("has no control flag after the login module; write 'required'")
    options = _options(rest[1:])
    accounts = {
        key.removeprefix(_ACCOUNT): options.pop(key)
        for key in list(options)
        if key.startswith(_ACCOUNT) and key != _ACCOUNT
    }
    username = options.pop("username", None)
    by_token = options.pop("tokenauth", None)
    return LoginModule(
        name,
        None if username is None else username.reveal(),
        options.pop("password", None),
        accounts,
        by_token is not None and by_token.reveal().lower() == "true",
        options,
    )


class _Token(NamedTuple):
    kind: str
    """word, quoted or sign."""
    text: str


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise JaasError(
                f"cannot be read at character {position + 1}; values with other than letters and"
                ' digits are quoted: password="…"'
            )
        position = found.end()
        kind = found.lastgroup
        if kind in ("word", "sign"):
            tokens.append(_Token(kind, found[kind]))
        elif kind is not None:
            tokens.append(_Token("quoted", _ESCAPE.sub(_unescaped, found[kind])))
    return tokens


def _unescaped(found: re.Match[str]) -> str:
    said = found[1]
    if said[0] in "01234567":
        return chr(int(said, 8))
    return _NAMED.get(said, said)


def _options(tokens: list[_Token]) -> dict[str, Secret]:
    options: dict[str, Secret] = {}
    while tokens and tokens[0] != _END:
        key, equals, value = (*tokens[:3], _END, _END)[:3]
        tokens = tokens[3:]
        if key.kind == "sign" or equals != _EQUALS or value.kind == "sign":
            raise JaasError(f"has no value for '{key.text}'")
        if key.text in options:
            raise JaasError(f"has '{key.text}' twice")
        options[key.text] = Secret(value.text)
    if not tokens:
        raise JaasError("does not end with a semicolon")
    if len(tokens) > 1:
        raise JaasError("has more than one login module")
    return options


_END: Final = _Token("sign", ";")
_EQUALS: Final = _Token("sign", "=")
