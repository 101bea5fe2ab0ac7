"""Looking up offsets by time at the partitions' leaders, with retries. Used only on the client's loop."""

from collections.abc import Mapping
from dataclasses import dataclass

from kraftlog.proto import broker_pb2
from kraftlog.proto.seams import Channel, Clock, Random
from kraftlog.sdk.config import ClientConfig
from kraftlog.sdk.leaders import LeaderAnswer, LeaderQuestions
from kraftlog.sdk.metadata import Cluster
from kraftlog.sdk.types import TopicPartition

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
        self._leaders = LeaderQuestions(config, cluster, clock=clock, random=random)

    async def find(
        self, times: Mapping[TopicPartition, int], *, timeout_ms: float, read_committed: bool = False
    ) -> dict[TopicPartition, FoundOffset]:
        """The offset of each partition for its timestamp (or `LATEST`, `EARLIEST`, `MAX_TIMESTAMP`).

        Leaders that moved or are missing are asked again until `timeout_ms`, then the last reason is raised.
        """

        async def ask(
            channel: Channel, times: Mapping[TopicPartition, int], limit_ms: float
        ) -> list[LeaderAnswer[FoundOffset]]:
            request = broker_pb2.ListOffsetsRequest(
                isolation_level=broker_pb2.READ_COMMITTED if read_committed else broker_pb2.READ_UNCOMMITTED
            )
            for tp, time in times.items():
                request.partitions.add(topic=tp.topic, partition=tp.partition, timestamp=time, current_leader_epoch=-1)
            data = await channel.unary(LIST_OFFSETS_METHOD, request.SerializeToString(), timeout_ms=limit_ms)
            return [
                LeaderAnswer(
                    TopicPartition(result.topic, result.partition),
                    result.error_code,
                    result.error_message,
                    FoundOffset(result.offset, result.timestamp, result.leader_epoch),
                )
                for result in broker_pb2.ListOffsetsResponse.FromString(data).partitions
            ]

        return await self._leaders.ask("offsets", times, ask, timeout_ms=timeout_ms)
