"""A secret has a type of its own, so that it cannot be shown by accident.

Passwords and keys reach a node in its settings, and settings are printed, logged, compared and described. A `Secret` is
shown as `[hidden]` by all of these. `reveal` is the one way to its text, and easy to search for.
"""

from __future__ import annotations

from typing import Final, NoReturn

HIDDEN: Final = "[hidden]"


class Secret:
    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def equals(self, text: str) -> bool:
        """In a time that does not tell how much of it is right."""
        from hmac import compare_digest

        return compare_digest(self._text.encode(), text.encode())

    def __repr__(self) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> NoReturn:
        raise TypeError("a secret is compared with its method equals")

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not stored")
