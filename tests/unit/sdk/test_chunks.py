"""What a reader sees of fetched bytes."""

import struct

from kraftlog.proto.hotpath import AbortedTransaction
from kraftlog.proto.records import BatchBuilder
from kraftlog.sdk.consumer.chunks import visible

EMPTIED_CONTROL_BATCH = struct.pack(
    ">qiibIhiqqqhii", 1, 49, 0, 2, 0, 0b110000, 0, -1, -1, 7, 0, -1, 0
)  # transactional and control, offset 1, producer 7, no record; its CRC is not looked at here


def test_an_emptied_control_batch_ends_no_transaction_and_breaks_nothing() -> None:
    """Compaction may leave a control batch without records; it says nothing about the transaction's end."""
    builder = BatchBuilder(is_transactional=True)
    builder.append(0, None, b"aborted")
    first = builder.build(base_offset=0, producer_id=7, producer_epoch=0, base_sequence=0)
    second = builder.build(base_offset=2, producer_id=7, producer_epoch=0, base_sequence=1)
    data = memoryview(first + EMPTIED_CONTROL_BATCH + second)
    assert visible(data, [AbortedTransaction(7, 0)]) == []
