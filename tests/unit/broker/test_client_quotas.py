"""How long a client must wait: meters, buckets, and which quota holds for whom."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.server import quotas
from ottla.broker.server.quotas import Bucket, ClientQuotas, Meter, Window
from ottla.config import Settings
from ottla.events import Event, Events
from ottla.events.requests import QuotaExceeded
from ottla.security.authorizer import Authorizer
from ottla.security.principals import user
from ottla.security.rights import Rights
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError

SETTINGS = Settings.of(
    {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@127.0.0.1:9093",
    }
)
ANONYMOUS = "ANONYMOUS"
Quotas = Mapping[tuple[tuple[str, str | None], ...], Mapping[str, float]]


class Clients:
    def __init__(self, quotas: Quotas) -> None:
        self.now = 1000.0
        self.emitted: list[Event] = []
        self.events = Events()
        self.events.subscribe(self.emitted.append)
        self.image: Any = SimpleNamespace(client_quotas=quotas)
        self.quotas = ClientQuotas(
            SETTINGS, lambda: self.now, lambda: self.image, events=self.events
        )
        self.quotas.refresh()

    def rate(self, client_id: str, name: str = ANONYMOUS) -> float | None:
        allowed = self.quotas.allowance("producer_byte_rate", name, client_id)
        return None if allowed is None else allowed.rate

    def produce(self, client_id: str, size: int, name: str = ANONYMOUS) -> float:
        return self.handled(client_id, ApiKey.PRODUCE, size, 0.0, name)

    def handled(
        self,
        client_id: str,
        key: ApiKey,
        size: int,
        seconds: float,
        name: str = ANONYMOUS,
        rights: Rights | None = None,
    ) -> float:
        """How long the request was told to wait."""
        waits: list[float] = [0.0]
        request = self.request(client_id, key, name)
        request.throttle, request.rights = waits.append, rights

        def handler(_: Any) -> None:
            self.now += seconds

        self.quotas.handle(request, handler, size)
        return max(waits)

    def request(self, client_id: str, key: ApiKey, name: str = ANONYMOUS) -> Any:
        return SimpleNamespace(
            client_id=client_id,
            header=SimpleNamespace(api_key=key),
            version=1,
            connection=SimpleNamespace(is_follower=False, principal=user(name)),
        )

    def consumable(self, client_id: str) -> int | None:
        return self.quotas.consumable_bytes(self.request(client_id, ApiKey.FETCH))


def test_a_rate_is_measured_over_the_window_and_forgotten_after_it() -> None:
    meter = Meter(Window(11, 1.0))
    meter.record(1000, 0.0)
    assert meter.delay(100.0, 0.0) == 0.0, "ten seconds' worth are free"
    meter.record(500, 0.5)
    assert meter.delay(100.0, 0.5) == pytest.approx(5.0)
    assert meter.delay(100.0, 5.0) == pytest.approx(5.0), "the window is not longer yet"
    assert meter.delay(100.0, 11.0) == 0.0


def test_a_steady_client_under_its_rate_never_waits() -> None:
    meter = Meter(Window(11, 1.0))
    for tenth in range(1000):
        meter.record(9, tenth / 10)
        assert meter.delay(100.0, tenth / 10) == 0.0


def test_who_waits_as_told_gets_its_rate() -> None:
    meter, now, sent = Meter(Window(11, 1.0)), 0.0, 0
    while now < 200.0:
        meter.record(300, now)
        sent += 300
        now += 0.01 + meter.delay(100.0, now)
    assert 95.0 < sent / now < 115.0, "beside the free first seconds"


def test_a_bucket_is_overdrawn_once_and_fills_again() -> None:
    bucket = Bucket(Window(11, 1.0), 2.0, 0.0)
    assert bucket.delay(2.0, 0.0) == 0.0
    bucket.take(30)
    assert bucket.delay(2.0, 0.0) == pytest.approx(4.0)
    assert bucket.delay(2.0, 3.0) == pytest.approx(1.0)
    assert bucket.delay(2.0, 1000.0) == 0.0
    bucket.take(22)
    assert bucket.delay(2.0, 1000.0) == 0.0, "it holds no more than a window's tokens"
    bucket.take(1)
    assert bucket.delay(2.0, 1000.0) == pytest.approx(0.5)


def test_the_most_specific_quota_holds() -> None:
    rates = {
        (("client-id", None),): 8.0,
        (("client-id", "c"),): 7.0,
        (("user", None),): 6.0,
        (("client-id", None), ("user", None)): 5.0,
        (("client-id", "c"), ("user", None)): 4.0,
        (("user", ANONYMOUS),): 3.0,
        (("client-id", None), ("user", ANONYMOUS)): 2.0,
        (("client-id", "c"), ("user", ANONYMOUS)): 1.0,
    }
    quotas: dict[Any, Any] = {}
    for entity, rate in rates.items():
        quotas[entity] = {"producer_byte_rate": rate}
        assert Clients(dict(quotas)).rate("c") == rate
    assert Clients({(("user", "ann"),): {"producer_byte_rate": 9.0}}).rate("c") is None


def test_clients_of_a_default_wait_each_for_itself_and_those_of_a_user_together() -> None:
    each = Clients({(("client-id", None),): {"producer_byte_rate": 10.0}})
    assert each.produce("a", 200) == pytest.approx(10.0)
    assert each.produce("b", 50) == 0.0
    together = Clients({(("user", None),): {"producer_byte_rate": 10.0}})
    together.produce("a", 200)
    assert together.produce("b", 50) == pytest.approx(15.0)


def test_a_quota_that_changes_or_goes_counts_at_once() -> None:
    clients = Clients({(("client-id", "c"),): {"producer_byte_rate": 10.0}})
    assert clients.produce("c", 200) > 0.0
    clients.image = SimpleNamespace(client_quotas={})
    clients.quotas.refresh()
    assert not clients.quotas.active
    clients.image = SimpleNamespace(
        client_quotas={(("client-id", "c"),): {"producer_byte_rate": 1000.0}}
    )
    clients.quotas.refresh()
    assert clients.quotas.active and clients.produce("c", 200) == 0.0


@pytest.fixture
def few_ids(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(quotas, "METERS_MAX", 100)
    return 100


def test_a_user_stays_throttled_however_many_ids_he_comes_under(few_ids: int) -> None:
    clients = Clients(
        {
            (("user", "eve"),): {"producer_byte_rate": 10.0, "controller_mutation_rate": 1.0},
            (("client-id", None),): {"request_percentage": 500.0},
        }
    )
    assert clients.produce("a", 10_000, "eve") > 900.0
    changes = clients.quotas.mutations("eve", "a", is_strict=True)
    assert changes is not None
    changes.permit(1000)
    for number in range(few_ids * 3):
        clients.handled(f"id{number}", ApiKey.METADATA, 50, 0.0, "eve")
        clients.quotas.mutations("bob", f"id{number}", is_strict=True)
    assert clients.produce("a", 1, "eve") > 900.0
    again = clients.quotas.mutations("eve", "b", is_strict=True)
    assert again is not None
    with pytest.raises(KafkaError):
        again.permit(1)


def test_of_many_ids_the_one_that_was_not_heard_of_for_longest_is_forgotten(few_ids: int) -> None:
    clients = Clients({(("client-id", None),): {"producer_byte_rate": 10.0}})
    assert clients.produce("above", 1000) > 0.0
    clients.produce("idle", 90)
    clients.produce("heard of", 90)
    for number in range(few_ids * 3):
        clients.produce(f"id{number}", 1)
        clients.produce("heard of", 0)
    assert clients.produce("above", 1) > 80.0, "never who is above his rate"
    assert clients.produce("heard of", 11) > 0.0
    assert clients.produce("idle", 11) == 0.0
    assert len(clients.quotas._meters) == few_ids


def test_where_all_are_above_their_rates_those_who_come_share_one_rate(few_ids: int) -> None:
    clients = Clients({(("client-id", None),): {"producer_byte_rate": 10.0}})
    for number in range(few_ids):
        assert clients.produce(f"id{number}", 1000) > 0.0
    assert clients.produce("new 1", 60) == 0.0
    assert clients.produce("new 2", 60) > 0.0, "together"
    assert len(clients.quotas._meters) == few_ids + 1
    assert all(clients.produce(f"id{number}", 1) > 0.0 for number in range(few_ids))
    clients.now += 1000.0
    assert clients.produce("new 1", 60) == clients.produce("new 2", 60) == 0.0


def test_time_of_the_broker_is_charged_to_the_next_request_and_never_for_long() -> None:
    clients = Clients({(("client-id", "c"),): {"request_percentage": 1.0}})
    assert clients.handled("c", ApiKey.METADATA, 10, 0.5) == 0.0
    assert clients.handled("c", ApiKey.METADATA, 10, 0.0) == 1.0
    assert clients.handled("d", ApiKey.METADATA, 10, 0.0) == 0.0
    assert clients.handled("c", ApiKey.WRITE_TXN_MARKERS, 10, 0.0) == 0.0, "brokers are exempt"


def test_only_who_may_act_for_the_cluster_is_exempt_as_a_broker() -> None:
    clients = Clients({(("client-id", "c"),): {"request_percentage": 1.0}})
    node, stranger = (
        Rights(Authorizer(["User:node"]), user(name), "h") for name in ("node", "mallory")
    )
    markers = ApiKey.WRITE_TXN_MARKERS
    assert clients.handled("c", ApiKey.METADATA, 10, 0.5) == 0.0
    assert clients.handled("c", markers, 10, 0.0, "node", node) == 0.0
    assert clients.handled("c", markers, 10, 0.0, "mallory", stranger) == 1.0


def test_the_user_of_a_quota_is_the_principal_of_the_connection() -> None:
    clients = Clients(
        {
            (("user", "alice"),): {"producer_byte_rate": 1.0},
            (("client-id", "c"), ("user", "bob")): {"producer_byte_rate": 2.0},
            (("user", None),): {"producer_byte_rate": 3.0},
        }
    )
    assert [clients.rate("c", name) for name in ("alice", "bob", "carol")] == [1.0, 2.0, 3.0]
    assert clients.rate("d", "bob") == 3.0
    assert clients.produce("c", 100, "alice") > 0.0
    assert clients.produce("c", 1, "carol") == 0.0, "another user's bytes do not count"
    assert clients.produce("d", 1, "alice") > 0.0, "all clients of a user share its quota"


def test_changes_are_charged_to_the_user_who_asks_for_them() -> None:
    clients = Clients({(("user", "alice"),): {"controller_mutation_rate": 1.0}})
    changes = clients.quotas.mutations("alice", "c", is_strict=True)
    assert changes is not None
    changes.permit(1000)
    assert clients.quotas.mutations("bob", "c", is_strict=True) is None
    again = clients.quotas.mutations("alice", "d", is_strict=True)
    assert again is not None
    with pytest.raises(KafkaError):
        again.permit(1)
    (event,) = clients.emitted
    assert isinstance(event, QuotaExceeded) and (event.user, event.client_id) == ("alice", "d")


def test_an_answer_holds_no_more_than_a_window_allows() -> None:
    clients = Clients({(("client-id", "c"),): {"consumer_byte_rate": 1000.0}})
    assert clients.consumable("c") == 10_000
    assert clients.consumable("d") is None


def test_changes_beyond_the_quota_are_refused_or_delayed() -> None:
    clients = Clients({(("client-id", "c"),): {"controller_mutation_rate": 1.0}})
    strict = clients.quotas.mutations(ANONYMOUS, "c", is_strict=True)
    assert strict is not None
    strict.permit(15)
    assert strict.delay == 0.0, "what is begun within the quota is done"
    with pytest.raises(KafkaError) as refused:
        strict.permit(1)
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert strict.delay == pytest.approx(4.0)
    old = clients.quotas.mutations(ANONYMOUS, "c", is_strict=False)
    assert old is not None
    old.permit(1)
    assert old.delay == pytest.approx(5.0)
    assert clients.quotas.mutations(ANONYMOUS, "d", is_strict=True) is None


def test_a_throttled_request_is_an_event() -> None:
    clients = Clients({(("client-id", "c"),): {"producer_byte_rate": 100.0}})
    assert clients.produce("c", 500) == 0.0
    assert clients.emitted == []
    throttle_s = clients.produce("c", 1000)
    assert throttle_s > 0.0
    (event,) = clients.emitted
    assert isinstance(event, QuotaExceeded)
    assert event == QuotaExceeded("c", "producer_byte_rate", 100.0, throttle_s, event.measured)
    assert event.measured is not None and event.measured > 100.0


def test_a_refused_change_of_the_cluster_is_an_event() -> None:
    clients = Clients({(("client-id", "c"),): {"controller_mutation_rate": 1.0}})
    first = clients.quotas.mutations(ANONYMOUS, "c", is_strict=True)
    assert first is not None
    first.permit(1000)
    assert clients.emitted == []
    second = clients.quotas.mutations(ANONYMOUS, "c", is_strict=True)
    assert second is not None
    with pytest.raises(KafkaError):
        second.permit(1)
    assert clients.emitted == [QuotaExceeded("c", "controller_mutation_rate", 1.0, second.delay)]
