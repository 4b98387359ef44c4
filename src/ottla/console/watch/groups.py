"""Asks for consumer groups and their lag, and for open transactions and whom they hold back."""

from __future__ import annotations

import asyncio

from ottla.client.client import LATEST
from ottla.client.group_admin import GroupAdmin
from ottla.client.transaction_admin import UNFINISHED, TransactionAdmin
from ottla.console.model.rows import HoldRow, Place, TransactionRow
from ottla.console.watch.asking import AT_ONCE_MAX, GROUPS, TRANSACTIONS, Asking
from ottla.console.watch.polling import LOST, Poll, lacks_right
from ottla.wire.errors import KafkaError

DESCRIBED_MAX = 100
"""So many groups are described each time; of more only those that somebody looks at."""


class GroupQuestions:
    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._model = asking.model
        self._consumers = asking.model.consumers
        self._groups = GroupAdmin(asking.client)
        self._transactions = TransactionAdmin(asking.client)

    def polls(self) -> list[Poll]:
        return [
            Poll(
                "groups",
                self._ask_groups,
                self._groups_s,
                rest=3,
                after=self._asking.known,
                forget=lambda: self._consumers.listed([]),
            ),
            Poll(
                "transactions",
                self._ask_transactions,
                self._transactions_s,
                after=self._asking.known,
                forget=self._forget_transactions,
            ),
        ]

    def _groups_s(self) -> float:
        interests = self._asking.interests
        return 1.0 if GROUPS in interests or interests.of("group") else 4.0

    def _transactions_s(self) -> float:
        return 1.0 if TRANSACTIONS in self._asking.interests else 8.0

    async def _ask_groups(self) -> None:
        listed = await self._groups.all()
        self._consumers.listed(listed.answers, listed.silent)
        names = [each.id for each in listed.answers]
        looked_at = {each.name for each in self._asking.interests.of("group")}
        described = names if len(names) <= DESCRIBED_MAX else [n for n in names if n in looked_at]
        turns = asyncio.Semaphore(AT_ONCE_MAX)

        async def describe(group: str) -> None:
            async with turns:
                try:
                    self._consumers.described(await self._groups.describe(group))
                except KafkaError as error:  # it is gone, or we may not see what it does
                    if lacks_right(error):
                        self._consumers.forget(group)

        await asyncio.gather(*map(describe, described))
        lags = await self._groups.lags_of_all(names)
        now_ms = self._asking.now_ms
        for group, found in lags.items():
            self._consumers.lag_told(group, found, now_ms)

    # Transactions

    async def _ask_transactions(self) -> None:
        listed = await self._transactions.all(states=UNFINISHED)
        rows: list[TransactionRow] = []
        for each in listed.answers:
            try:
                found = await self._transactions.describe(each.id)
            except KafkaError:
                continue  # it has ended
            rows.append(
                TransactionRow(
                    found.id,
                    found.state,
                    found.producer_id,
                    found.producer_epoch,
                    found.coordinator,
                    None if found.started is None else round(found.started.timestamp() * 1000),
                    found.timeout_ms,
                    found.partitions,
                )
            )
        holds = await self._holds()
        known = {(row.producer_id, place) for row in rows for place in row.places}
        if not listed.silent:
            hanging: dict[int, list[HoldRow]] = {}
            for (place, producer), hold in holds.items():
                if (producer, place) not in known:
                    hanging.setdefault(producer, []).append(hold)
            rows += (
                TransactionRow(
                    None,
                    "Hanging",
                    producer,
                    held[0].producer_epoch,
                    None,
                    None,
                    None,
                    tuple((hold.topic, hold.partition) for hold in held),
                )
                for producer, held in hanging.items()
            )
        self._consumers.transactions_told(rows, listed.silent)
        self._consumers.holds_told(holds)

    def _forget_transactions(self) -> None:
        self._consumers.transactions_told([])
        self._consumers.holds_told({})

    async def _holds(self) -> dict[tuple[Place, int], HoldRow]:
        """Partitions whose last stable offset is below the high watermark, and the transactions that are open there."""
        admin = self._asking.cluster_admin
        found: dict[tuple[Place, int], HoldRow] = {}
        for leader, places in self._asking.by_leader().items():
            try:
                stable = await admin.offsets(leader, places, LATEST, committed=True)
                ends = await admin.offsets(leader, places, LATEST)
                self._model.flow.offsets_told(self._asking.now_ms, ends, None, stable)
                held = [place for place, end in ends.items() if stable.get(place, end) < end]
                opened = await admin.open_transactions(leader, held) if held else {}
            except LOST:
                continue
            for place, transactions in opened.items():
                for each in transactions:
                    found[place, each.producer_id] = HoldRow(
                        *place,
                        each.producer_id,
                        each.producer_epoch,
                        each.coordinator_epoch,
                        each.start_offset,
                        each.last_timestamp_ms,
                        max(0, ends[place] - each.start_offset),
                    )
        return found
