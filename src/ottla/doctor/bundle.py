"""A bundle: one file with everything that a helper needs to see of a cluster, and nothing that must stay.

Whatever goes in passes `privacy` first. The doctor's findings are made anew from the facts that remain, so that they
name nothing else.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import ottla
from ottla.diagnosis import privacy
from ottla.diagnosis.facts import Facts, as_json
from ottla.diagnosis.machine import tail
from ottla.doctor.examination import examine
from ottla.local.cluster import LocalCluster
from ottla.local.private_files import write_private

LOG_BYTES_MAX = 2 << 20
README = """\
What `ottla bundle` packed. No record's key, value or header is in it, and no password, certificate or token.
Client ids, member ids and transactional ids are replaced by numbered names, and metrics that clients pushed are
left out. "(hidden)" stands for a value that is not known to be harmless.

facts.json      brokers, topics, partitions, groups, transactions, settings, disks, the metadata quorum
findings.json   what the doctor says about these facts
machine.json    this machine, and the nodes on it with their settings
events.jsonl    the newest entries of the cluster's event log
metrics/        the metrics of each broker that serves them
node-N/         the end of the node's log, and its files with sizes
"""


def pack(
    file: Path,
    found: Facts,
    cluster: LocalCluster | None,
    events: Iterable[str],
    metrics: dict[int, str],
    target: str = "",
) -> list[str]:
    """Write the bundle; the names of its members."""
    facts = privacy.facts(found)
    members = dict(_members(facts, cluster, events, metrics, target))
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(f"ottla-bundle/{name}")
            entry.size = len(content)
            entry.mtime = facts.at_ms // 1000
            archive.addfile(entry, io.BytesIO(content))
    write_private(file, written.getvalue())  # logs and the names of users are not for everybody
    return list(members)


def _members(
    facts: Facts,
    cluster: LocalCluster | None,
    events: Iterable[str],
    metrics: dict[int, str],
    target: str,
) -> Iterator[tuple[str, bytes]]:
    yield "README", README.encode()
    told = as_json(facts)
    yield "machine.json", _json(told.pop("machine"))
    yield "facts.json", _json(told)
    yield "findings.json", _json(as_json(examine(facts, target)))
    aliases = privacy.Aliases()
    shown = (privacy.event(each, aliases) for each in events)
    yield "events.jsonl", privacy.lines(each for each in shown if each is not None)
    for broker, text in sorted(metrics.items()):
        yield f"metrics/broker-{broker}.txt", privacy.lines(privacy.metrics(text))
    if cluster is not None:
        logs = privacy.LogLines(_sources())
        for id in cluster.nodes:
            yield from _node_members(cluster, id, logs)


def _sources() -> str:
    """Of this program: whatever text of a log stands here is nobody's secret."""
    package = Path(ottla.__file__).parent
    return "\n".join(file.read_text() for file in package.rglob("*.py"))


def _node_members(
    cluster: LocalCluster, id: int, logs: privacy.LogLines
) -> Iterator[tuple[str, bytes]]:
    directory = cluster.node_directory(id)
    for log in sorted(directory.glob(f"{cluster.log_file(id).name}*")):
        text = tail(log, LOG_BYTES_MAX)
        yield f"node-{id}/{log.name}", privacy.lines(logs.shown(text))
    yield f"node-{id}/files.txt", privacy.lines(_files(directory))


def _files(directory: Path) -> Iterator[str]:
    """Size, time of change and path of each file."""
    for path in sorted(directory.rglob("*")):
        try:
            found = path.lstat()
        except OSError:
            continue  # removed meanwhile
        if not path.is_dir():
            yield f"{found.st_size:>12} {int(found.st_mtime)} {path.relative_to(directory)}"


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1, ensure_ascii=False).encode()
