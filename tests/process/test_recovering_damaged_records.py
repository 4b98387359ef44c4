"""`ottla recover` where a kept copy is damaged, or a record does not fit: the rest is copied, and what is missing is named."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ottla.log.kept_records import kept_in, write_manifest
from ottla.log.segment import file_name
from ottla.losses.manifest import EpochRange, LossKind, Manifest, State
from ottla.records.record import Record, build
from ottla.runtime.files import RealDisk
from support.cluster import OTTLA, ProcessCluster
from support.unclean import read_back

TOPIC_ID = str(UUID(int=7))
CODEC_GZIP = 1


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path_factory.mktemp("damaged"), 1) as running:
        yield running


def one(offset: int, value: bytes, header: bytes = b"", codec: int = 0) -> bytes:
    headers = (("h", header),) if header else ()
    record = Record(offset, 1_700_000_000_000, None, value, headers)
    return bytes(build([record], base_offset=offset, leader_epoch=0, codec=codec))


def keep(directory: Path, broker: int, batches: Sequence[bytes], there: bytes | None = None) -> str:
    """A directory with kept records, as a broker leaves it. `there` is what is left of them."""
    directory.mkdir(exist_ok=True)
    (directory / "meta.properties").touch()
    id = UUID(int=broker).hex
    path = directory / f"orders-0.{id}-stray"
    path.mkdir()
    data = b"".join(batches)
    (path / file_name(0, ".log")).write_bytes(data if there is None else there)
    end = len(batches)
    manifest = Manifest(
        id=id,
        kind=LossKind.TRUNCATION,
        state=State.KEPT,
        topic="orders",
        topic_id=TOPIC_ID,
        partition=0,
        first_offset=0,
        committed_end=end,
        end_offset=end,
        epochs=(EpochRange(0, 0, end),),
        records=end,
        bytes=len(data),
        at_ms=1000 + broker,
        cause="a test",
        leader=9,
        leader_epoch=1,
        broker=broker,
    )
    write_manifest(RealDisk(), str(path), manifest)
    return id


def recover(cluster: ProcessCluster, directory: Path, to: str) -> tuple[int, dict[str, Any], str]:
    cluster.create_topic(to)
    command = [str(OTTLA), "recover", "--all", "--to", to, "--dir", str(directory)]
    command += ["--bootstrap", cluster.bootstrap, "--format", "json"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.returncode, json.loads(result.stdout), result.stderr


def marks(directory: Path) -> list[str | None]:
    return [kept.manifest.recovered_to for kept in kept_in(RealDisk(), str(directory))]


def test_a_torn_end_is_named_and_the_copy_is_not_marked(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    batches = [one(n, b"v%d" % n) for n in range(4)]
    keep(tmp_path, 1, batches, b"".join(batches)[:-10])
    code, done, said = recover(cluster, tmp_path, "torn")
    assert (code, done["copied"], done["unread"]) == (1, 3, ["orders-0 3..3"])
    assert "records are missing" in said and "orders-0 3..3" in said
    assert marks(tmp_path) == [None]


def test_what_is_damaged_on_one_disk_comes_from_another(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    batches = [one(n, b"v%d" % n) for n in range(4)]
    damaged = bytearray(b"".join(batches))
    damaged[2 * len(batches[0]) - 1] ^= 0xFF
    keep(tmp_path, 1, batches, bytes(damaged))
    keep(tmp_path, 2, batches)
    code, done, said = recover(cluster, tmp_path, "damaged")
    assert (code, done["copied"], done["unread"]) == (0, 4, []), said
    assert len(done["damaged"]) == 1 and "of broker 1" in said
    assert sorted(read_back(cluster, "damaged")) == [b"v0", b"v1", b"v2", b"v3"]
    assert marks(tmp_path) == ["damaged", "damaged"]


def test_records_that_were_small_when_compressed_and_large_headers_are_copied(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    batches = [one(0, b"x" * 3_000_000, codec=CODEC_GZIP)]
    batches += [one(n, b"%d" % n, header=b"h" * 100_000) for n in range(1, 21)]
    keep(tmp_path, 1, batches)
    code, done, said = recover(cluster, tmp_path, "large")
    assert (code, done["copied"]) == (0, 21), said


def test_a_record_that_does_not_fit_is_named_and_the_rest_is_copied(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    nearly = b"x" * (1_048_588 - 61 - 20)
    keep(tmp_path, 1, [one(0, b"before"), one(1, nearly), one(2, b"after")])
    code, done, said = recover(cluster, tmp_path, "fitting")
    assert (code, done["copied"], done["too_large"]) == (1, 2, ["orders-0 1..1"])
    assert "max.message.bytes" in said
    assert read_back(cluster, "fitting") == [b"before", b"after"]
    assert marks(tmp_path) == [None]
