"""One Spark session for all tests that need one; the cluster (`cluster`, `new_topic`, `new_cluster`) is everybody's.

A test file here begins with `pytest.importorskip("pyspark", reason=…)`, so that it can import what it likes.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from support.spark_jvm import QUICK, quiet


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """local[2], quiet, its files in a temporary directory."""
    sql = pytest.importorskip("pyspark.sql", reason="needs PySpark: scripts/setup --spark")
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        pytest.skip("needs Java 17 (Debian: apt-get install openjdk-17-jre-headless)")
    directory = tmp_path_factory.mktemp("spark")
    logging = quiet(directory)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    session = (
        sql.SparkSession.builder.master("local[2]")
        .appName("ottla tests")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", f"{QUICK} -Dlog4j2.configurationFile={logging}")
        .config("spark.driver.memory", "1g")
        .config("spark.local.dir", str(directory / "local"))
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    yield session
    session.stop()
