"""White-box rules of the running nodes, looked at after every event of theirs.

W-1  log start <= high watermark <= log end and flushed end <= log end, of every partition
W-2  within one life of a replica: log start and high watermark of a partition never go back, and of a leader neither do log
     end and flushed end (a follower truncates what its leader does not have)
W-3  where the metadata count on it (flush.policy=ack) the high watermark never passes the leader's flushed end
W-4  what was acknowledged is below the log end of the newest leader
I-08 a leader epoch has one leader
I-12 what lies below a high watermark is the same on all nodes, byte for byte, but for what is deleted elsewhere on a replica
     that is not in sync: it may have there what never was committed, and goes without it when it takes over the start; of a compacted topic the records that are left,
     once everything has healed, and the last one of each key is left everywhere
"""

import zlib
from collections import deque
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Protocol

from kraftlog.proto.records import read_header
from kraftlog.testing.sim.durable import CachedLogs
from kraftlog.testing.sim.history import History, TopicPartition

Ends = tuple[int, int, int, int]
"""(log start, log end, flushed end, high watermark)"""


class _Log(Protocol):
    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def flushed_end_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...


class _Partition(Protocol):
    """The part of `kraftlog.replication.partition.Partition` that is looked at."""

    @property
    def log(self) -> _Log: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def is_leader(self) -> bool: ...

    @property
    def is_in_sync(self) -> bool: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def is_flushed(self) -> bool: ...


class ClusterChecks:
    """What the nodes of a cluster must agree about. One for each run."""

    def __init__(
        self, history: History, *, has_replicas: bool = False, is_user_topic: Callable[[str], bool] = lambda _: True
    ) -> None:
        self._history = history
        self._has_replicas = has_replicas and not history.is_compacted
        self._is_user_topic = is_user_topic
        self._leaders: dict[tuple[TopicPartition, int], int] = {}
        self._newest_epochs: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, dict[int, int]] = {}
        """Base offset -> CRC of the whole batch, of those below some node's high watermark."""

    def check_survivors(
        self, where: TopicPartition, logs: Mapping[int, Mapping[int, tuple[bytes | None, bytes | None]]]
    ) -> None:
        """`logs`: of each node, which have nothing but what is committed. Each deletes old segments when it likes."""
        gone_below = self._history.partition(where).gone_below
        found: dict[int, tuple[tuple[bytes | None, bytes | None], int]] = {}
        for node_id, records in logs.items():
            for offset, record in records.items():
                known, other = found.setdefault(offset, (record, node_id))
                if known != record:
                    self._history.violate("I-12", f"{where}@{offset}: nodes {other} and {node_id} differ")
        last = {record[0]: offset for offset, (record, _) in sorted(found.items())}
        for node_id, records in logs.items():
            for key, offset in last.items():
                if offset not in records and offset >= gone_below:
                    self._history.violate("I-12", f"{where}@{offset}: node {node_id} lacks the last record of {key!r}")

    def compares(self, topic: str) -> bool:
        """Whether the batches of the topic stay as they are on every node: compaction would thin them."""
        return self._has_replicas and self._is_user_topic(topic)

    def is_newest_leader(self, where: TopicPartition, leader_epoch: int, node_id: int) -> bool:
        """Note who leads; whether no later leader is known."""
        leader = self._leaders.setdefault((where, leader_epoch), node_id)
        if leader != node_id:
            self._history.violate("I-08", f"{where}: nodes {leader} and {node_id} lead epoch {leader_epoch}")
        newest = self._newest_epochs[where] = max(self._newest_epochs.get(where, leader_epoch), leader_epoch)
        return leader_epoch == newest

    def on_committed(self, where: TopicPartition, base_offset: int, batch: bytes, node_id: int) -> None:
        """A batch lies below the high watermark of a node."""
        crc = zlib.crc32(batch)
        if self._committed.setdefault(where, {}).setdefault(base_offset, crc) != crc:
            self._history.violate("I-12", f"{where}@{base_offset}: node {node_id} has another committed batch")


_state_of = attrgetter("high_watermark", "log")
_ends_of_log = attrgetter("log_start_offset", "log_end_offset", "flushed_end_offset")


