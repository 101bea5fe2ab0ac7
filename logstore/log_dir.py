"""`LogDir`: a directory with the logs of one node; its identity, lock, checkpoints and the clean-shutdown marker.

Used from the node's event loop, but for what the logs call as their `RecoveryPoints`, from any thread, and `create_log`,
which may make different logs in different threads.

The lock is an flock on `.lock`, a file of no bytes. The marker, `.kafka_cleanshutdown`, says by being there that the
last stop was clean, and as Kafka's in which broker epoch that was (KIP-966): `{"version":0,"brokerEpoch":17}`, -1 for
none. One of Kafka's older versions has no content. The other files are those of `checkpoints`.

Order at start: take the lock, check whose directory it is, read and remove the clean-shutdown marker (durably, before
any log is touched: a crash while loading must lead to a full recovery), load the logs. At a clean stop: close the logs,
write the checkpoints, then the marker.

Logs are loaded and closed in as many threads as the caller allows. A damaged log is loaded as such and does not
concern the others. One that cannot be read or written (an error of the disk, not of the data) fails the directory, as
in Kafka, where it goes offline: a disk that fails one log may lose any other's writes. The others are still gone
through first, so that the node's log names all that are concerned.

A log is made without a sync (`create_log`). What a power loss may leave of one of which nothing was flushed, namely a torn
topic id, is removed at the next start, but kept aside if it has records; nobody was told that they are safe, and whoever
knows from the metadata that there must be a log makes it anew.
"""

import contextlib
import json
import logging
import os
import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType

from kraftlog.logstore import layout
from kraftlog.logstore.checkpoints import (
    TopicPartitionKey,
    is_partition_metadata_torn,
    read_partition_metadata,
    read_properties,
    write_offset_checkpoint,
    write_partition_metadata,
    write_properties,
)
from kraftlog.logstore.config import LogConfig
from kraftlog.logstore.errors import LogDirLockedError, is_disk_full, storage_errors
from kraftlog.logstore.filesystem import (
    TEMPORARY_SUFFIX,
    FileSystem,
    Lock,
    atomic_write,
    read_file,
    remove_flat_directory,
    sync_file,
    unlink_if_exists,
)
from kraftlog.logstore.log import Log
from kraftlog.logstore.observer import SILENT, LogObserver, LogSizes
from kraftlog.logstore.open_segments import DEFAULT_MAX_OPEN_FILES, OpenSegments
from kraftlog.logstore.parallel import run_all
from kraftlog.logstore.recorded import recorded_offsets
from kraftlog.proto.errors import (
    InconsistentClusterIdError,
    LogDirNotFoundError,
    StorageError,
    TopicAlreadyExistsError,
)
from kraftlog.proto.names import CLUSTER_METADATA_TOPIC, validate_topic_name

logger = logging.getLogger(__name__)

NO_BROKER_EPOCH = -1
_MAX_MARKER_BYTES = 4096  # larger is garbage
NO_TOPIC_ID = bytes(16)

ConfigFor = Callable[[str], LogConfig]
"""The configuration of a topic's logs."""


def format_log_dir(path: str, fs: FileSystem, *, cluster_id: str, node_id: int, directory_id: str) -> None:
    """Make `path` a log directory of this node; nothing to do if it is one already.

    Raises `InconsistentClusterIdError` if it belongs to another cluster or node. `directory_id`: Kafka's 22-character
    spelling of a random 16-byte id (`proto.uuids`).
    """
    with storage_errors("format", path):
        fs.mkdir(path)
        meta = os.path.join(path, layout.META_PROPERTIES_FILE)
        existing = read_properties(fs, meta)
        if existing is not None:
            _check_identity(existing, path, cluster_id, node_id)
            return
        values = {"version": "1", "cluster.id": cluster_id, "node.id": str(node_id), "directory.id": directory_id}
        write_properties(fs, meta, values)
        fs.fsync_dir(os.path.dirname(os.path.abspath(path)))


