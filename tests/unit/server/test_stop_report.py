"""A stop that takes long says what it waits for."""

import asyncio
import logging
import threading
from collections.abc import Iterator

import pytest

from kraftlog.server.stop_report import reported


async def closes_the_log(gate: asyncio.Event) -> None:
    await gate.wait()


async def stop(gate: asyncio.Event) -> None:
    await closes_the_log(gate)


class Heard(logging.Handler):
    """Says when there has been a report."""

    def __init__(self) -> None:
        super().__init__()
        self.event = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.event.set()


@pytest.fixture
def heard() -> Iterator[Heard]:
    handler = Heard()
    logging.getLogger("kraftlog.server").addHandler(handler)
    yield handler
    logging.getLogger("kraftlog.server").removeHandler(handler)


async def test_a_stop_that_takes_long_says_where_it_waits(caplog: pytest.LogCaptureFixture, heard: Heard) -> None:
    """The whole chain of calls, what other tasks wait for, and the threads; at last it ends as it would have."""
    gate, held = asyncio.Event(), threading.Event()
    beside = asyncio.get_running_loop().create_task(stop(gate), name="beside")
    thread = threading.Thread(target=held.wait, name="held")
    thread.start()
    stopping = asyncio.get_running_loop().create_task(reported(stop(gate), "node 7", after_s=0.01))
    await heard.event.wait()
    gate.set()
    held.set()
    await stopping
    await beside
    thread.join()
    said, *lines = caplog.records[0].getMessage().splitlines()
    assert said == "node 7 has not stopped yet; it waits for:"
    places = dict(line.split(": ", 1) for line in lines)
    for task in ("stop of node 7", "beside"):
        names = [place.split(" (")[0] for place in places[f"task {task!r}"].split(" > ")]
        assert names == ["stop", "closes_the_log", "Event.wait", "FutureIter"]
    assert " > Event.wait (threading.py:" in places["thread 'held'"]


async def test_a_stop_in_time_says_nothing_and_a_failed_one_raises(caplog: pytest.LogCaptureFixture) -> None:
    """As without the report."""

    async def fails() -> None:
        raise ValueError("a bug")

    async def ends() -> None:
        await asyncio.sleep(0)

    await reported(ends(), "node 7")
    with pytest.raises(ValueError, match="a bug"):
        await reported(fails(), "node 7")
    assert not caplog.records
