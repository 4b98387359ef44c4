"""The checksum of batches, without what its package does when it is imported.

`crc32c` asks for its own version when it is imported, which loads and searches the metadata of all that is installed:
40 ms, a fifth of all that a node imports, and as much in every Python worker of Spark. Its compiled part needs none of it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any

__all__ = ["crc32c"]

COMPILED = "_crc32c"


def _function() -> Callable[..., int]:
    package = find_spec("crc32c")
    places = package.submodule_search_locations if package is not None else None
    found = PathFinder.find_spec(COMPILED, places) if places is not None else None
    if found is None or found.loader is None:  # another version, built in another way
        from crc32c import crc32c

        return crc32c
    module: Any = module_from_spec(found)
    found.loader.exec_module(module)
    function: Callable[..., int] = module.crc32c
    return function


crc32c = _function()
