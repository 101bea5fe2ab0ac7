"""One partition's log on disk: segments, indexes, recovery, leader epochs, producer state. Synchronous; one writer a log.

`LogDir` is a node's directory of logs, `Log` one of them. `filesystem` is the seam to the disk; `layout` lists the files,
`segment`, `indexes`, `snapshots`, `transaction_index` and `checkpoints` give their formats (Kafka's), `recovery` the
rules after a crash. `inspect` reads a partition's files without a `Log`. Nothing here knows of leaders, high watermarks
or the network.
"""

if __name__ != "kraftlog.logstore":
    raise ImportError("import kraftlog.logstore: logstore/ is a folder of the checkout, not a module")

from kraftlog.logstore.config import (
    TOPIC_CONFIGS,
    FlushPolicy,
    LogConfig,
    ThrottledReplicas,
    validate_topic_configs,
)
from kraftlog.logstore.errors import DiskFullError, LogDirLockedError
from kraftlog.logstore.filesystem import FileSystem, RealFileSystem
from kraftlog.logstore.log import AppendInfo, Log
from kraftlog.logstore.log_dir import NO_TOPIC_ID, LogDir, format_log_dir
from kraftlog.logstore.reading import ReadResult

__all__ = [
    "NO_TOPIC_ID",
    "TOPIC_CONFIGS",
    "AppendInfo",
    "DiskFullError",
    "FileSystem",
    "FlushPolicy",
    "Log",
    "LogConfig",
    "LogDir",
    "LogDirLockedError",
    "ReadResult",
    "RealFileSystem",
    "ThrottledReplicas",
    "format_log_dir",
    "validate_topic_configs",
]
