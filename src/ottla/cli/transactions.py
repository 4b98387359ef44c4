"""`ottla transactions …`: open transactions, their age, and how to abort one."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.connect import (
    BootstrapOption,
    CommandConfigOption,
    DirOption,
    TimeoutOption,
    connect,
)
from ottla.cli.errors import CONFLICT, NOT_FOUND, UNREACHABLE, USAGE, Failure
from ottla.cli.output import Format, FormatOption, print_json, print_table, say, warn_of_silent

if TYPE_CHECKING:
    from ottla.client import BlockingClient
    from ottla.client.transaction_admin import (
        OpenTransaction,
        TransactionAdmin,
        TransactionDescription,
    )

app = typer.Typer(
    help="List, describe or abort transactions.", no_args_is_help=True, rich_markup_mode=None
)

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The transactional id.")]


@app.command("list")
def list_transactions(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", help="Only these, as ongoing or CompleteCommit; may be repeated."),
    ] = None,
    open_for: Annotated[
        float | None,
        typer.Option("--open-for", metavar="SECONDS", help="Only those that began so long ago."),
    ] = None,
    pattern: Annotated[
        str | None, typer.Option("--pattern", help="Only ids that this expression matches.")
    ] = None,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """List the transactional ids of all brokers."""
    from ottla.client.transaction_admin import TransactionAdmin

    states = tuple(_state(name) for name in state or ())
    _require_pattern(pattern)
    with connect(bootstrap, dir, timeout, command_config) as blocking:
        found, silent = blocking.run(
            TransactionAdmin(blocking.client).all(
                states=states,
                open_for_ms=-1 if open_for is None else round(open_for * 1000),
                pattern=pattern,
            )
        )
    warn_of_silent(silent)
    if format is Format.json:
        print_json([each._asdict() for each in found])
        return
    print_table(
        ("transactional-id", "state", "producer", "coordinator"),
        [(each.id, each.state, each.producer_id, each.coordinator) for each in found],
    )


def _state(name: str) -> str:
    """The state as Kafka writes it; any case is accepted."""
    from ottla.coordinators.transactions.transaction_records import TransactionState

    labels = [state.label for state in TransactionState]
    for label in labels:
        if label.lower() == name.lower():
            return label
    raise Failure(f"--state {name}: there are {', '.join(labels)}", USAGE)


def _require_pattern(pattern: str | None) -> None:
    """Checked here, because brokers refuse a wrong pattern without a reason."""
    from ottla.patterns.re2 import BadPattern, compiled

    if pattern is None:
        return
    try:
        compiled(pattern)
    except BadPattern as error:
        raise Failure(f"--pattern {pattern}: {error}", USAGE) from None


@app.command()
def describe(
    id: IdArgument,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Show a transactional id's producer, its transaction's state, age and partitions."""
    from ottla.client.transaction_admin import TransactionAdmin

    with connect(bootstrap, dir, timeout, command_config) as blocking:
        found = _described(blocking, TransactionAdmin(blocking.client), id)
    if format is Format.json:
        print_json(_as_json(found))
        return
    open_for = _open_for_s(found)
    say(
        f"{found.id}: {found.state}, producer {found.producer_id} epoch {found.producer_epoch},"
        f" coordinator {found.coordinator}"
    )
    if open_for is not None:
        print(f"open for {open_for:.1f} s of at most {found.timeout_ms / 1000:.1f} s")
    if found.partitions:
        print_table(("topic", "partition"), found.partitions)


