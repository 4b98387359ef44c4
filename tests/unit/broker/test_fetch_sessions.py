"""Which session a fetch goes on with, where there are fewer slots than fetchers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from ottla.broker.apis.fetch import FetchHandler
from ottla.config import Settings
from ottla.replica.sessions import INITIAL_EPOCH, NO_SESSION
from ottla.security.principals import ANONYMOUS
from ottla.sim.engine.world import World
from ottla.wire.fetch_messages import FetchRequest

ONE_SLOT = Settings.of(
    {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": "PLAINTEXT://a:9092,CONTROLLER://a:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@a:9093",
        "log.dirs": "/data",
        "max.incremental.fetch.session.cache.slots": "1",
    }
)


NO_QUOTAS: Any = SimpleNamespace(active=False)


class Connection:
    def __init__(self) -> None:
        self.on_close: list[Any] = []
        self.rights = None
        self.principal = ANONYMOUS


def test_a_fetcher_that_begins_anew_leaves_its_session_though_every_slot_is_taken() -> None:
    """Seed 734: a second full fetch overtook the first and got no slot; the follower went on with the first
    session, which did not know the partition that only the second named, and was never sent its records."""
    with World(1) as world:
        replicas: Any = SimpleNamespace(unwatch=lambda *_: None)
        cluster: Any = SimpleNamespace()
        handler = FetchHandler(
            ONE_SLOT, world.node("a").runtime, replicas, cluster, NO_QUOTAS, NO_QUOTAS
        )
        follower: Any = SimpleNamespace(connection=Connection())
        other: Any = SimpleNamespace(connection=Connection())
        anew = FetchRequest(replica_id=2, session_epoch=INITIAL_EPOCH)
        first = handler._session(follower, anew, 0.0)._session.id
        assert first != NO_SESSION
        assert handler._session(other, anew, 0.0)._session.id == NO_SESSION
        second = handler._session(follower, anew, 0.0)._session.id
        assert second not in (NO_SESSION, first) and list(handler._live) == [second]


def test_a_session_that_has_to_make_room_answers_its_parked_fetch_first() -> None:
    """Else a full fetch would be answered without the partitions that it named (seed 37)."""
    with World(1) as world:
        replicas: Any = SimpleNamespace(unwatch=lambda *_: None)
        handler = FetchHandler(
            ONE_SLOT,
            world.node("a").runtime,
            replicas,
            cast(Any, SimpleNamespace()),
            NO_QUOTAS,
            NO_QUOTAS,
        )
        consumer: Any = SimpleNamespace(connection=Connection())
        watch = handler._session(consumer, FetchRequest(session_epoch=INITIAL_EPOCH), 0.0)
        known: Any = {("t", 0): "what it asked for"}
        watch._session.partitions.update(known)
        answered: list[Any] = []
        watch._parked = cast(
            Any,
            SimpleNamespace(complete=lambda: answered.append(dict(watch._session.partitions))),
        )
        follower: Any = SimpleNamespace(connection=Connection())
        handler._session(follower, FetchRequest(replica_id=2, session_epoch=INITIAL_EPOCH), 0.0)
        assert answered == [known]
