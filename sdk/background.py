"""The event loop behind the synchronous clients: one daemon thread per process.

Forking: gRPC cannot be used in a child while its threads run in the parent at the moment of the fork. So before a fork
the loop closes its channels (their calls fail with `NetworkError` and are retried, as after any lost connection) and
stands still until the fork is done. The child starts a loop of its own at first use.
"""

import asyncio
import atexit
import ctypes
import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

from kraftlog.proto.errors import ClientClosedError, IllegalStateError, RequestTimedOutError
from kraftlog.sdk.latch import WAIT_SLICE_S, Latch

log = logging.getLogger("kraftlog.sdk")

T = TypeVar("T")

QUIESCE_TIMEOUT_S = 2.0  # how long a fork waits for the loop to close its channels
STOP_TIMEOUT_S = 2.0
WIND_DOWN_S = 0.2


class ForkAware(Protocol):
    """A client that lives in a process with a background loop."""

    def after_fork_in_child(self) -> None:
        """Forget what belongs to the parent. Called in the child, where only the forking thread lives."""
        ...


class _Call(Generic[T]):
    """Work on a loop, asked for by another thread. The coroutine is made on the loop: made by a thread that Ctrl-C then
    interrupts, it would be dropped without having been awaited."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self.done = Latch()
        self._loop = loop
        self._work = work
        self._task: asyncio.Task[T] | None = None
        self._results: list[T] = []
        self._error: BaseException | None = None
        self._is_dropped = False

    def start(self) -> None:
        """On the loop."""
        if not self._is_dropped:
            self._task = self._loop.create_task(self._work())
            self._task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[T]) -> None:
        self._task = (
            None  # its last reference goes here: Ctrl-C in a destructor, in the caller's thread, would get lost
        )
        if task.cancelled():
            self._error = ClientClosedError("the event loop was stopped: the process ends")
        else:
            self._error = task.exception()
        if self._error is None:
            self._results.append(task.result())
        self.done.open()

    def take_result(self) -> T:
        """Of a call that is done: what its coroutine returned or raised. Once: nothing here keeps an error afterwards,
        whose traceback holds the caller's frames."""
        error, self._error = self._error, None
        if error is None:
            return self._results.pop()
        try:
            raise error
        finally:
            del error

    def drop(self) -> None:
        """On the loop. Nobody waits any more."""
        self._is_dropped = True
        if self._task is not None:
            self._task.cancel()


class BackgroundLoop:
    """An event loop in a thread. Its methods may be called from any other thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._main, name="kraftlog", daemon=True)
        self._thread.start()

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def is_own_thread(self) -> bool:
        return threading.current_thread() is self._thread

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        self.loop.call_soon_threadsafe(callback, *args)

    def run(self, work: Callable[[], Coroutine[Any, Any, T]], timeout_s: float | None = None) -> T:
        """Call `work` on the loop and wait for its coroutine, in slices, so that Ctrl-C gets through at any moment.

        `timeout_s` is a last resort for work that bounds itself: then it is cancelled and `RequestTimedOutError` raised.
        """
        if self.is_own_thread():
            raise IllegalStateError("a blocking call inside of a callback of the event loop would wait for itself")
        call = _Call(self.loop, work)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            self.call_soon(call.start)
            while True:
                slice_s = WAIT_SLICE_S if deadline is None else min(WAIT_SLICE_S, deadline - time.monotonic())
                if call.done.wait(max(0.0, slice_s)):
                    return call.take_result()
                if slice_s <= 0:
                    raise RequestTimedOutError(f"no result within {timeout_s} s")
        finally:
            if not call.done.is_open:
                self.call_soon(call.drop)

    def stop(self) -> None:
        """End the thread. Tasks get a moment to end by themselves (gRPC's do after a cancel), then they are cancelled."""

        async def wind_down() -> None:
            for cancel in (False, True):
                rest = asyncio.all_tasks() - {asyncio.current_task()}
                for task in rest if cancel else ():
                    task.cancel()
                if rest:
                    await asyncio.wait(rest, timeout=WIND_DOWN_S)
            self.loop.stop()

        asyncio.run_coroutine_threadsafe(wind_down(), self.loop)
        self._thread.join(STOP_TIMEOUT_S)
        if not self._thread.is_alive():
            self.loop.close()

    # -- forking

    def hold(self, release: threading.Event) -> bool:
        """Close every channel, then keep the thread in one place until `release` is set. Whether it worked in time."""
        held = threading.Event()
        is_quiet = True

        async def close_and_wait() -> None:
            nonlocal is_quiet
            transport = sys.modules.get("kraftlog.sdk.transport")
            if transport is not None:
                is_quiet = await transport.quiet_this_loop(QUIESCE_TIMEOUT_S)
            held.set()
            release.wait()
            if transport is not None:
                transport.resume_this_loop()

        asyncio.run_coroutine_threadsafe(close_and_wait(), self.loop)
        return held.wait(QUIESCE_TIMEOUT_S + 1) and is_quiet


_lock = threading.Lock()
_current: BackgroundLoop | None = None
_release: threading.Event | None = None
_clients: "weakref.WeakSet[Any]" = weakref.WeakSet()


def background_loop() -> BackgroundLoop:
    """The loop of this process, started at first use."""
    global _current
    with _lock:
        if _current is None:
            _current = BackgroundLoop()
        return _current


def register_client(client: ForkAware) -> None:
    """Have `client` told in the child when this process forks."""
    _clients.add(client)


def _before_fork() -> None:
    global _release
    _lock.acquire()
    if _current is not None and not _current.is_own_thread():
        _release = threading.Event()
        if not _current.hold(_release):
            log.warning("fork while kraftlog's event loop is busy: clients in the child may not work")


def _after_fork_in_parent() -> None:
    global _release
    if _release is not None:
        _release.set()
        _release = None
    _lock.release()


def _after_fork_in_child() -> None:
    global _current, _lock, _release
    if _current is not None:
        _keep_for_ever(_current.loop)
    _current = None
    _release = None
    _lock = threading.Lock()
    for client in list(_clients):
        client.after_fork_in_child()


def _keep_for_ever(loop: asyncio.AbstractEventLoop) -> None:
    """Never let the parent's loop be closed in the child.

    Both processes share one epoll instance: closing the loop here, as its finalizer does, would take the parent's
    self-pipe out of it, and nothing could wake the parent's loop any more.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(loop))


def _at_exit() -> None:
    global _current
    with _lock:
        current, _current = _current, None
    if current is not None:
        current.stop()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
atexit.register(_at_exit)  # registered first, so that it runs after the clients' own exit handlers
