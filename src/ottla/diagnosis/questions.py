"""Questions to a cluster that may be half dead: each is asked by itself, and what nobody answers is noted instead of being an error.

Two looks at a cluster are made of them. `gathering` asks everything of everybody, for the doctor. `looking` asks what
concerns one subject, some of it twice, for an explanation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from ottla.client import Client, Unreachable
from ottla.client.cluster_admin import ClusterAdmin, values_of
from ottla.client.kept_records import list_kept
from ottla.client.model import BrokerInfo, ClusterDescription, Config, Metadata
from ottla.diagnosis.remedies import KEPT_RETENTION
from ottla.losses.merge import NamedLoss, merge
from ottla.wire.errors import KafkaError

T = TypeVar("T")

LOST = (KafkaError, OSError, Unreachable)
"""What a cluster in trouble answers; TimeoutError is an OSError."""

Note = Callable[[str, str], None]
"""(what could not be found out, why)"""


class KnownBrokers(NamedTuple):
    metadata: Metadata
    described: ClusterDescription | None
    brokers: Mapping[int, BrokerInfo]
    """Also the fenced ones, where the cluster says so."""


class Questions:
    def __init__(self, client: Client, note: Note) -> None:
        self._client = client
        self._note = note
        self.admin = ClusterAdmin(client)

    async def ask(self, what: str, asked: Awaitable[T], otherwise: T) -> T:
        """Without `what` it does not matter whether there is an answer."""
        try:
            return await asked
        except LOST as error:
            if what:
                self._note(what, reason_of(error))
            return otherwise

    async def ask_each(
        self, brokers: Iterable[int], what: str, asked: Callable[[int], Awaitable[T]]
    ) -> dict[int, T]:
        """Of those that answered. `what` is followed by a broker's id."""

        async def one(broker: int) -> tuple[int, T | None]:
            return broker, await self.ask(f"{what} {broker}", asked(broker), None)

        answers = await asyncio.gather(*(one(broker) for broker in brokers))
        return {broker: answer for broker, answer in answers if answer is not None}

    async def brokers(self, what: str) -> KnownBrokers:
        """Unreachable if no broker answers. `what`: how the question about fenced brokers is noted."""
        metadata = await self._client.metadata([])
        described = await self.ask(what, self._client.describe_cluster(), None)
        known = {each.id: each for each in metadata.brokers}
        if described is not None:
            known.update((each.id, each) for each in described.brokers)
        return KnownBrokers(metadata, described, known)

    async def losses(self, keepers: Iterable[int], what: str) -> list[NamedLoss]:
        """As far as brokers that answer know them."""
        kept = await self.ask_each(keepers, what, lambda id: list_kept(self._client, id))
        return merge(each for manifests in kept.values() for each in manifests)


def keeps_records(settings: Iterable[Config]) -> bool:
    """Whether a broker keeps records aside that a truncation cuts off. Only ottla's do, and they have a setting that says how
    long. Another one closes the connection when it is asked."""
    return KEPT_RETENTION in values_of(settings)


def reason_of(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    return str(error)
