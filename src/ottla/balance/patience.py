"""When a cluster that is out of balance is moved: only if it stays so, since most peaks pass by themselves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Patience:
    after_s: float
    """How long it must have been out of balance without a break."""
    _since: float | None = None

    def look(self, now: float, *, is_out: bool) -> bool:
        """Whether to act now. Afterwards it begins anew."""
        if not is_out:
            self._since = None
            return False
        if self._since is None:
            self._since = now
        if now - self._since < self.after_s:
            return False
        self._since = None
        return True

    def waited_s(self, now: float) -> float:
        return 0.0 if self._since is None else now - self._since
