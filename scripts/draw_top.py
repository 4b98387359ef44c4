"""Pictures of `ottla top`: a cluster of three brokers under load, of which one is killed; what the terminal shows then."""

from __future__ import annotations

import io
import json
import random
import re
import subprocess
import tempfile
from itertools import groupby
from pathlib import Path

from draw_console import SETTINGS, TOPICS, Load
from rich.console import CONSOLE_SVG_FORMAT, Console
from rich.text import Text

from support.cluster import OTTLA
from support.terminal import Screen, TerminalProgram

SHOWN = Path(__file__).resolve().parent.parent / "docs" / "console"
COLUMNS, ROWS = 130, 18
WARM_UP_S = 60
"""So long the charts have something to show."""
_FONTS = re.compile(r"@font-face \{\{.*?\}\}\s*", re.DOTALL)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        settings = [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")]
        up = _ottla("up", "-n", "3", "--port", "0", "--detach", "--format", "json", *settings, directory=directory)  # fmt: skip
        try:
            for topic, partitions in TOPICS.items():
                _ottla("topics", "create", topic, "-p", str(partitions), directory=directory)
            with Load(json.loads(up)["bootstrap"], random.Random(7)):
                _draw(directory)
        finally:
            _ottla("purge", directory=directory)


def _ottla(*words: str, directory: str) -> str:
    command = [OTTLA, *words, "--dir", f"{directory}/cluster"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _draw(directory: str) -> None:
    command = (OTTLA, "top", "--dir", f"{directory}/cluster")
    with TerminalProgram(*command, columns=COLUMNS, rows=ROWS) as program:
        program.wait_for("3 of 3 brokers")
        rising = re.compile(r"[▁-█]{7}")
        program.wait(
            lambda s: all(rising.search(s.lines[n]) for n in (4, 5, 6)), 2 * WARM_UP_S, "charts"
        )
        _ottla("nodes", "kill", "2", directory=directory)
        program.wait_for("2 of 3 brokers")
        program.wait(
            lambda s: "fenced" in s.lines[5] and re.search(r" [3-9] s", s.lines[1]),
            20,
            "some seconds",
        )
        _save("top", program.screen)
        program.press("2/orders\r\r")
        program.wait(lambda s: sum("LEO" in line for line in s.lines) == 2, 20, "two replicas")
        program.wait(
            lambda s: "does not answer" in program.text and "Read by" in program.text,
            20,
            "the third",
        )
        program.wait(lambda s: any("−2" in line for line in s.lines), 20, "the ISR")
        _save("top-partition", program.screen)


def _save(name: str, screen: Screen) -> None:
    """Without fonts of another host."""
    console = Console(
        width=COLUMNS,
        record=True,
        file=io.StringIO(),
        force_terminal=True,
        color_system="256",
    )
    text = Text()
    for row in screen.cells:
        for look, cells in groupby(row, key=lambda cell: cell[1]):
            text.append_text(
                Text.from_ansi(f"\x1b[{look}m{''.join(char for char, _ in cells)}\x1b[0m")
            )
        text.append("\n")
    text.rstrip()
    console.print(text, no_wrap=True, overflow="crop")
    SHOWN.mkdir(exist_ok=True)
    svg = console.export_svg(
        title="ottla top", code_format=_FONTS.sub("", CONSOLE_SVG_FORMAT), unique_id=name
    )
    (SHOWN / f"{name}.svg").write_text("\n".join(line.rstrip() for line in svg.split("\n")))


if __name__ == "__main__":
    main()
