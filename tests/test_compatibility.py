"""docs/COMPATIBILITY.md says what is served and who was seen to use it, and agrees with the code.

The table of APIs is the product's own; who uses what was recorded in the nodes of a test run and is kept in
compatibility.json. To record anew (Java and Maven are needed for Apache Kafka's tools):

    mkdir DIR
    PYTHONPATH=tests/support/recording OTTLA_RECORD=DIR pytest tests/interop tests/slow/test_kafka_*.py
    python tests/test_compatibility.py DIR

Without DIR the last command writes the document again from what is recorded already.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import NamedTuple

import aiokafka

from ottla.wire.apis import APIS, Api, ApiKey

ROOT = Path(__file__).resolve().parent.parent
RECORDED = ROOT / "tests" / "compatibility.json"
DOCUMENT = ROOT / "docs" / "COMPATIBILITY.md"

Seen = dict[str, dict[str, list[int]]]
"""Client and its version, then the API's name, then the versions it sent."""


class Client(NamedTuple):
    name: str
    column: str
    ran: str


CLIENTS = {
    client.name: client
    for client in (
        Client(
            "apache-kafka-java",
            "Java",
            "Apache Kafka's own tools, one by one: topics, configs, groups, consumer-groups, get-offsets, "
            "delete-records, log-dirs, reassign-partitions, leader-election, replica-verification, "
            "metadata-quorum, features, cluster, broker-api-versions, transactions, acls, client-metrics; the "
            "console, verifiable and performance producers and consumers; groups of both protocols",
        ),
        Client(
            "confluent-kafka-python",
            "confluent",
            "every codec and acks, idempotence, transactions with abort and read_committed, groups of both "
            "protocols with rebalances and static members, seeks, offsets by time, is throttled by quotas, admin",
        ),
        Client(
            "kafka-python",
            "kafka-python",
            "every codec and acks, idempotence, transactions, classic groups, seeks, offsets by time, admin",
        ),
        Client(
            "aiokafka",
            "aiokafka",
            "every codec and acks, idempotence, transactions, classic groups, seeks, offsets by time, admin",
        ),
        Client("librdkafka", "kcat", "every codec and acks, idempotence, listing, a group"),
    )
}

NOT_SEEN = {"WriteTxnMarkers", "PushTelemetry"}
"""Served, and sent by nobody in the recording: the one is for brokers, the other for clients whose metrics are
wanted."""

NOT_SERVED = {
    "Sasl": "security",
    "DelegationToken": "security",
    "AlterUserScramCredentials": "security",
    "Share": "share groups",
    "Streams": "streams groups",
    "RaftVoter": "voters that join or leave a running quorum",
    "AlterReplicaLogDirs": "moving a replica between the directories of one broker",
}


