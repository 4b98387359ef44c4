"""What `ps` and `top` show of a node: all nodes are forks of one process, and would have its name."""

from __future__ import annotations

from contextlib import suppress

COMMAND_BYTES_MAX = 15
"""Linux keeps no more of a process's short name."""


def set_title(node_id: int, config: str | None, *, is_fork: bool) -> None:
    """`ottla-node-1` as the short name. A fork also gets a command line of its own; any other process has one already.
    Nothing happens where the system has no such files."""
    with suppress(OSError):
        with open("/proc/self/comm", "w") as file:
            file.write(f"ottla-node-{node_id}"[:COMMAND_BYTES_MAX])
        if is_fork:
            words = ("ottla", "node", str(node_id), "--config", config or "")
            _set_command_line("\0".join(words).encode())


def _set_command_line(wanted: bytes) -> None:
    """Over the words with which the process was started: the system shows that memory, and nobody else reads it."""
    with open("/proc/self/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    room = end - start
    if not start or room <= 1:  # 0: the system does not tell
        return
    import ctypes

    ctypes.memmove(start, wanted[: room - 1].ljust(room, b"\0"), room)
