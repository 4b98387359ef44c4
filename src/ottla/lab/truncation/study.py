"""One experiment about truncation: what it plays, what it counts, and what it must show.

`loss` and `divergence` are two of these. They play different scenarios, and search the same random schedules for
different things. Schedules are drawn the same for each design; what a run skipped of them is in a column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from ottla.lab.design import Seam, all_designs, design_named, designs_of
from ottla.lab.experiment import Experiment, LabOptions, Run, command_of
from ottla.lab.results import Chart, ExperimentResult, Table
from ottla.lab.truncation.scenarios import all_scenarios
from ottla.lab.truncation.search import SeedOutcome, run_seed
from ottla.lab.truncation.timelines import PlayedScenario, play

SEEDS = 200
SMALL_SEEDS = 5


@dataclass(frozen=True)
class TruncationStudy:
    name: str
    title: str
    question: str
    promises: tuple[str, ...]
    scenarios: tuple[str, ...]
    counted: str
    """What is counted, for the heads of tables: `records lost`."""
    verb: str
    """What a design does if there is something to count: `loses acknowledged records`."""
    in_seed: Callable[[SeedOutcome], int]
    in_scenario: Callable[[PlayedScenario], int]
    must_break: tuple[tuple[str, str], ...]
    """(scenario, design): known from the documents, and the lab must show it."""
    contradictions: Callable[[dict[tuple[str, str], PlayedScenario]], list[str]]

    def experiment(self) -> Experiment:
        return Experiment(
            name=self.name,
            title=self.title,
            question=self.question,
            promises=self.promises,
            designs=truncation_designs,
            default_seeds=SEEDS,
            small_seeds=SMALL_SEEDS,
            runs=self.runs,
            summarize=self.summarize,
        )

    def runs(self, options: LabOptions) -> Sequence[Run]:
        designs = options.designs or truncation_designs()
        played = [Run(play_named, (name, design)) for name in self.scenarios for design in designs]
        return played + [
            Run(run_seed, (design, seed)) for design in designs for seed in options.seeds
        ]

    def summarize(self, options: LabOptions, found: Sequence[Any]) -> ExperimentResult:
        designs = list(options.designs or truncation_designs())
        scripted = [(name, design) for name in self.scenarios for design in designs]
        played: dict[tuple[str, str], PlayedScenario] = dict(
            zip(scripted, found[: len(scripted)], strict=True)
        )
        outcomes: dict[str, list[SeedOutcome]] = {design: [] for design in designs}
        for outcome in found[len(scripted) :]:
            outcomes[outcome.design].append(outcome)
        seeds = options.seeds
        tables = [self._scripted_table(played), self._search_table(outcomes)]
        if len(seeds) == 1:
            tables += [_events_table(each) for (each,) in outcomes.values()]
        return ExperimentResult(
            experiment=self.name,
            question=self.question,
            designs=designs,
            finding=self._finding(outcomes),
            seeds=f"{seeds.start}..{seeds.stop - 1}",
            command=command_of(self.name, options),
            tables=tables,
            charts=[self._chart(outcomes)],
            timelines=[each.timeline for each in played.values()],
            contradictions=self.contradictions(played),
            failed_expectations=[
                *self._not_shown(played),
                *self._not_found(outcomes, seeds),
                *self._wrong_in_the_product(played, outcomes),
            ],
        )

    def _scripted_table(self, played: dict[tuple[str, str], PlayedScenario]) -> Table:
        return Table(
            "Scripted schedules",
            ("scenario", "design", self.counted, "what is there at the end"),
            [
                (name, design, self.in_scenario(each), each.timeline.verdict)
                for (name, design), each in played.items()
            ],
        )

    def _search_table(self, outcomes: dict[str, list[SeedOutcome]]) -> Table:
        rows = []
        for design, of_design in outcomes.items():
            bad = self._bad(of_design)
            rows.append(
                (
                    design,
                    len(of_design),
                    sum(each.faults for each in of_design),
                    sum(each.skipped for each in of_design),
                    sum(each.acknowledged for each in of_design),
                    len(bad),
                    sum(map(self.in_seed, of_design)),
                    sum(each.excused for each in of_design),
                    sum(each.is_stuck for each in of_design),
                    bad[0].seed if bad else None,
                    self._replay(bad[0]) if bad else None,
                )
            )
        heads = ("design", "seeds", "faults", "skipped", "acknowledged", "bad seeds", self.counted)
        more = ("lost with an excuse", "seeds with a stuck replica", "first bad seed", "again")
        return Table(
            "Random schedules, drawn the same for each design",
            (*heads, *more),
            rows,
            f"A fault that is impossible in a run is skipped. A bad seed is a schedule under which the design {self.verb}."
            " A loss has an excuse if the record was written before an election of which the controller says that it may"
            " lose records. A replica is stuck if it never catches up, though nothing hinders it.",
        )

    def _chart(self, outcomes: dict[str, list[SeedOutcome]]) -> Chart:
        return Chart(
            title=f"Schedules under which a design {self.verb}",
            kind="line",
            x_label="random schedules searched",
            y_label=f"of them with {self.counted}",
            series={
                design: list(
                    enumerate(
                        accumulate(int(self.in_seed(each) > 0) for each in of_design), start=1
                    )
                )
                for design, of_design in outcomes.items()
            },
        )

    def _finding(self, outcomes: dict[str, list[SeedOutcome]]) -> str:
        parts = []
        for design, of_design in outcomes.items():
            bad = self._bad(of_design)
            first = f" (first in seed {bad[0].seed})" if bad else ""
            parts.append(f"{design} in {len(bad)} of {len(of_design)}{first}")
        return f"Random schedules under which a design {self.verb}: {', '.join(parts)}."

    def _bad(self, outcomes: list[SeedOutcome]) -> list[SeedOutcome]:
        return [each for each in outcomes if self.in_seed(each)]

    def _replay(self, outcome: SeedOutcome) -> str:
        seeds = range(outcome.seed, outcome.seed + 1)
        return command_of(self.name, LabOptions(seeds, (outcome.design,)))

    # What it must show

    def _not_shown(self, played: dict[tuple[str, str], PlayedScenario]) -> list[str]:
        return [
            f"{design} {self.verb} in the scenario {name}"
            for name, design in self.must_break
            if (name, design) in played and not self.in_scenario(played[name, design])
        ]

    def _not_found(self, outcomes: dict[str, list[SeedOutcome]], seeds: range) -> list[str]:
        """Only if all of the first 200 seeds were searched."""
        if seeds.start > 0 or seeds.stop < SEEDS:
            return []
        broken = {design for _, design in self.must_break}
        return [
            f"{design} {self.verb} within {SEEDS} random schedules"
            for design, of_design in outcomes.items()
            if design in broken and not self._bad(of_design[:SEEDS])
        ]

    def _wrong_in_the_product(
        self,
        played: dict[tuple[str, str], PlayedScenario],
        outcomes: dict[str, list[SeedOutcome]],
    ) -> list[str]:
        scripted = [
            f"{design} has {self.in_scenario(each)} {self.counted} in the scenario {name}"
            for (name, design), each in played.items()
            if design_named(design).is_product and self.in_scenario(each)
        ]
        found = [
            f"{design} has {self.in_seed(each)} {self.counted} in seed {each.seed}"
            + (", and a replica is stuck" if each.is_stuck else "")
            + "".join(f"; {failure}" for failure in each.failures)
            for design, of_design in outcomes.items()
            for each in of_design
            if design_named(design).is_product
            and (self.in_seed(each) or each.is_stuck or each.failures)
        ]
        return scripted + found


def truncation_designs() -> list[str]:
    return [design.name for design in designs_of(Seam.TRUNCATION)]


def play_named(scenario: str, design: str) -> PlayedScenario:
    return play(all_scenarios()[scenario], all_designs()[design])


def _events_table(outcome: SeedOutcome) -> Table:
    title = f"What happened in seed {outcome.seed} under {outcome.design}"
    at_the_end = [f"lost: {', '.join(outcome.lost)}"] if outcome.lost else []
    if outcome.difference:
        at_the_end.append(f"the replicas differ: {outcome.difference}")
    last_s = outcome.events[-1][0]
    return Table(title, ("s", "what"), [*outcome.events, *((last_s, each) for each in at_the_end)])
