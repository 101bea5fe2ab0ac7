"""What clients sent, got acknowledged and read, and the rules that must hold between them.

Every method is called when the event happens and checks what the event can break, so that the first broken rule stops
the run at its cause. The rules (numbers as in the fault catalogue of the project's documentation):

I-01  acknowledged at acks=all: read later at that offset with those bytes
I-02  one offset, one value, for ever
I-03  a value that was sent once is stored once (idempotence)
I-04  per producer and partition, the order of sending is the order of offsets
I-05  what one reader is given is ascending and leaves nothing out
I-07  high watermark, log start and committed group offsets never go back, as clients see it (the high watermark of a
      single node; where others may take over, `node_checks` looks at each of them)
FAIL  with outages far below the delivery time-out, no record fails
Once records are asked to be deleted, or retention is shortened, a log may start later (I-01): not beyond what was asked for,
with no less in it than retention.bytes, and without no record that was younger than retention.ms. Readers may be sent to
its start then. What an acknowledged request has deleted does not come back (I-07).

With a compacted topic a record may be missing once another one of its key is stored at a higher offset (I-01), and a
reader may pass over offsets, but not over a record that is still there at the end (I-05). Where there are replicas, one may
have compacted what another one still has at the end: not the last record of a key, and only for a later one that had been
sent when the reader passed.

I-09  a topic whose creation was acknowledged exists, one whose deletion was acknowledged does not

Violations are recorded, not raised: they happen inside of the program under test, which might swallow them. The world
looks at `violation` after every event.
"""

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

TopicPartition = tuple[str, int]


class InvariantViolation(Exception):
    """A broken rule. Not a `SimulationError`: the fault lies in what is simulated."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule
        self.detail = detail


@dataclass(slots=True)
class SentRecord:
    """One `send`. `offset` is known once it is acknowledged."""

    producer: str
    sequence: int
    """Place among the sends of this producer to this partition."""
    where: TopicPartition
    value: bytes
    key: bytes | None = None
    sent_ms: int = 0
    """By the producer's clock, at the latest when the record was given its timestamp."""
    offset: int | None = None
    failure: str = ""


@dataclass(slots=True)
class PartitionHistory:
    """What is known of one partition."""

    values: dict[int, bytes] = field(default_factory=dict)
    """Offset -> value, from acknowledgments and reads."""
    acked_end: int = 0
    """One past the highest acknowledged offset."""
    high_watermark: int = 0
    log_start_offset: int = 0
    asked_start: int = 0
    """Below it somebody has asked to delete the records."""
    deleted_start: int = 0
    """Below it records have been deleted on request, with an acknowledgment."""
    gone_below: int = 0
    """Where the log of some node was seen to start: nobody need have what lies below."""
    passed: dict[tuple[int, int], tuple[str, int]] = field(default_factory=dict)
    """Offsets [start, end) of a compacted topic that a reader was not given; which reader, and how many records had been sent
    by then."""


