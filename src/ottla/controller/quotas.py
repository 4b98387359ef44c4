"""Client quotas (KIP-546): limits on what clients send, receive and change, stored in the metadata.

This module only validates and records them. Brokers and controllers read them from the image and enforce them.
"""

from __future__ import annotations

import ipaddress
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from ottla.controller.draft import Draft
from ottla.metadata.image import QuotaKey
from ottla.metadata.records import ClientQuotaRecord, QuotaEntity
from ottla.wire.errors import ErrorCode, KafkaError

USER, CLIENT_ID, IP = "user", "client-id", "ip"

WHOLE_RATES = frozenset({"producer_byte_rate", "consumer_byte_rate"})
RATES = WHOLE_RATES | {"request_percentage", "controller_mutation_rate"}
IP_RATES = frozenset({"connection_creation_rate"})
LONG_MAX = 2.0**63
INT_MAX = 2**31 - 1


class QuotaChange(NamedTuple):
    """`value` None removes the quota."""

    key: str
    value: float | None


class QuotaChanges(NamedTuple):
    """The changes that one request makes to one entity. An entity name of None is the default of its type."""

    entity: tuple[tuple[str, str | None], ...]
    changes: tuple[QuotaChange, ...]


def alter(draft: Draft, requests: Sequence[QuotaChanges]) -> dict[str, Any]:
    """Each entity succeeds or fails independently. They are added together, since each addition costs as much as there are."""
    counts = Counter(_key(request.entity) for request in requests)
    entries = []
    records: list[ClientQuotaRecord] = []
    for request in requests:
        error, message = ErrorCode.NONE, None
        try:
            if counts[_key(request.entity)] > 1:
                raise _invalid("An entity may be named only once.")
            records += _records(draft, request)
        except KafkaError as failure:
            error, message = failure.code, failure.message or None
        members = [{"entity_type": kind, "entity_name": name} for kind, name in request.entity]
        entries.append({"error_code": error, "error_message": message, "entity": members})
        draft.limit(len(records))
    draft.add(records)
    return {"entries": entries}


def _records(draft: Draft, request: QuotaChanges) -> list[ClientQuotaRecord]:
    _check_entity(request.entity)
    if len({change.key for change in request.changes}) != len(request.changes):
        raise _invalid("A quota may be changed only once.")
    entity = _key(request.entity)
    current = draft.image.client_quotas.get(entity, {})
    members = tuple(QuotaEntity(entity_type=kind, entity_name=name) for kind, name in entity)
    records = []
    for key, value in request.changes:
        if value is not None:
            rates = IP_RATES if entity[0][0] == IP else RATES
            _check_value(key, value, rates)
            if value != current.get(key):
                records.append(
                    ClientQuotaRecord(entity=members, key=key, value=value, remove=False)
                )
        elif key in current:
            records.append(ClientQuotaRecord(entity=members, key=key, value=0.0, remove=True))
    return records


def _key(entity: Sequence[tuple[str, str | None]]) -> QuotaKey:
    """The image's key: the entity in the order of its types."""
    return tuple(sorted(entity, key=lambda member: member[0]))


def _check_entity(entity: Sequence[tuple[str, str | None]]) -> None:
    kinds = [kind for kind, _ in entity]
    if not kinds:
        raise _invalid("Invalid empty client quota entity")
    if len(set(kinds)) != len(kinds):
        raise _invalid("Invalid client quota entity, an entity type is given twice")
    for kind, name in entity:
        if kind == IP:
            if len(entity) > 1:
                raise _invalid(
                    "Invalid quota entity combination, ip entity should not be used with user/client ID entity."
                )
            _check_address(name)
        elif kind not in (USER, CLIENT_ID):
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")


def _check_address(name: str | None) -> None:
    """Kafka resolves names, once. An address that somebody else gets later would keep the quota, so here they are refused."""
    try:
        if name is not None:
            ipaddress.ip_address(name)
    except ValueError:
        raise _invalid(f"{name} is not a valid IP; names are not resolved.") from None


def _check_value(key: str, value: float, rates: frozenset[str]) -> None:
    if key not in rates:
        raise _invalid(f"Invalid configuration key {key}")
    if not value > 0.0 or math.isinf(value):
        raise _invalid(f"Quota {key} must be greater than 0")
    if key in WHOLE_RATES or key in IP_RATES:
        if value >= LONG_MAX:
            raise _invalid(f"Proposed value for {key} is too large for a LONG.")
        if key in IP_RATES and value > INT_MAX:
            raise _invalid(f"Proposed value for {key} is too large for an INT.")
        if value % 1.0 > 1e-6:
            raise _invalid(f"{key} cannot be a fractional value.")


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)
