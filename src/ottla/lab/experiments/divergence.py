"""Do replicas differ for good? P29's divergence scenario, KIP-279's, and random schedules, under each truncation design."""

from __future__ import annotations

from ottla.lab.truncation.search import SeedOutcome
from ottla.lab.truncation.study import TruncationStudy
from ottla.lab.truncation.timelines import PlayedScenario


def differing_in_seed(outcome: SeedOutcome) -> int:
    return outcome.differing


def differing_in_scenario(played: PlayedScenario) -> int:
    return len(played.differing)


def contradictions(played: dict[tuple[str, str], PlayedScenario]) -> list[str]:
    return []


EXPERIMENT = TruncationStudy(
    name="divergence",
    title="Replicas that differ below their high watermark",
    question="Under which truncation rule do replicas keep different records at the same offset?",
    promises=("P29", "P44"),
    scenarios=("divergence", "fast-failover"),
    counted="offsets that differ",
    verb="lets replicas diverge",
    in_seed=differing_in_seed,
    in_scenario=differing_in_scenario,
    must_break=(("divergence", "hw-truncation"), ("fast-failover", "kip101-first")),
    contradictions=contradictions,
).experiment()
