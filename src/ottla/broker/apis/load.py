"""Load: operators ask what this broker carries, or what all brokers carry (`ottla brokers`, `ottla balance`).

    {"ask": "own"}       {"error": null, "broker": ID, "load": text, "history_s": seconds,
                          "partitions": [[topic, partition, leads, bytes, in/s, out/s], …]}
    {"ask": "cluster"}   {"error": null, "loads": text}, as the active controller has it

`error` is a sentence if the broker cannot answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.broker.cluster.lifecycle import BrokerLifecycle
from ottla.broker.replication.load_meter import LoadMeter
from ottla.broker.server.connections import Request
from ottla.security.needs import DESCRIBE_CLUSTER
from ottla.wire import private_json
from ottla.wire.errors import InvalidFrame

API = "Load"
REFUSAL = "authorization failed: the load of brokers needs DESCRIBE on the cluster"
PATIENCE_S = 5.0


class LoadHandler:
    def __init__(self, broker: int, meter: LoadMeter, lifecycle: BrokerLifecycle) -> None:
        self._broker = broker
        self._meter = meter
        self._lifecycle = lifecycle

    def __call__(self, request: Request) -> None:
        """Not of Kafka's protocol, so ApiVersions does not announce it."""
        frame = bytes(request.frame[request.header.body :])
        ask = private_json.read_object(frame, API).get("ask")
        if ask not in ("own", "cluster"):
            raise InvalidFrame(f"{API} cannot {ask!r}")
        if not DESCRIBE_CLUSTER.met(request.rights):
            self._answer(request, {"error": REFUSAL})
            return
        request.connection.server.spawn(self._later(request, ask))

    async def _later(self, request: Request, ask: str) -> None:
        try:
            answer = await (self._own() if ask == "own" else self._cluster())
        except Exception:
            request.connection.fail(request)
        else:
            self._answer(request, answer)

    async def _own(self) -> dict[str, Any]:
        load = await self._meter.now()
        partitions = [
            [*each.key, each.leads, each.size, round(each.rate_in, 1), round(each.rate_out, 1)]
            for each in self._meter.partitions()
        ]
        return {
            "error": None,
            "broker": self._broker,
            "load": load.as_text(),
            "history_s": round(self._meter.history_s, 1),
            "partitions": partitions,
        }

    async def _cluster(self) -> dict[str, Any]:
        try:
            loads = await self._lifecycle.cluster_loads(PATIENCE_S)
        except TimeoutError:
            return {"error": "no active controller answers"}
        return {"error": None, "loads": loads}

    def _answer(self, request: Request, answer: Mapping[str, Any]) -> None:
        request.respond_chunks([private_json.write_response(answer)])
