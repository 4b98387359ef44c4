"""What a decision changed, as events to emit once it is committed.

They are told from the metadata before and after the decision, so that a change is told once, whatever command made it
and however many replicas it concerns. What the metadata does not say (why a broker left an ISR, how a leader was
elected) the command notes in its draft.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from uuid import UUID

from ottla.config.dynamic import dynamic_row
from ottla.controller.acls import acl_of
from ottla.controller.draft import Draft, IsrProposal
from ottla.controller.elections import PartitionAssignment
from ottla.events import Event
from ottla.events.controller import (
    ElectionKind,
    IsrExpanded,
    IsrShrunk,
    LeaderElected,
    PartitionReassigned,
    PartitionWentOffline,
    ReassignmentStep,
    SettingChanged,
)
from ottla.events.replication import IsrCause, IsrReason
from ottla.metadata.image import MetadataImage, PartitionImage
from ottla.metadata.records import (
    BROKER_RESOURCE,
    GROUP_RESOURCE,
    NO_LEADER,
    RECOVERING,
    TOPIC_RESOURCE,
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    MetadataRecord,
    RemoveAccessControlEntryRecord,
)
from ottla.security.secrets import HIDDEN

KINDS = (
    LeaderElected,
    PartitionWentOffline,
    IsrShrunk,
    IsrExpanded,
    PartitionReassigned,
    SettingChanged,
)

ACL = "acl"
RESOURCES = {TOPIC_RESOURCE: "topic", BROKER_RESOURCE: "broker", GROUP_RESOURCE: "group"}


def committed_events(draft: Draft, by: str | None) -> Iterator[Event]:
    """`by` says which client asked; None for a decision of the controller itself."""
    for topic_id, index in draft.changed_partitions:
        topic = draft.image.topics_by_id.get(topic_id)
        former = draft.before.topics_by_id.get(topic_id)
        # A partition that is new or gone has changed neither leader nor ISR.
        if topic is not None and former is not None and index < len(former.partitions):
            was, now = former.partitions[index], topic.partitions[index]
            where = topic.name, index
            key = topic_id, index
            yield from leader_changes(where, was, now, is_preferred=key in draft.preferred)
            yield from _isr_changes(draft, key, where, was, now)
            yield from _reassignment(where, was, now)
    if by is not None:
        yield from _settings(draft.before, draft.records, by)
        yield from _acls(draft.before, draft.records, by)


def leader_changes(
    where: tuple[str, int], was: PartitionImage, now: PartitionImage, *, is_preferred: bool
) -> Iterator[LeaderElected | PartitionWentOffline]:
    if now.leader == was.leader:
        return
    if now.leader == NO_LEADER:
        yield PartitionWentOffline(*where, now.leader_epoch, was.leader)
    else:
        kind = ElectionKind.PREFERRED if is_preferred else _election_kind(was, now)
        yield LeaderElected(*where, now.leader, now.leader_epoch, was.leader, now.isr, kind)


def _election_kind(was: PartitionImage, now: PartitionImage) -> ElectionKind:
    if now.leader in was.elr and now.leader not in was.isr:
        return ElectionKind.ELIGIBLE
    if now.leader in was.isr or now.leader_recovery_state != RECOVERING:
        return ElectionKind.IN_SYNC
    if now.leader in was.last_known_elr:
        return ElectionKind.LAST_KNOWN_LEADER
    return ElectionKind.UNCLEAN


def _isr_changes(
    draft: Draft,
    key: tuple[UUID, int],
    where: tuple[str, int],
    was: PartitionImage,
    now: PartitionImage,
) -> Iterator[IsrShrunk | IsrExpanded]:
    """A leader that was elected from outside of the ISR is in it from then on: the election tells that."""
    topic, index = where
    state = topic, index, now.leader, now.leader_epoch, now.isr, was.isr
    proposal = draft.proposals.get(key)
    reasons: Mapping[int, IsrReason] = {} if proposal is None else proposal.reasons
    causes: dict[IsrCause, list[int]] = {}
    for broker in was.isr:
        if broker not in now.isr:
            cause = _cause_of_leaving(draft, broker, now, proposal)
            causes.setdefault(cause, []).append(broker)
    for cause, left in causes.items():
        lags = {id: reasons[id].lag for id in left if id in reasons}
        yield IsrShrunk(*state, tuple(left), cause, lags)
    elected = now.leader if now.leader != was.leader else NO_LEADER
    joined = tuple(id for id in now.isr if id not in was.isr and id != elected)
    if joined:
        lags = {id: reasons[id].lag for id in joined if id in reasons}
        yield IsrExpanded(*state, joined, IsrCause.CAUGHT_UP, lags)


def _cause_of_leaving(
    draft: Draft, broker: int, now: PartitionImage, proposal: IsrProposal | None
) -> IsrCause:
    if broker not in now.replicas:
        return IsrCause.REASSIGNED
    if proposal is not None:
        # A leader without an event log of its own gives no reasons. It removes those that lag.
        reason = proposal.reasons.get(broker)
        return IsrCause.SLOW if reason is None else reason.cause
    return draft.leaving_because.get(broker, IsrCause.FENCED)


def _reassignment(
    where: tuple[str, int], was: PartitionImage, now: PartitionImage
) -> Iterator[PartitionReassigned]:
    before, after = PartitionAssignment.of(was), PartitionAssignment.of(now)
    if (before.replicas, before.adding, before.removing) == (
        after.replicas,
        after.adding,
        after.removing,
    ):
        return
    if after.is_reassignment:
        step = ReassignmentStep.CHANGED if before.is_reassignment else ReassignmentStep.STARTED
    elif set(after.replicas) == set(before.original) != set(before.target):
        step = ReassignmentStep.CANCELLED
    else:
        step = ReassignmentStep.COMPLETED
    yield PartitionReassigned(*where, step, after.replicas, after.adding, after.removing)


def _settings(
    before: MetadataImage, records: Iterable[MetadataRecord], by: str
) -> Iterator[SettingChanged]:
    for record in records:
        if isinstance(record, ConfigRecord):
            kind, resource = record.resource_type, record.resource_name
            if kind == TOPIC_RESOURCE and resource not in before.topics:
                continue  # it was created with this setting
            old = before.config(kind, resource).get(record.name)
            what = f"{RESOURCES.get(kind, str(kind))}:{resource}" if resource else "cluster"
            row = dynamic_row(record.name)
            if row is not None and row.is_secret:
                old, new = (value and HIDDEN for value in (old, record.value))
                yield SettingChanged(what, record.name, old, new, by)
            else:
                yield SettingChanged(what, record.name, old, record.value, by)
        elif isinstance(record, ClientQuotaRecord):
            members = [(each.entity_type, each.entity_name) for each in record.entity]
            entity = tuple(sorted(members, key=lambda member: member[0]))
            old_quota = before.client_quotas.get(entity, {}).get(record.key)
            yield SettingChanged(
                ",".join(f"{kind}:{name or '<default>'}" for kind, name in entity),
                record.key,
                None if old_quota is None else f"{old_quota:g}",
                None if record.remove else f"{record.value:g}",
                by,
            )


def _acls(
    before: MetadataImage, records: Iterable[MetadataRecord], by: str
) -> Iterator[SettingChanged]:
    for record in records:
        if isinstance(record, AccessControlEntryRecord):
            yield SettingChanged(_resource(record), ACL, None, _entry(record), by)
        elif isinstance(record, RemoveAccessControlEntryRecord):
            old = before.acls[record.id]
            yield SettingChanged(_resource(old), ACL, _entry(old), None, by)


def _resource(record: AccessControlEntryRecord) -> str:
    return f"{acl_of(record).resource_type.name.lower()}:{record.resource_name}"


def _entry(record: AccessControlEntryRecord) -> str:
    acl = acl_of(record)
    words = acl.permission, acl.operation, acl.pattern_type
    permission, operation, pattern = (word.name.lower() for word in words)
    return f"{permission} {acl.principal} {operation} from {acl.host} ({pattern})"
