"""Fetching ahead: keeps each assigned partition's position at its leader's stream and fills the buffers.

`update` compares what should be fetched with what is, after any change; everything else reports to it. Used only on the
client's loop; the partitions' state is changed under the consumer's lock, because `poll` may run in another thread.
"""

import logging
import threading
from collections.abc import Callable, Iterable
from typing import cast

from kraftlog.proto import broker_pb2
from kraftlog.proto.errors import (
    FencedLeaderEpochError,
    KraftlogError,
    OffsetOutOfRangeError,
    UnknownServerError,
    error_for,
)
from kraftlog.proto.hotpath import FetchPosition, FetchRequest, PartitionChunk
from kraftlog.proto.seams import Buffer, Clock, Random
from kraftlog.sdk.config import ConsumerConfig
from kraftlog.sdk.consumer.chunks import Chunk
from kraftlog.sdk.consumer.fetch_stream import FetchStream
from kraftlog.sdk.consumer.state import PartitionState, Subscriptions
from kraftlog.sdk.metadata import METADATA_METHOD, Cluster
from kraftlog.sdk.types import NodeInfo, TopicPartition
from kraftlog.sdk.waiting import Backoff, Tasks, sleep_ms

log = logging.getLogger("kraftlog.sdk")

MAX_WINDOW_BYTES = 16 * 1024 * 1024  # of one stream: more only moves memory around
LEADER_ONLY_MS = 5_000.0  # after a follower failed; then the leader may name one again


