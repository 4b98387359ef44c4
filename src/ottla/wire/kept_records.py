"""The private request KeptRecords: what a broker keeps of lost records.

A question is one JSON object. An answer is one too, after its length, and the bytes of records follow it.

    {"ask": "list"}                                              {"error": null, "kept": [manifest, …]}
    {"ask": "read", "id": ID, "position": N, "max_bytes": N}     {"error": null, "size": all bytes}, then records from there on
    {"ask": "recovered", "id": ID, "topic": NAME}                {"error": null}

`error` is a sentence if the broker cannot answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from struct import Struct
from typing import Any

from ottla.wire.errors import InvalidFrame

READ_BYTES_MAX = 1 << 20
_LENGTH = Struct(">i")


def write_request(question: Mapping[str, Any]) -> bytes:
    return json.dumps(question).encode()


def read_request(frame: memoryview, position: int) -> dict[str, Any]:
    question = _object(bytes(frame[position:]))
    numbers = (question.get("position", 0), question.get("max_bytes", 0))
    texts = (question.get("ask"), question.get("id", ""), question.get("topic", ""))
    if not all(type(each) is int and each >= 0 for each in numbers):
        raise InvalidFrame(f"KeptRecords with position and size {numbers}")
    if not all(isinstance(each, str) for each in texts):
        raise InvalidFrame("KeptRecords with something that is no text")
    return question


def write_response(answer: Mapping[str, Any]) -> bytes:
    """The part before the records."""
    text = json.dumps(answer).encode()
    return _LENGTH.pack(len(text)) + text


def read_response(frame: memoryview, position: int) -> tuple[dict[str, Any], bytes]:
    """The answer, and the records."""
    begin = position + _LENGTH.size
    if len(frame) < begin:
        raise InvalidFrame("an answer of KeptRecords is cut short")
    end = begin + _LENGTH.unpack_from(frame, position)[0]
    if not begin <= end <= len(frame):
        raise InvalidFrame("an answer of KeptRecords is cut short")
    return _object(bytes(frame[begin:end])), bytes(frame[end:])


def _object(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidFrame(f"KeptRecords without JSON: {error}") from error
    if not isinstance(found, dict):
        raise InvalidFrame("KeptRecords without a JSON object")
    return found
