"""Talking to a group's coordinator: finding it, commits and committed offsets. Used only on the client's loop."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from kraftlog.proto import group_pb2
from kraftlog.proto.errors import (
    CoordinatorNotAvailableError,
    KraftlogError,
    NotCoordinatorError,
    RequestTimedOutError,
    error_for,
)
from kraftlog.proto.seams import Channel, Clock, Random
from kraftlog.sdk.config import ClientConfig
from kraftlog.sdk.metadata import Cluster
from kraftlog.sdk.types import NodeInfo, OffsetAndMetadata, TopicPartition
from kraftlog.sdk.waiting import Backoff, sleep_ms

T = TypeVar("T")

GROUP_SERVICE = "/kraftlog.v1.Group/"


class GroupClient:
    """One group's coordinator, found again whenever it moves."""

    def __init__(self, group_id: str, config: ClientConfig, cluster: Cluster, *, clock: Clock, random: Random) -> None:
        self.group_id = group_id
        self._config = config
        self._cluster = cluster
        self._clock = clock
        self._random = random
        self._coordinator: NodeInfo | None = None

    def forget_coordinator(self) -> None:
        self._coordinator = None

    async def coordinator(self, timeout_ms: float) -> Channel:
        """The coordinator's channel; one attempt to find it if it is not known."""
        if self._coordinator is None:
            node = await self._cluster.any_node(timeout_ms)
            request = group_pb2.FindCoordinatorRequest(key=self.group_id, key_type=0)
            data = await self._cluster.call(
                node,
                GROUP_SERVICE + "FindCoordinator",
                request.SerializeToString(),
                timeout_ms=min(timeout_ms, self._config.request_timeout_ms),
            )
            answer = group_pb2.FindCoordinatorResponse.FromString(data)
            if answer.error_code:
                raise error_for(answer.error_code, f"group {self.group_id}: {answer.error_message}")
            self._coordinator = NodeInfo(answer.node_id, answer.host, answer.port)
        return self._cluster.channel(self._coordinator)

    async def call(self, method: str, request: bytes, *, timeout_ms: float) -> bytes:
        """One call to the coordinator. A coordinator that cannot be reached is forgotten."""
        channel = await self.coordinator(timeout_ms)
        try:
            return await channel.unary(GROUP_SERVICE + method, request, timeout_ms=timeout_ms)
        except KraftlogError as error:
            if error.retriable:
                self.forget_coordinator()
            raise

    def note(self, error: KraftlogError) -> None:
        """Forget the coordinator if the error says that it is another one."""
        if isinstance(error, NotCoordinatorError | CoordinatorNotAvailableError):
            self.forget_coordinator()

    async def retrying(self, attempt: Callable[[float], Awaitable[T]], *, timeout_ms: float) -> T:
        """Repeat `attempt(remaining_ms)` while its errors are retriable and time is left."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        backoff = Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms, self._random)
        while True:
            remaining_ms = max(1.0, deadline_ms - self._clock.monotonic_ms())
            try:
                return await attempt(min(remaining_ms, self._config.request_timeout_ms))
            except KraftlogError as error:
                self.note(error)
                if not error.retriable:
                    raise
                remaining_ms = deadline_ms - self._clock.monotonic_ms()
                if remaining_ms <= 0:
                    raise RequestTimedOutError(
                        f"group {self.group_id}: no answer within {timeout_ms:.0f} ms; last error: {error}"
                    ) from error
                await sleep_ms(min(remaining_ms, backoff.next_ms()))

    async def committed(
        self, partitions: Iterable[TopicPartition] | None, *, timeout_ms: float
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Committed offsets of `partitions` (None: all that the group has); partitions without one are left out."""
        request = group_pb2.OffsetFetchRequest(
            group_id=self.group_id, all_partitions=partitions is None, require_stable=True
        )
        for tp in partitions or ():
            request.partitions.add(topic=tp.topic, partition=tp.partition)
        data = request.SerializeToString()

        async def attempt(limit_ms: float) -> dict[TopicPartition, OffsetAndMetadata]:
            answer = group_pb2.OffsetFetchResponse.FromString(await self.call("OffsetFetch", data, timeout_ms=limit_ms))
            if answer.error_code:
                raise error_for(answer.error_code, f"group {self.group_id}: {answer.error_message}".rstrip(": "))
            found: dict[TopicPartition, OffsetAndMetadata] = {}
            for p in answer.partitions:
                tp = TopicPartition(p.topic, p.partition)
                if p.error_code:
                    raise error_for(p.error_code, f"group {self.group_id}: committed offset of {tp}")
                if p.offset >= 0:
                    found[tp] = OffsetAndMetadata(p.offset, p.metadata, p.leader_epoch)
            return found

        return await self.retrying(attempt, timeout_ms=timeout_ms)

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        member_id: str,
        generation_id: int,
        group_instance_id: str,
        timeout_ms: float,
    ) -> None:
        """Commit once. Raises the first partition's error."""
        request = group_pb2.OffsetCommitRequest(
            group_id=self.group_id,
            member_id=member_id,
            generation_id=generation_id,
            group_instance_id=group_instance_id,
        )
        for tp, offset in offsets.items():
            request.partitions.add(
                topic=tp.topic,
                partition=tp.partition,
                offset=offset.offset,
                leader_epoch=offset.leader_epoch,
                metadata=offset.metadata,
            )
        data = await self.call("OffsetCommit", request.SerializeToString(), timeout_ms=timeout_ms)
        for p in group_pb2.OffsetCommitResponse.FromString(data).partitions:
            if p.error_code:
                place = f"group {self.group_id}, {p.topic}-{p.partition}"
                raise error_for(p.error_code, f"{place}: {p.error_message}" if p.error_message else place)
