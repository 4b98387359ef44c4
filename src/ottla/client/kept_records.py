"""What brokers keep of lost records: the private request KeptRecords, asked of ottla's brokers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.client.client import Client
from ottla.losses.manifest import Manifest, from_json
from ottla.wire import kept_records as wire
from ottla.wire.apis import PRIVATE_VERSION, PrivateApi
from ottla.wire.errors import ErrorCode, KafkaError


async def list_kept(client: Client, broker: int) -> list[Manifest]:
    """ConnectionError if it does not answer, or closes the connection because it does not know this request."""
    answer, _ = await _ask(client, broker, {"ask": "list"})
    return [from_json(fields) for fields in answer["kept"]]


async def read_kept(client: Client, broker: int, id: str, position: int) -> bytes:
    """The next part of its bytes; empty at the end."""
    question = {"ask": "read", "id": id, "position": position, "max_bytes": wire.READ_BYTES_MAX}
    _, data = await _ask(client, broker, question)
    return data


async def mark_recovered(client: Client, broker: int, id: str, topic: str) -> None:
    await _ask(client, broker, {"ask": "recovered", "id": id, "topic": topic})


async def _ask(
    client: Client, broker: int, question: Mapping[str, Any]
) -> tuple[dict[str, Any], bytes]:
    connections = client.connections
    channel = await connections.to(broker)
    answer, records = await connections.call(
        channel,
        PrivateApi.KEPT_RECORDS,
        PRIVATE_VERSION,
        wire.write_request(question),
        wire.read_response,
    )
    if answer.get("error") is not None:
        code = ErrorCode.KAFKA_STORAGE_ERROR
        if "authorization" in answer["error"]:
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        raise KafkaError(code, f"broker {broker}: {answer['error']}")
    return answer, records
