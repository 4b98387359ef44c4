"""The differences between ottla and Apache Kafka 4.3.1 that are decided, as data: docs/COMPATIBILITY.md lists them too.

Patterns are those of `fnmatch`: of the path in the answer, and of what each side says there (`repr`).
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from support.differential.answers import Difference

OTTLA, KAFKA, BOTH = "ottla", "Kafka", "both"


class Decided(NamedTuple):
    api: str
    path: str
    ottla: str
    kafka: str
    right: str
    """Who is: OTTLA, KAFKA (then it is a limit of ottla), or BOTH where each says what it is."""
    reason: str
    parts: bool = False
    """Whether something is done on one side only, so that whatever follows in the conversation differs, too."""

    def covers(self, api: str, found: Difference) -> bool:
        return (
            fnmatchcase(api, self.api)
            and fnmatchcase(found.path, self.path)
            and fnmatchcase(repr(found.ottla), self.ottla)
            and fnmatchcase(repr(found.kafka), self.kafka)
        )


def decided(api: str, found: Difference) -> Decided | None:
    return next((each for each in DECIDED if each.covers(api, found)), None)


_TWICE = "a request that names something twice: Kafka's answer depends on the collection that it puts it into"
_NOTHING = "a request that names a topic and none of its partitions: there is nothing to say"
TWICE_OR_NOTHING: Final = (
    ("ADD_PARTITIONS_TO_TXN", "results_by_*[[]]", f"{_NOTHING}; or {_TWICE}", False),
    ("ADD_PARTITIONS_TO_TXN", "results_by_transaction.*error_code", _TWICE, False),
    ("OFFSET_COMMIT", "topics[[]]", _NOTHING, False),
    ("TXN_OFFSET_COMMIT", "topics[[]]", _NOTHING, False),
    ("CREATE_PARTITIONS", "results[[]]", _TWICE, False),
    ("CREATE_TOPICS", "topics[[]]", _TWICE, False),
    ("INCREMENTAL_ALTER_CONFIGS", "responses.error_code", _TWICE, True),
    ("*ALTER_CONFIGS", "responses[[]]", _TWICE, False),
    ("DESCRIBE_TOPIC_PARTITIONS", "topics[[]]", _TWICE, False),
    ("ALTER_CONFIGS", "responses.error_code", _TWICE, True),
    ("WRITE_TXN_MARKERS", "markers[[]]", _NOTHING, False),
    ("UPDATE_FEATURES", "*", _TWICE, False),
    ("ALTER_CLIENT_QUOTAS", "entries*", _TWICE, True),
    ("LIST_OFFSETS", "topics[[]]", _TWICE, False),
    ("ALTER_PARTITION_REASSIGNMENTS", "responses[[]]", _NOTHING, False),
    ("ALTER_PARTITION_REASSIGNMENTS", "responses.partitions.error_code", _TWICE, False),
    ("DESCRIBE_CONFIGS", "results[[]]", _TWICE, False),
    ("ELECT_LEADERS", "replica_election_results[[]]", _NOTHING, False),
    ("FETCH", "responses*[[]]", _TWICE, False),
    ("LIST_OFFSETS", "topics.partitions[[]]", _TWICE, False),
    ("ELECT_LEADERS", "replica_election_results.partition_result[[]]", _TWICE, False),
    ("PRODUCE", "responses[[]]", _TWICE, True),
    ("METADATA", "topics[[]]", _TWICE, False),
    ("PRODUCE", "responses.partition_responses[[]]", _TWICE, True),
)

DECIDED: Final = (
    # Whatever is asked
    Decided(
        "*",
        "",
        "{*",
        "'the connection is closed'",
        OTTLA,
        "a value that means nothing is answered with an error; Kafka fails while it reads the request, and closes the connection",
        parts=True,
    ),
    Decided(
        "*",
        "*error_code",
        "*",
        "-1",
        OTTLA,
        "Kafka has only UNKNOWN_SERVER_ERROR, often for the whole request; ottla says what is wrong, and with which part",
        parts=True,
    ),
    Decided(
        "*",
        "",
        "{*",
        "'no answer'",
        OTTLA,
        "Kafka never answers: the request waits for something that does not come",
        parts=True,
    ),
    # What each serves
    *(
        Decided(
            "API_VERSIONS",
            "api_keys[[]]",
            f"*('{keys}',) x 0*",
            f"*('{keys}',) x 1*",
            BOTH,
            "each announces what it serves; what ottla does not is listed above",
        )
        for keys in ("7[6-9]", "8[3-9]", "9[0-2]")
    ),
    Decided(
        "API_VERSIONS",
        "api_keys[[]]",
        "*('7[12]',) x 1*",
        "*('7[12]',) x 0*",
        BOTH,
        "Kafka announces telemetry only where a plugin receives it; ottla receives it itself (KIP-714)",
    ),
    Decided(
        "API_VERSIONS",
        "api_keys[[]]",
        "*('50',) x 0*",
        "*('50',) x 1*",
        OTTLA,
        "Kafka's controller announces DescribeUserScramCredentials, which only its brokers serve",
    ),
    Decided(
        "API_VERSIONS",
        "supported_features[[]]",
        "*x 0*",
        "*x 1*",
        BOTH,
        "share and streams groups are not served",
    ),
    # Settings
    *(
        Decided(
            "*_CONFIGS",
            "results.configs.synonyms[[]]",
            f"*{ours}*x {one}*",
            f"*{ours}*x {other}*",
            BOTH,
            "ottla shows a default under the name that it uses; Kafka shows it under the name in hours, or not at all",
        )
        for ours, one, other in (
            ("log.retention.hours", 0, 1),
            ("log.retention.ms", 2, 1),
            ("log.roll.ms", 1, 0),
            ("log.roll.jitter.ms", 1, 0),
            ("log.flush.interval.ms", 1, 0),
        )
    ),
    *(
        Decided("DESCRIBE_CONFIGS", f"results.broker_configs{field}", ours, "*", BOTH, why)
        for field, ours, why in (
            ("[[]]", "*", "settings of machinery that only one of them has"),
            (
                ".value",
                "*",
                "addresses, paths and algorithms of each, and what a setting is by default that has no value in Kafka",
            ),
            (".synonyms*", "*", "values of their own, under names of their own"),
            (
                ".read_only",
                "True",
                "fewer settings may be changed while ottla runs, those of Kafka's listeners for example",
            ),
            (
                ".is_sensitive",
                "False",
                "Kafka hides the value of a setting whose name it does not know",
            ),
            (
                ".config_type",
                "[12]",
                "Kafka does not know the type of a setting whose name it does not know",
            ),
        )
    ),
    # Requests that name a thing twice, or a topic and nothing of it
    *(
        Decided(api, path, "*", "*", BOTH, why, parts=parts)
        for api, path, why, parts in TWICE_OR_NOTHING
    ),
    # Single ones
    Decided(
        "ALTER_USER_SCRAM_CREDENTIALS",
        "results.error_code",
        "93",
        "0",
        OTTLA,
        "stricter on purpose: a salt has 8 to 128 bytes, and a salted password as many as its mechanism has",
        parts=True,
    ),
    Decided(
        "CREATE_ACLS",
        "results.error_code",
        "42",
        "0",
        OTTLA,
        "stricter on purpose: a host that is neither * nor an address would never match anybody",
        parts=True,
    ),
    Decided(
        "DESCRIBE_ACLS",
        "error_code",
        "42",
        "0",
        OTTLA,
        "a filter with a number that means nothing is refused; in Kafka it matches nothing",
    ),
    *(
        Decided(
            "CREATE_DELEGATION_TOKEN",
            f"{who}principal_{part}",
            "''",
            "*",
            BOTH,
            "of a token that is refused, Kafka repeats who asked",
        )
        for who in ("", "token_requester_")
        for part in ("type", "name")
    ),
    Decided(
        "DESCRIBE_QUORUM",
        "topics.partitions.current_voters.replica_directory_id",
        "'#id'",
        "None",
        OTTLA,
        "ottla names the directory of a voter in a quorum of fixed voters too; Kafka leaves it out there",
    ),
    *(
        Decided(
            api,
            f"{rows}error_code",
            "*",
            "7",
            BOTH,
            "with a timeout of 0 Kafka's controller gives up before it begins; ottla has decided before any time is over",
            parts=True,
        )
        for api, rows in (
            ("CREATE_PARTITIONS", "results."),
            ("DELETE_TOPICS", "responses."),
            ("ELECT_LEADERS", "*"),
            ("ALTER_PARTITION_REASSIGNMENTS", "*"),
        )
    ),
    Decided(
        "ALTER_PARTITION_REASSIGNMENTS",
        "allow_replication_factor_change",
        "False",
        "True",
        BOTH,
        "in a refusal of the whole request Kafka leaves out what was asked for (KIP-860)",
    ),
    Decided(
        "ALTER_USER_SCRAM_CREDENTIALS",
        "results.error_code",
        "9[13]",
        "*",
        BOTH,
        "several things are wrong with one request, and each names another one of them first",
        parts=True,
    ),
    *(
        Decided(
            "DESCRIBE_CONFIGS",
            path,
            ours,
            theirs,
            OTTLA,
            "one resource of a kind that does not exist fails the others, too, in Kafka",
        )
        for path, ours, theirs in (
            ("results.error_code", "*", "42"),
            ("results.configs[[]]", "*x 1*", "*x 0*"),
        )
    ),
    *(
        Decided(
            "DESCRIBE_CONFIGS",
            "results.configs[[]]",
            f"*{kind}.*x 0*",
            "*x 1*",
            BOTH,
            "settings of share and streams groups, which are not served",
        )
        for kind in ("share", "streams")
    ),
    *(
        Decided(
            "DESCRIBE_TOPIC_PARTITIONS",
            path,
            ours,
            theirs,
            BOTH,
            "that a topic does not exist is said at once, or in the next answer, when this one is full",
        )
        for path, ours, theirs in (
            ("next_cursor", "None", "{*: 0}"),
            ("topics[[]]", "*x 1*", "*x 0*"),
        )
    ),
    Decided(
        "DESCRIBE_TOPIC_PARTITIONS",
        "next_cursor",
        "None",
        "{*: -*",
        OTTLA,
        "behind a cursor at the end of all numbers Kafka's partitions begin again below 0",
    ),
    Decided(
        "ELECT_LEADERS",
        "error_code",
        "42",
        "0",
        OTTLA,
        "a kind of election that does not exist is refused also if it is for no partition",
    ),
    Decided(
        "ALTER_PARTITION",
        "error_code",
        "77",
        "0",
        OTTLA,
        "who is no broker is told so, also if it asks for nothing",
    ),
    Decided(
        "DESCRIBE_CLUSTER",
        "endpoint_type",
        "2",
        "1",
        OTTLA,
        "a refusal says what answers there, a controller; Kafka repeats the schema's default (KIP-919)",
    ),
    *(
        Decided(
            api,
            "node_endpoints[[]]",
            "*x 1*",
            "*x 0*",
            BOTH,
            "where the leader listens is also said by the leader itself (KIP-853)",
        )
        for api in ("FETCH", "FETCH_SNAPSHOT")
    ),
    Decided(
        "FETCH_SNAPSHOT",
        "topics[[]]",
        "*x 1*",
        "*x 0*",
        OTTLA,
        "a snapshot that does not exist: SNAPSHOT_NOT_FOUND; Kafka fails with one above the end of its log",
    ),
    *(
        Decided(
            "DESCRIBE_TOPIC_PARTITIONS",
            path,
            ours,
            theirs,
            BOTH,
            "a cursor that names no topic: the first one comes next, or it is refused",
        )
        for path, ours, theirs in (
            ("topics.error_code", "0", "42"),
            ("topics.topic_id", "*", "None"),
            ("topics.partitions[[]]", "*", "*x 0*"),
            ("next_cursor", "{*", "None"),
        )
    ),
    Decided(
        "DESCRIBE_TOPIC_PARTITIONS",
        "topics.topic_authorized_operations",
        "[0-9]*",
        "-2147483648",
        OTTLA,
        "what one may do with a topic that has no name; Kafka fails with it",
    ),
    Decided(
        "FETCH",
        "error_code",
        "42",
        "0",
        BOTH,
        "an isolation level that does not exist: refused at once, or when there is something to read",
        parts=True,
    ),
    *(
        Decided(
            "FETCH",
            field,
            ours,
            theirs,
            OTTLA,
            "a fetcher that begins a new session on a connection has left its last one there; Kafka keeps both",
            parts=True,
        )
        for field, ours, theirs in (
            ("error_code", "70", "0"),
            ("error_code", "70", "71"),
            ("session_id", "0", "'#session_id *'"),
        )
    ),
    Decided(
        "PRODUCE",
        "responses.partition_responses.log_start_offset",
        "[0-9]*",
        "-1",
        BOTH,
        "of records that are no batch at all, ottla tells where the log begins, as after other errors (KIP-360)",
    ),
    Decided(
        "FETCH",
        "session_id",
        "'#session_id 0'",
        "0",
        BOTH,
        "in the refusal of a whole request: the session that was named, or none",
    ),
    *(
        Decided(
            api,
            path,
            ours,
            theirs,
            BOTH,
            "two things are wrong with one request, and each names another one of them",
        )
        for api, path, ours, theirs in (
            ("*ALTER_CONFIGS", "responses.error_code", "17", "4[02]"),
            ("BROKER_REGISTRATION", "error_code", "102", "104"),
            ("*ALTER_CONFIGS", "responses.error_code", "42", "40"),
            ("TXN_OFFSET_COMMIT", "topics.partitions.error_code", "4[29]", "47"),
            ("PRODUCE", "responses.partition_responses.error_code", "21", "*"),
            ("FETCH", "error_code", "70", "106"),
            ("TXN_OFFSET_COMMIT", "topics.partitions.error_code", "49", "42"),
            ("CONSUMER_GROUP_HEARTBEAT", "error_code", "128", "69"),
            ("FETCH", "responses.partitions.error_code", "42", "3"),
            ("JOIN_GROUP", "error_code", "23", "25"),
        )
    ),
    Decided(
        "JOIN_GROUP",
        "member_id",
        "'#member_id 0'",
        "''",
        OTTLA,
        "a static member with an id that the group does not know is told so; Kafka fails with it",
    ),
    *(
        Decided(
            "PRODUCE",
            f"responses.partition_responses.{field}",
            ours,
            theirs,
            OTTLA,
            "a transaction of nobody: no marker would ever end it",
            parts=True,
        )
        for field, ours, theirs in (("error_code", "48", "0"), ("base_offset", "-1", "[0-9]*"))
    ),
    Decided(
        "LIST_GROUPS",
        "groups[[]]",
        r"""*("\'\'",) x 0*""",
        "*x 1*",
        OTTLA,
        "a commit without a group that is refused leaves an empty group behind in Kafka",
    ),
    Decided(
        "CONSUMER_GROUP_HEARTBEAT",
        "assignment.topic_partitions[[]]",
        "*x 1*",
        "*x 0*",
        BOTH,
        "Kafka's coordinator may not know a topic yet that was created a moment ago; the next heartbeat brings it",
        parts=True,
    ),
    Decided(
        "CONSUMER_GROUP_DESCRIBE",
        "groups.members.subscribed_topic_regex",
        "None",
        "''",
        OTTLA,
        "without a pattern it is null, as Kafka's own schema says",
    ),
    *(
        Decided(
            "CONSUMER_GROUP_HEARTBEAT",
            field,
            ours,
            theirs,
            OTTLA,
            "a static member may join again under the member id that it had; Kafka makes it wait for the end of its session",
            parts=True,
        )
        for field, ours, theirs in (
            ("error_code", "0", "111"),
            ("assignment", "{*", "None"),
            ("heartbeat_interval", "[0-9]*", "0"),
            ("member_id", "'#member_id *'", "None"),
            ("member_epoch", "'#group_epoch *'", "0"),
        )
    ),
    Decided(
        "CONSUMER_GROUP_HEARTBEAT",
        "error_code",
        "25",
        "69",
        OTTLA,
        "a member whose group is gone joins again after UNKNOWN_MEMBER_ID; Kafka's GROUP_ID_NOT_FOUND ends Java's consumer",
    ),
    Decided(
        "FETCH",
        "responses.partitions.aborted_transactions",
        "None",
        "[[]]",
        BOTH,
        "null and an empty list say the same: none",
    ),
    Decided(
        "OFFSET_FOR_LEADER_EPOCH",
        "topics.partitions.*",
        "-1",
        "*",
        BOTH,
        "an epoch below -1 cannot be; to ottla it never was, to Kafka it ended where the log begins",
    ),
    Decided(
        "LIST_OFFSETS",
        "topics.partitions.*",
        "-1",
        "[0-9]*",
        OTTLA,
        "asked for the newest time, Kafka names a record that DeleteRecords has deleted; ottla names none",
    ),
    Decided(
        "LIST_TRANSACTIONS",
        "transaction_states[[]]",
        "*x 0*",
        "*x 1*",
        OTTLA,
        "asked for transactions that last longer than something, Kafka also names producers that never began one (KIP-994)",
    ),
    Decided(
        "INIT_PRODUCER_ID",
        "producer_epoch",
        "[0-9]*",
        "[0-9]*",
        BOTH,
        "an abort by the coordinator itself raises the epoch by two in ottla and, since 4.3, by one in Kafka; either fences",
        parts=True,
    ),
    Decided(
        "END_TXN",
        "error_code",
        "90",
        "48",
        BOTH,
        "an epoch below 0 and an end that cannot be: each names another one of them",
    ),
    Decided(
        "PRODUCE",
        "responses.partition_responses.log_append_time",
        "None",
        "[0-9]*",
        OTTLA,
        "only the broker's own time is told; of a batch that it has already, Kafka tells the producer's",
    ),
    Decided(
        "JOIN_GROUP",
        "protocol_name",
        "''",
        "None",
        BOTH,
        "a protocol whose name is empty; Kafka takes the empty name for none",
    ),
)
