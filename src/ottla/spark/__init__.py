"""`format("ottla")`: Spark reads and writes any Kafka cluster, in pure Python, with the options of Spark's own connector.

What plans and decides imports neither Spark nor Arrow; `source.py` and the readers do, numba is only asked for inside of a task.
"""
