"""Run the clients' own test suites against ottla: in plaintext, and through SASL_SSL with an authorizer.

A test has to say the same in both. Exit code 1 if one differs. The login is that of `admin`, who may do everything: what
is tested is that nothing is lost on the way through TLS, logins and the authorizer.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import mkdtemp
from typing import Protocol

from suites.fetching import CACHE, Missing
from suites.kcat import Kcat
from suites.lane import Lane
from suites.librdkafka import Librdkafka
from suites.outcomes import Outcomes, compared, summary, table
from suites.python_clients import Aiokafka, ConfluentKafka, KafkaPython

DEFAULT = ("librdkafka", "kafka-python", "kcat")
CHECKOUTS: dict[str, Callable[[Path | None], Suite]] = {
    "kafka-python": KafkaPython,
    "aiokafka": Aiokafka,
    "confluent-kafka": ConfluentKafka,
}


class Suite(Protocol):
    name: str

    def prepare(self) -> str:
        """Fetch and build what is needed. Returns the version."""

    def lane(self, directory: Path, *, secured: bool) -> Lane: ...

    def run(self, lane: Lane, only: Iterable[str]) -> Outcomes: ...


def suite_called(name: str, checkouts: dict[str, Path]) -> Suite:
    if name == "librdkafka":
        return Librdkafka()
    if name == "kcat":
        return Kcat()
    return CHECKOUTS[name](checkouts.get(name))


def run_both_ways(suite: Suite, only: list[str], keep: bool) -> bool:
    """Whether the outcomes are the same."""
    version = suite.prepare()
    outcomes = []
    for secured in (False, True):
        CACHE.mkdir(parents=True, exist_ok=True)
        directory = Path(mkdtemp(prefix=f"{suite.name}-run-", dir=CACHE))
        try:
            lane = suite.lane(directory, secured=secured)
            started = time.monotonic()
            with lane.cluster:
                outcomes.append(suite.run(lane, only))
            took = time.monotonic() - started
            kept = f"; logs in {directory}" if keep else ""
            print(f"{suite.name} {version}, {lane.name}: {len(outcomes[-1])} tests in {took:.0f} s{kept}", file=sys.stderr)  # fmt: skip
        finally:
            if not keep:
                shutil.rmtree(directory, ignore_errors=True)
    pairs = compared(*outcomes)
    print(f"\n## {suite.name} {version}\n\n{table(pairs)}\n\n{summary(pairs)}", flush=True)
    return not any(pair.differs for pair in pairs)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/suites", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )  # fmt: skip
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"which ones; all of {', '.join(DEFAULT)} unless named; aiokafka and confluent-kafka need --checkout")  # fmt: skip
    parser.add_argument("--only", action="append", default=[], metavar="TEST", help="a test of the suite: a number or a part of its name; may be repeated")  # fmt: skip
    parser.add_argument("--checkout", action="append", default=[], metavar="SUITE=DIR", help="where the client's own repository is; may be repeated")  # fmt: skip
    parser.add_argument("--keep", action="store_true", help="keep the logs of tests and nodes")
    options = parser.parse_args()
    checkouts = dict(word.split("=", 1) for word in options.checkout)
    names = options.suites or [*DEFAULT, *(name for name in checkouts if name not in DEFAULT)]
    for name in names:
        if name not in (*DEFAULT, *CHECKOUTS):
            parser.error(f"no suite {name}; there are {', '.join(dict.fromkeys((*DEFAULT, *CHECKOUTS)))}")  # fmt: skip
    same = True
    for name in names:
        try:
            suite = suite_called(name, {client: Path(where) for client, where in checkouts.items()})
            same &= run_both_ways(suite, options.only, options.keep)
        except Missing as error:
            print(f"suites: {error}", file=sys.stderr)
            return 2
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
