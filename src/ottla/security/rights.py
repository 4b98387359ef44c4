"""What one principal may do from one address: what handlers ask. It remembers decisions until the ACLs change."""

from __future__ import annotations

from typing import Final

from ottla.security.authorizer import Authorizer
from ottla.security.operations import CLUSTER_NAME, SUPPORTED, AclOperation, ResourceType
from ottla.security.principals import Principal

REMEMBERED_MAX: Final = 4096


class Rights:
    """Of a connection, or of the client whose request a broker passes on. Without an authorizer there is none (None):
    then everything is allowed, and nothing is asked."""

    __slots__ = ("_authorizer", "_generation", "_remembered", "host", "principal")

    def __init__(self, authorizer: Authorizer, principal: Principal, host: str) -> None:
        self.principal = principal
        self.host = host
        self._authorizer = authorizer
        self._generation = authorizer.generation
        self._remembered: dict[tuple[AclOperation, ResourceType, str], bool] = {}

    def may(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        remembered = self._remembered
        if self._generation != self._authorizer.generation or len(remembered) >= REMEMBERED_MAX:
            remembered.clear()
            self._generation = self._authorizer.generation
        question = operation, resource_type, name
        allowed = remembered.get(question)
        if allowed is None:
            verdict = self._authorizer.decide(self.principal, self.host, *question)
            allowed = remembered[question] = verdict.allowed
        return allowed

    def on_behalf_of(self, principal: Principal, host: str) -> Rights:
        """Of the client whose request this principal, a broker, passes on."""
        return Rights(self._authorizer, principal, host)

    def may_cluster(self, operation: AclOperation) -> bool:
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def authorized_operations(self, resource_type: ResourceType, name: str) -> int:
        """Kafka's bit field of all operations that are allowed."""
        return sum(
            1 << operation
            for operation in SUPPORTED[resource_type]
            if self.may(operation, resource_type, name)
        )


def allowed(
    rights: Rights | None, operation: AclOperation, resource_type: ResourceType, name: str
) -> bool:
    return rights is None or rights.may(operation, resource_type, name)


def allowed_on_cluster(rights: Rights | None, operation: AclOperation) -> bool:
    return rights is None or rights.may_cluster(operation)
