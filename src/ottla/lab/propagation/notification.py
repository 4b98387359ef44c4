"""What a controller tells a broker: the decisions about some partitions, and which brokers are alive.

Kafka had a request for each of the two, LeaderAndIsr and UpdateMetadata. Here they are one, so that one notification is
one message.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from ottla.lab.propagation.znodes import (
    PartitionDecision,
    RegisteredBroker,
    decision_of,
    encoded,
)


class Notification(NamedTuple):
    controller_epoch: int
    brokers: tuple[RegisteredBroker, ...]
    decisions: tuple[PartitionDecision, ...]

    def data(self) -> bytes:
        return encoded(
            [self.controller_epoch, self.brokers, [each.to_json() for each in self.decisions]]
        )


def notification_of(data: bytes) -> Notification:
    epoch, brokers, decisions = json.loads(data)
    return Notification(
        epoch,
        tuple(
            RegisteredBroker(id, broker_epoch, tuple((n, h, p) for n, h, p in endpoints))
            for id, broker_epoch, endpoints in brokers
        ),
        tuple(map(decision_of, decisions)),
    )
