"""Which topics a command means: Kafka's include list, a regular expression in which a comma is "or"."""

from __future__ import annotations

import re
from collections.abc import Callable

from ottla.kafka_tools.options import ToolError


def include_filter(text: str) -> Callable[[str], bool]:
    pattern = re.sub(r"^[\"']+|[\"']+$", "", text.strip().replace(",", "|").replace(" ", ""))
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ToolError(f"{pattern} is an invalid regex: {error}.") from None
    return lambda topic: compiled.fullmatch(topic) is not None
