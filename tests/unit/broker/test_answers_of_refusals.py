"""What stands in the fields of an answer beside its error, where clients of Apache Kafka may look at them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from one_node import alone

from ottla.coordinators.groups.group_descriptions import UNKNOWN_OPERATIONS
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode

ABSENT_SINCE = 6
"""The version of DescribeGroups that says of a group that it is not there."""

ONE_OF_EACH = {
    "offsets_topic_num_partitions": "1",
    "offsets_topic_replication_factor": "1",
    "transaction_state_log_num_partitions": "1",
    "transaction_state_log_replication_factor": "1",
    "transaction_state_log_min_isr": "1",
}


def answer(directory: Path, key: ApiKey, fields: dict[str, Any], version: int) -> Any:
    async def asked() -> Any:
        node, channel = await alone(directory, **ONE_OF_EACH)
        try:
            for kind in (0, 1):  # who asks for a coordinator makes its topic
                wanted = {"key_type": kind, "coordinator_keys": ["absent"]}
                await channel.request(ApiKey.FIND_COORDINATOR, wanted, version=4)
            while True:
                said = await channel.request(key, fields, version=version)
                codes = {each.error_code for each in getattr(said, "groups", ())}
                codes |= {each.error_code for each in getattr(said, "transaction_states", ())}
                if not codes & {
                    ErrorCode.COORDINATOR_NOT_AVAILABLE,
                    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                    ErrorCode.NOT_COORDINATOR,
                }:
                    return said
                await asyncio.sleep(0.05)  # until its coordinators have begun
        finally:
            channel.close()
            await node.stop()

    return asyncio.run(asyncio.wait_for(asked(), 60))


def test_a_topic_that_was_not_created_has_no_settings_rather_than_hidden_ones(
    tmp_path: Path,
) -> None:
    wanted = {
        "name": "no name!",
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }
    asked = {"topics": [wanted], "timeout": 5000, "validate_only": False}
    row = answer(tmp_path, ApiKey.CREATE_TOPICS, asked, 7).topics[0]
    assert (row.error_code, row.configs) == (ErrorCode.INVALID_TOPIC_EXCEPTION, ())


def test_no_feature_has_a_result_of_its_own_when_all_are_refused(tmp_path: Path) -> None:
    update = {"feature": "metadata.version", "max_version_level": 999, "upgrade_type": 1}
    asked = {"timeout": 5000, "feature_updates": [update], "validate_only": True}
    said = answer(tmp_path, ApiKey.UPDATE_FEATURES, asked, 1)
    assert (said.error_code, said.results) == (ErrorCode.INVALID_UPDATE_VERSION, ())


def test_nobody_is_said_to_have_rights_on_a_group_that_is_not_there(tmp_path: Path) -> None:
    asked = {"groups": ["absent"], "include_authorized_operations": True}
    group = answer(tmp_path, ApiKey.DESCRIBE_GROUPS, asked, ABSENT_SINCE).groups[0]
    assert group.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert group.authorized_operations == UNKNOWN_OPERATIONS


def test_a_transaction_that_is_not_there_began_at_the_beginning_of_time(tmp_path: Path) -> None:
    asked = {"transactional_ids": ["absent"]}
    found = answer(tmp_path, ApiKey.DESCRIBE_TRANSACTIONS, asked, 0).transaction_states[0]
    assert found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert found.transaction_start_time.timestamp() == 0
