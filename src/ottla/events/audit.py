"""The event of the audit: who logged in, who was refused, who changed what."""

from __future__ import annotations

from ottla.events import Event


class Audited(Event):
    """Somebody logged in or failed to, was denied something, or changed something. Equal ones within a few seconds are
    one, and another that says how many there were."""

    kind: str
    """`login`, `login_failure`, `session_end`, `denial`, `allowed` or `change`."""
    principal: str | None
    """Of a failed login: whom it claimed to be, if it got so far."""
    host: str
    listener: str | None = None
    mechanism: str | None = None
    """`SSL` if a certificate says who it is. None: it did not log in, or another node knows."""
    api: str | None = None
    operation: str | None = None
    resource: str | None = None
    """`Topic:orders`, `Cluster:kafka-cluster`, `User:alice`."""
    allowed: bool = True
    rule: str | None = None
    """Of a decision: the authorizer's rule."""
    cause: str | None = None
    repeated: int = 0
    """How many more equal ones there were."""
