"""What a broker of the lab acts upon: images like the quorum's, made of decisions that came another way."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.broker.cluster.node_channels import DialledNode
from ottla.metadata.image import Delta, MetadataImage
from ottla.metadata.records import MetadataRecord


class PublishedDecisions:
    """A `DecisionSource` without a quorum."""

    failed: Exception | None = None
    kraft_version = 0
    refusal: str | None = None

    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self.image = MetadataImage()
        self.on_image: list[Callable[[MetadataImage, Delta], None]] = []
        self.on_leader: list[Callable[[int | None, int], None]] = []

    def leader_endpoint(self) -> DialledNode | None:
        """There is no quorum, and no leader of one."""

    def publish(self, records: Sequence[MetadataRecord]) -> None:
        self.image, delta = self.image.apply(records, self.image.offset + 1, 0)
        for callback in list(self.on_image):
            callback(self.image, delta)
