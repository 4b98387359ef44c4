"""Quotas and feature levels as the controller decides them."""

from __future__ import annotations

import pytest
from controller_world import RANGES, World

from ottla.controller.features import FeatureUpdate, UpgradeType
from ottla.controller.quotas import QuotaChange, QuotaChanges
from ottla.controller.topics import MorePartitions, NewTopic
from ottla.metadata.records import FeatureRange
from ottla.wire.errors import ErrorCode, KafkaError

CLIENT = (("client-id", "loud"),)
BOTH = (("user", "ann"), ("client-id", None))


def change(key: str = "producer_byte_rate", value: float | None = 1000.0) -> QuotaChange:
    return QuotaChange(key, value)


def errors(world: World, *wanted: QuotaChanges) -> list[int]:
    decision = world.controller.alter_client_quotas(wanted)
    return [entry["error_code"] for entry in decision.response["entries"]]


def test_a_quota_is_set_changed_and_removed() -> None:
    world = World(1)
    assert errors(world, QuotaChanges(CLIENT, (change(),)), QuotaChanges(BOTH, (change(),))) == [
        0,
        0,
    ]
    by_type = (("client-id", None), ("user", "ann"))
    assert world.controller.image.client_quotas == {
        CLIENT: {"producer_byte_rate": 1000.0},
        by_type: {"producer_byte_rate": 1000.0},
    }
    same = world.controller.alter_client_quotas([QuotaChanges(CLIENT, (change(),))])
    assert same.records == []
    gone = QuotaChanges(CLIENT, (change(value=None), change("request_percentage", None)))
    assert errors(world, gone) == [0]
    assert CLIENT not in world.controller.image.client_quotas
    assert errors(world, QuotaChanges(BOTH[::-1], (change(value=None),))) == [0]
    assert world.controller.image.client_quotas == {}


@pytest.mark.parametrize(
    ("entity", "changes"),
    [
        ((), (change(),)),
        ((("planet", "mars"),), (change(),)),
        ((("user", "ann"), ("user", "bob")), (change(),)),
        ((("user", ""),), (change(),)),
        ((("ip", "127.0.0.1"),), (change(),)),
        ((("ip", "127.0.0.1"),), (change("connection_creation_rate", 5.5),)),
        ((("ip", "127.0.0.1"),), (change("connection_creation_rate", 2.0**31),)),
        ((("ip", "localhost"),), (change("connection_creation_rate", 5.0),)),
        ((("ip", "127.0.0.1"), ("user", "ann")), (change("connection_creation_rate", 5.0),)),
        (CLIENT, (change("connection_creation_rate"),)),
        (CLIENT, (change("no_such_rate"),)),
        (CLIENT, (change(value=0.0),)),
        (CLIENT, (change(value=-1.0),)),
        (CLIENT, (change(value=1.5),)),
        (CLIENT, (change(value=2.0**63),)),
        (CLIENT, (change(value=float("nan")),)),
        (CLIENT, (change(value=float("inf")),)),
        (CLIENT, (change(), change(value=2.0))),
    ],
)
def test_a_quota_that_means_nothing_is_refused(
    entity: tuple[tuple[str, str | None], ...], changes: tuple[QuotaChange, ...]
) -> None:
    world = World(1)
    assert errors(world, QuotaChanges(entity, changes)) == [ErrorCode.INVALID_REQUEST]
    assert world.controller.image.client_quotas == {}


def test_an_entity_named_twice_is_refused_both_times() -> None:
    world = World(1)
    twice = [QuotaChanges(BOTH, (change(),)), QuotaChanges(BOTH[::-1], (change(value=5.0),))]
    assert errors(world, *twice) == [ErrorCode.INVALID_REQUEST] * 2
    assert world.controller.image.client_quotas == {}


def test_validating_a_quota_writes_nothing() -> None:
    world = World(1)
    wanted = [QuotaChanges(CLIENT, (change(),))]
    assert world.controller.alter_client_quotas(wanted, validate_only=True).records == []
    assert world.controller.image.client_quotas == {}


