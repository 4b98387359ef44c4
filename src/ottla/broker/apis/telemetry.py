"""Client telemetry (KIP-714): clients ask which of their metrics are wanted, and none are.

Saying so keeps them quiet: they ask again every five minutes instead of collecting and pushing.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from ottla.broker.server.connections import Request
from ottla.broker.server.registration import serves
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode

NO_SUBSCRIPTION = 0
ASK_AGAIN_MS = 300_000
PUSH_BYTES_MAX = 256 * 1024


class TelemetryHandlers:
    def __init__(self, new_id: Callable[[], uuid.UUID]) -> None:
        self._new_id = new_id

    @serves(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS)
    def get_subscriptions(self, request: Request) -> None:
        """GetTelemetrySubscriptions 0. A client without a name of its own is given one. Left out: subscriptions; no
        metrics of clients are wanted."""
        request.respond(
            {
                "error_code": ErrorCode.NONE,
                "client_instance_id": request.message().client_instance_id or self._new_id(),
                "subscription_id": NO_SUBSCRIPTION,
                "accepted_compression_types": (),
                "push_interval": ASK_AGAIN_MS,
                "telemetry_max_bytes": PUSH_BYTES_MAX,
                "delta_temporality": True,
                "requested_metrics": (),
            }
        )

    @serves(ApiKey.PUSH_TELEMETRY)
    def push(self, request: Request) -> None:
        """PushTelemetry 0. A client that pushes was never asked to. Left out: the metrics are not kept."""
        message = request.message()
        error = ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if message.client_instance_id is None:
            error = ErrorCode.INVALID_REQUEST
        elif len(message.metrics) > PUSH_BYTES_MAX:
            error = ErrorCode.TELEMETRY_TOO_LARGE
        elif message.subscription_id == NO_SUBSCRIPTION:
            error = ErrorCode.NONE
        request.respond({"error_code": error})
