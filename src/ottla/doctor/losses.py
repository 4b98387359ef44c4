"""Records that are lost: what an unclean election or a truncation took away, and nobody has brought back."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.diagnosis.words import count
from ottla.doctor.finding import Case, FindingSeverity, HealthFinding, Rule
from ottla.losses.manifest import State
from ottla.losses.merge import NamedLoss


def records_lost(case: Case) -> Iterator[HealthFinding]:
    """A copy that is kept aside is deleted after some days, so it is serious until it is recovered."""
    for loss in case.facts.losses:
        if loss.recovered_to is not None:
            continue
        is_certain = loss.end > loss.first
        keepers = sorted({each.broker for each in loss.held_by if each.state is State.KEPT})
        yield HealthFinding(
            "records-lost",
            FindingSeverity.SERIOUS if is_certain and keepers else FindingSeverity.WARNING,
            _what(loss),
            _why(keepers),
            _mend(case, loss) if keepers else case.ottla(f"losses --topic {loss.topic}"),
        )


def _what(loss: NamedLoss) -> str:
    name, end = f"{loss.topic}-{loss.partition}", loss.end
    if end > loss.first:
        lost = count(end - loss.first, "committed record")
        return f"{name} lost {lost} (offsets {loss.first} to {end - 1}): {loss.origin.cause}"
    end = loss.possible_end
    lost = count(end - loss.first, "record")
    return f"{name} may have lost {lost} (offsets {loss.first} to {end - 1}): {loss.origin.cause}"


def _why(keepers: list[int]) -> str:
    if not keepers:
        return "No disk that was asked keeps a copy. What is not written again from its source is gone."
    return (
        f"Broker {', '.join(map(str, keepers))} keeps a copy aside, which is deleted after"
        " ottla.kept.records.retention.ms."
    )


def _mend(case: Case, loss: NamedLoss) -> str:
    copy = f"{loss.topic}-recovered"
    possible = "" if loss.end > loss.first else " --include-possible"
    return (
        f"{case.ottla(f'topics create {copy}')} &&"
        f" {case.ottla(f'recover --topic {loss.topic}-{loss.partition} --to {copy}{possible}')}"
    )


RULES: tuple[Rule, ...] = (records_lost,)
