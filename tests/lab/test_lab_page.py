"""docs/LAB.md names all that the lab has, and is what the generator makes of the stored results.

`ottla lab report --from docs/lab/results.json --markdown docs/LAB.md` writes it anew; without `--from`, and in some minutes,
if an experiment or a design is new.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ottla.lab.design import all_designs
from ottla.lab.experiment import all_experiments
from ottla.lab.report.markdown_page import EXAMPLE
from ottla.lab.report.pages import markdown_files, results_of

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
PAGE = DOCS / "LAB.md"
STORED = DOCS / "lab" / "results.json"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
POINT = 0.1
"""Of a drawing. Libraries of other machines may round otherwise."""


def test_P41_P50_the_page_names_every_experiment_and_every_design() -> None:
    page = PAGE.read_text()
    for experiment in all_experiments().values():
        assert f"ottla lab run {experiment.name} " in page and f"## {experiment.title}\n" in page
    for design in all_designs().values():
        assert f"| `{design.name}`" in page and design.summary.replace("|", "\\|") in page


def test_the_stored_results_are_those_of_the_experiments_that_exist() -> None:
    results = results_of(STORED.read_text())
    assert [each.experiment for each in results] == list(all_experiments())
    for each in results:
        assert not each.failed_expectations
        assert set(each.designs) == set(all_experiments()[each.experiment].designs())
        assert "--small" not in each.command


def test_the_page_is_what_the_generator_makes_of_the_stored_results() -> None:
    wanted = markdown_files(results_of(STORED.read_text()), PAGE)
    stale = [path.name for path, text in wanted.items() if not path.exists() or differ(path, text)]
    stale += [each.name for each in STORED.parent.iterdir() if each not in wanted]
    assert not stale, f"out of date: {stale}; {(__doc__ or '').splitlines()[2]}"


def differ(path: Path, text: str) -> bool:
    before = path.read_text()
    if path.suffix != ".svg":
        return before != text
    if NUMBER.sub("#", before) != NUMBER.sub("#", text):
        return True
    places = zip(NUMBER.findall(before), NUMBER.findall(text), strict=True)
    return any(abs(float(one) - float(other)) > POINT for one, other in places)


def test_a_stale_page_and_a_stale_drawing_are_noticed(tmp_path: Path) -> None:
    page, drawing = tmp_path / "p.md", tmp_path / "d.svg"
    page.write_text("1,042 lost")
    drawing.write_text('<path d="M 1 2.04"/>')
    assert differ(page, "1,043 lost") and not differ(page, "1,042 lost")
    assert differ(drawing, '<path d="M 1 9"/>') and not differ(drawing, '<path d="M 1 2.05"/>')


@pytest.mark.parametrize("name", list(all_designs()))
def test_the_file_of_a_design_is_named_as_the_design(name: str) -> None:
    module = __import__(f"ottla.lab.designs.{name.replace('-', '_')}", fromlist=["DESIGN"])
    assert module.DESIGN.name == name


def test_the_example_of_a_design_is_its_source() -> None:
    file = DOCS.parent / "src/ottla/lab/designs" / f"{EXAMPLE.replace('-', '_')}.py"
    assert f"```python\n{file.read_text()}```" in PAGE.read_text()
