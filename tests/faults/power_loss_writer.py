"""The writer of `test_power_loss`, a process: appends to several logs and says on stdout what was flushed.

Every record says in its value which log and offset it has, so that whoever reads it can tell whether it is right.
"""

import random
import sys
import time

from kraftlog.logstore import LogConfig, LogDir, RealFileSystem
from kraftlog.proto.errors import StorageError
from tests.unit.logstore.builders import CLUSTER_ID, NOW_MS, batch

CONFIG = LogConfig(segment_bytes=40_000, index_interval_bytes=1000)
LOGS = 3
MAX_VALUE_BYTES = 3000


def value_of(topic: str, partition: int, offset: int) -> bytes:
    """What the record at `offset` holds: readable, and of a size that only the offset decides."""
    text = b"%s-%d-%d." % (topic.encode(), partition, offset)
    return (text * (MAX_VALUE_BYTES // len(text) + 1))[: 20 + offset * 7919 % (MAX_VALUE_BYTES - 20)]


def open_directory(path: str) -> LogDir:
    fs = RealFileSystem()
    return LogDir.open(path, fs=fs, node_id=1, cluster_id=CLUSTER_ID, now_ms=NOW_MS, config=CONFIG)


def write(path: str, rng: random.Random) -> None:
    log_dir = open_directory(path)
    for partition in range(LOGS):
        if ("t", partition) not in log_dir.logs:
            log_dir.create_log("t", partition, now_ms=NOW_MS)
    while True:
        touched = rng.sample(range(LOGS), rng.randrange(1, LOGS + 1))
        for partition in touched:
            log = log_dir.logs["t", partition]
            for _ in range(rng.randrange(1, 6)):
                start = log.log_end_offset
                values = [value_of("t", partition, start + number) for number in range(rng.randrange(1, 4))]
                log.append_as_leader(batch(*values), leader_epoch=0, now_ms=NOW_MS)
        for partition in touched[: rng.randrange(len(touched) + 1)]:
            tell(partition, log_dir.logs["t", partition].flush())
        if rng.randrange(10) == 0:
            log_dir.checkpoint()
        if rng.randrange(60) == 0:
            log_dir.close()
            for partition in range(LOGS):
                tell(partition, log_dir.logs["t", partition].log_end_offset)
            log_dir = open_directory(path)


def tell(partition: int, flushed_end: int) -> None:
    """With the time, on the clock that all processes share."""
    print("flushed", partition, flushed_end, time.monotonic_ns(), flush=True)


if __name__ == "__main__":
    try:
        write(sys.argv[1], random.Random(int(sys.argv[2])))
    except (StorageError, OSError) as e:
        print("failed", e, flush=True)
