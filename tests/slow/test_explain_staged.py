"""Twelve staged situations, each on a cluster of its own: `ottla explain` names the cause and the remedy.

docs/EXPLAIN.md shows what it says. This file writes the examples there, all of them or those whose titles are given:
`PYTHONPATH=src:tests .venv/bin/python tests/slow/test_explain_staged.py [TITLE …]`.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

import pytest

from support.staged import STAGES, Stage, explanation_of, heal, staged

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "EXPLAIN.md"


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.title)
def test_a_reader_finds_cause_and_remedy(stage: Stage, tmp_path: Path) -> None:
    with staged(stage, tmp_path / "cluster") as (cluster, name):
        text = explanation_of(stage, cluster, name)
        if stage.heals:
            heal(cluster, name, stage.heals)
    headline = text.splitlines()[0]
    assert headline.endswith("."), "a sentence"
    assert "What to do:" in text and "Nothing." not in text


def normalised(text: str, directory: Path) -> str:
    """Without what differs from run to run on one machine, and from machine to machine."""
    text = text.replace(f" --dir {directory}", "").replace(str(directory), "/data")
    ports = dict.fromkeys(re.findall(r"127\.0\.0\.1:(\d{4,})", text))
    for number, port in enumerate(sorted(ports, key=int)):
        text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{9092 + number}")
    text = re.sub(r"(its process \(|kill -CONT |--pid )\d+", r"\g<1>4711", text)
    return re.sub(r"-[0-9a-f]{8}-[0-9a-f-]{27}", "-…", text)


def write(titles: list[str]) -> None:
    """The examples of the page, between their marks; what stands around them is kept."""
    page = PAGE.read_text()
    for stage in [each for each in STAGES if not titles or each.title in titles]:
        with (
            tempfile.TemporaryDirectory() as place,
            staged(stage, Path(place) / "cluster") as (cluster, name),
        ):
            assert cluster.directory is not None
            text = normalised(explanation_of(stage, cluster, name), cluster.directory)
        begin, end = f"<!-- {stage.title}: begin -->", f"<!-- {stage.title}: end -->"
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        shown = f"\n\n```\n$ ottla explain {name}\n{text.rstrip()}\n```\n\n"
        page = f"{before}{begin}{shown}{end}{after}"
        print(stage.title, file=sys.stderr)
    PAGE.write_text(page)


if __name__ == "__main__":
    write(sys.argv[1:])
