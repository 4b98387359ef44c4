"""What a replica reports to the broker around it: changes that others may wait for.

Nothing in `replica` waits. Whoever waits for a higher end, a higher high watermark or the end of a leadership is
parked by the broker (`broker.replication.purgatory`), which learns of such changes here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ottla.replica.partition import Partition


class News:
    """What changed of a partition. Bits of a plain int: combining those of an enum takes longer than all the rest
    of reporting them."""

    LOG_END = 1
    HIGH_WATERMARK = 2
    ROLE = 4
    ISR_SHRUNK = 8
    LOG_START = 16
    DEPOSED = 32
    """The replica took another role than leader. When this is reported, it may lead again."""
    FOLLOWER = 64
    """A follower's fetch named a lower offset than its fetch before. It may be a late fetch, sent on a connection that
    the follower has closed since. Then only the follower's present session knows the right offset, and a session does
    not look at idle partitions. This news makes it look at the partition again."""
    AWAITED = HIGH_WATERMARK | DEPOSED | ISR_SHRUNK
    """May end the wait for a commit."""


class Observer(Protocol):
    def partition_changed(self, partition: Partition, news: int) -> None:
        """`news` is a set of bits of `News`."""

    def role_changed(self, partition: Partition) -> None:
        """Also when only the leader or the leader epoch is another one."""

    def isr_proposed(self, partition: Partition) -> None:
        """`partition.proposal` is to be sent to the controller."""
