"""Aborted transactions of one segment (`.txnindex`), Kafka's format: 34 bytes an entry, big-endian, in marker order.

    int16 version (0) | int64 producer id | int64 first offset | int64 offset of the marker | int64 last stable offset

A transaction is listed in the segment that holds its abort marker. The file is valid if it has whole entries of that
version, none with a first offset above its marker's; there is no file for a segment without aborted transactions.
"""

import struct
from collections.abc import Iterator

from kraftlog.logstore.producer_state import AbortedTransaction

_ENTRY = struct.Struct(">hqqqq")
ENTRY_BYTES = _ENTRY.size
VERSION = 0


def encode_aborted(transaction: AbortedTransaction) -> bytes:
    return _ENTRY.pack(
        VERSION,
        transaction.producer_id,
        transaction.first_offset,
        transaction.last_offset,
        transaction.last_stable_offset,
    )


def decode_aborted(data: bytes) -> Iterator[AbortedTransaction]:
    """Whole entries only; `ValueError` for an entry that cannot be one."""
    if len(data) % ENTRY_BYTES:
        raise ValueError(f"{len(data)} bytes are not a whole number of {ENTRY_BYTES}-byte entries")
    for version, producer_id, first_offset, last_offset, last_stable_offset in _ENTRY.iter_unpack(data):
        if version != VERSION or not 0 <= first_offset <= last_offset:
            raise ValueError(f"entry of version {version} from {first_offset} to {last_offset}")
        yield AbortedTransaction(producer_id, first_offset, last_offset, last_stable_offset)
