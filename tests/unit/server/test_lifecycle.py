"""Requests wait for the start and are refused once the node stops."""

import asyncio

import pytest

from kraftlog.proto.errors import BrokerNotAvailableError
from kraftlog.server.apis.lifecycle import Lifecycle


async def test_requests_wait_until_the_node_serves() -> None:
    """The listener is open before the node is registered: early requests wait."""
    lifecycle = Lifecycle(1)
    early = asyncio.create_task(lifecycle.admit())
    await asyncio.sleep(0)
    assert not early.done()
    assert not lifecycle.is_serving
    lifecycle.begin_serving()
    await early
    await lifecycle.admit()
    assert lifecycle.is_serving


async def test_a_stopping_node_refuses_and_tells_the_long_requests() -> None:
    """Stopping calls each callback once; a retriable error sends the client elsewhere."""
    lifecycle = Lifecycle(1)
    early = asyncio.create_task(lifecycle.admit())
    await asyncio.sleep(0)
    calls: list[str] = []
    with lifecycle.on_stopping(lambda: calls.append("long")):
        lifecycle.begin_stopping()
        lifecycle.begin_stopping()
    assert calls == ["long"]
    for request in (early, lifecycle.admit()):
        with pytest.raises(BrokerNotAvailableError) as caught:
            await request
        assert caught.value.retriable
    assert not lifecycle.is_serving


async def test_a_request_that_ended_is_not_told() -> None:
    """Callbacks live only as long as their block."""
    lifecycle = Lifecycle(1)
    calls: list[str] = []
    with lifecycle.on_stopping(lambda: calls.append("ended")):
        pass
    lifecycle.begin_stopping()
    with lifecycle.on_stopping(lambda: calls.append("late")):
        assert calls == ["late"]
