"""A node's way to the active controller: to itself while it leads, else over the network to whoever does.

An attempt ends by its answer or when another node leads; then the next one begins, until the deadline. So a call outlives
any change of the leader. Pauses between attempts grow while nothing changes, and start short again with each leader. What must not happen twice carries a request id, the same in each attempt.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, TypeVar

from google.protobuf.message import Message

from kraftlog.kraft.controller import BrokerRegistration, HeartbeatReply, IsrChange
from kraftlog.kraft.endpoints import Endpoint
from kraftlog.kraft.image import MetadataImage
from kraftlog.proto import controller_pb2
from kraftlog.proto.errors import (
    BrokerNotAvailableError,
    KraftlogError,
    NetworkError,
    NotControllerError,
    RequestTimedOutError,
    error_for,
)
from kraftlog.proto.seams import Channel, Clock, Connector, Random
from kraftlog.replication.isr_updates import IsrOutcome
from kraftlog.server.controller.operations import Operation
from kraftlog.server.controller.service import (
    ALLOCATE_PRODUCER_IDS,
    ALTER_PARTITION,
    BROKER_HEARTBEAT,
    FORWARD,
    REGISTER_BROKER,
)
from kraftlog.server.quorum import QuorumNode

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)
T = TypeVar("T")

DEFAULT_TIMEOUT_MS = 30_000.0  # of an operation whose request names none; as Kafka's request.timeout.ms
MAX_TIMEOUT_MS = 15 * 60_000.0
BACKOFF_MS = 20.0
BACKOFF_MAX_MS = 1_000.0
REQUEST_ID_BYTES = 16

_ELSEWHERE = (NotControllerError, NetworkError, BrokerNotAvailableError)
"""The attempt has failed, the next one may succeed; whether it took effect is unknown."""


class ControllerClient:
    """Used from one event loop; `close` at the end."""

    def __init__(
        self,
        quorum: QuorumNode,
        connector: Connector,
        *,
        clock: Clock,
        random: Random,
        request_timeout_ms: float,
    ) -> None:
        """`connector`: to the controllers' listeners. `request_timeout_ms`: for what a broker asks for itself."""
        self._quorum = quorum
        self._connector = connector
        self._clock = clock
        self._random = random
        self._request_timeout_ms = request_timeout_ms
        self._channel: Channel | None = None
        self._channel_to: Endpoint | None = None

    async def close(self) -> None:
        """Drop the connection. May be repeated."""
        channel, self._channel, self._channel_to = self._channel, None, None
        if channel is not None:
            await channel.close()

    # --- what every node knows itself -----------------------------------------------------------------------------

    @property
    def image(self) -> MetadataImage:
        """The newest metadata that this node knows to be committed."""
        return self._quorum.image

    @property
    def quorum(self) -> QuorumNode:
        return self._quorum

    @property
    def epoch(self) -> int:
        """In which a node was elected to be the controller, as far as this one knows."""
        return self._quorum.metadata_leader_epoch

    async def read_barrier(self) -> None:
        """Return when `image` has every change that was answered before the call. Raises `NotControllerError`."""
        await self._quorum.read_barrier()

    # --- operations for clients -----------------------------------------------------------------------------------

    async def perform(
        self, operation: Operation[Request, Response], request: Request, *, is_internal: bool = False
    ) -> Response:
        """Do what a client asks; on return it is committed, and in this node's `image`.

        `is_internal`: the broker asks for itself, also for the cluster's own topics. Changes wait for `timeout_ms` of the
        request, questions for `request_timeout_ms`. Raises what the operation is refused
        with, and `RequestTimedOutError`: a change may take effect still, and may be repeated with the same request id.
        """
        request = self._with_request_id(request)
        timeout_ms = self._request_timeout_ms if operation.is_question else _timeout_ms(request)
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        offset = -1

        async def here() -> Response:
            return await operation.run(self._quorum, request, is_internal)

        async def there(channel: Channel, timeout_ms: float) -> Response:
            nonlocal offset
            envelope = controller_pb2.ForwardRequest(
                method=operation.name, request=request.SerializeToString(deterministic=True), internal=is_internal
            )
            data = await channel.unary(FORWARD, envelope.SerializeToString(), timeout_ms=timeout_ms)
            answer = controller_pb2.ForwardResponse.FromString(data)
            offset = answer.metadata_offset
            return operation.response.FromString(answer.response)

        attempts = 0

        async def attempt(run: Callable[[], Awaitable[Response]]) -> Response:
            nonlocal attempts
            attempts += 1
            try:
                return await run()
            except KraftlogError as error:
                if attempts > 1 and operation.done_before is not None and isinstance(error, operation.done_before):
                    return operation.response()
                raise

        response = await self._repeat(
            lambda: attempt(here), lambda channel, timeout_ms: attempt(lambda: there(channel, timeout_ms)), deadline_ms
        )
        # It is done; that this node is slow to learn of it does not make it a failure.
        with contextlib.suppress(NotControllerError):  # the node stops
            await self._quorum.wait_image(offset, deadline_ms - self._clock.monotonic_ms())
        return response

    def _with_request_id(self, request: Request) -> Request:
        if "request_id" not in request.DESCRIPTOR.fields_by_name or request.request_id:  # type: ignore[attr-defined]
            return request
        named = type(request)()
        named.CopyFrom(request)
        named.request_id = self._new_request_id()  # type: ignore[attr-defined]
        return named

    def _new_request_id(self) -> bytes:
        return self._random.getrandbits(8 * REQUEST_ID_BYTES).to_bytes(REQUEST_ID_BYTES, "big")

    # --- what a broker asks for itself ----------------------------------------------------------------------------

    async def register_broker(self, registration: BrokerRegistration) -> int:
        """The broker epoch. May be repeated: it goes by the incarnation id."""
        request = controller_pb2.RegisterBrokerRequest(
            node_id=registration.node_id,
            incarnation_id=registration.incarnation_id,
            host=registration.host,
            port=registration.port,
            rack=registration.rack,
            log_dirs=registration.log_dirs,
            listeners=[
                controller_pb2.BrokerListener(name=each.listener, host=each.host, port=each.port)
                for each in registration.endpoints
            ],
            previous_broker_epoch=registration.previous_broker_epoch,
            features=[
                controller_pb2.SupportedFeature(name=name, min_level=low, max_level=high)
                for name, (low, high) in sorted(registration.features.items())
            ],
            lost_replicas=_lost_replicas(registration.lost_replicas),
        )

        async def there(channel: Channel, timeout_ms: float) -> int:
            data = await channel.unary(REGISTER_BROKER, request.SerializeToString(), timeout_ms=timeout_ms)
            return controller_pb2.RegisterBrokerResponse.FromString(data).broker_epoch

        return await self._ask(lambda: self._quorum.controller.register_broker(registration), there)

    async def heartbeat(
        self,
        node_id: int,
        broker_epoch: int,
        *,
        metadata_offset: int,
        want_fence: bool = False,
        want_shut_down: bool = False,
        offline_log_dirs: Collection[bytes] = (),
        lost_replicas: Collection[tuple[bytes, int]] = (),
    ) -> HeartbeatReply:
        """See `QuorumNode.heartbeat`. May be repeated."""
        request = controller_pb2.BrokerHeartbeatRequest(
            node_id=node_id,
            broker_epoch=broker_epoch,
            metadata_offset=metadata_offset,
            want_fence=want_fence,
            want_shut_down=want_shut_down,
            offline_log_dirs=sorted(offline_log_dirs),
            lost_replicas=_lost_replicas(lost_replicas),
        )

        async def here() -> HeartbeatReply:
            return await self._quorum.controller.heartbeat(
                node_id,
                broker_epoch,
                metadata_offset=metadata_offset,
                want_fence=want_fence,
                want_shut_down=want_shut_down,
                offline_log_dirs=offline_log_dirs,
                lost_replicas=lost_replicas,
            )

        async def there(channel: Channel, timeout_ms: float) -> HeartbeatReply:
            data = await channel.unary(BROKER_HEARTBEAT, request.SerializeToString(), timeout_ms=timeout_ms)
            answer = controller_pb2.BrokerHeartbeatResponse.FromString(data)
            return HeartbeatReply(is_fenced=answer.is_fenced, should_shut_down=answer.should_shut_down)

        return await self._ask(here, there)

    async def allocate_producer_ids(self, node_id: int, broker_epoch: int, count: int = 1000) -> tuple[int, int]:
        """(first id, number of ids): given out once in the life of the cluster."""
        request_id = self._new_request_id()
        request = controller_pb2.AllocateProducerIdsRequest(
            node_id=node_id, broker_epoch=broker_epoch, count=count, request_id=request_id
        )

        async def there(channel: Channel, timeout_ms: float) -> tuple[int, int]:
            data = await channel.unary(ALLOCATE_PRODUCER_IDS, request.SerializeToString(), timeout_ms=timeout_ms)
            answer = controller_pb2.AllocateProducerIdsResponse.FromString(data)
            return answer.first_id, answer.count

        return await self._ask(
            lambda: self._quorum.controller.allocate_producer_ids(node_id, broker_epoch, count, request_id=request_id),
            there,
        )

    async def alter_partition(self, node_id: int, broker_epoch: int, changes: Sequence[IsrChange]) -> list[IsrOutcome]:
        """Ask once for the in-sync replicas of partitions that `node_id` leads; one outcome for each change.

        Raises a `KraftlogError` where nobody answered: then each change may have been made, or may be made yet.
        """
        request = controller_pb2.AlterPartitionRequest(
            node_id=node_id,
            broker_epoch=broker_epoch,
            changes=[
                controller_pb2.InSyncChange(
                    topic_id=change.topic_id,
                    partition=change.partition,
                    leader_epoch=change.leader_epoch,
                    partition_epoch=change.partition_epoch,
                    in_sync_replicas=[
                        controller_pb2.InSyncReplica(node_id=replica, broker_epoch=epoch)
                        for replica, epoch in change.in_sync_replicas
                    ],
                    flushed=change.has_flushed,
                )
                for change in changes
            ],
        )

        async def here() -> list[IsrOutcome]:
            answers = await self._quorum.controller.alter_partition(node_id, broker_epoch, changes)
            return [
                IsrOutcome(-1 if answer.partition is None else answer.partition.partition_epoch, answer.error)
                for answer in answers
            ]

        async def there(channel: Channel, timeout_ms: float) -> list[IsrOutcome]:
            data = await channel.unary(ALTER_PARTITION, request.SerializeToString(), timeout_ms=timeout_ms)
            answers = controller_pb2.AlterPartitionResponse.FromString(data).answers
            return [
                IsrOutcome(
                    answer.partition_epoch,
                    error_for(answer.error_code, answer.error_message) if answer.error_code else None,
                )
                for answer in answers
            ]

        return await self._attempt(here, there, self._clock.monotonic_ms() + self._request_timeout_ms)

    # --- attempts -------------------------------------------------------------------------------------------------

    async def _ask(self, here: Callable[[], Awaitable[T]], there: Callable[[Channel, float], Awaitable[T]]) -> T:
        return await self._repeat(here, there, self._clock.monotonic_ms() + self._request_timeout_ms)

    async def _repeat(
        self, here: Callable[[], Awaitable[T]], there: Callable[[Channel, float], Awaitable[T]], deadline_ms: float
    ) -> T:
        backoff_ms = BACKOFF_MS
        while True:
            try:
                return await self._attempt(here, there, deadline_ms)
            except _ELSEWHERE as error:
                left_ms = deadline_ms - self._clock.monotonic_ms()
                if left_ms <= 0 or self._quorum.is_stopped:
                    raise RequestTimedOutError(f"the controller did not answer in time: {error}") from error
            pause_ms = min(backoff_ms * (0.5 + self._random.random() / 2), left_ms)
            backoff_ms = min(2 * backoff_ms, BACKOFF_MAX_MS)
            with contextlib.suppress(NotControllerError):  # the node stops: the next attempt says so
                if await self._quorum.wait_leader_change(self._quorum.leader, pause_ms):
                    backoff_ms = BACKOFF_MS  # a new leader takes operations in a moment, and has refused none yet

    async def _attempt(
        self, here: Callable[[], Awaitable[T]], there: Callable[[Channel, float], Awaitable[T]], deadline_ms: float
    ) -> T:
        quorum = self._quorum
        left_ms = deadline_ms - self._clock.monotonic_ms()
        if quorum.is_leader:
            return await _within(here(), left_ms)
        endpoint = quorum.leader_endpoint
        leader = quorum.leader
        if leader is None:
            raise NotControllerError("the metadata quorum has no leader, or this node does not know it")
        if endpoint is None:
            raise NotControllerError(
                f"node {leader.node_id} leads the metadata quorum, but where it listens is not known"
            )
        channel = await self._channel_at(endpoint)
        loop = asyncio.get_running_loop()
        scope = asyncio.timeout(None)
        try:
            async with scope:
                with quorum.watching_leader(leader, lambda: scope.reschedule(loop.time())):
                    return await there(channel, left_ms)
        except (NetworkError, BrokerNotAvailableError):
            if self._channel is channel:
                await self.close()  # a fresh connection does not wait for the transport's own, long pauses
            raise
        except TimeoutError:
            if not scope.expired():
                raise
            raise NotControllerError(f"node {leader.node_id} leads the metadata quorum no longer") from None

    async def _channel_at(self, endpoint: Endpoint) -> Channel:
        if self._channel is None or self._channel_to != endpoint:
            await self.close()
            self._channel, self._channel_to = self._connector.connect(str(endpoint)), endpoint
        return self._channel


async def _within(work: Awaitable[T], timeout_ms: float) -> T:
    scope = asyncio.timeout(max(timeout_ms, 1) / 1000)
    try:
        async with scope:
            return await work
    except TimeoutError:
        if not scope.expired():
            raise
        raise RequestTimedOutError(
            f"not committed within {timeout_ms:.0f} ms; it may be still: repeat it with the same request id"
        ) from None


def _timeout_ms(request: Any) -> float:
    asked = getattr(request, "timeout_ms", 0)
    return min(float(asked), MAX_TIMEOUT_MS) if asked else DEFAULT_TIMEOUT_MS


def _lost_replicas(replicas: Collection[tuple[bytes, int]]) -> list[controller_pb2.LostReplica]:
    return [controller_pb2.LostReplica(topic_id=topic_id, partition=number) for topic_id, number in sorted(replicas)]
