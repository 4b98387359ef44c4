"""How a job reaches a cluster: addresses, and what Kafka's own tools take from the file of their --command-config.

A file, not arguments: it holds passwords, and every user may read the arguments of a process.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.client import BlockingClient
from ottla.config.sources import read_properties
from ottla.spark.connect.connection import ConnectionOptions
from ottla.spark.connect.secured import client_for
from ottla.spark.options import KAFKA, Options


def cluster_options(bootstrap: str, command_config: str | None = None) -> dict[str, str]:
    """Options of `format("ottla")`, for reading and writing alike. ConfigError if the file cannot be read."""
    settings = [] if command_config is None else read_properties(command_config)
    return kafka_options(bootstrap, {each.name: each.value for each in settings})


def kafka_options(bootstrap: str, settings: Mapping[str, str]) -> dict[str, str]:
    """The same from settings that were read already."""
    named = {KAFKA + name: value for name, value in settings.items()}
    return named | {KAFKA + "bootstrap.servers": bootstrap}


def client_of(cluster: dict[str, str]) -> BlockingClient:
    """A client for what a job asks beside its DataFrames. OptionError if the options cannot be followed."""
    return client_for(BlockingClient, ConnectionOptions.of(Options(cluster)))
