"""Where the quorum keeps what must survive: the metadata log, its snapshots and the quorum state. The only package here
that knows `logstore`.

    __cluster_metadata-0/       an ordinary log with flush.policy=ack (`metadata_log`), and beside its segments
        quorum-state            term and vote (`quorum_state`)
        *.checkpoint            snapshots (`kraft.snapshot` has their bytes, `snapshot_files` their life)
"""

from kraftlog.kraft.log_adapter.formatting import METADATA_TOPIC_ID, format_metadata_log
from kraftlog.kraft.log_adapter.metadata_log import METADATA_LOG_CONFIGS, BatchLog, LoadedState, MetadataLog
from kraftlog.kraft.log_adapter.quorum_state import QUORUM_STATE_FILE
from kraftlog.kraft.log_adapter.snapshot_files import SnapshotFiles

__all__ = [
    "METADATA_LOG_CONFIGS",
    "METADATA_TOPIC_ID",
    "QUORUM_STATE_FILE",
    "BatchLog",
    "LoadedState",
    "MetadataLog",
    "SnapshotFiles",
    "format_metadata_log",
]
