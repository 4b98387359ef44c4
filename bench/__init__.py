"""ottla and Apache Kafka on the same machine, in turns, with the same clients: see docs/BENCHMARKS.md."""
