"""This broker's place in the cluster: registration, heartbeats, and leaving in order.

A registration makes a broker epoch; the broker is fenced until a heartbeat shows that it has the metadata. Later
heartbeats keep the session alive. A broker that the controller does not know in this epoch registers again.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from kraftlog.kraft.controller import BrokerRegistration, HeartbeatReply
from kraftlog.proto.errors import (
    BrokerIdNotRegisteredError,
    DuplicateBrokerRegistrationError,
    KraftlogError,
    RequestTimedOutError,
    StaleBrokerEpochError,
)
from kraftlog.proto.seams import Clock

logger = logging.getLogger("kraftlog.server")


FIRST_PAUSE_MS = 10  # where nobody else can lead, the second question is answered with yes


class Controller(Protocol):
    """What a broker asks of the controller; `ControllerClient` has it."""

    async def register_broker(self, registration: BrokerRegistration) -> int: ...

    async def heartbeat(
        self,
        node_id: int,
        broker_epoch: int,
        *,
        metadata_offset: int,
        want_fence: bool = False,
        want_shut_down: bool = False,
    ) -> HeartbeatReply: ...


class BrokerMembership:
    """Used from one event loop."""

    def __init__(
        self,
        controller: Controller,
        clock: Clock,
        registration: BrokerRegistration,
        *,
        metadata_offset: Callable[[], int],
        on_registered: Callable[[int], None],
        heartbeat_interval_ms: int,
        duplicate_patience_ms: int,
    ) -> None:
        """`metadata_offset`: the newest that the broker has applied. `on_registered` is told each new broker epoch. `duplicate_patience_ms`: how long to wait for the end
        of another process that is registered with this id."""
        self._controller = controller
        self._clock = clock
        self._registration = registration
        self._node_id = registration.node_id
        self._metadata_offset = metadata_offset
        self._on_registered = on_registered
        self._interval_ms = heartbeat_interval_ms
        self._patience_ms = duplicate_patience_ms
        self._task: asyncio.Task[None] | None = None
        self._problem = ""
        """Why the last heartbeat failed; logged when it is new."""
        self.broker_epoch = -1
        """Of the last registration; -1 before the first."""

    async def start(self) -> None:
        """Register and be unfenced, however long the controller is away; then keep the session alive.

        Raises what the registration is refused with; `DuplicateBrokerRegistrationError` only when that lasts: a process
        that ended without a word is registered until its session ends.
        """
        deadline_ms = self._clock.monotonic_ms() + self._patience_ms
        while self.broker_epoch < 0:
            try:
                await self._register()
            except (RequestTimedOutError, DuplicateBrokerRegistrationError) as error:
                lasts = self._clock.monotonic_ms() >= deadline_ms
                if lasts and isinstance(error, DuplicateBrokerRegistrationError):
                    raise
                self._note(f"registration failed: {error}")
                await asyncio.sleep(self._interval_ms / 1000)
        while True:
            if not await self._is_fenced():  # the controller wants to see that we have its metadata
                break
            await asyncio.sleep(self._interval_ms / 1000)
        self._note("")
        self._task = asyncio.get_running_loop().create_task(self._run(), name="broker-heartbeats")

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
        self.broker_epoch = await self._controller.register_broker(self._registration)
        self._on_registered(self.broker_epoch)

    async def _heartbeat(self, *, want_shut_down: bool = False) -> HeartbeatReply:
        return await self._controller.heartbeat(
            self._node_id,
            self.broker_epoch,
            metadata_offset=self._metadata_offset(),
            want_shut_down=want_shut_down,
        )

    async def _is_fenced(self) -> bool:
        """Sends a heartbeat; a failure counts as fenced."""
        try:
            return (await self._heartbeat()).is_fenced
        except (StaleBrokerEpochError, BrokerIdNotRegisteredError):
            await self._register_again()
        except KraftlogError as error:
            self._note(f"heartbeat failed: {error}")
        return True

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_ms / 1000)
            try:
                await self._heartbeat()
                self._note("")
            except (StaleBrokerEpochError, BrokerIdNotRegisteredError):
                logger.warning("broker %d: the controller does not know epoch %d", self._node_id, self.broker_epoch)
                await self._register_again()
            except KraftlogError as error:
                self._note(f"heartbeat failed: {error}")

    async def _register_again(self) -> None:
        try:
            await self._register()
        except KraftlogError as error:
            self._note(f"registration failed: {error}")

    def _note(self, problem: str) -> None:
        if problem and problem != self._problem:
            logger.warning("broker %d: %s", self._node_id, problem)
        elif self._problem and not problem:
            logger.info("broker %d: the controller answers again", self._node_id)
        self._problem = problem
