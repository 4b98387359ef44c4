"""What the broker's sources say of each API: the methods marked with `@serves`, and their docstrings.

Two methods serve many APIs without knowing them: the controller's runs the row of `CONTROLLER_APIS`, a broker's forwards to
it. For these APIs the docstring is that of the function which decides.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from typing import Any

import ottla.broker
from ottla.broker.cluster.controller_channel import ControllerChannel
from ottla.broker.cluster.controller_commands import CONTROLLER_APIS
from ottla.broker.cluster.controller_service import ControllerService
from ottla.broker.server.registration import served_by
from ottla.wire.apis import ApiKey

PASS_ON = (ControllerService._handle, ControllerChannel.forward)

_NAMED = re.compile(r"([A-Z][A-Za-z]+) (\d+)(?:-(\d+))?(?:, )?")
_LEFT_OUT = re.compile(r"Left out: (.+)\.$")


def deciders() -> Iterator[tuple[Callable[..., Any], tuple[ApiKey, ...]]]:
    """What decides on requests, with its APIs."""
    for module in pkgutil.walk_packages(ottla.broker.__path__, "ottla.broker."):
        for _, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if kind.__module__ == module.name:
                for method in vars(kind).values():
                    if served_by(method) and method not in PASS_ON:
                        yield method, served_by(method)
    for key, api in CONTROLLER_APIS.items():
        yield api.decide, (key,)


def named_versions(function: Callable[..., Any]) -> dict[str, tuple[int, int]]:
    """The APIs and versions that a docstring begins with."""
    found = {}
    text = _doc(function)
    at = 0
    while match := _NAMED.match(text, at):
        name, low, high = match.groups()
        found[name] = int(low), int(high or low)
        at = match.end()
    return found


def left_out() -> dict[ApiKey, str]:
    """What of an API is deliberately not done, where something is."""
    found: dict[ApiKey, str] = {}
    for function, keys in deciders():
        if match := _LEFT_OUT.search(_doc(function)):
            for key in keys:
                assert found.setdefault(key, match[1]) == match[1], f"two accounts of {key!r}"
    return found


def _doc(function: Callable[..., Any]) -> str:
    return " ".join((function.__doc__ or "").split())
