"""What is wrong with the security of a cluster: open, expiring, unused, readable by others, contradictory.

Rules without I/O: facts in, findings out. `security_facts` gathers what they look at.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from enum import StrEnum
from typing import Final, NamedTuple

from ottla.security.acls import Acl, is_host
from ottla.security.needs import is_asked_for
from ottla.security.operations import (
    WILDCARD,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from ottla.security.principals import ANONYMOUS, EVERYONE, user
from ottla.security.roles import acl_text, denied_in_vain
from ottla.wire.internal_topics import INTERNAL_TOPICS

RENEW_AT: Final = 1 / 3
"""Of its time a certificate should have left."""
EC_BITS_MIN: Final = 256
RSA_BITS_MIN: Final = 2048
BROAD_PREFIX_MAX: Final = 1
"""A prefix of so many characters fits too many names to be meant for everybody."""
_O: Final = AclOperation
STRONG: Final[Mapping[ResourceType, Collection[AclOperation]]] = {
    ResourceType.CLUSTER: (_O.ALTER, _O.ALTER_CONFIGS, _O.CLUSTER_ACTION, _O.DELETE),
    ResourceType.TOPIC: (_O.WRITE, _O.DELETE, _O.ALTER, _O.ALTER_CONFIGS),
    ResourceType.GROUP: (_O.DELETE, _O.ALTER_CONFIGS),
    ResourceType.TRANSACTIONAL_ID: (_O.WRITE,),
    ResourceType.USER: (_O.CREATE_TOKENS,),
}
"""With these on the cluster, or on all resources of a kind, one can do harm to all others. CREATE_TOKENS of a user is to be this
user. ALL is among them everywhere."""
AGREED: Final = (
    "authorizer.class.name",
    "super.users",
    "allow.everyone.if.no.acl.found",
    "sasl.enabled.mechanisms",
)
"""Settings that all brokers must share: otherwise it depends on the broker who may do what."""


OPEN_CLUSTER: Final = (
    "ottla up --secure beside it, and move the clients; or close this one in place, in the order that docs/SECURITY.md names"
    " (an authorizer alone locks the nodes out: their principals must be super users first)"
)


class Danger(StrEnum):
    red = "red"
    """Somebody can do, or see, what was not meant; or soon nobody can do anything."""
    yellow = "yellow"
    """It does no harm yet, or has no effect."""


PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class SecurityFinding(NamedTuple):
    danger: Danger
    what: str
    mend: str


class CertificateFacts(NamedTuple):
    file: str
    whose: str
    days_left: float
    days_in_all: float
    key: str
    """EC or RSA."""
    bits: int
    names: frozenset[str]
    wanted: frozenset[str] = frozenset()
    """Under which names others connect to who shows it."""
    renew: str = ""
    """The command that makes another."""


class OpenFile(NamedTuple):
    """A file or directory with secrets that others may read or change."""

    path: str
    mode: int


class Succession(NamedTuple):
    """A new CA that takes over from another: both are trusted."""

    whose: str
    """nodes or clients."""
    signs: bool
    """Step 2 of 3 is done: the new one signs."""
    trust: str
    """The file with both."""
    following: str
    """The command of the next step."""


class SecurityFacts(NamedTuple):
    brokers: Mapping[int, Mapping[str, str]] = {}
    """The settings of each."""
    users: Sequence[tuple[str, int]] = ()
    """Name, and the fewest iterations of its SCRAM credentials."""
    acls: Sequence[Acl] = ()
    certificates: Sequence[CertificateFacts] = ()
    open_files: Sequence[OpenFile] = ()
    successions: Sequence[Succession] = ()
    unknown: Mapping[str, str] = {}
    """What could not be asked, and why."""


def security_findings(facts: SecurityFacts) -> list[SecurityFinding]:
    """The dangerous ones first."""
    found = [
        *_authorizer(facts),
        *_listeners(facts),
        *_disagreements(facts),
        *_certificates(facts),
        *_successions(facts),
        *_files(facts),
        *_users(facts),
        *_acls(facts),
    ]
    return sorted(dict.fromkeys(found), key=lambda each: each.danger is Danger.yellow)


def _red(what: str, mend: str) -> SecurityFinding:
    return SecurityFinding(Danger.red, what, mend)


def _yellow(what: str, mend: str) -> SecurityFinding:
    return SecurityFinding(Danger.yellow, what, mend)


def _super_users(settings: Mapping[str, str]) -> list[str]:
    return [each for each in settings.get("super.users", "").split(";") if each]


def _authorizer(facts: SecurityFacts) -> Iterator[SecurityFinding]:
    for settings in facts.brokers.values():
        if not settings.get("authorizer.class.name"):
            yield _red(
                "there is no authorizer: everybody who connects may do everything",
                OPEN_CLUSTER,
            )
            continue
        for who in _super_users(settings):
            if who in (str(ANONYMOUS), str(EVERYONE)):
                yield _red(
                    f"{who} is a super user: ACLs mean nothing for who does not log in",
                    "take it out of super.users",
                )
        if settings.get("allow.everyone.if.no.acl.found") == "true":
            yield _red(
                "what has no ACL is open to everybody (allow.everyone.if.no.acl.found)",
                "set it to false, and give the rights that are missing (ottla acls add)",
            )


def _listeners(facts: SecurityFacts) -> Iterator[SecurityFinding]:
    for settings in facts.brokers.values():
        protocols = dict(
            each.split(":", 1)
            for each in settings.get("listener.security.protocol.map", "").split(",")
            if ":" in each
        )
        inner = {
            settings.get("inter.broker.listener.name"),
            *settings.get("controller.listener.names", "").split(","),
        }
        for listener in filter(None, settings.get("listeners", "").split(",")):
            name, _, address = listener.partition("://")
            # Kafka takes the listeners of controllers for PLAINTEXT where nothing maps them.
            protocol = protocols.get(name, name if name in PROTOCOLS else "PLAINTEXT")
            host = address.rpartition(":")[0].strip("[]")
            if not protocol.endswith("SSL"):
                reach = "every user of this machine" if _is_loopback(host) else "the network"
                make = _yellow if _is_loopback(host) else _red
                yield make(
                    f"listener {listener} has no TLS ({protocol}): {reach} can reach it, and what it says is readable",
                    "SASL_SSL or SSL in listener.security.protocol.map",
                )
            if (
                name in inner
                and protocol == "SSL"
                and _of_listener(settings, name, "ssl.client.auth") != "required"
            ):
                yield _red(
                    f"listener {name} is for nodes, and asks nobody for a certificate",
                    f"listener.name.{name.lower()}.ssl.client.auth=required",
                )
            if "PLAIN" in _of_listener(settings, name, "sasl.enabled.mechanisms").split(",") and protocol == "SASL_PLAINTEXT":  # fmt: skip
                yield _red(
                    f"listener {name} takes passwords by PLAIN without TLS", "SASL_SSL, or SCRAM"
                )
            if "OAUTHBEARER" in _of_listener(settings, name, "sasl.enabled.mechanisms").split(","):
                yield from _oauth(settings, name)
        if settings.get("ssl.endpoint.identification.algorithm", "https") == "":
            yield _yellow(
                "nodes do not compare certificates with addresses: any certificate of the CA is good for any node",
                "ssl.endpoint.identification.algorithm=https",
            )


def _oauth(settings: Mapping[str, str], listener: str) -> Iterator[SecurityFinding]:
    def is_true(name: str) -> bool:
        own = _of_listener(settings, listener, f"oauthbearer.{name}")
        return (own or _of_listener(settings, listener, name)) == "true"

    if is_true("ottla.allow.unsecured.jwt"):
        yield _red(
            f"listener {listener} believes tokens that nobody has signed: everybody can be everybody",
            "ottla.allow.unsecured.jwt=false",
        )
    for what in ("issuer", "audience"):
        if is_true(f"sasl.oauthbearer.allow.unverified.{what}"):
            yield _yellow(
                f"listener {listener} takes tokens of any {what}, such as those for other services",
                f"sasl.oauthbearer.expected.{what}, without allow.unverified.{what}",
            )


def _of_listener(settings: Mapping[str, str], listener: str, name: str) -> str:
    own = settings.get(f"listener.name.{listener.lower()}.{name}")
    return settings.get(name, "") if own is None else own


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _disagreements(facts: SecurityFacts) -> Iterator[SecurityFinding]:
    for name in AGREED:
        said: dict[str, list[int]] = {}
        for broker, settings in facts.brokers.items():
            said.setdefault(settings.get(name, ""), []).append(broker)
        if len(said) > 1:
            sides = "; ".join(
                f"{', '.join(map(str, brokers))}: {value or 'nothing'}" for value, brokers in said.items()
            )  # fmt: skip
            yield _red(f"brokers disagree about {name} ({sides})", "give all nodes the same")


def _certificates(facts: SecurityFacts) -> Iterator[SecurityFinding]:
    for each in facts.certificates:
        left = f"{each.days_left:.0f} days" if each.days_left >= 1 else f"{max(each.days_left, 0) * 24:.0f} hours"  # fmt: skip
        if each.days_left <= 0:
            yield _red(f"the certificate of {each.whose} has expired ({each.file})", each.renew)
        elif each.days_left < each.days_in_all * RENEW_AT:
            yield _yellow(
                f"the certificate of {each.whose} expires in {left} ({each.file})", each.renew
            )
        if each.bits < (EC_BITS_MIN if each.key == "EC" else RSA_BITS_MIN):
            yield _red(
                f"the key of {each.whose} is short ({each.key}, {each.bits} bits)", each.renew
            )
        missing = sorted(each.wanted - each.names)
        if missing:
            yield _red(
                f"the certificate of {each.whose} does not name {', '.join(missing)}, where others connect to it",
                each.renew,
            )


def _successions(facts: SecurityFacts) -> Iterator[SecurityFinding]:
    for whose, signs, trust, following in facts.successions:
        done, next_step = ("2", "3 (forget the old)") if signs else ("1", "2 (the new one signs)")
        clients = f"when all clients run with {trust}, " if whose == "nodes" else ""
        yield _yellow(
            f"two CAs of the {whose} are trusted: step {done} of 3 to a new one is done, step {next_step} is next",
            f"{clients}{following}",
        )


def _files(facts: SecurityFacts) -> Iterator[SecurityFinding]:
    for path, mode in facts.open_files:
        mend = f"chmod {'700' if path.endswith('/') else '600'} {path}"
        yield _red(f"{path} holds secrets, and others may read it (mode {mode:o})", mend)


def _users(facts: SecurityFacts) -> Iterator[SecurityFinding]:
    from ottla.local.certificates import (
        node_principal,
    )  # with a library that nothing else here needs

    super_users = {who for settings in facts.brokers.values() for who in _super_users(settings)}
    are_known = all("super.users" in settings for settings in facts.brokers.values())
    with_acls = {acl.principal for acl in facts.acls}
    for name, iterations in facts.users:
        who = str(user(name))
        if iterations < 4096:
            yield _red(f"the password of {who} is stored with {iterations} iterations", f"ottla users rotate {name}")  # fmt: skip
        if are_known and who not in super_users and who not in with_acls:
            yield _yellow(f"{who} has no ACLs: it may log in, and do nothing of its own", f"ottla acls add {name} …, or ottla users remove {name}")  # fmt: skip
    known = {str(user(name)) for name, _ in facts.users}
    # A node that joined later has its rights by ACLs, and shows its certificate.
    nodes = {node_principal(id) for id in facts.brokers}
    if facts.users and are_known:
        strangers = with_acls - known - super_users - nodes - {str(EVERYONE), str(ANONYMOUS)}
        for who in sorted(strangers):
            yield _yellow(
                f"{who} has ACLs, but no password: nobody uses them, unless by a certificate of that name",
                f"ottla acls remove {who.removeprefix('User:')} --all",
            )


def _too_much(acl: Acl, trusted: Set[str]) -> Iterator[SecurityFinding]:
    text = acl_text(acl)
    everybody, nobody = str(EVERYONE), str(ANONYMOUS)
    if acl.principal in (everybody, nobody) and _is_strong(acl):
        who = "everybody" if acl.principal == everybody else "who does not log in"
        yield _red(f"{who} may: {text}", "give it to those who need it")
    elif acl.principal == nobody:
        yield _yellow(f"it is for who does not log in: {text}", "remove it")
    elif (
        acl.resource_type is ResourceType.CLUSTER
        and acl.operation is AclOperation.CLUSTER_ACTION
        and acl.principal not in trusted
    ):
        yield _yellow(
            f"whoever has it is taken for a node, which reads every topic and speaks for clients: {text}",
            "remove it, unless it is the principal of a node",
        )


def _is_strong(acl: Acl) -> bool:
    """Whether it gives away the cluster, or all of a kind, or a topic of the cluster's own: who deletes or writes
    `__consumer_offsets` or `__ottla_audit` decides what everybody has done."""
    wanted = STRONG.get(acl.resource_type, ())
    if acl.operation is not AclOperation.ALL and acl.operation not in wanted:
        return False
    if acl.resource_type is ResourceType.CLUSTER or acl.resource_name == WILDCARD:
        return True
    if acl.resource_type is ResourceType.TOPIC and any(map(acl.covers, INTERNAL_TOPICS)):
        return True
    return acl.pattern_type is PatternType.PREFIXED and len(acl.resource_name) <= BROAD_PREFIX_MAX


def _acls(facts: SecurityFacts) -> Iterator[SecurityFinding]:
    from ottla.local.certificates import node_principal  # with a library, as above

    trusted = {who for settings in facts.brokers.values() for who in _super_users(settings)}
    trusted |= {node_principal(id) for id in facts.brokers}
    for acl in facts.acls:
        text = acl_text(acl)
        if not is_asked_for(acl.operation, acl.resource_type):
            yield _yellow(f"no request asks for it, so it has no effect: {text}", "remove it")
        if not is_host(acl.host):
            yield _yellow(
                f"Kafka compares single addresses, so it never applies: {text}",
                "one ACL for each address, or *",
            )
        if acl.permission is Permission.ALLOW:
            yield from _too_much(acl, trusted)
    for deny, allow in denied_in_vain(facts.acls):
        yield _yellow(
            f"one contradicts the other, and deny wins: {acl_text(allow)}; {acl_text(deny)}",
            "remove one of them",
        )
