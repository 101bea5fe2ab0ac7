"""Which batches of transactions compaction may drop, in one walk over a log (Kafka's `CleanedTransactionMetadata`).

Data of aborted transactions go. A marker may go once nothing of its transaction is left: it is needed as long as a walk
meets a batch of the transaction, be it empty, before the marker. The walk must see every decided transaction that has
data where it starts or later, whatever segment its marker is in.
"""

from collections import deque
from collections.abc import Iterable

from kraftlog.logstore.producer_state import AbortedTransaction
from kraftlog.proto.records import BatchHeader, ControlType


class CleanedTransactions:
    """Batches come in the order of their offsets."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = deque(sorted(aborted, key=lambda transaction: transaction.first_offset))
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        """By producer: where the walk is inside of one, and whether it met a batch of it."""
        self._committed: set[int] = set()
        """Producers whose transaction has met a batch and was not aborted."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """A data batch: whether its records were aborted."""
        self._go_to(header.last_offset)
        if not header.is_transactional:
            return False
        found = self._aborted.get(header.producer_id)
        if found is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = (found[0], True)
        return True

    def end(self, header: BatchHeader, control_type: ControlType | None) -> tuple[bool, AbortedTransaction | None]:
        """A control batch: whether nothing needs it any more, and which aborted transaction remains to be listed."""
        self._go_to(header.last_offset)
        match control_type:
            case ControlType.ABORT:
                found = self._aborted.pop(header.producer_id, None)
                if found is not None and found[1]:
                    return False, found[0]
                return True, None
            case ControlType.COMMIT:
                has_data = header.producer_id in self._committed
                self._committed.discard(header.producer_id)
                return not has_data, None
            case _:
                return False, None

    def _go_to(self, offset: int) -> None:
        while self._coming and self._coming[0].first_offset <= offset:
            transaction = self._coming.popleft()
            self._aborted[transaction.producer_id] = (transaction, False)
