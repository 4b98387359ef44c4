"""The form of private requests: a question is one JSON object; an answer is one too, after its length, and bytes may follow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from struct import Struct
from typing import Any

from ottla.wire.errors import InvalidFrame

_LENGTH = Struct(">i")


def write_request(question: Mapping[str, Any]) -> bytes:
    return json.dumps(question).encode()


def read_object(text: bytes, api: str) -> dict[str, Any]:
    """InvalidFrame, which names the API, if it is no JSON object."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidFrame(f"{api} without JSON: {error}") from error
    if not isinstance(found, dict):
        raise InvalidFrame(f"{api} without a JSON object")
    return found


def write_response(answer: Mapping[str, Any]) -> bytes:
    """The part before the bytes."""
    text = json.dumps(answer).encode()
    return _LENGTH.pack(len(text)) + text


def read_response(frame: memoryview, position: int, api: str) -> tuple[dict[str, Any], bytes]:
    """The answer, and the bytes after it."""
    begin = position + _LENGTH.size
    if len(frame) < begin:
        raise InvalidFrame(f"an answer of {api} is cut short")
    end = begin + _LENGTH.unpack_from(frame, position)[0]
    if not begin <= end <= len(frame):
        raise InvalidFrame(f"an answer of {api} is cut short")
    return read_object(bytes(frame[begin:end]), api), bytes(frame[end:])
