"""Every small change that can be made to one source file: comparisons, conditions, statements, arguments, constants.

A mutant is a piece of text and what replaces it, so that all other lines keep their numbers. Changes that cannot matter
are not made: log lines, messages of exceptions, assertions, annotations, docstrings, `__repr__`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

OTHER_COMPARISON: dict[type[ast.cmpop], ast.cmpop] = {
    ast.Lt: ast.LtE(),
    ast.LtE: ast.Lt(),
    ast.Gt: ast.GtE(),
    ast.GtE: ast.Gt(),
    ast.Eq: ast.NotEq(),
    ast.NotEq: ast.Eq(),
    ast.Is: ast.IsNot(),
    ast.IsNot: ast.Is(),
    ast.In: ast.NotIn(),
    ast.NotIn: ast.In(),
}
OTHER_ARITHMETIC: dict[type[ast.operator], ast.operator] = {ast.Add: ast.Sub(), ast.Sub: ast.Add()}
OTHER_FUNCTION = {"min": "max", "max": "min", "any": "all", "all": "any"}
LOGGERS = ("log", "logger", "logging", "_log")
LEVELS = ("debug", "info", "warning", "error", "exception", "critical", "isEnabledFor")
CONTAINERS = ("set", "dict", "list", "deque", "Counter", "bytearray")
SILENT_METHODS = ("__repr__", "__str__", "as_json")


class Mutant(NamedTuple):
    path: str
    """Below src."""
    line: int
    column: int
    kind: str
    before: str
    after: str
    end_line: int
    end_column: int

    @property
    def id(self) -> str:
        """Stays the same while the text of its place does."""
        return f"{self.path}:{self.kind}:{self.before} -> {self.after}:{self.line}"

    def applied(self, source: str) -> str:
        lines = source.splitlines(keepends=True)
        first, last = self.line - 1, self.end_line - 1
        begin = lines[first].encode()[: self.column].decode()
        end = lines[last].encode()[self.end_column :].decode()
        # As many lines as before: what follows keeps its number.
        missing = (last - first) - self.after.count("\n")
        changed = f"{begin}{self.after}{end}"
        if missing > 0:
            changed = changed.rstrip("\n") + "\n" * (missing + 1)
        return "".join([*lines[:first], changed, *lines[last + 1 :]])


def mutants_of(path: str, source: str) -> list[Mutant]:
    """In the order of the source."""
    finder = _Finder(path, source)
    finder.visit(ast.parse(source))
    return sorted(set(finder.found))


class _Finder(ast.NodeVisitor):
    def __init__(self, path: str, source: str) -> None:
        self.found: list[Mutant] = []
        self._path = path
        self._lines = source.splitlines(keepends=True)
        self._function = ""

    def _add(self, kind: str, node: ast.expr | ast.stmt, after: str) -> None:
        before = self._text(node)
        assert node.end_lineno is not None and node.end_col_offset is not None
        if before != after:
            place = (node.lineno, node.col_offset)
            end = (node.end_lineno, node.end_col_offset)
            self.found.append(Mutant(self._path, *place, kind, before, after, *end))

    def _text(self, node: ast.expr | ast.stmt) -> str:
        """As `ast.get_source_segment`, which splits the source into lines for every node."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        lines = [line.encode() for line in self._lines[node.lineno - 1 : node.end_lineno]]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return b"".join(lines).decode()

    # What is left alone

    def visit_Assert(self, node: ast.Assert) -> None:
        """An invariant is no behaviour."""

    def visit_Raise(self, node: ast.Raise) -> None:
        """Whether it is raised is its condition's; what it says is for people."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None and self._function:
            self.visit(node.value)

    def visit_arguments(self, node: ast.arguments) -> None:
        for default in (*node.defaults, *node.kw_defaults):
            if default is not None:
                self.visit(default)

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        self._negate(node.test)
        self.generic_visit(node)
        self._neighbours(node.body)
        self._neighbours(node.orelse)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name in SILENT_METHODS:
            return
        outer, self._function = self._function, node.name
        self.visit(node.args)
        for statement in node.body:
            self.visit(statement)
        self._neighbours(node.body)
        self._function = outer

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Text for people."""

    # Conditions

    def _negate(self, test: ast.expr) -> None:
        if not isinstance(test, ast.Constant):
            self._add("condition negated", test, f"not ({self._text(test)})")

    def visit_While(self, node: ast.While) -> None:
        self._negate(node.test)
        self.generic_visit(node)
        self._neighbours(node.body)

    def visit_For(self, node: ast.For) -> None:
        self.generic_visit(node)
        self._neighbours(node.body)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._negate(test)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for dropped in range(len(node.values)):
            kept = [self._text(v) for number, v in enumerate(node.values) if number != dropped]
            joint = " and " if isinstance(node.op, ast.And) else " or "
            self._add("condition dropped", node, f"({joint.join(kept)})")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for number, operator in enumerate(node.ops):
            other = OTHER_COMPARISON[type(operator)]
            ops = [*node.ops[:number], other, *node.ops[number + 1 :]]
            changed = ast.Compare(node.left, ops, node.comparators)
            self._add("comparison", node, f"({ast.unparse(changed)})")
        self.generic_visit(node)

    # Values

    def visit_BinOp(self, node: ast.BinOp) -> None:
        other = OTHER_ARITHMETIC.get(type(node.op))
        if other is not None:
            self._add(
                "arithmetic", node, f"({ast.unparse(ast.BinOp(node.left, other, node.right))})"
            )
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add("constant", node, str(not node.value))
        elif isinstance(node.value, int):
            self._add("constant", node, str(node.value + 1))

    # Calls

    def visit_Call(self, node: ast.Call) -> None:
        if _is_log_line(node):
            return
        if isinstance(node.func, ast.Name) and node.func.id in OTHER_FUNCTION:
            self._add("function", node.func, OTHER_FUNCTION[node.func.id])
        for number in range(len(node.args) - 1):
            one, other = node.args[number : number + 2]
            if not isinstance(one, ast.Starred) and not isinstance(other, ast.Starred):
                args = [self._text(each) for each in node.args]
                args[number : number + 2] = args[number + 1], args[number]
                words = [
                    f"{k.arg}=" * (k.arg is not None) + self._text(k.value) for k in node.keywords
                ]
                if all(k.arg is not None for k in node.keywords):
                    text = f"{self._text(node.func)}({', '.join([*args, *words])})"
                    self._add("arguments exchanged", node, text)
        self.generic_visit(node)

    # Statements

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return  # a docstring
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(call, ast.Call) and not _is_log_line(call):
            self._add("statement removed", node, "pass")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        kept = [isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets]
        if self._function not in ("", "__init__") and all(kept):
            is_reset = isinstance(node.value, ast.Constant | ast.Dict | ast.List) or _is_empty(
                node.value
            )
            self._add("reset forgotten" if is_reset else "statement removed", node, "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._add("statement removed", node, "pass")
        self.generic_visit(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        self._add("statement removed", node, "pass")

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is None:
            self._add("early return", node, "pass")
        self.generic_visit(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._add("early return", node, "pass")

    def visit_Break(self, node: ast.Break) -> None:
        self._add("early return", node, "pass")

    def _neighbours(self, body: list[ast.stmt]) -> None:
        """Two statements in the other order, unless the second one needs a name that the first one makes."""
        for one, other in pairwise(body):
            if _is_simple(one) and _is_simple(other) and not (_made_by(one) & _names_in(other)):
                if one.col_offset != other.col_offset or one.end_lineno == other.lineno:
                    continue
                span = ast.Expr(ast.Constant(None))
                span.lineno, span.col_offset = one.lineno, one.col_offset
                span.end_lineno, span.end_col_offset = other.end_lineno, other.end_col_offset
                indent = " " * one.col_offset
                self._add(
                    "statements swapped", span, f"{self._text(other)}\n{indent}{self._text(one)}"
                )


def _is_log_line(call: ast.Call) -> bool:
    function = call.func
    return (
        isinstance(function, ast.Attribute)
        and function.attr in LEVELS
        and ast.unparse(function.value).rpartition(".")[2] in LOGGERS
    )


def _is_empty(value: ast.expr) -> bool:
    """`set()`, `deque()` and the like."""
    if not isinstance(value, ast.Call) or value.args or value.keywords:
        return False
    return isinstance(value.func, ast.Name) and value.func.id in CONTAINERS


def _is_simple(node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr):
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        return isinstance(call, ast.Call) and not _is_log_line(call)
    return isinstance(node, ast.Assign | ast.AugAssign | ast.Delete)


def _made_by(node: ast.stmt) -> set[str]:
    return set(_names(node, ast.Store))


def _names_in(node: ast.stmt) -> set[str]:
    return set(_names(node, ast.Load)) | set(_names(node, ast.Store))


def _names(node: ast.stmt, context: type[ast.expr_context]) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and isinstance(each.ctx, context):
            yield each.id
