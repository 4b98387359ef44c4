"""A stream as a process of its own, which can be killed: lines of files to a topic, a file for each micro-batch.

    python sink_job.py BOOTSTRAP TOPIC DIRECTORY NAME=VALUE…

prints the processes to kill for killing the driver, and then runs until everything in DIRECTORY/input is written.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from support.spark_jvm import QUICK, quiet


def main(bootstrap: str, topic: str, directory: Path, options: dict[str, str]) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    logging = quiet(directory)
    spark = (
        SparkSession.builder.master("local[2,4]")  # a task that dies is tried again
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", f"{QUICK} -Dlog4j2.configurationFile={logging}")
        .config("spark.driver.memory", "512m")
        .config("spark.local.dir", str(directory / "local"))
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    print(jvm, os.getpid(), flush=True)
    if not sys.stdin.readline():
        return
    query = (
        spark.readStream.format("text")
        .option("maxFilesPerTrigger", 1)
        .load(str(directory / "input"))
        .repartition(3, "value")
        .selectExpr("value", "value AS key")
        .writeStream.format("ottla")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", topic)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .option("kafka.batch.size", 2000)
        .options(**options)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), dict(w.split("=") for w in sys.argv[4:]))
