"""Plays a scenario of the lab and prints its timeline as JSON: a process of its own, since a simulated cluster borrows the time
of the process that runs it."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import asdict

from ottla.lab.design import Seam, designs_of
from ottla.lab.truncation.scenarios import all_scenarios
from ottla.lab.truncation.timelines import play


def listed() -> dict[str, object]:
    """The scenarios, and the designs under which each can be played."""
    return {
        "scenarios": [{"name": e.name, "title": e.title} for e in all_scenarios().values()],
        "designs": [
            {"name": each.name, "is_product": each.is_product}
            for each in designs_of(Seam.TRUNCATION)
        ],
    }


def main() -> None:
    logging.disable()  # what the simulated nodes log is not the result
    if len(sys.argv) == 1:
        print(json.dumps(listed()))
        return
    _, scenario, design = sys.argv
    designs = {each.name: each for each in designs_of(Seam.TRUNCATION)}
    print(json.dumps(asdict(play(all_scenarios()[scenario], designs[design]).timeline)))


if __name__ == "__main__":
    main()
