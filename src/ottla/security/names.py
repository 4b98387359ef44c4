"""A certificate's name, as Kafka writes it, and how it becomes a principal's.

ACLs and super.users name certificates by this text, so it must be Java's to the letter: `X500Principal.getName()`, RFC 2253.
It is made of the certificate's DER, because OpenSSL's and Python's texts lose what is unusual in it. Nobody else reads the
name: an alternative name (an e-mail address, a host) is never who somebody is. A URI may only narrow what a node says that it
is (`node_claims`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
"""All other types are written as numbers, with their value in hexadecimal."""
ESCAPED: Final = frozenset(',=+<>#;"\\')
NAME_CHARS_MAX: Final = 4_096
"""A longer name is refused. It bounds what a rule's pattern can cost."""

_SEQUENCE, _SET, _OID = 0x30, 0x31, 0x06
_ALTERNATIVE_NAMES: Final = bytes.fromhex("551d11")
"""2.5.29.17, as it is in extensions."""
_URI: Final = 0x86
_STRINGS: Final = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E))
"""UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString. Java reads all of them as UTF-8, and so do
we: whoever takes another encoding gets the name that Kafka would give."""


class InvalidName(ValueError):
    """This can be no certificate, or its name can be nobody's."""


class _Der(NamedTuple):
    tag: int
    whole: bytes
    content: bytes


def _items(data: bytes) -> Iterator[_Der]:
    position = 0
    while position < len(data):
        item = _item(data, position)
        yield item
        position += len(item.whole)


def _item(data: bytes, position: int = 0) -> _Der:
    try:
        tag, length = data[position], data[position + 1]
        start = position + 2
        if length & 0x80:
            count = length & 0x7F
            if not 1 <= count <= 4:
                raise InvalidName("a length that DER does not have")
            length = int.from_bytes(data[start : start + count])
            start += count
    except IndexError:
        raise InvalidName("the certificate ends too early") from None
    if tag & 0x1F == 0x1F or start + length > len(data):
        raise InvalidName("the certificate ends too early")
    return _Der(tag, data[position : start + length], data[start : start + length])


def _parts(certificate: bytes) -> list[_Der]:
    """Of a certificate in DER: number, algorithm, issuer, validity, subject, key, and perhaps more."""
    whole = _item(certificate)
    if whole.tag != _SEQUENCE:
        raise InvalidName("not a certificate")
    parts = list(_items(_item(whole.content).content))
    if parts and parts[0].tag == 0xA0:  # the version, which the first one does not write
        del parts[0]
    return parts


def subject_of(certificate: bytes) -> bytes:
    """DER of the subject of a certificate in DER."""
    parts = _parts(certificate)
    if len(parts) < 6 or parts[4].tag != _SEQUENCE:
        raise InvalidName("not a certificate")
    return parts[4].whole


def distinguished_name(subject: bytes) -> str:
    """RFC 2253's text of a name in DER, as Java writes it."""
    relative = []
    for each in _items(_item(subject).content):
        if each.tag != _SET:
            raise InvalidName("a name is made of sets")
        relative.append("+".join(_attribute(pair) for pair in _items(each.content)))
    text = ",".join(reversed(relative))
    if len(text) > NAME_CHARS_MAX:
        raise InvalidName(f"a name of {len(text)} characters")
    return text


def name_of(certificate: bytes) -> str:
    return distinguished_name(subject_of(certificate))


def alternative_uris(certificate: bytes) -> list[str]:
    """The URIs among the alternative names of a certificate in DER."""
    for part in _parts(certificate)[6:]:
        if part.tag != 0xA3:
            continue
        for extension in _items(_item(part.content).content):
            fields = list(_items(extension.content))
            if len(fields) < 2 or fields[0].content != _ALTERNATIVE_NAMES:
                continue
            names = _item(fields[-1].content)  # before it there may be whether it is critical
            return [
                name.content.decode("ascii", "replace")
                for name in _items(names.content)
                if name.tag == _URI
            ]
    return []


