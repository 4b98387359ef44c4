"""The files of a secure cluster: readable by nobody else, and none of them the same in every cluster."""

from __future__ import annotations

import datetime
import os
import stat
from pathlib import Path

import pytest

from ottla.local import secure
from ottla.local.certificates import read_certificates
from ottla.local.cluster import LocalCluster, locked
from ottla.local.node_log import open_log
from ottla.local.secure import certificate_file, decoy_secret, renew_in_time


@pytest.fixture
def made(tmp_path: Path) -> LocalCluster:
    before = os.umask(0o022)
    try:
        with locked(tmp_path / "cluster"):
            return LocalCluster.create(tmp_path / "cluster", 1, 0, secure=True)
    finally:
        os.umask(before)


def test_nobody_else_can_look_into_a_secure_cluster(made: LocalCluster) -> None:
    os.close(open_log(str(made.log_file(1))))
    made.save()  # once more, as commands do
    every = [made.directory, *made.directory.rglob("*")]
    assert {".lock", "cluster.json", "node-1", "node.log"} <= {each.name for each in every}
    open_to_others = {
        str(each.relative_to(made.directory)): oct(mode)
        for each in every
        if (mode := stat.S_IMODE(each.stat().st_mode)) & 0o077
    }
    assert open_to_others == {}


def test_a_lost_decoy_secret_is_made_anew_once_for_all_nodes(made: LocalCluster) -> None:
    before = decoy_secret(made)
    (made.directory / "secrets" / "decoy").unlink()
    after = decoy_secret(made)
    assert len(after) >= 32 and after != before
    assert decoy_secret(made) == after


def test_no_two_clusters_have_the_same_decoy_secret_before_they_are_made(tmp_path: Path) -> None:
    one, other = (LocalCluster(tmp_path / name, "id", [], secure=True) for name in ("a", "b"))
    assert decoy_secret(one) != decoy_secret(other)
    assert list(tmp_path.iterdir()) == []


def test_nodes_start_with_certificates_that_last(
    made: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = certificate_file(made, 1)
    first = file.read_bytes()
    assert renew_in_time(made, [1]) == []
    assert file.read_bytes() == first
    later = secure.now() + datetime.timedelta(days=2)
    monkeypatch.setattr(secure, "now", lambda: later)
    assert renew_in_time(made, [1]) == [1]
    (renewed,) = read_certificates(file)
    assert renewed.not_valid_after_utc > later + datetime.timedelta(days=29)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert renew_in_time(made, [1]) == []


def test_a_certificate_that_cannot_be_read_is_made_anew(made: LocalCluster) -> None:
    certificate_file(made, 1).write_bytes(b"nothing")
    assert renew_in_time(made, [1]) == [1]
    assert read_certificates(certificate_file(made, 1))
