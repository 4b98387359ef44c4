"""What of a query's WHERE clause decides which offsets are fetched at all.

Conditions on topic, partition and offset are met exactly here, and Spark need not look again. One on the timestamp only says
where reading begins: timestamps need not rise with offsets, so Spark checks every row. Everything else is left to Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from ottla.spark.read.splits import Range

_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "EqualTo": lambda found, value: found == value,
    "EqualNullSafe": lambda found, value: found == value,
    "GreaterThan": lambda found, value: found > value,
    "GreaterThanOrEqual": lambda found, value: found >= value,
    "LessThan": lambda found, value: found < value,
    "LessThanOrEqual": lambda found, value: found <= value,
    "In": lambda found, value: found in value,
}
_NEVER_NULL: Final = ("topic", "partition", "offset", "timestamp", "timestampType")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class Narrowing:
    """The conditions that were taken, applied to ranges."""

    places: list[tuple[str, str, Any]]
    """(column, comparison, value) over topic or partition."""
    first: int = 0
    behind: int = 1 << 63
    """Offsets from `first` up to, not including, `behind`."""
    since_ms: int | None = None
    """No earlier timestamp is wanted."""

    def of_places(self, ranges: Iterable[Range]) -> list[Range]:
        """Without partitions and offsets that nobody wants."""
        return [
            each._replace(start=start, end=end)
            for each in ranges
            if all(
                _COMPARISONS[comparison](getattr(each, column), value)
                for column, comparison, value in self.places
            )
            and (end := min(each.end, self.behind)) > (start := max(each.start, self.first))
        ]

    def take(self, condition: Any) -> bool:
        """Whether it is met exactly from now on. `condition` is one of pyspark.sql.datasource."""
        comparison = type(condition).__name__
        (column, *deeper) = getattr(condition, "attribute", None) or ("",)
        if deeper:
            return False
        if comparison == "IsNotNull":
            return column in _NEVER_NULL
        value = getattr(condition, "value", None)
        if comparison not in _COMPARISONS or value is None:
            return False
        if column in ("topic", "partition"):
            self.places.append((column, comparison, value))
            return True
        if column == "offset":
            return self._take_offset(comparison, value)
        if column == "timestamp" and isinstance(value, datetime):
            self._take_time(comparison, value)
        return False

    def _take_offset(self, comparison: str, value: Any) -> bool:
        match comparison:
            case "EqualTo" | "EqualNullSafe":
                low, high = value, value + 1
            case "GreaterThan":
                low, high = value + 1, self.behind
            case "GreaterThanOrEqual":
                low, high = value, self.behind
            case "LessThan":
                low, high = self.first, value
            case "LessThanOrEqual":
                low, high = self.first, value + 1
            case _:
                present = [each for each in value if each is not None]
                if not present:
                    return False
                low, high = min(present), max(present) + 1
        self.first, self.behind = max(self.first, low), min(self.behind, high)
        return comparison != "In"

    def _take_time(self, comparison: str, value: datetime) -> None:
        if comparison not in ("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual"):
            return
        aware = value if value.tzinfo is not None else value.astimezone()
        since_ms = max(0, (aware - _EPOCH) // timedelta(milliseconds=1))
        self.since_ms = max(self.since_ms or 0, since_ms)