def _attribute(pair: _Der) -> str:
    parts = list(_items(pair.content))
    if len(parts) != 2 or parts[0].tag != _OID:
        raise InvalidName("an attribute is a type and a value")
    kind, value = _numbers(parts[0].content), parts[1]
    keyword = KEYWORDS.get(kind)
    if keyword is None or value.tag not in _STRINGS:
        return f"{keyword or kind}=#{value.whole.hex()}"
    return f"{keyword}={_escaped(value.content.decode('utf-8', 'replace'))}"


def _numbers(content: bytes) -> str:
    if not content or content[-1] & 0x80:
        raise InvalidName("a type that DER does not have")
    numbers: list[int] = []
    value = 0
    for byte in content:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _escaped(text: str) -> str:
    chars = [f"\\{char}" if char in ESCAPED else "\\00" if char == "\0" else char for char in text]
    begin = 0
    while begin < len(chars) and chars[begin] in " \r":
        chars[begin] = f"\\{chars[begin]}"
        begin += 1
    end = len(chars) - 1
    while end >= begin and chars[end] in " \r":
        chars[end] = f"\\{chars[end]}"
        end -= 1
    return "".join(chars)


# From names to principals


class NoRuleFits(ValueError):
    """No rule fits the name, so its connection is refused."""


_RULE: Final = r"(DEFAULT)|RULE:((\\.|[^\\/])*)/((\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER: Final = re.compile(rf"\s*({_RULE})\s*(,\s*|$)")
_PARSER: Final = re.compile(_RULE)
_JAVA_ONLY: Final = re.compile(
    r"\\[^\W\ddDsSwWbBntrfa]"  # \p{…}, \Q, \h, \R, \z and others
    r"|\\0"
    r"|&&|\[[^\]]*\["  # sets within sets
    r"|\(\?<[^=!]"  # names of groups
    r"|\(\?[^:=!<>]"  # flags within
)


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        result = self.pattern.sub(lambda match: _expand(self.replacement, match), name)
        return {"L": result.lower, "U": result.upper}.get(self.case, lambda: result)()


class MappingRules:
    """ssl.principal.mapping.rules. The first rule that fits the whole name gives the principal's."""

    def __init__(self, text: str) -> None:
        """ValueError says which rule cannot be used, and why."""
        self._rules: list[_Rule] = []
        for found in _SPLITTER.finditer(text.strip()):
            rule = found[1]
            parsed = _PARSER.match(rule)
            if parsed is None or parsed.end() != len(rule):
                raise ValueError(
                    f"'{rule}' is neither DEFAULT nor RULE:pattern/replacement/ with L or U after it"
                )
            if parsed[1] is not None:
                self._rules.append(_Rule(None, "", ""))
            elif parsed[2] is not None:
                self._rules.append(_Rule(_pattern(parsed[2]), parsed[4], parsed[6]))

    def apply(self, name: str) -> str:
        for rule in self._rules:
            found = rule.apply(name)
            if found is not None:
                return found
        raise NoRuleFits("no rule of ssl.principal.mapping.rules fits")


def _pattern(text: str) -> re.Pattern[str]:
    odd = _JAVA_ONLY.search(text)
    if odd is not None:
        raise ValueError(
            f"the pattern '{text}' uses '{odd[0]}', which only Java reads as Java does"
        )
    try:
        return re.compile(text, re.ASCII)
    except re.error as error:
        raise ValueError(f"the pattern '{text}' cannot be read: {error}") from None


def _expand(replacement: str, match: re.Match[str]) -> str:
    """As Java's replaceAll: `$1` is a group with as many digits as there are groups, a backslash takes the next as it is."""
    groups = match.re.groups
    result = []
    position = 0
    while position < len(replacement):
        char = replacement[position]
        position += 1
        if char == "\\" and position < len(replacement):
            result.append(replacement[position])
            position += 1
        elif char == "$" and replacement[position : position + 1].isdigit():
            number = int(replacement[position])
            end = position + 1
            while (
                replacement[end : end + 1].isdigit()
                and number * 10 + int(replacement[end]) <= groups
            ):
                number = number * 10 + int(replacement[end])
                end += 1
            if number > groups:
                result.append(char)  # no such group: literally
            else:
                result.append(match[number] or "")
                position = end
        else:
            result.append(char)
    return "".join(result)
