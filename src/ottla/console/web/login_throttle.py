"""How soon somebody may try to log in again: who was refused a few times waits, longer each time.

Both the address and the name are counted: many names from one address, and one name from many addresses. It counts a bounded
number of both, the latest. An attempt is counted as refused until it is let in, so that many at the same time are no way around.

Who was let in from an address before is not made to wait there by those who guess that name elsewhere; and of an address where
as many are let in as are refused, as of an office, nobody waits for the others. Pure.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

FREE: Final = 5
"""Refusals without a wait: people mistype."""
FIRST_WAIT_S: Final = 2.0
WAIT_MAX_S: Final = 300.0
FORGOTTEN_AFTER_S: Final = 900.0
KEPT_MAX: Final = 10_000
DOUBLINGS_MAX: Final = 20
"""More are not counted: they would be no number any more."""


class _Refusals(NamedTuple):
    number: int
    last: float


class LoginThrottle:
    """Times are seconds of a clock that never goes back."""

    def __init__(self) -> None:
        self._refusals: OrderedDict[tuple[str, str], _Refusals] = OrderedDict()
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()
        """Addresses, and names that were let in there."""

    def wait_s(self, address: str, name: str, now: float) -> float:
        """0: it may be tried now."""
        return max(self._wait(key, now) for key in self._keys(address, name))

    def _keys(self, address: str, name: str) -> tuple[tuple[str, str], ...]:
        of_address = ("address", address)
        return (of_address,) if (address, name) in self._known else (of_address, ("name", name))

    def _wait(self, key: tuple[str, str], now: float) -> float:
        found = self._refusals.get(key)
        if found is None or now - found.last > FORGOTTEN_AFTER_S or found.number < FREE:
            return 0.0
        doublings = min(found.number - FREE, DOUBLINGS_MAX)
        waits = min(FIRST_WAIT_S * float(2**doublings), WAIT_MAX_S)
        return max(0.0, found.last + waits - now)

    def tries(self, address: str, name: str, now: float) -> None:
        """It is a refusal, unless it is let in."""
        for key in self._keys(address, name):
            before = self._refusals.pop(key, None)
            forgets = before is None or now - before.last > FORGOTTEN_AFTER_S
            number = 0 if before is None or forgets else before.number
            self._refusals[key] = _Refusals(number + 1, now)
        while len(self._refusals) > KEPT_MAX:
            self._refusals.popitem(last=False)

    def let_in(self, address: str, name: str) -> None:
        """Whoever knows the password is not the one who guesses. The address may guess other names: of its refusals this attempt
        is forgiven, and one more."""
        if (address, name) not in self._known:
            self._refusals.pop(("name", name), None)
        self._forgive(("address", address), 2)
        self._known.pop((address, name), None)
        self._known[address, name] = None
        if len(self._known) > KEPT_MAX:
            self._known.popitem(last=False)

    def not_tried(self, address: str, name: str) -> None:
        """The cluster did not answer, so nobody knows more than before."""
        for key in self._keys(address, name):
            self._forgive(key, 1)

    def _forgive(self, key: tuple[str, str], number: int) -> None:
        found = self._refusals.get(key)
        if found is not None and found.number > number:
            self._refusals[key] = found._replace(number=found.number - number)
        elif found is not None:
            del self._refusals[key]
