"""From the ACLs in the metadata to the node's authorizer (Kafka's AclPublisher).

The authorizer follows the image within the call that publishes it: no request is decided by half of a change. Until the
node has read what was committed when it started, its ACLs may be old, and only super users are let through.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Protocol
from uuid import UUID

from ottla.config.node_settings import Settings
from ottla.controller.acls import acl_of
from ottla.metadata.image import Delta, MetadataImage
from ottla.security.acls import Acl
from ottla.security.authorizer import Authorizer

logger = logging.getLogger(__name__)


class AclSource(Protocol):
    """What an AclPublisher needs of the quorum (see `raft_driver`)."""

    on_image: list[Callable[[MetadataImage, Delta], None]]
    on_caught_up: list[Callable[[], None]]


def authorizer_of(settings: Settings) -> Authorizer | None:
    """The node's one authorizer, without ACLs yet; None if the settings name none."""
    if not settings.authorizer_class_name:
        return None
    authorizer = Authorizer(
        settings.super_users,
        allow_everyone_if_no_acl_found=settings.allow_everyone_if_no_acl_found,
    )
    authorizer.is_loaded = False
    return authorizer


class AclPublisher:
    def __init__(self, authorizer: Authorizer, source: AclSource) -> None:
        self._authorizer = authorizer
        self._by_id: dict[UUID, Acl] = {}
        self._times: Counter[Acl] = Counter()
        """How many records say the same. Controllers write each ACL once, but a record is removed by its id."""
        source.on_image.append(self._image_changed)
        source.on_caught_up.append(self._caught_up)

    def _image_changed(self, image: MetadataImage, delta: Delta) -> None:
        if not delta.changed_acls:
            return
        try:
            self._apply(image, delta)
        except Exception:
            # A defect of ours. A right that was taken away must not stay.
            logger.critical(
                "ACLs cannot be read, only super users are let through; restart the node"
            )
            self._authorizer.lost()
            raise

    def _apply(self, image: MetadataImage, delta: Delta) -> None:
        times = self._times
        before: dict[Acl, int] = {}
        for id in delta.changed_acls:
            old = self._by_id.pop(id, None)
            if old is not None:
                before.setdefault(old, times[old])
                times[old] -= 1
            record = image.acls.get(id)
            if record is not None:
                new = self._by_id[id] = acl_of(record)
                before.setdefault(new, times[new])
                times[new] += 1
        self._authorizer.change(
            removed=[acl for acl, count in before.items() if count and not times[acl]],
            added=[acl for acl, count in before.items() if not count and times[acl]],
        )
        for acl in before:
            if not times[acl]:
                del times[acl]

    def _caught_up(self) -> None:
        logger.info("ACLs are read acls=%d", len(self._authorizer.acls))
        self._authorizer.loaded()
