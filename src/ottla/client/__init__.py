"""A small client of any Kafka cluster: administration, producing and fetching, async or blocking."""

from ottla.client.blocking import BackgroundClient, BlockingClient
from ottla.client.client import Client
from ottla.client.connections import Unreachable
from ottla.client.producer import Producer

__all__ = ["BackgroundClient", "BlockingClient", "Client", "Producer", "Unreachable"]
