"""The rate limit for replicas that catch up, so that a reassignment leaves bandwidth for clients (KIP-73).

A topic lists its throttled replicas as partition:broker pairs, one list for the leader's side and one for the
follower's. A broker has one rate for each side. In-sync replicas are never throttled, so records that producers
wait for are never delayed.
"""

from __future__ import annotations

from ottla.broker.server.quotas import Meter, Window
from ottla.config.node_settings import Settings
from ottla.config.values import LONG_MAX
from ottla.log.room import Level
from ottla.replica.partition import Partition

ALL = "*"
NO_ROOM_REST_S = 0.5
PIECE_S = 0.05
PIECE_BYTES_MIN = 1 << 16


class ReplicationThrottle:
    def __init__(self, settings: Settings) -> None:
        self._node_id = settings.node_id
        self._window = Window(
            settings.replication_quota_window_num, settings.replication_quota_window_size_seconds
        )
        self._sent = Meter(self._window, allows_burst=False)
        self._received = Meter(self._window, allows_burst=False)
        self.limits_leaders = False
        self._leader_rate = LONG_MAX
        self._follower_rate = LONG_MAX

    def set_rates(self, leader: int, follower: int) -> None:
        """Bytes per second; the largest number means no limit."""
        leader, follower = max(leader, 1), max(follower, 1)
        # Measured over the last ten seconds, another rate would at first be made up for: with a burst if it is higher, with a
        # standstill if it is lower. So what was sent counts as if it had been sent at the new rate.
        self._sent.scale(leader / self._leader_rate)
        self._received.scale(follower / self._follower_rate)
        self._leader_rate, self._follower_rate = leader, follower
        self.limits_leaders = self._leader_rate != LONG_MAX

    @property
    def limits_followers(self) -> bool:
        return self._follower_rate != LONG_MAX

    # -- as leader

    def allowance(self, partition: Partition, replica: int, now: float) -> int:
        """How many bytes of the partition this follower gets at once; 0 if it is held back. Small pieces, so that producers
        never wait for a large one."""
        if not self._counts(partition, replica):
            return LONG_MAX
        if self._sent.delay(self._leader_rate, now) > 0.0:
            return 0
        return max(PIECE_BYTES_MIN, int(self._leader_rate * PIECE_S))

    def sent(self, partition: Partition, replica: int, size: int, now: float) -> None:
        if self._counts(partition, replica):
            self._sent.record(size, now)

    def _counts(self, partition: Partition, replica: int) -> bool:
        leadership = partition.leadership
        # The high watermark waits for a follower as soon as it is proposed.
        isr = partition.isr if leadership is None else leadership.isr_changes.maximal_isr
        return replica not in isr and self._is_named(
            partition.log.config.leader_throttled_replicas, partition
        )

    # -- as follower

    def rest(self, partition: Partition, received: int, now: float, is_behind: bool) -> float:
        """Seconds to wait before the next fetch of the partition, after receiving this many bytes. Also while the disk has no
        room for more. Who `is_behind` lacks committed records. Who does not is about to be proposed for the ISR, and then
        producers wait for it."""
        if partition.log.room.level is Level.NONE:
            return NO_ROOM_REST_S
        if (
            not self.limits_followers
            or self._node_id in partition.isr
            or not self._is_named(partition.log.config.follower_throttled_replicas, partition)
        ):
            return 0.0
        self._received.record(received, now)
        return self._received.delay(self._follower_rate, now) if is_behind else 0.0

    def _is_named(self, replicas: tuple[str, ...], partition: Partition) -> bool:
        return ALL in replicas or f"{partition.partition}:{self._node_id}" in replicas
