"""What one principal may do from one address: what handlers ask. It remembers decisions until the ACLs change."""

from __future__ import annotations

from typing import Final

from ottla.security.authorizer import UNKNOWN, AuthorizationResult, Authorizer, Question, Via
from ottla.security.operations import CLUSTER_NAME, SUPPORTED, AclOperation, ResourceType
from ottla.security.principals import Principal
from ottla.wire.internal_topics import UNLISTED_TOPICS

REMEMBERED_MAX: Final = 4096
DENIED_MAX: Final = 256
"""So many of them are denials. Who has no right at all fills the memory of a connection with nothing else."""
NAME_MAX: Final = 249
"""A longer name is no topic's, and hardly anything else's. It is decided each time."""


CHANGES: Final = frozenset({AclOperation.DELETE, AclOperation.ALTER, AclOperation.ALTER_CONFIGS})
"""What needs ALTER on the cluster as well, if the topic is the audit or the event log."""


class Rights:
    """Of a connection, or of the client whose request a broker passes on. Without an authorizer there is none (None):
    then everything is allowed, and nothing is asked."""

    __slots__ = (
        "_allowed",
        "_authorizer",
        "_denied",
        "_generation",
        "_of_some",
        "_remembered",
        "_tells_allowed",
        "api_key",
        "host",
        "principal",
        "via",
    )

    def __init__(
        self, authorizer: Authorizer, principal: Principal, host: str, via: Via = UNKNOWN
    ) -> None:
        self.principal = principal
        self.host = host
        self.via = via
        """How it came, for the audit."""
        self.api_key = -1
        """Of the request that is handled now, for the audit."""
        self._authorizer = authorizer
        self._generation = -1
        self._tells_allowed = False
        self._remembered: dict[Question, AuthorizationResult] = {}
        self._allowed: set[Question] = set()
        """Those of them that are allowed, unless the audit wants to hear of that: hot paths find out with one look."""
        self._denied = 0
        self._of_some: dict[tuple[AclOperation, ResourceType], bool] = {}

    def may(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Who asks for something by its name is told of in the audit if it is denied."""
        question = operation, resource_type, name
        if question in self._allowed and self._generation == self._authorizer.generation:
            return True
        verdict = self._verdict(question)
        if not verdict.allowed or self._tells_allowed:
            self._tell(question, verdict)
        return verdict.allowed

    def sees(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """The same, for what nobody asked for by its name, or if another right will do as well: no denial is told."""
        question = operation, resource_type, name
        verdict = self._verdict(question)
        if verdict.allowed and self._tells_allowed:
            self._tell(question, verdict)
        return verdict.allowed

    def may_some(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether it may do this with some resource of the type, whichever."""
        if self._generation != self._authorizer.generation:
            self._forget()
        asked = operation, resource_type
        allowed = self._of_some.get(asked)
        if allowed is None:
            allowed = self._authorizer.may_by_type(self.principal, self.host, *asked)
            self._of_some[asked] = allowed
        return allowed

    @property
    def generation(self) -> int:
        """Of the ACLs that decide now. Whoever has asked in an earlier one asks again."""
        return self._authorizer.generation

    @property
    def is_super_user(self) -> bool:
        return str(self.principal) in self._authorizer.super_users

    def on_behalf_of(self, principal: Principal, host: str, api_key: int) -> Rights:
        """Of the client whose request this principal, a broker, passes on."""
        rights = Rights(self._authorizer, principal, host)
        rights.api_key = api_key
        return rights

    def _verdict(self, question: Question) -> AuthorizationResult:
        if self._generation != self._authorizer.generation:
            self._forget()
        verdict = self._remembered.get(question)
        if verdict is None:
            verdict = self._decide(question)
            if len(question[2]) > NAME_MAX:
                return verdict
            if not verdict.allowed:
                if self._denied >= DENIED_MAX:
                    return verdict
                self._denied += 1
            if len(self._remembered) >= REMEMBERED_MAX:
                self._forget()
            self._remembered[question] = verdict
            if verdict.allowed and not self._tells_allowed:
                self._allowed.add(question)
        return verdict

    def _decide(self, question: Question) -> AuthorizationResult:
        verdict = self._authorizer.decide(self.principal, self.host, *question)
        operation, resource_type, name = question
        if (
            verdict.allowed
            and name in UNLISTED_TOPICS
            and resource_type is ResourceType.TOPIC
            and operation in CHANGES
        ):
            # Who may do everything with all topics must not be able to remove what is recorded about him.
            alter_cluster = AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME
            return self._authorizer.decide(self.principal, self.host, *alter_cluster)
        return verdict

    def _forget(self) -> None:
        self._remembered.clear()
        self._allowed.clear()
        self._denied = 0
        self._of_some.clear()
        self._generation = self._authorizer.generation
        audit = self._authorizer.audit
        self._tells_allowed = audit is not None and audit.wants_allowed()

    def _tell(self, question: Question, verdict: AuthorizationResult) -> None:
        audit = self._authorizer.audit
        if audit is not None:
            audit.decided(self.principal, self.host, self.api_key, question, verdict, self.via)

    def may_cluster(self, operation: AclOperation) -> bool:
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def authorized_operations(self, resource_type: ResourceType, name: str) -> int:
        """Kafka's bit field of all operations that are allowed."""
        return sum(
            1 << operation
            for operation in SUPPORTED[resource_type]
            if self._verdict((operation, resource_type, name)).allowed
        )


def allowed(
    rights: Rights | None, operation: AclOperation, resource_type: ResourceType, name: str
) -> bool:
    return rights is None or rights.may(operation, resource_type, name)


def allowed_on_cluster(rights: Rights | None, operation: AclOperation) -> bool:
    return rights is None or rights.may_cluster(operation)
