"""Exceptions that the product catches, logs and survives: in a simulation each of them is a failure.

A server goes on after an exception in one request, a coordinator after one in one group. A broken assertion there would
go unnoticed. Only failures of disks are expected.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from ottla.broker.cluster import controller_service
from ottla.broker.coordination import live_shard, shard_host
from ottla.broker.replication import housekeeping
from ottla.broker.server import connections
from ottla.coordinators.groups import group_shard
from ottla.sim.engine.patches import Patch, patched
from ottla.sim.engine.process import current_process

MODULES = (controller_service, live_shard, shard_host, group_shard, housekeeping, connections)


class _ReportingLogger:
    """The logger of a module, which also reports logged exceptions to the run."""

    def __init__(
        self,
        logger: logging.Logger,
        tell: Callable[[str], None],
        is_expected: Callable[[BaseException], bool],
    ) -> None:
        self._logger = logger
        self._tell = tell
        self._is_expected = is_expected

    def __getattr__(self, name: str) -> Any:
        return getattr(self._logger, name)

    def exception(self, message: str, *values: object) -> None:
        self.error(message, *values, exc_info=sys.exception())

    def error(self, message: str, *values: object, exc_info: BaseException | None = None) -> None:
        self._logger.error(message, *values, exc_info=exc_info)
        process = current_process.get()
        if process is not None and not process.alive:
            return  # the process was killed: failures while it unwinds have no effect
        if exc_info is not None and not self._is_expected(exc_info):
            text = "".join(traceback.format_exception(exc_info))
            self._tell(f"{message % values}\n{text}")


def heard(
    tell: Callable[[str], None], is_expected: Callable[[BaseException], bool]
) -> AbstractContextManager[None]:
    """Report each of them through `tell`, as long as this lasts."""
    return patched(
        [
            Patch(module, "logger", _ReportingLogger(vars(module)["logger"], tell, is_expected))
            for module in MODULES
        ]
    )
