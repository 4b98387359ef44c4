"""Incidents: the event log of a cluster becomes a report.

Events that belong together are one incident: they are about the same broker, partition, client or group, and follow each
other closely, or happen while it is down. Writes the table DIRECTORY/incidents (Parquet) and DIRECTORY/incidents.md, and
prints the report.
"""

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from ottla.diagnosis.happened import Happened
from ottla.diagnosis.timeline import Story, told
from ottla.diagnosis.words import clock, count, listed
from ottla.spark.command_config import cluster_options

GAP_S = 60
TROUBLE = (
    "fenced",
    "isr_shrink",
    "offline",
    "truncation",
    "log_dir_failure",
    "quota_exceeded",
    "member_expired",
    "transaction_aborted",
    "stray_log",
    "events_dropped",
)
"""An incident has at least one of these. An unclean election is one, too."""
SEQUEL = (
    "unfenced",
    "isr_expand",
    "election",
    "leader_start",
    "node_start",
    "node_stop",
    "rebalance",
)
"""These belong to an incident if they are near one."""
PLANNED = ("shutdown", "reassigned")
"""An ISR that shrinks for such a reason is no trouble by itself."""
CAUSES_FIRST = ("log_dir_failure", "fenced", "offline", "truncation")
"""What explains the others, if it is there."""
IN_WORDS = {
    "fenced": "was fenced",
    "isr_shrink": "has fewer replicas in sync",
    "offline": "went offline",
    "truncation": "was truncated",
    "log_dir_failure": "lost a log directory",
    "quota_exceeded": "was above its quota",
    "member_expired": "lost a member",
    "transaction_aborted": "was aborted",
    "stray_log": "had its log set aside",
    "events_dropped": "could not record events",
    "election": "had an unclean election",
}
SHOWN = 12
STORY_MAX = 1000


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--bootstrap", required=True, help="host:port of brokers")
    arguments.add_argument("--command-config", help="properties of Kafka's clients: TLS, SASL")
    arguments.add_argument("--directory", required=True, help="for the table and the report")
    arguments.add_argument(
        "--gap", type=float, default=GAP_S, help="seconds without an event that end an incident"
    )
    chosen = arguments.parse_args()
    spark = SparkSession.builder.appName("incidents").getOrCreate()
    logged = events(spark, cluster_options(chosen.bootstrap, chosen.command_config))
    found = incidents(logged, chosen.gap)
    found.write.mode("overwrite").parquet(f"{chosen.directory}/incidents")
    rows = spark.read.parquet(f"{chosen.directory}/incidents").orderBy("start").collect()
    text = report(rows)
    Path(chosen.directory, "incidents.md").write_text(text)
    spark.stop()
    print(text)


def events(spark: SparkSession, cluster: dict[str, str]) -> DataFrame:
    """`cluster`: the options by which sources reach it. Every entry once."""
    stored = spark.read.format("ottla").options(**cluster).option("events", "true").load()
    return stored.dropDuplicates(["id"])


def incidents(logged: DataFrame, gap_s: float = GAP_S) -> DataFrame:
    """A row for each incident: start, end, seconds, cause, brokers, partitions, unavailable (seconds by partition),
    records_lost, events (how many of which kind), story (the first of them, in order)."""
    known = logged.where(F.col("kind").isin(*TROUBLE, *SEQUEL)).localCheckpoint()
    together = known.join(labels(links(known, gap_s)), "id")
    first = F.min(F.when(is_trouble(), F.col("at"))).over(Window.partitionBy("incident"))
    # What came before the first trouble was no part of it; without any it is no incident.
    labelled = together.withColumn("first", first).where("at >= first").localCheckpoint()
    kinds = labelled.groupBy("incident", "kind").count()
    nowhere = F.map_from_arrays(F.array().cast("array<string>"), F.array().cast("array<double>"))
    counted = kinds.groupBy("incident").agg(
        F.map_from_entries(F.sort_array(F.collect_list(F.struct("kind", "count")))).alias("events")
    )
    outages = unavailable(labelled)
    summed = labelled.groupBy("incident").agg(
        F.min("at").alias("start"),
        F.max("at").alias("end"),
        F.min(_cause()).alias("first_cause"),
        F.array_sort(F.array_distinct(F.flatten(F.collect_list(_brokers())))).alias("brokers"),
        F.array_sort(F.collect_set("partition")).alias("partitions"),
        F.coalesce(F.sum(_lost()), F.lit(0)).cast("bigint").alias("records_lost"),
        F.slice(F.sort_array(F.collect_list(_event())), 1, STORY_MAX).alias("story"),
    )
    return (
        summed.join(counted, "incident")
        .join(outages, "incident", "left")
        .select(
            "incident",
            "start",
            "end",
            (F.unix_millis("end") / 1000 - F.unix_millis("start") / 1000).alias("seconds"),
            F.col("first_cause.text").alias("cause"),
            "brokers",
            "partitions",
            F.coalesce("unavailable", nowhere).alias("unavailable"),
            "records_lost",
            "events",
            "story",
        )
        .orderBy("start")
    )


