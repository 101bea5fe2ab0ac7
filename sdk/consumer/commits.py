"""Committing offsets: by the application, and automatically what it is done with. Used only on the client's loop."""

import asyncio
import logging
import threading
from collections.abc import Mapping

from kraftlog.proto.errors import (
    FencedInstanceIdError,
    IllegalGenerationError,
    IllegalStateError,
    KraftlogError,
    UnknownMemberIdError,
)
from kraftlog.sdk.config import ConsumerConfig
from kraftlog.sdk.consumer.membership import Membership
from kraftlog.sdk.consumer.state import Subscriptions
from kraftlog.sdk.group_client import GroupClient
from kraftlog.sdk.types import OffsetAndMetadata, TopicPartition
from kraftlog.sdk.waiting import sleep_ms

log = logging.getLogger("kraftlog.sdk")


class CommitFailedError(IllegalGenerationError):
    """The offsets were not committed, because the group has given the partitions to other members.

    What was read since the last commit will be read again by them. A retry does not help; go on polling.
    """


class Commits:
    """The commits of one consumer, one after another in the order of the calls."""

    def __init__(
        self, config: ConsumerConfig, group: GroupClient | None, subscriptions: Subscriptions, lock: threading.Lock
    ) -> None:
        self._config = config
        self._group = group
        self._subscriptions = subscriptions
        self._lock = lock
        self.membership: Membership | None = None
        """None: partitions by assign(); commits from outside of the group protocol."""
        self._turn = asyncio.Lock()
        self._committed: dict[TopicPartition, int] = {}
        """What this consumer committed last, so that an auto commit does not repeat it."""

    def forget(self) -> None:
        """The assignment changed: others may commit for the partitions. Caller holds the consumer's lock."""
        self._committed.clear()

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """All positions, as Kafka commits them: what was handed out, the batch in hand included."""
        with self._lock:
            return {
                tp: OffsetAndMetadata(state.position, "", state.leader_epoch)
                for tp, state in self._subscriptions.partitions.items()
                if state.position is not None
            }

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: float) -> None:
        """Commit `offsets`; retries what is retriable until `timeout_ms`."""
        group = self.checked_group()
        if not offsets:
            return
        async with self._turn:
            await group.retrying(lambda limit_ms: self._attempt(group, offsets, limit_ms), timeout_ms=timeout_ms)
            with self._lock:
                for tp, offset in offsets.items():
                    state = self._subscriptions.partitions.get(tp)
                    if state is not None:  # so that an auto commit does not bring an older offset back
                        state.done = max(offset.offset, -1 if state.done is None else state.done)
                        self._committed[tp] = offset.offset

    async def commit_done(self, timeout_ms: float) -> None:
        """Commit what the application is done with; a failure is logged, since the next commit repeats it."""
        with self._lock:
            offsets = {
                tp: OffsetAndMetadata(state.done)
                for tp, state in self._subscriptions.partitions.items()
                if state.done is not None and self._committed.get(tp) != state.done
            }
        try:
            await self.commit(offsets, timeout_ms)
        except KraftlogError as error:
            log.warning("auto commit of %d partition(s) failed: %s", len(offsets), error)

    async def run_automatically(self) -> None:
        """Commit what is done, at intervals, while the group is at rest."""
        while True:
            await sleep_ms(self._config.auto_commit_interval_ms)
            if self.membership is None or self.membership.is_stable:
                await self.commit_done(self._config.request_timeout_ms)

    def checked_group(self) -> GroupClient:
        if self._group is None:
            raise IllegalStateError("committed offsets need a group: set group_id")
        return self._group

    async def _attempt(
        self, group: GroupClient, offsets: Mapping[TopicPartition, OffsetAndMetadata], limit_ms: float
    ) -> None:
        membership = self.membership
        if membership is None:
            await group.commit(offsets, member_id="", generation_id=-1, group_instance_id="", timeout_ms=limit_ms)
            return
        foreign = [tp for tp in offsets if tp not in membership.owned]
        if foreign:
            raise CommitFailedError(
                f"group {group.group_id}: {foreign[0]} is not assigned to this member (any more): a rebalance gave it to "
                "another, which reads again what was not committed"
            )
        membership.check_usable_for_commit()
        generation_id = membership.generation_id
        try:
            await group.commit(
                offsets,
                member_id=membership.member_id,
                generation_id=generation_id,
                group_instance_id=self._config.group_instance_id or "",
                timeout_ms=limit_ms,
            )
        except KraftlogError as error:
            membership.on_error(error, generation_id)
            if isinstance(error, IllegalGenerationError | UnknownMemberIdError | FencedInstanceIdError):
                raise CommitFailedError(
                    f"{error}: the group went on without this member, so the offsets were not committed; was the time "
                    f"between polls above max_poll_interval_ms={self._config.max_poll_interval_ms}?"
                ) from error
            raise


def normalized(
    offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets as a caller may give them: numbers too."""
    full: dict[TopicPartition, OffsetAndMetadata] = {}
    for tp, offset in offsets.items():
        value = OffsetAndMetadata(offset) if isinstance(offset, int) else offset
        if value.offset < 0:
            raise IllegalStateError(f"{tp}: committed offset {value.offset} is negative")
        full[TopicPartition(*tp)] = value
    return full
