"""How much of each partition a power loss at this moment would surely leave: read from the disk, not from the node.

Segments are parsed incrementally (format: `kraftlog.proto.records`), each batch with its CRC, up to the first byte that is
not durable.
"""

from dataclasses import dataclass

from kraftlog.proto.errors import KraftlogError
from kraftlog.proto.records import HEADER_BYTES, check_crc, read_header
from kraftlog.testing.filesystem import SimFileSystem

LOG_SUFFIX = ".log"


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

    def end_offset(self, topic: str, partition: int) -> int:
        """Exclusive end of what is surely durable."""
        cursor = self._cursors.setdefault((topic, partition), _Cursor())
        directory = f"{self._log_dir}/{topic}-{partition}"
        while True:
            if cursor.segment:
                self._advance(cursor, f"{directory}/{cursor.segment}")
            following = f"{cursor.end_offset:020d}{LOG_SUFFIX}"
            if following == cursor.segment or following not in self._fs.surely_durable_names(directory):
                return cursor.end_offset
            cursor.segment, cursor.position = following, 0

    def _advance(self, cursor: _Cursor, path: str) -> None:
        data = self._fs.surely_durable(path, cursor.position) or b""
        position = 0
        while len(data) - position >= HEADER_BYTES:
            try:
                header = read_header(data, position)
                if header.base_offset != cursor.end_offset or position + header.size_bytes > len(data):
                    break
                check_crc(data, position, header)
            except KraftlogError:
                break  # zeros that were preallocated, or the middle of a batch
            position += header.size_bytes
            cursor.end_offset = header.next_offset
        cursor.position += position
