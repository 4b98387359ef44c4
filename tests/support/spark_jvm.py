"""How the JVM of a Spark session under test is started: quickly, and with errors only on stderr."""

from __future__ import annotations

from pathlib import Path

# Tests are over before the optimising compiler would pay.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def quiet(directory: Path) -> Path:
    """A configuration of log4j, written into the directory."""
    file = directory / "log4j2.properties"
    file.write_text(
        "rootLogger.level = error\n"
        "rootLogger.appenderRef.stderr.ref = stderr\n"
        "appender.console.type = Console\n"
        "appender.console.name = stderr\n"
        "appender.console.target = SYSTEM_ERR\n"
        "appender.console.layout.type = PatternLayout\n"
        "appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex\n"
    )
    return file
