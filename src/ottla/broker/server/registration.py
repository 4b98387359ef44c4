"""Which method answers which API: said where the method is written.

`@serves(ApiKey.METADATA)` marks a handler. `handlers_of` collects the marked methods of the objects that a listener
is made of, once, when the node starts. Dispatch then calls them directly: a request passes nothing of this module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ottla.broker.server.connections import Handler
from ottla.wire.apis import APIS, ApiKey

_SERVED = "_served_apis"

Method = TypeVar("Method", bound=Callable[..., None])


def serves(*keys: ApiKey) -> Callable[[Method], Method]:
    """Marks a method, or the `__call__` of a class with one API, as the handler of these APIs. The method's docstring
    begins with their names and versions; a last sentence `Left out: ...` names what of Kafka's API is not done."""
    assert keys, "a handler serves at least one API"
    assert len(set(keys)) == len(keys), f"an API twice in {keys}"
    for key in keys:
        assert key in APIS, f"{key!r} has no row in wire/apis.py"

    def mark(method: Method) -> Method:
        assert served_by(method) == (), f"{method} is marked already"
        setattr(method, _SERVED, keys)
        return method

    return mark


def served_by(method: Any) -> tuple[ApiKey, ...]:
    """The APIs that a method is marked with."""
    keys: tuple[ApiKey, ...] = getattr(method, _SERVED, ())
    return keys


def handlers_of(*owners: object) -> dict[ApiKey, Handler]:
    """The handlers of a listener: the marked methods of these objects, inherited ones too. Each API has one."""
    handlers: dict[ApiKey, Handler] = {}
    for owner in owners:
        marked = _marked_methods(type(owner))
        assert marked, f"{type(owner).__name__} serves no API"
        for name, keys in marked.items():
            handler: Any = owner if name == "__call__" else getattr(owner, name)
            for key in keys:
                assert key not in handlers, (
                    f"{key!r} has two handlers: {handlers[key]!r} and {handler!r}"
                )
                handlers[key] = handler
    return handlers


def _marked_methods(kind: type) -> dict[str, tuple[ApiKey, ...]]:
    """By name. A method that overrides a marked one serves the same APIs, unless it is marked itself."""
    return {
        name: keys
        for each in reversed(kind.__mro__)
        for name, attribute in vars(each).items()
        if (keys := served_by(attribute))
    }
