"""One request to every broker: for what only its coordinator knows, or to find the newest view of a topic.

A broker that has just died is in the metadata until its session is over. The answers of the others must not be lost
because of it. The caller gets them, and the brokers that did not answer. This is not `BrokerConnections.retrying`, which
retries one request at one broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from ottla.client.client import Client
from ottla.client.connections import Address, Unreachable
from ottla.client.model import PartitionInfo
from ottla.wire.errors import ErrorCode, KafkaError

T = TypeVar("T")

PATIENCE_S = 2.0
"""How long to wait for a broker that does not answer. For one with a retriable error it is the client's timeout."""
PAUSE_S = 0.1


class BrokerAnswers(NamedTuple, Generic[T]):
    answers: list[T]
    silent: tuple[int, ...]
    """Brokers that did not answer."""


async def ask_all_brokers(
    client: Client, question: Callable[[int], Awaitable[T]]
) -> BrokerAnswers[T]:
    """Ask all at the same time. While an answer is missing, all brokers of the newest metadata are asked again: what a
    dead broker coordinated has moved to one of the others. KafkaError if one refuses; Unreachable if none answers."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    patience_s = min(PATIENCE_S, client.connections.timeout_s)

    async def ask(broker: int) -> T | Exception:
        try:
            async with asyncio.timeout(patience_s):
                return await question(broker)
        except TimeoutError as error:
            client.connections.drop(broker)
            return error
        except OSError as error:
            return error
        except KafkaError as error:
            if not error.retriable:
                raise
            return error

    while True:
        brokers = [broker.id for broker in (await client.metadata([])).brokers]
        outcomes = await asyncio.gather(*(ask(broker) for broker in brokers))
        answers = [outcome for outcome in outcomes if not isinstance(outcome, Exception)]
        unready = [outcome for outcome in outcomes if isinstance(outcome, KafkaError)]
        silent = tuple(
            broker
            for broker, outcome in zip(brokers, outcomes, strict=True)
            if isinstance(outcome, OSError)
        )
        waited_s = loop.time() - began
        if unready and waited_s >= client.connections.timeout_s:
            raise unready[0]
        if not unready and (not silent or waited_s >= patience_s):
            if not answers:
                raise Unreachable(f"none of the brokers {silent} answers")
            return BrokerAnswers(answers, silent)
        await asyncio.sleep(PAUSE_S)


async def newest_view(
    client: Client, addresses: Sequence[Address], topic: str, patience_s: float
) -> list[PartitionInfo]:
    """The topic's partitions, the newest view of those that these brokers have: a broker that is cut off has an old one.
    Empty if none answers; KafkaError if none knows the topic."""

    async def known_at(address: Address) -> tuple[PartitionInfo, ...] | KafkaError:
        try:
            async with asyncio.timeout(patience_s):
                return (await client.topic_as_known_at(address, topic)).partitions
        except OSError:
            return ()
        except KafkaError as error:
            return error

    views = await asyncio.gather(*(known_at(address) for address in addresses))
    newest: dict[int, PartitionInfo] = {}
    for view in views:
        for seen in () if isinstance(view, KafkaError) else view:
            known = newest.get(seen.partition)
            if known is None or _age(seen) > _age(known):
                newest[seen.partition] = seen
    errors = [view for view in views if isinstance(view, KafkaError)]
    for error in errors if not newest else ():
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not error.retriable:
            raise error
    return [newest[number] for number in sorted(newest)]


def _age(seen: PartitionInfo) -> tuple[int, int]:
    """The newer view is greater: a later leader epoch or, in the same one, fewer in-sync replicas. (Metadata does not say
    which ISR came later. With the smaller one a caller waits a little longer, which does no harm.)"""
    return seen.leader_epoch, -len(seen.isr)