class Fetcher:
    """The fetch streams of one consumer."""

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        subscriptions: Subscriptions,
        lock: threading.Lock,
        *,
        clock: Clock,
        random: Random,
        on_data: Callable[[], None],
    ) -> None:
        """`on_data` is called when there is something for `poll` to look at."""
        self._config = config
        self._cluster = cluster
        self._subscriptions = subscriptions
        self._lock = lock
        self._clock = clock
        self._random = random
        self._on_data = on_data
        self.tasks = Tasks()
        self._streams: dict[int, FetchStream] = {}
        self._backoffs: dict[int, Backoff] = {}
        self._is_closed = False
        cluster.add_listener(lambda _: self.update())

    def update(self) -> None:
        """Bring the streams in line with the assignment, positions and leaders."""
        if self._is_closed:
            return
        now_ms = self._clock.monotonic_ms()
        leaderless = False
        wait_until_ms = float("inf")
        with self._lock:
            for state in self._subscriptions.partitions.values():
                if not state.is_fetchable:
                    self._withdraw(state)
                elif state.retry_at_ms > now_ms:
                    wait_until_ms = min(wait_until_ms, state.retry_at_ms)
                else:
                    node = self._node_for(state, now_ms)
                    if node is None:
                        leaderless = True
                        self._withdraw(state)
                        state.retry_at_ms = now_ms + self._config.retry_backoff_ms
                        wait_until_ms = min(wait_until_ms, state.retry_at_ms)
                    elif state.stream is None or state.stream.node_id != node.node_id or self._may_go(state, now_ms):
                        self._place(state, node, now_ms)
                    if state.leader_until_ms > now_ms:
                        wait_until_ms = min(wait_until_ms, state.leader_until_ms)
        if leaderless:
            self._cluster.refresh_soon()
        if wait_until_ms < float("inf"):
            self.tasks.start(self._update_later(wait_until_ms - now_ms), "fetch retry")

    def move(self, state: PartitionState, position: int | None) -> None:
        """Take a new position: what is buffered or under way is dropped. Caller holds the lock and calls `update`."""
        self._drop(self._subscriptions.clear_buffer(state))
        state.moves += 1
        state.position = position
        state.error = None
        state.retry_at_ms = 0.0
        if position is not None:
            state.reset_to = None
            state.fetch_offset = position
        self._withdraw(state)

    def pause(self, state: PartitionState) -> None:
        """Give back the credit of what is buffered; fetching goes on from the position after `resume`."""
        state.is_paused = True
        self.move_to_position(state)

    def move_to_position(self, state: PartitionState) -> None:
        """Drop what is buffered, keep the position."""
        reset_to = state.reset_to
        self.move(state, state.position)
        state.reset_to = reset_to

    def release(self, states: Iterable[PartitionState]) -> None:
        """Stop fetching partitions that are no longer assigned. Caller holds the lock."""
        for state in states:
            self._drop(list(state.buffer))
            state.buffer.clear()
            state.moves += 1
            self._withdraw(state)

    def return_credit(self, chunks: Iterable[Chunk]) -> None:
        """Chunks were handed out."""
        self._drop(chunks)

    async def close(self) -> None:
        self._is_closed = True
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()
        await self.tasks.cancel()

    # -- placing

    def _node_for(self, state: PartitionState, now_ms: float) -> NodeInfo | None:
        """Its leader, or the replica in this client's rack that the leader has named in this epoch."""
        metadata = self._cluster.metadata
        leader = metadata.leader(*state.tp)
        if state.read_replica is None or leader is None:
            return leader
        known, node = metadata.partition(*state.tp), metadata.nodes.get(state.read_replica)
        if (
            known is not None
            and known.leader_epoch == state.read_epoch
            and state.read_replica in known.in_sync_replicas
            and node is not None
            and not node.fenced
            and now_ms < state.read_replica_until_ms
        ):
            return node
        state.read_replica = None
        return leader

    def _may_go(self, state: PartitionState, now_ms: float) -> bool:
        """Whether it is time to let the leader name a follower again, after one has failed."""
        is_over = 0 < state.leader_until_ms <= now_ms
        if is_over:
            state.leader_until_ms = 0.0
        return is_over and state.read_replica is None

    def _leave_follower(self, state: PartitionState) -> None:
        """It failed: for a while only the leader is asked."""
        state.read_replica = None
        state.leader_until_ms = self._clock.monotonic_ms() + LEADER_ONLY_MS

    def _place(self, state: PartitionState, node: NodeInfo, now_ms: float) -> None:
        self._withdraw(state)
        if state.leader_until_ms <= now_ms:
            state.leader_until_ms = 0.0
        stream = self._stream(node)
        known = self._cluster.metadata.partition(*state.tp)
        state.generation = self._subscriptions.next_generation()
        state.stream = stream
        stream.set(
            FetchPosition(
                topic=state.tp.topic,
                partition=state.tp.partition,
                fetch_offset=state.fetch_offset,
                generation=state.generation,
                max_bytes=self._config.max_partition_fetch_bytes,
                current_leader_epoch=known.leader_epoch if known is not None else -1,
                last_fetched_epoch=-1,
                end_offset=state.stop_offset or 0,
                any_replica=bool(self._config.client_rack) and not state.leader_until_ms,
            )
        )

    def _withdraw(self, state: PartitionState) -> None:
        """Stop fetching; a chunk under way becomes stale."""
        if state.stream is None:
            return
        if not state.stream.is_closed:
            state.stream.forget(state.tp.topic, state.tp.partition)
        state.stream = None
        state.generation = self._subscriptions.next_generation()

    def _stream(self, node: NodeInfo) -> FetchStream:
        stream = self._streams.get(node.node_id)
        if stream is None:
            config = self._config
            params = FetchRequest(
                max_wait_ms=config.fetch_max_wait_ms,
                min_bytes=config.fetch_min_bytes,
                max_bytes=min(config.fetch_max_bytes, MAX_WINDOW_BYTES),
                isolation_level=int(config.is_read_committed),
                rack=config.client_rack,
            )
            stream = self._streams[node.node_id] = FetchStream(
                node.node_id,
                self._cluster.channel(node),
                params,
                window_bytes=0,
                tasks=self.tasks,
                on_chunk=self._on_chunk,
                on_message=self._on_data,
                on_broken=self._on_broken,
            )
            self.tasks.start(self._watch(stream, node), f"watch of broker {node.node_id}")
            self._share_window()
        return stream

    def _share_window(self) -> None:
        """Divide fetch_max_bytes among the streams."""
        for stream in self._streams.values():
            stream.window_bytes = max(1, min(MAX_WINDOW_BYTES, self._config.fetch_max_bytes // len(self._streams)))
            stream.return_credit(0)

    async def _update_later(self, pause_ms: float) -> None:
        await sleep_ms(pause_ms)
        self.update()

    # -- what comes in

    def _on_chunk(self, stream: FetchStream, chunk: PartitionChunk) -> None:
        size_bytes = len(chunk.records)
        tp = TopicPartition(chunk.topic, chunk.partition)
        with self._lock:
            state = self._subscriptions.partitions.get(tp)
            if state is None or state.generation != chunk.generation or state.stream is not stream:
                stream.return_credit(size_bytes)
                return
            if chunk.error_code:
                self._on_error(state, chunk)
            elif chunk.preferred_read_replica:
                self._on_nearer_replica(state, chunk.preferred_read_replica - 1)
            elif chunk.diverging_end_offset or chunk.diverging_epoch > 0:
                self._on_divergence(state, chunk)
            else:
                self._on_records(state, stream, chunk)

    def _on_records(self, state: PartitionState, stream: FetchStream, chunk: PartitionChunk) -> None:
        self._backoffs.pop(stream.node_id, None)
        state.high_watermark = chunk.high_watermark
        state.last_stable_offset = chunk.last_stable_offset
        state.log_start_offset = chunk.log_start_offset
        if chunk.next_offset > state.fetch_offset:
            state.fetch_offset = chunk.next_offset
            data = memoryview(cast(Buffer, chunk.records))  # one buffer, as in every decoded message
            self._subscriptions.add_chunk(
                state, Chunk(data, chunk.next_offset, chunk.aborted_transactions, stream, state.stop_offset)
            )
        else:
            stream.return_credit(len(chunk.records))

    def _on_nearer_replica(self, state: PartitionState, node_id: int) -> None:
        now_ms = self._clock.monotonic_ms()
        state.stream = None  # the leader has dropped the position
        known = self._cluster.metadata.partition(*state.tp)
        state.read_replica, state.read_replica_until_ms = node_id, now_ms + self._config.metadata_max_age_ms
        state.read_epoch = -1 if known is None else known.leader_epoch
        if self._node_for(state, now_ms) is not None and state.read_replica is None:
            self._leave_follower(state)  # the metadata here do not know it like that yet
            self._cluster.refresh_soon()
        self.tasks.start(self._update_later(0), "read from another replica")

    def _on_error(self, state: PartitionState, chunk: PartitionChunk) -> None:
        if state.stream is not None and state.stream.node_id == state.read_replica:
            log.debug("fetch of %s from follower %d: %s", state.tp, state.read_replica, chunk.error_message)
            state.stream = None
            self._leave_follower(state)
            self._cluster.refresh_soon()
            self.tasks.start(self._update_later(0), "fetch from the leader")
            return
        error = error_for(
            chunk.error_code, f"{state.tp}: {chunk.error_message}" if chunk.error_message else str(state.tp)
        )
        log.debug("fetch of %s at %d: %s", state.tp, state.fetch_offset, error)
        state.stream = None  # the broker has dropped the position
        if isinstance(error, OffsetOutOfRangeError):
            state.error = OffsetOutOfRangeError(
                f"{state.tp}: offset {state.fetch_offset} is not in the log "
                f"({chunk.log_start_offset} to {chunk.high_watermark})"
            )
        elif error.retriable or isinstance(error, UnknownServerError | FencedLeaderEpochError):
            state.retry_at_ms = self._clock.monotonic_ms() + self._config.retry_backoff_ms
            self._cluster.refresh_soon()
            self.tasks.start(self._update_later(self._config.retry_backoff_ms), "fetch retry")
        else:
            state.error = error

    def _on_divergence(self, state: PartitionState, chunk: PartitionChunk) -> None:
        state.stream = None
        state.error = OffsetOutOfRangeError(
            f"{state.tp}: the log was truncated to {chunk.diverging_end_offset} "
            f"(epoch {chunk.diverging_epoch}) below the position {state.fetch_offset}"
        )

    def _on_broken(self, stream: FetchStream, error: KraftlogError) -> None:
        if self._streams.get(stream.node_id) is stream:
            del self._streams[stream.node_id]
        if self._is_closed:
            return
        log.debug("fetch stream of broker %d: %s", stream.node_id, error)
        backoff = self._backoffs.setdefault(
            stream.node_id, Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms, self._random)
        )
        pause_ms = backoff.next_ms()
        retry_at_ms = self._clock.monotonic_ms() + pause_ms
        with self._lock:
            for state in self._subscriptions.partitions.values():
                if state.stream is stream:
                    if state.read_replica == stream.node_id:
                        self._leave_follower(state)
                    state.stream = None
                    state.generation = self._subscriptions.next_generation()
                    if error.retriable or isinstance(error, UnknownServerError):
                        state.retry_at_ms = retry_at_ms
                    else:
                        state.error = error
        if self._streams:
            self._share_window()
        self._cluster.avoid(stream.node_id)
        self._cluster.refresh_soon()
        self.tasks.start(self._update_later(pause_ms), "fetch retry")
        self._on_data()

    async def _watch(self, stream: FetchStream, node: NodeInfo) -> None:
        """A stream without data may be idle or dead: ask the broker something when it is silent for long."""
        request = broker_pb2.MetadataRequest().SerializeToString()
        while not stream.is_closed:
            seen = stream.received
            await sleep_ms(self._config.request_timeout_ms)
            if stream.is_closed or stream.received != seen:
                continue
            try:
                await self._cluster.channel(node).unary(
                    METADATA_METHOD, request, timeout_ms=self._config.request_timeout_ms
                )
            except KraftlogError as error:
                stream.fail(error)

    @staticmethod
    def _drop(chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            if chunk.stream is not None and not chunk.stream.is_closed:
                chunk.stream.return_credit(chunk.size_bytes)
