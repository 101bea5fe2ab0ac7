"""All groups of one partition of `__consumer_offsets`: the replicated facts, and the live groups on top of them.

Rule 3: `replay` alone changes the facts (generations and committed offsets), on the leader right after the append, on
start by reading the log. The facts are versioned: decisions look at the present, OffsetFetch looks at what is
committed. Live groups (`ClassicGroup`) exist only while somebody is in them; an empty group is its record alone.

Pure: the caller brings both clocks and carries out the effects. Used only from the coordinator's event loop.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from kraftlog.kraft.timeline import SnapshotRegistry, TimelineDict
from kraftlog.proto.errors import ErrorCode, PolicyViolationError
from kraftlog.proto.names import display
from kraftlog.server.coordinator.config import GroupConfig
from kraftlog.server.coordinator.effects import Effects, GroupState, GroupWrite, WriteKind
from kraftlog.server.coordinator.group import ClassicGroup
from kraftlog.server.coordinator.members import (
    UNKNOWN_MEMBER_ID,
    Answer,
    JoinRequest,
    JoinResult,
    SyncRequest,
    SyncResult,
    Ticket,
)
from kraftlog.server.coordinator.records import (
    CoordinatorRecord,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_group_metadata,
    decode_key,
    decode_offset_commit,
    group_metadata_record,
    offset_commit_record,
)

TopicPartition = tuple[str, int]
Refusal = tuple[ErrorCode, str]
_GroupOffsets = TimelineDict[TopicPartition, OffsetCommitValue]

NO_REFUSAL: Refusal = (ErrorCode.NONE, "")


@dataclass(frozen=True, slots=True)
class ShardWrite:
    """A generation of a group to append."""

    group_id: str
    write: GroupWrite


@dataclass(slots=True)
class ShardEffects:
    """What the caller must do, in this order: give the answers, append each write as one batch."""

    answers: list[tuple[Ticket, Answer]] = field(default_factory=list)
    writes: list[ShardWrite] = field(default_factory=list)

    def add(self, group_id: str, effects: Effects) -> None:
        self.answers += effects.answers
        if effects.write is not None:
            self.writes.append(ShardWrite(group_id, effects.write))


@dataclass(frozen=True, slots=True)
class GroupView:
    """One group for list and describe."""

    group_id: str
    state: GroupState
    protocol_type: str
    group: ClassicGroup | None
    """The live group; None while it is only a record."""


class GroupShard:
    """The state machine of one partition.

    Invariant: a group without a `ClassicGroup` object is empty, and its record (if it has one) has no members.
    """

    def __init__(self, config: GroupConfig) -> None:
        self.registry = SnapshotRegistry()
        self.groups: dict[str, ClassicGroup] = {}
        self._config = config
        self._metadata: TimelineDict[str, GroupMetadataValue] = TimelineDict(self.registry)
        self._offsets: TimelineDict[str, _GroupOffsets] = TimelineDict(self.registry)
        self._due: list[tuple[float, str]] = []
        self._scheduled: dict[str, float] = {}

    # The replicated facts -------------------------------------------------------------------------------------------

    def replay(self, record: CoordinatorRecord) -> None:
        """Apply one record of the log. Keys of other versions are passed over."""
        match decode_key(record.key):
            case OffsetCommitKey() as key:
                self._replay_offset(key, None if record.value is None else decode_offset_commit(record.value))
            case GroupMetadataKey(group_id):
                if record.value is not None:
                    self._metadata[group_id] = decode_group_metadata(record.value)
                elif group_id in self._metadata:
                    del self._metadata[group_id]
            case _:
                pass

    def _replay_offset(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        offsets = self._offsets.get(key.group_id)
        at = (key.topic, key.partition)
        if value is not None:
            if offsets is None:
                offsets = self._offsets[key.group_id] = TimelineDict(self.registry)
            offsets[at] = value
        elif offsets is not None and at in offsets:
            del offsets[at]
            if not offsets:
                del self._offsets[key.group_id]

    def on_loaded(self, now_ms: float) -> ShardEffects:
        """The log is replayed: groups with members live again, and every session starts now."""
        effects = ShardEffects()
        for group_id, value in self._metadata.items():
            if value.members:
                group = self.groups[group_id] = ClassicGroup(group_id, self._config)
                self._settle(group, group.load(value, now_ms), effects)
        return effects

    def facts(self) -> tuple[dict[str, GroupMetadataValue], dict[str, dict[TopicPartition, OffsetCommitValue]]]:
        """The present generations and offsets, to compare two shards."""
        return dict(self._metadata), {group_id: dict(offsets) for group_id, offsets in self._offsets.items()}

    # Membership -----------------------------------------------------------------------------------------------------

    def join(
        self, group_id: str, request: JoinRequest, ticket: Ticket, fresh_member_id: str, now_ms: float
    ) -> ShardEffects:
        effects = ShardEffects()
        group = self._find(group_id)
        if group is None:
            if request.member_id != UNKNOWN_MEMBER_ID:
                error, message = _no_member(group_id, request.member_id)
                effects.answers.append((ticket, JoinResult(error=error, message=message)))
                return effects
            if not self._has_room(group_id):
                error, message = self._too_many_groups()
                effects.answers.append((ticket, JoinResult(error=error, message=message)))
                return effects
            group = self.groups[group_id] = ClassicGroup(group_id, self._config)
        self._settle(group, group.join(request, ticket, fresh_member_id, now_ms), effects)
        return effects

    def sync(self, request: SyncRequest, ticket: Ticket, now_ms: float) -> ShardEffects:
        effects = ShardEffects()
        group = self.groups.get(request.group_id)
        if group is None:
            error, message = _no_member(request.group_id, request.member_id)
            effects.answers.append((ticket, SyncResult(error=error, message=message)))
        else:
            self._settle(group, group.sync(request, ticket, now_ms), effects)
        return effects

    def heartbeat(
        self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int, now_ms: float
    ) -> Refusal:
        group = self.groups.get(group_id)
        if group is None:
            return _no_member(group_id, member_id)
        # Moves deadlines away only, so the time-out queue may stay as it is: `poll` looks again.
        return group.heartbeat(member_id, group_instance_id, generation_id, now_ms)

    def leave(
        self, group_id: str, member_id: str, group_instance_id: str | None, now_ms: float
    ) -> tuple[Refusal, ShardEffects]:
        effects = ShardEffects()
        group = self.groups.get(group_id)
        if group is None:
            return _no_member(group_id, member_id), effects
        refusal, outcome = group.leave(member_id, group_instance_id, now_ms)
        self._settle(group, outcome, effects)
        return refusal, effects

    # Offsets --------------------------------------------------------------------------------------------------------

    def check_commit(
        self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int, now_ms: float
    ) -> Refusal:
        """Whether the committer may commit in this group."""
        group = self.groups.get(group_id)
        if group is not None:
            return group.check_commit(member_id, group_instance_id, generation_id, now_ms)
        if generation_id >= 0 and group_id in self._metadata:
            return _no_member(group_id, member_id)
        if generation_id >= 0:
            return ErrorCode.ILLEGAL_GENERATION, f"group {group_id} has no generation {generation_id}: join again"
        if group_id not in self._offsets and not self._has_room(group_id):
            return self._too_many_groups()
        return NO_REFUSAL

    def has_room_for_offsets(self, group_id: str, partitions: Iterator[TopicPartition]) -> bool:
        """Whether the group may keep offsets of these partitions, too."""
        offsets = self._offsets.get(group_id)
        if offsets is None:
            return len(set(partitions)) <= self._config.max_offsets_per_group
        added = {partition for partition in partitions if partition not in offsets}
        return len(offsets) + len(added) <= self._config.max_offsets_per_group

    def committed_offset(self, group_id: str, partition: TopicPartition, at: int | None) -> OffsetCommitValue | None:
        """The offset as of the registered log offset `at`; None for `at` means the present."""
        offsets = self._offsets.get(group_id) if at is None else self._offsets.get_at(at, group_id)
        if offsets is None:
            return None
        return offsets.get(partition) if at is None else offsets.get_at(at, partition)

    def committed_offsets(self, group_id: str, at: int | None) -> dict[TopicPartition, OffsetCommitValue]:
        """All offsets of a group, by topic and partition in order."""
        offsets = self._offsets.get(group_id) if at is None else self._offsets.get_at(at, group_id)
        if offsets is None:
            return {}
        return dict(sorted(offsets.items() if at is None else offsets.items_at(at)))

    def expired(self, wall_ms: int) -> Iterator[tuple[str, list[CoordinatorRecord]]]:
        """Per group, the tombstones of what `offsets.retention.minutes` no longer keeps; append each as one batch.

        Nothing of a group with members expires (KAFKA-13636, KAFKA-8069). An empty group's offsets expire together,
        counted from when it became empty; those of a group that never had members, each from its commit. The group's
        own record goes with its last offset. (Kafka also expires, in a stable group, offsets of topics that no member
        subscribes to; we keep them: they cost little, and a member that comes back may need them.)
        """
        for group_id in list(dict.fromkeys([*self._metadata, *self._offsets])):
            group = self.groups.get(group_id)
            if group is not None and not group.is_idle:
                continue
            metadata = self._metadata.get(group_id)
            if metadata is not None and metadata.members:
                continue  # the record that says it is empty could not be written yet; `unwritten_empty` does it again
            records = self._expired_records(group_id, metadata, wall_ms - self._config.offsets_retention_ms)
            if records:
                yield group_id, records

    def _expired_records(
        self, group_id: str, metadata: GroupMetadataValue | None, horizon_ms: int
    ) -> list[CoordinatorRecord]:
        offsets: Mapping[TopicPartition, OffsetCommitValue] = self._offsets.get(group_id) or {}
        empty_since_ms = -1 if metadata is None else metadata.current_state_timestamp_ms
        records = [
            offset_commit_record(OffsetCommitKey(group_id, topic, partition), None)
            for (topic, partition), value in sorted(offsets.items())
            # An operator may commit for an empty group: that commit lives its full time, too.
            if max(empty_since_ms, value.commit_timestamp_ms) <= horizon_ms
        ]
        if metadata is not None and len(records) == len(offsets) and empty_since_ms <= horizon_ms:
            records.append(group_metadata_record(group_id, None))
        return records

    def unwritten_empty(self) -> ShardEffects:
        """Groups that became empty while the log refused the record that says so."""
        effects = ShardEffects()
        for group_id, group in self.groups.items():
            persisted = self._metadata.get(group_id)
            if group.is_idle and persisted is not None and persisted.members:
                effects.writes.append(ShardWrite(group_id, GroupWrite(WriteKind.EMPTY, group.empty_generation())))
        return effects

    def offsets_of_topics(self, topics: frozenset[str]) -> Iterator[tuple[str, list[CoordinatorRecord]]]:
        """Per group, the tombstones of its offsets of these topics; append each as one batch. A topic that is made
        again under the same name starts at offset 0, and must not inherit them."""
        for group_id, offsets in list(self._offsets.items()):
            records = [
                offset_commit_record(OffsetCommitKey(group_id, topic, partition), None)
                for topic, partition in sorted(offsets)
                if topic in topics
            ]
            if records:
                yield group_id, records

    def deletion(self, group_id: str) -> tuple[Refusal, list[CoordinatorRecord]]:
        """The tombstones that delete an empty group with all its offsets."""
        group = self.groups.get(group_id)
        if group is not None and not group.is_idle:
            return (ErrorCode.NON_EMPTY_GROUP, f"group {group_id} is {group.state}: stop its members first"), []
        if group_id not in self:
            return (ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}"), []
        records = [
            offset_commit_record(OffsetCommitKey(group_id, topic, partition), None)
            for topic, partition in sorted(self._offsets.get(group_id) or {})
        ]
        if group_id in self._metadata:
            records.append(group_metadata_record(group_id, None))
        return NO_REFUSAL, records

    # Writes -----------------------------------------------------------------------------------------------------------

    def record_of(self, write: ShardWrite, wall_ms: int) -> CoordinatorRecord:
        """The record to append for `write`."""
        return group_metadata_record(write.group_id, replace(write.write.value, current_state_timestamp_ms=wall_ms))

    def write_committed(self, write: ShardWrite, now_ms: float) -> ShardEffects:
        return self._write_done(write.group_id, lambda group: group.write_committed(write.write, now_ms))

    def write_failed(self, write: ShardWrite, error: ErrorCode, message: str, now_ms: float) -> ShardEffects:
        return self._write_done(write.group_id, lambda group: group.write_failed(write.write, error, message, now_ms))

    def _write_done(self, group_id: str, outcome: Callable[[ClassicGroup], Effects]) -> ShardEffects:
        effects = ShardEffects()
        group = self.groups.get(group_id)
        if group is not None:
            self._settle(group, outcome(group), effects)
        return effects

    # Time -------------------------------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> float | None:
        """When `poll` must be called next; early calls do no harm."""
        while self._due and self._scheduled.get(self._due[0][1]) != self._due[0][0]:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def poll(self, now_ms: float) -> ShardEffects:
        """Let lapse what is due in any group."""
        effects = ShardEffects()
        while (deadline_ms := self.next_deadline_ms()) is not None and deadline_ms <= now_ms:
            _, group_id = heapq.heappop(self._due)
            del self._scheduled[group_id]
            group = self.groups[group_id]
            self._settle(group, group.poll(now_ms), effects)
        return effects

    def _settle(self, group: ClassicGroup, outcome: Effects, effects: ShardEffects) -> None:
        """After an input to `group`: collect its effects, keep its deadline, drop it if nobody is left."""
        effects.add(group.group_id, outcome)
        if outcome.write is None and self._maybe_forget(group):
            return
        deadline_ms = group.next_deadline_ms()
        scheduled_ms = self._scheduled.get(group.group_id)
        if deadline_ms is not None and (scheduled_ms is None or deadline_ms < scheduled_ms):
            self._scheduled[group.group_id] = deadline_ms
            heapq.heappush(self._due, (deadline_ms, group.group_id))

    # Which groups there are -------------------------------------------------------------------------------------------

    def __contains__(self, group_id: str) -> bool:
        return group_id in self.groups or group_id in self._metadata or group_id in self._offsets

    def view(self, group_id: str) -> GroupView | None:
        group = self.groups.get(group_id)
        if group is not None:
            return GroupView(group_id, group.state, group.protocol_type, group)
        if group_id not in self:
            return None
        metadata = self._metadata.get(group_id)
        return GroupView(group_id, GroupState.EMPTY, metadata.protocol_type if metadata else "", None)

    def views(self) -> Iterator[GroupView]:
        for group_id in dict.fromkeys([*self._metadata, *self._offsets, *self.groups]):
            view = self.view(group_id)
            assert view is not None
            yield view

    def _maybe_forget(self, group: ClassicGroup) -> bool:
        """Drop the live object once nobody is in the group and its record, if any, says the same."""
        persisted = self._metadata.get(group.group_id)
        if not group.is_idle or (persisted is not None and persisted.members):
            return False
        self.groups.pop(group.group_id, None)
        self._scheduled.pop(group.group_id, None)
        return True

    def kill_all(self, error: ErrorCode, message: str) -> ShardEffects:
        """The coordinator moved, or this node stops: answer everybody who waits."""
        effects = ShardEffects()
        for group_id, group in self.groups.items():
            effects.add(group_id, group.kill(error, message))
        self.groups.clear()
        self._scheduled.clear()
        self._due.clear()
        return effects

    def _find(self, group_id: str) -> ClassicGroup | None:
        """The live group, made from its record if need be."""
        group = self.groups.get(group_id)
        persisted = self._metadata.get(group_id)
        if group is None and persisted is not None:
            group = ClassicGroup(group_id, self._config)
            group.load(persisted, 0.0)
            assert not group.members, "a group with members is live from on_loaded on"
            self.groups[group_id] = group
        return group

    def _has_room(self, group_id: str) -> bool:
        if group_id in self:
            return True
        # Counts a group twice that is live and recorded; the bound is for memory, and errs to the safe side.
        return len(self._metadata) + len(self._offsets) + len(self.groups) < self._config.max_groups_per_partition

    def _too_many_groups(self) -> Refusal:
        code = PolicyViolationError.code
        return (
            code,
            f"this coordinator partition keeps max_groups_per_partition={self._config.max_groups_per_partition}",
        )


def _no_member(group_id: str, member_id: str) -> Refusal:
    return (
        ErrorCode.UNKNOWN_MEMBER_ID,
        f"group {group_id} has no member {display(member_id)}: join again without member id",
    )
