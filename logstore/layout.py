"""Names of files and folders in a log directory: Kafka's, exactly.

<log dir>/
    .lock                               flock of the process that owns the directory
    .kafka_cleanshutdown                there only between a clean stop and the next start
    meta.properties                     version=1, cluster.id, node.id, directory.id
    recovery-point-offset-checkpoint    the recorded flushed end of each log
    log-start-offset-checkpoint
    replication-offset-checkpoint       high watermarks
    cleaner-offset-checkpoint           where the part of each log begins that was not compacted
    <topic>-<partition>/
        00000000000000000000.log        segment; the number is its base offset, 20 digits
        00000000000000000000.index      offset index         (written when the segment is sealed)
        00000000000000000000.timeindex  time index           (written when the segment is sealed)
        00000000000000000000.txnindex   aborted transactions (if there are any)
        00000000000000000042.snapshot   producer state at that offset
        leader-epoch-checkpoint
        partition.metadata              topic id
        *.tmp, *.deleted                unfinished, or about to go: removed when the log is loaded
        *.cleaned, *.swap               a compaction that was interrupted: removed or completed (`swaps`)
        *.cut                           what a repair took out
    <topic>-<partition>.<topic id>-delete/   being deleted
    <topic>-<partition>.<topic id>-damaged/  what a damaged log was, before it was fetched again from another replica
    <topic>-<partition>.<topic id>-stray/    a log that is nobody's any more, by metadata that do not know this directory

Whatever has another name is left alone: `__cluster_metadata-0` also has the vote and the snapshots of the metadata quorum.
"""

import re

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_FILE_SUFFIX = ".deleted"  # a segment's file that is about to go
CLEANED_FILE_SUFFIX = ".cleaned"  # the cleaner's unfinished output
SWAP_FILE_SUFFIX = ".swap"  # its finished output, which replaces what it was made from (`swaps`)
CUT_FILE_SUFFIX = ".cut"  # bytes that `kraftctl log repair` took out of a file; nothing reads it
DELETE_DIRECTORY_SUFFIX = "-delete"
DAMAGED_DIRECTORY_SUFFIX = "-damaged"
STRAY_DIRECTORY_SUFFIX = "-stray"

LOCK_FILE = ".lock"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
META_PROPERTIES_FILE = "meta.properties"
RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_FILE = "log-start-offset-checkpoint"
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
CLEANER_OFFSET_FILE = "cleaner-offset-checkpoint"
LEADER_EPOCH_FILE = "leader-epoch-checkpoint"
PARTITION_METADATA_FILE = "partition.metadata"

_MAX_FILE_NAME_BYTES = 255
_SEGMENT_FILE = re.compile(r"([0-9]{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)\Z")
_LOG_DIRECTORY = re.compile(r"([a-zA-Z0-9._-]+)-([0-9]{1,10})\Z")


def segment_file_name(offset: int, suffix: str) -> str:
    """`00000000000000000042.log`"""
    return f"{offset:020d}{suffix}"


def parse_segment_file(name: str) -> tuple[int, str] | None:
    """(offset, suffix) of a segment's file or a snapshot; None for any other name."""
    match = _SEGMENT_FILE.match(name)
    if match is None or int(match[1]) >= 1 << 63:
        return None
    return int(match[1]), match[2]


def log_directory_name(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def parse_log_directory(name: str) -> tuple[str, int] | None:
    """(topic, partition); None for a name that is no log's."""
    match = _LOG_DIRECTORY.match(name)
    if match is None or int(match[2]) >= 1 << 31:
        return None
    return match[1], int(match[2])


def deleted_directory_name(topic: str, partition: int, topic_id: bytes) -> str:
    """What a log's folder is renamed to before its files are removed."""
    return retired_directory_name(topic, partition, topic_id, DELETE_DIRECTORY_SUFFIX)


def retired_directory_name(topic: str, partition: int, topic_id: bytes, ending: str) -> str:
    """The name of a folder that is a log's no longer. Cut as Kafka cuts it to fit a file name."""
    suffix = f"-{partition}.{topic_id.hex()}{ending}"
    return topic[: _MAX_FILE_NAME_BYTES - len(suffix)] + suffix
