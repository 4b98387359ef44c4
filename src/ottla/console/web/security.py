"""Users, rights, and whether somebody may do something: with the authorizer's own code, from the cluster's ACLs."""

from __future__ import annotations

import ipaddress
from enum import IntEnum
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from ottla.client.security_admin import ScramUser, SecurityAdmin, exactly
from ottla.console.web.answers import (
    AnswerRefused,
    fields_of,
    json_response,
    text_of,
    viewer_of,
)
from ottla.security.acls import Acl, is_host
from ottla.security.operations import (
    CLUSTER_NAME,
    SUPPORTED,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from ottla.security.principals import Principal
from ottla.security.roles import acl_text, explained, principal_named, suggestion
from ottla.security.secrets import Secret
from ottla.wire.errors import ErrorCode, KafkaError

Word = TypeVar("Word", bound=IntEnum)
ANY_ADDRESS = "0.0.0.0"
PASSWORD_LEAST = 12


async def overview(request: Request) -> Response:
    """Users and ACLs, as far as this user may see them; and what the words are."""
    admin = SecurityAdmin(viewer_of(request).client)
    found: dict[str, Any] = {"users": None, "acls": None, "trouble": []}
    try:
        found["users"] = [
            {"name": each.name, "credentials": each.credentials} for each in await admin.users()
        ]
    except KafkaError as error:
        found["trouble"].append(f"Users: {error}.")
    try:
        found["acls"] = [_shown(each) for each in await admin.acls()]
    except KafkaError as error:
        disabled = error.code is ErrorCode.SECURITY_DISABLED
        found["trouble"].append(
            "This cluster has no authorizer: whoever can connect may do everything."
            if disabled
            else f"ACLs: {error}."
        )
    found["words"] = {
        kind.name: [operation.name for operation in operations]
        for kind, operations in SUPPORTED.items()
    }
    return json_response(found)


def _shown(acl: Acl) -> dict[str, str]:
    return {**acl.as_json(), "text": acl_text(acl)}


async def test(request: Request) -> Response:
    """May `who` do `operation` on the `name` of this `type`, from the address `host`; and which rule decides."""
    principal = _principal(text_of(request, "who"))
    operation = _member(AclOperation, text_of(request, "operation"))
    kind = _member(ResourceType, text_of(request, "type", "TOPIC"))
    name = CLUSTER_NAME if kind is ResourceType.CLUSTER else text_of(request, "name")
    host = text_of(request, "host", "") or ANY_ADDRESS
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise AnswerRefused(400, f"{host} is no address.") from None
    authorizer, are_known = await SecurityAdmin(viewer_of(request).client).authorizer()
    answer = explained(authorizer, principal, host, operation, kind, name)
    adds = suggestion(operation, kind, name)
    return json_response(
        {
            "allowed": answer.allowed,
            "because": answer.because,
            "sense": operation in SUPPORTED[kind] or operation is AclOperation.ALL,
            "super_users_known": are_known,
            "command": ["acls", "add", principal.name, *adds.split()]
            if not answer.allowed and answer.because.startswith("nothing")
            else None,
        }
    )


def _principal(text: str) -> Principal:
    try:
        return principal_named(text.strip())
    except ValueError as error:
        raise AnswerRefused(400, f"{error}.") from None


def _member(words: type[Word], text: str) -> Word:
    found = words.__members__.get(text.strip().upper().replace("-", "_"))
    if found is None or found.name in ("UNKNOWN", "ANY", "MATCH"):
        raise AnswerRefused(400, f"{text} is no {words.__name__}.")
    return found


# Changing


async def _acl(request: Request) -> Acl:
    names = (
        "principal",
        "permission",
        "operation",
        "resource_type",
        "pattern_type",
        "name",
        "host",
    )
    given = await fields_of(request, **dict.fromkeys(names, str))
    kind = _member(ResourceType, given["resource_type"])
    if not is_host(given["host"]):
        raise AnswerRefused(400, f"{given['host']} is neither an address nor *.")
    if not given["name"] and kind is not ResourceType.CLUSTER:
        raise AnswerRefused(400, "The name is missing; * means all.")
    return Acl(
        kind,
        _member(PatternType, given["pattern_type"]),
        CLUSTER_NAME if kind is ResourceType.CLUSTER else given["name"],
        str(_principal(given["principal"])),
        given["host"],
        _member(AclOperation, given["operation"]),
        _member(Permission, given["permission"]),
    )


async def add_acl(request: Request) -> Response:
    acl = await _acl(request)
    await SecurityAdmin(viewer_of(request).client).add_acls([acl])
    return json_response({"done": True, "acl": _shown(acl)})


async def remove_acl(request: Request) -> Response:
    acl = await _acl(request)
    gone = await SecurityAdmin(viewer_of(request).client).remove_acls([exactly(acl)])
    if not gone:
        raise AnswerRefused(404, "There is no such ACL any more.")
    return json_response({"done": True, "removed": len(gone)})


async def set_password(request: Request) -> Response:
    """Of a new user, or of one that exists: the cluster gets salted hashes, as from Kafka's own tools."""
    given = await fields_of(request, user=str, password=str)
    if not given["user"] or len(given["password"]) < PASSWORD_LEAST:
        raise AnswerRefused(
            400, f"A user has a name, and a password of {PASSWORD_LEAST} characters at least."
        )
    admin = SecurityAdmin(viewer_of(request).client)
    await admin.set_password(given["user"], Secret(given["password"]))
    return json_response({"done": True})


async def remove_user(request: Request) -> Response:
    given = await fields_of(request, user=str)
    admin = SecurityAdmin(viewer_of(request).client)
    found: list[ScramUser] = [each for each in await admin.users() if each.name == given["user"]]
    if not found:
        raise AnswerRefused(404, f"There is no user {given['user']}.")
    await admin.remove_user(found[0])
    return json_response({"done": True})
