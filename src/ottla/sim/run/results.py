"""What seeds came to, one JSON object a line, and the table of them all for the documentation.

    {"seed": 7, "verdict": "PASSED", "virtual_s": 62.5, "cpu_s": 1.4, "events": 31415, …}

Lines are appended as seeds end, so that a run of hours that is cut off leaves what it has done; later runs may
be appended to the same file. Of a seed that occurs twice the last line counts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ottla.sim.faults.registry import FAULTS
from ottla.sim.oracle.coverage import RARE
from ottla.sim.run.outcome import RunOutcome, Verdict

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


def line_of(outcome: RunOutcome) -> str:
    """A line, with its end."""
    content = {
        "seed": outcome.seed,
        "verdict": outcome.verdict.name,
        "virtual_s": round(outcome.virtual_s, 3),
        "cpu_s": round(outcome.cpu_s, 3),
        "events": outcome.events,
        "acknowledged": outcome.acknowledged,
        "faults": outcome.faults,
        "rare": outcome.marks,
        "losses": outcome.losses,
        "transactions": outcome.transactions,
        "excused": outcome.excused,
        "hash": outcome.digest,
        "problem": outcome.problem,
    }
    return json.dumps(content) + "\n"


@dataclass
class Results:
    """Lines, added up."""

    verdicts: Counter[str] = field(default_factory=Counter)
    failed: list[int] = field(default_factory=list)
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    events: int = 0
    acknowledged: int = 0
    losses: int = 0
    transactions: int = 0
    excused: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    rare: Counter[str] = field(default_factory=Counter)
    met_by: Counter[str] = field(default_factory=Counter)
    """Kind of fault, or rare state → seeds that met it."""

    @staticmethod
    def read(lines: Iterable[str]) -> Results:
        results = Results()
        by_seed: dict[int, dict[str, Any]] = {}
        for line in lines:
            content = json.loads(line)
            by_seed[content["seed"]] = content
        for _, content in sorted(by_seed.items()):
            results._add(content)
        return results

    def _add(self, content: dict[str, Any]) -> None:
        self.verdicts[content["verdict"]] += 1
        if content["verdict"] != Verdict.PASSED.name:
            self.failed.append(content["seed"])
        self.virtual_s += content["virtual_s"]
        self.cpu_s += content["cpu_s"]
        self.events += content["events"]
        self.acknowledged += content["acknowledged"]
        self.losses += content["losses"]
        self.transactions += content.get("transactions", 0)
        self.excused += content.get("excused", 0)
        for met, counts in ((self.faults, content["faults"]), (self.rare, content["rare"])):
            met.update(counts)
            self.met_by.update(counts.keys())

    def table(self) -> str:
        """As Markdown."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        seeds = self.verdicts.total()
        verdicts = ", ".join(
            f"{self.verdicts[verdict.name]:,} {verdict.name}"
            for verdict in Verdict
            if self.verdicts[verdict.name]
        )
        yield f"**{seeds:,} seeds: {verdicts}.**" + (
            f" Failed: {', '.join(map(str, self.failed))}." if self.failed else ""
        )
        yield ""
        yield "| | |"
        yield "|---|---:|"
        yield f"| virtual hours | {self.virtual_s / 3600:,.1f} |"
        yield f"| virtual seconds a seed | {self.virtual_s / max(seeds, 1):.1f} |"
        yield f"| virtual time : CPU time | {self.virtual_s / max(self.cpu_s, 1e-9):.0f} |"
        yield f"| events | {self.events:,} |"
        yield f"| batches acknowledged | {self.acknowledged:,} |"
        yield f"| losses that the cluster put on record | {self.losses:,} |"
        yield f"| transactions, of which such losses excuse | {self.transactions:,}, {self.excused:,} |"
        yield f"| faults | {self.faults.total():,} |"
        yield ""
        yield "| fault | times | in seeds |"
        yield "|---|---:|---:|"
        for kind in FAULTS:
            yield f"| {kind} | {self.faults[kind]:,} | {self.met_by[kind]:,} |"
        yield ""
        yield "| rare state | times | in seeds |"
        yield "|---|---:|---:|"
        for word in RARE:
            yield f"| {word} | {self.rare[word]:,} | {self.met_by[word]:,} |"


def write_summary(results: Path, document: Path) -> None:
    """Put the table of `results` between the marks in `document`."""
    with results.open() as lines:
        table = Results.read(lines).table()
    before, begin, rest = document.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{document} has no lines {BEGIN} and {END}")
    document.write_text(f"{before}{BEGIN}\n{table}{END}{after}")
