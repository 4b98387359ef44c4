"""Delegation tokens at the node that a client asks: who may ask at all, and which tokens there are.

The active controller creates, renews and removes them (`controller.tokens`).
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.cluster.controller_commands import refusal
from ottla.broker.cluster.token_requests import Caller, caller_of, check_token_request
from ottla.broker.server.connections import Handler, Request
from ottla.broker.server.registration import serves
from ottla.config.node_settings import Settings
from ottla.metadata.image import MetadataImage
from ottla.security.operations import AclOperation, ResourceType
from ottla.security.principals import Principal, parse_principal
from ottla.security.tokens import Token, TokenKeys, described, may_renew
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError


class DescribeTokensHandler:
    def __init__(self, settings: Settings, image: Callable[[], MetadataImage]) -> None:
        self._settings = settings
        self._image = image
        secret = settings.delegation_token_secret_key
        previous = settings.delegation_token_secret_key_previous
        self._keys = None if secret is None else TokenKeys(secret, previous)

    @serves(ApiKey.DESCRIBE_DELEGATION_TOKEN)
    def __call__(self, request: Request) -> None:
        """DescribeDelegationToken 1-3. A null list of owners means all tokens, an empty one none."""
        message, caller = request.message(), caller_of(request, self._settings)
        try:
            check_token_request(ApiKey.DESCRIBE_DELEGATION_TOKEN, message, caller)
            if self._keys is None:
                raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        except KafkaError as error:
            request.respond({"error_code": error.code, "tokens": ()})
            return
        owners = None
        if message.owners is not None:
            owners = {
                str(Principal(each.principal_type, each.principal_name)) for each in message.owners
            }
        tokens = [
            {**described(token, self._keys), "renewers": _renewers(token)}
            for _, token in sorted(self._image().delegation_tokens.items())
            if _is_asked_for(token, owners) and _may_see(token, caller, by_name=owners is not None)
        ]
        request.respond({"error_code": ErrorCode.NONE, "tokens": tokens})


class TokenHandlers:
    """On brokers, which pass these requests on."""

    def __init__(self, settings: Settings, forward: Handler) -> None:
        self._settings = settings
        self._forward = forward

    @serves(
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
    )
    def pass_on(self, request: Request) -> None:
        """CreateDelegationToken 1-3, RenewDelegationToken 1-2, ExpireDelegationToken 1-2: the controller decides, if the client
        may ask. It cannot see what kind of connection the client has."""
        key, message = ApiKey(request.header.api_key), request.message()
        try:
            check_token_request(key, message, caller_of(request, self._settings))
        except KafkaError as error:
            request.respond(refusal(key, message, error))
        else:
            self._forward(request)


def _is_asked_for(token: Token, owners: set[str] | None) -> bool:
    """A set, because both tokens and owners may be many."""
    return owners is None or not owners.isdisjoint((token.owner, *token.renewers))


def _may_see(token: Token, caller: Caller, *, by_name: bool) -> bool:
    """Who lists all tokens asks for none of them by its name. The audit is not told of each that is left out: one list would take
    the place of all denials that it is told of."""
    rights = caller.rights
    if rights is None or may_renew(token, caller.principal):
        return True
    ask = rights.may if by_name else rights.sees
    return rights.sees(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id) or ask(
        AclOperation.DESCRIBE_TOKENS, ResourceType.USER, token.owner
    )


def _renewers(token: Token) -> list[dict[str, str]]:
    principals = [parse_principal(renewer) for renewer in token.renewers]
    return [{"principal_type": each.type, "principal_name": each.name} for each in principals]
