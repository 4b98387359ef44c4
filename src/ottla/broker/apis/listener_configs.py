"""Settings of this broker's listeners that somebody wants to change while it runs, looked at before the controller takes them.

Only the broker itself knows what its file says beside them, and which stores it can read. As in Kafka, a change for one
broker is checked there. What cannot be is refused with INVALID_CONFIG, and nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ottla.broker.apis.broker_loggers import DELETE, SET
from ottla.broker.server.connections import Handler, Request
from ottla.broker.server.registration import serves
from ottla.config.security_settings import PREFIX
from ottla.config.values import ConfigError
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import BROKER_RESOURCE
from ottla.runtime.seams import TlsRefused
from ottla.security.needs import ALTER_CLUSTER_CONFIGS
from ottla.security.operations import CLUSTER_NAME
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError

Check = Callable[[Mapping[str, str]], None]
"""Of all that the metadata would say for this node. ConfigError, or TlsRefused, if it cannot be."""


class ListenerConfigsHandler:
    def __init__(
        self,
        node_id: int,
        image: Callable[[], MetadataImage],
        check: Check | None,
        forward: Handler,
    ) -> None:
        """`check`: None without security, where no setting of a listener depends on another."""
        self._node = str(node_id)
        self._image = image
        self._check = check
        self._forward = forward

    @serves(ApiKey.ALTER_CONFIGS)
    def pass_on(self, request: Request) -> None:
        """AlterConfigs 0-2. IncrementalAlterConfigs comes here, too, if it is not about loggers."""
        message = request.message()
        # Who may not change settings is told that by the controller, and learns nothing of our files.
        if self._check is not None and ALTER_CLUSTER_CONFIGS.sees(request.rights, CLUSTER_NAME):
            for resource in message.resources:
                try:
                    self._look_at(resource, request.header.api_key, self._check)
                except KafkaError as error:
                    _refuse_all(request, message, resource, error)
                    return
        self._forward(request)

    def _look_at(self, resource: Any, api_key: int, check: Check) -> None:
        name = resource.resource_name
        if resource.resource_type != BROKER_RESOURCE or not any(
            config.name.startswith(PREFIX) for config in resource.configs
        ):
            return
        if name not in ("", self._node):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Settings of listeners of broker {name} must be changed there, since only it can check them; this is"
                f" {self._node}",
            )
        image = self._image()
        configs = {each: image.config(BROKER_RESOURCE, each) for each in ("", self._node)}
        present = configs[name] if api_key == ApiKey.INCREMENTAL_ALTER_CONFIGS else {}
        configs[name] = _after(present, resource.configs)
        try:
            check({**configs[""], **configs[self._node]})
        except (ConfigError, TlsRefused) as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _after(present: Mapping[str, str], changes: Any) -> dict[str, str]:
    """With these changes. None of the settings of listeners that may change is a list."""
    after = dict(present)
    for change in changes:
        operation = getattr(change, "config_operation", SET)
        if operation == SET and change.value is not None:
            after[change.name] = change.value
        elif operation == DELETE:
            after.pop(change.name, None)
    return after


def _refuse_all(request: Request, message: Any, wrong: Any, error: KafkaError) -> None:
    """The others of the request are not changed either, and are told so."""
    told = f"Nothing is changed, because of broker {wrong.resource_name or '<default>'}: "
    request.respond(
        {
            "responses": [
                {
                    "error_code": error.code,
                    "error_message": error.message if each is wrong else told + error.message,
                    "resource_type": each.resource_type,
                    "resource_name": each.resource_name,
                }
                for each in message.resources
            ]
        }
    )
