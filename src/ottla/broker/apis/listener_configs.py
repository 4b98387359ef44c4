"""Settings of this broker's listeners and directories that somebody wants to change while it runs, looked at before the
controller takes them.

Only the broker itself knows what its file says beside them, which stores it can read and which directories it has. As in
Kafka, a change for one broker is checked there. What cannot be is refused with INVALID_CONFIG, and nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ottla.broker.apis.broker_loggers import DELETE, SET
from ottla.broker.server.connections import Handler, Request
from ottla.broker.server.registration import serves
from ottla.config import cordoning
from ottla.config.cordoning import CORDONED
from ottla.config.security_settings import PREFIX
from ottla.config.values import LIST, ConfigError
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import BROKER_RESOURCE
from ottla.runtime.seams import TlsRefused
from ottla.security.needs import ALTER_CLUSTER_CONFIGS
from ottla.security.operations import CLUSTER_NAME
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError

APPEND = 2

Check = Callable[[Mapping[str, str]], None]
"""Of all that the metadata would say for this node. ConfigError, or TlsRefused, if it cannot be."""


class ListenerConfigsHandler:
    def __init__(
        self,
        node_id: int,
        image: Callable[[], MetadataImage],
        check: Check | None,
        forward: Handler,
        log_dirs: Sequence[str] = (),
    ) -> None:
        """`check`: None without security, where no setting of a listener depends on another."""
        self._node = str(node_id)
        self._image = image
        self._check = check
        self._forward = forward
        self._log_dirs = log_dirs

    @serves(ApiKey.ALTER_CONFIGS)
    def pass_on(self, request: Request) -> None:
        """AlterConfigs 0-2. IncrementalAlterConfigs comes here, too, if it is not about loggers."""
        message = request.message()
        # Who may not change settings is told that by the controller, and learns nothing of our files.
        if ALTER_CLUSTER_CONFIGS.sees(request.rights, CLUSTER_NAME):
            for resource in message.resources:
                try:
                    self._look_at(resource, request.header.api_key)
                except KafkaError as error:
                    _refuse_all(request, message, resource, error)
                    return
        self._forward(request)

    def _look_at(self, resource: Any, api_key: int) -> None:
        if resource.resource_type != BROKER_RESOURCE:
            return
        named = [config.name for config in resource.configs]
        if self._check is not None and any(name.startswith(PREFIX) for name in named):
            self._look_at_after(resource, api_key, "listeners", self._check)
        if CORDONED in named:
            self._look_at_after(resource, api_key, "log directories", self._check_cordoned)

    def _check_cordoned(self, configs: Mapping[str, str]) -> None:
        cordoned = LIST.parse(configs.get(CORDONED, ""))
        for why in cordoning.wrong(cordoned, self._log_dirs):
            raise ConfigError(f"Invalid entry in {CORDONED}: {why}")

    def _look_at_after(self, resource: Any, api_key: int, what: str, check: Check) -> None:
        name = resource.resource_name
        if name not in ("", self._node):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Settings of {what} of broker {name} must be changed there, since only it can check them; this is"
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
        elif operation == APPEND and change.name == CORDONED:
            members = [*LIST.parse(after.get(CORDONED, "")), *LIST.parse(change.value or "")]
            after[CORDONED] = ",".join(dict.fromkeys(members))
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