def _event() -> Column:
    """As it stands in a story. The fields are JSON: maps cannot be sorted."""
    return F.struct(
        F.unix_millis("at").alias("at_ms"),
        "offset",
        "kind",
        "node",
        "partition",
        "cause",
        F.to_json("fields").alias("fields"),
    )


def is_trouble() -> Column:
    """Null-safe: a cause may be absent."""
    cause = F.coalesce("cause", F.lit(""))
    planned = (F.col("kind") == "isr_shrink") & cause.isin(*PLANNED)
    shut_down = (F.col("kind") == "fenced") & cause.startswith("its controlled shutdown")
    unclean = (F.col("kind") == "election") & (_text("how") == "unclean")
    return (F.col("kind").isin(*TROUBLE) & ~planned & ~shut_down) | unclean


def _text(field: str) -> Column:
    return F.coalesce(F.col("fields")[field], F.lit(""))


def _listed(field: str) -> Column:
    """A field that is a list of numbers."""
    return F.coalesce(
        F.from_json(F.col("fields")[field], "array<int>"), F.array().cast("array<int>")
    )


def _brokers() -> Column:
    """The brokers that an event is about: that failed, or came back."""
    nobody = F.array().cast("array<int>")
    own = F.col("kind").isin(
        "log_dir_failure", "node_start", "node_stop", "truncation", "stray_log"
    )
    return (
        F.when(F.col("kind").isin("isr_shrink", "isr_expand"), _listed("brokers"))
        .when(
            F.col("kind").isin("fenced", "unfenced"), F.array(F.col("fields")["broker"].cast("int"))
        )
        .when(own, F.array("node"))
        .otherwise(nobody)
    )


def _cause() -> Column:
    """The earliest trouble, those first that explain others. The smallest of these structs is the cause of the incident."""
    rank = F.when(
        F.col("kind").isin(*CAUSES_FIRST),
        F.array_position(F.array(*map(F.lit, CAUSES_FIRST)), F.col("kind")),
    ).otherwise(99)
    subject = F.coalesce("partition", F.regexp_replace("about", ":", " "))
    words = F.create_map(*(F.lit(word) for pair in IN_WORDS.items() for word in pair))
    text = F.concat_ws(
        ": ", F.concat_ws(" ", subject, F.coalesce(words[F.col("kind")], F.col("kind"))), "cause"
    )
    return F.when(is_trouble(), F.struct(rank.alias("rank"), F.col("at"), text.alias("text")))


def _lost() -> Column:
    """Records that were committed and that a truncation removed."""
    high = F.col("fields")["high_watermark"].cast("bigint")
    return F.when(
        (F.col("kind") == "truncation") & (_text("below_high_watermark") == "true"),
        high - F.col("fields")["first_offset"].cast("bigint"),
    )


def subjects() -> Column:
    """What ties an event to others: brokers that failed, partitions, and whatever else it is about. Not its leader: one
    healthy broker leads many partitions."""
    before = F.when(
        F.col("kind").isin("election", "offline")
        & (F.col("fields")["previous_leader"].cast("int") >= 0),
        F.array(F.col("fields")["previous_leader"].cast("int")),
    ).otherwise(F.array().cast("array<int>"))
    of_brokers = F.transform(
        F.array_distinct(F.concat(_brokers(), before)),
        lambda id: F.concat(F.lit("broker:"), id.cast("string")),
    )
    own = F.when(
        F.col("partition").isNotNull(), F.array(F.concat(F.lit("partition:"), "partition"))
    ).otherwise(F.array("about"))
    return F.array_distinct(F.concat(of_brokers, own))


def links(known: DataFrame, gap_s: float) -> DataFrame:
    """(id, run): a run is what follows each other closely about one subject, or while it is down."""
    each = known.select(
        "id",
        "at",
        "offset",
        "kind",
        F.explode(subjects()).alias("subject"),
        _opens().alias("opens"),
    )
    order = Window.partitionBy("subject").orderBy("at", "offset")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    down = F.coalesce(F.sum("opens").over(before), F.lit(0))
    gap = F.unix_millis("at") - F.unix_millis(F.lag("at").over(order))
    begins = F.when(gap.isNull() | ((gap > gap_s * 1000) & (down <= 0)), 1).otherwise(0)
    number = F.sum("begins").over(order)
    return each.withColumn("begins", begins).select(
        "id", F.concat_ws("#", "subject", number.cast("string")).alias("run")
    )


