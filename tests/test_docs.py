"""Documents and sources agree: links lead somewhere, cited codes and documents exist, and drawings are up to date.

A stranger looks up what a comment cites. So every code (D9, M4, P26, …) is in docs/GLOSSARY.md, and every document,
file and test that is named exists.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
DOCUMENTS = [ROOT / "README.md", ROOT / "pipelines" / "README.md", *sorted(DOCS.glob("*.md"))]
PYTHON = [
    *sorted((ROOT / "src").rglob("*.py")),
    *sorted((ROOT / "tests").rglob("*.py")),
    *sorted((ROOT / "bench").rglob("*.py")),
]

CODE = re.compile(r"(?<![A-Za-z0-9-])(?:[DMCS]\d{1,2}|P\d\d)(?![A-Za-z0-9-])")
NAMED_DOCUMENT = re.compile(r"\b(?:docs/)?([A-Z][A-Z-]+)\.md\b")
BARE_DOCUMENT = re.compile(
    r"\b(ARCHITECTURE|DECISIONS|DESIGN|GLOSSARY|KRAFT|PROMISES|RELIABILITY|SIMLOOP|SPEED|STYLE|USERS)\b"
)
"""Documents, or former ones, that prose may cite by their bare name."""


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


EACH_DOCUMENT = pytest.mark.parametrize("document", DOCUMENTS, ids=name)


# -- links and names in documents


def anchors(document: Path) -> set[str]:
    """The headings of a document, as GitHub makes anchors of them."""
    found = set()
    for line in without_code(document.read_text()).splitlines():
        if line.startswith("#"):
            heading = line.lstrip("#").strip().replace("`", "").lower()
            found.add(re.sub(r"[^\w\- ]", "", heading).replace(" ", "-"))
    return found


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)


@EACH_DOCUMENT
def test_every_link_leads_somewhere(document: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(document.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (document.parent / path).resolve() if path else document
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert not broken


@EACH_DOCUMENT
def test_every_file_and_test_that_is_named_exists(document: Path) -> None:
    places = [ROOT, ROOT / "src", ROOT / "src" / "ottla", ROOT / "tests" / "scripts"]
    missing = []
    for span in re.findall(r"`([^`\n]+)`", without_code(document.read_text())):
        if re.fullmatch(r"[\w./-]+/[\w.-]+\.(?:py|txt|md)|[a-z]\d_\w+\.txt", span):
            if not any((place / span).exists() for place in (*places, document.parent)):
                missing.append(span)
        elif re.fullmatch(r"test_\w+", span) and span not in existing_tests():
            missing.append(span)
    assert not missing


@cache
def existing_tests() -> frozenset[str]:
    return frozenset(
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(), str(path)))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


# -- what sources cite


@cache
def prose(path: Path) -> tuple[tuple[int, str], ...]:
    """(line, text) of the comments and docstrings of a module."""
    source = path.read_text()
    found = [
        (token.start[0], token.string)
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    ]
    for node in ast.walk(ast.parse(source, str(path))):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            found.append((node.lineno, node.value.value))
    return tuple(found)


def cited_codes() -> Iterator[tuple[str, str]]:
    """(place, code) in prose, in the names of tests, and in golden scripts."""
    for path in PYTHON:
        for line, text in prose(path):
            for code in CODE.findall(text):
                yield f"{name(path)}:{line}", code
    for test in existing_tests():
        for code in re.findall(r"(?<=_)(?:[DMCS]\d{1,2}|P\d\d)(?=_)", test):
            yield test, code
    for path in sorted((ROOT / "tests" / "scripts").glob("*.txt")):
        for comment in path.read_text().splitlines():
            if comment.startswith("#"):
                for code in CODE.findall(comment):
                    yield name(path), code


def test_every_code_that_is_cited_is_in_the_glossary() -> None:
    known = set(re.findall(r"^\| ([DMCSP]\d{1,2}) \|", (DOCS / "GLOSSARY.md").read_text(), re.M))
    assert not [f"{place}: {code}" for place, code in cited_codes() if code not in known]


def test_the_glossary_has_every_rule_and_promise_once() -> None:
    codes = re.findall(r"^\| ([DMCASP]\d{1,2}) \|", (DOCS / "GLOSSARY.md").read_text(), re.M)
    rules = re.findall(r"^\| ([DMCAS]\d{1,2}) \|", (DOCS / "RELIABILITY.md").read_text(), re.M)
    promises = re.findall(r"^\| (P\d\d) \|", (DOCS / "PROMISES.md").read_text(), re.M)
    assert codes == rules + promises


def test_every_document_that_is_cited_is_in_the_repository() -> None:
    missing = []
    for path in PYTHON:
        for line, text in prose(path):
            for document in NAMED_DOCUMENT.findall(text) + BARE_DOCUMENT.findall(text):
                if not (DOCS / f"{document}.md").exists() and document != "README":
                    missing.append(f"{name(path)}:{line}: {document}")
    assert not missing


# -- drawings


def test_the_drawings_of_the_house_are_up_to_date() -> None:
    """`scripts/draw-house` draws them anew."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "draw-house"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