def read_recordings(directory: Path) -> Seen:
    """What the nodes noted. A client that does not name itself is known by its client id."""
    seen: dict[str, dict[str, set[int]]] = {}
    for path in sorted(directory.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            name, version, client_id, key, api_version = json.loads(line)
            if not name and client_id.startswith("aiokafka"):
                name, version = "aiokafka", aiokafka.__version__
            if name in CLIENTS and ApiKey[key] in APIS:
                api = APIS[ApiKey[key]].name
                seen.setdefault(f"{name} {version}".strip(), {}).setdefault(api, set()).add(
                    api_version
                )
    ordered = {api.name: api for api in APIS.values()}
    return {
        client: {name: sorted(apis[name]) for name in ordered if name in apis}
        for client, apis in sorted(seen.items())
    }


def render(seen: Seen) -> str:
    lines = [
        "# What is served, and who uses it",
        "",
        "Written by `python tests/test_compatibility.py` from the table of APIs in `src/ottla/wire/apis.py` and from what the nodes of a",
        "recorded test run were sent; a test fails when it is stale. Every version that is served is announced, every version that",
        "is announced is read and written in the tests, and nothing else is spoken: versions and their layouts are those of Apache",
        "Kafka 4.3.1.",
        "",
        "## Clients",
        "",
        "| Client | Version | What the tests run with it |",
        "|---|---|---|",
    ]
    for label, _ in _columns(seen):
        name, _, version = label.partition(" ")
        client = CLIENTS[name]
        lines.append(f"| {client.column} | {version} | {client.ran} |")
    lines += ["", "## APIs for clients", ""]
    heads = [CLIENTS[label.split(" ")[0]].column for label, _ in _columns(seen)]
    lines.append("| API | Versions | " + " | ".join(heads) + " |")
    lines.append("|---|---|" + "---|" * len(heads))
    for api in APIS.values():
        if api.on_broker:
            cells = [_versions(apis.get(api.name, [])) for _, apis in _columns(seen)]
            lines.append(f"| {_name(api)} | {_range(api)} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "A number is a version that the client was seen to send. Produce is announced from version 0, as Apache Kafka does for",
        "librdkafka's sake, and served from 3.",
        "",
        "## APIs among nodes",
        "",
        "| API | Versions |",
        "|---|---|",
    ]
    lines += [f"| {_name(api)} | {_range(api)} |" for api in APIS.values() if not api.on_broker]
    lines += ["", "## Not served", "", "| API | Part of |", "|---|---|"]
    lines += [f"| {name} ({int(key)}) | {why} |" for key, name, why in _not_served()]
    return "\n".join(lines) + "\n"


def _columns(seen: Seen) -> list[tuple[str, dict[str, list[int]]]]:
    order = list(CLIENTS)
    return sorted(seen.items(), key=lambda row: order.index(row[0].split(" ")[0]))


def _name(api: Api) -> str:
    return f"{api.name} ({int(api.key)})"


def _range(api: Api) -> str:
    low, high = api.min_version, api.max_version
    return str(low) if low == high else f"{low}–{high}"


def _versions(sent: list[int]) -> str:
    return ", ".join(map(str, sent)) or "–"


def _not_served() -> list[tuple[ApiKey, str, str]]:
    rows = []
    for key in ApiKey:
        if key not in APIS:
            name = "".join(word.capitalize() for word in key.name.split("_"))
            why = next(why for part, why in NOT_SERVED.items() if part in name)
            rows.append((key, name, why))
    return rows


def test_the_document_is_what_the_table_and_the_recording_say() -> None:
    wanted = render(json.loads(RECORDED.read_text()))
    assert DOCUMENT.read_text() == wanted, "stale: run python tests/test_compatibility.py"


def test_clients_were_seen_to_send_only_what_is_served() -> None:
    by_name = {api.name: api for api in APIS.values()}
    for client, apis in json.loads(RECORDED.read_text()).items():
        for name, versions in apis.items():
            unserved = [version for version in versions if not by_name[name].serves(version)]
            # A client asks for a version of ApiVersions that may be too new, and is told so.
            assert not unserved or name == "ApiVersions", (client, name, unserved)


def test_every_api_for_clients_was_used_by_one() -> None:
    used = {name for apis in json.loads(RECORDED.read_text()).values() for name in apis}
    unused = {api.name for api in APIS.values() if api.on_broker} - used
    assert unused <= NOT_SEEN, "no recorded client sent it; tests of its own show that it works?"


def test_every_client_is_in_the_document() -> None:
    recorded = {label.split(" ")[0] for label in json.loads(RECORDED.read_text())}
    shown = DOCUMENT.read_text().split("## APIs for clients")[0]
    for name in recorded:
        assert re.search(rf"^\| {re.escape(CLIENTS[name].column)} \|", shown, re.MULTILINE)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        recording = read_recordings(Path(sys.argv[1]))
        RECORDED.write_text(json.dumps(recording, indent=1) + "\n")
    DOCUMENT.write_text(render(json.loads(RECORDED.read_text())))
