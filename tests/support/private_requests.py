"""A question for each private request (`ottla.wire.apis.PrivateApi`), for tests that ask them all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.wire import private_json
from ottla.wire.apis import PRIVATE_APIS, PRIVATE_VERSION, PrivateApi
from ottla.wire.channel import Channel

PRIVATE_QUESTIONS: Final[Mapping[PrivateApi, Mapping[str, Any]]] = {
    PrivateApi.KEPT_RECORDS: {"ask": "list"},
    PrivateApi.LOAD: {"ask": "own"},
}


async def asked_privately(
    channel: Channel, key: PrivateApi, question: Mapping[str, Any], *, timeout_s: float = 60.0
) -> dict[str, Any]:
    def read(frame: memoryview, position: int) -> dict[str, Any]:
        return private_json.read_response(frame, position, PRIVATE_APIS[key])[0]

    body = private_json.write_request(question)
    return await channel.answer(key, PRIVATE_VERSION, body, read, timeout_s=timeout_s)
