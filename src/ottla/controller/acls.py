"""ACLs in the metadata: which may be written, which are there already, which a filter removes.

This module only validates and records them. Every node reads them from the image and decides by them (`security.authorizer`).
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any
from uuid import UUID

from ottla.controller.draft import RECORDS_PER_COMMAND_MAX, Draft
from ottla.metadata.records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from ottla.security.acls import Acl, AclFilter, is_host
from ottla.security.operations import (
    CLUSTER_NAME,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from ottla.security.principals import parse_principal
from ottla.wire.errors import ErrorCode, KafkaError

TOLD_MAX = 2 * RECORDS_PER_COMMAND_MAX
"""ACLs in the answer to one deletion. Many filters may take the same ones, and each answers with all that it takes."""


def acl_of(record: AccessControlEntryRecord) -> Acl:
    """Words that this version does not know become UNKNOWN: such an ACL is kept, and never applies."""
    return Acl(
        ResourceType(record.resource_type),
        PatternType(record.pattern_type),
        record.resource_name,
        record.principal,
        record.host,
        AclOperation(record.operation),
        Permission(record.permission_type),
    )


def create(draft: Draft, wanted: Sequence[Acl], random: Random) -> dict[str, Any]:
    """Each ACL succeeds or fails independently. One that is there already is a success."""
    _check_served(draft)
    known = {acl_of(record) for record in draft.image.acls.values()}
    records, results = [], []
    for acl in wanted:
        error, message = ErrorCode.NONE, None
        try:
            _check(acl)
        except KafkaError as failure:
            error, message = failure.code, failure.message
        else:
            if acl not in known:
                known.add(acl)
                records.append(_record(UUID(int=random.getrandbits(128), version=4), acl))
        results.append({"error_code": error, "error_message": message})
    draft.add(records)
    draft.limit()
    return {"results": results}


def delete(draft: Draft, filters: Sequence[AclFilter]) -> dict[str, Any]:
    """All ACLs that a filter takes. What two filters take is told by both, and removed once."""
    _check_served(draft)
    known = {id: acl_of(record) for id, record in draft.image.acls.items()}
    removed: dict[UUID, None] = {}
    told = 0
    results = []
    for each in filters:
        error, message = ErrorCode.NONE, None
        taken: list[UUID] = []
        if each.is_unknown:
            error = ErrorCode.INVALID_REQUEST
            message = "The filter has a type, an operation or a permission that is unknown here."
        else:
            taken = [id for id, acl in known.items() if each.takes(acl)]
        removed.update(dict.fromkeys(taken))
        told += len(taken)
        if told > TOLD_MAX:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"The filters of one request take more than {TOLD_MAX} acls together.",
            )
        matching = [_fields(known[id]) for id in taken]
        results.append({"error_code": error, "error_message": message, "matching_acls": matching})
    if len(removed) > RECORDS_PER_COMMAND_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Cannot remove more than {RECORDS_PER_COMMAND_MAX} acls in a single delete operation.",
        )
    draft.add([RemoveAccessControlEntryRecord(id=id) for id in removed])
    return {"filter_results": results}


def _check_served(draft: Draft) -> None:
    if not draft.config.has_authorizer:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


def _check(acl: Acl) -> None:
    if acl.resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
        raise _invalid(f"Invalid resourceType {acl.resource_type.name}")
    if acl.resource_type is ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.resource_name:
        raise _invalid("Invalid empty resource name")
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid(f"Invalid patternType {acl.pattern_type.name}")
    if acl.operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        raise _invalid(f"Invalid operation {acl.operation.name}")
    if acl.permission not in (Permission.DENY, Permission.ALLOW):
        raise _invalid(f"Invalid permissionType {acl.permission.name}")
    try:
        parse_principal(acl.principal)
    except ValueError as error:
        raise _invalid(f"Invalid principal: {error}") from None
    if not is_host(acl.host):
        raise _invalid(
            f"Invalid host '{acl.host}': only * or one IP address; names and networks never match"
        )


def _record(id: UUID, acl: Acl) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=id,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _fields(acl: Acl) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "resource_type": acl.resource_type,
        "resource_name": acl.resource_name,
        "pattern_type": acl.pattern_type,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permission_type": acl.permission,
    }


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)
