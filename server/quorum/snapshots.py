"""When a node takes snapshots of its metadata: after so many bytes of the log, or after so long with anything new.

Voters and observers each take their own (KIP-630). The work is done beside everything else; one at a time.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from kraftlog.logstore import DiskFullError
from kraftlog.proto.seams import Clock

logger = logging.getLogger("kraftlog.server")


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotConfig:
    max_record_bytes_between_snapshots: int = 20 * 1024 * 1024
    """Bytes of committed batches after which a snapshot is due. At least 1. Kafka's
    metadata.log.max.record.bytes.between.snapshots."""

    max_snapshot_interval_ms: int = 3_600_000
    """Time after the last snapshot, or the start, at which one is due if anything was committed since. 0: never.
    Kafka's metadata.log.max.snapshot.interval.ms."""

    def __post_init__(self) -> None:
        if self.max_record_bytes_between_snapshots < 1:
            raise ValueError(f"max_record_bytes_between_snapshots={self.max_record_bytes_between_snapshots} is below 1")
        if self.max_snapshot_interval_ms < 0:
            raise ValueError(f"max_snapshot_interval_ms={self.max_snapshot_interval_ms} is below 0")


class Snapshotter:
    """Used from one event loop."""

    def __init__(
        self,
        *,
        config: SnapshotConfig,
        clock: Clock,
        take: Callable[[], Awaitable[None]],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """`take` makes a snapshot of what is committed when it is called. A full disk is reported and tried again;
        `on_failed` hears of anything else that it raises."""
        self._config = config
        self._clock = clock
        self._take = take
        self._on_failed = on_failed
        self._new_bytes = 0
        self._last_ms = clock.monotonic_ms()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False

    def applied(self, size_bytes: int) -> None:
        """So many bytes of the log are new in the metadata."""
        self._new_bytes += size_bytes
        self._begin_if_due()

    def covered(self) -> None:
        """Everything up to here is in a snapshot: one was received."""
        self._new_bytes = 0
        self._last_ms = self._clock.monotonic_ms()
        self._cancel_timer()

    async def stop(self) -> None:
        """Take no more; return when a running one has ended. May be repeated."""
        self._is_stopped = True
        self._cancel_timer()
        if self._task is not None:
            await asyncio.wait([self._task])

    def _begin_if_due(self) -> None:
        if self._task is not None or self._is_stopped or not self._new_bytes:
            return
        interval_ms = self._config.max_snapshot_interval_ms
        left_ms = self._last_ms + interval_ms - self._clock.monotonic_ms()
        if self._new_bytes >= self._config.max_record_bytes_between_snapshots or (interval_ms and left_ms <= 0):
            self.covered()
            self._task = asyncio.get_running_loop().create_task(self._run(), name="metadata-snapshot")
        elif interval_ms and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(left_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._begin_if_due()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _run(self) -> None:
        try:
            await self._take()
        except DiskFullError as error:
            logger.warning("no snapshot of the metadata was taken, the log goes on growing: %s", error)
            self._new_bytes += 1  # so that it is tried again when the interval has passed
        except Exception as error:
            self._on_failed(error)
        finally:
            self._task = None
        self._begin_if_due()
