"""Lines of a node's log: text and JSON from the same call, rotation, and what a full disk does."""

from __future__ import annotations

import json
import logging
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.local.node_log import JsonLines, TextLines, quoted

FULL = Path("/dev/full")


def record(format: str, *values: Any) -> logging.LogRecord:
    return logging.LogRecord("ottla.part", logging.INFO, "", 0, format, values, None)


def as_json(format: str, *values: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(JsonLines().format(record(format, *values)))
    return found


def test_a_text_line_is_a_time_a_level_a_fixed_text_and_fields() -> None:
    line = TextLines().format(
        record("ISR changed partition=%s-%d isr=%s cause=%s", "orders", 0, "1,2", "it is slow")
    )
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} INFO .*", line)
    assert line.endswith('ISR changed partition=orders-0 isr=1,2 cause="it is slow"')


def test_a_json_line_has_the_fixed_text_and_typed_fields() -> None:
    line = as_json("ISR changed partition=%s-%d epoch=%d cause=%s", "orders", 0, 7, "it is slow")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("at"))
    assert line == {
        "level": "INFO",
        "logger": "ottla.part",
        "text": "ISR changed",
        "fields": {"partition": "orders-0", "epoch": 7, "cause": "it is slow"},
    }


def test_a_line_of_another_library_is_all_text() -> None:
    assert (
        as_json("Executing %s took %.3f seconds", "x", 0.5)["text"]
        == "Executing x took 0.500 seconds"
    )


@pytest.mark.parametrize("line", [TextLines(), JsonLines()])
@pytest.mark.parametrize("format", ["group is gone group=%s", "What %s did"])
def test_of_a_long_value_a_line_has_the_beginning(line: logging.Formatter, format: str) -> None:
    """A stranger's name fills a frame, and each of its characters may become six."""
    written = line.format(record(format, "\x01" * 1_000_000))
    assert len(written) < 20_000 and "characters)" in written


def test_a_line_without_fields_is_all_text() -> None:
    assert as_json("closing the logs") | {"at": ""} == {
        "at": "",
        "level": "INFO",
        "logger": "ottla.part",
        "text": "closing the logs",
        "fields": {},
    }


def test_a_json_line_keeps_the_trace_of_an_exception() -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        failed = logging.LogRecord("n", logging.ERROR, "", 0, "it failed", (), sys.exc_info())
    line = JsonLines().format(failed)
    assert "\n" not in line
    assert "ValueError: broken" in json.loads(line)["trace"]


@given(st.text())
def test_a_value_stays_on_its_line_and_can_be_read_back(value: str) -> None:
    line = TextLines().format(record("it happened value=%s next=%d", value, 1))
    shown = quoted(value)
    assert len(line.splitlines()) == 1
    assert line.endswith(f"it happened value={shown} next=1")
    assert (json.loads(shown) if shown.startswith('"') else shown) == value


@given(st.text(alphabet=st.characters(codec="ascii", categories=("L", "N", "P")), min_size=1))
def test_a_quoted_value_is_one_word_of_a_shell_like_reader(value: str) -> None:
    if not re.search(r"[\\'\"]", value):
        assert shlex.split(f"a={quoted(value)} b=1", comments=False) == [f"a={value}", "b=1"]


WRITER = """
import logging, sys
from ottla.local.node_log import NodeLog, TextLines, open_log, take_as_output
path, size, backups, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
take_as_output(open_log(path))
log = NodeLog(path, size, backups)
log.setFormatter(TextLines())
logging.root.addHandler(log)
logging.root.setLevel(logging.INFO)
for number in range(count):
    logging.getLogger("x").info("line number=%d", number)
print("printed at the end", file=sys.stderr)
"""


def write(path: Path, size: int, backups: int, count: int) -> subprocess.CompletedProcess[str]:
    words = [str(path), str(size), str(backups), str(count)]
    return subprocess.run(
        [sys.executable, "-c", WRITER, *words], capture_output=True, text=True, check=False
    )


def numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"line number=(\d+)", text)]


def test_a_log_is_rotated_by_size_and_keeps_so_many_files(tmp_path: Path) -> None:
    path = tmp_path / "node.log"
    assert write(path, 1000, 2, 100).returncode == 0
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "node.log",
        "node.log.1",
        "node.log.2",
    ]
    files = [tmp_path / name for name in ("node.log.2", "node.log.1", "node.log")]
    kept = [number for each in files for number in numbers(each.read_text())]
    assert kept == list(range(kept[0], 100)) and kept[0] > 0, "the newest, none twice, none missing"
    assert all(each.stat().st_size <= 1000 for each in files[:2])
    assert "printed at the end" in path.read_text(), "what is printed goes to the newest file"


def test_a_log_without_backups_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "node.log"
    assert write(path, 1000, 0, 100).returncode == 0
    assert [each.name for each in tmp_path.iterdir()] == ["node.log"]
    assert numbers(path.read_text())[-1] == 99


def test_a_log_with_a_size_of_zero_is_never_rotated(tmp_path: Path) -> None:
    path = tmp_path / "node.log"
    assert write(path, 0, 2, 100).returncode == 0
    assert numbers(path.read_text()) == list(range(100))


def test_a_second_process_does_not_write_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "node.log"
    holder = WRITER.partition("for number")[0] + "print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(path), "0", "0", "0"], stdin=subprocess.PIPE
    ) as first:
        while not path.exists() or "held" not in path.read_text():
            assert first.poll() is None
        second = write(path, 0, 0, 5)
        assert second.returncode != 0 and "BlockingIOError" in second.stderr
        assert numbers(path.read_text()) == []
        assert first.stdin is not None
        first.stdin.close()


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
def test_a_full_disk_costs_lines_and_not_the_process(tmp_path: Path) -> None:
    path = tmp_path / "node.log"
    program = WRITER.replace(
        "for number in range(count):",
        """import os
kept = os.dup(2)
full = os.open("/dev/full", os.O_WRONLY)
os.dup2(full, 2)
for number in range(3):
    logging.getLogger("x").info("lost number=%d", number)
os.dup2(kept, 2)
for number in range(count):""",
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path), "0", "0", "2"], capture_output=True, check=False
    )
    text = path.read_text()
    assert done.returncode == 0
    assert numbers(text) == [0, 1] and "lost" not in text
    assert "WARNING log lines could not be written count=3" in text
