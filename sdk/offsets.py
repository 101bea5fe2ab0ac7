"""Looking up offsets by time at the partitions' leaders, with retries. Used only on the client's loop."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from kraftlog.proto import broker_pb2
from kraftlog.proto.errors import (
    KraftlogError,
    LeaderNotAvailableError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
    error_for,
)
from kraftlog.proto.seams import Clock, Random
from kraftlog.sdk.config import ClientConfig
from kraftlog.sdk.metadata import Cluster, leaders_of
from kraftlog.sdk.types import NodeInfo, TopicPartition
from kraftlog.sdk.waiting import Backoff, sleep_ms

LIST_OFFSETS_METHOD = "/kraftlog.v1.Broker/ListOffsets"
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3


@dataclass(frozen=True, slots=True)
class FoundOffset:
    offset: int
    """-1: no record at or after the asked time."""
    timestamp: int
    leader_epoch: int


class OffsetFinder:
    """Asks `ListOffsets` of every leader concerned."""

    def __init__(self, config: ClientConfig, cluster: Cluster, *, clock: Clock, random: Random) -> None:
        self._config = config
        self._cluster = cluster
        self._clock = clock
        self._random = random

    async def find(
        self, times: Mapping[TopicPartition, int], *, timeout_ms: float, read_committed: bool = False
    ) -> dict[TopicPartition, FoundOffset]:
        """The offset of each partition for its timestamp (or `LATEST`, `EARLIEST`, `MAX_TIMESTAMP`).

        Leaders that moved or are missing are asked again until `timeout_ms`, then the last reason is raised.
        """
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        backoff = Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms, self._random)
        found: dict[TopicPartition, FoundOffset] = {}
        await self._know_topics(times, deadline_ms)
        while True:
            left = {tp: time for tp, time in times.items() if tp not in found}
            if not left:
                return found
            error = await self._round(left, found, deadline_ms, read_committed)
            if error is None:
                continue
            remaining_ms = deadline_ms - self._clock.monotonic_ms()
            if not error.retriable:
                raise error
            if remaining_ms <= 0:
                raise RequestTimedOutError(f"no offsets within {timeout_ms:.0f} ms; last error: {error}") from error
            await sleep_ms(min(remaining_ms, backoff.next_ms()))
            await self._refresh(deadline_ms)

    async def _know_topics(self, times: Mapping[TopicPartition, int], deadline_ms: float) -> None:
        for topic in dict.fromkeys(tp.topic for tp in times):
            known = await self._cluster.wait_for_topic(topic, max(1.0, deadline_ms - self._clock.monotonic_ms()))
            for tp in times:
                if tp.topic == topic and not 0 <= tp.partition < len(known.partitions):
                    raise UnknownTopicOrPartitionError(
                        f"topic {topic!r} has partitions 0 to {len(known.partitions) - 1}, not {tp.partition}"
                    )

    async def _refresh(self, deadline_ms: float) -> None:
        try:
            await self._cluster.refresh(max(1.0, deadline_ms - self._clock.monotonic_ms()))
        except KraftlogError as error:
            if not error.retriable:
                raise

    async def _round(
        self,
        times: Mapping[TopicPartition, int],
        found: dict[TopicPartition, FoundOffset],
        deadline_ms: float,
        read_committed: bool,
    ) -> KraftlogError | None:
        """Ask every leader once, at the same time; the first error, if any."""
        by_node, unknown = leaders_of(self._cluster.metadata, times)
        nodes = [(self._cluster.metadata.nodes[node_id], partitions) for node_id, partitions in by_node.items()]
        answers = await asyncio.gather(
            *(self._ask(node, {tp: times[tp] for tp in tps}, deadline_ms, read_committed) for node, tps in nodes),
            return_exceptions=True,
        )
        error: KraftlogError | None = None
        for answer in answers:
            if isinstance(answer, KraftlogError):
                error = error or answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                for result in answer.partitions:
                    tp = TopicPartition(result.topic, result.partition)
                    if result.error_code:
                        error = error or error_for(result.error_code, f"{tp}: {result.error_message}".rstrip(": "))
                    else:
                        found[tp] = FoundOffset(result.offset, result.timestamp, result.leader_epoch)
        if unknown and error is None:
            error = LeaderNotAvailableError(f"{unknown[0]} has no known leader")
        return error

    async def _ask(
        self, node: NodeInfo, times: Mapping[TopicPartition, int], deadline_ms: float, read_committed: bool
    ) -> broker_pb2.ListOffsetsResponse:
        request = broker_pb2.ListOffsetsRequest(
            isolation_level=broker_pb2.READ_COMMITTED if read_committed else broker_pb2.READ_UNCOMMITTED
        )
        for tp, time in times.items():
            request.partitions.add(topic=tp.topic, partition=tp.partition, timestamp=time, current_leader_epoch=-1)
        timeout_ms = min(self._config.request_timeout_ms, max(1.0, deadline_ms - self._clock.monotonic_ms()))
        data = await self._cluster.channel(node).unary(
            LIST_OFFSETS_METHOD, request.SerializeToString(), timeout_ms=timeout_ms
        )
        return broker_pb2.ListOffsetsResponse.FromString(data)
