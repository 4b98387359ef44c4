"""Asks what the cluster is made of, and whether its brokers answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ottla.client.admin import BROKER
from ottla.client.client import LATEST, Client
from ottla.client.cluster_admin import values_of
from ottla.client.connections import SecurityRefused, Unreachable
from ottla.console.model.flow import CLUSTER
from ottla.console.model.rows import BrokerStanding, LogSettingRow
from ottla.console.watch.asking import AT_ONCE_MAX, MOVES, TOPICS, Asking
from ottla.console.watch.polling import LOST, Poll, lacks_right
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.internal_topics import EVENT_LOG_TOPIC

PING_S = 1.0
PING_PATIENCE_S = 2.0
SETTINGS_MAX = 100
"""Topics whose settings are asked for because something is wrong with them."""
MINIMUM = "min.insync.replicas"
EVENT_LOG_SETTING = "ottla.event.log.enable"
UNCLEAN = "unclean.leader.election.enable"
NO_QUORUM = (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST)


class StructureQuestions:
    def __init__(self, asking: Asking, probe: Client, another: Callable[[], None]) -> None:
        """`probe`: a client of its own: a broker answers a connection in order, and a ping must not wait for anything. `another`
        is called when another cluster answers than before."""
        self._another = another
        self._asking = asking
        self._client = asking.client
        self._model = asking.model
        self._structure = asking.model.structure
        self._probe = probe
        self.refusals = 0
        """How often in a row the cluster did not let us in."""
        self._heard_ms: dict[int, int] = {}
        self._settled: dict[str, int] = {}
        """Topics whose settings are known, and the time at which they were asked for."""

    def polls(self) -> list[Poll]:
        known = self._asking.known
        return [
            Poll("cluster", self._ask_cluster, lambda: 1.0, rest=5),
            Poll("metadata", self._ask_metadata, self._metadata_s),
            Poll("quorum", self._ask_quorum, lambda: 1.0, forget=self._structure.forget_quorum),
            Poll("pings", self._ping, lambda: PING_S, rest=0.5),
            Poll(
                "kind",
                self._ask_kind,
                self._kind_s,
                after=known,
                forget=self._model.forget_event_log,
            ),
            Poll(
                "moves",
                self._ask_moves,
                self._moves_s,
                after=known,
                forget=lambda: self._structure.moves.replace({}),
            ),
            Poll(
                "settings",
                self._ask_settings,
                lambda: 2.0,
                after=known,
                forget=self._forget_settings,
            ),
            Poll(
                "eligible",
                self._ask_eligible,
                lambda: 1.0,
                after=known,
                forget=self._structure.eligible.clear,
            ),
        ]

    async def _ask_cluster(self) -> None:
        now_ms = self._asking.now_ms
        try:
            before = {id: row.standing for id, row in self._model.brokers.items()}
            found = await self._client.describe_cluster()
        except (Unreachable, OSError) as error:
            self.refusals = self.refusals + 1 if isinstance(error, SecurityRefused) else 0
            self._structure.answers(self._asking.now_ms, str(error) or "no answer in time")
            raise
        self.refusals = 0
        before_id = self._model.cluster[CLUSTER].cluster_id
        if None not in (before_id, found.cluster_id) and before_id != found.cluster_id:
            self._another()
            return
        self._structure.answers(now_ms, None)
        self._structure.described(found, now_ms)
        if before != {id: row.standing for id, row in self._model.brokers.items()}:
            self._asking.hurry("metadata")
            self._asking.hurry("quorum")

    def _metadata_s(self) -> float:
        """The event log tells what changes but for topics that come and go."""
        told = self._model.cluster[CLUSTER].has_event_log and TOPICS not in self._asking.interests
        return 5.0 if told else 1.0

    async def _ask_metadata(self) -> None:
        asked_at = self._model.version
        topics = await self._asking.admin.list_topics()
        self._structure.all_topics(topics, asked_at, self._asking.now_ms)
        self._asking.known.set()

    async def _ask_quorum(self) -> None:
        try:
            self._structure.quorum_described(
                await self._client.describe_quorum(), self._asking.now_ms
            )
        except KafkaError as error:
            if error.code not in NO_QUORUM and not lacks_right(error):
                self._structure.no_quorum(self._asking.now_ms)
            raise
        except OSError:
            if self._model.cluster[CLUSTER].answers:
                self._structure.no_quorum(self._asking.now_ms)
            raise

    # Who answers

    async def _ping(self) -> None:
        """Brokers that the cluster counts on, also on a connection that is open: a process may be paused."""
        up = {
            id: (row.host, row.port)
            for id, row in self._model.brokers.items()
            if row.standing in (BrokerStanding.UP, BrokerStanding.SILENT)
        }
        turns = asyncio.Semaphore(AT_ONCE_MAX)

        async def ping(address: tuple[str, int]) -> bool:
            try:
                async with turns, asyncio.timeout(PING_PATIENCE_S):
                    channel = await self._probe.connections.at(address)
                    await channel.negotiate(PING_PATIENCE_S)
            except LOST:
                return False
            return True

        answers = await asyncio.gather(*map(ping, up.values()))
        now_ms = self._asking.now_ms
        heard = {id for id, does in zip(up, answers, strict=True) if does}
        self._heard_ms = {
            id: now_ms if id in heard else self._heard_ms.get(id, now_ms) for id in up
        }
        self._structure.silent({id: at for id, at in self._heard_ms.items() if id not in heard})

    # What sort of cluster it is

    def _kind_s(self) -> float:
        row = self._model.cluster[CLUSTER]
        return 2.0 if None in (row.is_ottla, row.has_event_log) else 60.0

    async def _ask_kind(self) -> None:
        """Only ottla's brokers have settings that begin with its name, and an event log."""
        try:
            await self._client.topic(EVENT_LOG_TOPIC, fresh=True)
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        else:
            self._structure.kind(is_ottla=True)
            await self._try_event_log()
            self._structure.kind(has_event_log=True)
            return
        if not (living := self._asking.living()):
            return
        resource = (BROKER, str(living[0]))
        try:
            found = await self._asking.admin.describe_configs([resource], keys=[EVENT_LOG_SETTING])
        except KafkaError:  # who may not see settings sees topics only
            self._structure.kind(is_ottla=False, has_event_log=False)
            return
        enabled = [
            each.value == "true" for each in found[resource] if each.name == EVENT_LOG_SETTING
        ]
        # ottla makes the log a few seconds after the first start: until then this is asked again.
        self._structure.kind(is_ottla=bool(enabled), has_event_log=None if any(enabled) else False)

    async def _try_event_log(self) -> None:
        """Raises what a user gets who may see that there is one, and may not read it."""
        try:
            end = await self._client.offset(EVENT_LOG_TOPIC, 0, LATEST)
            await self._client.fetch(EVENT_LOG_TOPIC, 0, end, max_wait_ms=0)
        except LOST as error:
            if lacks_right(error):
                raise

    # Moves

    def _moves_s(self) -> float:
        return 1.0 if len(self._structure.moves) or MOVES in self._asking.interests else 5.0

    async def _ask_moves(self) -> None:
        """What is being moved, and how much of it lies on the new brokers already."""
        found = await self._client.reassignments()
        now_ms = self._asking.now_ms
        self._structure.reassignments(found, now_ms)
        if not found:
            return
        living = set(self._asking.living())
        sizes: dict[int, dict[tuple[str, int], int]] = {}
        places = [(each.topic, each.partition) for each in found]
        for broker in sorted({id for each in found for id in each.replicas} & living):
            dirs = await self._asking.admin.log_dirs(broker, places)
            sizes[broker] = {
                r.place: r.size for each in dirs for r in each.replicas if not r.future
            }
        copied = {}
        for each in found:
            place = (each.topic, each.partition)
            olds = [id for id in each.replicas if id not in each.adding]
            whole = max((sizes.get(id, {}).get(place, 0) for id in olds), default=0)
            arrived = sum(sizes.get(id, {}).get(place, 0) for id in each.adding)
            copied[place] = (min(arrived, whole * len(each.adding)), whole * len(each.adding))
        self._structure.copied(copied, self._asking.now_ms)

    # Who may lead

    async def _ask_eligible(self) -> None:
        """Where the ISR is empty: it does not tell who has to come back."""
        structure = self._structure
        places = [
            place
            for place in structure.unwell
            if not structure.partitions[place].isr and place not in structure.eligible
        ]
        topics = dict.fromkeys(topic for topic, _ in places)
        if not topics:
            return
        try:
            found = await self._asking.cluster_admin.eligible_replicas([*topics][:SETTINGS_MAX])
        except KafkaError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                return  # before Kafka 3.8 nobody knows of them
            raise
        structure.eligible_told({place: found[place].elr for place in places if place in found})

    # Settings that decide what is wrong

    def _forget_settings(self) -> None:
        self._settled = {}
        self._model.flow.settings.replace({})

    async def _ask_settings(self) -> None:
        """Of topics that are not well. They seldom change, so each is asked for once a minute."""
        now_ms = self._asking.now_ms
        self._settled = {t: at for t, at in self._settled.items() if now_ms - at < 60_000}
        unwell = dict.fromkeys(topic for topic, _ in self._structure.unwell)
        wanted = [topic for topic in unwell if topic not in self._settled][:SETTINGS_MAX]
        if not wanted:
            return
        self._settled |= dict.fromkeys(wanted, now_ms)
        for topic, configs in (await self._asking.cluster_admin.topics_configs(wanted)).items():
            values = values_of(configs)
            least, unclean = values.get(MINIMUM), values.get(UNCLEAN)
            self._model.flow.settings.put(
                topic,
                LogSettingRow(
                    None if least is None else int(least),
                    None if unclean is None else unclean == "true",
                ),
            )