def _check_identity(meta: Mapping[str, str], path: str, cluster_id: str, node_id: int) -> None:
    if meta.get("cluster.id") != cluster_id:
        raise InconsistentClusterIdError(
            f"log dir {path} belongs to cluster {meta.get('cluster.id')!r}, not to {cluster_id!r}: give the right "
            "cluster id, or another directory in log.dirs"
        )
    if meta.get("node.id") != str(node_id):
        raise InconsistentClusterIdError(
            f"log dir {path} belongs to node {meta.get('node.id')!r}, not to node {node_id}: give the right node.id, or "
            "another directory in log.dirs"
        )


class LogDir:
    """`open` makes one; `close` must be called. `logs` has damaged logs too (`Log.damage`)."""

    def __init__(
        self,
        path: str,
        fs: FileSystem,
        lock: Lock,
        meta: Mapping[str, str],
        config_for: ConfigFor,
        *,
        threads: int,
        observer: LogObserver,
        open_segments: OpenSegments,
    ) -> None:
        self.path = path
        self.cluster_id = meta["cluster.id"]
        self.node_id = int(meta["node.id"])
        self.directory_id = meta.get("directory.id", "")
        self.was_clean = False
        """Whether the last stop was clean, so that nothing had to be recovered."""
        self.clean_broker_epoch = NO_BROKER_EPOCH
        """The broker epoch of the last stop, if that was clean and the marker says it."""
        self._fs = fs
        self._lock = lock
        self._config_for = config_for
        self._threads = threads
        self._observer = observer
        self.open_segments = open_segments
        """What the logs hold open."""
        self._logs: dict[TopicPartitionKey, Log] = {}
        self._topic_ids: dict[TopicPartitionKey, bytes] = {}
        self.missing_logs: frozenset[TopicPartitionKey] = frozenset()
        """Logs that had synced records when the directory was last in use, and were not there when it was opened."""
        self._unsynced_names: set[Log] = set()
        """New logs whose names in the directory are not synced."""
        self._names_lock = threading.Lock()
        """Held while those names are synced: one sync serves all logs that wait for it."""
        self._names_failure: OSError | None = None
        """A failed sync of names is never repeated: it might succeed without those that were lost."""
        self._checkpoint_lock = threading.Lock()
        """Guards the checkpoint files that are written from other threads too, and what is known to be in them."""
        self._recovery_points: dict[TopicPartitionKey, int] = {}
        self._log_start_offsets: dict[TopicPartitionKey, int] = {}
        self._cleaner_offsets: dict[TopicPartitionKey, int] = {}
        self._high_watermarks: dict[TopicPartitionKey, int] = {}
        self._announced_starts: dict[TopicPartitionKey, int] = {}
        """Recorded starts that logs are about to have."""
        self._is_loading = True

    @classmethod
    def open(
        cls,
        path: str,
        *,
        fs: FileSystem,
        node_id: int,
        cluster_id: str,
        now_ms: int,
        config: LogConfig | ConfigFor | None = None,
        on_progress: Callable[[int, int], None] | None = None,
        observer: LogObserver = SILENT,
        threads: int = 1,
        max_open_files: int = DEFAULT_MAX_OPEN_FILES,
    ) -> "LogDir":
        """Take the directory and load its logs, recovering them after an unclean stop.

        `config`: of all logs, or by topic. `on_progress(loaded, total)` is called in this thread, first with 0, then
        after each log. `threads`: how many logs are loaded, and at the end closed, at the same time. `max_open_files`:
        how many segments are kept open, but for those that wait for a flush. Raises `LogDirLockedError` (another process
        has it), `LogDirNotFoundError` (not formatted), `InconsistentClusterIdError` (another cluster's or node's),
        `StorageError`.
        """
        config_for = config if callable(config) else _constant(config or LogConfig())
        with storage_errors("open log dir", path):
            lock = _take_lock(fs, path)
            try:
                meta = read_properties(fs, os.path.join(path, layout.META_PROPERTIES_FILE))
                if meta is None or "cluster.id" not in meta:
                    raise LogDirNotFoundError(
                        f"{path} is not a log dir of kraftlog (no {layout.META_PROPERTIES_FILE}): run kraftctl storage format"
                    )
                _check_identity(meta, path, cluster_id, node_id)
                open_segments = OpenSegments(max_files=max_open_files)
                log_dir = cls(
                    path, fs, lock, meta, config_for, threads=threads, observer=observer, open_segments=open_segments
                )
                log_dir._load(now_ms, on_progress)
            except BaseException:
                lock.release()
                raise
        return log_dir

    @property
    def logs(self) -> Mapping[TopicPartitionKey, Log]:
        """By (topic, partition)."""
        return MappingProxyType(self._logs)

    def topic_id(self, topic: str, partition: int) -> bytes:
        """The id in the log's `partition.metadata`; 16 zero bytes if it has none."""
        return self._topic_ids.get((topic, partition), NO_TOPIC_ID)

    def sizes(self) -> LogSizes:
        """What is in the directory, by what the logs know: reads no file. Safe from any thread."""
        logs = list(self._logs.values())
        return LogSizes(len(logs), sum(log.segment_count for log in logs), sum(log.size_bytes for log in logs))

    # Logs.

    def create_log(
        self,
        topic: str,
        partition: int,
        topic_id: bytes = NO_TOPIC_ID,
        config: LogConfig | None = None,
        *,
        now_ms: int,
        settles: bool = True,
    ) -> Log:
        """Make an empty log, durably. Raises `InvalidTopicError`, `TopicAlreadyExistsError`, `StorageError`.

        `settles`: false for a log that becomes durable with its first flush (`Log.settle`). Before that a power loss may
        leave it out, or without its topic id: whoever knows that it must be there makes it anew.
        """
        validate_topic_name(topic)
        key = (topic, partition)
        if key in self._logs:
            raise TopicAlreadyExistsError(f"{topic}-{partition} exists in {self.path}")
        directory = os.path.join(self.path, layout.log_directory_name(topic, partition))
        with storage_errors("create log", directory):
            self._forget(key)
            self._forget_high_watermark(key)
            self._fs.mkdir(directory)
            if topic_id != NO_TOPIC_ID:
                metadata = os.path.join(directory, layout.PARTITION_METADATA_FILE)
                write_partition_metadata(self._fs, metadata, topic_id, is_new=True)
            log = self._open_log(
                key, directory, config or self._config_for(topic), now_ms, is_clean=True, is_settled=False
            )
            self._unsynced_names.add(log)
            if settles:
                log.settle()
        self._logs[key] = log
        self._topic_ids[key] = topic_id
        return log

    def settle(self, log: Log) -> None:
        with contextlib.suppress(FileNotFoundError):  # a log without a topic id
            sync_file(self._fs, os.path.join(log.directory, layout.PARTITION_METADATA_FILE))
        self._fs.fsync_dir(log.directory)
        with self._names_lock:
            if log in self._unsynced_names:  # else another log's sync has served it
                self._sync_names()

    def _sync_names(self) -> None:
        """Caller holds the names lock."""
        if self._names_failure is not None:
            raise self._names_failure
        names = set(self._unsynced_names)  # read first: what is made from here on waits for the next sync
        try:
            self._fs.fsync_dir(self.path)
        except OSError as e:
            if not is_disk_full(e):
                self._names_failure = e
            raise
        self._unsynced_names -= names

    def delete_log(self, topic: str, partition: int) -> None:
        """Close and remove a log. The directory is renamed first: after a crash it is gone or complete, never half."""
        key = (topic, partition)
        log = self._logs.pop(key, None)
        if log is None:
            return
        log.abandon()
        self._unsynced_names.discard(log)
        topic_id = self._topic_ids.pop(key, NO_TOPIC_ID)
        with storage_errors("delete log", log.directory):
            doomed = os.path.join(self.path, layout.deleted_directory_name(topic, partition, topic_id))
            if self._fs.size(doomed) is not None:
                remove_flat_directory(self._fs, doomed)
            self._fs.rename(log.directory, doomed)
            self._fs.fsync_dir(self.path)
            self._forget(key)
            remove_flat_directory(self._fs, doomed)

    def set_aside_log(self, topic: str, partition: int, ending: str) -> None:
        """Close a log and rename its directory, so that no start takes it for a log again; its bytes stay. `ending`: one
        of `layout`'s."""
        key = (topic, partition)
        log = self._logs.pop(key)
        log.abandon()
        self._unsynced_names.discard(log)
        topic_id = self._topic_ids.pop(key, NO_TOPIC_ID)
        with storage_errors("set aside", log.directory):
            name = layout.retired_directory_name(topic, partition, topic_id, ending)
            number = 1
            while self._fs.size(aside := self._file(name if number == 1 else f"{name}.{number}")) is not None:
                number += 1
            self._fs.rename(log.directory, aside)
            self._fs.fsync_dir(self.path)
            self._forget(key)
        logger.warning("%s is no log any more; what it held is kept in %s", log.directory, aside)

    def adopt_log(self, topic: str, partition: int, topic_id: bytes) -> None:
        """Say durably of which topic a log is whose `partition.metadata` is lost."""
        directory = self._logs[topic, partition].directory
        with storage_errors("write the topic id of", directory):
            write_partition_metadata(self._fs, os.path.join(directory, layout.PARTITION_METADATA_FILE), topic_id)
            self._fs.fsync_dir(directory)
        self._topic_ids[topic, partition] = topic_id

    # Checkpoints.

    def checkpoint(self) -> None:
        """Record flushed ends and log start offsets, as they are now; nothing is written if they are recorded already.

        Raises `StorageError`.
        """
        with storage_errors("write checkpoints in", self.path):
            self.advance()
            with self._checkpoint_lock:
                self._write_log_start_offsets()

    def advance(self) -> None:
        if self._is_loading:
            return  # recorded once when all logs are there
        with self._checkpoint_lock:
            self._write_recovery_points()

    def retreat(self, log: Log, end_offset: int) -> None:
        key = (log.topic, log.partition)
        with self._checkpoint_lock:
            if self._high_watermarks.get(key, 0) > end_offset and not self._is_loading:
                self._write_high_watermarks({**self._high_watermarks, key: end_offset})
            if self._recovery_points.get(key, 0) > log.flushed_end_offset:
                self._write_recovery_points({key: log.flushed_end_offset})
            if self._cleaner_offsets.get(key, 0) > log.flushed_end_offset:  # what comes instead is not compacted
                self._write_cleaner_offsets({**self._cleaner_offsets, key: log.flushed_end_offset})
            if self._announced_starts.get(key, 0) > log.flushed_end_offset:
                del self._announced_starts[key]  # the log will not reach that far
            start_offset = max(log.log_start_offset, self._announced_starts.get(key, 0))
            if self._log_start_offsets.get(key, 0) > start_offset:
                self._write_log_start_offsets({key: start_offset})

    def synced_end(self, log: Log) -> int:
        return self._synced_end((log.topic, log.partition))

    def record_log_starts(
        self, starts: Mapping[Log, int], truncations: Mapping[Log, int] = MappingProxyType({})
    ) -> None:
        """Record where logs are about to start, durably, before anybody learns of it: a start never moves back.

        `truncations`: those of a log when its start was decided; it is void if the log was cut since, which the caller must
        look at, too. Any thread; the log's writer then calls `advance_log_start_offset` or `detach`. Raises `StorageError`.
        """
        for log in starts:
            log.settle()  # one that is made anew starts anew
        with storage_errors("write checkpoints in", self.path), self._checkpoint_lock:
            for log, start_offset in starts.items():
                key = (log.topic, log.partition)
                if self._logs.get(key) is log and log.truncations == truncations.get(log, log.truncations):
                    self._announced_starts[key] = max(start_offset, self._announced_starts.get(key, 0))
            self._write_log_start_offsets()

    def high_watermarks(self) -> dict[TopicPartitionKey, int]:
        """As last written by `checkpoint_high_watermarks`; {} if the file is missing or damaged."""
        with storage_errors("read", self.path):
            return recorded_offsets(self._fs, self.path, layout.HIGH_WATERMARK_FILE) or {}

    def checkpoint_high_watermarks(self, high_watermarks: Callable[[], Mapping[TopicPartitionKey, int]]) -> None:
        """Record what `high_watermarks` answers; nothing is written if it is recorded already.

        It is asked while no name is freed and no cut is announced, which an earlier answer could undo. From the announcement
        on it says nothing above the cut. Raises `StorageError`.
        """
        with storage_errors("write checkpoints in", self.path), self._checkpoint_lock:
            self._write_high_watermarks(high_watermarks())

    def cleaned_to(self, log: Log) -> int:
        """Up to where the log has been compacted; 0 if it never was. Any thread."""
        return self._cleaner_offsets.get((log.topic, log.partition), 0)

    def record_cleaned_to(self, log: Log, offset: int, truncations: int) -> None:
        """Record up to where a log has been compacted, unless it was cut since it had `truncations`, or is gone. Any
        thread. Raises `StorageError`."""
        key = (log.topic, log.partition)
        with storage_errors("write checkpoints in", self.path), self._checkpoint_lock:
            if self._logs.get(key) is log and log.truncations == truncations and offset != self.cleaned_to(log):
                self._write_cleaner_offsets({**self._cleaner_offsets, key: offset})

    def _write_cleaner_offsets(self, offsets: dict[TopicPartitionKey, int]) -> None:
        write_offset_checkpoint(self._fs, self._file(layout.CLEANER_OFFSET_FILE), offsets)
        self._cleaner_offsets = offsets

    def close(self, clean: bool = True, *, broker_epoch: int | None = None) -> None:
        """Close all logs and give up the lock. With `clean` and no log damaged or failed, the next start trusts it all.

        `broker_epoch`: in which the broker stops; None: it has not registered since the directory was opened.
        """
        is_sound = clean
        try:
            logs = [self._logs[key] for key in sorted(self._logs)]
            for log, outcome in run_all(lambda log: log.close(clean), logs, self._threads):
                if isinstance(outcome, StorageError):
                    logger.error("%s is not closed cleanly: %s", log.name, outcome)
                    is_sound = False
                elif isinstance(outcome, Exception):
                    raise outcome
                else:
                    is_sound &= outcome
            if clean:
                self.checkpoint()
            if is_sound:
                with storage_errors("close log dir", self.path):
                    epoch = self.clean_broker_epoch if broker_epoch is None else broker_epoch
                    atomic_write(self._fs, self._file(layout.CLEAN_SHUTDOWN_FILE), _marker(epoch))
        finally:
            self._lock.release()

    # Internals.

    def _load(self, now_ms: int, on_progress: Callable[[int, int], None] | None) -> None:
        self.clean_broker_epoch = self._marked_epoch()
        self.was_clean = unlink_if_exists(self._fs, self._file(layout.CLEAN_SHUTDOWN_FILE))
        self._fs.fsync_dir(self.path)
        self._recovery_points = recorded_offsets(self._fs, self.path, layout.RECOVERY_POINT_FILE) or {}
        self._log_start_offsets = recorded_offsets(self._fs, self.path, layout.LOG_START_OFFSET_FILE) or {}
        self._cleaner_offsets = recorded_offsets(self._fs, self.path, layout.CLEANER_OFFSET_FILE) or {}
        self._high_watermarks = recorded_offsets(self._fs, self.path, layout.HIGH_WATERMARK_FILE) or {}
        found = self._find_logs()
        synced = {key for key, offset in (*self._recovery_points.items(), *self._cleaner_offsets.items()) if offset}
        self.missing_logs = frozenset(synced - {key for key, _ in found})
        report = on_progress or (lambda loaded, total: None)
        report(0, len(found))
        failures: dict[TopicPartitionKey, Exception] = {}
        outcomes = run_all(lambda place: self._load_log(*place, now_ms), found, self._threads)
        for number, ((key, directory), outcome) in enumerate(outcomes):
            if isinstance(outcome, Exception):
                logger.error("%s cannot be loaded: %s", directory, outcome)
                failures[key] = outcome
            else:
                self._logs[key], self._topic_ids[key] = outcome
            report(number + 1, len(found))
        if failures:
            raise failures[min(failures)]
        self._logs = dict(sorted(self._logs.items()))  # whatever order the threads were in
        self._is_loading = False
        for key, directory in found:
            self._remove_unfinished(key, directory)
        if any(self._recovery_points.get(key, 0) != log.recovery_point for key, log in self._logs.items()):
            self._record_recovered_ends()
        self._lower_high_watermarks()

    def _remove_unfinished(self, key: TopicPartitionKey, directory: str) -> None:
        """See the module. Not the metadata log, which is durable before the directory counts as formatted."""
        metadata = os.path.join(directory, layout.PARTITION_METADATA_FILE)
        if (
            self._topic_ids[key] != NO_TOPIC_ID
            or self._has_recorded(key)
            or key[0] == CLUSTER_METADATA_TOPIC
            or not is_partition_metadata_torn(self._fs, metadata)
        ):
            return
        logger.info("%s was new, and a power loss has taken its topic id", directory)
        if self._logs[key].log_end_offset:
            self.set_aside_log(*key, layout.STRAY_DIRECTORY_SUFFIX)
        else:
            self.delete_log(*key)

    def _marked_epoch(self) -> int:
        """Of the marker; -1 if there is none, or one that does not say it."""
        path = self._file(layout.CLEAN_SHUTDOWN_FILE)
        size = self._fs.size(path)
        if not size:
            return NO_BROKER_EPOCH
        try:
            content = json.loads(read_file(self._fs, path)) if size <= _MAX_MARKER_BYTES else None
        except (ValueError, RecursionError):
            content = None
        match content:
            case {"version": 0, "brokerEpoch": int(epoch)} if NO_BROKER_EPOCH <= epoch < 1 << 63 and not isinstance(
                epoch, bool
            ):
                return epoch
        logger.warning("%s does not say in which broker epoch the node stopped", path)
        return NO_BROKER_EPOCH

    def _record_recovered_ends(self) -> None:
        """On a full disk later: what was recovered is synced, and all that an older point costs is time at the next start."""
        try:
            self.advance()
        except OSError as e:
            if not is_disk_full(e) or any(log.has_new_gap for log in self._logs.values()):
                raise
            logger.warning("starting on a full disk: %s", e)

    def _lower_high_watermarks(self) -> None:
        """To where logs end: what comes above is not committed because something was, there, before a power loss."""
        ends = {key: log.log_end_offset for key, log in self._logs.items()}
        lowered = {key: min(mark, ends.get(key, mark)) for key, mark in self._high_watermarks.items()}
        try:
            with self._checkpoint_lock:
                self._write_high_watermarks(lowered)
        except OSError as e:
            if not is_disk_full(e):
                raise
            logger.warning("starting on a full disk: %s", e)

    def _load_log(self, key: TopicPartitionKey, directory: str, now_ms: int) -> tuple[Log, bytes]:
        """The log and its topic's id. In any thread, for different logs at the same time."""
        log = self._open_log(
            key,
            directory,
            self._config_for(key[0]),
            now_ms,
            is_clean=self.was_clean,
            is_settled=self._has_recorded(key),  # else an earlier process may have ended before it settled the log
        )
        if log.damage is not None:
            logger.error("%s is damaged and takes no writes: %s", log.name, log.damage)
        metadata = os.path.join(directory, layout.PARTITION_METADATA_FILE)
        return log, read_partition_metadata(self._fs, metadata) or NO_TOPIC_ID

    def _find_logs(self) -> list[tuple[TopicPartitionKey, str]]:
        found: list[tuple[TopicPartitionKey, str]] = []
        for name in self._fs.listdir(self.path):
            path = os.path.join(self.path, name)
            if name.endswith(TEMPORARY_SUFFIX):
                unlink_if_exists(self._fs, path)
            elif name.endswith(layout.DELETE_DIRECTORY_SUFFIX) and "." in name:
                logger.info("removing %s, whose deletion was interrupted", path)
                remove_flat_directory(self._fs, path)
            elif (key := layout.parse_log_directory(name)) is not None:
                found.append((key, path))
        return found

    def _open_log(
        self,
        key: TopicPartitionKey,
        directory: str,
        config: LogConfig,
        now_ms: int,
        *,
        is_clean: bool,
        is_settled: bool,
    ) -> Log:
        return Log(
            self._fs,
            directory,
            topic=key[0],
            partition=key[1],
            config=config,
            now_ms=now_ms,
            recovery_point=self._synced_end(key),
            log_start_offset=self._log_start_offsets.get(key, 0),
            is_clean=is_clean,
            is_settled=is_settled,
            recovery_points=self,
            observer=self._observer,
            open_segments=self.open_segments,
        )

    def _synced_end(self, key: TopicPartitionKey) -> int:
        """Up to where the log is known to be on disk: its recovery point, or where compaction has come to.

        The cleaner, Kafka's too, syncs what it writes. Kafka records recovery points once a minute only, and gaps that
        compaction made above them are no loss.
        """
        return max(self._recovery_points.get(key, 0), self._cleaner_offsets.get(key, 0))

    def _has_recorded(self, key: TopicPartitionKey) -> bool:
        """Whether anything is known to be on disk of the log; only of one that is settled."""
        return self._synced_end(key) > 0 or self._log_start_offsets.get(key, 0) > 0

    def _forget(self, key: TopicPartitionKey) -> None:
        """See to it that no checkpoint speaks of an earlier log of that name."""
        with self._checkpoint_lock:
            if key in self._recovery_points:
                self._write_recovery_points()
            self._announced_starts.pop(key, None)
            if key in self._log_start_offsets:
                self._write_log_start_offsets()
            if key in self._cleaner_offsets:
                self._write_cleaner_offsets({k: offset for k, offset in self._cleaner_offsets.items() if k != key})

    def _forget_high_watermark(self, key: TopicPartitionKey) -> None:
        """Before a name is used again: that of the log before is not recorded any more. Those of all that are gone go at once, so
        that deleting many logs writes nothing, and making them anew once."""
        with self._checkpoint_lock:
            if key in self._high_watermarks:
                self._write_high_watermarks({k: mark for k, mark in self._high_watermarks.items() if k in self._logs})

    def _write_high_watermarks(self, high_watermarks: Mapping[TopicPartitionKey, int]) -> None:
        """Caller holds the checkpoint lock, and reads them only then."""
        if high_watermarks != self._high_watermarks:
            write_offset_checkpoint(self._fs, self._file(layout.HIGH_WATERMARK_FILE), high_watermarks)
            self._high_watermarks = dict(high_watermarks)

    def _write_recovery_points(self, changed: Mapping[TopicPartitionKey, int] = MappingProxyType({})) -> None:
        """Caller holds the checkpoint lock, and reads the offsets only then: a retreat in between must not be undone.

        `changed`: offsets of logs that are being loaded.
        """
        points = {**self._recovery_points, **changed} if self._is_loading else {}
        points |= {key: log.recovery_point for key, log in list(self._logs.items())}
        if points != self._recovery_points:
            write_offset_checkpoint(self._fs, self._file(layout.RECOVERY_POINT_FILE), points)
            self._recovery_points = points

    def _write_log_start_offsets(self, changed: Mapping[TopicPartitionKey, int] = MappingProxyType({})) -> None:
        """As `_write_recovery_points`. All starts above 0, unlike Kafka also of logs whose first segment begins there: a
        power loss may bring deleted segments back."""
        starts = {**self._log_start_offsets, **changed} if self._is_loading else {}
        for key, log in list(self._logs.items()):
            start_offset = log.log_start_offset
            if self._announced_starts.get(key, 0) > start_offset:
                start_offset = self._announced_starts[key]
            else:
                self._announced_starts.pop(key, None)
            if start_offset:
                starts[key] = start_offset
            else:
                starts.pop(key, None)
        if starts != self._log_start_offsets:
            write_offset_checkpoint(self._fs, self._file(layout.LOG_START_OFFSET_FILE), starts)
            self._log_start_offsets = starts

    def _file(self, name: str) -> str:
        return os.path.join(self.path, name)


def _marker(broker_epoch: int) -> bytes:
    return b'{"version":0,"brokerEpoch":%d}' % broker_epoch


def _take_lock(fs: FileSystem, path: str) -> Lock:
    try:
        return fs.lock(os.path.join(path, layout.LOCK_FILE))
    except BlockingIOError:
        raise LogDirLockedError(
            f"log dir {path} is in use by another process: stop that node, or give another directory in log.dirs"
        ) from None
    except FileNotFoundError:
        raise LogDirNotFoundError(f"log dir {path} does not exist: run kraftctl storage format") from None


def _constant(config: LogConfig) -> ConfigFor:
    return lambda topic: config
