"""Requests by which nodes say who they are are held against the certificate of their connection.

`security.node_claims` decides. The handlers of these requests are wrapped once, when a listener of a node with TLS begins to serve;
no other request, and no node without TLS, passes here.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from ottla.broker.server.connections import Handler, Request, ServerConnection
from ottla.security.node_claims import CLAIMS, FalseClaim, false_claim
from ottla.wire import fetch, schema
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.errors import ErrorCode

logger = logging.getLogger(__name__)

FETCH_ERRORS_FROM: Final = 7
"""Before, the answer to a Fetch has no error of the whole."""
WHY: Final = "the certificate of this connection is of another node"


def holding_claims(handlers: Mapping[int, Handler]) -> dict[int, Handler]:
    """The same handlers; a false claim does not reach them."""
    told: dict[ServerConnection, None] = {}
    return {
        int(key): _held(handler, told) if key in CLAIMS else handler
        for key, handler in handlers.items()
    }


def _held(handler: Handler, told: dict[ServerConnection, None]) -> Handler:
    def handle(request: Request) -> None:
        nodes = request.connection.certified_nodes
        if nodes is not None:
            found = false_claim(nodes, request.header, request.frame)
            if found is not None:
                if request.connection not in told:  # once is enough: a node tries again and again
                    _tell(request, found, nodes, told)
                _refuse(request, found.error)
                return
        handler(request)

    return handle


def _tell(
    request: Request,
    found: FalseClaim,
    nodes: frozenset[int],
    told: dict[ServerConnection, None],
) -> None:
    connection = request.connection
    told[connection] = None
    connection.on_close.append(lambda: told.pop(connection, None))
    logger.warning(
        "refusing request, its certificate is of another node peer=%s listener=%s api=%s claimed=%d certificate_of=%s",
        connection.peer,
        connection.listener,
        APIS[ApiKey(request.header.api_key)].name,
        found.claimed,
        ",".join(map(str, sorted(nodes))) or "nobody",
    )


def _refuse(request: Request, error: ErrorCode) -> None:
    key = request.header.api_key
    if key != ApiKey.FETCH:
        fields: dict[str, object] = {"error_code": error}
        if "error_message" in schema.names_of_all_versions(key, "response")[()]:
            fields["error_message"] = WHY
        request.respond(fields)
    elif request.version >= FETCH_ERRORS_FROM:
        request.respond_chunks(fetch.write_response(request.version, error, 0, []))
    else:
        request.connection.abort()
