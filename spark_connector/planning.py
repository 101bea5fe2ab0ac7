"""Which offsets a batch reads, and how they become tasks. Pure arithmetic on {topic: {partition: offset}}."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kraftlog.proto.errors import DataLossError, InvalidConfigError
from kraftlog.spark_connector.options import EARLIEST, LATEST, OffsetSpec, PartitionOffsets

SMALL_TASK_OFFSETS = 50_000  # a Python task costs some 100 ms before its first row, as much as reading this many


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Records [start, end) of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def each(offsets: Mapping[str, Mapping[int, int]]) -> Iterator[tuple[str, int, int]]:
    """(topic, partition, offset) in order."""
    for topic in sorted(offsets):
        for partition in sorted(offsets[topic]):
            yield topic, partition, offsets[topic][partition]


def resolve(name: str, spec: OffsetSpec, earliest: PartitionOffsets, latest: PartitionOffsets) -> PartitionOffsets:
    """Offsets for every partition of `latest`. Explicit offsets must name exactly these partitions, as in Spark."""
    if isinstance(spec, int):
        return {topic: dict(partitions) for topic, partitions in (earliest if spec == EARLIEST else latest).items()}
    wanted = {(topic, partition) for topic, partition, _ in each(spec)}
    present = {(topic, partition) for topic, partition, _ in each(latest)}
    if wanted != present:
        missing = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(present - wanted))
        foreign = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(wanted - present))
        raise InvalidConfigError(
            f"option {name} must give an offset for each partition that is read (-2 earliest, -1 latest)"
            + (f"; missing: {missing}" if missing else "")
            + (f"; not read: {foreign}" if foreign else "")
        )
    special = {EARLIEST: earliest, LATEST: latest}
    return {
        topic: {p: special[offset][topic][p] if offset < 0 else offset for p, offset in partitions.items()}
        for topic, partitions in spec.items()
    }


def with_new_partitions(start: PartitionOffsets, earliest: PartitionOffsets) -> PartitionOffsets:
    """`start`, and the partitions that it does not know from their first offset on: they came after it."""
    result = {topic: dict(partitions) for topic, partitions in start.items()}
    for topic, partition, offset in each(earliest):
        result.setdefault(topic, {}).setdefault(partition, offset)
    return result


def ranges_between(start: PartitionOffsets, end: PartitionOffsets, *, fail_on_data_loss: bool) -> list[OffsetRange]:
    """What lies between two offsets; `start` names every partition of `end`.

    Raises `DataLossError` where a partition vanished or went back, unless `fail_on_data_loss` is off.
    """
    ranges = []
    for topic, partition, begin in each(start):
        stop = end.get(topic, {}).get(partition)
        if fail_on_data_loss and stop is None:
            raise DataLossError(
                f"{topic}-{partition}: the query stands at offset {begin}, but the partition is gone (topic deleted or "
                "recreated with fewer partitions); set failOnDataLoss=false to go on without it"
            )
        if fail_on_data_loss and stop is not None and stop < begin:
            raise DataLossError(
                f"{topic}-{partition}: the query stands at offset {begin}, but the log ends at {stop} (topic recreated "
                "or log truncated); set failOnDataLoss=false to go on from the log's end"
            )
    for topic, partition, stop in each(end):
        begin = start[topic][partition]
        if stop > begin:
            ranges.append(OffsetRange(topic, partition, begin, stop))
    return ranges


def limit_offsets(start: PartitionOffsets, latest: PartitionOffsets, max_offsets: int) -> PartitionOffsets:
    """At most `max_offsets` beyond `start`, shared in proportion to each partition's backlog.

    Every partition with a backlog gets at least one where the limit allows, so that no small one starves. Never goes
    back behind `start`.
    """
    backlog = {(topic, partition): max(0, stop - start[topic][partition]) for topic, partition, stop in each(latest)}
    total = sum(backlog.values())
    if total <= max_offsets:
        share = backlog
    else:
        share = {key: size * max_offsets // total for key, size in backlog.items()}
        left = max_offsets - sum(share.values())
        # what rounding left over goes to those who got least of what they have
        for key in sorted(backlog, key=lambda k: (share[k] > 0, share[k] - backlog[k], k)):
            if left > 0 and share[key] < backlog[key]:
                share[key] += 1
                left -= 1
    result: PartitionOffsets = {}
    for topic, partition, _ in each(latest):
        begin = start[topic][partition]
        result.setdefault(topic, {})[partition] = begin + share[topic, partition]
    return result


def plan_tasks(
    ranges: Sequence[OffsetRange], *, cores: int, min_partitions: int | None, max_partitions: int | None
) -> list[list[OffsetRange]]:
    """Ranges of each task.

    One task a partition where there is much to read; small ones share a task, down to one per core. `min_partitions`
    splits ranges, in proportion to their sizes; `max_partitions` bounds the tasks.
    """
    if not ranges:
        return []
    total = sum(r.size for r in ranges)
    if min_partitions is not None and min_partitions > len(ranges):
        pieces = [piece for r in ranges for piece in _split(r, max(1, round(r.size / total * min_partitions)))]
        tasks = len(pieces)
    else:
        pieces = list(ranges)
        tasks = min(len(pieces), max(cores, -(-total // SMALL_TASK_OFFSETS), min_partitions or 1))
    if max_partitions is not None:
        tasks = min(tasks, max_partitions)
    return _share_out(pieces, tasks)


def _split(whole: OffsetRange, parts: int) -> Iterator[OffsetRange]:
    parts = min(parts, whole.size)
    for i in range(parts):
        yield replace(
            whole, start=whole.start + whole.size * i // parts, end=whole.start + whole.size * (i + 1) // parts
        )


def _share_out(pieces: Sequence[OffsetRange], tasks: int) -> list[list[OffsetRange]]:
    """Largest piece first to the least loaded task; deterministic."""
    if tasks >= len(pieces):
        return [[piece] for piece in pieces]
    groups: list[list[OffsetRange]] = [[] for _ in range(tasks)]
    loads = [0] * tasks
    for piece in sorted(pieces, key=lambda r: (-r.size, r.topic, r.partition, r.start)):
        least = loads.index(min(loads))
        groups[least].append(piece)
        loads[least] += piece.size
    return groups
