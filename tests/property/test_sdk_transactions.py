"""What read_committed shows of a log with interleaved transactions, fetched in any pieces."""

from hypothesis import given
from hypothesis import strategies as st

from kraftlog.proto.hotpath import AbortedTransaction
from kraftlog.proto.records import BatchBuilder, decode_records, end_transaction_marker, rewrite_header
from kraftlog.sdk.consumer.chunks import visible

EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 3)),
        st.tuples(st.just("commit"), st.integers(1, 3)),
        st.tuples(st.just("abort"), st.integers(1, 3)),
    ),
    min_size=1,
    max_size=40,
)


@given(EVENTS, st.data())
def test_aborted_records_are_hidden_and_nothing_else(events: list[tuple[str, int]], data: st.DataObject) -> None:
    """Producer 0 writes without transactions; the list of aborted ones comes in any order (X07)."""
    log: list[tuple[int, int, bytes]] = []  # (first offset, next offset, batch)
    aborted: list[tuple[int, int, int]] = []  # (producer, first offset, marker)
    open_since: dict[int, int] = {}
    outcome: dict[bytes, bool] = {}
    pending: dict[int, list[bytes]] = {}
    offset = 0
    for index, (kind, producer) in enumerate(events):
        if kind == "write":
            builder = BatchBuilder(is_transactional=producer > 0)
            values = [b"%d.%d" % (index, i) for i in range(1 + index % 3)]
            for value in values:
                builder.append(1, None, value)
            batch = builder.build(producer_id=producer, producer_epoch=0, base_sequence=0)
            if producer:
                open_since.setdefault(producer, offset)
                pending.setdefault(producer, []).extend(values)
            else:
                outcome |= dict.fromkeys(values, True)
        else:
            batch = end_transaction_marker(kind == "commit", 0, producer_id=producer, producer_epoch=0, timestamp_ms=1)
            outcome |= dict.fromkeys(pending.pop(producer, []), kind == "commit")
            first = open_since.pop(producer, None)
            if kind == "abort" and first is not None:
                aborted.append((producer, first, offset))
        stored = bytearray(batch)
        rewrite_header(stored, 0, base_offset=offset, leader_epoch=0)
        count = len(values) if kind == "write" else 1
        log.append((offset, offset + count, bytes(stored)))
        offset += count
    stable = min(open_since.values(), default=offset)
    readable = [entry for entry in log if entry[1] <= stable]
    seen: list[bytes | None] = []
    start = 0
    while start < len(readable):
        stop = data.draw(st.integers(start + 1, len(readable)))
        piece = readable[start:stop]
        listed = [
            AbortedTransaction(producer, first)
            for producer, first, last in aborted
            if first < piece[-1][1] and last >= piece[0][0]
        ]
        data.draw(st.randoms(use_true_random=False)).shuffle(listed)
        chunk = memoryview(b"".join(batch for _, _, batch in piece))
        seen += [r.value for stretch in visible(chunk, listed) for r in decode_records(stretch)]
        start = stop
    expected = [
        record.value for _, _, batch in readable for record in decode_records(batch) if outcome[record.value or b""]
    ]
    assert seen == expected
