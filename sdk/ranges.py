"""Reading offset ranges as Arrow: what a Spark task does with its share of a batch.

A range is read to its end and no further, whatever lies between: control batches, aborted transactions and compacted
offsets yield no rows but count as read. The consumer underneath fetches ahead while the caller works on a batch.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kraftlog.proto.errors import DataLossError, OffsetOutOfRangeError, RequestTimedOutError
from kraftlog.sdk.clock import SystemClock
from kraftlog.sdk.consumer import Consumer
from kraftlog.sdk.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow

FETCH_WINDOW_BYTES = 8 * 1024 * 1024  # fetched ahead of the caller
BATCH_BYTES = 4 * 1024 * 1024  # of one answer of the consumer; Spark is fastest with batches of 1 to 16 MB
POLL_MS = 500.0
STALL_TIMEOUT_MS = 120_000.0  # Spark's kafkaConsumer.pollTimeoutMs

Range = tuple[str, int, int, int]
"""(topic, partition, start, end), the end exclusive."""


class RangeReader:
    """Reads ranges of committed records, one `read` at a time. Used from one thread.

        with RangeReader({"bootstrap_servers": address}, columns=["value", "offset"]) as reader:
            for batch in reader.read([("orders", 0, 0, 1000)]):
                ...

    With `fail_on_data_loss` a range whose start is no longer in the log raises `DataLossError`; without it the range is
    read from the first offset that is left. Raises `RequestTimedOutError` when nothing comes for two minutes.
    """

    def __init__(
        self, client: Mapping[str, Any], *, columns: Sequence[str] | None = None, fail_on_data_loss: bool = True
    ) -> None:
        options: dict[str, Any] = {
            "fetch_max_bytes": FETCH_WINDOW_BYTES,
            "max_partition_fetch_bytes": BATCH_BYTES // 2,
            **client,
            "auto_offset_reset": "none",
            "enable_auto_commit": False,
            "group_id": None,
        }
        self._consumer = Consumer(**options)
        self._columns = list(columns) if columns is not None else None
        self._fail_on_data_loss = fail_on_data_loss
        self._clock = SystemClock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._consumer.close()

    def read(self, ranges: Iterable[Range]) -> Iterator["pyarrow.RecordBatch"]:
        """Every record of the ranges, in order within each range. Ranges of one partition are read one after another."""
        rounds: list[dict[TopicPartition, tuple[int, int]]] = []
        for topic, partition, start, end in ranges:
            tp = TopicPartition(topic, partition)
            if start < end:
                free = next((r for r in rounds if tp not in r), None)
                if free is None:
                    rounds.append(free := {})
                free[tp] = (start, end)
        for round_ in rounds:
            yield from self._read_round(round_)

    def _read_round(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> Iterator["pyarrow.RecordBatch"]:
        consumer = self._consumer
        consumer.assign(ranges)
        for tp, (start, end) in ranges.items():
            consumer.seek(tp, start)
            consumer.stop_at(tp, end)
        left = dict(ranges)
        progress_ms = self._clock.monotonic_ms()
        while left:
            try:
                table = consumer.poll_arrow(POLL_MS, max_bytes=BATCH_BYTES, columns=self._columns)
            except OffsetOutOfRangeError as error:
                self._start_is_gone(left, error)
                continue
            reached = {tp: consumer.position(tp) for tp in left}
            if any(reached[tp] != start for tp, (start, _) in left.items()):
                progress_ms = self._clock.monotonic_ms()
            left = {tp: (reached[tp], end) for tp, (_, end) in left.items() if reached[tp] < end}
            if table.num_rows:
                yield from table.to_batches()
                progress_ms = self._clock.monotonic_ms()  # the caller's time does not count
            elif self._clock.monotonic_ms() - progress_ms > STALL_TIMEOUT_MS:
                stuck = ", ".join(f"{tp} at {position} of {end}" for tp, (position, end) in left.items())
                raise RequestTimedOutError(
                    f"nothing came for {STALL_TIMEOUT_MS / 1000:.0f} s while reading {stuck}: is the cluster running?"
                )

    def _start_is_gone(self, left: Mapping[TopicPartition, tuple[int, int]], error: OffsetOutOfRangeError) -> None:
        """Move each range whose start was deleted to what is left of it, or raise `DataLossError`."""
        earliest = self._consumer.beginning_offsets(left)
        latest = self._consumer.end_offsets(left)
        moved = False
        for tp in left:
            position, (_, end) = self._consumer.position(tp), left[tp]
            if earliest[tp] <= position and end <= latest[tp]:
                continue
            reason = (
                f"the log starts at {earliest[tp]} (deleted by retention or delete_records)"
                if position < earliest[tp]
                else f"the log ends at {latest[tp]} (truncated, or the topic was recreated)"
            )
            if self._fail_on_data_loss or end > latest[tp]:
                raise DataLossError(
                    f"{tp}: offsets {position} to {end} were to be read, but {reason}; "
                    "set failOnDataLoss=false to read what is left"
                ) from error
            self._consumer.seek(tp, min(earliest[tp], end))
            self._consumer.stop_at(tp, end)
            moved = True
        if not moved:
            raise error
