"""A port that was chosen is nobody else's, until whoever chose it has ended."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from ottla.local import ports
from ottla.local.ports import free_ports, reserve

OTHER = """
import sys
from ottla.local.ports import reserve
print(reserve([int(sys.argv[1])]), flush=True)
sys.stdin.read()
"""


def _in_another_process(port: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", OTHER, str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _answer(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_no_port_is_given_twice() -> None:
    chosen = [port for _ in range(100) for port in free_ports(3)]
    assert len(set(chosen)) == len(chosen)


def test_a_port_that_somebody_listens_on_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert not reserve([listening.getsockname()[1]])


def test_of_several_ports_none_is_ours_if_one_is_taken() -> None:
    free, taken = free_ports(2)
    ports._give_back(free)
    assert not reserve([free, taken])
    assert reserve([free])


def test_a_port_that_another_process_chose_is_free_again_when_it_ends() -> None:
    (port,) = free_ports(1)
    ports._give_back(port)
    with _in_another_process(port) as other:
        assert _answer(other) == "True"
        assert not reserve([port])
        other.communicate()
    assert reserve([port])


def test_another_process_does_not_choose_our_port() -> None:
    (port,) = free_ports(1)
    with _in_another_process(port) as other:
        assert _answer(other) == "False"
        other.communicate()


def test_the_oldest_are_given_back_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, *_, last = free_ports(8)
    monkeypatch.setattr(ports, "RESERVED_MAX", 4)
    free_ports(4)
    assert reserve([first])
    assert reserve([last])
