"""Small logs for tests: batches with readable values, a log directory in memory, a log alone."""

from collections.abc import Callable
from typing import Any

from kraftlog.logstore import FileSystem, Log, LogConfig, LogDir, format_log_dir
from kraftlog.logstore.cleaning import CleaningPass, Step, look_for_dirt
from kraftlog.proto.records import BatchBuilder, CompressionType, decode_records
from kraftlog.testing.filesystem import SimFileSystem

CLUSTER_ID = "cluster-of-the-tests"
DIRECTORY_ID = "AAAAAAAAAAAAAAAAAAAAAA"
DATA = "/data"
NOW_MS = 1_700_000_000_000


def batch(
    *values: bytes | str,
    timestamps: list[int] | None = None,
    compression_type: CompressionType = CompressionType.NONE,
    is_transactional: bool = False,
    **producer: Any,
) -> bytes:
    """One batch; timestamps start at NOW_MS and go up by one if none are given."""
    builder = BatchBuilder(compression_type=compression_type, is_transactional=is_transactional)
    for number, value in enumerate(values):
        encoded = value.encode() if isinstance(value, str) else value
        builder.append(timestamps[number] if timestamps else NOW_MS + number, b"key", encoded)
    return builder.build(**producer)


def idempotent(producer_id: int, sequence: int, count: int = 1, *, epoch: int = 0, **more: Any) -> bytes:
    """A batch of an idempotent producer."""
    values = [f"p{producer_id}-{(sequence + number) % (1 << 31)}" for number in range(count)]
    return batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **more)


def append(log: Log, *values: bytes | str, leader_epoch: int = 0) -> int:
    """Append one batch as leader; its first offset."""
    return log.append_as_leader(batch(*values), leader_epoch=leader_epoch, now_ms=NOW_MS).first_offset


def values_of(log: Log, start: int | None = None) -> list[bytes]:
    """The values of all records, read through `Log.read`."""
    offset = log.log_start_offset if start is None else start
    values: list[bytes] = []
    while offset < log.log_end_offset:
        result = log.read(offset, 1 << 20, end_offset=log.log_end_offset)
        values += [record.value or b"" for record in decode_records(result.records, min_offset=offset)]
        offset = result.next_offset
    return values


def open_log_dir(fs: FileSystem, config: LogConfig | None = None, path: str = DATA) -> LogDir:
    """Format (once) and open."""
    format_log_dir(path, fs, cluster_id=CLUSTER_ID, node_id=1, directory_id=DIRECTORY_ID)
    return LogDir.open(path, fs=fs, node_id=1, cluster_id=CLUSTER_ID, now_ms=NOW_MS, config=config)


def create_log(config: LogConfig | None = None, fs: FileSystem | None = None) -> tuple[LogDir, Log]:
    """Log `t-0` in a fresh directory."""
    log_dir = open_log_dir(fs or SimFileSystem(), config)
    return log_dir, log_dir.create_log("t", 0, now_ms=NOW_MS)


def reopen(fs: SimFileSystem, config: LogConfig | None = None) -> Log:
    """The log `t-0` after the process is gone."""
    fs.kill()
    return open_log_dir(fs, config).logs["t", 0]


SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100)
"""Rolls every few batches."""


def retain(log_dir: LogDir, log: Log, *, now_ms: int = NOW_MS, high_watermark: int | None = None) -> int:
    """One round of retention, step by step as the node does it; how many segments went."""
    high_watermark = log.log_end_offset if high_watermark is None else high_watermark
    plan = log.plan_retention(now_ms=now_ms, high_watermark=high_watermark)
    if plan is None or not log.begin_retention(plan, now_ms) or not plan.segments:
        return 0
    if log.needs_flush_before_deletion(plan):
        log.flush_before_deletion(plan)
    log_dir.record_log_starts({log: plan.start_offset})
    if not log.detach(plan):
        return 0
    log.delete_detached(plan)
    return len(plan.segments)


SIP_KEY = bytes(range(16))


def begin_compaction(
    log_dir: LogDir, log: Log, *, now_ms: int = NOW_MS, stable_offset: int | None = None, map_bytes: int = 1 << 20
) -> CleaningPass | None:
    """A pass over what may be compacted; None: nothing may."""
    dirtiness = look_for_dirt(
        log,
        cleaned_to=log_dir.cleaned_to(log),
        stable_offset=log.last_stable_offset(log.log_end_offset) if stable_offset is None else stable_offset,
        truncations=log.truncations,
        now_ms=now_ms,
    )
    if dirtiness is None:
        return None
    return CleaningPass(log, dirtiness, now_ms=now_ms, map_bytes=map_bytes, sip_key=SIP_KEY)


def run_pass(
    log_dir: LogDir, cleaning: CleaningPass, before_step: Callable[[Step | None], None] = lambda last: None
) -> Step:
    """Step by step as the node does it; DONE or VOID. `before_step` is told what the last step came to."""
    step: Step | None = None
    try:
        while True:
            before_step(step)
            step = cleaning.step()
            if step is Step.DONE:
                cleaning.record_end(log_dir)
                return step
            if step is Step.VOID:
                return step
            if step is Step.COMMIT:
                before_step(step)
                if not cleaning.commit():
                    return Step.VOID
                cleaning.finish_commit()
    finally:
        cleaning.close()


def compact(log_dir: LogDir, log: Log, **more: Any) -> bool:
    """One pass as far as it may go; False if there was nothing to do or it came to nothing."""
    cleaning = begin_compaction(log_dir, log, **more)
    return cleaning is not None and run_pass(log_dir, cleaning) is Step.DONE
