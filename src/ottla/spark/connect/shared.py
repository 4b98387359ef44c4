"""Connections that outlive a task: Spark uses its Python workers again, task after task, micro-batch after micro-batch.

Workers are not notified when a query ends, and may go on with other queries. So a connection that no task has used for a
while is closed; a later task connects again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from ottla.spark.connect.cluster import KafkaCluster
from ottla.spark.connect.connection import ConnectionOptions

IDLE_S: Final = 30.0


class _Idle(NamedTuple):
    cluster: KafkaCluster
    timer: threading.Timer


class SharedClusters:
    """At most one for the same options waits to be used again."""

    def __init__(self, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._idle: dict[ConnectionOptions, _Idle] = {}
        self._lock = threading.Lock()

    @contextmanager
    def lent(self, options: ConnectionOptions) -> Iterator[KafkaCluster]:
        with self._lock:
            found = self._idle.pop(options, None)
        if found is None:
            cluster = KafkaCluster(options)
        else:
            found.timer.cancel()
            cluster = found.cluster
        try:
            yield cluster
        finally:
            self._keep(options, cluster)

    def _keep(self, options: ConnectionOptions, cluster: KafkaCluster) -> None:
        def expire() -> None:
            with self._lock:
                # If it is not there, a task uses it again, or it has a newer timer.
                if self._idle.get(options) is not kept:
                    return
                del self._idle[options]
            cluster.close()

        kept = _Idle(cluster, threading.Timer(self._idle_s, expire))
        kept.timer.daemon = True  # a worker that ends does not wait for it
        with self._lock:
            is_first = self._idle.setdefault(options, kept) is kept
        if is_first:
            kept.timer.start()
        else:
            cluster.close()


SHARED: Final = SharedClusters()
"""Of this process."""
