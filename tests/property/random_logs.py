"""Logs with a bit of everything, from a random source: for whoever looks at the files that come of it."""

import random
from typing import Any

from kraftlog.logstore import Log, LogConfig
from kraftlog.proto.records import BatchBuilder, CompressionType, TimestampType, end_transaction_marker

NOW_MS = 1_700_000_000_000
LAST_SEQUENCE = (1 << 31) - 1


def random_config(rng: random.Random) -> LogConfig:
    """Segments of a few batches, of many, or cut by full indexes; dense and sparse indexes; both kinds of timestamps."""
    return LogConfig(
        segment_bytes=rng.choice((600, 2000, 10_000)),
        segment_index_bytes=rng.choice((60, 10_000)),
        index_interval_bytes=rng.choice((0, 150, 1000)),
        message_timestamp_type=rng.choice((TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)),
    )


class RandomWriter:
    """Appends to one log as leader: all codecs, idempotent and transactional producers, markers, rolls, truncations.

    Keys, values and header names are printable, without spaces.
    """

    def __init__(self, log: Log, rng: random.Random) -> None:
        self.log = log
        self._rng = rng
        self._now_ms = NOW_MS
        self._leader_epoch = max(log.latest_epoch, 0)
        self._count = 0
        self._coordinator_epoch = 0

    def write(self, steps: int) -> None:
        rng = self._rng
        for _ in range(steps):
            self._now_ms += rng.choice((0, 1, 20))
            step = rng.choices(
                (self._plain, self._idempotent, self._transactional, self._end, self.log.roll, self._cut, self._elect),
                (5, 4, 6, 4, 0.5, 0.4, 0.5),
            )[0]
            step()
            if rng.random() < 0.1:
                self.log.flush()

    def _plain(self) -> None:
        self._append(self._batch())

    def _idempotent(self) -> None:
        producer_id = self._rng.randrange(4)
        self._append(self._batch(**self._next_of(producer_id), is_transactional=self._is_open(producer_id)))

    def _transactional(self) -> None:
        producer_id = self._rng.randrange(10, 14)
        self._append(self._batch(**self._next_of(producer_id), is_transactional=True))

    def _end(self) -> None:
        """Of any producer: one that has nothing in a transaction may be told of an end as well."""
        entries = self.log.producers.entries
        if not entries:
            return
        producer_id = self._rng.choice(sorted(entries))
        self._coordinator_epoch += self._rng.random() < 0.2
        marker = end_transaction_marker(
            self._rng.random() < 0.5,
            self._coordinator_epoch,
            producer_id=producer_id,
            producer_epoch=entries[producer_id].producer_epoch + (self._rng.random() < 0.3),
            timestamp_ms=self._now_ms,
        )
        self._append(marker, allow_control=True)

    def _cut(self) -> None:
        log = self.log
        log.truncate_to(self._rng.randint(max(log.log_start_offset, log.log_end_offset - 20), log.log_end_offset))

    def _elect(self) -> None:
        self._leader_epoch += 1

    def _append(self, data: bytes, *, allow_control: bool = False) -> None:
        self.log.append_as_leader(
            data, leader_epoch=self._leader_epoch, now_ms=self._now_ms, allow_control=allow_control
        )

    def _is_open(self, producer_id: int) -> bool:
        entry = self.log.producers.entries.get(producer_id)
        return entry is not None and entry.transaction_first_offset is not None

    def _next_of(self, producer_id: int) -> dict[str, int]:
        """The sequence that comes next; now and then a new epoch, from 0 on. A new producer may be close to the wrap."""
        entry = self.log.producers.entries.get(producer_id)
        if entry is None:
            return {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "base_sequence": self._rng.choice((0, LAST_SEQUENCE - 3)),
            }
        if self._rng.random() < 0.1 and not self._is_open(producer_id):
            return {"producer_id": producer_id, "producer_epoch": entry.producer_epoch + 1, "base_sequence": 0}
        sequence = 0 if entry.last_sequence in (-1, LAST_SEQUENCE) else entry.last_sequence + 1
        return {"producer_id": producer_id, "producer_epoch": entry.producer_epoch, "base_sequence": sequence}

    def _batch(self, *, is_transactional: bool = False, **producer: Any) -> bytes:
        rng = self._rng
        builder = BatchBuilder(compression_type=rng.choice(list(CompressionType)), is_transactional=is_transactional)
        for _ in range(rng.choice((1, 1, 2, 7))):
            self._count += 1
            key = rng.choice((None, b"", b"key-%d" % self._count))
            value = rng.choice((None, b"", b"value-%d" % self._count * rng.randrange(1, 12)))
            headers = [(f"h{number}", rng.choice((None, b"x"))) for number in range(rng.choice((0, 0, 2)))]
            builder.append(self._now_ms - rng.choice((0, 0, 700)), key, value, headers)
        return builder.build(**producer)
