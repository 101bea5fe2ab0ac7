"""The controller's operations on this node: decided at once, answered when they are committed."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, TypeVar

from kraftlog.kraft.controller import (
    BrokerRegistration,
    Controller,
    HeartbeatReply,
    IsrAnswer,
    IsrChange,
    OperationKind,
    RequestId,
    Result,
    operations,
)
from kraftlog.proto.admin_pb2 import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from kraftlog.proto.errors import KraftlogError, NotControllerError
from kraftlog.proto.seams import Clock

T = TypeVar("T")


class LocalController:
    """Used from one event loop. Every operation raises `NotControllerError` where another node leads; one that fails so
    after it was accepted may still take effect: the next leader decides.

    A `request_id` (16 random bytes, the same on each repeat) makes an operation safe to repeat after a lost answer and
    over a change of the leader: it is answered as it was the first time, and not done again.

    An answer to a client that leaves no record, above all a refusal, is a read: a leader that was paused or cut off knows
    nothing of what others have decided since. It waits until a majority has confirmed that this node still leads.
    (Kafka's controller answers at once.) What brokers ask for themselves goes by epochs and needs no such thing.
    """

    def __init__(
        self,
        controller: Controller,
        clock: Clock,
        *,
        wake: Callable[[], None],
        poll: Callable[[], None],
        why_not_running: Callable[[], KraftlogError | None],
        term: Callable[[], int],
        confirm_leadership: Callable[[int], Awaitable[None]],
    ) -> None:
        """`wake`: something was appended. `poll`: the controller may have a new deadline. `why_not_running`: None while the
        quorum runs. `confirm_leadership` returns when this node led in that term all the time up to a moment after the
        call, and raises `NotControllerError` otherwise."""
        self._controller = controller
        self._clock = clock
        self._wake = wake
        self._poll = poll
        self._why_not_running = why_not_running
        self._term = term
        self._confirm_leadership = confirm_leadership

    async def create_topics(
        self, request: CreateTopicsRequest, *, allow_internal: bool = False, request_id: bytes | None = None
    ) -> CreateTopicsResponse:
        """`allow_internal`: also the cluster's own topics; never set for a client's request."""
        return await self._submit(
            lambda: self._controller.create_topics(request, allow_internal=allow_internal),
            operations.CREATE_TOPICS,
            request_id,
        )

    async def delete_topics(
        self, request: DeleteTopicsRequest, *, allow_internal: bool = False, request_id: bytes | None = None
    ) -> DeleteTopicsResponse:
        return await self._submit(
            lambda: self._controller.delete_topics(request, allow_internal=allow_internal),
            operations.DELETE_TOPICS,
            request_id,
        )

    async def create_partitions(
        self, request: CreatePartitionsRequest, *, request_id: bytes | None = None
    ) -> CreatePartitionsResponse:
        return await self._submit(
            lambda: self._controller.create_partitions(request), operations.CREATE_PARTITIONS, request_id
        )

    async def alter_configs(
        self, request: IncrementalAlterConfigsRequest, *, request_id: bytes | None = None
    ) -> IncrementalAlterConfigsResponse:
        return await self._submit(lambda: self._controller.alter_configs(request), operations.ALTER_CONFIGS, request_id)

    async def elect_leaders(
        self, request: ElectLeadersRequest, *, request_id: bytes | None = None
    ) -> ElectLeadersResponse:
        return await self._submit(lambda: self._controller.elect_leaders(request), operations.ELECT_LEADERS, request_id)

    async def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest, *, request_id: bytes | None = None
    ) -> AlterPartitionReassignmentsResponse:
        response = await self._submit(
            lambda: self._controller.alter_partition_reassignments(request), operations.ALTER_REASSIGNMENTS, request_id
        )
        self._poll()  # what needs no copying is done at once
        return response

    async def update_features(
        self, request: UpdateFeaturesRequest, *, request_id: bytes | None = None
    ) -> UpdateFeaturesResponse:
        return await self._submit(
            lambda: self._controller.update_features(request), operations.UPDATE_FEATURES, request_id
        )

    async def alter_partition(self, node_id: int, broker_epoch: int, changes: Sequence[IsrChange]) -> list[IsrAnswer]:
        """The in-sync replicas of partitions that `node_id` leads; one answer for each change."""
        answers = await self._submit(lambda: self._controller.alter_partition(node_id, broker_epoch, changes))
        self._poll()  # a reassignment may be complete with it
        return answers

    async def register_broker(self, registration: BrokerRegistration) -> int:
        """The broker epoch. The broker is fenced until its first heartbeat with up-to-date metadata."""
        epoch = await self._submit(
            lambda: self._controller.register_broker(registration, now_ms=self._clock.monotonic_ms())
        )
        self._poll()  # more elections than one batch holds go on there
        return epoch

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
        """A broker lives, and has applied metadata up to `metadata_offset`.

        Unfences a caught-up broker. With `want_shut_down`, repeat it until the reply says `should_shut_down`.
        `offline_log_dirs`: ids of directories that have failed since the registration. `lost_replicas`: those that
        were found to be damaged since.
        """
        reply = await self._submit(
            lambda: self._controller.heartbeat(
                node_id,
                broker_epoch,
                metadata_offset=metadata_offset,
                want_fence=want_fence,
                want_shut_down=want_shut_down,
                offline_log_dirs=offline_log_dirs,
                lost_replicas=lost_replicas,
                now_ms=self._clock.monotonic_ms(),
            )
        )
        self._poll()
        return reply

    async def unregister_broker(self, node_id: int, *, request_id: bytes | None = None) -> None:
        await self._submit(
            lambda: self._controller.unregister_broker(node_id), operations.UNREGISTER_BROKER, request_id
        )
        self._poll()

    async def allocate_producer_ids(
        self, node_id: int, broker_epoch: int, count: int = 1000, *, request_id: bytes | None = None
    ) -> tuple[int, int]:
        """(first id, number of ids): given out once in the life of the cluster."""
        block = await self._submit(
            lambda: self._controller.allocate_producer_ids(node_id, broker_epoch, count),
            operations.ALLOCATE_PRODUCER_IDS,
            request_id,
        )
        return block.first_id, block.id_count

    async def _submit(
        self,
        operation: Callable[[], Result[T]],
        kind: OperationKind[T] | None = None,
        request_id: bytes | None = None,
    ) -> T:
        """Decide now, return when it is committed. Cancelling the caller does not undo it."""
        request = None if kind is None or request_id is None else RequestId(request_id, kind)
        refusal = self._why_not_running()
        if refusal is not None:
            raise refusal
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def complete(response: Any, error: KraftlogError | None) -> None:
            if future.done():
                return  # the caller has gone
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(response)

        term, last_offset = self._term(), self._controller.last_offset
        self._controller.submit(operation, complete, wall_ms=self._clock.wall_ms(), request=request)
        self._wake()
        if kind is None or self._controller.last_offset > last_offset:
            return await future
        try:
            response = await future
        except NotControllerError:
            raise
        except KraftlogError:
            await self._confirm_leadership(term)
            raise
        await self._confirm_leadership(term)
        return response
