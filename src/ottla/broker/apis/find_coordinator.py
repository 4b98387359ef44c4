"""FindCoordinator: which broker coordinates a group or a transactional id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ottla.broker.cluster.metadata_cache import ClusterView
from ottla.broker.coordination.shard_host import Coordination
from ottla.broker.server.connections import Request
from ottla.broker.server.registration import serves
from ottla.security import needs
from ottla.security.needs import Need
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, InvalidFrame, KafkaError
from ottla.wire.internal_topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC

KEYS_MAX = 10_000

TOPIC_OF_KEY_TYPE: Mapping[int, str] = {
    0: GROUP_METADATA_TOPIC,
    1: TRANSACTION_STATE_TOPIC,
}


NEEDS: Mapping[int, Need] = {
    0: needs.DESCRIBE_GROUP,
    1: needs.DESCRIBE_TRANSACTION,
    2: needs.CLUSTER_ACTION,
}


class FindCoordinatorHandler:
    def __init__(self, coordination: Coordination, cluster: ClusterView) -> None:
        self._coordination = coordination
        self._cluster = cluster

    @serves(ApiKey.FIND_COORDINATOR)
    def __call__(self, request: Request) -> None:
        """FindCoordinator 0-6: one key up to v3, a list from v4 (KIP-699). Left out: share groups (key type 2)."""
        message = request.message()
        version = request.version
        keys: Sequence[str] = message.coordinator_keys if version >= 4 else (message.key,)
        key_type = int(message.key_type) if version >= 1 else 0
        if len(keys) > KEYS_MAX:
            raise InvalidFrame(f"{len(keys)} coordinator keys in one request")
        request.run(self._answer(request, key_type, keys))

    async def _answer(
        self, request: Request, key_type: int, keys: Sequence[str]
    ) -> Mapping[str, Any]:
        version, listener, need = request.version, request.connection.listener, NEEDS.get(key_type)
        found = [
            await self._find(key_type, key, listener)
            if need is None or need.met(request.rights, key)
            else _failure(need.denied, "Not authorized to look for this coordinator.")
            for key in keys
        ]
        if version >= 4:
            return {
                "coordinators": [
                    {"key": key, **each} for key, each in zip(keys, found, strict=True)
                ]
            }
        return found[0]

    async def _find(self, key_type: int, key: str, listener: str) -> dict[str, Any]:
        topic = TOPIC_OF_KEY_TYPE.get(key_type)
        if topic is None:
            return _failure(ErrorCode.INVALID_REQUEST, f"key type {key_type} is not served")
        if not self._coordination.serves(topic):
            return _failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic} is not served")
        try:
            leader = await self._coordination.coordinator_of(topic, key)
        except KafkaError as error:
            return _failure(error.code, error.message)
        address = self._cluster.address(leader, listener)
        if address is None:
            return _failure(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"broker {leader} has no address for listener {listener}",
            )
        return {
            "error_code": ErrorCode.NONE,
            "error_message": None,
            "node_id": address.id,
            "host": address.host,
            "port": address.port,
        }


def _failure(error: ErrorCode, why: str) -> dict[str, Any]:
    return {"error_code": error, "error_message": why, "node_id": -1, "host": "", "port": -1}
