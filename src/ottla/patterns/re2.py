"""Regular expressions of subscriptions, in RE2's syntax and with RE2's guarantee: for every pattern, the time to match is
linear in the length of the text.

A pattern comes from a client, which is not trusted, so it is never given to an engine that backtracks. It becomes a
nondeterministic automaton (Thompson's construction), and all its states advance together. Only whole topic names are
matched, so there are no captures, and greedy and lazy repetitions are the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

PATTERN_LENGTH_MAX = 4096
REPEAT_MAX = 1000
"""As in RE2."""
STATES_MAX = 5_000
STEPS_KEPT_MAX = 10_000
WORK_MAX = 3_000_000
"""States visited to match one pattern against all topics: about a second."""
DEPTH_MAX = 100
CACHED_MAX = 256


class BadPattern(Exception):
    """Not a pattern of RE2's, or one that is too large."""


Accepts = Callable[[str], bool]


def _digit(char: str) -> bool:
    return "0" <= char <= "9"


def _word(char: str) -> bool:
    return char.isascii() and (char.isalnum() or char == "_")


def _space(char: str) -> bool:
    return char in "\t\n\f\r "


_CLASSES: dict[str, Accepts] = {"d": _digit, "w": _word, "s": _space}
_NAMED_CLASSES: dict[str, Accepts] = {
    "alnum": lambda char: char.isascii() and char.isalnum(),
    "alpha": lambda char: char.isascii() and char.isalpha(),
    "digit": _digit,
    "lower": lambda char: "a" <= char <= "z",
    "upper": lambda char: "A" <= char <= "Z",
    "punct": lambda char: char.isascii() and char.isprintable() and not char.isalnum(),
    "space": lambda char: char in "\t\n\v\f\r ",
    "word": _word,
    "xdigit": lambda char: char in "0123456789abcdefABCDEF",
}
_ESCAPED = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def _not(accepts: Accepts) -> Accepts:
    return lambda char: not accepts(char)


def _any_of(parts: list[Accepts]) -> Accepts:
    return lambda char: any(part(char) for part in parts)


def _between(low: str, high: str) -> Accepts:
    return lambda char: low <= char <= high


def _folded(accepts: Accepts) -> Accepts:
    return lambda char: accepts(char.lower()) or accepts(char.upper())


Position = tuple[str, str]
"""(the character before, the character after); empty at the ends."""
Holds = Callable[[Position], bool]


def _at_word_boundary(position: Position) -> bool:
    before, after = position
    return bool(before and _word(before)) != bool(after and _word(after))


_Reached = tuple[int, ...]


