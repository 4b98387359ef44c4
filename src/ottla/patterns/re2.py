"""Regular expressions of subscriptions, in RE2's syntax and with RE2's guarantee: for every pattern, the time to match is
linear in the length of the text.

A pattern comes from a client, which is not trusted, so it is never given to an engine that backtracks. It becomes a
nondeterministic automaton (Thompson's construction), and all its states advance together. Only whole topic names are
matched, so there are no captures, and greedy and lazy repetitions are the same.

All this happens on the event loop. So what a pattern may cost is counted and bounded: a few milliseconds to compile it, a few
to find its steps, and after that a twentieth of a microsecond for each character of the names.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

PATTERN_LENGTH_MAX = 4096
REPEAT_MAX = 1000
"""As in RE2."""
STATES_MAX = 5_000
STEPS_KEPT_MAX = 10_000
WORK_MAX = 20_000
"""States visited to match one pattern against all topics: some milliseconds. Patterns as people write them visit some
hundreds for any number of topics, since steps are kept."""
DEPTH_MAX = 100
STATES_CACHED_MAX = 2 * STATES_MAX
"""Of all patterns that are remembered: some megabytes. Clients choose how many patterns there are, and how large."""


class BadPattern(Exception):
    """Not a pattern of RE2's, or one that is too large."""


Accepts = Callable[[str], bool]


def _digit(char: str) -> bool:
    return "0" <= char <= "9"


def _word(char: str) -> bool:
    return char.isascii() and (char.isalnum() or char == "_")


def _space(char: str) -> bool:
    return char in "\t\n\f\r "


def _not(accepts: Accepts) -> Accepts:
    return lambda char: not accepts(char)


def _with_opposites(
    classes: dict[str, Accepts], opposite: Callable[[str], str]
) -> dict[str, Accepts]:
    return classes | {opposite(name): _not(accepts) for name, accepts in classes.items()}


_CLASSES = _with_opposites({"d": _digit, "w": _word, "s": _space}, str.upper)
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
_NAMED_CLASSES = _with_opposites(_NAMED_CLASSES, "^{}".format)
_ESCAPED = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def _any_of(ranges: list[tuple[str, str]], classes: Iterable[Accepts]) -> Accepts:
    """In a time that does not depend on the number of ranges: a pattern has room for thousands."""
    lows: list[str] = []
    highs: list[str] = []
    for low, high in sorted(ranges):
        if highs and low <= highs[-1]:
            highs[-1] = max(highs[-1], high)
        else:
            lows.append(low)
            highs.append(high)

    def accepts(char: str) -> bool:
        at = bisect_right(lows, char) - 1
        return (at >= 0 and char <= highs[at]) or any(each(char) for each in classes)

    return accepts


def _exactly(literal: str) -> Accepts:
    return literal.__eq__


def _folded(accepts: Accepts) -> Accepts:
    return lambda char: accepts(char.lower()) or accepts(char.upper())


Position = tuple[str, str]
"""(the character before, one like the character after); empty at the ends."""
Holds = Callable[[Position], bool]


_AHEAD = {"$": "", "": "-", "a": "a"}
"""What follows a character: what the key of its step says, and a character like it."""


def _at_word_boundary(position: Position) -> bool:
    before, after = position
    return bool(before and _word(before)) != bool(after and _word(after))


def _within_word(position: Position) -> bool:
    return not _at_word_boundary(position)


_Reached = tuple[int, ...]
DEAD = -1
"""The number of the empty set of states: no name with this beginning matches."""


@dataclass(slots=True)
class _State:
    accepts: Accepts | None = None
    """The characters that lead to `next`; None: it is reached without one."""
    holds: Holds | None = None
    """The condition for `next`."""
    next: list[int] = field(default_factory=list)


class _Part(NamedTuple):
    """A piece of the automaton: where it begins and where it ends."""

    start: int
    end: int


_REPEATING = frozenset("*+?{")
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
        if self._peek() not in _REPEATING:
            return None
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
            elif most > least:
                parts.append(self._optional(piece, most - least))
            return self._sequence(parts)

        return build

    def _loop(self, part: _Part) -> _Part:
        hub, end = self._state(), self._state()
        self._link(hub, part.start, end)
        self._link(part.end, hub)
        return _Part(hub, end)

    def _optional(self, piece: Callable[[], _Part], most: int) -> _Part:
        """Up to `most` pieces. Each may be the last and leads straight to the end, not through all that could follow."""
        begin = gate = self._state()
        end = self._state()
        for left in range(most, 0, -1):
            part = piece()
            self._link(gate, part.start, end)
            gate = self._state() if left > 1 else end
            self._link(part.end, gate)
        return _Part(begin, end)

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
        return self._taking(_exactly(char))

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
            return self._passing(_within_word)
        if self._try("A"):
            return self._passing(lambda position: not position[0])
        if self._try("z"):
            return self._passing(lambda position: not position[1])
        char = self._take()
        return self._taking(_CLASSES.get(char) or _exactly(self._escaped_literal(char)))

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
        ranges: list[tuple[str, str]] = []
        classes: dict[Accepts, None] = {}
        is_first = True
        while is_first or self._peek() != "]":
            is_first = False
            item = self._class_item()
            if isinstance(item, tuple):
                ranges.append(item)
            else:
                classes[item] = None
        self._take()
        accepts = _any_of(ranges, classes)
        if self._ignore_case:
            accepts = _folded(accepts)
        return _not(accepts) if is_negated else accepts

    def _class_item(self) -> tuple[str, str] | Accepts:
        if self._try("[:"):
            end = self._pattern.find(":]", self._at)
            name = self._pattern[self._at : end] if end >= 0 else ""
            accepts = _NAMED_CLASSES.get(name)
            if accepts is None:
                raise BadPattern(f"[:{name}:] is no class")
            self._at = end + 2
            return accepts
        low = self._take()
        if low == "\\":
            low = self._take()
            if low in _CLASSES:
                return _CLASSES[low]
            low = self._escaped_literal(low)
        if self._peek() != "-" or self._pattern[self._at + 1 : self._at + 2] in ("]", ""):
            return low, low
        self._take()
        high = self._take()
        if high == "\\":
            high = self._escaped_literal(self._take())
        if low > high:
            raise BadPattern(f"the range {low}-{high} is empty")
        return low, high


