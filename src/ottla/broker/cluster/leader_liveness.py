"""Whether the leaders in a Metadata response are still alive.

A client that lost its leader asks for new metadata within a millisecond: often before the controller has elected another
one, and even before this broker has seen its own connection to the dead one close. If the response still names the old
leader, librdkafka asks again only after a second. So this broker first sends the leaders a request. Where nobody listens
any more, the response waits for the election, which takes milliseconds (docs/DECISIONS.md).

A connection alone proves nothing: the kernel closes the sockets of a killed process one by one, and the listening ones
among the last. For a millisecond or two it still accepts, and loses, connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from ottla.broker.cluster.metadata_cache import BrokerAddress, ClusterView
from ottla.broker.server.deadlines import is_set_within
from ottla.metadata.image import MetadataImage
from ottla.runtime import Connection, Network
from ottla.wire.channel import Channel
from ottla.wire.errors import InvalidFrame, KafkaError

PROBE_TIMEOUT_S = 0.02
"""A machine that does not answer at all is not waited for: only the session timeout shows that it is gone."""
PROBE_PAUSE_S = 0.001
PROBE_STAYS_S = 0.005
ELECTION_TIMEOUT_S = 0.5


class LeaderLiveness:
    def __init__(
        self,
        node_id: int,
        network: Network,
        cluster: ClusterView,
        listener: str,
        *,
        is_plain: bool = True,
    ) -> None:
        """`is_plain`: others are asked without TLS and login. Else a connection that stays open has to do: a handshake and a
        login take too long."""
        self._is_plain = is_plain
        self._node_id = node_id
        self._network = network
        self._cluster = cluster
        self._listener = listener
        self._probes: dict[int, asyncio.Task[bool]] = {}

    def leaders_to_try(self, topics: Iterable[str]) -> list[int]:
        """Who leads these topics, other than ourselves."""
        image = self._cluster.image
        found = {
            partition.leader
            for name in topics
            if (topic := image.topics.get(name)) is not None
            for partition in topic.partitions
        }
        return sorted(id for id in found if id >= 0 and id != self._node_id)

    async def wait_for_elections(self, leaders: list[int]) -> None:
        """Return at once if all are alive, else when the dead ones are fenced, or the time is over."""
        refused = await asyncio.gather(*(self._is_refused(id) for id in leaders))
        dead = [id for id, gone in zip(leaders, refused, strict=True) if gone]
        if not dead:
            return

        def are_fenced(image: MetadataImage) -> bool:
            return not any(image.is_alive(id) for id in dead)

        try:
            await asyncio.wait_for(self._cluster.wait_for(are_fenced), ELECTION_TIMEOUT_S)
        except TimeoutError:
            return

    async def _is_refused(self, id: int) -> bool:
        probe = self._probes.get(id)
        if probe is None:
            probe = self._probes[id] = asyncio.get_running_loop().create_task(self._probe(id))
            probe.add_done_callback(lambda _: self._probes.pop(id, None))
        return await asyncio.shield(probe)

    async def _probe(self, id: int) -> bool:
        """Ask until the broker answers, or its address refuses connections."""
        address = self._cluster.address(id, self._listener)
        if address is None:
            return False
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                while True:
                    if await self._answers(address):
                        return False
                    await asyncio.sleep(PROBE_PAUSE_S)
        except ConnectionRefusedError:
            return True
        except OSError:  # a TimeoutError too
            return False

    async def _answers(self, address: BrokerAddress) -> bool:
        """False if the connection was lost before the answer came."""
        if not self._is_plain:
            return await self._stays(address)
        try:
            channel = await Channel.open(self._network, address.host, address.port, "probe")
        except ConnectionResetError:
            return False
        try:
            await channel.negotiate(PROBE_TIMEOUT_S)
        except ConnectionError:
            return False
        except (InvalidFrame, KafkaError):
            return True  # an answer, whatever it says
        finally:
            channel.abort()
        return True

    async def _stays(self, address: BrokerAddress) -> bool:
        """Whether a connection is still open after a while. That of a process that is being killed is not."""
        lost = asyncio.Event()

        def wait(connection: Connection) -> _Waiting:
            return _Waiting(lost)

        try:
            connection = await self._network.connect(address.host, address.port, wait)
        except ConnectionResetError:
            return False
        try:
            return not await is_set_within(lost, PROBE_STAYS_S)
        finally:
            connection.abort()


class _Waiting:
    """Sends nothing, and notes the end."""

    def __init__(self, lost: asyncio.Event) -> None:
        self._lost = lost

    def frame_received(self, frame: memoryview) -> None: ...

    def connection_lost(self, reason: str) -> None:
        self._lost.set()
