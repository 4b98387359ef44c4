"""How Spark finds `format("ottla")`: it looks for a `DefaultSource` in every top-level module named `pyspark_…`."""

from ottla.spark.source import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]
