"""A broker's registration, with a controller that answers as the test says."""

import asyncio
from collections.abc import Collection

import pytest

from kraftlog.kraft.controller import BrokerRegistration, HeartbeatReply
from kraftlog.proto.errors import DuplicateBrokerRegistrationError, KraftlogError, RequestTimedOutError
from kraftlog.server.membership import BrokerMembership
from kraftlog.testing.clock import SimClock
from kraftlog.testing.loop import VirtualLoop, run_virtual

PATIENCE_MS = 6_000
INTERVAL_MS = 500
DUPLICATE = DuplicateBrokerRegistrationError("broker 1 is registered and alive")
TIMED_OUT = RequestTimedOutError("no controller")


class FakeController:
    """Registers when it has nothing more to object."""

    def __init__(self, *objections: tuple[float, KraftlogError]) -> None:
        self._objections = list(objections)
        self.epoch = 1
        self.changes_after_s: float | None = None
        """Another node takes over so often; None: never."""

    async def register_broker(self, registration: BrokerRegistration) -> int:
        if self.changes_after_s is not None:
            self.epoch = int(asyncio.get_running_loop().time() / self.changes_after_s)
        if self._objections:
            after_s, error = self._objections.pop(0)
            await asyncio.sleep(after_s)
            raise error
        return 7

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
        return HeartbeatReply(is_fenced=False, should_shut_down=False)


def start(controller: FakeController) -> int:
    """The broker epoch."""
    loop = VirtualLoop()

    async def run() -> int:
        membership = BrokerMembership(
            controller,
            SimClock(loop),
            BrokerRegistration(node_id=1, incarnation_id=bytes(16), host="h", port=1),
            lost_replicas=frozenset,
            damaged_replicas=frozenset,
            metadata_offset=lambda: 7,
            on_registered=lambda epoch: None,
            heartbeat_interval_ms=INTERVAL_MS,
            duplicate_patience_ms=PATIENCE_MS,
        )
        await membership.start()
        await membership.stop()
        return membership.broker_epoch

    return run_virtual(run(), loop=loop)


def test_the_end_of_another_session_is_waited_for_from_the_first_refusal_on() -> None:
    """However long there was no controller before: one that takes over then gives the old session its time anew (a simulated
    cluster, seed 106)."""
    absence = [(2.0, TIMED_OUT)] * 5
    assert start(FakeController(*absence, *[(0.0, DUPLICATE)] * 8)) == 7
    assert start(FakeController(*[(0.0, DUPLICATE)] * 8, *absence, *[(0.0, DUPLICATE)] * 8)) == 7


def test_a_new_controller_is_waited_for_anew() -> None:
    """Though there was one all the time, be it the same node again (seed 2025)."""
    controller = FakeController(*[(0.0, DUPLICATE)] * 40)
    controller.changes_after_s = 5
    assert start(controller) == 7


def test_refusals_that_last_end_the_start() -> None:
    """Another process lives under this id."""
    with pytest.raises(DuplicateBrokerRegistrationError):
        start(FakeController(*[(0.0, DUPLICATE)] * 20))
