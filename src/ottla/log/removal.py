"""Removing files: those of dropped segments and the directories of deleted logs, each after its delay.

To free a large file takes the system long, so a plan is made on the event loop and carried out in a thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.runtime.seams import Disk


@dataclass(slots=True)
class RemovalPlan:
    """Paths to remove, each with its log directory. `run` may be called in a thread."""

    disk: Disk
    files: dict[str, str] = field(default_factory=dict)
    trees: dict[str, str] = field(default_factory=dict)
    failures: dict[str, OSError] = field(default_factory=dict)
    """By log directory."""

    def __bool__(self) -> bool:
        return bool(self.files or self.trees)

    def run(self) -> None:
        for remove, paths in ((self.disk.remove, self.files), (self.disk.remove_tree, self.trees)):
            for path, directory in paths.items():
                try:
                    remove(path)
                except FileNotFoundError:
                    pass  # its log was deleted meanwhile, and the directory has another name
                except OSError as error:
                    self.failures[directory] = error


class DeletedLogs:
    """Directories of deleted logs that wait for their removal."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[int, str]] = {}
        """When each may be removed, and its log directory, by path. A partition that comes back and is deleted again
        before then has one path: the newer directory replaces the older."""

    def add(self, path: str, due_ms: int, directory: str) -> None:
        self._waiting[path] = due_ms, directory

    def take_due(self, now_ms: int) -> dict[str, str]:
        """Path and log directory of those whose delay is over. Each is returned once."""
        due = {}
        for path, (due_ms, directory) in list(self._waiting.items()):
            if due_ms <= now_ms:
                del self._waiting[path]
                due[path] = directory
        return due

    def forget(self, directory: str) -> None:
        """The log directory is offline: nothing in it is removed."""
        self._waiting = {
            path: waiting for path, waiting in self._waiting.items() if waiting[1] != directory
        }
