"""The `.checkpoint` files beside the metadata log.

A file is written under its name with `.part` at the end, synced and renamed, and the directory is synced: a crash leaves
no file or the whole one. What is found damaged all the same is set aside as `.damaged`, once another can take its place.
"""

import logging
import os
from collections.abc import Collection, Iterable

from kraftlog.kraft.snapshot import SnapshotContents, SnapshotId, decode_snapshot
from kraftlog.logstore.errors import storage_errors
from kraftlog.logstore.filesystem import FileSystem, read_file, unlink_if_exists
from kraftlog.proto.errors import CorruptRecordError, StorageError
from kraftlog.proto.seams import Buffer

logger = logging.getLogger(__name__)

PART_SUFFIX = ".part"
DAMAGED_SUFFIX = ".damaged"


class SnapshotFiles:
    """Holds no state of its own: what counts is in the directory. Any thread; a snapshot is written by one at a time.
    Everything blocks and raises `StorageError`."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._directory = directory

    def ids(self) -> list[SnapshotId]:
        """Of the files that are there, sound or not, oldest first."""
        with storage_errors("list", self._directory):
            found = map(SnapshotId.parse, self._fs.listdir(self._directory))
            return sorted(each for each in found if each is not None)

    def write(self, snapshot_id: SnapshotId, batches: Iterable[Buffer]) -> None:
        """Durable on return; replaces a file of the same name. `batches` may be made while they are written."""
        path = self._path(snapshot_id)
        with storage_errors("write", path):
            try:
                self._write(path + PART_SUFFIX, batches)
            except OSError:
                unlink_if_exists(self._fs, path + PART_SUFFIX)  # a full disk needs the room
                raise
            self._fs.rename(path + PART_SUFFIX, path)
            self._fs.fsync_dir(self._directory)

    def _write(self, path: str, batches: Iterable[Buffer]) -> None:
        file = self._fs.open(path, create=True)
        try:
            file.truncate(0)
            position = 0
            for batch in batches:
                file.pwritev([batch], position)
                position += len(batch)
            file.fdatasync()
        finally:
            file.close()

    def load_newest(self) -> tuple[SnapshotId, bytes, SnapshotContents] | None:
        """The newest sound one; None if there is no file at all.

        Damaged ones that are newer are set aside: what they held is in the log, if it reaches back that far. Raises
        `StorageError` if none is sound.
        """
        damage: list[tuple[SnapshotId, CorruptRecordError]] = []
        for snapshot_id in reversed(self.ids()):
            path = self._path(snapshot_id)
            with storage_errors("read", path):
                data = read_file(self._fs, path)
            try:
                contents = decode_snapshot(data, snapshot_id)
            except CorruptRecordError as error:
                logger.error("%s: %s", self._directory, error)
                damage.append((snapshot_id, error))
                continue
            self._set_aside([damaged for damaged, _ in damage])
            return snapshot_id, data, contents
        if damage:
            raise StorageError(
                f"{self._directory}: no snapshot is sound, {damage[0][1]}; restore it from a backup, or let the node"
                " join again with an empty directory"
            )
        return None

    def _set_aside(self, ids: Collection[SnapshotId]) -> None:
        for snapshot_id in ids:
            path = self._path(snapshot_id)
            with storage_errors("rename", path):
                self._fs.rename(path, path + DAMAGED_SUFFIX)
                self._fs.fsync_dir(self._directory)

    def remove(self, ids: Iterable[SnapshotId]) -> None:
        """What a crash brings back is removed next time."""
        for snapshot_id in ids:
            path = self._path(snapshot_id)
            with storage_errors("delete", path):
                unlink_if_exists(self._fs, path)

    def remove_leftovers(self) -> None:
        """What a crash left half written. While nobody writes."""
        with storage_errors("clean up", self._directory):
            for name in self._fs.listdir(self._directory):
                if name.endswith(PART_SUFFIX) and SnapshotId.parse(name.removesuffix(PART_SUFFIX)) is not None:
                    unlink_if_exists(self._fs, os.path.join(self._directory, name))

    def _path(self, snapshot_id: SnapshotId) -> str:
        return os.path.join(self._directory, snapshot_id.file_name)