@dataclass(slots=True)
class _State:
    accepts: Accepts | None = None
    """The characters that lead to `next`; None: it is reached without one."""
    holds: Holds | None = None
    """The condition for `next`."""
    next: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of the automaton: where it begins and where it ends."""

    start: int
    end: int


_QUOTED = re.compile(r"\\Q(.*?)(?:\\E|\Z)|\\.", re.DOTALL)


def _unquoted(match: re.Match[str]) -> str:
    """`\\Q…\\E` with each of its characters escaped; other escapes as they are."""
    if match[1] is None:
        return match[0]
    return "".join(char if _word(char) else "\\" + char for char in match[1])


class _Compiler:
    """Reads a pattern by recursive descent; each piece is a function that builds its states, so that a
    counted repetition builds them as often as it needs."""

    def __init__(self, pattern: str) -> None:
        self._pattern = _QUOTED.sub(_unquoted, pattern)
        self._at = 0
        self._depth = 0
        self._ignore_case = False
        self._dot_takes_newline = False
        self.states: list[_State] = []

    # -- states

    def _state(self, accepts: Accepts | None = None, holds: Holds | None = None) -> int:
        if len(self.states) >= STATES_MAX:
            raise BadPattern("the pattern is too large")
        self.states.append(_State(accepts, holds))
        return len(self.states) - 1

    def _one(self, accepts: Accepts | None, holds: Holds | None = None) -> _Part:
        start, end = self._state(accepts, holds), self._state()
        self.states[start].next.append(end)
        return _Part(start, end)

    def _link(self, source: int, *targets: int) -> None:
        self.states[source].next.extend(targets)

    def _sequence(self, parts: list[_Part]) -> _Part:
        if not parts:
            return self._one(None)
        for left, right in pairwise(parts):
            self._link(left.end, right.start)
        return _Part(parts[0].start, parts[-1].end)

    # -- grammar

    def whole(self) -> _Part:
        part = self._alternatives()()
        if self._at < len(self._pattern):
            raise BadPattern(f"unexpected ')' at {self._at}")
        return part

    def _peek(self) -> str:
        return self._pattern[self._at] if self._at < len(self._pattern) else ""

    def _take(self) -> str:
        char = self._peek()
        if not char:
            raise BadPattern("the pattern ends too early")
        self._at += 1
        return char

    def _try(self, text: str) -> bool:
        if self._pattern.startswith(text, self._at):
            self._at += len(text)
            return True
        return False

    def _alternatives(self) -> Callable[[], _Part]:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise BadPattern("groups are nested too deeply")
        choices = [self._concatenation()]
        while self._try("|"):
            choices.append(self._concatenation())
        self._depth -= 1
        if len(choices) == 1:
            return choices[0]

        def build() -> _Part:
            start, end = self._state(), self._state()
            for choice in choices:
                part = choice()
                self._link(start, part.start)
                self._link(part.end, end)
            return _Part(start, end)

        return build

    def _concatenation(self) -> Callable[[], _Part]:
        pieces: list[Callable[[], _Part]] = []
        while (char := self._peek()) and char not in "|)":
            pieces.append(self._repeated())
        return lambda: self._sequence([piece() for piece in pieces])

    def _repeated(self) -> Callable[[], _Part]:
        piece = self._atom()
        is_repeated = False
        while True:
            bounds = self._bounds()
            if bounds is None:
                return piece
            if is_repeated:
                raise BadPattern("a repetition is repeated")
            is_repeated = True
            self._try("?")  # lazy or greedy: the whole name matches or it does not
            piece = self._repeat(piece, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        if self._try("*"):
            return 0, None
        if self._try("+"):
            return 1, None
        if self._try("?"):
            return 0, 1
        if self._peek() != "{":
            return None
        end = self._pattern.find("}", self._at)
        low, comma, high = (
            self._pattern[self._at + 1 : end].partition(",") if end > 0 else ("", "", "")
        )
        if not low.isdecimal() or (high and not high.isdecimal()):
            return None  # as in RE2, a brace that begins no count is a brace
        self._at = end + 1
        least = int(low)
        most = (int(high) if high else None) if comma else least
        if least > REPEAT_MAX or (most is not None and not least <= most <= REPEAT_MAX):
            raise BadPattern(f"bad repetition count {{{low}{comma}{high}}}")
        return least, most

    def _repeat(
        self, piece: Callable[[], _Part], least: int, most: int | None
    ) -> Callable[[], _Part]:
        def build() -> _Part:
            parts = [piece() for _ in range(least)]
            if most is None:
                parts.append(self._loop(piece()))
            else:
                parts.extend(self._optional(piece()) for _ in range(most - least))
            return self._sequence(parts)

        return build

    def _loop(self, part: _Part) -> _Part:
        hub, end = self._state(), self._state()
        self._link(hub, part.start, end)
        self._link(part.end, hub)
        return _Part(hub, end)

    def _optional(self, part: _Part) -> _Part:
        start = self._state()
        self._link(start, part.start, part.end)
        return _Part(start, part.end)

    def _atom(self) -> Callable[[], _Part]:
        char = self._take()
        if char == "(":
            return self._group()
        if char == "[":
            return self._taking(self._class())
        if char == ".":
            takes_newline = self._dot_takes_newline
            return self._taking(lambda char: takes_newline or char != "\n", folded=False)
        if char == "^":
            return self._passing(lambda position: not position[0])
        if char == "$":
            return self._passing(lambda position: not position[1])
        if char == "\\":
            return self._escape()
        if char in "*+?":
            raise BadPattern(f"nothing to repeat before {char!r}")
        return self._taking(_between(char, char))

    def _taking(self, accepts: Accepts, *, folded: bool = True) -> Callable[[], _Part]:
        if folded and self._ignore_case:
            accepts = _folded(accepts)
        return lambda: self._one(accepts)

    def _passing(self, holds: Holds) -> Callable[[], _Part]:
        return lambda: self._one(None, holds)

    def _group(self) -> Callable[[], _Part]:
        before = (self._ignore_case, self._dot_takes_newline)
        if self._try("?"):
            if self._try("P<") or self._try("<"):
                end = self._pattern.find(">", self._at)
                name = self._pattern[self._at : end]
                if end < 0 or not all(map(_word, name)) or not name:
                    raise BadPattern("a group's name is not one (and there is no looking behind)")
                self._at = end + 1
            elif self._flags() == ")":
                return lambda: self._sequence([])  # the flags hold for the rest of the group around
        inner = self._alternatives()
        if not self._try(")"):
            raise BadPattern("a group is not closed")
        self._ignore_case, self._dot_takes_newline = before
        return inner

    def _flags(self) -> str:
        """The flags after `(?`, up to and including the colon or the parenthesis."""
        is_on = True
        while (char := self._take()) not in ":)":
            if char == "-":
                is_on = False
            elif char == "i":
                self._ignore_case = is_on
            elif char == "s":
                self._dot_takes_newline = is_on
            elif char not in "mU":  # multi-line and ungreedy change nothing for one whole name
                raise BadPattern(f"(?{char} is not served: there is no looking around")
        return char

    def _escape(self) -> Callable[[], _Part]:
        if self._try("b"):
            return self._passing(_at_word_boundary)
        if self._try("B"):
            return self._passing(lambda position: not _at_word_boundary(position))
        if self._try("A"):
            return self._passing(lambda position: not position[0])
        if self._try("z"):
            return self._passing(lambda position: not position[1])
        return self._taking(self._escaped_class())

    def _escaped_class(self) -> Accepts:
        char = self._take()
        if char.lower() in _CLASSES:
            accepts = _CLASSES[char.lower()]
            return accepts if char.islower() else _not(accepts)
        literal = self._escaped_literal(char)
        return _between(literal, literal)

    def _escaped_literal(self, char: str) -> str:
        if char == "x":
            digits = self._take() + self._take()
            if digits[0] == "{":
                end = self._pattern.find("}", self._at)
                digits = digits[1] + self._pattern[self._at : max(end, self._at)]
                self._at = end + 1
            try:
                return chr(int(digits, 16))
            except (ValueError, OverflowError) as error:
                raise BadPattern(f"\\x{digits} is no character") from error
        if char in _ESCAPED:
            return _ESCAPED[char]
        if char.isascii() and char.isalnum():
            # Digits would be back-references, which no linear engine has.
            raise BadPattern(f"\\{char} is not served")
        return char

    def _class(self) -> Accepts:
        is_negated = self._try("^")
        parts: list[Accepts] = []
        is_first = True
        while is_first or self._peek() != "]":
            is_first = False
            parts.append(self._class_item())
        self._take()
        accepts = _any_of(parts)
        if self._ignore_case:
            accepts = _folded(accepts)
        return _not(accepts) if is_negated else accepts

    def _class_item(self) -> Accepts:
        if self._try("[:"):
            end = self._pattern.find(":]", self._at)
            name = self._pattern[self._at : end] if end >= 0 else ""
            accepts = _NAMED_CLASSES.get(name.removeprefix("^"))
            if accepts is None:
                raise BadPattern(f"[:{name}:] is no class")
            self._at = end + 2
            return _not(accepts) if name.startswith("^") else accepts
        low = self._take()
        if low == "\\":
            if self._peek().lower() in _CLASSES:
                return self._escaped_class()
            low = self._escaped_literal(self._take())
        if self._peek() != "-" or self._pattern[self._at + 1 : self._at + 2] in ("]", ""):
            return _between(low, low)
        self._take()
        high = self._take()
        if high == "\\":
            high = self._escaped_literal(self._take())
        if low > high:
            raise BadPattern(f"the range {low}-{high} is empty")
        return _between(low, high)


class Pattern:
    """A compiled pattern, matched against whole names. Computed steps are cached: there may be thousands of names, and
    they are alike."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > PATTERN_LENGTH_MAX:
            raise BadPattern("the pattern is too long")
        compiler = _Compiler(pattern)
        part = compiler.whole()
        self._states = compiler.states
        self._start, self._end = part.start, part.end
        self._reached: list[_Reached] = []
        """Sets of states that were reached, each with its number."""
        self._numbers: dict[_Reached, int] = {}
        self._steps: dict[tuple[int, str, str], int] = {}
        self._work = 0

    def select(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those that match, in order. BadPattern if that takes too long."""
        self._work = 0
        if len(self._reached) > STEPS_KEPT_MAX // 10:
            self._reached.clear()
            self._numbers.clear()
            self._steps.clear()
        return tuple(sorted(name for name in names if self.matches(name)))

    def matches(self, name: str) -> bool:
        current = self._step(-1, "", name[:1])
        for index, char in enumerate(name):
            current = self._step(current, char, name[index + 1 : index + 2])
        return self._end in self._reached[current]

    def _step(self, current: int, char: str, after: str) -> int:
        """The number of the set that is reached with `char`, before `after`; from -1 the name begins."""
        known = self._steps.get((current, char, after))
        if known is not None:
            return known
        if current < 0:
            taken = [self._start]
        else:
            taken = [
                target
                for number in self._reached[current]
                if (accepts := self._states[number].accepts) is not None and accepts(char)
                for target in self._states[number].next
            ]
        reached = self._reach(taken, (char, after))
        if len(self._steps) >= STEPS_KEPT_MAX:
            self._steps.clear()
        step = self._numbers.get(reached)
        if step is None:
            step = self._numbers[reached] = len(self._reached)
            self._reached.append(reached)
        self._steps[current, char, after] = step
        return step

    def _reach(self, numbers: Iterable[int], position: Position) -> _Reached:
        """All states that can be reached without a character."""
        reached: dict[int, None] = {}
        waiting = list(numbers)
        while waiting:
            number = waiting.pop()
            if number in reached:
                continue
            reached[number] = None
            state = self._states[number]
            if state.accepts is None and (state.holds is None or state.holds(position)):
                waiting.extend(state.next)
        self._work += len(reached) + 1
        if self._work > WORK_MAX:
            raise BadPattern("the pattern is too costly for this many topics")
        # Only those that take a character, or are the end, make a difference from here on.
        return tuple(
            sorted(
                number
                for number in reached
                if number == self._end or self._states[number].accepts is not None
            )
        )


@lru_cache(maxsize=CACHED_MAX)
def compiled(pattern: str) -> Pattern:
    return Pattern(pattern)
