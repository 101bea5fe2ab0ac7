"""The consumer's engine, shared by both faces. Used only on one event loop, except where a method says otherwise.

A poll runs in rounds: `next_step` returns records, nothing (the time is up), or a `ListenerCall` that the face makes in
the application's own context (a coroutine, or the calling thread) before it asks again. So a listener may use the
consumer, and partitions change hands only inside of a poll.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from kraftlog.proto.errors import (
    ClientClosedError,
    IllegalStateError,
    KraftlogError,
    OffsetOutOfRangeError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from kraftlog.proto.seams import Clock, Connector, Random
from kraftlog.sdk.config import ConsumerConfig
from kraftlog.sdk.consumer.chunks import Chunk
from kraftlog.sdk.consumer.commits import Commits, normalized
from kraftlog.sdk.consumer.cursor import Cursor
from kraftlog.sdk.consumer.fetcher import Fetcher
from kraftlog.sdk.consumer.listener import ConsumerRebalanceListener
from kraftlog.sdk.consumer.membership import Change, ChangeKind, Membership
from kraftlog.sdk.consumer.positions import PositionFinder
from kraftlog.sdk.consumer.state import ArrowBatch, Batch, PartitionState, Subscriptions, Taker
from kraftlog.sdk.failures import again
from kraftlog.sdk.group_client import GroupClient
from kraftlog.sdk.metadata import UNKNOWN_TOPIC_GRACE_MS, Cluster, ClusterMetadata
from kraftlog.sdk.offsets import OffsetFinder
from kraftlog.sdk.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from kraftlog.sdk.waiting import Event, Tasks, sleep_ms

if TYPE_CHECKING:
    import pyarrow

log = logging.getLogger("kraftlog.sdk")

T = TypeVar("T")

CLOSE_TIMEOUT_MS = 30_000.0  # of `close` without an argument


@dataclass(frozen=True, slots=True)
class ListenerCall:
    """A call that the face has to make before the next round."""

    method: Callable[[Sequence[TopicPartition]], object]
    partitions: tuple[TopicPartition, ...]


class ConsumerCore:
    """See the module's text."""

    def __init__(self, config: ConsumerConfig, *, connector: Connector, clock: Clock, random: Random) -> None:
        self.config = config
        self.lock = threading.Lock()
        """Guards the partitions' state: `try_take` may run in the application's thread."""
        self.subscriptions = Subscriptions()
        self._clock = clock
        self._random = random
        self.cluster = Cluster(
            config,
            connector=connector,
            clock=clock,
            random=random,
            allow_auto_topic_creation=config.allow_auto_create_topics,
        )
        self.event = Event()
        """Something changed that a poll wants to see."""
        self.fetcher = Fetcher(
            config, self.cluster, self.subscriptions, self.lock, clock=clock, random=random, on_data=self.event.notify
        )
        self.taker = Taker(self.subscriptions, check_crcs=config.check_crcs)
        self.cursor = Cursor(self.taker)
        self._offsets = OffsetFinder(config, self.cluster, clock=clock, random=random)
        self.group = (
            None
            if config.group_id is None
            else GroupClient(config.group_id, config, self.cluster, clock=clock, random=random)
        )
        self.membership: Membership | None = None
        self.commits = Commits(config, self.group, self.subscriptions, self.lock)
        self._positions = PositionFinder(
            config,
            group=self.group,
            offsets=self._offsets,
            subscriptions=self.subscriptions,
            fetcher=self.fetcher,
            lock=self.lock,
            clock=clock,
            random=random,
            on_found=self.event.notify,
        )
        self._listener: ConsumerRebalanceListener | None = None
        self._announced: Change | None = None
        """The change that the listener was told of."""
        self._tasks = Tasks()
        self._in_hand: list[tuple[PartitionState, int]] = []
        """What the last poll returned: (partition, position after it). Done when the application comes back."""
        self._unknown_since_ms: dict[str, float] = {}
        self._is_started = False
        self._is_polling = False
        self.is_closed = False
        self.needs_loop = True
        """Whether the next poll must run on the loop. Written on the loop, read anywhere."""
        self.cluster.add_listener(self._on_metadata)

    # -- choosing

    def subscribe(
        self,
        topics: Iterable[str],
        pattern: object,
        listener: ConsumerRebalanceListener | None,
    ) -> None:
        self.check_open()
        if self.group is None:
            raise IllegalStateError("subscribe needs a group: set group_id, or use assign()")
        with self.lock:
            self.subscriptions.subscribe(topics, pattern)  # type: ignore[arg-type]  # str or compiled pattern
        self._listener = listener
        self.cluster.wants_all_topics = self.subscriptions.pattern is not None
        self.cluster.track(self.subscriptions.topics)
        if self.membership is None:
            self.membership = Membership(
                self.config,
                self.group,
                clock=self._clock,
                random=self._random,
                topics=self.subscribed_topics,
                partition_counts=self._partition_counts,
                on_change=self._on_change,
            )
            self.commits.membership = self.membership
        else:
            self.membership.request_rejoin("the subscription changed")
        self.cluster.refresh_soon()

    def subscribed_topics(self) -> tuple[str, ...]:
        """The topics to join for; a pattern's matches among what is known."""
        pattern = self.subscriptions.pattern
        if pattern is None:
            return self.subscriptions.topics
        topics = self.cluster.metadata.topics.values()
        return tuple(
            sorted(t.name for t in topics if not t.error_code and not t.internal and pattern.fullmatch(t.name))
        )

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self.check_open()
        wanted = [TopicPartition(*tp) for tp in partitions]
        with self.lock:
            self.fetcher.release(self.subscriptions.assign_manually(wanted))
        if self.cluster.track(tp.topic for tp in wanted):
            self.cluster.refresh_soon()
        self._start()
        self._positions_changed()

    async def unsubscribe(self) -> None:
        membership, self.membership, self.commits.membership = self.membership, None, None
        if membership is not None:
            await membership.close(self.config.request_timeout_ms, leave=True)
        with self.lock:
            self.fetcher.release(self.subscriptions.replace(()))
            self.subscriptions.topics, self.subscriptions.pattern, self.subscriptions.is_manual = (), None, False
            self._in_hand.clear()
        self.fetcher.update()

    # -- polling

    def try_take(self, take: "Callable[[], list[T]]") -> "list[T]":
        """What `take` finds in the buffers, if nothing else has to be done first. Safe from any one thread at a time."""
        if self.needs_loop:
            return []
        with self.lock:
            self._came_back()
            taken = take()
        if taken:
            self.touch()
        return taken

    def take_used_up(self) -> list[Chunk]:
        """Chunks to return the credit of, by `after_take` on the loop."""
        used, self.taker.used_up = self.taker.used_up, []
        return used

    def after_take(self, used_up: list[Chunk]) -> None:
        """Return credit and act on what the buffers hid."""
        if used_up and not self.is_closed:
            self.fetcher.return_credit(used_up)

    def begin_poll(self) -> None:
        """The application polls: it is alive, and done with what it got before."""
        self.check_open()
        if self.subscriptions.is_empty:
            raise IllegalStateError("nothing to poll: subscribe() or assign() first")
        self._start()
        self._positions.error = None  # told by the poll before: try again
        with self.lock:
            self._came_back()
        if self.membership is not None:
            self.membership.start()
            self.membership.poll_begins()
        self._is_polling = True

    def end_poll(self) -> None:
        """The poll is over, however it ended; nothing happens if it was refused at the beginning."""
        if not self._is_polling:
            return
        self._is_polling = False
        if self.membership is not None:
            self.membership.poll_ends()
        if not self.is_closed:
            self._look()

    def touch(self) -> None:
        """The application polled without the loop."""
        if self.membership is not None:
            self.membership.touch()

    async def next_step(self, take: Callable[[], object], deadline_ms: float) -> tuple[object, ListenerCall | None]:
        """One round of a poll: what `take` found (None: nothing in time, or only what readers do not see), or a call to
        make before the next round."""
        while True:
            self.check_open()
            call = await self._change_hands()
            if call is not None:
                return None, call
            self._look()
            self._raise_errors()
            with self.lock:
                taken = take()
            used_up = self.take_used_up()
            self.after_take(used_up)
            if taken or used_up:  # as in Kafka also when a position only passed what no reader sees (KAFKA-12980)
                return taken or None, None
            remaining_ms = deadline_ms - self._clock.monotonic_ms()
            if remaining_ms <= 0:
                return None, None
            await self.event.wait(remaining_ms)

    def take_records(self, max_records: int) -> list[Batch]:
        """For `next_step`. Caller holds the lock."""
        batches = self.cursor.unload() or self.taker.take(max_records)
        self._note_in_hand(batches)
        return batches

    def take_arrow(self, max_bytes: int, columns: Sequence[str] | None) -> "list[pyarrow.RecordBatch]":
        """Whole chunks as Arrow, at least one, up to about `max_bytes`. For `next_step`; caller holds the lock."""
        taken = self.taker.take_arrow(max_bytes, columns)
        self._note_in_hand(taken)
        return [batch for _, batch, _ in taken if batch.num_rows]

    def end_iteration(self) -> None:
        """Before `take_arrow`: fetch again what an iteration has taken and not handed out."""
        if self.cursor.is_empty:
            return
        with self.lock:
            for state, _, _ in self.cursor.unload(advance=False):
                self.fetcher.move_to_position(state)
        self.fetcher.update()

    def _note_in_hand(self, batches: "Sequence[Batch | ArrowBatch]") -> None:
        for state, _, position in batches:
            self._in_hand.append((state, position))

    def _came_back(self) -> None:
        """The application is done with what is in hand. Caller holds the lock."""
        for state, position in self._in_hand:
            state.done = position
        self._in_hand.clear()

    def _start(self) -> None:
        if self._is_started:
            return
        self._is_started = True
        if not self.cluster.metadata.nodes:
            self.cluster.refresh_soon()
        if self.group is not None and self.config.enable_auto_commit:
            self._tasks.start(self.commits.run_automatically(), "auto commit")
        self._tasks.start(self._keep_fresh(), "metadata age")

    def _raise_errors(self) -> None:
        if self.membership is not None and self.membership.error is not None:
            raise again(self.membership.error)
        if self._positions.error is not None:
            raise again(self._positions.error)
        error = self._take_partition_error()
        if error is not None:
            self.fetcher.update()  # the next poll tries again
            raise error
        self._raise_unknown_topics()

    def _take_partition_error(self) -> KraftlogError | None:
        with self.lock:
            for state in self.subscriptions.partitions.values():
                if state.error is not None and not state.buffer:
                    error, state.error = state.error, None
                    state.retry_at_ms = 0.0
                    return error
        return None

    def _raise_unknown_topics(self) -> None:
        now_ms = self._clock.monotonic_ms()
        for topic, since_ms in self._unknown_since_ms.items():
            if now_ms - since_ms >= UNKNOWN_TOPIC_GRACE_MS:
                self._unknown_since_ms[topic] = now_ms
                raise UnknownTopicOrPartitionError(
                    f"topic {topic!r} does not exist: create it (kraftctl topic create {topic}) or check the name"
                )

    # -- partitions change hands

    async def _change_hands(self) -> ListenerCall | None:
        """Do what the group asks for; a listener's call is returned and the rest done in the next round."""
        membership = self.membership
        while membership is not None and (change := membership.pending) is not None:
            call = await self._change(membership, change)
            if call is not None:
                return call
        return None

    async def _change(self, membership: Membership, change: Change) -> ListenerCall | None:
        listener = self._listener
        if change.kind is ChangeKind.ASSIGNED:
            self._set_assignment(change.partitions)
            membership.change_done(change)
            return ListenerCall(listener.on_partitions_assigned, change.partitions) if listener is not None else None
        if change is not self._announced:
            self._announced = change
            if change.kind is ChangeKind.REVOKED:
                await self._commit_before_revocation()
                if membership.pending is not change:
                    return None
            if listener is not None:
                method = (
                    listener.on_partitions_revoked if change.kind is ChangeKind.REVOKED else listener.on_partitions_lost
                )
                return ListenerCall(method, change.partitions)
        self._set_assignment(())
        membership.change_done(change)
        return None

    async def _commit_before_revocation(self) -> None:
        if self.config.enable_auto_commit:
            await self.commits.commit_done(min(self.config.request_timeout_ms, self.config.session_timeout_ms))

    def _set_assignment(self, partitions: Sequence[TopicPartition]) -> None:
        with self.lock:
            self.fetcher.release(self.subscriptions.replace(partitions))
            self._in_hand = [(s, p) for s, p in self._in_hand if s.tp in self.subscriptions.partitions]
            self.commits.forget()
        self.cluster.track(tp.topic for tp in partitions)
        self._positions_changed()

    def _on_change(self) -> None:
        self.needs_loop = True
        self.event.notify()

    # -- positions

    def _positions_changed(self) -> None:
        """Find missing positions, fetch the rest. An error of before may have been about what has changed."""
        self._positions.error = None
        self._look()
        self.fetcher.update()

    def _look(self) -> None:
        """Act on partitions whose log no longer has their position, and decide whether polls may take a short cut."""
        with self.lock:
            for state in self.subscriptions.partitions.values():
                if isinstance(state.error, OffsetOutOfRangeError) and not state.buffer:
                    self._out_of_range(state, state.error)
            has_errors = any(state.error is not None for state in self.subscriptions.partitions.values())
        membership = self.membership
        self.needs_loop = (
            has_errors
            or self.is_closed
            or not self._is_started
            or self._positions.error is not None
            or (membership is not None and (membership.pending is not None or membership.error is not None))
        )
        self._positions.look()

    def _out_of_range(self, state: PartitionState, error: KraftlogError) -> None:
        policy = self.config.auto_offset_reset
        if policy == "none":
            return  # poll raises it
        log.warning("%s; going on from %s (auto_offset_reset)", error, policy)
        self.fetcher.move(state, None)
        state.reset_to = policy

    async def position(self, tp: TopicPartition, timeout_ms: float) -> int:
        """The next offset for the application; waits until it is known."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        self._positions.error = None
        while True:
            self.check_open()
            with self.lock:
                position = self.subscriptions.state(TopicPartition(*tp)).position
            if position is not None:
                return position
            if self._positions.error is not None:
                raise again(self._positions.error)
            self._positions_changed()
            remaining_ms = deadline_ms - self._clock.monotonic_ms()
            if remaining_ms <= 0:
                raise RequestTimedOutError(f"{tp}: no position within {timeout_ms:.0f} ms: is its leader reachable?")
            await self.event.wait(remaining_ms)

    def seek(self, tp: TopicPartition, offset: int) -> None:
        if offset < 0:
            raise IllegalStateError(f"seek of {tp} to {offset}: offsets start at 0; see seek_to_beginning, seek_to_end")
        with self.lock:
            state = self.subscriptions.state(TopicPartition(*tp))
            self._forget_in_hand(state)
            state.stop_offset = None
            self.fetcher.move(state, offset)
        self._positions_changed()

    def stop_at(self, tp: TopicPartition, end_offset: int) -> None:
        """Fetch and hand out nothing from `end_offset` on. Called after `seek`, before the first poll."""
        with self.lock:
            state = self.subscriptions.state(TopicPartition(*tp))
            state.stop_offset = end_offset
            self.fetcher.move_to_position(state)
        self._positions_changed()

    def seek_to(self, partitions: Sequence[TopicPartition], reset_to: str) -> None:
        """`earliest` or `latest`, looked up when the position is needed. No partitions: all that are assigned."""
        with self.lock:
            tps = [TopicPartition(*tp) for tp in partitions] or list(self.subscriptions.partitions)
            states = [self.subscriptions.state(tp) for tp in tps]
            for state in states:
                self._forget_in_hand(state)
                self.fetcher.move(state, None)
                state.reset_to = reset_to
        self._positions_changed()

    def _forget_in_hand(self, state: PartitionState) -> None:
        """After a seek what was in hand says nothing about what is done."""
        self._in_hand = [(other, position) for other, position in self._in_hand if other is not state]
        self.cursor.forget(state)

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        with self.lock:
            for state in [self.subscriptions.state(TopicPartition(*tp)) for tp in partitions]:
                self.fetcher.pause(state)
        self.fetcher.update()

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        with self.lock:
            for state in [self.subscriptions.state(TopicPartition(*tp)) for tp in partitions]:
                state.is_paused = False
        self.fetcher.update()

    def lag(self) -> dict[TopicPartition, int]:
        """Records between the position and the end that this reader may see, as of the last fetch. Safe anywhere."""
        lags: dict[TopicPartition, int] = {}
        with self.lock:
            for tp, state in self.subscriptions.partitions.items():
                end = state.last_stable_offset if self.config.is_read_committed else state.high_watermark
                if end is not None and state.position is not None:
                    lags[tp] = max(0, end - state.position)
        return lags

    async def list_offsets(
        self, partitions: Iterable[TopicPartition], time: int, timeout_ms: float
    ) -> dict[TopicPartition, int]:
        self.check_open()
        times = {TopicPartition(*tp): time for tp in partitions}
        found = await self._offsets.find(times, timeout_ms=timeout_ms, read_committed=self.config.is_read_committed)
        return {tp: found[tp].offset for tp in times}

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int], timeout_ms: float
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        self.check_open()
        for tp, time in times.items():
            if time < 0:
                raise IllegalStateError(f"{tp}: timestamp {time} is negative")
        wanted = {TopicPartition(*tp): time for tp, time in times.items()}
        found = await self._offsets.find(wanted, timeout_ms=timeout_ms)
        return {
            tp: None if f.offset < 0 else OffsetAndTimestamp(f.offset, f.timestamp, f.leader_epoch)
            for tp, f in ((tp, found[tp]) for tp in wanted)
        }

    # -- committing

    # -- the rest

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: float
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        self.check_open()
        wanted = [TopicPartition(*tp) for tp in partitions]
        return await self.commits.checked_group().committed(wanted, timeout_ms=timeout_ms)

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None, timeout_ms: float) -> None:
        """Commit `offsets` (None: all that was handed out) in the order of the calls."""
        self.check_open()
        await self.commits.commit(self.commits.positions() if offsets is None else normalized(offsets), timeout_ms)

    def check_open(self) -> None:
        if self.is_closed:
            raise ClientClosedError("the consumer is closed: make a new one")

    def revocation_call(self) -> ListenerCall | None:
        """The listener's call at `close`, if partitions are owned."""
        membership, listener = self.membership, self._listener
        if membership is None or listener is None or not membership.owned or membership.error is not None:
            return None
        return ListenerCall(listener.on_partitions_revoked, membership.owned)

    async def close(self, timeout_ms: float) -> None:
        """Commit what is done, leave the group, disconnect; bounded by `timeout_ms`."""
        if self.is_closed:
            return
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        if self.config.enable_auto_commit and self.group is not None and timeout_ms > 0:
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    await self.commits.commit_done(timeout_ms)
            except TimeoutError:
                log.warning("close: the offsets of what was done could not be committed within %.0f ms", timeout_ms)
        self.is_closed = True
        self.needs_loop = True
        self.event.notify()
        await self._tasks.cancel()
        await self._positions.close()
        if self.membership is not None:
            remaining_ms = deadline_ms - self._clock.monotonic_ms()
            await self.membership.close(remaining_ms, leave=remaining_ms > 0)
        await self.fetcher.close()
        await self.cluster.close()

    def _on_metadata(self, metadata: ClusterMetadata) -> None:
        now_ms = self._clock.monotonic_ms()
        wanted = self.subscriptions.topics or tuple({tp.topic: None for tp in self.subscriptions.partitions})
        unknown = int(UnknownTopicOrPartitionError.code)
        for topic in wanted:
            known = metadata.topics.get(topic)
            if known is not None and known.error_code == unknown:
                if topic not in self._unknown_since_ms:
                    log.warning("topic %r does not exist (yet)", topic)
                self._unknown_since_ms.setdefault(topic, now_ms)
            else:
                self._unknown_since_ms.pop(topic, None)
        for topic in [topic for topic in self._unknown_since_ms if topic not in wanted]:
            del self._unknown_since_ms[topic]
        membership = self.membership
        if membership is None or membership.generation_id < 0:
            return
        if self.subscribed_topics() != membership.joined_topics:
            membership.request_rejoin("the topics that match the pattern changed")
        elif membership.is_leader and any(
            (known := metadata.topics.get(topic)) is not None
            and not known.error_code
            and len(known.partitions) != count
            for topic, count in membership.seen_counts.items()
        ):
            membership.request_rejoin("the number of partitions changed")

    async def _partition_counts(self, topics: Sequence[str]) -> dict[str, int]:
        """Sizes of the topics that exist, fresh from the cluster."""
        self.cluster.track(topics)
        metadata = await self.cluster.refresh(self.config.request_timeout_ms)
        return {
            topic: len(known.partitions) if (known := metadata.topics.get(topic)) is not None else 0 for topic in topics
        }

    async def _keep_fresh(self) -> None:
        """Fetch metadata by age, and topics that do not exist yet more often."""
        while not self.is_closed:
            await sleep_ms(min(self.config.metadata_max_age_ms, UNKNOWN_TOPIC_GRACE_MS / 4))
            if self._unknown_since_ms or self.cluster.is_stale(self._clock.monotonic_ms()):
                self.cluster.refresh_soon()
                self.event.notify()
