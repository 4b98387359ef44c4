"""Is an acknowledged record lost? P29's loss scenario and random schedules, under each truncation design."""

from __future__ import annotations

from ottla.lab.truncation.search import SeedOutcome
from ottla.lab.truncation.study import TruncationStudy
from ottla.lab.truncation.timelines import PlayedScenario


def lost_in_seed(outcome: SeedOutcome) -> int:
    return len(outcome.lost)


def lost_in_scenario(played: PlayedScenario) -> int:
    return len(played.lost)


def contradictions(played: dict[tuple[str, str], PlayedScenario]) -> list[str]:
    """The documents' telling of the loss has no new epoch and no restart."""
    promotion = played.get(("promotion", "hw-truncation"))
    if promotion is None or promotion.lost:
        return []
    return [
        "Without leader epochs, document 001 says, a follower that is promoted when its leader dies deletes what lies above its own "
        "high watermark. Played as told (scenario promotion), hw-truncation loses 0 records: a replica truncates when it "
        "begins to follow, not when it is elected. The loss needs a restart or a new epoch in between (scenario loss)."
    ]


EXPERIMENT = TruncationStudy(
    name="loss",
    title="Acknowledged records that are lost",
    question="Which truncation rule loses a record that was acknowledged with acks=all?",
    promises=("P29", "P44"),
    scenarios=("loss", "promotion"),
    counted="records lost",
    verb="loses acknowledged records",
    in_seed=lost_in_seed,
    in_scenario=lost_in_scenario,
    must_break=(("loss", "hw-truncation"),),
    contradictions=contradictions,
).experiment()
