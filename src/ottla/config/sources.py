"""Where settings come from: Java properties files and Kafka's environment variables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ottla.config.values import ConfigError


class Entry(NamedTuple):
    name: str
    value: str
    where: str
    marked: bool = True
    """Whether `=` or `:` separated name and value. Java also accepts a blank, and so any two words."""


def read_properties(path: str) -> list[Entry]:
    """A Java properties file whose names are all different: Java would take the last of two values, without a word."""
    entries = read_lines(path)
    for fault in repeated(entries):
        raise ConfigError(fault)
    return entries


def repeated(entries: Iterable[Entry]) -> Iterator[str]:
    """A fault for each entry whose name another one before it has."""
    first: dict[str, str] = {}
    for name, _, where, _ in entries:
        if first.setdefault(name, where) != where:
            yield f"{where}: {name}: was already set at {first[name]}"


def read_lines(path: str) -> list[Entry]:
    """Comments, continued lines and escapes as Java reads them; also names that are there twice."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text ({error.reason})") from None
    entries: list[Entry] = []
    index = 0
    while index < len(lines):
        where = f"{path}:{index + 1}"
        line = lines[index].lstrip()
        index += 1
        if not line or line[0] in "#!":
            continue
        while _continues(line) and index < len(lines):
            line = line[:-1] + lines[index].lstrip()
            index += 1
        match = re.match(r"((?:\\.|[^\\=:\s])*)\s*([=:]?)\s*(.*)", line)
        assert match is not None, "the pattern matches any line"
        name, value = (_unescape(part, where) for part in match.group(1, 3))
        entries.append(Entry(name, value.strip(), where, marked=bool(match[2])))
    return entries


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescape(text: str, where: str) -> str:
    if "\\" not in text:
        return text
    plain = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}

    def replace(match: re.Match[str]) -> str:
        escaped = match.group(1)
        return chr(int(escaped[1:], 16)) if len(escaped) == 5 else plain.get(escaped, escaped)

    if re.search(r"\\u(?![0-9a-fA-F]{4})", text):
        raise ConfigError(f"{where}: \\u is not followed by four hexadecimal digits")
    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", replace, text)


# Variables of that prefix which configure a JVM, a container image or a Kubernetes service.
NOT_SETTINGS = re.compile(
    r"KAFKA_(?:.*OPTS|LOG4J.*|TOOLS_LOG4J.*|JMX_.*|HOME|DIR|VERSION|SCALA_VERSION|DEBUG|CONF_DIR|MODE"
    r"|CLUSTERS_.*|CFG_.*|HEAP_.*|SERVICE_HOST|SERVICE_PORT.*|PORT(?:_.*)?|BOOTSTRAP.*|BROKERS?)"
)


def entries_from_environment(environ: Mapping[str, str]) -> list[Entry]:
    """As in Kafka's images: `KAFKA_NODE_ID` is `node.id`, `CLUSTER_ID` is the cluster's id."""
    entries = []
    for variable in sorted(environ):
        if variable == "CLUSTER_ID":
            entries.append(Entry("cluster.id", environ[variable], f"environment {variable}"))
        elif variable.startswith("KAFKA_") and not NOT_SETTINGS.fullmatch(variable):
            name = name_from_variable(variable)
            entries.append(Entry(name, environ[variable], f"environment {variable}"))
    return entries


def name_from_variable(variable: str) -> str:
    marks = {"_": ".", "__": "-", "___": "_"}
    body = variable.removeprefix("KAFKA_").lower()
    return re.sub(r"_{1,3}", lambda match: marks[match.group()], body)


def variable_from_name(name: str) -> str:
    marks = {".": "_", "-": "__", "_": "___"}
    return "KAFKA_" + "".join(marks.get(letter, letter.upper()) for letter in name)
