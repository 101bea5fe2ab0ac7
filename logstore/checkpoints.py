"""Kafka's small text files: offset checkpoints, leader epochs, partition metadata, meta.properties.

All are UTF-8, their lines end with a line feed (which may be missing after the last one), numbers are decimal.

Offset checkpoints, one entry for each log of the directory, sorted:

    0                        version
    2                        number of entries
    orders 0 1042            topic, partition, offset; one space between them
    orders 1 77

    recovery-point-offset-checkpoint    the flushed end: everything below was synced when this was written
    log-start-offset-checkpoint         the log start offset, if it is above 0
    replication-offset-checkpoint       the high watermark
    cleaner-offset-checkpoint           up to where the log was compacted; there, too, everything below is synced

`leader-epoch-checkpoint`, in a partition's folder: the same head, then epoch and start offset, both ascending:

    0
    2
    0 0
    3 17

`partition.metadata`, in a partition's folder; the topic id in Kafka's 22 characters (`proto.uuids`):

    version: 0
    topic_id: AAECAwQFBgcICQoLDA0ODw

`meta.properties`, whose directory it is: `key=value` lines, here sorted by key; lines that begin with `#` are comments:

    cluster.id=Jnh3bVdfTGK4eUIOKBjWcA
    directory.id=AAAAAAAAAAAAAAAAAAAAAA
    node.id=1
    version=1

All are written by `atomic_write`, but for the metadata of a new partition (`LogDir.create_log`). A file that does not
parse completely is worth nothing: the readers say so in the log and answer None, and the caller falls back to what it can
rebuild.
"""

import itertools
import logging
from collections.abc import Iterable, Mapping

from kraftlog.logstore.filesystem import FileSystem, atomic_write, read_file, write_in_place, write_synced
from kraftlog.proto.uuids import uuid_from_text, uuid_to_text

logger = logging.getLogger(__name__)

TopicPartitionKey = tuple[str, int]

_VERSION = 0
_PARTITION_METADATA_BYTES = 44  # whatever the topic id
_MAX_OFFSET = (1 << 63) - 1
_MAX_INT = (1 << 31) - 1
_MAX_CHECKPOINT_BYTES = 256 << 20  # some millions of partitions; larger is garbage


class _MalformedError(ValueError):
    pass


def read_offset_checkpoint(fs: FileSystem, path: str) -> dict[TopicPartitionKey, int] | None:
    """Offsets by (topic, partition); {} if there is no file, None if it is damaged."""
    rows = _read_rows(fs, path, columns=3)
    if rows is None:
        return None
    try:
        return {
            (topic, _number(partition, _MAX_INT)): _number(offset, _MAX_OFFSET) for topic, partition, offset in rows
        }
    except _MalformedError as e:
        _warn_damaged(path, e)
        return None


def write_offset_checkpoint(fs: FileSystem, path: str, offsets: Mapping[TopicPartitionKey, int]) -> None:
    _write_rows(fs, path, (f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())))


def read_epoch_checkpoint(fs: FileSystem, path: str) -> list[tuple[int, int]] | None:
    """(epoch, start offset), ascending; [] if there is no file, None if it is damaged."""
    rows = _read_rows(fs, path, columns=2)
    if rows is None:
        return None
    try:
        entries = [(_number(epoch, _MAX_INT), _number(offset, _MAX_OFFSET)) for epoch, offset in rows]
        for (epoch, offset), (next_epoch, next_offset) in itertools.pairwise(entries):
            if next_epoch <= epoch or next_offset < offset:
                raise _MalformedError(f"epoch {next_epoch} at {next_offset} after epoch {epoch} at {offset}")
    except _MalformedError as e:
        _warn_damaged(path, e)
        return None
    return entries


def write_epoch_checkpoint(fs: FileSystem, path: str, entries: Iterable[tuple[int, int]]) -> None:
    _write_rows(fs, path, (f"{epoch} {offset}" for epoch, offset in entries))


def read_properties(fs: FileSystem, path: str) -> dict[str, str] | None:
    """A `key=value` file; None if there is none. Lines without `=` are ignored, as are comments."""
    try:
        text = read_file(fs, path).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {key.strip(): value.strip() for key, separator, value in pairs if separator}


def write_properties(fs: FileSystem, path: str, values: Mapping[str, str]) -> None:
    text = "".join(f"{key}={value}\n" for key, value in sorted(values.items()))
    atomic_write(fs, path, text.encode())


def read_partition_metadata(fs: FileSystem, path: str) -> bytes | None:
    """The topic id; None if there is no file or it is damaged."""
    try:
        lines = read_file(fs, path).decode("ascii", "replace").splitlines()
    except FileNotFoundError:
        return None
    try:
        if len(lines) < 2 or lines[0] != f"version: {_VERSION}" or not lines[1].startswith("topic_id: "):
            raise _MalformedError("expected version and topic_id")
        return uuid_from_text(lines[1].removeprefix("topic_id: ").strip())
    except ValueError as e:
        _warn_damaged(path, e)
        return None


def is_partition_metadata_torn(fs: FileSystem, path: str) -> bool:
    """Whether the file is as a power loss leaves one that was not synced: too short, or with zeros for what was not
    written. Any other damage is no crash's doing."""
    size = fs.size(path)
    if size is None or size > _PARTITION_METADATA_BYTES:
        return False
    return size < _PARTITION_METADATA_BYTES or 0 in read_file(fs, path)


def write_partition_metadata(fs: FileSystem, path: str, topic_id: bytes, *, is_new: bool = False) -> None:
    """Durable after `fsync_dir`; of a partition that `is_new` only after the file itself was synced, too."""
    write = write_in_place if is_new else write_synced
    write(fs, path, f"version: {_VERSION}\ntopic_id: {uuid_to_text(topic_id)}\n".encode())


def _read_rows(fs: FileSystem, path: str, columns: int) -> list[list[str]] | None:
    try:
        data = read_file(fs, path)
    except FileNotFoundError:
        return []
    try:
        return _parse_rows(data, columns)
    except (_MalformedError, UnicodeDecodeError) as e:
        _warn_damaged(path, e)
        return None


def _parse_rows(data: bytes, columns: int) -> list[list[str]]:
    if len(data) > _MAX_CHECKPOINT_BYTES:
        raise _MalformedError(f"{len(data)} bytes are too many")
    lines = data.decode("utf-8").split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    if len(lines) < 2:
        raise _MalformedError("version or count is missing")
    if _number(lines[0], _MAX_INT) != _VERSION:
        raise _MalformedError(f"version {lines[0]} is unknown")
    rows = [line.split(" ") for line in lines[2:]]
    if len(rows) != _number(lines[1], _MAX_INT):
        raise _MalformedError(f"{lines[1]} entries announced, {len(rows)} present")
    for row in rows:
        if len(row) != columns:
            raise _MalformedError(f"an entry has {len(row)} fields instead of {columns}")
    return rows


def _write_rows(fs: FileSystem, path: str, rows: Iterable[str]) -> None:
    lines = list(rows)
    text = f"{_VERSION}\n{len(lines)}\n" + "".join(f"{line}\n" for line in lines)
    atomic_write(fs, path, text.encode())


def _number(text: str, maximum: int) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > maximum:
        raise _MalformedError(f"{text[:40]!r} is not a number from 0 to {maximum}")
    return int(text)


def _warn_damaged(path: str, reason: Exception) -> None:
    logger.warning("ignoring the damaged file %s: %s; its content is rebuilt from the log", path, reason)
