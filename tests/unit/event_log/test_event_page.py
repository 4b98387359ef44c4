"""docs/EVENTS.md has the table of kinds that the code has. `python tests/unit/event_log/test_event_page.py` writes it."""

from __future__ import annotations

from pathlib import Path

from ottla.event_log.entry import COMMON
from ottla.event_log.kinds import KINDS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "EVENTS.md"
BEGIN, END = "<!-- kinds: begin -->\n", "<!-- kinds: end -->"


def table() -> str:
    rows = [
        f"| `{name}` | {', '.join(f'`{field}`' for field in kind.fields)} | {kind.meaning} |\n"
        for name, kind in KINDS.items()
    ]
    return "| kind | fields | meaning |\n|---|---|---|\n" + "".join(rows)


def with_table(page: str) -> str:
    head, _, rest = page.partition(BEGIN)
    return head + BEGIN + table() + END + rest.partition(END)[2]


def test_the_page_lists_every_kind_with_its_fields() -> None:
    page = PAGE.read_text()
    assert page == with_table(page), f"run python {Path(__file__).name} to write the table anew"


def test_the_page_explains_what_every_entry_has() -> None:
    page = PAGE.read_text()
    assert [name for name in COMMON if f"| `{name}` |" not in page] == []


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
