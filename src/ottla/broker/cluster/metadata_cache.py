"""The clients' view of the cluster, from the newest metadata image (Kafka's MetadataCache)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple
from uuid import UUID

from ottla.metadata.image import BrokerImage, MetadataImage, PartitionImage


class BrokerAddress(NamedTuple):
    id: int
    host: str
    port: int
    rack: str | None


class ClusterView:
    """Look-ups in the newest image. Clients get the broker addresses of the listener that they are connected
    to."""

    def __init__(self, node_id: int, linger_s: float) -> None:
        """`node_id`: of this broker, which is listed whenever it answers. If a broker that is about to be unfenced were
        missing in its own answer, librdkafka would drop it, and might never again find a coordinator that it is.
        `linger_s`: how long a fenced broker stays listed. A client that lost its leader must move its
        partitions before it drops the broker: librdkafka may stall for a second if one response shows both.
        Kafka, too, lists a dead broker until its session ends."""
        self.image = MetadataImage()
        self._node_id = node_id
        self._linger_s = linger_s
        self._lingering: dict[int, asyncio.TimerHandle] = {}
        self.generation = 0
        """Rises with each change that clients can see."""
        self._waiting: dict[asyncio.Future[None], Callable[[MetadataImage], bool]] = {}

    def update(self, image: MetadataImage, changed: bool) -> None:
        if image.brokers is not self.image.brokers:
            self._note_fenced(self.image, image)
        self.image = image
        if changed:
            self.generation += 1
            for future, condition in list(self._waiting.items()):
                if not future.done() and condition(image):
                    future.set_result(None)

    def _note_fenced(self, before: MetadataImage, after: MetadataImage) -> None:
        for id, broker in after.brokers.items():
            was = before.brokers.get(id)
            if broker.fenced and was is not None and not was.fenced:
                self._lingering[id] = asyncio.get_running_loop().call_later(
                    self._linger_s, self._end_linger, id
                )
            elif not broker.fenced and (timer := self._lingering.pop(id, None)) is not None:
                timer.cancel()

    def _end_linger(self, id: int) -> None:
        del self._lingering[id]
        self.generation += 1

    def close(self) -> None:
        for timer in self._lingering.values():
            timer.cancel()

    async def wait_for(self, condition: Callable[[MetadataImage], bool]) -> None:
        """Wait until the condition holds for the image. The caller sets the time limit."""
        if condition(self.image):
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting[future] = condition
        try:
            await future
        finally:
            del self._waiting[future]

    def topic_name(self, topic: str | None, topic_id: UUID | None) -> str | None:
        """The name of a topic that is named, or that has this id. None: no topic has the id."""
        if topic_id is None:
            return topic or ""
        known = self.image.topics_by_id.get(topic_id)
        return None if known is None else known.name

    def leader_of(
        self, topic: str | None, topic_id: UUID | None, number: int
    ) -> tuple[int, int] | None:
        """(leader, epoch) or None."""
        partition = self.partition(topic, topic_id, number)
        return None if partition is None else (partition.leader, partition.leader_epoch)

    def partition(
        self, topic: str | None, topic_id: UUID | None, number: int
    ) -> PartitionImage | None:
        image = self.image
        if topic_id is not None:
            known = image.topics_by_id.get(topic_id)
        else:
            known = image.topics.get(topic or "")
        if known is None or not 0 <= number < len(known.partitions):
            return None
        return known.partitions[number]

    def brokers(self, listener: str) -> list[BrokerAddress]:
        """This broker, and every one that is unfenced or was a moment ago, sorted by id."""
        return [
            address
            for broker in sorted(self.image.brokers.values(), key=lambda broker: broker.id)
            if self.is_listed(broker) and (address := address_of(broker, listener)) is not None
        ]

    def is_listed(self, broker: BrokerImage) -> bool:
        return not broker.fenced or broker.id == self._node_id or broker.id in self._lingering

    def endpoints(self, ids: Iterable[int], listener: str) -> tuple[BrokerAddress, ...]:
        wanted = set(ids)
        return tuple(address for address in self.brokers(listener) if address.id in wanted)

    def address(self, id: int, listener: str) -> BrokerAddress | None:
        """The address of a broker, fenced or not."""
        broker = self.image.brokers.get(id)
        return None if broker is None else address_of(broker, listener)


def address_of(broker: BrokerImage, listener: str) -> BrokerAddress | None:
    for endpoint in broker.endpoints:
        if endpoint.name == listener:
            return BrokerAddress(broker.id, endpoint.host, endpoint.port, broker.rack)
    return None
