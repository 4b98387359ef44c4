"""One task of a batch query, in a process of its own as Spark's are, without Spark: BOOTSTRAP TOPIC END.

Reads partition 0 up to the offset END and prints what it read and the most memory that it has had.
"""

import json
import resource
import sys

from pyspark.sql.types import StructType

from pyspark_ottla import DefaultSource

BOOTSTRAP, TOPIC, END = sys.argv[1:]
source = DefaultSource(
    {
        "kafka.bootstrap.servers": BOOTSTRAP,
        "subscribe": TOPIC,
        "endingOffsets": json.dumps({TOPIC: {"0": int(END)}}),
    }
)
schema = source.schema()
assert isinstance(schema, StructType)
reader = source.reader(schema)
(task,) = reader.partitions()
rows = size = 0
for batch in reader.read(task):
    rows += batch.num_rows
    size += batch.column("value").nbytes
print(
    json.dumps(
        {
            "rows": rows,
            "bytes": size,
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
        }
    )
)
