"""Everything that a secure cluster left behind, searched for its secrets: in plain text, base64 and hexadecimal."""

from __future__ import annotations

import base64
import gzip
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.secure import SecureCluster, secure_cluster

pytestmark = pytest.mark.timeout(300)

PLANTED = "planted-Password/0123456789+xyz"
HOLDERS = ("clients/", "secrets/", "tls/")
"""Directories of 0700 whose purpose is to hold secrets."""


def spellings(secret: str) -> list[bytes]:
    """As somebody might find it. Base64 depends on what stands before it, so all three beginnings are searched."""
    raw = secret.encode()
    encoded = []
    for skipped in range(3):
        text = base64.b64encode(raw[skipped:])
        encoded.append(text[: len(text) - 4])
    return [raw, raw.hex().encode(), raw.hex().upper().encode(), *encoded]


def key_text(file: Path) -> str:
    """The first line of a private key's body."""
    return file.read_text().split("PRIVATE KEY-----\n")[1].split("\n")[0]


class Watcher(threading.Thread):
    """The arguments of every process of this machine, as every user can see them."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seen: set[bytes] = set()
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.05):
            for process in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    self.seen.add(process.read_bytes())
                except OSError:
                    continue

    def stop(self) -> None:
        self._over.set()
        self.join()


def used(cluster: SecureCluster, tmp_path: Path) -> Iterator[tuple[str, bytes]]:
    """Use it in many ways, also wrongly. What was said, and where."""
    file = tmp_path / "password"
    file.write_text(PLANTED + "\n")
    file.chmod(0o600)
    bundle = tmp_path / "bundle.tar.gz"
    commands: list[tuple[str, ...]] = [
        ("users", "add", "alice", "--password-file", str(file)),
        ("users", "add", "alice", "--password-file", str(file)),
        ("users", "list"),
        ("topics", "create", "orders"),
        ("acls", "add", "alice", "--produce", "orders"),
        ("acls", "test", "alice", "--can"),
        ("topics", "describe", "orders"),
        ("status", "--format", "json"),
        ("security", "check", "--format", "json"),
        ("security", "rotate", "nodes"),
        ("doctor", "--format", "json"),
        ("explain", "orders"),
        ("audit",),
        ("bundle", "--out", str(bundle)),
    ]
    for words in commands:
        done = cluster.run(*words)
        yield " ".join(words), (done.stdout + done.stderr).encode()
    # Denied, then with a wrong password.
    denied = cluster.as_user("alice", "consume", "orders", "--exit", "--timeout", "3")
    yield "denied", (denied.stdout + denied.stderr).encode()
    config = cluster.file("java.properties", "alice")
    config.write_text(config.read_text().replace(PLANTED, PLANTED + "x"))
    wrong = cluster.as_user("alice", "topics", "list")
    yield "wrong password", (wrong.stdout + wrong.stderr).encode()
    assert wrong.returncode != 0
    with tarfile.open(bundle) as packed:
        for member in packed:
            content = packed.extractfile(member)
            if content is not None:
                data = content.read()
                yield (
                    f"bundle/{member.name}",
                    gzip.decompress(data) if member.name.endswith(".gz") else data,
                )


def left_behind(cluster: SecureCluster) -> Iterator[tuple[str, bytes]]:
    for path in cluster.directory.rglob("*"):
        name = str(path.relative_to(cluster.directory))
        if path.is_file() and not any(holder in name for holder in HOLDERS):
            yield name, path.read_bytes()
    for process in Path("/proc").glob("[0-9]*/environ"):
        try:
            yield str(process), process.read_bytes()
        except OSError:
            continue


def test_no_secret_is_left_where_others_might_look(tmp_path: Path) -> None:
    watcher = Watcher()
    watcher.start()
    try:
        with secure_cluster(tmp_path / "cluster", nodes=1) as cluster:
            secrets = {
                "the admin's password": cluster.file("password").read_text().strip(),
                "alice's password": PLANTED,
                "the CA's key": key_text(cluster.directory / "secrets" / "nodes-ca.key"),
                "the node's key": key_text(cluster.directory / "node-1" / "tls" / "node.pem"),
                "the decoy secret": (cluster.directory / "secrets" / "decoy").read_text(),
            }
            found = [*used(cluster, tmp_path), *left_behind(cluster)]
    finally:
        watcher.stop()
    found += [("arguments of a process", each) for each in watcher.seen]
    assert len(found) > 50
    told = [
        f"{what} in {where}"
        for where, data in found
        for what, secret in secrets.items()
        if any(each in data for each in spellings(secret))
        # The one secret that a node is told in its settings, which are 0600.
        and not (what == "the decoy secret" and where == "node-1/server.properties")
    ]
    assert told == []


def test_the_search_finds_what_is_there() -> None:
    for text in (PLANTED, base64.b64encode(b"x" + PLANTED.encode()).decode(), PLANTED.encode().hex()):  # fmt: skip
        assert any(each in f"<{text}>".encode() for each in spellings(PLANTED))