@app.command()
def abort(
    id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="The transactional id.", show_default=False)
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option("--topic", help="The topic of a transaction that no coordinator knows."),
    ] = None,
    partition: Annotated[int, typer.Option("--partition", min=0)] = 0,
    start_offset: Annotated[
        int | None,
        typer.Option(
            "--start-offset", help="Which one, by its first offset. [default: the only one]", min=0
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="With --topic: abort it even if a coordinator knows it, or may know it."
        ),
    ] = False,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    command_config: CommandConfigOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Abort an open transaction.

    By its transactional id: that also fences its producer. Or by --topic and --partition, for a
    transaction that no coordinator knows any more.
    """
    from ottla.client.transaction_admin import TransactionAdmin

    if (id is None) == (topic is None):
        raise Failure("give either a transactional id or --topic", USAGE)
    done: dict[str, object]
    with connect(bootstrap, dir, timeout, command_config, topic=topic) as blocking:
        transactions = TransactionAdmin(blocking.client)
        if id is not None:
            _abort_by_id(blocking, transactions, id)
            done = {"id": id, "aborted": True}
            told = f"aborted the transaction of {id}; its producer is fenced"
        else:
            assert topic is not None
            hanging = _hanging(blocking, transactions, topic, partition, start_offset)
            if not force:
                _require_nobodys(blocking, transactions, topic, partition, hanging)
            blocking.run(transactions.abort_hanging(topic, partition, hanging))
            offset = hanging.start_offset
            done = {"topic": topic, "partition": partition, "start_offset": offset, "aborted": True}
            told = f"aborted the transaction that began at offset {offset} of {topic}-{partition}"
    if format is Format.json:
        print_json(done)
    else:
        say(told)


def _abort_by_id(blocking: BlockingClient, transactions: TransactionAdmin, id: str) -> None:
    from ottla.client.transaction_admin import ONGOING

    found = _described(blocking, transactions, id)
    if found.state != ONGOING:
        raise Failure(f"{id} has no open transaction: {found.state}", CONFLICT)
    blocking.run(transactions.abort(id))


def _hanging(
    blocking: BlockingClient,
    transactions: TransactionAdmin,
    topic: str,
    partition: int,
    start_offset: int | None,
) -> OpenTransaction:
    found = [
        each
        for each in blocking.run(transactions.open_in(topic, partition))
        if start_offset in (None, each.start_offset)
    ]
    if not found:
        where = "" if start_offset is None else f" at offset {start_offset}"
        raise Failure(f"no transaction is open{where} in {topic}-{partition}", NOT_FOUND)
    if len(found) > 1:
        offsets = ", ".join(str(each.start_offset) for each in found)
        raise Failure(f"several are open: name one by --start-offset ({offsets})", CONFLICT)
    return found[0]


def _require_nobodys(
    blocking: BlockingClient,
    transactions: TransactionAdmin,
    topic: str,
    partition: int,
    hanging: OpenTransaction,
) -> None:
    """Refuse if a coordinator knows the transaction, or may know it: a marker of ours would abort it in this partition,
    while the coordinator commits it in the others."""
    from shlex import quote

    from ottla.client.transaction_admin import ONGOING

    where = f"the transaction at offset {hanging.start_offset} of {topic}-{partition}"
    found, silent = blocking.run(transactions.cared_for(topic, partition, hanging.producer_id))
    for each in found:
        todo = (
            f"end it with: ottla transactions abort {quote(each.id)}"
            if each.state == ONGOING
            else "its coordinator is about to end it"
        )
        raise Failure(
            f"{where} is that of {each.id}, {each.state}: {todo} (--force aborts it here alone)",
            CONFLICT,
        )
    if silent:
        raise Failure(
            f"{where} may be known to broker {silent[0]}, which does not answer"
            " (--force aborts it all the same)",
            UNREACHABLE,
        )


def _described(
    blocking: BlockingClient, transactions: TransactionAdmin, id: str
) -> TransactionDescription:
    from ottla.wire.errors import ErrorCode, KafkaError

    try:
        return blocking.run(transactions.describe(id))
    except KafkaError as error:
        if error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise Failure(
                f"there is no transactional id {id} (ottla transactions list)", NOT_FOUND
            ) from None
        raise


def _open_for_s(found: TransactionDescription) -> float | None:
    from ottla.client.transaction_admin import ONGOING

    if found.state != ONGOING or found.started is None:
        return None
    return max(0.0, (datetime.fromtimestamp(time.time(), UTC) - found.started).total_seconds())


def _as_json(found: TransactionDescription) -> dict[str, Any]:
    return {
        **found._asdict(),
        "started": None if found.started is None else found.started.isoformat(),
        "open_for_s": _open_for_s(found),
        "partitions": [list(place) for place in found.partitions],
    }
