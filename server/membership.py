"""This broker's place in the cluster: registration, heartbeats, and leaving in order.

A registration makes a broker epoch; the broker is fenced until a heartbeat shows that it has the metadata. Later
heartbeats keep the session alive. A broker that the controller does not know in this epoch registers again.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Collection
from dataclasses import replace
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


MAX_PAUSE_MS = 100
FIRST_PAUSE_MS = 10  # where nobody else can lead, the second question is answered with yes


class Controller(Protocol):
    """What a broker asks of the controller; `ControllerClient` has it."""

    @property
    def epoch(self) -> int:
        """In which a node was elected to be the controller, as far as this one knows."""
        ...

    async def register_broker(self, registration: BrokerRegistration) -> int: ...

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
    ) -> HeartbeatReply: ...


class BrokerMembership:
    """Used from one event loop."""

    def __init__(
        self,
        controller: Controller,
        clock: Clock,
        registration: BrokerRegistration,
        *,
        lost_replicas: Callable[[], frozenset[tuple[bytes, int]]],
        damaged_replicas: Callable[[], frozenset[tuple[bytes, int]]],
        metadata_offset: Callable[[], int],
        on_registered: Callable[[int], None],
        heartbeat_interval_ms: int,
        duplicate_patience_ms: int,
    ) -> None:
        """`lost_replicas`: (topic id, partition) of those that lack records by now; `damaged_replicas`: of those that were
        found to be damaged while in use. `metadata_offset`: the newest that the broker has applied. `on_registered` is told
        each new broker epoch. `duplicate_patience_ms`: how long to wait for the end of another process that is registered
        with this id."""
        self._controller = controller
        self._clock = clock
        self._registration = registration
        self._node_id = registration.node_id
        self._lost_replicas = lost_replicas
        self._damaged_replicas = damaged_replicas
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
        refused_in: int | None = None  # the controller's epoch: each new one gives sessions their time anew
        refused_since_ms = 0.0
        while self.broker_epoch < 0:
            try:
                await self._register()
            except RequestTimedOutError as error:
                refused_in = None
                self._note(f"registration failed: {error}")
                await asyncio.sleep(self._interval_ms / 1000)
            except DuplicateBrokerRegistrationError as error:
                now_ms, epoch = self._clock.monotonic_ms(), self._controller.epoch
                if epoch != refused_in:
                    refused_in, refused_since_ms = epoch, now_ms
                if now_ms - refused_since_ms >= self._patience_ms:
                    raise
                self._note(f"registration failed: {error}")
                await asyncio.sleep(self._interval_ms / 1000)
        while True:
            if not await self._is_fenced():  # the controller wants to see that we have its metadata
                break
            await asyncio.sleep(self._interval_ms / 1000)
        self._note("")
        self._task = asyncio.get_running_loop().create_task(self._run(), name="broker-heartbeats")

    async def hand_over(self, has_handed_over: Callable[[], bool], timeout_ms: int) -> None:
        """Begin the controlled shutdown: let the controller move the leaders away, at most for `timeout_ms`. The broker
        stays in the cluster. `has_handed_over`: whether the metadata show it."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        pause_ms, ask_ms = FIRST_PAUSE_MS, -math.inf
        try:
            while not has_handed_over() and (now_ms := self._clock.monotonic_ms()) < deadline_ms:
                if now_ms >= ask_ms:  # again: there may be more leaders than one operation moves
                    await self._heartbeat(want_shut_down=True)
                    ask_ms = now_ms + self._interval_ms
                await asyncio.sleep(pause_ms / 1000)
                pause_ms = min(2 * pause_ms, MAX_PAUSE_MS)
        except KraftlogError as error:
            logger.warning("broker %d: the leaders here are not moved: %s", self._node_id, error)

    async def leave(self, timeout_ms: int) -> None:
        """End the controlled shutdown: the controller gives up what nobody else can lead, at most for `timeout_ms`."""
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

    async def give_up(self, directories: Collection[bytes], timeout_ms: int) -> None:
        """These log directories have failed, all that there are: tell the controller, so that others take over at once
        and not when the session has expired. At most for `timeout_ms`."""
        await self.stop()
        scope = asyncio.timeout(timeout_ms / 1000)
        try:
            async with scope:
                await self._controller.heartbeat(
                    self._node_id,
                    self.broker_epoch,
                    metadata_offset=self._metadata_offset(),
                    offline_log_dirs=directories,
                )
        except TimeoutError:
            if not scope.expired():
                raise
            logger.warning("broker %d: the controller did not hear of the failed disk", self._node_id)
        except KraftlogError as error:
            logger.warning("broker %d: the controller did not hear of the failed disk: %s", self._node_id, error)

    async def stop(self) -> None:
        """Send no more heartbeats. May be repeated."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            self._task = None

    async def _register(self) -> None:
        registration = replace(self._registration, lost_replicas=self._lost_replicas())
        self.broker_epoch = await self._controller.register_broker(registration)
        self._on_registered(self.broker_epoch)

    async def _heartbeat(self, *, want_shut_down: bool = False) -> HeartbeatReply:
        return await self._controller.heartbeat(
            self._node_id,
            self.broker_epoch,
            metadata_offset=self._metadata_offset(),
            want_shut_down=want_shut_down,
            lost_replicas=self._damaged_replicas(),
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
