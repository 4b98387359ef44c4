"""`ottla transactions …`: what is open, for how long, and how to end it."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.connect import BootstrapOption, DirOption, TimeoutOption, connect
from ottla.cli.errors import CONFLICT, NOT_FOUND, USAGE, Failure
from ottla.cli.output import Format, FormatOption, print_json, print_table

if TYPE_CHECKING:
    from ottla.client import BlockingClient
    from ottla.client.transactions import TransactionDescription, Transactions

app = typer.Typer(
    help="List, describe or abort transactions.", no_args_is_help=True, rich_markup_mode=None
)

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The transactional id.")]


@app.command("list")
def list_transactions(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", help="Only these, as Ongoing or CompleteCommit; may be repeated."),
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
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """List the transactional ids of all brokers."""
    from ottla.client.transactions import Transactions

    with connect(bootstrap, dir, timeout) as blocking:
        found = blocking.run(
            Transactions(blocking.client).all(
                states=tuple(state or ()),
                open_for_ms=-1 if open_for is None else round(open_for * 1000),
                pattern=pattern,
            )
        )
    if format is Format.json:
        print_json([each._asdict() for each in found])
        return
    print_table(
        ("transactional-id", "state", "producer", "coordinator"),
        [(each.id, each.state, each.producer_id, each.coordinator) for each in found],
    )


@app.command()
def describe(
    id: IdArgument,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    timeout: TimeoutOption = 30.0,
    format: FormatOption = Format.table,
) -> None:
    """Show a transactional id's producer, its transaction's state, age and partitions."""
    from ottla.client.transactions import Transactions

    with connect(bootstrap, dir, timeout) as blocking:
        found = _described(blocking, Transactions(blocking.client), id)
    if format is Format.json:
        print_json(_as_json(found))
        return
    open_for = _open_for_s(found)
    print(
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
    topic: Annotated[str | None, typer.Option("--topic", help="Where a transaction hangs.")] = None,
    partition: Annotated[int, typer.Option("--partition", min=0)] = 0,
    start_offset: Annotated[
        int | None,
        typer.Option(
            "--start-offset", help="Which one, by its first offset. [default: the only one]", min=0
        ),
    ] = None,
    bootstrap: BootstrapOption = None,
    dir: DirOption = None,
    timeout: TimeoutOption = 30.0,
) -> None:
    """Abort what is open: by its transactional id, which fences its producer, or, where no coordinator
    knows of it any more, in the partition in which it hangs."""
    from ottla.client.transactions import Transactions

    if (id is None) == (topic is None):
        raise Failure("give either a transactional id or --topic", USAGE)
    with connect(bootstrap, dir, timeout) as blocking:
        transactions = Transactions(blocking.client)
        if id is not None:
            _abort_by_id(blocking, transactions, id)
            print(f"aborted the transaction of {id}; its producer is fenced")
        else:
            assert topic is not None
            offset = _abort_hanging(blocking, transactions, topic, partition, start_offset)
            print(f"aborted the transaction that began at offset {offset} of {topic}-{partition}")


def _abort_by_id(blocking: BlockingClient, transactions: Transactions, id: str) -> None:
    from ottla.client.transactions import ONGOING

    found = _described(blocking, transactions, id)
    if found.state != ONGOING:
        raise Failure(f"{id} has no open transaction: {found.state}", CONFLICT)
    blocking.run(transactions.abort(id))


def _abort_hanging(
    blocking: BlockingClient,
    transactions: Transactions,
    topic: str,
    partition: int,
    start_offset: int | None,
) -> int:
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
    blocking.run(transactions.abort_hanging(topic, partition, found[0]))
    return found[0].start_offset


def _described(
    blocking: BlockingClient, transactions: Transactions, id: str
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
    from ottla.client.transactions import ONGOING

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
