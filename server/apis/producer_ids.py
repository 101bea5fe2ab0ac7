"""InitProducerId: producer ids from blocks that the controller gives to this broker."""

import asyncio
from collections.abc import Awaitable, Callable

from kraftlog.proto.broker_pb2 import InitProducerIdRequest, InitProducerIdResponse
from kraftlog.proto.errors import KraftlogError, UnsupportedVersionError
from kraftlog.proto.seams import CallContext

AllocateBlock = Callable[[], Awaitable[tuple[int, int]]]
"""Asks the controller for a block: (first id, count)."""


class ProducerIdHandler:
    """Hands out ids, each once. Used from one event loop."""

    def __init__(self, allocate_block: AllocateBlock) -> None:
        self._allocate_block = allocate_block
        self._next = 0
        self._end = 0
        self._lock = asyncio.Lock()  # one request for a block at a time

    async def init_producer_id(self, request: InitProducerIdRequest, context: CallContext) -> InitProducerIdResponse:
        """A fresh id with epoch 0. An idempotent producer that asks again gets another id, as in Kafka."""
        try:
            if request.transactional_id:
                raise UnsupportedVersionError("transactional producing is not available on this broker")
            return InitProducerIdResponse(producer_id=await self._take(), producer_epoch=0)
        except KraftlogError as error:
            return InitProducerIdResponse(
                error_code=int(error.code), error_message=error.message, producer_id=-1, producer_epoch=-1
            )

    async def _take(self) -> int:
        while self._next == self._end:
            async with self._lock:
                if self._next == self._end:
                    first, count = await self._allocate_block()
                    self._next, self._end = first, first + count
        taken = self._next
        self._next += 1
        return taken
