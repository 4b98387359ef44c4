"""Client telemetry (KIP-714): clients ask which of their metrics are wanted, and push them.

What they push is shown at the metrics endpoint of the broker that they push to. A broker without `metrics.listeners` wants
nothing, and so does one in a cluster without subscriptions. Clients then ask again every five minutes instead of collecting
and pushing, and the code of telemetry is not imported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ottla.broker.server.connections import Request, ServerConnection
from ottla.broker.server.registration import serves
from ottla.config.node_settings import Settings
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import CLIENT_METRICS_RESOURCE
from ottla.runtime import Clock
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.types import ZERO_UUID

if TYPE_CHECKING:
    from ottla.metrics.families import Family
    from ottla.telemetry.instances import ClientInstance, ClientInstances, PushPace
    from ottla.telemetry.pushed import PushedMetrics, PushedPoint

NO_SUBSCRIPTION = 0
ASK_AGAIN_MS = 300_000
UNPACKED_BYTES_MAX = 1024 * 1024
WAITING_MAX = 32
"""Pushes that wait to be read. They are read one after the other."""


class TelemetryHandlers:
    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        image: Callable[[], MetadataImage],
        new_id: Callable[[], UUID],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._image = image
        self._new_id = new_id
        self._seen: MetadataImage | None = None
        self._subscriptions: dict[str, Mapping[str, str]] = {}
        self._instances: ClientInstances | None = None
        """None until there is a subscription."""
        self._pushed: PushedMetrics | None = None
        self._connections: dict[ServerConnection, UUID] = {}
        """Of the client instances."""
        self._paces: dict[ServerConnection, PushPace] = {}
        self._one_at_a_time = asyncio.Lock()
        self._waiting = 0

    @serves(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS)
    def get_subscriptions(self, request: Request) -> None:
        """GetTelemetrySubscriptions 0. A client without a name of its own is given one."""
        id = request.message().client_instance_id or self._new_id()
        fields = {
            "error_code": ErrorCode.NONE,
            "client_instance_id": id,
            "subscription_id": NO_SUBSCRIPTION,
            "accepted_compression_types": (),
            "push_interval": ASK_AGAIN_MS,
            "telemetry_max_bytes": self._settings.telemetry_max_bytes,
            "delta_temporality": True,
            "requested_metrics": (),
        }
        instances = self._current_instances()
        if instances is not None:
            try:
                owner = str(request.connection.principal)
                instance = instances.ask(id, owner, _attributes(request, id), self._now_ms())
            except KafkaError as error:
                request.respond({"error_code": error.code, "client_instance_id": ZERO_UUID})
                return
            self._heard_over(request.connection, id)
            fields |= _told(instance)
        request.respond(fields)

    def _heard_over(self, connection: ServerConnection, id: UUID) -> None:
        """An instance ends with its connection, and may ask anew over another one."""
        if connection not in self._connections:
            connection.on_close.append(lambda: self._closed(connection))
        self._connections[connection] = id

    def _closed(self, connection: ServerConnection) -> None:
        id = self._connections.pop(connection)
        if self._instances is not None:
            self._instances.forget(id)

    def _pace(self, connection: ServerConnection) -> PushPace:
        from ottla.telemetry.instances import PushPace

        found = self._paces.get(connection)
        if found is None:
            found = self._paces[connection] = PushPace()
            connection.on_close.append(lambda: self._pushes_no_more(connection))
        return found

    def _pushes_no_more(self, connection: ServerConnection) -> None:
        del self._paces[connection]

    @serves(ApiKey.PUSH_TELEMETRY)
    def push(self, request: Request) -> None:
        """PushTelemetry 0. Left out: histograms, which no client sends; gauges and sums are kept."""
        message = request.message()
        instances = self._current_instances()
        try:
            if instances is None:
                self._check_unwanted(message)
                request.respond({"error_code": ErrorCode.NONE})
                return
            id = message.client_instance_id
            instance = instances.push(
                id,
                str(request.connection.principal),
                _attributes(request, id or ZERO_UUID),
                int(message.subscription_id),
                int(message.compression_type),
                terminating=message.terminating,
                pace=self._pace(request.connection),
                now_ms=self._now_ms(),
            )
            self._check_size(message)
            if self._waiting >= WAITING_MAX:
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        except KafkaError as error:
            request.respond({"error_code": error.code})
            return
        # A megabyte takes long to decompress and to read.
        request.run(self._receive(instance, int(message.compression_type), bytes(message.metrics)))

    def _check_unwanted(self, message: Any) -> None:
        """A client that pushes was never asked to."""
        if message.client_instance_id is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        self._check_size(message)
        if message.subscription_id != NO_SUBSCRIPTION:
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)

    def _check_size(self, message: Any) -> None:
        if len(message.metrics) > self._settings.telemetry_max_bytes:
            raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE)

    async def _receive(
        self, instance: ClientInstance, codec: int, metrics: bytes
    ) -> Mapping[str, Any]:
        from ottla.telemetry.otlp import MalformedTelemetry

        if not metrics:
            return {"error_code": ErrorCode.NONE}
        loop = asyncio.get_running_loop()
        self._waiting += 1
        try:
            async with self._one_at_a_time:
                points = await loop.run_in_executor(None, _measured, codec, metrics)
        except (KafkaError, MalformedTelemetry):
            return {"error_code": ErrorCode.INVALID_RECORD}
        finally:
            self._waiting -= 1
        assert self._pushed is not None
        now_ms = self._now_ms()
        self._pushed.add(
            instance.id, instance.owner, instance.attributes, points, instance.expires_ms, now_ms
        )
        return {"error_code": ErrorCode.NONE}

    def _current_instances(self) -> ClientInstances | None:
        """With the subscriptions of the newest metadata."""
        image = self._image()
        if image is not self._seen and self._settings.metrics_listeners:
            self._seen = image
            found = {
                name: image.config(CLIENT_METRICS_RESOURCE, name)
                for kind, name in image.configs
                if kind == CLIENT_METRICS_RESOURCE
            }
            if found != self._subscriptions:
                self._subscriptions = found
                self._subscribe(found)
        return self._instances if self._subscriptions else None

    def _subscribe(self, found: Mapping[str, Mapping[str, str]]) -> None:
        from ottla.config.client_metrics_settings import subscription_of
        from ottla.telemetry.instances import ClientInstances
        from ottla.telemetry.pushed import PushedMetrics

        if self._instances is None:
            self._instances = ClientInstances()
            self._pushed = PushedMetrics(self._settings.ottla_client_metrics_clients_max)
        self._instances.subscribe(
            subscription_of(name, configs) for name, configs in sorted(found.items())
        )

    def _now_ms(self) -> float:
        return self._clock.monotonic() * 1000

    def families(self) -> Iterator[Family]:
        """What clients have pushed to this broker."""
        if self._instances is not None and self._pushed is not None:
            yield from self._instances.families()
            yield from self._pushed.families(self._now_ms())


def _attributes(request: Request, id: UUID) -> dict[str, str]:
    software, version = request.connection.client_software
    return {
        "client_instance_id": str(id),
        "client_id": request.client_id,
        "client_software_name": software,
        "client_software_version": version,
        "client_source_address": request.connection.peer_host,
        "client_source_port": request.connection.peer.rpartition(":")[2],
    }


def _told(instance: ClientInstance) -> dict[str, Any]:
    from ottla.telemetry.instances import ACCEPTED_CODECS

    return {
        "subscription_id": instance.wanted.subscription_id,
        "accepted_compression_types": ACCEPTED_CODECS,
        "push_interval": instance.wanted.interval_ms,
        "requested_metrics": instance.wanted.metrics,
    }


def _measured(codec: int, metrics: bytes) -> list[PushedPoint | None]:
    from ottla.records.compression import decompress
    from ottla.telemetry.otlp import points
    from ottla.telemetry.pushed import measured

    unpacked = decompress(codec, metrics, max_bytes=UNPACKED_BYTES_MAX)
    return [measured(point) for point in points(unpacked)]
