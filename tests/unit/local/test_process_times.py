"""Whether a process lives, asked of the system while it ends."""

from __future__ import annotations

import os
import subprocess

import pytest

from ottla.local.processes import started_at


def test_a_process_that_is_reaped_between_two_questions_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The system then says "no such process" about its threads, not "no such file"."""
    ended = subprocess.Popen(["true"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)  # it ends, and stays a zombie

    def gone(path: str) -> list[str]:
        raise ProcessLookupError(3, "No such process", path)

    monkeypatch.setattr(os, "listdir", gone)
    assert started_at(ended.pid) is None
    ended.wait()
