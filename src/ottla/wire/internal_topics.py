"""The topics in which Kafka keeps its own state. Their names are part of the protocol: clients and tools use them."""

from __future__ import annotations

from typing import Final
from uuid import UUID

CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
CLUSTER_METADATA_TOPIC_ID: Final = UUID(int=1)
GROUP_METADATA_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
SHARE_GROUP_STATE_TOPIC: Final = "__share_group_state"
EVENT_LOG_TOPIC: Final = "__ottla_events"
"""Ours: what happened in the cluster (`ottla.event_log`)."""
AUDIT_TOPIC: Final = "__ottla_audit"
"""Ours: who logged in, who was denied what, who changed what (`ottla.event_log.audit`)."""

INTERNAL_TOPICS: Final = frozenset(
    {
        GROUP_METADATA_TOPIC,
        TRANSACTION_STATE_TOPIC,
        SHARE_GROUP_STATE_TOPIC,
        EVENT_LOG_TOPIC,
        AUDIT_TOPIC,
    }
)
"""Topics that brokers mark as internal and that only brokers write. `__cluster_metadata` is not served as a topic."""

UNLISTED_TOPICS: Final = frozenset({EVENT_LOG_TOPIC, AUDIT_TOPIC})
"""Topics that are served by name, and are in no list of all topics: tools and tests that list the topics of a cluster
find what they find in Kafka."""

ADMIN_CLIENT_ID: Final = "__admin_client"
"""A client that calls itself so may write into internal topics, as in Kafka."""
