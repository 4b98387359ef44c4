"""Requests and answers: parameters that are checked, JSON, and the errors of a cluster as something that people can read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from ottla.client.connections import ConnectionsClosed, SecurityRefused, Unreachable
from ottla.console.web.console_settings import ConsoleSettings
from ottla.console.web.viewer import Viewer
from ottla.wire.errors import ErrorCode, InvalidFrame, KafkaError

BODY_BYTES_MAX = 2 << 20
UPLOAD_S = 60.0
"""For a body to come."""
DENIED = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
ABSENT = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
)


class AnswerRefused(Exception):
    """An answer that is no success. The text is for people."""

    def __init__(self, status: int, text: str, retry_after_s: float | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.retry_after_s = retry_after_s


def json_response(value: Any, status: int = 200) -> Response:
    return text_response(json.dumps(value, separators=(",", ":"), ensure_ascii=False), status)


def text_response(text: str, status: int = 200) -> Response:
    return Response(
        text.encode(errors="replace"),
        status,
        {"cache-control": "no-store"},
        "application/json",
    )


def console_of(request: Request) -> ConsoleSettings:
    console = request.app.state.console
    assert isinstance(console, ConsoleSettings)
    return console


def viewer_of(request: Request) -> Viewer:
    """AnswerRefused if nobody has logged in."""
    viewer = request.scope.get("viewer")
    if not isinstance(viewer, Viewer):
        raise AnswerRefused(401, "Log in first.")
    return viewer


Answer = Callable[[Request], Awaitable[Response]]


def answering(handler: Answer) -> Answer:
    """To a viewer, with the errors of the cluster as answers."""

    async def answer(request: Request) -> Response:
        try:
            viewer_of(request)
            return await handler(request)
        except Exception as error:
            refusal = refusal_of(error)
            if refusal is None:
                raise
            return refusal_response(refusal)

    return answer


def in_turn(handler: Answer) -> Answer:
    """What asks the cluster: a viewer has so many questions at a time. A body is read before its turn, so that who sends one
    slowly keeps nobody waiting but others who send one."""

    async def in_its_turn(request: Request) -> Response:
        async with viewer_of(request).questions:
            return await handler(request)

    async def answer(request: Request) -> Response:
        if request.method != "POST":
            return await in_its_turn(request)
        async with viewer_of(request).uploads:
            await body_of(request)
            return await in_its_turn(request)

    return answer


def refusal_response(refusal: AnswerRefused) -> Response:
    answer = json_response({"error": refusal.text}, refusal.status)
    if refusal.retry_after_s is not None:
        answer.headers["retry-after"] = str(max(1, round(refusal.retry_after_s)))
    return answer


def refusal_of(error: Exception) -> AnswerRefused | None:
    """None for an error that must be a bug of ours."""
    if isinstance(error, AnswerRefused):
        return error
    if isinstance(error, KafkaError):
        if error.code in DENIED:
            return AnswerRefused(403, f"The cluster does not allow it: {error}.")
        if error.code in ABSENT:
            return AnswerRefused(404, f"{error}")
        return AnswerRefused(409, f"The cluster refused: {error}.")
    if isinstance(error, ConnectionsClosed):
        return AnswerRefused(401, "This visit is over: log in again.")
    if isinstance(error, SecurityRefused):
        return AnswerRefused(401, str(error))
    if isinstance(error, TimeoutError):
        return AnswerRefused(504, "The cluster did not answer in time.")
    if isinstance(error, Unreachable | OSError | InvalidFrame):
        return AnswerRefused(502, f"The cluster does not answer: {error}.")
    return None


# Parameters


def text_of(request: Request, name: str, default: str | None = None) -> str:
    value = request.query_params.get(name, default)
    if value is None:
        raise AnswerRefused(400, f"The parameter {name} is missing.")
    return value


def number_of(
    request: Request,
    name: str,
    default: int | None = None,
    *,
    least: int = 0,
    most: int = 2**63 - 1,
) -> int:
    if name not in request.query_params and default is not None:
        return default
    return number_in(text_of(request, name), f"The parameter {name}", least=least, most=most)


def number_in(text: str, what: str, *, least: int = 0, most: int = 2**63 - 1) -> int:
    """AnswerRefused if it is none, or out of these bounds."""
    try:
        number = int(text)
    except ValueError:  # also if it has thousands of digits
        raise AnswerRefused(400, f"{what} is no number.") from None
    if not least <= number <= most:
        raise AnswerRefused(400, f"{what} is not between {least} and {most}.")
    return number


async def file_of(request: Request, bytes_max: int) -> BytesIO:
    """The body, at its beginning. Not more than so many bytes, whatever its head says, nor for longer than `UPLOAD_S`."""
    found = BytesIO()
    try:
        async with asyncio.timeout(UPLOAD_S):
            async for part in request.stream():
                found.write(part)
                if found.tell() > bytes_max:
                    raise AnswerRefused(413, f"More than {bytes_max} bytes.")
    except ClientDisconnect:
        raise AnswerRefused(400, "The body is not whole.") from None
    except TimeoutError:
        raise AnswerRefused(408, f"This did not come within {UPLOAD_S:g} s.") from None
    found.seek(0)
    return found


async def body_of(request: Request, bytes_max: int = BODY_BYTES_MAX) -> bytes:
    """It comes once, and is known from then on."""
    known: bytes | None = getattr(request.state, "body", None)
    if known is None:
        known = request.state.body = (await file_of(request, bytes_max)).getvalue()
    return known


@dataclass(frozen=True)
class WholeNumber:
    """One that a field of so many bits holds, in Kafka's requests."""

    bits: int

    def holds(self, value: object) -> bool:
        if not isinstance(value, int) or isinstance(value, bool):
            return False
        return -(1 << (self.bits - 1)) <= value < 1 << (self.bits - 1)


INT16, INT32, INT64 = WholeNumber(16), WholeNumber(32), WholeNumber(64)
FieldType = type | WholeNumber


def is_of(value: object, *types: FieldType) -> bool:
    return any(
        each.holds(value) if isinstance(each, WholeNumber) else isinstance(value, each)
        for each in types
    )


async def fields_of(
    request: Request, bytes_max: int = BODY_BYTES_MAX, /, **types: FieldType | tuple[FieldType, ...]
) -> dict[str, Any]:
    """The members of a JSON object, each of this type; those that may be None may be missing."""
    try:
        given = json.loads(await body_of(request, bytes_max))
        assert isinstance(given, dict)
    except (ValueError, AssertionError, RecursionError):
        raise AnswerRefused(400, "The body is no JSON object.") from None
    unknown = given.keys() - types.keys()
    if unknown:
        raise AnswerRefused(400, f"Nothing is called {sorted(unknown)[0]} here.")
    found = {}
    for name, wanted in types.items():
        value = given.get(name)
        if not is_of(value, *(wanted if isinstance(wanted, tuple) else (wanted,))):
            raise AnswerRefused(400, f"{name} is missing, or of the wrong type or size.")
        found[name] = value
    return found
