"""One setting: its name, its kind, its default and what it does, as a field of a dataclass."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

from ottla.config.security_settings import JWKS_ADDRESS, MECHANISM, SECRET
from ottla.config.values import OPTIONAL_TEXT, SELECTOR, SettingKind

T = TypeVar("T")


@dataclass(frozen=True)
class Setting:
    """One row of the table, as found in the metadata of a field of `Settings`."""

    name: str
    kind: SettingKind[Any]
    doc: str
    also: tuple[tuple[str, int], ...] = ()
    """Older or coarser names, best first, each with the factor that makes it the main unit."""

    @property
    def names(self) -> tuple[str, ...]:
        """All names of the setting."""
        return (self.name, *(other for other, _ in self.also))

    @property
    def is_optional(self) -> bool:
        """Whether it may have no value."""
        return self.kind in (OPTIONAL_TEXT, SELECTOR, SECRET, MECHANISM, JWKS_ADDRESS)

    @property
    def is_secret(self) -> bool:
        return self.kind is SECRET

    @property
    def attribute(self) -> str:
        return self.name.replace(".", "_")


def setting(
    name: str,
    kind: SettingKind[T],
    default: T,
    doc: str,
    *,
    also: tuple[tuple[str, int], ...] = (),
) -> T:
    """A field of `Settings`. Typed as the value, because that is what reading the field gives."""
    row = Setting(name, kind, doc, also)
    return field(default=default, metadata={"setting": row})
