"""Where the coordinator of a group or of a transactional id is."""

from __future__ import annotations

from ottla.client.connections import BrokerConnections, check
from ottla.wire.apis import ApiKey

GROUP_KEY, TRANSACTION_KEY = 0, 1


async def find_coordinator(
    connections: BrokerConnections, key_type: int, key: str, what: str
) -> int:
    """The id of the broker, whose address `connections` then knows. `what` is the text of an error."""

    async def attempt() -> int:
        fields = {"key": key, "key_type": key_type, "coordinator_keys": [key]}
        answer = await connections.ask(ApiKey.FIND_COORDINATOR, fields)
        found = answer.coordinators[0] if hasattr(answer, "coordinators") else answer
        check(found.error_code, what)
        connections.addresses[int(found.node_id)] = (found.host, int(found.port))
        return int(found.node_id)

    return await connections.retrying(attempt)
