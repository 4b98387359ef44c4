"""Temporary replacement of product functions, with which mutations break the product."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple


class Patch(NamedTuple):
    """A function, method or property of the product, and its replacement."""

    owner: Any
    name: str
    replacement: Any


@contextmanager
def patched(patches: Iterable[Patch]) -> Iterator[None]:
    originals: list[Patch] = []
    try:
        for owner, name, replacement in patches:
            # The product must have the name. Otherwise the patch is out of date.
            originals.append(Patch(owner, name, vars(owner)[name]))
            setattr(owner, name, replacement)
        yield
    finally:
        for owner, name, original in reversed(originals):
            setattr(owner, name, original)
