"""Who may ask for delegation tokens. A broker looks at it before it forwards a request, and the controller looks again."""

from __future__ import annotations

from typing import Any, NamedTuple

from ottla.broker.server.connections import Request
from ottla.config.node_settings import Settings
from ottla.security.needs import CREATE_TOKENS_OF_USER
from ottla.security.principals import USER, Principal
from ottla.security.rights import Rights
from ottla.security.tokens import may_ask_about_tokens
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages import field


class Caller(NamedTuple):
    """Who asks for something that depends on who asks."""

    principal: Principal
    rights: Rights | None
    protocol: str | None
    """Of the connection: `SASL_SSL` for example. None in an Envelope: the broker has looked at it."""


def caller_of(request: Request, settings: Settings) -> Caller:
    connection = request.connection
    protocol = settings.security[connection.listener].protocol
    return Caller(connection.principal, request.rights, protocol)


def check_token_request(key: ApiKey, message: Any, caller: Caller) -> None:
    """KafkaError says why not. Whose token it is, and whether there is such a token, only the controller knows."""
    if not may_ask_about_tokens(caller.principal, caller.protocol):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    if key is not ApiKey.CREATE_DELEGATION_TOKEN:
        return
    owner = owner_of(message, caller.principal)
    if owner != caller.principal and not CREATE_TOKENS_OF_USER.met(caller.rights, str(owner)):
        raise KafkaError(CREATE_TOKENS_OF_USER.denied)
    if any(renewer.principal_type != USER for renewer in message.renewers):
        raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)


def owner_of(message: Any, asking: Principal) -> Principal:
    """CreateDelegationToken names an owner from version 3 on."""
    name = field(message, "owner_principal_name", None)
    if not name:
        return Principal(asking.type, asking.name)
    return Principal(message.owner_principal_type or "", name)
