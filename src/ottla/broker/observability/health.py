"""Whether a node lives and whether it is ready, with the reason in words.

A node that does not live needs a restart. One that is not ready is starting, fenced or behind, and will be ready by
itself. A controller that is being elected does not make brokers unready: they serve without one.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.cluster.lifecycle import BrokerState
from ottla.broker.observability.observed import ObservedBroker, ObservedNode
from ottla.log.progress import OpeningProgress


class Health:
    def __init__(self, node: ObservedNode) -> None:
        self._node = node

    def why_dead(self) -> list[str]:
        """Empty if it lives."""
        quorum = self._node.quorum
        if quorum is not None and quorum.failed is not None:
            return [f"it has left the metadata quorum, restart it: {quorum.failed}"]
        return []

    def why_not_ready(self) -> list[str]:
        """Empty if it is ready."""
        dead = self.why_dead()
        if dead:
            return dead
        node = self._node
        quorum, broker = node.quorum, node.broker
        if quorum is None or (node.settings.is_broker and broker is None):
            return ["it is starting"]
        reasons: list[str] = []
        if broker is not None:
            reasons += self._of_broker(broker)
        elif quorum.leader_id is None:
            reasons.append("no controller leads the metadata quorum, as far as it knows")
        if (waits_for := quorum.vote_waits_for) is not None and reasons:
            reasons.append(f"it has no vote in the metadata quorum yet, and waits for {waits_for}")
        if (refusal := quorum.refusal) is not None and reasons:
            reasons.append(refusal)
        behind = quorum.raft.high_watermark - 1 - quorum.image.offset
        if behind > 0:
            reasons.append(f"it has {behind} committed metadata records to apply")
        return reasons

    def _of_broker(self, broker: ObservedBroker) -> list[str]:
        progress = broker.logs.progress
        if not progress.is_complete:
            return [f"recovering logs: {self.recovery_words()}"]
        lifecycle = broker.lifecycle
        if not lifecycle.ready.is_set():
            state = lifecycle.state
            fenced = "fenced; " if state is BrokerState.RECOVERY else ""
            return [f"{fenced}{state.value}"]
        if lifecycle.is_in_doubt:
            return ["no controller has answered its heartbeats for longer than usual"]
        return []

    @property
    def recovery(self) -> OpeningProgress | None:
        """None on a node without logs."""
        logs = self._node.logs
        return None if logs is None else logs.progress

    def recovery_words(self) -> str:
        """How many logs are recovered, at which rate, and how long it will take."""
        progress = self.recovery
        return "" if progress is None else progress.words(self._node.runtime.clock.monotonic())

    def as_json(self) -> dict[str, Any]:
        why_not = self.why_not_ready()
        recovery = None
        if (progress := self.recovery) is not None:
            now = self._node.runtime.clock.monotonic()
            recovery = {
                "logs": progress.total,
                "recovered": progress.done,
                "per_second": progress.rate(now),
                "seconds_left": progress.seconds_left(now),
            }
        return {
            "live": not self.why_dead(),
            "ready": not why_not,
            "reasons": why_not,
            "recovery": recovery,
        }