class Pattern:
    """A compiled pattern, matched against whole names. Steps are kept while names are selected: there may be thousands of them,
    and they are alike."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > PATTERN_LENGTH_MAX:
            raise BadPattern("the pattern is too long")
        compiler = _Compiler(pattern)
        part = compiler.whole()
        self._states = compiler.states
        self.size = len(self._states)
        self._start, self._end = part.start, part.end
        self._asks_for_words = any(
            state.holds in (_at_word_boundary, _within_word) for state in self._states
        )
        """A step depends on whether a character of a word follows."""
        self._reached: list[_Reached] = []
        """Sets of states that were reached, each with its number."""
        self._steps: list[dict[str, int]] = []
        """For each set the numbers of those that characters lead to. The key is the character and what follows (`_AHEAD`)."""
        self._numbers: dict[_Reached, int] = {}
        self._beginnings: dict[str, int] = {}
        self._kept = 0
        self.work = 0
        """States visited in the last selection."""

    def select(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those that match, in order. BadPattern if that takes too long."""
        self.work = 0
        try:
            return tuple(sorted(name for name in names if self.matches(name)))
        finally:
            # A small pattern may have taken megabytes of steps, and it is remembered.
            self._reached.clear()
            self._numbers.clear()
            self._steps.clear()
            self._beginnings.clear()
            self._kept = 0

    def matches(self, name: str) -> bool:
        current = self._begin(name[:1])
        steps = self._steps
        for key in self._keys(name):
            if current == DEAD:
                return False
            known = steps[current].get(key)
            current = self._step(current, key) if known is None else known
        return current != DEAD and self._end in self._reached[current]

    def _keys(self, name: str) -> list[str]:
        keys = list(name)
        if keys:
            keys[-1] += "$"
        if self._asks_for_words:
            for index, after in enumerate(name[1:]):
                if _word(after):
                    keys[index] += "a"
        return keys

    def _begin(self, after: str) -> int:
        """The number of the set that a name begins with."""
        after = ("a" if _word(after) else "-") if after else ""
        number = self._beginnings.get(after)
        if number is None:
            number = self._beginnings[after] = self._reach([self._start], ("", after))
        return number

    def _step(self, current: int, key: str) -> int:
        """The number of the set that is reached with a character."""
        char, after = key[0], _AHEAD[key[1:]]
        states = self._states
        before = self._reached[current]
        self._spend(len(before))
        taken = [
            target
            for number in before
            if (accepts := states[number].accepts) is not None and accepts(char)
            for target in states[number].next
        ]
        if self._kept >= STEPS_KEPT_MAX:
            for steps in self._steps:
                steps.clear()
            self._kept = 0
        self._kept += 1
        number = self._steps[current][key] = self._reach(taken, (char, after))
        return number

    def _reach(self, numbers: Iterable[int], position: Position) -> int:
        """The number of the set of all states that can be reached without a character."""
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
        self._spend(len(reached) + 1)
        # Only those that take a character, or are the end, make a difference from here on.
        found = tuple(
            sorted(
                number
                for number in reached
                if number == self._end or self._states[number].accepts is not None
            )
        )
        if not found:
            return DEAD
        known = self._numbers.setdefault(found, len(self._reached))
        if known == len(self._reached):
            self._reached.append(found)
            self._steps.append({})
        return known

    def _spend(self, work: int) -> None:
        self.work += work
        if self.work > WORK_MAX:
            raise BadPattern("the pattern is too costly for this many topics")


class Patterns:
    """Patterns that were compiled lately, as long as they have few states together."""

    def __init__(self, states_max: int = STATES_CACHED_MAX) -> None:
        self._states_max = states_max
        self._states = 0
        self._known: OrderedDict[str, Pattern] = OrderedDict()

    def compiled(self, pattern: str) -> Pattern:
        found = self._known.get(pattern)
        if found is not None:
            self._known.move_to_end(pattern)
            return found
        found = self._known[pattern] = Pattern(pattern)
        self._states += found.size
        while self._states > self._states_max:
            _, oldest = self._known.popitem(last=False)
            self._states -= oldest.size
        return found


compiled = Patterns().compiled
