"""How changes of in-sync replicas reach the controller: found at the leaders, sent together, one request at a time.

What a request without an answer has done is not known. Its proposals stay under way (`InSync.pending`: both ISRs hold) and
are sent again; the partition epoch makes sure that none is done twice. A refusal ends a proposal only if no earlier attempt
can still be on its way: else that one might be done later, behind this leader's back.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from kraftlog.kraft.controller import IsrChange
from kraftlog.kraft.image import MetadataImage
from kraftlog.proto.errors import (
    FencedLeaderEpochError,
    InvalidUpdateVersionError,
    KraftlogError,
    NotControllerError,
)
from kraftlog.proto.seams import Clock
from kraftlog.replication.in_sync import IsrProposal
from kraftlog.replication.partition import Partition, TopicPartition

logger = logging.getLogger("kraftlog.replication")

MAX_CHANGES_PER_REQUEST = 1_000
RETRY_MS = 200.0
SETTLE_MS = 10_000.0
"""After an attempt without an answer: for so long it may still take effect."""


@dataclass(frozen=True, slots=True)
class IsrOutcome:
    """What the controller answered to one change."""

    partition_epoch: int
    error: KraftlogError | None = None


@dataclass(slots=True)
class PendingChange:
    """A proposal that the controller has not decided, as far as is known."""

    partition: Partition
    proposal: IsrProposal
    leader_epoch: int
    last_unanswered_ms: float | None = None
    is_refused: bool = False
    """It is not asked for again: only an earlier attempt may still be on its way."""

    @property
    def is_void(self) -> bool:
        """Whether newer metadata have decided it."""
        return self.partition.pending_isr is not self.proposal or self.partition.leader_epoch != self.leader_epoch

    @property
    def change(self) -> IsrChange:
        return IsrChange(
            topic_id=self.partition.topic_id,
            partition=self.partition.partition,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.proposal.partition_epoch,
            in_sync_replicas=self.proposal.in_sync_replicas,
            has_flushed=self.proposal.has_flushed,
        )


Alter = Callable[[Sequence[IsrChange]], Awaitable[list[IsrOutcome]]]


class PendingChanges:
    """The proposals that are under way, and what answers make of them. Pure; used from one event loop."""

    def __init__(self, progressed: Callable[[TopicPartition], None]) -> None:
        """`progressed`: the high watermark of a partition has moved, because a proposal is off."""
        self._progressed = progressed
        self._waiting: dict[TopicPartition, PendingChange] = {}

    def add(self, partition: Partition, proposal: IsrProposal) -> None:
        self._waiting[partition.key] = PendingChange(partition, proposal, partition.leader_epoch)

    def batch(self, now_ms: float) -> list[PendingChange]:
        """What to ask the controller for, all over again."""
        for waiting in list(self._waiting.values()):
            if waiting.is_void:
                self._done(waiting)
            elif waiting.is_refused and now_ms >= self._settled_ms(waiting):
                self._end(waiting)
        return [waiting for waiting in self._waiting.values() if not waiting.is_refused][:MAX_CHANGES_PER_REQUEST]

    @property
    def next_deadline_ms(self) -> float | None:
        """When a refusal takes effect."""
        return min(map(self._settled_ms, (each for each in self._waiting.values() if each.is_refused)), default=None)

    @staticmethod
    def _settled_ms(waiting: PendingChange) -> float:
        return -math.inf if waiting.last_unanswered_ms is None else waiting.last_unanswered_ms + SETTLE_MS

    def unanswered(self, batch: Sequence[PendingChange], now_ms: float) -> None:
        """Each of them may have been done, or may be yet."""
        for waiting in batch:
            waiting.last_unanswered_ms = now_ms

    def settle(self, batch: Sequence[PendingChange], outcomes: Sequence[IsrOutcome], now_ms: float) -> bool:
        """Take the answers; whether nothing of the batch has to be asked again."""
        decided = [self._settle(waiting, outcome, now_ms) for waiting, outcome in zip(batch, outcomes, strict=True)]
        return all(decided)

    def _settle(self, waiting: PendingChange, outcome: IsrOutcome, now_ms: float) -> bool:
        error = outcome.error
        if error is None:
            if outcome.partition_epoch > waiting.proposal.partition_epoch:
                self._done(waiting)  # the metadata will say so, and only they end it
                return True
            return self._refuse(waiting, now_ms)  # nothing had to change
        if isinstance(error, InvalidUpdateVersionError | FencedLeaderEpochError):
            self._done(waiting)  # something newer has been decided: it comes with the metadata
            return True
        if isinstance(error, NotControllerError) or error.retriable:
            return False
        logger.info("%s: the controller refuses an ISR: %s", waiting.partition, error)
        return self._refuse(waiting, now_ms)

    def _refuse(self, waiting: PendingChange, now_ms: float) -> bool:
        waiting.is_refused = True
        if now_ms >= self._settled_ms(waiting):
            self._end(waiting)
        return True

    def _end(self, waiting: PendingChange) -> None:
        self._done(waiting)
        if waiting.partition.refuse_isr(waiting.proposal):
            self._progressed(waiting.partition.key)

    def _done(self, waiting: PendingChange) -> None:
        if self._waiting.get(waiting.partition.key) is waiting:
            del self._waiting[waiting.partition.key]


class IsrUpdates:
    """Used from one event loop; `start` once, `stop` at the end."""

    def __init__(
        self,
        *,
        clock: Clock,
        alter: Alter,
        image: Callable[[], MetadataImage],
        partitions: Mapping[TopicPartition, Partition],
        progressed: Callable[[TopicPartition], None],
        max_lag_ms: float,
    ) -> None:
        """`alter` asks the controller once. `progressed`: the high watermark of a partition has moved, or the set that it waits for."""
        self._clock = clock
        self._alter = alter
        self._image = image
        self._partitions = partitions
        self._max_lag_ms = max_lag_ms
        self._progressed = progressed
        self._changes = PendingChanges(progressed)
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._send_all(), name="alter-partition"),
            loop.create_task(self._look_for_ever(), name="isr-lag"),
        ]

    async def stop(self) -> None:
        """May be repeated."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def look(self, partition: Partition) -> None:
        """Something was heard of a follower of this partition, or it has flushed: ask for the change that is due, if any."""
        proposal = partition.propose_isr(
            max_lag_ms=self._max_lag_ms, monotonic_ms=self._clock.monotonic_ms(), brokers=self._image().brokers
        )
        if proposal is not None:
            self._changes.add(partition, proposal)
            self._wake.set()
            self._progressed(partition.key)  # whoever comes in is not throttled any more

    async def _look_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._max_lag_ms / 2000)
            for partition in list(self._partitions.values()):
                is_due = len(partition.replicas) > 1 or partition.is_recovering or partition.is_switching_to_ack
                if partition.is_leader and is_due:
                    self.look(partition)

    async def _send_all(self) -> None:
        while True:
            self._wake.clear()
            batch = self._changes.batch(self._clock.monotonic_ms())
            if not batch:
                await self._wait(self._changes.next_deadline_ms)
            elif not await self._send(batch):
                await asyncio.sleep(RETRY_MS / 1000)

    async def _wait(self, deadline_ms: float | None) -> None:
        left_ms = None if deadline_ms is None else max(deadline_ms - self._clock.monotonic_ms(), 1.0)
        scope = asyncio.timeout(None if left_ms is None else left_ms / 1000)
        try:
            async with scope:
                await self._wake.wait()
        except TimeoutError:
            if not scope.expired():
                raise

    async def _send(self, batch: list[PendingChange]) -> bool:
        try:
            outcomes = await self._alter([waiting.change for waiting in batch])
        except KraftlogError as error:
            logger.debug("the controller did not answer for %d partitions: %s", len(batch), error)
            self._changes.unanswered(batch, self._clock.monotonic_ms())
            return False
        return self._changes.settle(batch, outcomes, self._clock.monotonic_ms())
