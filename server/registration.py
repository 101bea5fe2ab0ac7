"""This broker's place in the cluster: registration, heartbeats, and leaving in order.

A registration makes a broker epoch; the broker is fenced until a heartbeat shows that it has the metadata. Later
heartbeats keep the session alive. A broker that the controller does not know in this epoch registers again.
"""

import asyncio
import logging
from typing import Protocol

from kraftlog.kraft.controller import HeartbeatReply
from kraftlog.kraft.image import BrokerEndpoint
from kraftlog.proto.errors import BrokerIdNotRegisteredError, KraftlogError, StaleBrokerEpochError
from kraftlog.proto.seams import Clock

logger = logging.getLogger("kraftlog.server")


FIRST_PAUSE_MS = 10  # where nobody else can lead, the second question is answered with yes


class Controller(Protocol):
    """What a broker asks of the controller; `QuorumNode` has it."""

    async def register_broker(
        self,
        node_id: int,
        incarnation_id: bytes,
        host: str,
        port: int,
        rack: str = "",
        log_dirs: tuple[bytes, ...] = (),
        endpoints: tuple[BrokerEndpoint, ...] = (),
    ) -> int: ...

    async def heartbeat(
        self,
        node_id: int,
        broker_epoch: int,
        *,
        metadata_offset: int | None = None,
        want_fence: bool = False,
        want_shut_down: bool = False,
    ) -> HeartbeatReply: ...


class BrokerRegistration:
    """Used from one event loop."""

    def __init__(
        self,
        controller: Controller,
        clock: Clock,
        *,
        node_id: int,
        incarnation_id: bytes,
        host: str,
        port: int,
        rack: str,
        log_dirs: tuple[bytes, ...],
        endpoints: tuple[BrokerEndpoint, ...],
        heartbeat_interval_ms: int,
    ) -> None:
        self._controller = controller
        self._clock = clock
        self._node_id = node_id
        self._incarnation_id = incarnation_id
        self._host = host
        self._port = port
        self._rack = rack
        self._log_dirs = log_dirs
        self._endpoints = endpoints
        self._interval_ms = heartbeat_interval_ms
        self._task: asyncio.Task[None] | None = None
        self.broker_epoch = -1
        """Of the last registration; -1 before the first."""

    async def start(self) -> None:
        """Register and be unfenced; then keep the session alive."""
        await self._register()
        while True:
            reply = await self._heartbeat()
            if not reply.is_fenced:
                break
            await asyncio.sleep(self._interval_ms / 1000)  # the controller wants to see that we have its metadata
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def leave(self, timeout_ms: int) -> None:
        """Controlled shutdown: let the controller move the leaders away, at most for `timeout_ms`, then stop."""
        await self.stop()
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        pause_ms = FIRST_PAUSE_MS
        try:
            while not (await self._heartbeat(want_shut_down=True)).should_shut_down:
                if self._clock.monotonic_ms() >= deadline_ms:
                    logger.warning("broker %d: leaving with leaders that could not be moved", self._node_id)
                    return
                await asyncio.sleep(pause_ms / 1000)
                pause_ms = min(2 * pause_ms, self._interval_ms)
        except KraftlogError as error:
            logger.warning("broker %d: leaving without the controller's consent: %s", self._node_id, error)

    async def stop(self) -> None:
        """Send no more heartbeats. May be repeated."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            self._task = None

    async def _register(self) -> None:
        self.broker_epoch = await self._controller.register_broker(
            self._node_id, self._incarnation_id, self._host, self._port, self._rack, self._log_dirs, self._endpoints
        )

    async def _heartbeat(self, *, want_shut_down: bool = False) -> HeartbeatReply:
        return await self._controller.heartbeat(self._node_id, self.broker_epoch, want_shut_down=want_shut_down)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_ms / 1000)
            try:
                await self._heartbeat()
            except (StaleBrokerEpochError, BrokerIdNotRegisteredError):
                logger.warning("broker %d: the controller does not know epoch %d", self._node_id, self.broker_epoch)
                await self._register_again()
            except KraftlogError as error:
                logger.warning("broker %d: heartbeat failed: %s", self._node_id, error)

    async def _register_again(self) -> None:
        try:
            await self._register()
        except KraftlogError as error:
            logger.warning("broker %d: registration failed: %s", self._node_id, error)
