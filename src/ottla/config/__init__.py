"""Settings of nodes, topics and groups: names, kinds, defaults, documentation, sources. Those of a node are in
`table_of_…`, by theme, and become one in `node_settings`.

What a setting does is in the package that reads it."""

from ottla.config.group_settings import GROUP_SETTINGS, GroupSetting, validate_group_config
from ottla.config.node_settings import NAMES, TABLE, Settings
from ottla.config.setting import Setting
from ottla.config.topic_settings import TOPIC_SETTINGS, TopicSetting, validate_topic_config
from ottla.config.values import (
    Address,
    ConfigError,
    ListenerAddress,
    QuorumVoter,
    join_address,
    split_address,
    text_of,
)

__all__ = [
    "GROUP_SETTINGS",
    "NAMES",
    "TABLE",
    "TOPIC_SETTINGS",
    "Address",
    "ConfigError",
    "GroupSetting",
    "ListenerAddress",
    "QuorumVoter",
    "Setting",
    "Settings",
    "TopicSetting",
    "join_address",
    "split_address",
    "text_of",
    "validate_group_config",
    "validate_topic_config",
]
