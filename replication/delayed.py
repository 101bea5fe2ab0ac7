"""The delayed operations of the data path: writes that wait to be safe, waits for a commit, and deletions that wait for the
other replicas."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kraftlog.proto.errors import KraftlogError, NotLeaderOrFollowerError, RequestTimedOutError, UnknownServerError
from kraftlog.replication.partition import Durability, Partition, wait_error
from kraftlog.replication.purgatory import DelayedOperation


@dataclass(slots=True)
class PendingWrite:
    """One appended partition of a produce request."""

    partition: Partition
    leader_epoch: int
    """The epoch of the append; a later one of this broker does not vouch for it by itself."""
    end_offset: int
    """Exclusive; acknowledged when this much is."""
    acks: int
    outlives_leadership: bool = False
    """Whether it may be committed by a successor of the leader that appended it."""
    error: KraftlogError | None = None
    is_done: bool = False
    durability: Durability = field(init=False)
    """What the acknowledgment promises: the weaker of what held at the append and what holds when it is acknowledged."""

    def __post_init__(self) -> None:
        self.durability = self.partition.durability(self.acks)

    def check(self) -> bool:
        """Look again; returns whether the write's fate is known."""
        if not self.is_done:
            partition = self.partition
            if not self.outlives_leadership or not partition.may_commit_later(self.leader_epoch, self.end_offset):
                self.error = wait_error(partition, self.leader_epoch, self.end_offset)
            self.is_done = self.error is not None or partition.acknowledged_end(self.acks) >= self.end_offset
            if self.is_done and not partition.flushes_before_ack:
                self.durability = partition.durability(self.acks)
        return self.is_done

    def refuse(self, error: KraftlogError) -> None:
        """The write cannot be waited for."""
        if not self.check():
            self.is_done = True
            self.error = error

    def give_up(self) -> None:
        """The wait ends by force: what is not acknowledged by now never counts as a success."""
        self.refuse(
            NotLeaderOrFollowerError(
                f"broker {self.partition.node_id} stops serving {self.partition}: refresh the metadata"
            )
        )

    def expire(self, timeout_ms: float) -> None:
        """The time-out passed: the records are in the log, but their fate is unknown to the producer."""
        if not self.is_done:
            self.is_done = True
            self.error = RequestTimedOutError(
                f"broker {self.partition.node_id}, {self.partition}: the write was not acknowledged by enough replicas "
                f"within {timeout_ms:.0f} ms; it may still be: send it again with the same sequence"
            )

    def fail(self, error: KraftlogError) -> None:
        """Nobody knows its fate."""
        if not self.is_done:
            self.is_done = True
            self.error = error


class DelayedProduce(DelayedOperation):
    """Waits until every partition of a produce request is acknowledged or lost."""

    def __init__(
        self, writes: Sequence[PendingWrite], *, now_ms: float, timeout_ms: float, completed: Callable[[], None]
    ) -> None:
        super().__init__(now_ms + timeout_ms)
        self._writes = writes
        self._timeout_ms = timeout_ms
        self._completed = completed

    def try_complete(self) -> bool:
        done = True
        for write in self._writes:  # each is looked at: its fate is fixed by the first event that decides it
            done = write.check() and done
        return done and self.force_complete()

    def on_expiration(self) -> None:
        for write in self._writes:
            write.expire(self._timeout_ms)

    def on_complete(self) -> None:
        for write in self._writes:
            write.give_up()
        self._completed()

    def on_failure(self, error: Exception) -> None:
        for write in self._writes:
            write.fail(UnknownServerError(f"the wait for the acknowledgment failed: {error!r}"))
        self._completed()


@dataclass(slots=True)
class PendingDeletion:
    """One partition of which records are deleted: this replica's log starts later by now."""

    partition: Partition
    leader_epoch: int
    start_offset: int
    error: KraftlogError | None = None
    is_done: bool = False

    def check(self) -> bool:
        """Look again; returns whether the wait is over."""
        if not self.is_done:
            partition = self.partition
            if partition.failure is not None or not partition.is_leader or partition.leader_epoch != self.leader_epoch:
                self.fail(NotLeaderOrFollowerError(f"broker {partition.node_id} leads {partition} no more: ask again"))
            self.is_done = self.is_done or partition.deleted_end >= self.start_offset
        return self.is_done

    def fail(self, error: KraftlogError) -> None:
        """Nobody knows whether they are deleted everywhere; asking again does no harm."""
        if not self.is_done:
            self.is_done = True
            self.error = error


class DelayedDeletion(DelayedOperation):
    """Waits until all replicas in sync, and as many as min.insync.replicas, start where they are to: whoever may lead next."""

    def __init__(
        self, waits: Sequence[PendingDeletion], *, now_ms: float, timeout_ms: float, completed: Callable[[], None]
    ) -> None:
        super().__init__(now_ms + timeout_ms)
        self._waits = waits
        self._timeout_ms = timeout_ms
        self._completed = completed

    def try_complete(self) -> bool:
        done = [wait.check() for wait in self._waits]
        return all(done) and self.force_complete()

    def on_expiration(self) -> None:
        for wait in self._waits:
            wait.fail(
                RequestTimedOutError(
                    f"broker {wait.partition.node_id}, {wait.partition}: not every replica that may come to lead is "
                    f"known to have deleted the records below {wait.start_offset} within {self._timeout_ms:.0f} ms; they may still do: ask again"
                )
            )

    def on_complete(self) -> None:
        for wait in self._waits:
            if not wait.check():
                wait.fail(NotLeaderOrFollowerError(f"broker {wait.partition.node_id} stops serving {wait.partition}"))
        self._completed()

    def on_failure(self, error: Exception) -> None:
        for wait in self._waits:
            wait.fail(UnknownServerError(f"the wait for the other replicas failed: {error!r}"))
        self._completed()
