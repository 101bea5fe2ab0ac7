"""Reading record by record: what is left of the last take, with positions that move by record."""

from kraftlog.proto.records import Record
from kraftlog.sdk.consumer.state import Batch, PartitionState, Taker


class Cursor:
    """Records between the last take and the application. Caller holds the consumer's lock.

    The record handed out last is in hand; it is done when the application comes back for the next one.
    """

    def __init__(self, taker: Taker) -> None:
        self._taker = taker
        self._batches: list[tuple[Batch, int]] = []
        """(batch, the partition's `moves` when it was taken), the next one last."""
        self._index = 0
        self._last: PartitionState | None = None

    def load(self, max_records: int) -> bool:
        """Take records to iterate over; whether there are any."""
        batches = self._taker.take(max_records)
        for state, records, _ in batches:
            state.position = records[0].offset
        self._batches = [(batch, batch[0].moves) for batch in reversed(batches)]
        self._index = 0
        return bool(batches)

    def next(self) -> Record | None:
        """The next record; the one before it is done. None: nothing is left."""
        self._came_back()
        while self._batches:
            (state, records, position), moves = self._batches[-1]
            if moves != state.moves:  # the position was changed: the rest is void
                self._batches.pop()
                self._index = 0
                continue
            record = records[self._index]
            self._index += 1
            if self._index == len(records):
                state.position = position
                self._batches.pop()
                self._index = 0
            else:
                state.position = record.offset + 1
            state.leader_epoch = record.leader_epoch
            self._last = state
            return record
        return None

    @property
    def is_empty(self) -> bool:
        return not self._batches

    def unload(self, *, advance: bool = True) -> list[Batch]:
        """What is left, for a poll between two steps of an iteration; `advance` moves the positions past it."""
        self._came_back()
        rest: list[Batch] = []
        while self._batches:
            (state, records, position), moves = self._batches.pop()
            if moves == state.moves:
                if advance:
                    state.position = position
                rest.append((state, records[self._index :], position))
            self._index = 0
        return rest

    def forget(self, state: PartitionState) -> None:
        """After a seek what was in hand says nothing about what is done."""
        if self._last is state:
            self._last = None

    def _came_back(self) -> None:
        if self._last is not None:
            self._last.done = self._last.position
            self._last = None
