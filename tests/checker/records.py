"""Is what producers were promised and consumers were given, what one log per partition could have given them?

Every value is used once: it names its producer and its place in what that producer sent, so that a record that is lost,
doubled or out of order can be told from what is there. The final log, read to its end after all faults, is what the rest is
held against; a topic of such a history is neither compacted nor transactional nor shortened by retention, so that each of its
offsets has a record. What is looked for is the list of Jepsen's workload for Kafka, without transactions.

An acknowledgment is one of acks=all by an idempotent producer. A record that was sent and not acknowledged may be in the log
or not, once. Linear in the length of the history.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

FINDINGS_PER_KIND_MAX = 5  # to read; one is enough to fail


class Kind(Enum):
    LOST = "was acknowledged or read, and is gone"
    DUPLICATE = "is stored twice"
    REORDERED = "lies before what its producer sent earlier"
    INCONSISTENT_OFFSET = "two values at one offset"
    NON_MONOTONIC = "a reader went back by itself"
    SKIPPED = "a reader was not given what is there"
    GAP = "offsets without a record"
    INVENTED = "a value that nobody sent"


@dataclass(frozen=True, slots=True, order=True)
class Value:
    """What a record holds."""

    producer: str
    number: int
    """Counts what the producer sent, from 0."""

    def __str__(self) -> str:
        return f"{self.producer}-{self.number}"


Records = Sequence[tuple[int, Value]]
"""Offset and value."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    partition: int
    value: Value
    offset: int
    """-1: the producer was not told, only that it is stored."""


@dataclass(frozen=True, slots=True)
class Session:
    """What a reader was given of a partition in a row: from where it was put there, or was given the partition by its
    group, until that happened again."""

    group: str
    """Readers that share their partitions; one that has all to itself has a name of its own here."""
    reader: str
    partition: int
    records: Records
    begin: int | None = None
    """The offset at which it was put; None: not known."""


@dataclass(frozen=True, slots=True)
class History:
    sent: Mapping[str, int]
    """How many values each producer has handed over."""
    acknowledged: Sequence[Acknowledged]
    sessions: Sequence[Session]
    """Every group read from the beginning to the end of the final log, over all of its sessions."""
    final: Mapping[int, Records]
    """By partition: what a reader was given that came when all was over, in its order."""


@dataclass(frozen=True, slots=True)
class Finding:
    kind: Kind
    text: str

    def __str__(self) -> str:
        return f"{self.kind.name} ({self.kind.value}): {self.text}"


def find_violations(history: History) -> list[Finding]:
    """What no correct log could have given; empty: nothing. At most `FINDINGS_PER_KIND_MAX` of a kind."""
    counts: Counter[Kind] = Counter()
    found = []
    for finding in _findings(history):
        counts[finding.kind] += 1
        if counts[finding.kind] <= FINDINGS_PER_KIND_MAX:
            found.append(finding)
    return found


def _findings(history: History) -> Iterator[Finding]:
    log = {partition: dict(records) for partition, records in history.final.items()}
    for partition, records in history.final.items():
        yield from _of_final(partition, records, history.sent)
    yield from _of_acknowledgments(history.acknowledged, log)
    for session in history.sessions:
        yield from _of_session(session, log.get(session.partition, {}))
    yield from _of_groups(history.sessions, log)


def _of_final(partition: int, records: Records, sent: Mapping[str, int]) -> Iterator[Finding]:
    expected = 0
    at: dict[Value, int] = {}
    last: dict[str, Value] = {}
    for offset, value in records:
        where = f"partition {partition}, offset {offset}"
        if offset < expected:
            yield Finding(Kind.NON_MONOTONIC, f"{where}: the final reader was at {expected}")
        if offset > expected:
            yield Finding(Kind.GAP, f"partition {partition}: {expected} to {offset - 1}")
        expected = max(expected, offset + 1)
        if not 0 <= value.number < sent.get(value.producer, 0):
            yield Finding(Kind.INVENTED, f"{where}: {value}")
        if value in at:
            yield Finding(Kind.DUPLICATE, f"{where}: {value} is also at {at[value]}")
            continue
        at[value] = offset
        before = last.setdefault(value.producer, value)
        if value < before:
            yield Finding(Kind.REORDERED, f"{where}: {value} after {before} at {at[before]}")
        last[value.producer] = max(value, before)


def _of_acknowledgments(
    acknowledged: Sequence[Acknowledged], log: Mapping[int, Mapping[int, Value]]
) -> Iterator[Finding]:
    present = {partition: set(values.values()) for partition, values in log.items()}
    for each in acknowledged:
        where = f"partition {each.partition}: {each.value}, acknowledged at {each.offset},"
        there = log.get(each.partition, {}).get(each.offset)
        if each.value not in present.get(each.partition, ()):
            yield Finding(Kind.LOST, f"{where} is nowhere")
        if each.offset >= 0 and there is not None and there != each.value:
            yield Finding(Kind.INCONSISTENT_OFFSET, f"{where} but {there} is there")
        if each.offset >= 0 and there is None:
            yield Finding(Kind.LOST, f"{where} where nothing is")


def _of_session(session: Session, log: Mapping[int, Value]) -> Iterator[Finding]:
    where = f"{session.reader} in partition {session.partition}"
    for offset, value in session.records:
        there = log.get(offset)
        if there is None:
            yield Finding(Kind.LOST, f"{where} read {value} at {offset}")
        elif there != value:
            yield Finding(Kind.INCONSISTENT_OFFSET, f"{where} read {value} at {offset}, later {there} is there")
    offsets = [offset for offset, _ in session.records]
    if session.begin is not None:
        offsets.insert(0, session.begin - 1)
    for before, offset in pairwise(offsets):
        if offset <= before:
            yield Finding(Kind.NON_MONOTONIC, f"{where} was given {offset} after {before}")
        elif any(missed in log for missed in range(before + 1, offset)):
            yield Finding(Kind.SKIPPED, f"{where} was given {offset} after {before}")


def _of_groups(sessions: Sequence[Session], log: Mapping[int, Mapping[int, Value]]) -> Iterator[Finding]:
    given: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for session in sessions:
        given[session.group][session.partition].update(offset for offset, _ in session.records)
    for group, by_partition in given.items():
        for partition, values in log.items():
            missed = sorted(values.keys() - by_partition[partition])
            if missed:
                yield Finding(
                    Kind.SKIPPED, f"{group} in partition {partition} never saw {len(missed)}, first {missed[0]}"
                )
