"""DescribeClientQuotas: which quotas are set, for which users and client ids. Setting them is the controller's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ottla.broker.server.connections import Request
from ottla.broker.server.quotas import CLIENT_ID, IP, USER
from ottla.broker.server.registration import serves
from ottla.metadata.image import MetadataImage
from ottla.security.needs import DESCRIBE_CLUSTER_CONFIGS, NOT_ALLOWED
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError

EXACT, DEFAULT, ANY = 0, 1, 2
"""How DescribeClientQuotas asks for an entity's name."""


class QuotaHandlers:
    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image

    @serves(ApiKey.DESCRIBE_CLIENT_QUOTAS)
    def describe_client_quotas(self, request: Request) -> None:
        """DescribeClientQuotas 0-1: the entities that match every component of the filter."""
        message = request.message()
        try:
            if not DESCRIBE_CLUSTER_CONFIGS.met(request.rights):
                raise KafkaError(DESCRIBE_CLUSTER_CONFIGS.denied, NOT_ALLOWED)
            wanted = _filter(message.components)
        except KafkaError as error:
            request.respond(
                {"error_code": error.code, "error_message": error.message, "entries": None}
            )
            return
        quotas = self._image().client_quotas
        entries = [
            {
                "entity": [
                    {"entity_type": kind, "entity_name": name} for kind, name in sorted(entity)
                ],
                "values": [
                    {"key": key, "value": value} for key, value in sorted(quotas[entity].items())
                ],
            }
            for entity in sorted(quotas, key=repr)
            if _matches(dict(entity), wanted, message.strict)
        ]
        request.respond({"error_code": ErrorCode.NONE, "error_message": None, "entries": entries})


def _filter(components: Any) -> dict[str, tuple[int, str | None]]:
    wanted: dict[str, tuple[int, str | None]] = {}
    for component in components:
        kind, match_type, match = component.entity_type, component.match_type, component.match
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in wanted:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if match_type not in (EXACT, DEFAULT, ANY):
            raise _invalid(f"Unknown match type {match_type}")
        if (match is None) == (match_type == EXACT):
            raise _invalid(f"Match type {match_type} contradicts the match {match}.")
        wanted[kind] = (match_type, match)
    if IP in wanted and len(wanted) > 1:
        raise _invalid("An address cannot be combined with a user or a client id.")
    return wanted


def _matches(
    entity: Mapping[str, str | None], wanted: Mapping[str, tuple[int, str | None]], strict: bool
) -> bool:
    if strict and len(entity) != len(wanted):
        return False
    return all(
        kind in entity and (match_type == ANY or entity[kind] == match)
        for kind, (match_type, match) in wanted.items()
    )


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)
