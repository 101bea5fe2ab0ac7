"""How many operations are remembered for their repeats: one rule for the controller's state and the image.

The oldest are forgotten first: when there are too many, when their responses together are too long, or when they are
much older than the newest. The rule looks at records alone, so every node remembers the same ones. The last is always
remembered. Whoever repeats a request later than that has it done again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from kraftlog.kraft.image.persistent import PersistentMap
from kraftlog.proto.metadata_pb2 import CompletedOperationRecord

MAX_COMPLETED_OPERATIONS = 10_000
MAX_COMPLETED_BYTES = 8 * 1024 * 1024  # of all responses together; one, of 2,000 topics, has at most about 1 MiB
MAX_COMPLETED_AGE_MS = 15 * 60 * 1000  # no client repeats for longer: its longest default deadline is five minutes


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedOperation:
    """What an operation with this request id was answered, so that a repeat is answered alike and not done twice."""

    request_id: bytes
    kind: str
    response: bytes
    timestamp_ms: int
    """Wall clock of the controller that did it; never below that of the operation before."""


def is_forgotten(oldest: CompletedOperation, newest: CompletedOperation, *, count: int, size_bytes: int) -> bool:
    """Whether `oldest`, of `count` that have `size_bytes` together and end with `newest`, is to be forgotten."""
    return count > 1 and (
        count > MAX_COMPLETED_OPERATIONS
        or size_bytes > MAX_COMPLETED_BYTES
        or oldest.timestamp_ms + MAX_COMPLETED_AGE_MS < newest.timestamp_ms
    )


def new_completed(record: CompletedOperationRecord) -> CompletedOperation:
    return CompletedOperation(
        request_id=record.request_id, kind=record.kind, response=record.response, timestamp_ms=record.timestamp_ms
    )


def completed_record(operation: CompletedOperation) -> CompletedOperationRecord:
    """Inverse of `new_completed`."""
    return CompletedOperationRecord(
        request_id=operation.request_id,
        kind=operation.kind,
        response=operation.response,
        timestamp_ms=operation.timestamp_ms,
    )


@dataclass(frozen=True, slots=True, eq=False)
class CompletedOperations:
    """What is remembered, oldest first. Immutable; made from the one before at the cost of what is added and forgotten.

    Equal to another with the same operations in the same order.
    """

    by_number: PersistentMap[int, CompletedOperation] = field(default_factory=PersistentMap)
    """The numbers ascend without a gap."""
    size_bytes: int = 0

    def __len__(self) -> int:
        return len(self.by_number)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CompletedOperations) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment] # as every mapping here

    def __iter__(self) -> Iterator[CompletedOperation]:
        return iter(self.by_number.values())

    def followed_by(self, added: Sequence[CompletedOperation]) -> "CompletedOperations":
        """With `added`, and without what is then to be forgotten."""
        if not added:
            return self
        first = next(iter(self.by_number), 0)
        count, size_bytes = len(self) + len(added), self.size_bytes + sum(len(each.response) for each in added)
        forgotten = 0
        for oldest in chain(self, added):
            if not is_forgotten(oldest, added[-1], count=count - forgotten, size_bytes=size_bytes):
                break
            size_bytes -= len(oldest.response)
            forgotten += 1
        kept = enumerate(added[max(forgotten - len(self), 0) :], first + max(len(self), forgotten))
        return CompletedOperations(
            self.by_number.updated(dict(kept), range(first, first + min(forgotten, len(self)))), size_bytes
        )
