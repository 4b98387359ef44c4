"""How much this node writes into its log, shown and changed while it runs (KIP-412).

Loggers are settings of one broker that no metadata keeps: whoever is asked answers for itself, and a restart
forgets. Names are those of our modules, levels those of Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from ottla.broker.server.connections import Handler, Request
from ottla.broker.server.registration import serves
from ottla.metadata.records import BROKER_LOGGER_RESOURCE
from ottla.security.needs import ALTER_CLUSTER_CONFIGS, NOT_ALLOWED, Need
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError

ROOT = "root"
LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
SET, DELETE = 0, 1


def levels() -> dict[str, str]:
    """The level that holds for each of our loggers."""
    known = logging.root.manager.loggerDict
    names = [ROOT, *sorted(name for name in known if name.split(".")[0] in ("kafka", "ottla"))]
    return {name: _name_of(_logger(name).getEffectiveLevel()) for name in names}


class LoggerHandlers:
    def __init__(self, node_id: int, forward: Handler, need: Need = ALTER_CLUSTER_CONFIGS) -> None:
        self._node_id = node_id
        self._forward = forward
        self._need = need

    @serves(ApiKey.INCREMENTAL_ALTER_CONFIGS)
    def incremental_alter_configs(self, request: Request) -> None:
        """IncrementalAlterConfigs 0-1: what is about loggers alone is done here, all else by the controller."""
        message = request.message()
        kinds = {resource.resource_type for resource in message.resources}
        if kinds != {BROKER_LOGGER_RESOURCE}:
            self._forward(request)
            return
        responses = []
        for resource in message.resources:
            error, why = ErrorCode.NONE, None
            try:
                if not self._need.met(request.rights):
                    raise KafkaError(self._need.denied, NOT_ALLOWED)
                for name in self._alter(resource, message.validate_only):
                    request.changed("ALTER_CONFIGS", f"BrokerLogger:{self._node_id} {name}")
                if (authorizer := request.connection.server.authorizer) is not None:
                    authorizer.ask_again()  # its audit may want to hear of more now, or of less
            except KafkaError as failure:
                error, why = failure.code, failure.message
            responses.append(
                {
                    "error_code": error,
                    "error_message": why,
                    "resource_type": resource.resource_type,
                    "resource_name": resource.resource_name,
                }
            )
        request.respond({"responses": responses})

    def _alter(self, resource: Any, validate_only: bool) -> Iterable[str]:
        """The names of the loggers that it changed."""
        if resource.resource_name != str(self._node_id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"The loggers of broker {resource.resource_name} must be changed there; this is "
                f"{self._node_id}",
            )
        wished = dict(_wished_levels(resource.configs))
        if validate_only:
            return ()
        for name, level in wished.items():
            _logger(name).setLevel(level)
        return wished


def _wished_levels(configs: Any) -> Iterable[tuple[str, int]]:
    """All are checked before the first is changed."""
    known = levels()
    for config in configs:
        name = config.name
        if name not in known:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
        if config.config_operation == DELETE:
            if name == ROOT:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "The level of root cannot be removed.")
            yield name, logging.NOTSET
        elif config.config_operation == SET:
            if config.value not in LEVELS:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    f"Cannot set the log level of {name} to {config.value}; it is one of "
                    f"{', '.join(LEVELS)}",
                )
            yield name, LEVELS[config.value]
        else:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "A log level is set or deleted, not appended to."
            )


def _logger(name: str) -> logging.Logger:
    return logging.root if name == ROOT else logging.getLogger(name)


def _name_of(level: int) -> str:
    return next((name for name, at in LEVELS.items() if name != "TRACE" and level <= at), "FATAL")
