"""What brokers carry: the private request Load, asked of ottla's brokers. Others close the connection when they get it."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from ottla.balance.load import HOUR, MINUTE, BrokerLoad, read_load, read_loads
from ottla.client.admin import Place
from ottla.client.client import Client
from ottla.client.connections import Unreachable
from ottla.wire import private_json
from ottla.wire.apis import PRIVATE_VERSION, PrivateApi
from ottla.wire.errors import ErrorCode, InvalidFrame, KafkaError

API = "Load"
PATIENCE_S = 5.0


class OwnLoad(NamedTuple):
    """As a broker says it of itself."""

    load: BrokerLoad
    rates: dict[Place, float]
    """Bytes per second in and out of the partitions that it leads."""
    history_s: float = 0.0
    """For how long it has looked. What it says of a window that is longer is of this time alone."""

    @property
    def disk_growth(self) -> tuple[float, float]:
        """Bytes per second, of the last minute and of the last hour."""
        return self.load.rates[MINUTE].disk_growth, self.load.rates[HOUR].disk_growth


async def cluster_loads(client: Client) -> dict[int, BrokerLoad]:
    """As the active controller knows them. KafkaError if nobody can say it; ConnectionError from other brokers than ottla's."""
    brokers = (await client.metadata([])).brokers
    failure: Exception = Unreachable("no broker answers")
    for broker in brokers:
        try:
            answer = await _ask(client, broker.id, "cluster")
        except (OSError, KafkaError) as error:
            failure = error
            continue
        return read_loads(answer["loads"] or "[]")
    raise failure


async def own_load(client: Client, broker: int) -> OwnLoad:
    """ConnectionError if it does not answer, or is not one of ottla's."""
    answer = await _ask(client, broker, "own")
    load = read_load(answer["load"])
    if load is None:
        raise InvalidFrame(f"an answer of {API} without a load")
    rates = {
        (topic, int(number)): float(rate_in) + float(rate_out)
        for topic, number, leads, _, rate_in, rate_out in answer["partitions"]
        if leads
    }
    return OwnLoad(load, rates, float(answer.get("history_s", 0.0)))


async def own_loads(client: Client) -> dict[int, OwnLoad]:
    """Of all that answer; empty where brokers are not ottla's."""

    async def ask(broker: int) -> OwnLoad | None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await own_load(client, broker)
        except (OSError, InvalidFrame):
            return None

    brokers = [each.id for each in (await client.metadata([])).brokers]
    answers = await asyncio.gather(*(ask(broker) for broker in brokers))
    return {id: found for id, found in zip(brokers, answers, strict=True) if found is not None}


async def partition_rates(client: Client) -> dict[Place, float]:
    """Of all partitions whose leaders say it."""
    found: dict[Place, float] = {}
    for own in (await own_loads(client)).values():
        found |= own.rates
    return found


async def _ask(client: Client, broker: int, question: str) -> dict[str, Any]:
    connections = client.connections
    channel = await connections.to(broker)
    answer, _ = await connections.call(
        channel,
        PrivateApi.LOAD,
        PRIVATE_VERSION,
        private_json.write_request({"ask": question}),
        lambda frame, start: private_json.read_response(frame, start, API),
    )
    if answer.get("error") is not None:
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if "authorization" not in answer["error"]:
            code = ErrorCode.REQUEST_TIMED_OUT
        raise KafkaError(code, f"broker {broker}: {answer['error']}")
    return answer
