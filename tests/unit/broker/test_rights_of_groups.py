"""What somebody sees of groups and transactions: only what they may know of. And what happens when a right is taken away."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from ruled_node import G, RuledNode, T, X, on_cluster

from ottla.broker.coordination.verification import Verifier
from ottla.security.operations import AclOperation as O
from ottla.wire.apis import ApiKey
from ottla.wire.channel import Channel
from ottla.wire.internal_topics import GROUP_METADATA_TOPIC

OPEN, CLOSED = "open", "closed"


@pytest.fixture(scope="module")
def ruled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RuledNode]:
    ruled = RuledNode(tmp_path_factory.mktemp("ruled"))
    for name in (OPEN, CLOSED):
        topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
        made = ruled.ask(ruled.admin, ApiKey.CREATE_TOPICS, {"topics": [topic], "timeout": 10_000})
        assert made.topics[0].error_code == 0
    for key, key_type in (("any", 0), ("any", 1)):
        asked = {"coordinator_keys": [key], "key_type": key_type}
        found = ruled.ask(ruled.admin, ApiKey.FIND_COORDINATOR, asked)
        assert found.coordinators[0].error_code == 0
    yield ruled
    ruled.close()


def commit(ruled: RuledNode, channel: Channel, group: str, *topics: str) -> dict[str, int]:
    answer = ruled.ask(
        channel,
        ApiKey.OFFSET_COMMIT,
        {
            "group_id": group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": [
                {"name": name, "partitions": [{"partition_index": 0, "committed_offset": 7}]}
                for name in topics
            ],
        },
        version=9,
    )
    return {topic.name: int(topic.partitions[0].error_code) for topic in answer.topics}


def heartbeat(ruled: RuledNode, channel: Channel, group: str, **fields: Any) -> Any:
    joining = {"member_epoch": 0, "rebalance_timeout": 10_000, "topic_partitions": []}
    return ruled.ask(
        channel,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        {"group_id": group, "member_id": "m", **joining, **fields},
    )


def assigned(ruled: RuledNode, answer: Any) -> set[str]:
    assert answer.error_code == 0 and answer.assignment is not None
    quorum = ruled.node.quorum
    assert quorum is not None
    ids: list[UUID] = [each.topic_id for each in answer.assignment.topic_partitions]
    return {quorum.image.topics_by_id[id].name for id in ids}


def test_a_commit_is_refused_for_the_topics_that_one_may_not_read_only(ruled: RuledNode) -> None:
    name = ruled.somebody((G, "partly", O.READ), (T, OPEN, O.READ))
    channel = ruled.log_in(name)
    assert commit(ruled, channel, "partly", OPEN, CLOSED, "absent") == {
        OPEN: 0,
        CLOSED: 29,
        "absent": 29,
    }
    asked = {"groups": [{"group_id": "partly", "topics": None}]}
    found = ruled.ask(ruled.admin, ApiKey.OFFSET_FETCH, asked, version=9)
    assert [topic.name for topic in found.groups[0].topics] == [OPEN]


@pytest.mark.parametrize("version", [7, 9, 10])
def test_all_offsets_of_a_group_are_those_of_topics_that_one_may_know_of(
    ruled: RuledNode, version: int
) -> None:
    assert set(commit(ruled, ruled.admin, "full", OPEN, CLOSED).values()) == {0}
    name = ruled.somebody((G, "full", O.DESCRIBE), (T, OPEN, O.DESCRIBE))
    asked: dict[str, Any] = {"group_id": "full", "topics": None}
    if version >= 8:
        asked = {"groups": [asked]}
    found = ruled.ask(ruled.log_in(name), ApiKey.OFFSET_FETCH, asked, version=version)
    (topic,) = found.groups[0].topics if version >= 8 else found.topics
    assert topic.partitions[0].committed_offset == 7
    if version < 10:
        assert topic.name == OPEN


def test_groups_that_one_may_not_describe_are_not_listed(ruled: RuledNode) -> None:
    for group in ("mine", "theirs"):
        commit(ruled, ruled.admin, group, OPEN)

    def listed(name: str) -> set[str]:
        answer = ruled.ask(ruled.log_in(name), ApiKey.LIST_GROUPS, {})
        assert answer.error_code == 0
        return {group.group_id for group in answer.groups}

    assert listed(ruled.somebody()) == set()
    assert listed(ruled.somebody((G, "mine", O.DESCRIBE))) == {"mine"}
    assert listed(ruled.somebody(on_cluster(O.DESCRIBE))) >= {"mine", "theirs"}


def test_transactions_that_one_may_not_describe_are_not_listed(ruled: RuledNode) -> None:
    for id in ("x-mine", "x-theirs"):
        begun = {"transactional_id": id, "transaction_timeout": 60_000}
        assert ruled.ask(ruled.admin, ApiKey.INIT_PRODUCER_ID, begun).error_code == 0

    def listed(name: str) -> set[str]:
        asked: dict[str, Any] = {"state_filters": [], "producer_id_filters": []}
        answer = ruled.ask(ruled.log_in(name), ApiKey.LIST_TRANSACTIONS, asked)
        assert answer.error_code == 0
        return {each.transactional_id for each in answer.transaction_states}

    assert listed(ruled.somebody()) == set()
    assert listed(ruled.somebody((X, "x-mine", O.DESCRIBE))) == {"x-mine"}


def test_patterns_cost_those_who_see_transactions_and_nobody_elses_is_compiled(
    ruled: RuledNode,
) -> None:
    begun = {"transactional_id": "y-mine", "transaction_timeout": 60_000}
    assert ruled.ask(ruled.admin, ApiKey.INIT_PRODUCER_ID, begun).error_code == 0

    def listed(name: str, pattern: str) -> tuple[int, set[str]]:
        asked: dict[str, Any] = {"state_filters": [], "producer_id_filters": []}
        asked["transactional_id_pattern"] = pattern
        answer = ruled.ask(ruled.log_in(name), ApiKey.LIST_TRANSACTIONS, asked)
        return int(answer.error_code), {each.transactional_id for each in answer.transaction_states}

    nobody, owner = ruled.somebody(), ruled.somebody((X, "y-mine", O.DESCRIBE))
    assert listed(owner, "y-.*") == (0, {"y-mine"})
    assert listed(owner, "(")[0] == 128
    assert listed(nobody, "(") == (0, set())
    hasty = ruled.somebody((X, "y-mine", O.DESCRIBE))
    assert {listed(hasty, "(")[0] for _ in range(60)} == {128, 14}


def begin(
    ruled: RuledNode, channel: Channel, id: str, *topics: str
) -> tuple[dict[str, Any], set[int]]:
    begun = {"transactional_id": id, "transaction_timeout": 60_000}
    producer = ruled.ask(channel, ApiKey.INIT_PRODUCER_ID, begun)
    assert producer.error_code == 0
    who = {
        "transactional_id": id,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
    }
    fields = {f"v3_and_below_{name}": value for name, value in who.items()}
    wanted = [{"name": name, "partitions": [0]} for name in topics]
    added = ruled.ask(
        channel,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        {**fields, "v3_and_below_topics": wanted},
        version=3,
    )
    return who, {
        int(partition.partition_error_code)
        for topic in added.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    }


def test_a_transaction_is_described_without_the_topics_that_one_may_not_know_of(
    ruled: RuledNode,
) -> None:
    _, errors = begin(ruled, ruled.admin, "both", OPEN, CLOSED)
    assert errors == {0}
    name = ruled.somebody((X, "both", O.DESCRIBE), (T, OPEN, O.DESCRIBE))
    asked = {"transactional_ids": ["both", "other"]}
    both, other = ruled.ask(
        ruled.log_in(name), ApiKey.DESCRIBE_TRANSACTIONS, asked
    ).transaction_states
    assert [topic.topic for topic in both.topics] == [OPEN] and other.error_code == 53


def test_no_partition_is_added_if_one_of_them_is_refused(ruled: RuledNode) -> None:
    name = ruled.somebody((X, "some", O.WRITE), (X, "some", O.DESCRIBE), (T, OPEN, O.WRITE))
    channel = ruled.log_in(name)
    assert begin(ruled, channel, "some", OPEN, CLOSED)[1] == {55, 29}
    assert begin(ruled, channel, "some", OPEN, "absent")[1] == {55, 29}
    asked = {"transactional_ids": ["some"]}
    (state,) = ruled.ask(channel, ApiKey.DESCRIBE_TRANSACTIONS, asked).transaction_states
    assert state.topics == ()
    assert begin(ruled, channel, "some", OPEN)[1] == {0}


def test_nobody_adds_an_internal_topic_to_a_transaction(ruled: RuledNode) -> None:
    name = ruled.somebody((X, "deep", O.WRITE), (T, "*", O.ALL))
    assert begin(ruled, ruled.log_in(name), "deep", GROUP_METADATA_TOPIC)[1] == {29}


def test_a_pattern_matches_only_topics_that_its_member_may_know_of(ruled: RuledNode) -> None:
    name = ruled.somebody((G, "pattern", O.READ), (T, OPEN, O.DESCRIBE))
    channel = ruled.log_in(name)
    joined = heartbeat(ruled, channel, "pattern", subscribed_topic_regex="open|closed|__.*")
    assert assigned(ruled, joined) == {OPEN}
    described = ruled.ask(
        ruled.admin, ApiKey.CONSUMER_GROUP_DESCRIBE, {"group_ids": ["pattern"]}
    ).groups[0]
    assert described.error_code == 0 and len(described.members) == 1


def test_a_subscription_that_names_a_hidden_topic_is_refused_as_a_whole(ruled: RuledNode) -> None:
    name = ruled.somebody((G, "named", O.READ), (T, OPEN, O.DESCRIBE))
    channel = ruled.log_in(name)
    for hidden in (CLOSED, "absent"):
        answer = heartbeat(ruled, channel, "named", subscribed_topic_names=[OPEN, hidden])
        assert answer.error_code == 29 and answer.assignment is None
    joined = heartbeat(ruled, channel, "named", subscribed_topic_names=[OPEN])
    assert assigned(ruled, joined) == {OPEN}


def test_a_group_that_reads_a_hidden_topic_shows_no_members(ruled: RuledNode) -> None:
    heartbeat(ruled, ruled.admin, "reads both", subscribed_topic_names=[OPEN, CLOSED])

    def described(*given: Any) -> Any:
        name = ruled.somebody((G, "reads both", O.DESCRIBE), *given)
        asked = {"group_ids": ["reads both"], "include_authorized_operations": True}
        channel = ruled.log_in(name)
        return ruled.ask(channel, ApiKey.CONSUMER_GROUP_DESCRIBE, asked).groups[0]

    hidden = described((T, OPEN, O.DESCRIBE))
    assert (hidden.error_code, hidden.members) == (29, ())
    seen = described((T, OPEN, O.DESCRIBE), (T, CLOSED, O.DESCRIBE))
    assert seen.error_code == 0 and len(seen.members) == 1
    assert seen.authorized_operations == 1 << O.DESCRIBE


@pytest.mark.parametrize(
    ("given", "operations"),
    [
        ([O.DESCRIBE], 1 << 8),
        ([O.READ], 1 << 3 | 1 << 8),
        ([O.DELETE], 1 << 6 | 1 << 8),
        ([O.ALL], 0x0D48),
    ],
)
def test_a_described_group_says_what_one_may_do_with_it(
    ruled: RuledNode, given: list[O], operations: int
) -> None:
    commit(ruled, ruled.admin, "mine", OPEN)
    name = ruled.somebody(*((G, "mine", each) for each in given))
    asked = {"groups": ["mine", "theirs"], "include_authorized_operations": True}
    mine, theirs = ruled.ask(ruled.log_in(name), ApiKey.DESCRIBE_GROUPS, asked, version=5).groups
    assert (mine.error_code, mine.authorized_operations) == (0, operations)
    assert (theirs.error_code, theirs.authorized_operations) == (30, -(2**31))


def test_a_member_whose_right_is_taken_away_is_refused_with_its_next_request(
    ruled: RuledNode,
) -> None:
    name = ruled.somebody((T, OPEN, O.READ))
    right = ruled.allow(name, (G, "leaving", O.READ))
    channel = ruled.log_in(name)
    joined = heartbeat(ruled, channel, "leaving", subscribed_topic_names=[OPEN])
    later = {"member_epoch": joined.member_epoch, "topic_partitions": None}
    assert heartbeat(ruled, channel, "leaving", **later).error_code == 0
    assert commit(ruled, channel, "leaving", OPEN) == {OPEN: 25}, "it would have to name itself"
    ruled.take_away(right)
    assert heartbeat(ruled, channel, "leaving", **later).error_code == 30
    assert commit(ruled, channel, "leaving", OPEN) == {OPEN: 30}
    ruled.allow(name, (G, "leaving", O.READ))
    assert heartbeat(ruled, channel, "leaving", **later).error_code == 0, "it is still a member"


def join(group: str, member_id: str, metadata: bytes) -> dict[str, Any]:
    return {
        "group_id": group,
        "session_timeout": 30_000,
        "rebalance_timeout": 30_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": metadata}],
    }


def test_who_waits_to_join_when_the_right_is_taken_away_learns_nothing_of_the_others(
    ruled: RuledNode,
) -> None:
    right = ruled.allow(name := ruled.somebody(), (G, "parked", O.READ))
    channel, other = ruled.log_in(name), ruled.log_in("ANONYMOUS")
    id = ruled.ask(channel, ApiKey.JOIN_GROUP, join("parked", "", b"mine")).member_id
    joined = ruled.ask(channel, ApiKey.JOIN_GROUP, join("parked", id, b"mine"))
    assert (joined.error_code, joined.leader) == (0, id)
    # A second member has an id, and has not joined yet: the first one waits for it.
    theirs = ruled.ask(other, ApiKey.JOIN_GROUP, join("parked", "", b"secret")).member_id

    async def scenario() -> tuple[Any, Any]:
        async def asked(of: Channel, member: str, metadata: bytes) -> Any:
            fields = join("parked", member, metadata)
            return await of.request(ApiKey.JOIN_GROUP, fields, timeout_s=20)

        waiting = asyncio.create_task(asked(channel, id, b"changed"))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        ruled.take_away(right)
        return await asyncio.gather(waiting, asked(other, theirs, b"secret"))

    refused, _ = ruled.run(scenario())
    assert refused.error_code == 30
    assert not refused.members


def test_a_right_that_is_gone_when_a_transaction_was_verified_commits_no_offsets(
    ruled: RuledNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = ruled.somebody((X, "slow", O.WRITE), (T, OPEN, O.READ), (T, OPEN, O.WRITE))
    right = ruled.allow(name, (G, "slow", O.READ))
    channel = ruled.log_in(name)
    who, errors = begin(ruled, channel, "slow", OPEN)
    assert errors == {0}
    verify = Verifier.verify

    async def verified(*args: Any, **options: Any) -> Any:
        verdicts = await verify(*args, **options)
        ruled.take_away(right)
        return verdicts

    monkeypatch.setattr(Verifier, "verify", verified)
    row = {"name": OPEN, "partitions": [{"partition_index": 0, "committed_offset": 7}]}
    answer = ruled.ask(
        channel,
        ApiKey.TXN_OFFSET_COMMIT,
        {**who, "group_id": "slow", "generation_id": -1, "member_id": "", "topics": [row]},
        version=5,
    )
    assert [int(each.error_code) for each in answer.topics[0].partitions] == [30]


def test_a_transaction_whose_right_is_taken_away_cannot_go_on_or_end(ruled: RuledNode) -> None:
    name = ruled.somebody((T, OPEN, O.WRITE))
    right = ruled.allow(name, (X, "fading", O.WRITE))
    channel = ruled.log_in(name)
    who, errors = begin(ruled, channel, "fading", OPEN)
    assert errors == {0}
    ruled.take_away(right)
    assert ruled.ask(channel, ApiKey.END_TXN, {**who, "committed": True}).error_code == 53
    again = {"transactional_id": "fading", "transaction_timeout": 60_000}
    assert ruled.ask(channel, ApiKey.INIT_PRODUCER_ID, again).error_code == 53
    asked = {"transactional_ids": ["fading"]}
    (state,) = ruled.ask(ruled.admin, ApiKey.DESCRIBE_TRANSACTIONS, asked).transaction_states
    assert state.transaction_state == "Ongoing"


def test_a_denial_wins_over_what_is_allowed(ruled: RuledNode) -> None:
    name = ruled.somebody((G, "*", O.ALL), (T, "*", O.ALL))
    channel = ruled.log_in(name)
    assert commit(ruled, channel, "barred", OPEN) == {OPEN: 0}
    ruled.deny(name, (G, "barred", O.READ))
    assert commit(ruled, channel, "barred", OPEN) == {OPEN: 30}
    assert commit(ruled, channel, "other", OPEN) == {OPEN: 0}
