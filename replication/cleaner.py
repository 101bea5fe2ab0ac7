"""Compaction of a broker's logs in the background: always the dirtiest first, in small steps, at a bounded rate.

A pass reads and writes in the executor; the event loop, which writes the logs, only takes over what is ready. A topic's
deletion and the node's stop wait for the step that runs. A log that cannot be compacted (damage, records that cannot be
read) is left alone from then on, with an error in the log and in `uncleanable`; the others go on. Used from one event loop.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kraftlog.logstore import DiskFullError, Log, LogDir
from kraftlog.logstore.cleaning import (
    CleanerManager,
    CleaningPass,
    Dirtiness,
    Step,
    Uncleanable,
    look_for_dirt,
)
from kraftlog.proto.errors import CorruptRecordError, KraftlogError, StorageError
from kraftlog.proto.seams import BlockingExecutor, Clock, Random
from kraftlog.replication.partition import Partition, TopicPartition
from kraftlog.replication.throttle import Throttle

logger = logging.getLogger("kraftlog.replication")


@dataclass(frozen=True, slots=True)
class CleanerLimits:
    """What compaction may use."""

    map_bytes: int = 128 << 20
    """Bound of one pass's offset map."""
    bytes_per_second: float = math.inf
    """Read and written, by all passes together."""


DEFAULT_LIMITS = CleanerLimits()


