"""How much of each partition a power loss at this moment would surely leave: read from the disk, not from the node.

Segments are parsed incrementally (format: `kraftlog.proto.records`), each batch with its CRC, up to the first byte that is
not durable. `DurableOffsets` does the same for the committed offsets of groups. Compaction leaves gaps within a segment,
none between segments; a `.log.swap` counts instead of what it replaces (`kraftlog.logstore.swaps`), as it does for a
node that starts.
"""

from collections.abc import Collection
from dataclasses import dataclass

from kraftlog.proto.errors import KraftlogError
from kraftlog.proto.names import CONSUMER_OFFSETS_TOPIC
from kraftlog.proto.records import HEADER_BYTES, check_crc, decode_batch, read_header
from kraftlog.server.coordinator.records import OffsetCommitKey, decode_key, decode_offset_commit
from kraftlog.testing.filesystem import SimFileSystem

LOG_SUFFIX = ".log"
SWAP_SUFFIX = ".log.swap"


@dataclass(slots=True)
class _Cursor:
    """Where the parsing of one partition stands."""

    segment: str = ""
    position: int = 0
    end_offset: int = 0


class DurableLogs:
    """White-box view of the durable part of the logs in one directory."""

    def __init__(self, fs: SimFileSystem, log_dir: str) -> None:
        self._fs = fs
        self._log_dir = log_dir
        self._cursors: dict[tuple[str, int], _Cursor] = {}

    def forget(self) -> None:
        """After a crash or a truncation: parse from the start again."""
        self._cursors.clear()

    def forget_partition(self, topic: str, partition: int) -> None:
        """The same for one partition."""
        self._cursors.pop((topic, partition), None)

    def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic whose directory is durable."""
        names = self._names(self._log_dir)
        return [int(number) for name, _, number in (name.rpartition("-") for name in names) if name == topic]

    def end_offset(self, topic: str, partition: int) -> int:
        """Exclusive end of what is surely durable."""
        cursor, _ = self._advance(topic, partition)
        return cursor.end_offset

    def take_new(self, topic: str, partition: int) -> list[bytes]:
        """The durable batches since the last look at this partition (or since `forget`); all of them again if those that
        were looked at last have been compacted since."""
        _, batches = self._advance(topic, partition)
        return batches

    def records(self, topic: str, partition: int) -> dict[int, tuple[bytes | None, bytes | None]]:
        """All that is surely durable: offset -> key and value."""
        self.forget_partition(topic, partition)
        batches = self.take_new(topic, partition)
        return {record.offset: (record.key, record.value) for batch in batches for record in decode_batch(batch)}

    def _advance(self, topic: str, partition: int) -> tuple[_Cursor, list[bytes]]:
        cursor = self._cursors.setdefault((topic, partition), _Cursor())
        directory = f"{self._log_dir}/{topic}-{partition}"
        batches: list[bytes] = []
        while True:
            if cursor.segment:
                data = self._content(f"{directory}/{cursor.segment}", cursor.position)
                if data is None:
                    cursor.segment, cursor.position, cursor.end_offset = "", 0, 0
                elif data:
                    batches += self._read_on(cursor, data)
            if not cursor.segment:
                cursor.end_offset = self._first_offset(directory)
            following = self._segment_at(directory, cursor.end_offset)
            if following in ("", cursor.segment):
                return cursor, batches
            cursor.segment, cursor.position = following, 0

    def _first_offset(self, directory: str) -> int:
        """Of the oldest segment that is left."""
        names = (name.partition(".") for name in self._names(directory))
        return min((int(base) for base, _, suffix in names if f".{suffix}" in (LOG_SUFFIX, SWAP_SUFFIX)), default=0)

    def _segment_at(self, directory: str, base_offset: int) -> str:
        """Its name; empty if it is not surely there."""
        swapped, name = (f"{base_offset:020d}{suffix}" for suffix in (SWAP_SUFFIX, LOG_SUFFIX))
        if self._content(f"{directory}/{swapped}", 0, 0) is not None:
            return swapped
        return name if self._has(directory, name) else ""

    def _read_on(self, cursor: _Cursor, data: bytes) -> list[bytes]:
        batches: list[bytes] = []
        position = 0
        while len(data) - position >= HEADER_BYTES:
            try:
                header = read_header(data, position)
                if header.base_offset < cursor.end_offset or position + header.size_bytes > len(data):
                    break
                check_crc(data, position, header)
            except KraftlogError:
                break  # zeros that were preallocated, or the middle of a batch
            batches.append(data[position : position + header.size_bytes])
            position += header.size_bytes
            cursor.end_offset = header.next_offset
        cursor.position += position
        return batches

    def _content(self, path: str, start: int, end: int | None = None) -> bytes | None:
        return self._fs.surely_durable(path, start, end)

    def _names(self, path: str) -> Collection[str]:
        return self._fs.surely_durable_names(path)

    def _has(self, directory: str, name: str) -> bool:
        return self._fs.has_surely_durable(directory, name)


class CachedLogs(DurableLogs):
    """The same of what processes see, whether it is durable or not."""

    def _content(self, path: str, start: int, end: int | None = None) -> bytes | None:
        return self._fs.cached(path, start, end)

    def _names(self, path: str) -> Collection[str]:
        return self._fs.cached_names(path)

    def _has(self, directory: str, name: str) -> bool:
        return self._fs.has_cached(directory, name)


class DurableOffsets:
    """The committed offsets that a power loss at this moment would surely leave."""

    def __init__(self, fs: SimFileSystem, log_dir: str) -> None:
        self._logs = DurableLogs(fs, log_dir)
        self._offsets: dict[tuple[str, str, int], int] = {}

    def forget(self) -> None:
        """After a crash: read everything again."""
        self._logs.forget()
        self._offsets.clear()

    def committed(self, group: str, topic: str, partition: int) -> int:
        """The durable offset; -1: none."""
        for number in self._logs.partitions(CONSUMER_OFFSETS_TOPIC):
            for batch in self._logs.take_new(CONSUMER_OFFSETS_TOPIC, number):
                self._replay(batch)
        return self._offsets.get((group, topic, partition), -1)

    def _replay(self, batch: bytes) -> None:
        for record in decode_batch(batch):
            key = decode_key(record.key or b"")
            if isinstance(key, OffsetCommitKey):
                name = (key.group_id, key.topic, key.partition)
                self._offsets[name] = -1 if record.value is None else decode_offset_commit(record.value).offset
