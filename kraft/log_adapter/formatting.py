"""The genesis of a node's metadata log: written before the node's first start, and never again."""

import os
from collections.abc import Mapping

from kraftlog.kraft.endpoints import Endpoint
from kraftlog.kraft.log_adapter.quorum_state import QUORUM_STATE_FILE
from kraftlog.kraft.log_adapter.snapshot_files import SnapshotFiles
from kraftlog.kraft.raft import ReplicaKey, Voters
from kraftlog.kraft.snapshot import GENESIS, encode_records_as_snapshot
from kraftlog.logstore.checkpoints import write_partition_metadata
from kraftlog.logstore.errors import storage_errors
from kraftlog.logstore.filesystem import FileSystem
from kraftlog.logstore.layout import LOG_SUFFIX, PARTITION_METADATA_FILE, log_directory_name
from kraftlog.proto.errors import StorageError
from kraftlog.proto.metadata_pb2 import FeatureLevelRecord, MetadataRecord
from kraftlog.proto.names import CLUSTER_METADATA_TOPIC

METADATA_TOPIC_ID = bytes(15) + b"\x01"  # Kafka's Uuid.METADATA_TOPIC_ID


def format_metadata_log(
    fs: FileSystem,
    log_dir: str,
    *,
    voters: Voters,
    endpoints: Mapping[ReplicaKey, Endpoint],
    feature_levels: Mapping[str, int],
    timestamp_ms: int,
) -> None:
    """Write the genesis below the log directory `log_dir`: the first voters with their endpoints, and the feature levels
    of the new cluster. Durable on return. Blocks.

    The same on every node, but for one that does not take part in the first quorum: its voters are empty. To be called
    before the log directory counts as formatted (`logstore.format_log_dir`), so that a crash in between is repeated as a
    whole. Raises `StorageError`, also where a metadata log is already: a genesis never replaces what a node has voted for.
    """
    directory = os.path.join(log_dir, log_directory_name(CLUSTER_METADATA_TOPIC, 0))
    files = SnapshotFiles(fs, directory)
    with storage_errors("format", directory):
        fs.mkdir(directory)
        used = [name for name in fs.listdir(directory) if name.endswith(LOG_SUFFIX) or name == QUORUM_STATE_FILE]
        if used or files.ids() not in ([], [GENESIS]):
            raise StorageError(f"{directory} holds the metadata log of a node: format an empty directory")
        write_partition_metadata(fs, os.path.join(directory, PARTITION_METADATA_FILE), METADATA_TOPIC_ID)
        records = [
            MetadataRecord(feature_level=FeatureLevelRecord(name=name, level=level))
            for name, level in sorted(feature_levels.items())
        ]
        files.write(GENESIS, encode_records_as_snapshot(GENESIS, records, voters, endpoints, timestamp_ms=timestamp_ms))
        fs.fsync_dir(log_dir)
        fs.fsync_dir(os.path.dirname(os.path.abspath(log_dir)))