class NodeChecks:
    """Of one life of a node; make a new one for the next."""

    def __init__(
        self,
        history: History,
        cluster: ClusterChecks | None = None,
        *,
        node_id: int = 1,
        logs: CachedLogs | None = None,
        wall_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        """`logs`: as this life of the node finds and writes them; None: no bytes are looked at. `wall_ms`: the latest time
        by which the node may judge the age of records."""
        self._wall_ms = wall_ms
        self._history = history
        self._cluster = cluster or ClusterChecks(history)
        self._node_id = node_id
        self._logs = logs
        self._seen: dict[TopicPartition, Ends] = {}
        """As of the last event."""
        self._partitions: list[_Partition] = []
        """Of the node, as of the last event; the following lists are of the same order."""
        self._states: list[tuple[int, _Log]] = []
        self._open_logs: list[_Log] = []
        self._ends_of_logs: list[tuple[int, int, int]] = []
        self._uncommitted: dict[TopicPartition, deque[tuple[int, int, bytes]]] = {}
        """(base offset, next offset, batch) of what was not below the high watermark when it was read."""

    def check(self, partitions: Mapping[TopicPartition, _Partition]) -> None:
        """Look at all partitions; cheap where nothing has changed."""
        if (
            list(partitions.values()) != self._partitions
            or list(map(_state_of, self._partitions)) != self._states
            or list(map(_ends_of_log, self._open_logs)) != self._ends_of_logs
        ):
            self._look(partitions)

    def _look(self, partitions: Mapping[TopicPartition, _Partition]) -> None:
        seen = self._seen
        for where in seen.keys() - partitions.keys():  # taken away; if it comes back, it is another replica
            del seen[where]
            self._uncommitted.pop(where, None)
            if self._logs is not None:
                self._logs.forget_partition(*where)
        self._partitions = list(partitions.values())
        self._states = list(map(_state_of, self._partitions))
        self._open_logs = [log for _, log in self._states]
        self._ends_of_logs = list(map(_ends_of_log, self._open_logs))
        for where, partition in partitions.items():
            log = partition.log
            ends = (log.log_start_offset, log.log_end_offset, log.flushed_end_offset, partition.high_watermark)
            if seen.get(where) != ends:
                self._check_change(where, partition, ends)
                seen[where] = ends

    def _check_change(self, where: TopicPartition, partition: _Partition, ends: Ends) -> None:
        log_start, log_end, flushed_end, high_watermark = ends
        name = f"{where[0]}-{where[1]}"
        if not (log_start <= high_watermark <= log_end and flushed_end <= log_end):
            self._history.violate("W-1", f"{name}: {_text(ends)}")
        before = self._seen.get(where, (0, 0, 0, 0))
        is_shorter = log_end < before[1] or flushed_end < before[2]
        if log_start < before[0] or high_watermark < before[3] or (is_shorter and partition.is_leader):
            self._history.violate("W-2", f"{name}: from {_text(before)} to {_text(ends)}")
        if log_start > before[0]:
            self._history.on_log_start(
                f"node {self._node_id}", where, log_start, size_bytes=partition.log.size_bytes, now_ms=self._wall_ms()
            )
        if partition.is_leader:
            if partition.is_flushed and high_watermark > flushed_end:
                self._history.violate("W-3", f"{name}: {_text(ends)}")
            if self._cluster.is_newest_leader(where, partition.leader_epoch, self._node_id):
                known = self._history.partitions.get(where)
                if known is not None and log_start < known.deleted_start:
                    self._history.violate(
                        "I-07", f"{name}: all below {known.deleted_start} had been deleted, {_text(ends)}"
                    )
                if known is not None and log_end < known.acked_end:
                    self._history.violate("W-4", f"{name}: acknowledged below {known.acked_end}, {_text(ends)}")
        if self._logs is not None and self._cluster.compares(where[0]):
            excused_end = 0 if partition.is_in_sync else self._history.partition(where).gone_below
            self._compare(self._logs, where, high_watermark, is_shorter=is_shorter, excused_end=excused_end)

    def _compare(
        self, logs: CachedLogs, where: TopicPartition, high_watermark: int, *, is_shorter: bool, excused_end: int
    ) -> None:
        uncommitted = self._uncommitted.setdefault(where, deque())
        if is_shorter:
            logs.forget_partition(*where)
            uncommitted.clear()
        if high_watermark == self._seen.get(where, (0, 0, 0, 0))[3] and not is_shorter:
            return
        for batch in logs.take_new(*where):
            header = read_header(batch, 0)
            uncommitted.append((header.base_offset, header.next_offset, batch))
        while uncommitted and uncommitted[0][1] <= high_watermark:
            base_offset, next_offset, batch = uncommitted.popleft()
            if next_offset > excused_end:
                self._cluster.on_committed(where, base_offset, batch, self._node_id)


def _text(ends: Ends) -> str:
    return "log start {}, log end {}, flushed end {}, high watermark {}".format(*ends)
