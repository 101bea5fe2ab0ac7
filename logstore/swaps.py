"""Replacing segments by a compacted one, so that a crash at any moment leaves the old ones or the new one, whole.

    1. `<base>.log.cleaned` and its indexes (`.index.cleaned`, ...) are written and synced, then the directory.
    2. `.log.cleaned` is renamed to `.log.swap`: from then on the new segment counts. The directory is synced.
    3. The other replaced segments are deleted, `.cleaned` is taken off the names of the indexes; the directory is synced.
    4. `.log.swap` is renamed to `.log`.

Loading removes what a step 1 cut short has left, and completes steps 3 and 4. Replaced is what begins inside of the new
segment, which therefore reaches up to the one that follows: the cleaner sees to that. The new segment always has a
`.txnindex`, though it be empty, so that none of the old segment is left beside the new one.

Names and meaning are Kafka's, which renames the indexes to `.swap` too; what it left is completed as well.
"""

import logging
import os
from collections.abc import Iterable, Sequence

from kraftlog.logstore.batches import walk_headers
from kraftlog.logstore.filesystem import FileSystem, unlink_if_exists
from kraftlog.logstore.layout import (
    CLEANED_FILE_SUFFIX,
    LOG_SUFFIX,
    SWAP_FILE_SUFFIX,
    TXN_INDEX_SUFFIX,
    parse_segment_file,
    segment_file_name,
)
from kraftlog.logstore.segment import Segment
from kraftlog.logstore.segment_indexes import INDEX_SUFFIXES

logger = logging.getLogger(__name__)


def finish_swap(fs: FileSystem, directory: str, segment: Segment, replaced: Sequence[Segment]) -> None:
    """The end of step 2, and steps 3 and 4, for a running log. May be repeated after an error."""
    fs.fsync_dir(directory)
    for old in replaced:
        if old.base_offset != segment.base_offset or segment.is_gone:
            old.delete_files()
    if segment.is_gone:  # deleted meanwhile, from the front of the log
        return
    segment.rename_files("", INDEX_SUFFIXES)
    _remove_empty_txn_index(fs, directory, segment.base_offset)
    fs.fsync_dir(directory)
    segment.rename_files("", (LOG_SUFFIX,))


def complete_swaps(fs: FileSystem, directory: str) -> bool:
    """What a crash left of the steps, before anything else in the directory is looked at; False: nothing.

    Raises `OSError`.
    """
    names = fs.listdir(directory)
    swapped = _base_offsets(name.removesuffix(SWAP_FILE_SUFFIX) for name in names if name.endswith(SWAP_FILE_SUFFIX))
    for base_offset in swapped:
        _complete_swap(fs, directory, base_offset, _base_offsets(names))
    leftovers = [n for n in fs.listdir(directory) if n.endswith((SWAP_FILE_SUFFIX, CLEANED_FILE_SUFFIX))]
    for name in leftovers:
        logger.info("removing %s, whose compaction was interrupted", os.path.join(directory, name))
        unlink_if_exists(fs, os.path.join(directory, name))
    if not swapped and not leftovers:
        return False
    fs.fsync_dir(directory)
    return True


def settled_names(fs: FileSystem, directory: str) -> dict[str, str]:
    """The names in a directory as `complete_swaps` would leave them, each with the name that its file has by now.

    For whoever reads a log offline and changes nothing. Raises `OSError`.
    """
    names = fs.listdir(directory)
    settled = {name: name for name in names if not name.endswith((SWAP_FILE_SUFFIX, CLEANED_FILE_SUFFIX))}
    swapped = _base_offsets(name.removesuffix(SWAP_FILE_SUFFIX) for name in names if name.endswith(SWAP_FILE_SUFFIX))
    for base_offset in swapped:
        log_name = segment_file_name(base_offset, LOG_SUFFIX)
        end_offset = _end_offset(fs, os.path.join(directory, log_name + SWAP_FILE_SUFFIX), base_offset)
        for replaced in _base_offsets(names):
            if base_offset < replaced < end_offset:
                for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES):
                    settled.pop(segment_file_name(replaced, suffix), None)
        settled[log_name] = log_name + SWAP_FILE_SUFFIX
        for suffix in INDEX_SUFFIXES:
            name = segment_file_name(base_offset, suffix)
            for name_end in (CLEANED_FILE_SUFFIX, SWAP_FILE_SUFFIX):
                if name + name_end in names:
                    settled[name] = name + name_end
        txn_name = segment_file_name(base_offset, TXN_INDEX_SUFFIX)
        if txn_name in settled and fs.size(os.path.join(directory, settled[txn_name])) == 0:
            del settled[txn_name]
    return settled


def _complete_swap(fs: FileSystem, directory: str, base_offset: int, present: Sequence[int]) -> None:
    log_path = _path(directory, base_offset, LOG_SUFFIX)
    logger.info("completing the compaction of %s", log_path)
    end_offset = _end_offset(fs, log_path + SWAP_FILE_SUFFIX, base_offset)
    for replaced in present:
        if base_offset < replaced < end_offset:
            for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES):
                unlink_if_exists(fs, _path(directory, replaced, suffix))
    for suffix in INDEX_SUFFIXES:
        path = _path(directory, base_offset, suffix)
        for name_end in (CLEANED_FILE_SUFFIX, SWAP_FILE_SUFFIX):
            if fs.size(path + name_end) is not None:
                fs.rename(path + name_end, path)
    _remove_empty_txn_index(fs, directory, base_offset)
    fs.fsync_dir(directory)
    fs.rename(log_path + SWAP_FILE_SUFFIX, log_path)


def _base_offsets(names: Iterable[str]) -> list[int]:
    """Of those names that are a `.log`'s."""
    parsed = filter(None, map(parse_segment_file, names))
    return sorted(base_offset for base_offset, suffix in parsed if suffix == LOG_SUFFIX)


def _end_offset(fs: FileSystem, path: str, base_offset: int) -> int:
    file = fs.open(path)
    try:
        end_offset = base_offset
        for _, header, _ in walk_headers(file, 0, file.size(), with_control=False):
            end_offset = header.next_offset
    finally:
        file.close()
    return end_offset


def _remove_empty_txn_index(fs: FileSystem, directory: str, base_offset: int) -> None:
    path = _path(directory, base_offset, TXN_INDEX_SUFFIX)
    if fs.size(path) == 0:
        unlink_if_exists(fs, path)


def _path(directory: str, base_offset: int, suffix: str) -> str:
    return os.path.join(directory, segment_file_name(base_offset, suffix))
