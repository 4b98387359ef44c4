"""An independent reader of Prometheus' text format and of OpenMetrics, as strict as a test wants it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(\{.*\})? (\S+)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
UNESCAPED = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
SUFFIXES = {
    "counter": ("",),
    "gauge": ("",),
    "histogram": ("_bucket", "_sum", "_count"),
    "summary": ("", "_sum", "_count"),
}


@dataclass
class ReadFamily:
    name: str
    kind: str
    help: str
    samples: list[tuple[str, dict[str, str], float]] = field(default_factory=list)
    """(name, labels, value)"""


def _unescaped(text: str) -> str:
    return re.sub(r'\\[\\"n]', lambda found: UNESCAPED[found[0]], text)


def read_labels(text: str) -> dict[str, str]:
    inner = text[1:-1]
    found: dict[str, str] = {}
    at = 0
    while at < len(inner):
        label = LABEL.match(inner, at)
        assert label is not None, f"not a label: {inner[at:]!r}"
        assert label[1] not in found, f"label twice: {text}"
        found[label[1]] = _unescaped(label[2])
        at = label.end()
        assert at == len(inner) or inner[at] == ",", text
        at += 1
    return found


def read(text: str) -> dict[str, ReadFamily]:
    """Every family by name. AssertionError if a line is wrong, or a sample is outside of its family."""
    families: dict[str, ReadFamily] = {}
    pending: dict[str, dict[str, str]] = {}
    current: ReadFamily | None = None
    is_open_metrics = text.endswith("# EOF\n")
    assert not text or text.endswith("\n")
    seen: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
    for line in text.removesuffix("# EOF\n").split("\n")[:-1]:
        assert line == line.strip(" "), repr(line)
        if line.startswith("# "):
            _, what, name, rest = line.split(" ", 3)
            assert what in ("HELP", "TYPE"), line
            head = pending.setdefault(name, {})
            assert what not in head, f"{what} twice: {line}"
            head[what] = rest
            if len(head) == 2:
                assert name not in families, f"family twice: {name}"
                current = ReadFamily(name, head["TYPE"], _unescaped(head["HELP"]))
                families[name] = current
            continue
        found = LINE.fullmatch(line)
        assert found is not None and current is not None, f"not a sample: {line!r}"
        suffixes = SUFFIXES[current.kind]
        if current.kind == "counter" and is_open_metrics:
            suffixes = ("_total",)
        name, labels = found[1], read_labels(found[2] or "{}")
        assert name in [current.name + suffix for suffix in suffixes], f"{name} in {current.name}"
        key = (name, tuple(sorted(labels.items())))
        assert key not in seen, f"sample twice: {line}"
        seen.add(key)
        assert re.fullmatch(r"[+-]Inf|NaN|-?[0-9].*", found[3]), line
        current.samples.append((name, labels, float(found[3])))
    return families