def test_a_permit_that_is_refused_refuses_one_topic_only() -> None:
    asked: list[int] = []

    def permit(partitions: int) -> None:
        asked.append(partitions)
        if len(asked) > 1:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too much")

    world = World(1)
    wanted = [NewTopic("a", 2, 1), NewTopic("b", 3, 1), NewTopic("a.b/c", 1, 1)]
    rows = world.controller.create_topics(wanted, permit=permit).response["topics"]
    assert [row["error_code"] for row in rows] == [
        0,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    assert asked == [2, 3] and list(world.controller.image.topics) == ["a"]
    more = world.controller.create_partitions([MorePartitions("a", 5)], permit=permit)
    gone = world.controller.delete_topics(["a"], [], permit=permit)
    assert asked[2:] == [3, 2]
    assert more.response["results"][0]["error_code"] == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert gone.response["responses"][0]["error_code"] == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert len(world.controller.image.topics["a"].partitions) == 2


# -- features ---------------------------------------------------------------------------------------------------

GROUPS = FeatureRange(name="group.version", min_supported_version=0, max_supported_version=1)


def update(world: World, name: str, level: int, kind: int = UpgradeType.UPGRADE) -> None:
    world.controller.update_features([FeatureUpdate(name, level, kind)])


def test_a_feature_is_upgraded_and_downgraded_once_all_support_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(1)
    with pytest.raises(KafkaError, match="Broker 1 only supports versions 0-0") as refused:
        update(world, "group.version", 1)
    assert refused.value.code is ErrorCode.INVALID_UPDATE_VERSION
    monkeypatch.setattr("controller_world.RANGES", (*RANGES, GROUPS))
    world = World(1)
    update(world, "group.version", 1)
    assert world.controller.image.features["group.version"] == 1
    update(world, "group.version", 0, UpgradeType.SAFE_DOWNGRADE)
    assert "group.version" not in world.controller.image.features


@pytest.mark.parametrize(
    ("name", "level", "kind"),
    [
        ("no.such.version", 1, UpgradeType.UPGRADE),
        ("share.version", 1, UpgradeType.UPGRADE),
        ("metadata.version", 31, UpgradeType.UPGRADE),
        ("metadata.version", 29, UpgradeType.UPGRADE),
        ("metadata.version", 29, UpgradeType.SAFE_DOWNGRADE),
        ("metadata.version", 29, UpgradeType.UNSAFE_DOWNGRADE),
        ("eligible.leader.replicas.version", 0, UpgradeType.SAFE_DOWNGRADE),
        ("eligible.leader.replicas.version", -1, UpgradeType.SAFE_DOWNGRADE),
        ("eligible.leader.replicas.version", 1, 7),
        ("kraft.version", 2, UpgradeType.UPGRADE),
        ("kraft.version", 1, UpgradeType.SAFE_DOWNGRADE),
    ],
)
def test_a_level_that_cannot_be_is_refused(name: str, level: int, kind: int) -> None:
    world = World(1)
    before = world.controller.image.features
    with pytest.raises(KafkaError) as refused:
        update(world, name, level, kind)
    assert refused.value.code is ErrorCode.INVALID_UPDATE_VERSION
    assert world.controller.image.features == before


def test_the_quorum_is_to_write_its_own_version() -> None:
    world = World(1)
    result = world.controller.update_features([FeatureUpdate("kraft.version", 1, 1)])
    assert result.kraft_version == 1 and not result.records and result.writes
    only_asked = world.controller.update_features(
        [FeatureUpdate("kraft.version", 1, 1)], validate_only=True
    )
    assert not only_asked.writes
    world.quorum.kraft_version = 1
    again = world.controller.update_features([FeatureUpdate("kraft.version", 1, 1)])
    assert not again.writes, "it is so already"


def test_what_the_quorum_refuses_changes_no_other_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller_world.RANGES", (*RANGES, GROUPS))
    world = World(1)
    world.quorum.refusal = KafkaError(ErrorCode.INVALID_UPDATE_VERSION, "voter 3 is silent")
    before = world.controller.image.features
    with pytest.raises(KafkaError, match="voter 3 is silent"):
        world.controller.update_features(
            [FeatureUpdate("group.version", 1, 1), FeatureUpdate("kraft.version", 1, 1)]
        )
    assert world.controller.image.features == before


@pytest.mark.parametrize("kind", [UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE])
def test_voters_in_the_log_stay_there(kind: int) -> None:
    world = World(1)
    world.quorum.kraft_version = 1
    with pytest.raises(KafkaError, match="Can't downgrade the version of this feature"):
        update(world, "kraft.version", 0, kind)


def test_a_feature_named_twice_is_refused() -> None:
    twice = [FeatureUpdate("metadata.version", 30, 1)] * 2
    with pytest.raises(KafkaError) as refused:
        World(1).controller.update_features(twice)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", None])
def test_an_address_has_a_rate_of_new_connections(address: str | None) -> None:
    world = World(1)
    entity = (("ip", address),)
    assert errors(world, QuotaChanges(entity, (change("connection_creation_rate", 5.0),))) == [0]
    assert world.controller.image.client_quotas[entity] == {"connection_creation_rate": 5.0}
