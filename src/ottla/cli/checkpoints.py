"""`ottla checkpoints`: what each node's checkpoint files say, whether it runs or not.

If the high watermark of a partition stays on one node while it advances on the others, that node does not
replicate. This command shows it at a glance.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.errors import NOT_FOUND, Failure
from ottla.cli.local import DirOption
from ottla.cli.output import Format, FormatOption, print_json, print_table
from ottla.cli.reaching import directory_of

FILES = {
    "hw": "replication-offset-checkpoint",
    "recovery_point": "recovery-point-offset-checkpoint",
    "log_start": "log-start-offset-checkpoint",
}


def checkpoints(
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", help="Only this one.", show_default=False)
    ] = None,
    dir: DirOption = None,
    format: FormatOption = Format.table,
) -> None:
    """Show the offsets that each node has on disk.

    Reads the nodes' checkpoint files, so it also works for nodes that are down. A running node is a few
    seconds ahead of its files. HW: records below it are committed. Recovery point: records below it are
    flushed; after a crash the log is checked from there on. Log start: the first record. "-": not
    written; a node writes the log start only if it differs from the start of the first segment.
    """
    from ottla.local.cluster import LocalCluster

    cluster = LocalCluster.load(directory_of(dir))
    rows = [
        {"topic": name, "partition": partition, "node": id} | offsets
        for id in cluster.nodes
        for (name, partition), offsets in read(cluster.node_directory(id) / "data").items()
        if topic is None or name == topic
    ]
    rows.sort(
        key=lambda row: (str(row["topic"]), int(str(row["partition"])), int(str(row["node"])))
    )
    if topic is not None and not rows:
        raise Failure(f"no node has a checkpoint of topic {topic} (yet)", NOT_FOUND)
    if format is Format.json:
        print_json(rows)
        return
    print_table(
        ("topic", "partition", "node", "HW", "recovery point", "log start"),
        [
            [
                row[name]
                for name in ("topic", "partition", "node", "hw", "recovery_point", "log_start")
            ]
            for row in rows
        ],
    )


def read(directory: Path) -> dict[tuple[str, int], dict[str, int | None]]:
    from ottla.log.checkpoints import read_offsets
    from ottla.log.errors import CorruptCheckpoint
    from ottla.runtime.files import RealDisk

    found: dict[tuple[str, int], dict[str, int | None]] = {}
    for column, file in FILES.items():
        path = directory / file
        if not path.exists():
            continue
        try:
            offsets = read_offsets(RealDisk(), str(path))
        except CorruptCheckpoint as error:
            raise Failure(str(error)) from None
        for partition, offset in offsets.items():
            found.setdefault(partition, dict.fromkeys(FILES))[column] = offset
    return found