class History:
    """The record of one run. See the module's docstring."""

    def __init__(self, *, is_compacted: bool = False, is_replicated: bool = False) -> None:
        self.is_replicated = is_replicated
        """Whether another replica may lead, which learns the high watermark later than clients do."""
        self.is_compacted = is_compacted
        """Whether superseded records may vanish."""
        self.counts_memory = False
        """Whether what is acknowledged need not be on a disk, for now."""
        self.retention_ms: int | None = None
        """The shortest that the load's topic has been given; None: records are not deleted for their age."""
        self.retention_bytes: int | None = None
        """The least, in the same way."""
        self.starts_moved = 0
        """How often some node's log began to start later than any had before."""
        self.deleted_count = 0
        """Known records that had been deleted at the end."""
        self.compacted_count = 0
        """Known records that had vanished at the end."""
        self.violation: InvariantViolation | None = None
        self.sent: dict[bytes, SentRecord] = {}
        self.partitions: dict[TopicPartition, PartitionHistory] = {}
        self.committed: dict[tuple[str, TopicPartition], int] = {}
        self.topics: dict[str, bool] = {}
        """Name -> whether it must exist; those of unknown fate are missing."""
        self.acked_count = 0
        self.failed_count = 0
        self.read_count = 0
        self._offset_of: dict[bytes, tuple[TopicPartition, int]] = {}
        self._send_counts: dict[tuple[str, TopicPartition], int] = {}
        self._positions: dict[tuple[str, TopicPartition], int] = {}
        self._group_ends: dict[tuple[str, TopicPartition], int] = {}

    def partition(self, where: TopicPartition) -> PartitionHistory:
        history = self.partitions.get(where)
        if history is None:
            history = self.partitions[where] = PartitionHistory()
        return history

    def violate(self, rule: str, detail: str) -> None:
        """Keep the first violation: later ones are its consequences."""
        if self.violation is None:
            self.violation = InvariantViolation(rule, detail)

    # --- producers

    def on_send(
        self, producer: str, where: TopicPartition, value: bytes, record_key: bytes | None = None, *, sent_ms: int = 0
    ) -> None:
        """`value` must not have been sent before."""
        key = (producer, where)
        sequence = self._send_counts.get(key, 0)
        self._send_counts[key] = sequence + 1
        self.sent[value] = SentRecord(producer, sequence, where, value, record_key, sent_ms)

    def on_ack(self, value: bytes, where: TopicPartition, offset: int) -> None:
        """The producer was told that `value` is stored at `offset`."""
        record = self.sent[value]
        if record.where != where:
            self.violate("I-01", f"{value[:40]!r} was sent to {record.where} and acknowledged in {where}")
        if record.offset is not None or record.failure:
            self.violate("I-03", f"{value[:40]!r} was answered twice")
        record.offset = offset
        self.acked_count += 1
        if offset < 0:
            return  # a retry that the broker had stored long before: it no longer knows where
        history = self.partition(where)
        history.acked_end = max(history.acked_end, offset + 1)
        self._see(where, offset, value, "acknowledged")

    def on_failure(self, value: bytes, reason: str) -> None:
        """The producer was told that `value` failed: it may be stored or not, but at most once."""
        record = self.sent[value]
        if record.offset is not None or record.failure:
            self.violate("I-03", f"{value[:40]!r} was answered twice")
        record.failure = reason
        self.failed_count += 1

    # --- readers

    def on_position(self, reader: str, where: TopicPartition, offset: int) -> None:
        """The reader begins at `offset` (after an assignment or a seek)."""
        self._positions[reader, where] = offset

    def forget_position(self, reader: str, where: TopicPartition) -> None:
        """The reader gave the partition up."""
        self._positions.pop((reader, where), None)

    def on_read(self, reader: str, where: TopicPartition, offset: int, value: bytes) -> None:
        """The reader was given one record."""
        self.read_count += 1
        expected = self._positions.get((reader, where))
        if expected is not None and max(expected, offset) <= self.partition(where).gone_below:
            pass  # sent on to a log's start
        elif expected is not None and offset > expected and self.is_compacted:
            self._pass_over(reader, where, expected, offset)
        elif expected is not None and offset != expected:
            kind = "skipped" if offset > expected else "went back"
            self.violate("I-05", f"{reader} {kind}: got offset {offset} of {_name(where)} instead of {expected}")
        self._positions[reader, where] = offset + 1
        if value not in self.sent:
            self.violate("I-01", f"{reader} read {value[:40]!r} at {_name(where)}@{offset}, which nobody sent")
        self._see(where, offset, value, f"read by {reader}")

    def on_high_watermark(self, where: TopicPartition, high_watermark: int, log_start_offset: int) -> None:
        """A client was told these."""
        history = self.partition(where)
        if high_watermark < history.high_watermark and not self.is_replicated:
            self.violate(
                "I-07", f"high watermark of {_name(where)} went back from {history.high_watermark} to {high_watermark}"
            )
        if log_start_offset < history.log_start_offset and not self.is_replicated:
            self.violate(
                "I-07", f"log start of {_name(where)} went back from {history.log_start_offset} to {log_start_offset}"
            )
        history.high_watermark = high_watermark
        history.log_start_offset = log_start_offset

    # --- deletion

    def on_delete_asked(self, where: TopicPartition, before_offset: int) -> None:
        """Somebody asks to delete the records below an offset."""
        partition = self.partition(where)
        partition.asked_start = max(partition.asked_start, before_offset)

    def on_deleted(self, where: TopicPartition, start_offset: int) -> None:
        """The request was answered: the partition starts there."""
        partition = self.partition(where)
        partition.deleted_start = max(partition.deleted_start, start_offset)

    def on_retention_asked(self, *, retention_ms: int | None = None, retention_bytes: int | None = None) -> None:
        """Somebody asks for a shorter retention. It counts for the rest of the run: who knows which node has heard what."""
        if retention_ms is not None:
            self.retention_ms = min(retention_ms, self.retention_ms or retention_ms)
        if retention_bytes is not None:
            self.retention_bytes = min(retention_bytes, self.retention_bytes or retention_bytes)

    def on_log_start(self, who: str, where: TopicPartition, start_offset: int, *, size_bytes: int, now_ms: int) -> None:
        """The log of a node was seen to start there, with so many bytes in it; `now_ms`: by the node's clock, with all by
        which it may have been wrong when it stamped what it wrote."""
        partition = self.partition(where)
        if start_offset <= partition.gone_below:
            return
        self.starts_moved += 1
        kept = (
            None
            if self.retention_bytes is not None and size_bytes >= self.retention_bytes
            else self._too_young(partition, start_offset, now_ms)
        )
        partition.gone_below = start_offset
        if kept is not None:
            self.violate(
                "I-01",
                f"{_name(where)} starts at {start_offset} on {who}, but nothing lets {kept} go: asked for were the records "
                f"below {partition.asked_start}, retention.ms {self.retention_ms}, retention.bytes {self.retention_bytes} "
                f"of {size_bytes}",
            )

    def _too_young(self, partition: PartitionHistory, start_offset: int, now_ms: int) -> int | None:
        """The first offset that neither a request nor its age takes away."""
        for offset in range(max(partition.gone_below, partition.asked_start), start_offset):
            record = self.sent.get(partition.values.get(offset, b""))
            if self.retention_ms is None or (record is not None and record.sent_ms + self.retention_ms > now_ms):
                return offset
        return None

    # --- groups

    def on_group_read(self, group: str, where: TopicPartition, offset: int) -> None:
        """A member of the group was given a record: members may read again, but the group leaves nothing out."""
        end = self._group_ends.get((group, where), 0)
        if offset <= self.partition(where).gone_below:
            pass  # sent on to a log's start
        elif offset > end and self.is_compacted:
            self._pass_over(f"group {group}", where, end, offset)
        elif offset > end:
            self.violate("I-05", f"group {group} skipped from {end} to {offset} in {_name(where)}")
        self._group_ends[group, where] = max(end, offset + 1)

    def on_committed(self, group: str, where: TopicPartition, offset: int) -> None:
        """A commit was acknowledged."""
        key = (group, where)
        self.committed[key] = max(self.committed.get(key, -1), offset)

    def on_committed_read(self, group: str, where: TopicPartition, offset: int, floor: int) -> None:
        """Somebody asked for the committed offset when `floor` had been acknowledged already."""
        if offset < floor:
            self.violate("I-07", f"committed offset of {group} in {_name(where)} went back from {floor} to {offset}")

    def committed_floor(self, group: str, where: TopicPartition) -> int:
        """What a question that is asked now must at least be answered; -1: nothing committed."""
        return self.committed.get((group, where), -1)

    # --- topics

    def on_topic_created(self, name: str) -> None:
        """The creation of `name` was acknowledged. A name is used once."""
        self.topics[name] = True

    def on_topic_deleted(self, name: str) -> None:
        """The deletion of `name` was acknowledged."""
        self.topics[name] = False

    def on_topic_unknown(self, name: str) -> None:
        """A creation or deletion of `name` failed: it may have taken effect."""
        self.topics.pop(name, None)

    def on_topics_listed(self, names: Collection[str]) -> None:
        """The client that creates and deletes topics, one request at a time, was told these."""
        for name, exists in self.topics.items():
            if exists and name not in names:
                self.violate("I-09", f"topic {name} was created and is not listed")
            if not exists and name in names:
                self.violate("I-09", f"topic {name} was deleted and is listed")

    # --- at the end

    def check_log(self, where: TopicPartition, records: Sequence[tuple[int, bytes]]) -> None:
        """The whole of a partition, read back in order after everything has healed."""
        history = self.partition(where)
        last: dict[str, int] = {}
        stored: set[int] = set()
        for offset, value in records:
            stored.add(offset)
            self._see(where, offset, value, "read back")
            record = self.sent.get(value)
            if record is None:
                self.violate("I-01", f"{_name(where)}@{offset} holds {value[:40]!r}, which nobody sent")
            elif record.sequence <= last.get(record.producer, -1):
                self.violate(
                    "I-04",
                    f"{_name(where)}@{offset}: send {record.sequence} of {record.producer} is stored after its send "
                    f"{last[record.producer]}",
                )
            else:
                last[record.producer] = record.sequence
        values = {value for _, value in records}
        latest = {self.sent[value].key: offset for offset, value in records if value in self.sent}
        for record in self.sent.values():
            if record.where == where and record.offset is not None and record.value not in values:
                if 0 <= record.offset < history.gone_below or self._is_superseded(record, record.offset, latest):
                    continue
                self.violate("I-01", f"{record.value[:40]!r} was acknowledged in {_name(where)} and is gone")
        if records and records[0][0] < history.deleted_start:
            self.violate(
                "I-07", f"{_name(where)}@{records[0][0]} is back: all below {history.deleted_start} had been deleted"
            )
        for offset in sorted(history.values):
            if offset not in stored:
                if offset < history.gone_below:
                    self.deleted_count += 1
                    continue
                if self._is_superseded(self.sent.get(history.values[offset]), offset, latest):
                    self.compacted_count += 1
                    continue
                self.violate("I-01", f"{_name(where)}@{offset} ({history.values[offset][:40]!r}) is gone")
                return
        self._check_passed(where, sorted(stored))

    def unanswered(self) -> list[SentRecord]:
        """Sends whose future is not done: after healing and flushing there are none."""
        return [record for record in self.sent.values() if record.offset is None and not record.failure]

    def _is_superseded(self, record: SentRecord | None, offset: int, latest: Mapping[bytes | None, int]) -> bool:
        """Whether compaction may have taken the record at `offset`. `latest`: where the last stored one of a key lies."""
        return (
            self.is_compacted and record is not None and record.key is not None and latest.get(record.key, -1) > offset
        )

    def _pass_over(self, reader: str, where: TopicPartition, start: int, end: int) -> None:
        self.partition(where).passed.setdefault((start, end), (reader, len(self.sent)))

    def _check_passed(self, where: TopicPartition, stored: Sequence[int]) -> None:
        values = self.partition(where).values
        if not self.partition(where).passed or self.violation is not None:
            return
        numbers = {value: number for number, value in enumerate(self.sent)}
        of_key: dict[bytes | None, list[tuple[int, int]]] = {}
        for offset, value in values.items():
            of_key.setdefault(self.sent[value].key, []).append((offset, numbers[value]))
        for (start, end), (reader, sent_count) in self.partition(where).passed.items():
            for offset in stored[bisect_left(stored, start) : bisect_left(stored, end)]:
                # Each replica compacts when it likes: what this one still has, another one may not have had.
                may_have_gone = self.is_replicated and any(
                    later > offset and number < sent_count for later, number in of_key[self.sent[values[offset]].key]
                )
                if not may_have_gone:
                    self.violate("I-05", f"{reader} skipped from {start} to {end} in {_name(where)}, over {offset}")

    def _see(self, where: TopicPartition, offset: int, value: bytes, how: str) -> None:
        """`value` lies at `offset`."""
        values = self.partition(where).values
        before = values.setdefault(offset, value)
        if before != value:
            self.violate("I-02", f"{_name(where)}@{offset} was {before[:40]!r} and is {value[:40]!r} ({how})")
        place = self._offset_of.setdefault(value, (where, offset))
        if place != (where, offset):
            self.violate(
                "I-03", f"{value[:40]!r} lies at {_name(place[0])}@{place[1]} and at {_name(where)}@{offset} ({how})"
            )


def _name(where: TopicPartition) -> str:
    return f"{where[0]}-{where[1]}"
