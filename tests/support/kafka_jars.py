"""Apache Kafka's own command-line tools, to read what we write and to write what we read.

They come from Maven Central through the machine's `mvn` into `.cache/`, once. A slow test that cannot have
them fails and says what is missing: whoever asks for the slow tests wants to know whether Kafka agrees.
"""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

KAFKA_VERSION = "4.3.1"
SLF4J = "org.slf4j:slf4j-simple:1.7.36"
TOOLS = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
    f"org.apache.kafka:kafka-shell:{KAFKA_VERSION}",
    SLF4J,
)
CLIENT = (f"org.apache.kafka:kafka-clients:{KAFKA_VERSION}", SLF4J)
STREAMS = (f"org.apache.kafka:kafka-streams:{KAFKA_VERSION}", SLF4J)
"""With the Java client, without the broker."""
CONNECTOR_VERSION = "4.0.0"
CONNECTOR = (f"org.apache.spark:spark-sql-kafka-0-10_2.13:{CONNECTOR_VERSION}",)
"""Spark's own connector with its Kafka client; Spark itself is in the package of the same version."""
COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
COPY_OPTIONS = ("-DoutputDirectory=jars", "-DincludeScope=runtime")
INSTALL_TIMEOUT_S = 600
TOOL_TIMEOUT_S = 120
SHELL_ATTEMPTS = 6
JVM_OPTIONS = (
    "-Xmx384m",
    "-XX:TieredStopAtLevel=1",  # short-lived: starting quickly is worth more than running quickly
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)

CACHE = Path(__file__).resolve().parents[2] / ".cache"
DIRECTORIES = {
    TOOLS: f"kafka-{KAFKA_VERSION}",
    CLIENT: f"kafka-clients-{KAFKA_VERSION}",
    STREAMS: f"kafka-streams-{KAFKA_VERSION}",
    CONNECTOR: f"spark-connector-{CONNECTOR_VERSION}",
}
ARTIFACTS_FILE = "artifacts.txt"

DUMP_LOG = "org.apache.kafka.tools.DumpLogSegments"
STORAGE = "kafka.tools.StorageTool"
METADATA_SHELL = "org.apache.kafka.shell.MetadataShell"


def run_tool(
    main_class: str | Path,
    *args: str | Path,
    timeout_s: float = TOOL_TIMEOUT_S,
    exits_with: int = 0,
    jars: tuple[str, ...] = TOOLS,
) -> str:
    """What the tool printed, both streams in order. Fails the test unless it exits as it should."""
    done = subprocess.run(
        java_command(main_class, *args, jars=jars),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout_s,
        check=False,
    )
    output = done.stdout.decode("utf-8", "replace")
    if done.returncode != exits_with:
        pytest.fail(f"{main_class} {args} exited with {done.returncode}:\n{output}", pytrace=False)
    return output


def java_command(
    main_class: str | Path, *args: str | Path, jars: tuple[str, ...] = TOOLS
) -> list[str]:
    """A class of these jars, or a program of one .java file, which is compiled on the way."""
    return ["java", *JVM_OPTIONS, "-cp", f"{installed(jars)}/*", str(main_class), *map(str, args)]


def metadata_tree(path: Path) -> list[str]:
    """The metadata in a checkpoint or a segment, replayed by Kafka's own loader: `/path: value` each,
    without where in the file it ended.

    The shell of 4.3 does not wait for its own loader: now and then, whatever the file, it shows an empty
    image or never comes back. Then it is asked again.
    """
    for _ in range(SHELL_ATTEMPTS):
        try:
            output = run_tool(METADATA_SHELL, "--snapshot", path, "tree", "/", timeout_s=20)
        except subprocess.TimeoutExpired:
            continue
        unread = [line for line in output.splitlines() if "unable to read" in line]
        assert not unread, "\n".join(unread)
        lines = _flattened(output)
        if "/image/features/metadataVersion: Optional.empty" not in lines:
            return lines
    pytest.fail(f"Kafka's metadata shell did not answer {SHELL_ATTEMPTS} times", pytrace=False)


def _flattened(tree: str) -> list[str]:
    """The shell indents by two for each level; a directory ends with a colon."""
    at: list[str] = []
    lines = []
    for line in tree.splitlines():
        depth = (len(line) - len(line.lstrip(" "))) // 2
        text = line.strip()
        if line.startswith("[") or not text or text.startswith("offset "):
            continue  # what it logs, and where it stopped
        del at[depth:]
        if text.endswith(":"):
            at.append(text[:-1])
        else:
            lines.append(f"/{'/'.join(at)}: {text}")
    return lines


def _are_here(artifacts: tuple[str, ...]) -> bool:
    file = CACHE / DIRECTORIES[artifacts] / ARTIFACTS_FILE
    return file.is_file() and file.read_text() == "\n".join(artifacts)


def lack(artifacts: tuple[str, ...] = TOOLS) -> str | None:
    """What has to be installed before these can run, in words; Maven only if they are not here yet."""
    needed = ("java",) if _are_here(artifacts) else ("java", "mvn")
    missing = [name for name in needed if shutil.which(name) is None]
    if not missing:
        return None
    return (
        f"Apache Kafka's programmes need {' and '.join(missing)} on the PATH "
        "(a Java of at least 17, Apache Maven)"
    )


@cache
def installed(artifacts: tuple[str, ...] = TOOLS) -> Path:
    if (why := lack(artifacts)) is not None:
        pytest.fail(why, pytrace=False)
    jars = CACHE / DIRECTORIES[artifacts]
    if not _are_here(artifacts):
        _install(artifacts, jars)
    return jars


def _install(artifacts: tuple[str, ...], jars: Path) -> None:
    CACHE.mkdir(exist_ok=True)
    building = Path(mkdtemp(prefix="kafka-jars-", dir=CACHE))
    try:
        (building / "pom.xml").write_text(_pom(artifacts))
        done = subprocess.run(
            ["mvn", "-q", "-B", "-f", building / "pom.xml", COPY_GOAL, *COPY_OPTIONS],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=INSTALL_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            said = done.stdout.decode("utf-8", "replace")
            pytest.fail(f"mvn could not fetch Apache Kafka {KAFKA_VERSION}:\n{said}", pytrace=False)
        (building / "jars" / ARTIFACTS_FILE).write_text("\n".join(artifacts))
        # Whole or not at all: another test run may be looking at the same moment.
        shutil.rmtree(jars, ignore_errors=True)
        (building / "jars").rename(jars)
    finally:
        shutil.rmtree(building)


def _pom(artifacts: tuple[str, ...]) -> str:
    dependencies = "".join(
        "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>".format(
            *artifact.split(":")
        )
        for artifact in artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>ottla.tests</groupId><artifactId>kafka-tools</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>\n"
    )
