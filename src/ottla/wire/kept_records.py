"""The private request KeptRecords: what a broker keeps of lost records.

A question is one JSON object. An answer is one too, after its length, and the bytes of records follow it.

    {"ask": "list"}                                              {"error": null, "kept": [manifest, …]}
    {"ask": "read", "id": ID, "position": N, "max_bytes": N}     {"error": null, "size": all bytes}, then records from there on
    {"ask": "recovered", "id": ID, "topic": NAME}                {"error": null}

`error` is a sentence if the broker cannot answer.
"""

from __future__ import annotations

from typing import Any

from ottla.wire import private_json
from ottla.wire.errors import InvalidFrame
from ottla.wire.private_json import write_request, write_response

__all__ = ["READ_BYTES_MAX", "read_request", "read_response", "write_request", "write_response"]

API = "KeptRecords"
READ_BYTES_MAX = 1 << 20


def read_request(frame: memoryview, position: int) -> dict[str, Any]:
    question = private_json.read_object(bytes(frame[position:]), API)
    numbers = (question.get("position", 0), question.get("max_bytes", 0))
    texts = (question.get("ask"), question.get("id", ""), question.get("topic", ""))
    if not all(type(each) is int and each >= 0 for each in numbers):
        raise InvalidFrame(f"KeptRecords with position and size {numbers}")
    if not all(isinstance(each, str) for each in texts):
        raise InvalidFrame("KeptRecords with something that is no text")
    return question


def read_response(frame: memoryview, position: int) -> tuple[dict[str, Any], bytes]:
    """The answer, and the records."""
    return private_json.read_response(frame, position, API)
