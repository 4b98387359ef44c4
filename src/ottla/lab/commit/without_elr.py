"""A node of a cluster without eligible leader replicas (KIP-966), as Kafka's clusters were before.

The product has them in every cluster. Its metadata can do without: `eligible.leader.replicas.version` is 0 then, and an ISR may
hold members that are fenced.
"""

from __future__ import annotations

from ottla.broker.node import Node, new_uuid
from ottla.metadata.features import DEFAULT_LEVELS
from ottla.metadata.image import ELR_FEATURE
from ottla.raft.format import format_directory, is_formatted


class NodeWithoutElr(Node):
    async def start(self) -> None:
        """Format the directory first, as `format --feature eligible.leader.replicas.version=0` would."""
        disk, directory = self.runtime.disk, self.settings.metadata_log_dir
        if not is_formatted(disk, directory):
            assert self.settings.cluster_id is not None
            format_directory(
                disk,
                directory,
                cluster_id=self.settings.cluster_id,
                node_id=self.settings.node_id,
                directory_id=new_uuid(self.runtime),
                voters=None,
                features={**DEFAULT_LEVELS, ELR_FEATURE: 0},
            )
        await super().start()
