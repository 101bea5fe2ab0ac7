"""Finding where to read from: the committed offset, or what the reset policy says. Used only on the client's loop."""

import asyncio
import logging
import threading
from collections.abc import Callable

from kraftlog.proto.errors import KraftlogError, NoOffsetForPartitionError
from kraftlog.proto.seams import Clock, Random
from kraftlog.sdk.config import ConsumerConfig, duration_ms
from kraftlog.sdk.consumer.fetcher import Fetcher
from kraftlog.sdk.consumer.state import PartitionState, Subscriptions
from kraftlog.sdk.group_client import GroupClient
from kraftlog.sdk.offsets import EARLIEST, LATEST, OffsetFinder
from kraftlog.sdk.types import TopicPartition
from kraftlog.sdk.waiting import Backoff, Tasks, sleep_ms

log = logging.getLogger("kraftlog.sdk")


class PositionFinder:
    """Gives assigned partitions that have no position one, in the background."""

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        group: GroupClient | None,
        offsets: OffsetFinder,
        subscriptions: Subscriptions,
        fetcher: Fetcher,
        lock: threading.Lock,
        clock: Clock,
        random: Random,
        on_found: Callable[[], None],
    ) -> None:
        """`on_found` is called when positions were found, or looking for them has ended."""
        self._config = config
        self._group = group
        self._offsets = offsets
        self._subscriptions = subscriptions
        self._fetcher = fetcher
        self._lock = lock
        self._clock = clock
        self._random = random
        self._on_found = on_found
        self._tasks = Tasks()
        self._looking: asyncio.Task[None] | None = None
        self._is_closed = False
        self.error: KraftlogError | None = None
        """Why looking has stopped; whoever has told the application, or changed something, takes it away."""

    def look(self) -> None:
        """Start looking if something is missing; nothing happens if that is under way or has failed."""
        if self._looking is None and self.error is None and not self._is_closed and self._missing():
            self._looking = self._tasks.start(self._find(), "positions")
            self._looking.add_done_callback(self._ended)

    async def close(self) -> None:
        self._is_closed = True
        await self._tasks.cancel()

    def _ended(self, _: object) -> None:
        self._looking = None
        self._on_found()
        self.look()  # some may have lost their position meanwhile

    def _missing(self) -> list[PartitionState]:
        with self._lock:
            return [state for state in self._subscriptions.partitions.values() if state.position is None]

    async def _find(self) -> None:
        """Give every partition without a position one; retries what is retriable for as long as it takes."""
        backoff = Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms, self._random)
        while missing := self._missing():
            try:
                await self._find_some(missing)
            except KraftlogError as error:
                if not error.retriable:
                    self.error = error
                    return
                log.debug("positions: %s", error)
                await sleep_ms(backoff.next_ms())
            else:
                self._fetcher.update()
                self._on_found()

    async def _find_some(self, missing: list[PartitionState]) -> None:
        timeout_ms = self._config.request_timeout_ms
        moves = {state.tp: state.moves for state in missing}
        """A seek while an answer is under way makes the answer void."""
        unforced = [state for state in missing if state.reset_to is None]
        if unforced and self._group is not None:
            found = await self._group.committed([state.tp for state in unforced], timeout_ms=timeout_ms)
            for state in unforced:
                if state.tp in found:
                    self._set_position(state, found[state.tp].offset, moves[state.tp])
        times: dict[TopicPartition, int] = {}
        for state in missing:
            if state.position is None and self._subscriptions.partitions.get(state.tp) is state:
                times[state.tp] = self._reset_time(state)
        if times:
            offsets = await self._offsets.find(
                times, timeout_ms=timeout_ms, read_committed=self._config.is_read_committed
            )
            late = [tp for tp, found_offset in offsets.items() if found_offset.offset < 0]
            ends = await self._offsets.find(dict.fromkeys(late, LATEST), timeout_ms=timeout_ms) if late else {}
            for state in missing:
                if state.tp in offsets:
                    self._set_position(state, (ends.get(state.tp) or offsets[state.tp]).offset, moves[state.tp])

    def _reset_time(self, state: PartitionState) -> int:
        policy = state.reset_to or self._config.auto_offset_reset
        if policy == "earliest":
            return EARLIEST
        if policy == "latest":
            return LATEST
        if policy == "none":
            raise NoOffsetForPartitionError(
                f"{state.tp}: group {self._config.group_id!r} has no committed offset and auto_offset_reset is none: "
                "seek, or set auto_offset_reset"
            )
        return max(0, self._clock.wall_ms() - duration_ms(policy.partition(":")[2]))

    def _set_position(self, state: PartitionState, offset: int, moves: int) -> None:
        with self._lock:
            if (
                state.position is None
                and state.moves == moves
                and self._subscriptions.partitions.get(state.tp) is state
            ):
                self._fetcher.move(state, offset)
