"""Going through a `.log` file that may be damaged anywhere: valid batches, and the bytes between them.

Recovery stops at the first bytes that are no batch; the tools (`verify`, `repair`, `export`) go on behind them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from kraftlog.logstore.batches import ScannedBatch, find_valid_batch, is_zero, scan_batches, unpack_header
from kraftlog.logstore.filesystem import File
from kraftlog.proto.records import HEADER_BYTES


@dataclass(frozen=True, slots=True)
class InvalidBytes:
    """The bytes from `position` to `end`, where the next valid batch starts or the file ends."""

    position: int
    end: int
    is_followed: bool
    """A valid batch follows. Else this is the file's tail."""
    is_zero: bool
    """Nothing but zeros: preallocated space if it is the tail."""
    reason: str

    @property
    def size_bytes(self) -> int:
        return self.end - self.position


def scan_file(
    file: File, base_offset: int, position: int = 0, *, end_offset: int | None = None
) -> Iterator[ScannedBatch | InvalidBytes]:
    """Everything from `position`, where a batch starts, to the end of a segment's file, in order.

    A batch counts as valid if its size, magic and CRC hold; whether its offsets fit is for the caller to say. What
    follows invalid bytes is looked for at every byte, among batches with offsets from the last valid one's on.
    `end_offset`: where the next segment begins. A batch that goes beyond it has a wrong offset, which says nothing of
    those behind it.
    """
    end, next_offset = file.size(), base_offset
    while position < end:
        for batch in scan_batches(file, position, end):
            position = batch.position + batch.header.size_bytes
            if end_offset is None or batch.header.next_offset <= end_offset:
                next_offset = batch.header.next_offset
            yield batch
        if position < end:
            invalid = _invalid_bytes(file, position, end, next_offset)
            yield invalid
            position = invalid.end


def _invalid_bytes(file: File, position: int, end: int, next_offset: int) -> InvalidBytes:
    header = unpack_header(file.pread(HEADER_BYTES, position))
    following: int | None = None
    if header is None:
        reason = "no batch"
    elif position + header.size_bytes > end:
        reason = f"a batch of {header.size_bytes} bytes that the end of the file cuts off"
    else:
        reason = f"the checksum of the batch of {header.size_bytes} bytes does not hold"
        # Where its length says that it ends: a batch that is a record's value must not be taken for one of the log.
        behind = position + header.size_bytes
        if next(scan_batches(file, behind, end), None) is not None:
            following = behind
    if following is None:
        following = find_valid_batch(file, position + 1, end, next_offset)
    stop = end if following is None else following
    return InvalidBytes(position, stop, following is not None, is_zero(file, position, stop), reason)
