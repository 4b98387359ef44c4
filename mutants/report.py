"""The tables of docs/MUTANTS.md, from the results of the samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from mutants.sample import PACKAGES, package_of

BEGIN, END = "<!-- mutants: begin -->", "<!-- mutants: end -->"
FEW, MANY = 20, 100
"""Seeds."""

Result = dict[str, Any]


class Score(NamedTuple):
    killed: int
    of: int

    def __str__(self) -> str:
        return (
            f"{self.killed} of {self.of}, {100 * self.killed / self.of:.0f} %" if self.of else "–"
        )


def score(results: Iterable[Result], is_killed: Callable[[Result], bool]) -> Score:
    found = list(results)
    return Score(sum(map(is_killed, found)), len(found))


def by_unit(result: Result) -> bool:
    return result["unit"]["killed_by"] is not None


def by_seeds(count: int) -> Callable[[Result], bool]:
    def is_killed(result: Result) -> bool:
        simulator = result["simulator"]
        return simulator["killed_by"] is not None and simulator["seeds"] <= count

    return is_killed


def by_either(result: Result) -> bool:
    return by_unit(result) or by_seeds(MANY)(result)


def tables(samples: dict[int, list[Result]], equivalent: dict[str, str]) -> str:
    parts = [BEGIN]
    for seed, results in samples.items():
        real = [each for each in results if each["id"] not in equivalent]
        parts += [
            f"### Sample {seed}",
            "",
            f"{len(results)} mutants of commit `{results[0]['commit']}`, {len(results) - len(real)} of them equivalent."
            if results
            else "",
            "",
            *_packages(real),
            "",
            *_kinds(real),
            "",
            *_survivors(real),
            "",
            *_equivalents(results, equivalent),
            "",
        ]
    return "\n".join([*parts, END])


def _row(name: str, results: Sequence[Result]) -> str:
    tried = [each for each in results if each.get("simulator")]
    cells = [
        score(results, by_unit),
        score(tried, by_seeds(FEW)),
        score(tried, by_seeds(MANY)),
        score(tried, by_either),
    ]
    return f"| {name} | {' | '.join(map(str, cells))} |"


HEADER = "| unit tests | 20 seeds | 100 seeds | both |"
LINE = "|---|---|---|---|---|"


def _packages(results: Sequence[Result]) -> list[str]:
    rows = [
        _row(f"`{name}`", [each for each in results if package_of(each["path"]) == name])
        for name in PACKAGES
    ]
    return [f"| package {HEADER}", LINE, *rows, _row("**all**", results)]


def _kinds(results: Sequence[Result]) -> list[str]:
    kinds = sorted({each["kind"] for each in results})
    rows = [_row(kind, [each for each in results if each["kind"] == kind]) for kind in kinds]
    return [f"| kind {HEADER}", LINE, *rows]


def _survivors(results: Sequence[Result]) -> list[str]:
    """Those that nobody noticed who was asked."""
    rows = [
        f"| `{each['path']}:{each['line']}` | {each['kind']} | `{short(each['before'])}` | `{short(each['after'])}` | {each['unit']['tests']} |"
        for each in sorted(results, key=lambda each: (each["path"], each["line"]))
        if not by_unit(each) and not (each.get("simulator") and by_seeds(MANY)(each))
    ]
    return [
        f"Nobody noticed {len(rows)}:",
        "",
        "| where | kind | before | after | tests that run it |",
        "|---|---|---|---|---:|",
        *rows,
    ]


def _equivalents(results: Sequence[Result], equivalent: dict[str, str]) -> list[str]:
    found = [each for each in results if each["id"] in equivalent]
    rows = [
        f"| `{each['path']}:{each['line']}` | `{short(each['before'])}` | `{short(each['after'])}` | {equivalent[each['id']]} |"
        for each in found
    ]
    return ["Equivalent:", "", "| where | before | after | why |", "|---|---|---|---|", *rows]


def short(text: str) -> str:
    line = " ".join(text.split()).replace("|", "\\|")
    return line if len(line) <= 60 else f"{line[:59]}…"


def replaced(document: str, text: str) -> str:
    """The document with its tables exchanged."""
    before, _, rest = document.partition(BEGIN)
    _, found, after = rest.partition(END)
    assert found, f"{BEGIN} and {END} are missing"
    return before + text + after
