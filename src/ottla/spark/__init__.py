"""`format("ottla")`: Spark reads and writes any Kafka cluster, in pure Python, with the options of Spark's own connector.

Modules that plan and decide import neither Spark nor Arrow. `source.py` and the readers do. numba is imported only inside a
task.
"""
