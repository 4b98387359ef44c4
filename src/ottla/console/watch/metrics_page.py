"""What is read from a broker's metrics page in JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from ottla.console.model.flow import FlowCounters

RECORDS_IN = "kafka_server_brokertopicmetrics_messagesin_total"
BYTES_IN = "kafka_server_brokertopicmetrics_bytesin_total"
BYTES_OUT = "kafka_server_brokertopicmetrics_bytesout_total"
COPIED_IN = "kafka_server_brokertopicmetrics_replicationbytesin_total"
CPU = "process_cpu_seconds_total"


class PageCounters(NamedTuple):
    broker: FlowCounters
    topics: Mapping[str, FlowCounters]


def read_page(text: str) -> PageCounters | None:
    """None if it is no such page."""
    try:
        families = json.loads(text)["families"]
        samples = {
            family["name"]: {
                each["labels"].get("topic"): each["value"] for each in family["samples"]
            }
            for family in families
            if family["name"] in (RECORDS_IN, BYTES_IN, BYTES_OUT, COPIED_IN, CPU)
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    topics = {name for each in samples.values() for name in each if name is not None}
    return PageCounters(
        _counters(samples, None), {topic: _counters(samples, topic) for topic in topics}
    )


def _counters(samples: Mapping[str, Mapping[str | None, Any]], topic: str | None) -> FlowCounters:
    names = (RECORDS_IN, BYTES_IN, BYTES_OUT, COPIED_IN, CPU)
    return FlowCounters(*(samples.get(name, {}).get(topic) for name in names))