class Cleaner:
    """See the module's text."""

    def __init__(
        self,
        partitions: Mapping[TopicPartition, Partition],
        log_dir: LogDir,
        executor: BlockingExecutor,
        clock: Clock,
        random: Random,
        limits: CleanerLimits,
        *,
        on_flushed: Callable[[Partition], None],
        on_failed: Callable[[Exception], None],
        on_damage: Callable[[Partition, CorruptRecordError], None],
    ) -> None:
        """`on_flushed`: a log's flushed end may have moved; `on_failed`: the log directory failed; `on_damage`: a log is not
        what was written."""
        self._partitions = partitions
        self._log_dir = log_dir
        self._executor = executor
        self._clock = clock
        self._random = random
        self._map_bytes = limits.map_bytes
        self._throttle = Throttle(limits.bytes_per_second)
        self._on_flushed = on_flushed
        self._on_failed = on_failed
        self._on_damage = on_damage
        self._manager = CleanerManager()
        self._running: dict[TopicPartition, asyncio.Event] = {}
        """Set when the pass has ended."""
        self._unwanted: set[TopicPartition] = set()
        """Partitions whose pass is to end soon."""
        self._stopping = asyncio.Event()

    @property
    def uncleanable(self) -> dict[TopicPartition, Uncleanable]:
        """What is left alone, and why."""
        return {
            (log.topic, log.partition): why
            for log, why in self._manager.uncleanable.items()
            if self._log_dir.logs.get((log.topic, log.partition)) is log
        }

    async def run(self, backoff_ms: int) -> None:
        """Compact until `stop`; `backoff_ms`: between looks while there is nothing to do. May run several times at once."""
        while not self._stopping.is_set():
            if not await self.clean_one():
                await self._wait(backoff_ms)

    async def clean_one(self) -> bool:
        """Compact the log that needs it most, as far as the offset map reaches. False: none does, or it has to wait."""
        try:
            chosen = await self._choose()
            return chosen is not None and await self._clean(*chosen)
        except DiskFullError as error:
            logger.warning("compaction waits for space: %s", error)
        except StorageError as error:
            self._on_failed(error)
        return False

    async def leave(self, key: TopicPartition) -> None:
        """Return when nothing works on the partition's log any more. It must not be among the partitions."""
        ended = self._running.get(key)
        if ended is not None:
            self._unwanted.add(key)
            await ended.wait()

    async def stop(self) -> None:
        """Let `run` end soon, and wait for the passes."""
        self._stopping.set()
        for ended in list(self._running.values()):
            await ended.wait()

    async def _choose(self) -> tuple[Partition, Log, Dirtiness] | None:
        logs = {p: self._log_dir.logs[key] for key, p in self._partitions.items() if p.failure is None}
        self._manager.forget_all_but(logs.values())
        now_ms = self._clock.wall_ms()
        asked = [
            (log, log.last_stable_offset(partition.high_watermark), log.truncations)
            for partition, log in logs.items()
            if self._manager.may_clean(log)
        ]
        if not asked:
            return None
        found = await self._executor.run(
            lambda: [
                (log, dirtiness)
                for log, stable_offset, truncations in asked
                if (dirtiness := self._look(log, stable_offset, truncations, now_ms)) is not None
            ]
        )
        found = [(log, dirtiness) for log, dirtiness in found if self._partition_of(log) is not None]
        chosen = None if self._stopping.is_set() else self._manager.choose(found)
        if chosen is None:
            return None
        partition = self._partition_of(chosen[0])
        assert partition is not None
        return partition, *chosen

    def _look(self, log: Log, stable_offset: int, truncations: int, now_ms: int) -> Dirtiness | None:
        """Runs in the executor. A log that cannot be looked at is not compacted now."""
        try:
            return look_for_dirt(
                log,
                cleaned_to=self._log_dir.cleaned_to(log),
                stable_offset=stable_offset,
                truncations=truncations,
                now_ms=now_ms,
            )
        except KraftlogError as error:
            logger.warning("%s is not compacted: %s", log.name, error)
            return None

    def _partition_of(self, log: Log) -> Partition | None:
        """The log's partition, if it is still here, works, and is not being cut."""
        key = (log.topic, log.partition)
        partition = self._partitions.get(key)
        is_at_rest = partition is not None and partition.failure is None and not partition.is_being_cut
        return partition if is_at_rest and self._log_dir.logs.get(key) is log else None

    async def _clean(self, partition: Partition, log: Log, dirtiness: Dirtiness) -> bool:
        ended = self._running[partition.key] = asyncio.Event()
        cleaning = CleaningPass(
            log,
            dirtiness,
            now_ms=self._clock.wall_ms(),
            map_bytes=self._map_bytes,
            sip_key=self._random.getrandbits(128).to_bytes(16, "big"),
        )
        try:
            return await self._run_pass(cleaning, partition)
        finally:
            self._manager.release(log)
            self._unwanted.discard(partition.key)
            del self._running[partition.key]
            ended.set()

    async def _run_pass(self, cleaning: CleaningPass, partition: Partition) -> bool:
        try:
            try:
                is_done = await self._take_steps(cleaning, partition)
            finally:
                await self._executor.run(cleaning.close)
        except StorageError:
            if self._partition_of(cleaning.log) is None:
                return False  # deleted, or offline already
            raise
        except Exception as error:  # whatever it is, it concerns one log, and the others must go on being compacted
            is_known = isinstance(error, KraftlogError)
            logger.error(
                "%s is not compacted any more, until the node starts again: %s",
                cleaning.log.name,
                error,
                exc_info=None if is_known else error,
            )
            reason = str(error) if is_known else f"{type(error).__name__}: {error}"
            self._manager.mark_uncleanable(cleaning.log, reason, self._clock.wall_ms())
            if isinstance(error, CorruptRecordError):
                self._on_damage(partition, error)
            return True
        if is_done:
            await self._executor.run(lambda: cleaning.record_end(self._log_dir))
            logger.info(
                "%s: compacted up to offset %d, %d bytes read, %d written",
                cleaning.log.name,
                cleaning.end_offset,
                cleaning.read_bytes,
                cleaning.written_bytes,
            )
        return is_done

    async def _take_steps(self, cleaning: CleaningPass, partition: Partition) -> bool:
        done_bytes = 0
        is_first = True
        while not self._is_given_up(cleaning.log, partition):
            step = await self._executor.run(cleaning.step)
            if is_first:
                self._on_flushed(partition)
                is_first = False
            if step is Step.DONE:
                return True
            if step is Step.VOID or self._is_given_up(cleaning.log, partition):
                return False
            if step is Step.COMMIT:
                if not cleaning.commit():
                    return False
                await self._executor.run(cleaning.finish_commit)
            total_bytes = cleaning.read_bytes + cleaning.written_bytes
            await self._wait(self._throttle.delay_ms(total_bytes - done_bytes, self._clock.monotonic_ms()))
            done_bytes = total_bytes
        return False

    def _is_given_up(self, log: Log, partition: Partition) -> bool:
        return self._stopping.is_set() or partition.key in self._unwanted or self._partition_of(log) is not partition

    async def _wait(self, delay_ms: float) -> None:
        """Until then, or until `stop`."""
        if delay_ms > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay_ms / 1000)
