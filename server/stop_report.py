"""What a node waits for that takes long to stop: a stop that hangs must say where, before somebody ends it by force."""

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import Coroutine, Iterator
from types import CodeType, FrameType
from typing import Any

logger = logging.getLogger("kraftlog.server")

REPORT_AFTER_S = 10.0  # a stop in order takes one or two seconds, a few more without a quorum


async def reported(stop: Coroutine[Any, Any, None], name: str, after_s: float = REPORT_AFTER_S) -> None:
    """Await `stop` to its end. Each `after_s` seconds a warning says what it and all else still wait for."""
    stopping = asyncio.get_running_loop().create_task(stop, name=f"stop of {name}")
    while not (await asyncio.wait([stopping], timeout=after_s))[0]:
        logger.warning("%s has not stopped yet; it waits for:\n%s", name, "\n".join(_waits()))
    stopping.result()


def _waits() -> Iterator[str]:
    """One line for each task and each other thread, the innermost place last."""
    own = asyncio.current_task()
    for task in asyncio.all_tasks():
        if task is not own:
            yield f"task {task.get_name()!r}: {' > '.join(_places(task.get_coro())) or 'about to run'}"
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        if ident != threading.get_ident():
            stack = (_place(each.f_code, line) for each, line in traceback.walk_stack(frame))
            yield f"thread {names.get(ident, ident)!r}: {' > '.join(reversed(list(stack)))}"


def _places(awaited: object) -> Iterator[str]:
    """Where a coroutine waits, from the outermost to what is no coroutine any more."""
    while awaited is not None:
        frame: FrameType | None = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is None:
            yield type(awaited).__name__
            return
        yield _place(frame.f_code, frame.f_lineno)
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)


def _place(code: CodeType, line: int) -> str:
    return f"{code.co_qualname} ({code.co_filename.rpartition('/')[2]}:{line})"
