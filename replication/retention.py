"""The starts of a broker's logs: deleting old segments from time to time, deleting records on request.

The order of effects for one log (`kraftlog.logstore.log`): plan in the executor; roll on the loop; flush what must be
flushed and record the new start in the executor; let the log start there on the loop; delete the files in the executor.
Whoever sees a start may rely on it: no crash takes it back. On a full disk the start cannot be recorded; old segments go
nevertheless, because that is what makes room. If the power goes before their names are off the disk, their records are back
until the next round: records that retention deletes, not those that somebody asked to delete (`advance_starts`).

Logs are taken in slices, so that one pass over thousands of them holds no thread for long. Used from one event loop.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kraftlog.logstore import DiskFullError, Log, LogDir
from kraftlog.logstore.retention import RetentionPlan
from kraftlog.proto.errors import KraftlogError, NotLeaderOrFollowerError, StorageError
from kraftlog.proto.seams import BlockingExecutor, Clock
from kraftlog.replication.partition import Partition, TopicPartition

logger = logging.getLogger("kraftlog.replication")

SLICE_LOGS = 64  # planning takes some 10 µs a log that has nothing to do


@dataclass(slots=True)
class _Work:
    """One log with something to do."""

    partition: Partition
    log: Log
    truncations: int
    """Of the log, before it was looked at."""
    plan: RetentionPlan


class Retention:
    """See the module's text."""

    def __init__(
        self,
        partitions: Mapping[TopicPartition, Partition],
        log_dir: LogDir,
        executor: BlockingExecutor,
        clock: Clock,
        *,
        on_flushed: Callable[[Partition], None],
        on_start: Callable[[Partition], None],
        on_failed: Callable[[Exception], None],
    ) -> None:
        """`on_flushed`: a log's flushed end may have moved; `on_start`: its start has; `on_failed`: the log directory failed."""
        self._partitions = partitions
        self._log_dir = log_dir
        self._executor = executor
        self._clock = clock
        self._on_flushed = on_flushed
        self._on_start = on_start
        self._on_failed = on_failed

    async def run(self) -> int:
        """Look at every log once: delete what its topic's configuration no longer keeps, roll what is idle for too long.

        How many segments went. Raises nothing for a disk that fails: that is reported to `on_failed`.
        """
        keys = sorted(self._partitions)
        deleted = 0
        for start in range(0, len(keys), SLICE_LOGS):
            try:
                deleted += await self._run_slice(keys[start : start + SLICE_LOGS])
            except StorageError as error:
                self._on_failed(error)
                break
        return deleted

    async def advance_starts(
        self, starts: Mapping[Partition, int], *, of_leader: bool = True
    ) -> dict[Partition, int | KraftlogError]:
        """Let logs start at those offsets, durably; where each starts then, or why not. Replicas that follow take the
        leader's start (not `of_leader`), except those that are being cut.

        The offsets have been checked (`Partition.deletion_end`). May be repeated. Raises `StorageError` if the new starts
        cannot be recorded: then no log has moved.
        """
        logs = {partition: self._log_dir.logs[partition.key] for partition in starts if not partition.is_being_cut}
        higher = {log: starts[p] for p, log in logs.items() if starts[p] > log.log_start_offset}
        truncations = {log: log.truncations for log in logs.values()}
        if higher:
            await self._executor.run(lambda: self._log_dir.record_log_starts(higher, truncations))
        results: dict[Partition, int | KraftlogError] = {}
        for partition, log in logs.items():
            try:
                if of_leader:
                    partition.check_leader()
                if log.truncations != truncations[log]:  # it is told again by the leader that had it cut
                    raise NotLeaderOrFollowerError(f"{partition}: the log was cut meanwhile: refresh the metadata")
                if log.advance_log_start_offset(starts[partition]):
                    self._on_start(partition)
                results[partition] = log.log_start_offset
            except KraftlogError as error:  # truncated, deposed or deleted meanwhile
                results[partition] = error
        return results

    def expire_producers(self, expiration_ms: int) -> int:
        """Forget the producers that sent nothing for so long; how many. Costs little: only the forgotten are looked at."""
        now_ms = self._clock.wall_ms()
        return sum(
            self._log_dir.logs[key].producers.expire(now_ms, expiration_ms)
            for key, partition in self._partitions.items()
            if _is_at_rest(partition)
        )

    async def _run_slice(self, keys: Sequence[TopicPartition]) -> int:
        now_ms = self._clock.wall_ms()
        asked = [
            (partition, log := self._log_dir.logs[key], log.truncations, partition.high_watermark)
            for key in keys
            if (partition := self._partitions.get(key)) is not None and _is_at_rest(partition)
        ]
        planned = await self._executor.run(
            lambda: [
                _Work(partition, log, truncations, plan)
                for partition, log, truncations, high_watermark in asked
                if (plan := _plan(log, now_ms, high_watermark)) is not None
            ]
        )
        begun = [work for work in planned if self._begin(work, now_ms)]
        if not begun:
            return 0
        unflushed = [work for work in begun if work.log.needs_flush_before_deletion(work.plan)]
        await self._executor.run(lambda: self._prepare(begun, unflushed))
        for work in unflushed:
            self._on_flushed(work.partition)
        detached = [work for work in begun if self._is_here(work) and work.log.detach(work.plan)]
        if not detached:
            return 0
        for work in detached:
            self._on_start(work.partition)
        await self._executor.run(lambda: _delete(detached))
        return sum(len(work.plan.segments) for work in detached)

    def _is_here(self, work: _Work) -> bool:
        """Whether the partition was neither deleted nor failed meanwhile, and its log neither was nor is being cut."""
        partition, is_as_it_was = work.partition, work.log.truncations == work.truncations
        return self._partitions.get(partition.key) is partition and _is_at_rest(partition) and is_as_it_was

    def _begin(self, work: _Work, now_ms: int) -> bool:
        """Roll where it is due; whether there are segments to delete."""
        if not self._is_here(work):
            return False
        try:
            if not work.log.begin_retention(work.plan, now_ms):
                return False
        except DiskFullError:
            work.plan = work.plan.without_growing()
        return bool(work.plan.segments)

    def _prepare(self, begun: Sequence[_Work], unflushed: Sequence[_Work]) -> None:
        """Runs in the executor. What cannot be flushed, and recorded as that, on a full disk is left."""
        for work in unflushed:
            try:
                work.log.flush_before_deletion(work.plan)
            except DiskFullError as error:
                logger.warning("%s keeps old segments that it cannot flush: %s", work.partition, error)
                work.plan = work.plan.up_to(self._log_dir.synced_end(work.log))
        left = [work for work in begun if work.plan.segments]
        try:
            self._log_dir.record_log_starts(
                {work.log: work.plan.start_offset for work in left}, {work.log: work.truncations for work in left}
            )
        except DiskFullError as error:
            logger.warning("old segments go although their logs' new starts cannot be recorded: %s", error)


def _is_at_rest(partition: Partition) -> bool:
    return partition.failure is None and not partition.is_being_cut


def _plan(log: Log, now_ms: int, high_watermark: int) -> RetentionPlan | None:
    """Runs in the executor. A log that cannot be looked at keeps what it has."""
    try:
        return log.plan_retention(now_ms=now_ms, high_watermark=high_watermark)
    except KraftlogError as error:
        logger.warning("%s keeps its old segments: %s", log.name, error)
        return None


def _delete(detached: Sequence[_Work]) -> None:
    """Runs in the executor."""
    for work in detached:
        plan = work.plan
        logger.info(
            "%s: deleting %d segments, the log starts at %d (%s)",
            work.partition,
            len(plan.segments),
            plan.start_offset,
            ", ".join(sorted(set(plan.reasons))),
        )
        work.log.delete_detached(plan)
