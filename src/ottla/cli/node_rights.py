"""What a node that joins a secure cluster may do: ACLs of its own, which are taken away when it leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.client import BlockingClient
    from ottla.security.acls import Acl


def _node_rights(id: int) -> list[Acl]:
    """What a node may do in a secure cluster. Those of the first day are super users, by a setting of all of them; that
    cannot change while they run."""
    from ottla.local.certificates import node_principal
    from ottla.security.acls import Acl
    from ottla.security.operations import (
        CLUSTER_NAME,
        AclOperation,
        PatternType,
        Permission,
        ResourceType,
    )

    things = (
        (ResourceType.CLUSTER, CLUSTER_NAME),
        (ResourceType.TOPIC, "*"),
        (ResourceType.GROUP, "*"),
        (ResourceType.TRANSACTIONAL_ID, "*"),
    )
    return [
        Acl(kind, PatternType.LITERAL, name, node_principal(id), "*", AclOperation.ALL, Permission.ALLOW)
        for kind, name in things
    ]  # fmt: skip


def give_rights(blocking: BlockingClient, id: int) -> None:
    from ottla.client.security_admin import SecurityAdmin

    security = SecurityAdmin(blocking.client)
    known = blocking.run(security.acls())
    missing = [acl for acl in _node_rights(id) if acl not in known]
    if missing:
        blocking.run(security.add_acls(missing))


def revoke_rights(blocking: BlockingClient, id: int) -> None:
    from ottla.client.security_admin import SecurityAdmin, exactly

    security = SecurityAdmin(blocking.client)
    known = blocking.run(security.acls())
    gone = [exactly(acl) for acl in _node_rights(id) if acl in known]
    if gone:
        blocking.run(security.remove_acls(gone))
