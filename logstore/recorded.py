"""What a log directory's own files record of a partition: how the tools know what must be there."""

import os
from dataclasses import dataclass

from kraftlog.logstore import layout
from kraftlog.logstore.checkpoints import TopicPartitionKey, read_offset_checkpoint
from kraftlog.logstore.filesystem import FileSystem


@dataclass(frozen=True, slots=True)
class Recorded:
    """For a folder outside of a log directory: nothing is known."""

    log_dir: str | None = None
    recovery_point: int = 0
    """Or where compaction has come to, if that is further: the cleaner syncs what it writes."""
    log_start_offset: int = 0
    was_clean: bool | None = None
    """Whether the clean-shutdown marker is there; None outside of a log directory."""

    @property
    def required_end(self) -> int:
        """The log must reach up to here: so far its records were synced (and not deleted since)."""
        return self.recovery_point if self.recovery_point > self.log_start_offset else 0


def is_log_dir(fs: FileSystem, path: str) -> bool:
    return fs.size(os.path.join(path, layout.META_PROPERTIES_FILE)) is not None


def recorded_of(fs: FileSystem, directory: str) -> Recorded:
    """What is recorded of the partition's folder `directory`. A damaged checkpoint records nothing."""
    absolute = os.path.abspath(directory)
    log_dir, name = os.path.split(absolute)
    key = layout.parse_log_directory(name)
    if key is None or not is_log_dir(fs, log_dir):
        return Recorded()
    points = recorded_offsets(fs, log_dir, layout.RECOVERY_POINT_FILE) or {}
    cleaned = recorded_offsets(fs, log_dir, layout.CLEANER_OFFSET_FILE) or {}
    starts = recorded_offsets(fs, log_dir, layout.LOG_START_OFFSET_FILE) or {}
    was_clean = fs.size(os.path.join(log_dir, layout.CLEAN_SHUTDOWN_FILE)) is not None
    return Recorded(log_dir, max(points.get(key, 0), cleaned.get(key, 0)), starts.get(key, 0), was_clean)


def recorded_offsets(fs: FileSystem, log_dir: str, name: str) -> dict[TopicPartitionKey, int] | None:
    """What an offset checkpoint of a log directory holds; None if it is damaged.

    Kafka makes files of no bytes before it has any offset to write; recovery points it writes as it starts.
    """
    path = os.path.join(log_dir, name)
    if name != layout.RECOVERY_POINT_FILE and fs.size(path) == 0:
        return {}
    return read_offset_checkpoint(fs, path)


def partition_folders(fs: FileSystem, log_dir: str) -> list[str]:
    """The folders of a log directory's partitions, by topic and number."""
    named = ((layout.parse_log_directory(name), name) for name in fs.listdir(log_dir))
    return [os.path.join(log_dir, name) for key, name in sorted((k, n) for k, n in named if k is not None)]
