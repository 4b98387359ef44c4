"""SCRAM credentials, which `kafka-configs` asks for beside a user's quotas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from ottla.broker.server.connections import Request
from ottla.broker.server.registration import serves
from ottla.metadata.image import MetadataImage
from ottla.security.needs import DESCRIBE_CLUSTER
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode


class SecurityHandlers:
    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image

    @serves(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
    def describe_scram(self, request: Request) -> None:
        """DescribeUserScramCredentials 0: mechanism and iterations, never the credential. No list of users
        means all of them."""
        if not DESCRIBE_CLUSTER.met(request.rights):
            request.respond(
                {
                    "error_code": DESCRIBE_CLUSTER.denied,
                    "error_message": "Cluster authorization failed.",
                    "results": (),
                }
            )
            return
        known: dict[str, list[dict[str, int]]] = {}
        for (user, mechanism), credential in sorted(self._image().scram.items()):
            info = {"mechanism": mechanism, "iterations": credential.iterations}
            known.setdefault(user, []).append(info)
        named = Counter(user.name for user in request.message().users or ())
        results = []
        for user in named or known:
            error, message = ErrorCode.NONE, None
            if named[user] > 1:
                error = ErrorCode.DUPLICATE_RESOURCE
                message = f"Cannot describe SCRAM credentials for the same user twice: {user}"
            elif user not in known:
                error = ErrorCode.RESOURCE_NOT_FOUND
                message = f"Attempt to describe a user credential that does not exist: {user}"
            results.append(
                {
                    "user": user,
                    "error_code": error,
                    "error_message": message,
                    "credential_infos": () if error else known[user],
                }
            )
        request.respond({"error_code": ErrorCode.NONE, "error_message": None, "results": results})


class SaslHandlers:
    """Logins on an open connection. Before it is open, its gate answers them (`broker.server.gate`)."""

    @serves(ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
    def login_again(self, request: Request) -> None:
        """SaslHandshake 0-1, SaslAuthenticate 0-2: refused, unless the session has an end and is to be renewed."""
        gate = request.connection.sasl
        if gate is None:  # a listener without SASL
            request.respond({"error_code": ErrorCode.ILLEGAL_SASL_STATE})
        else:
            gate.again(request)
