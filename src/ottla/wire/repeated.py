"""A list that stands in many places of one answer is encoded once.

The answer to a request for five thousand topics has the thirty settings of each of them, mostly the same.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any


class Repeated(list[Any]):
    """Not to be changed once it is in an answer."""

    def __init__(self, values: list[Any]) -> None:
        super().__init__(values)
        self.encoded: dict[Hashable, bytes] = {}
        """By the encoder that made it, which is of one field of one version."""