def _opens() -> Column:
    """+1 for each replica or broker that goes, -1 for each that comes back."""
    count = F.size(_listed("brokers"))
    return (
        F.when(F.col("kind").isin("fenced", "offline"), 1)
        .when(F.col("kind") == "unfenced", -1)
        .when(
            (F.col("kind") == "isr_shrink") & ~F.coalesce("cause", F.lit("")).isin(*PLANNED), count
        )
        .when(F.col("kind") == "isr_expand", -count)
        .when((F.col("kind") == "election") & (_text("previous_leader") == "-1"), -1)
        .otherwise(0)
    )


def labels(linked: DataFrame) -> DataFrame:
    """(id, incident): events that are connected through runs have the same label, the smallest id among them."""
    linked = linked.localCheckpoint()
    found = linked.select("id").distinct().withColumn("incident", F.col("id"))
    while True:
        of_runs = linked.join(found, "id").groupBy("run").agg(F.min("incident").alias("incident"))
        after = (
            linked.join(of_runs, "run")
            .groupBy("id")
            .agg(F.min("incident").alias("incident"))
            .localCheckpoint()
        )
        changed = after.join(found.withColumnRenamed("incident", "before"), "id").where(
            "incident != before"
        )
        if changed.isEmpty():
            return after
        found = after


def unavailable(labelled: DataFrame) -> DataFrame:
    """(incident, unavailable): seconds for which a partition had no leader, by partition. An outage that has not ended lasts
    until the last event of all."""
    last = labelled.agg(F.max("at").alias("last"))
    of_partition = labelled.where(F.col("kind").isin("offline", "election", "leader_start"))
    order = Window.partitionBy("partition").orderBy("at", "offset")
    following = of_partition.withColumn("next", F.lead("at").over(order)).crossJoin(last)
    without = F.unix_millis(F.coalesce("next", F.col("last"))) - F.unix_millis("at")
    is_out = (F.col("kind") == "offline") | (
        (F.col("kind") == "election") & F.col("next").isNotNull()
    )
    is_led = F.lead("kind").over(order) == "leader_start"
    return (
        following.withColumn("is_led", is_led)
        .where(is_out & ((F.col("kind") == "offline") | F.col("is_led")))
        .groupBy("incident", "partition")
        .agg((F.sum(without) / 1000).alias("seconds"))
        .groupBy("incident")
        .agg(
            F.map_from_entries(
                F.sort_array(F.collect_list(F.struct("partition", "seconds")))
            ).alias("unavailable")
        )
    )


# -- the report


def report(rows: list[Row]) -> str:
    """The incidents as Markdown."""
    lines = [
        "# Incidents",
        "",
        f"{count(len(rows), 'incident')} in the event log."
        if rows
        else "No incident is in the event log.",
    ]
    for number, row in enumerate(rows, 1):
        began = datetime.fromtimestamp(row.start.timestamp(), UTC)
        lines += [
            "",
            f"## {number}. {began:%Y-%m-%d %H:%M:%S} UTC, {row.seconds:.1f} s",
            "",
            *_lines(row),
        ]
    return "\n".join(lines) + "\n"


def _lines(row: Row) -> list[str]:
    out = {name: seconds for name, seconds in row.unavailable.items() if seconds > 0}
    worst = sorted(out.items(), key=lambda each: -each[1])
    lines = [f"- Cause: {row.cause}."]
    if row.brokers:
        lines.append(f"- Brokers: {listed(row.brokers)}.")
    if row.partitions:
        names = listed(
            [*row.partitions[:SHOWN], *(["more"] if len(row.partitions) > SHOWN else [])]
        )
        lines.append(f"- {count(len(row.partitions), 'partition')} affected: {names}.")
    if worst:
        named = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in worst[:SHOWN])
        lines.append(f"- Without a leader: {named}.")
    lines.append(f"- Records lost: {row.records_lost}.")
    lines += ["", "| time (UTC) | what happened |", "|---|---|"]
    lines += [f"| {at} | {text} |" for at, text in _story(row)]
    return lines


def _story(row: Row) -> list[tuple[str, str]]:
    """The same words as `ottla explain` has for them."""
    happened = [
        Happened(
            each.at_ms,
            each.kind,
            each.node,
            each.partition,
            each.cause,
            {name: _value(text) for name, text in json.loads(each.fields or "{}").items()},
        )
        for each in row.story
    ]
    now_ms = happened[-1].at_ms if happened else 0
    lines, left_out = told(Story(happened, 0), now_ms)
    shown = [(clock(line.at_ms, now_ms), line.text) for line in lines]
    return [("…", left_out), *shown] if left_out else shown


def _value(text: str | None) -> object:
    """A field is JSON, or a text that is itself."""
    try:
        return json.loads(text) if text is not None else None
    except ValueError:
        return text


if __name__ == "__main__":
    main()
