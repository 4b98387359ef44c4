"""How decisions reach brokers, in each of the four designs: the brokers are the product's, so they must replicate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from ottla.lab.design import Seam, design_named, designs_of
from ottla.lab.experiment import Experiment, LabOptions
from ottla.lab.experiments import broker_dies, controller_dies
from ottla.lab.experiments.broker_dies import (
    CUT,
    KRAFT,
    PAUSED,
    RECIPE,
    V1,
    V2,
    V3,
    StaleLeaderFigures,
    measure_death,
    measure_notification,
    measure_stale_leader,
)
from ottla.lab.experiments.controller_dies import measure_failover
from ottla.lab.propagation.cluster import (
    BROKERS,
    DETECTION_S_MAX,
    DETECTION_S_MIN,
    GONE,
    KILLED,
    PropagationCluster,
    propagating,
)
from ottla.lab.propagation.elected_controller import ControlledMember
from ottla.lab.propagation.metadata_fetches import MetadataFetches
from ottla.lab.propagation.notification import Notification, notification_of
from ottla.lab.propagation.pinned_producer import PinnedProducer
from ottla.lab.propagation.views import LeaderViews
from ottla.lab.propagation.znodes import isr_path, queue_path, state_path
from ottla.lab.runner import run_experiment
from ottla.wire.types import TopicPartition

DESIGNS = [each.name for each in designs_of(Seam.PROPAGATION)]
THROUGH_ZOOKEEPER = [V1, V2, V3]
PARTITIONS = 6


def eventually(cluster: PropagationCluster, condition: Callable[[], bool]) -> None:
    assert cluster.lab.run_until(condition, 60.0), f"never: {cluster.lab.world.problems()}"


def produce(cluster: PropagationCluster, key: TopicPartition, acks: int = -1) -> PinnedProducer:
    leader = cluster.views.leader(key)
    replica = cluster.lab.replica(leader, key)
    assert replica is not None
    host = cluster.node(leader).host.name
    producer = PinnedProducer(cluster.lab.clients, host, key, replica.topic_id, acks)
    producer.start()
    return producer


def isr(cluster: PropagationCluster, key: TopicPartition) -> set[int]:
    replica = cluster.lab.replica(cluster.views.leader(key), key)
    assert replica is not None
    return set(replica.isr)


def restart(cluster: PropagationCluster, broker: int) -> None:
    cluster.node(broker).start()
    cluster.views.resumed(broker)
    cluster.settle()


def controller_of(cluster: PropagationCluster) -> ControlledMember:
    assert cluster.controller is not None
    member = cluster.member(cluster.controller)
    assert isinstance(member, ControlledMember)
    return member


@pytest.mark.parametrize("design", DESIGNS)
def test_P48_in_every_design_an_acknowledged_record_is_on_all_replicas(design: str) -> None:
    with propagating(1, design_named(design)) as cluster:
        cluster.start(PARTITIONS)
        key = cluster.keys[-1]
        producer = produce(cluster, key)
        eventually(cluster, lambda: len(producer.acknowledged) >= 3)
        values = producer.acknowledged[:3]
        for broker in BROKERS:
            assert [each.value for each in cluster.lab.records_on_disk(broker, key)][:3] == values


@pytest.mark.parametrize("design", DESIGNS)
def test_P47_a_broker_that_dies_and_returns_is_in_sync_again(design: str) -> None:
    with propagating(2, design_named(design)) as cluster:
        cluster.start(PARTITIONS)
        victim = max(id for id in BROKERS if id != cluster.controller)
        led = cluster.views.led_by(victim)[0]
        cluster.kill(victim)
        cluster.settle()
        assert victim not in isr(cluster, led)
        producer = produce(cluster, led, acks=1)
        eventually(cluster, lambda: len(producer.acknowledged) >= 3)
        producer.stop()
        restart(cluster, victim)
        eventually(cluster, lambda: victim in isr(cluster, led))
        kept = {each.value for each in cluster.lab.records_on_disk(victim, led)}
        assert set(producer.acknowledged) <= kept
        assert not cluster.lab.failures and not cluster.lab.world.problems()


@pytest.mark.parametrize("design", THROUGH_ZOOKEEPER)
def test_P45_a_broker_that_stops_gives_its_leaderships_up_at_once(design: str) -> None:
    with propagating(3, design_named(design)) as cluster:
        cluster.start(PARTITIONS)
        victim = max(id for id in BROKERS if id != cluster.controller)
        began = cluster.lab.now
        cluster.node(victim).stop()
        eventually(cluster, lambda: not cluster.node(victim).is_up)
        cluster.views.died(victim)
        cluster.settle()
        assert cluster.lab.now - began < 1.0, "it did not wait for the session timeout"


def test_P45_every_replica_that_lives_is_woken_for_every_partition_of_the_dead_leader() -> None:
    few, more = (measure_death(V1, KILLED, partitions, 0) for partitions in (6, 24))
    for each in (few, more):
        assert each.leader_watch_events == each.led * 2
        assert each.watches >= each.partitions * 3
    assert more.leader_watch_events == 4 * few.leader_watch_events


@pytest.mark.parametrize("how", [PAUSED, CUT])
def test_P45_two_brokers_lead_one_partition_and_the_seed_replays_it(how: str) -> None:
    first, again = (measure_stale_leader(V1, how, PARTITIONS, 4) for _ in range(2))
    assert first == again
    assert 0 < first.window_s < broker_dies.STALE_S, "without the time that it is kept away"
    away_s = 0 if how == PAUSED else broker_dies.STALE_S
    assert first.beside_s == pytest.approx(away_s, abs=0.01)
    assert 0 < first.acknowledged <= first.lost
    assert first.lost_all == 0


def test_P45_v1_is_the_one_with_a_long_window_of_two_leaders_after_a_pause() -> None:
    partitions = broker_dies.STALE_PARTITIONS_SMALL
    figures = {design: measure_stale_leader(design, PAUSED, partitions, 0) for design in DESIGNS}
    v1, others = figures[V1], [figures[design] for design in DESIGNS if design != V1]
    assert v1.window_s >= 20 * figures[KRAFT].window_s

    def failures(of_v1: StaleLeaderFigures, beside: Sequence[StaleLeaderFigures]) -> list[str]:
        return broker_dies._failures([], {}, [replace(of_v1, design=V1), *beside])

    assert failures(v1, others) == []
    for each in others:
        assert failures(each, others), f"{each.design} passes for {V1}"
        assert failures(each, [figures[KRAFT]]), f"{each.design} passes for {V1}"
    assert failures(replace(v1, lost=0), others)


def test_P45_a_replica_that_is_not_in_sync_does_not_take_the_znode() -> None:
    with propagating(5, design_named(V1)) as cluster:
        cluster.start(PARTITIONS)
        key = cluster.keys[0]
        leader = cluster.views.leader(key)
        ready, late = (id for id in BROKERS if id != leader)

        async def leave_out() -> None:
            admin = await cluster.admin()
            await admin.set(isr_path(key), f"[{leader},{ready}]".encode())
            await admin.close()

        cluster.lab.clients.complete(leave_out())
        cluster.kill(leader)
        cluster.settle()
        assert cluster.views.leader(key) == ready != late


def test_P46_a_notification_through_the_queue_takes_6_rpcs_and_leaves_nothing_behind() -> None:
    assert measure_notification(V2, 0).notification_rpcs == 6
    with propagating(0, design_named(V2)) as cluster:
        cluster.start(PARTITIONS)
        cluster.lab.run_for(1.0)
        assert cluster.ensemble is not None and cluster.ensemble.server is not None
        for broker in BROKERS:
            assert cluster.ensemble.server.tree.children(queue_path(broker)) == []


def test_P46_the_queue_of_the_recipes_costs_more_because_a_delete_fires_its_watch() -> None:
    recipe = measure_notification(RECIPE.name, 0)
    assert recipe.notification_rpcs == 6 + 3, (
        "a second watch and listing, and a listing beside the read"
    )


def test_P46_a_broker_that_slept_through_state_changes_does_all_of_them() -> None:
    with propagating(6, design_named(V2)) as cluster:
        cluster.start(PARTITIONS)
        member = controller_of(cluster)
        assert member.controller is not None
        sleeper = max(id for id in BROKERS if id != member.id)
        moved = [key for key in cluster.keys if cluster.views.leader(key) != sleeper]
        cluster.pause(sleeper)
        for key in moved:
            host = cluster.node(member.id).host
            decision = host.complete(member.write_decision(key, sleeper))
            host.complete(member.tell(member.controller.brokers.values(), [decision]))
        cluster.resume(sleeper)
        cluster.settle()
        assert set(moved) <= set(cluster.views.led_by(sleeper))


def test_P47_a_notification_by_the_controller_takes_1_rpc() -> None:
    figures = measure_notification(V3, 0)
    assert figures.notification_rpcs == 1
    assert figures.decision_rpcs == 3, "one read, and one write that goes to two servers"


def test_P47_the_decision_is_in_zookeeper_before_a_broker_knows_it() -> None:
    with propagating(7, design_named(V3)) as cluster:
        cluster.start(PARTITIONS)
        member = controller_of(cluster)
        key = cluster.keys[0]
        other = next(id for id in BROKERS if id != cluster.views.leader(key))
        cluster.node(member.id).host.complete(member.write_decision(key, other))
        assert cluster.ensemble is not None and cluster.ensemble.server is not None
        data, _ = cluster.ensemble.server.tree.get(state_path(key))
        assert member.known(key).with_state(data, 0).leader == other
        assert cluster.views.leader(key) != other


def test_P47_a_former_controller_is_not_obeyed() -> None:
    with propagating(8, design_named(V3)) as cluster:
        cluster.start(PARTITIONS)
        member = controller_of(cluster)
        key = cluster.keys[0]
        leader = cluster.views.leader(key)
        other = next(id for id in BROKERS if id != leader)
        late = member.known(key)._replace(leader=other, leader_epoch=99)
        old = Notification(member.controller_epoch - 1, (), (late,))
        assert notification_of(old.data()) == old
        assert not member.receive(old)
        assert cluster.views.leader(key) == leader


def test_P47_a_new_controller_reads_all_state_and_then_gives_the_dead_ones_partitions_away() -> (
    None
):
    few, many = (measure_failover(V3, KILLED, partitions, 0) for partitions in (10, 100))
    assert many.reads >= 100 and few.reads < 100
    assert many.loaded_s > 2 * few.loaded_s
    with propagating(9, design_named(V3)) as cluster:
        cluster.start(PARTITIONS)
        first = controller_of(cluster)
        led = cluster.views.led_by(first.id)
        cluster.kill(first.id)
        cluster.settle()
        second = controller_of(cluster)
        assert second.controller is not None and first.controller is not None
        assert second.controller.epoch > first.controller.epoch
        assert {cluster.views.leader(key) for key in led} <= set(BROKERS) - {first.id}


def test_P48_a_standby_of_the_quorum_does_not_load_state_when_it_takes_over() -> None:
    few, many = (measure_failover(KRAFT, KILLED, partitions, 0) for partitions in (10, 200))
    assert many.after_notice_s < 3 * few.after_notice_s


@pytest.mark.parametrize(
    ("design", "updates", "rpcs", "wrong"),
    [(KRAFT, 1, 8, 4), (V3, 1, 81, 8), (V2, 24, 367, 8), (V1, 8, 104, 2)],
)
def test_P32_one_notification_per_broker_for_all_partitions(
    design: str, updates: int, rpcs: int, wrong: int
) -> None:
    """In v2 there is one for each partition, in v1 one for each that the dead broker led."""
    figures = measure_death(design, KILLED, 24, 0)
    assert (figures.updates, figures.rpcs, figures.wrong) == (updates, rpcs, wrong)
    assert figures.wrong_s > 0
    after_s = broker_dies.Deaths([figures]).after_detection_s(design, 24)
    assert after_s == figures.settled_s - figures.detected_s > 0.002, "a write, and the network"


def test_P48_the_rpcs_of_a_death_are_those_that_it_caused_whatever_the_quorum_does_else() -> None:
    """Two brokers and two standby controllers fetch the records, and then the high watermark that commits them."""
    assert [measure_death(KRAFT, KILLED, 10, seed).rpcs for seed in range(3)] == [8, 8, 8]
    with propagating(0, design_named(KRAFT)) as cluster:
        cluster.start(PARTITIONS)
        cluster.lab.run_for(5.0)
        hosts = [node.host.name for node in cluster.lab.sim.nodes.values()]
        before = cluster.sent()
        cluster.lab.run_for(10.0)
        quiet = cluster.sent_since(before)
        assert quiet.wire.number_of("fetch") > 100, "the quorum is not silent"
        assert quiet.learnt(hosts) == quiet.asked_of_quorum(hosts) == 0


def test_P48_a_fetch_counts_if_it_brings_a_decision_or_its_commit() -> None:
    fetches = MetadataFetches()
    fetches.answered("a", None, 5)
    assert fetches.counts["a"] == 0, "nothing"
    fetches.answered("a", 7, 5)
    assert fetches.counts["a"] == 1, "a decision"
    fetches.answered("a", None, 6)
    assert fetches.counts["a"] == 1, "it is not committed yet"
    fetches.answered("a", None, 7)
    fetches.answered("a", None, 8)
    assert fetches.counts["a"] == 2, "committed, once"
    fetches.answered("b", 9, 9)
    assert fetches.counts["b"] == 1, "both at once"


@pytest.mark.parametrize("design", DESIGNS)
def test_P48_a_machine_that_is_gone_is_noticed_after_the_same_timeout_in_every_design(
    design: str,
) -> None:
    gone, killed = (measure_death(design, cause, PARTITIONS, 1) for cause in (GONE, KILLED))
    assert DETECTION_S_MIN <= gone.detected_s <= DETECTION_S_MAX
    assert gone.settled_s > gone.detected_s
    if design == KRAFT:
        assert killed.detected_s < 0.1, "it sees that the connection is closed"
    else:
        assert killed.detected_s == pytest.approx(gone.detected_s, abs=0.01)
    late = replace(gone, detected_s=gone.detected_s + 3)
    assert broker_dies._failures([gone], {}, []) == []
    assert len(broker_dies._failures([late], {}, [])) == 1


@pytest.mark.parametrize("design", [KRAFT, V3])
def test_P48_a_controllers_machine_that_is_gone_is_noticed_after_the_same_timeout(
    design: str,
) -> None:
    gone = measure_failover(design, GONE, PARTITIONS, 0)
    assert DETECTION_S_MIN <= gone.detected_s <= DETECTION_S_MAX
    assert controller_dies._failures([], [gone]) == []
    soon = replace(gone, detected_s=2.0)
    assert len(controller_dies._failures([], [soon])) == 1


def test_P45_views_tell_two_leaders_from_one_that_is_not_followed_yet() -> None:
    now = 0.0
    views = LeaderViews((1, 2), lambda: now)
    key = TopicPartition("t", 0)
    views.expect([key])
    views.see(1, key, 1)
    assert not views.is_settled, "broker 2 has not said whom it follows"
    views.see(2, key, 1)
    assert views.is_settled and views.leader(key) == 1
    now = 1.0
    views.see(2, key, 2)
    now = 3.0
    views.see(1, key, 2)
    assert [each.seconds for each in views.split.until(now)] == [2.0]
    assert views.is_settled and views.settled_at == 3.0


@pytest.mark.slow
@pytest.mark.parametrize("experiment", [broker_dies.EXPERIMENT, controller_dies.EXPERIMENT])
def test_P48_the_experiments_show_what_they_must(experiment: Experiment) -> None:
    result = run_experiment(experiment, LabOptions(range(1), is_small=True))
    assert result.failed_expectations == []
    assert {row[0] for row in result.tables[0].rows} == set(result.designs)


def test_P46_an_experiment_that_counts_another_number_of_rpcs_says_so() -> None:
    figures = measure_notification(V3, 0)
    failed = broker_dies._failures([], {V2: figures, V3: figures}, [])
    assert failed == [f"{V2}: 1 RPCs per notification, not 6"]


def test_P46_the_table_says_what_the_numbers_of_rpcs_rest_on() -> None:
    figures = {name: measure_notification(name, 0) for name in (V2, V3, RECIPE.name)}
    title = broker_dies._notification_table(figures).title
    for basis in (
        f"The 6 of {V2} rests on one atomic multi for its two znodes",
        "a leader and one follower, where a write is 2 RPCs",
        "recipe costs 9",
        f"The 1 of {V3} rests on one request that merges LeaderAndIsr and UpdateMetadata",
    ):
        assert basis in title
