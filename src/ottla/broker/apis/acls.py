"""Which ACLs there are. Whoever is asked answers, broker or controller, from the ACLs that it decides by itself.

ACLs are created and deleted by the active controller (`controller.acls`).
"""

from __future__ import annotations

from typing import Any

from ottla.broker.cluster.controller_commands import acl_filter
from ottla.broker.server.connections import Request
from ottla.broker.server.registration import serves
from ottla.security.acls import Acl
from ottla.security.needs import DESCRIBE_CLUSTER
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode


class AclHandlers:
    @serves(ApiKey.DESCRIBE_ACLS)
    def describe_acls(self, request: Request) -> None:
        """DescribeAcls 1-3."""
        authorizer = request.connection.server.authorizer
        if not DESCRIBE_CLUSTER.met(request.rights):
            _refuse(request, DESCRIBE_CLUSTER.denied, "Cluster authorization failed.")
            return
        if authorizer is None:
            _refuse(request, ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
            return
        asked = acl_filter(request.message())
        if asked.is_unknown:
            _refuse(
                request,
                ErrorCode.INVALID_REQUEST,
                "The filter has a type, an operation or a permission that is unknown here.",
            )
            return
        resources: dict[tuple[Any, ...], list[Acl]] = {}
        for acl in authorizer.acls:
            if asked.takes(acl):
                pattern = acl.resource_type, acl.pattern_type, acl.resource_name
                resources.setdefault(pattern, []).append(acl)
        request.respond(
            {
                "error_code": ErrorCode.NONE,
                "error_message": None,
                "resources": [
                    {
                        "resource_type": kind,
                        "pattern_type": pattern,
                        "resource_name": name,
                        "acls": [_entry(acl) for acl in acls],
                    }
                    for (kind, pattern, name), acls in resources.items()
                ],
            }
        )


def _refuse(request: Request, error: ErrorCode, why: str) -> None:
    request.respond({"error_code": error, "error_message": why, "resources": ()})


def _entry(acl: Acl) -> dict[str, Any]:
    return {
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permission_type": acl.permission,
    }
