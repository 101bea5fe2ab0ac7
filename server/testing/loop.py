"""An asyncio event loop with virtual time: nothing waits, time jumps to the next timer, the order is always the same.

What makes a run a pure function of its inputs:

- ready callbacks run first in, first out; timers by (time, order of `call_at`);
- time moves only when nothing is ready, straight to the next timer, in whole microseconds: a program that looks at its
  clock when its timer fires and finds its deadline a rounding error away sees time move on when it sets the timer again;
- tasks and futures hash by a serial number and not by their address, so that sets of them (`asyncio.wait`,
  `TaskGroup`, `all_tasks`) iterate in the same order in every process;
- threads, sockets, signals and subprocesses are refused with a clear error.

A `SimProcess` groups what dies together. Every callback belongs to the process in whose context it was scheduled; after
`kill()` none of them runs again, not even a `finally` block, which is what `kill -9` does to a real process.

If nothing is ready and no timer is left, nothing can ever happen again: `run_forever` raises `DeadlockError` with the
list of waiting tasks. A loop that spins without moving time raises `RunawayError`.
"""

import asyncio
import contextlib
import contextvars
import gc
import heapq
import itertools
import math
import threading
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from typing import Any, NoReturn, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

START_SECONDS = 1_000.0  # not 0: a deadline must never be falsy by accident
EVENTS_PER_INSTANT_MAX = 200_000  # more callbacks than this at one virtual instant is a spin
TICKS_PER_SECOND = 1_000_000
ROUNDING_TICKS = 0.001  # what floating-point arithmetic may add to a time that is meant to be a whole tick
SPIN_SAMPLE = 1_000  # so many of the last callbacks of a spin are named in the error
TASKS_BEFORE_TIDYING = 32  # so many tasks of a process may be done before they are let go of
COMPACT_TIMERS_MIN = 128  # fewer cancelled timers than this are not worth a new heap

_REFUSED = (
    "add_reader",
    "add_signal_handler",
    "add_writer",
    "connect_accepted_socket",
    "connect_read_pipe",
    "connect_write_pipe",
    "create_connection",
    "create_datagram_endpoint",
    "create_server",
    "create_unix_connection",
    "create_unix_server",
    "getaddrinfo",
    "getnameinfo",
    "run_in_executor",
    "sendfile",
    "sock_accept",
    "sock_connect",
    "sock_recv",
    "sock_sendall",
    "start_tls",
    "subprocess_exec",
    "subprocess_shell",
)


class SimulationError(Exception):
    """The simulated program did what a simulation cannot or must not do."""


class DeadlockError(SimulationError):
    """Nothing is ready and no timer is left, but the main task is not done."""


class RunawayError(SimulationError):
    """The loop ran very many callbacks, or a very long virtual time, without coming to its end."""


class Timeline:
    """The time of one machine, whose clock runs slow or fast: so many local seconds pass in a second of the loop's."""

    def __init__(self, loop: "VirtualLoop") -> None:
        """At first as the loop's."""
        self.rate = 1.0
        self._loop = loop
        self._true = self._local = loop.now

    @property
    def now(self) -> float:
        return self.local(self._loop.now)

    @property
    def drift_ms(self) -> float:
        """How much the clock has gained or lost since its last change of rate."""
        return abs((self._loop.now - self._true) * (self.rate - 1)) * 1000

    def local(self, true: float) -> float:
        """What the machine's clock says at that moment of the loop's time, which must not lie before the last change."""
        return self._local + (true - self._true) * self.rate

    def true(self, local: float) -> float:
        """When the machine's clock will say so, if its rate does not change."""
        return self._true + (local - self._local) / self.rate

    def run_at(self, rate: float) -> None:
        """Let so many local seconds pass in a second from here on. Timers that were set are due at other moments then."""
        self._local, self._true, self.rate = self.now, self._loop.now, rate
        self._loop.timeline_changed(self)


class SimProcess:
    """What dies together: the tasks and callbacks of one simulated operating-system process.

    States: alive -> dead (`VirtualLoop.kill`) -> buried. The tasks of a dead process are kept until it is buried, because
    collecting a suspended coroutine would run its `finally` blocks, and a killed process runs nothing.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_alive = True
        self.timeline: Timeline | None = None
        """By which its timers run and its loop's time is told; None: the loop's own."""
        self.check: Callable[[], None] | None = None
        """Looks at the process after each of its callbacks; called by who runs the simulation."""
        self._tasks: dict[SimTask[Any], None] = {}
        self._tasks_max = TASKS_BEFORE_TIDYING

    def __repr__(self) -> str:
        return f"<SimProcess {self.name} {'alive' if self.is_alive else 'dead'}>"

    def context(self) -> contextvars.Context:
        """A context whose tasks and callbacks belong to this process."""
        context = contextvars.Context()
        context.run(_process.set, self)
        return context

    def own(self, task: "SimTask[Any]") -> None:
        """Keep a task of this process until it is done."""
        self._tasks[task] = None
        if len(self._tasks) > self._tasks_max:
            self._tasks = {task: None for task in self._tasks if not task.done()}
            self._tasks_max = 2 * len(self._tasks) + TASKS_BEFORE_TIDYING

    def bury(self) -> None:
        """Let go of what a dead process left. Its `finally` blocks run here: its disk and links must be dead by now."""
        assert not self.is_alive
        while self._tasks:  # a `finally` block may start another one
            tasks, self._tasks = list(self._tasks), {}
            for task in tasks:
                task.abandon()


_process: contextvars.ContextVar[SimProcess | None] = contextvars.ContextVar("kraftlog_sim_process", default=None)


def current_process() -> SimProcess | None:
    """The process that the running code belongs to; None for the world around the processes."""
    return _process.get()


class SimFuture(asyncio.Future[T]):
    """A future that hashes by its serial number and knows its process."""

    __slots__ = ("process", "serial")

    def __init__(self, *, loop: "VirtualLoop") -> None:
        super().__init__(loop=loop)
        self.serial = loop.next_serial()
        self.process = _process.get()

    def __hash__(self) -> int:
        return self.serial


class SimTask(asyncio.Task[T]):
    """A task that hashes by its serial number and knows its process."""

    __slots__ = ("process", "serial")

    def __init__(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        loop: "VirtualLoop",
        name: str | None,
        context: contextvars.Context | None,
    ) -> None:
        # Before the base class: its constructor puts the task into a WeakSet, which needs the hash.
        self.serial = loop.next_serial()
        self.process = _process.get() if context is None else context.get(_process)
        super().__init__(coro, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self.serial

    def abandon(self) -> None:
        """Close the coroutine of a task that will never run again, without the loop's complaint about it."""
        setattr(self, "_log_destroy_pending", False)  # noqa: B010 - not in typeshed; asyncio.gather does the same
        coroutine = self.get_coro()
        if coroutine is not None:
            # Whatever a `finally` block of a dead process raises or awaits says nothing about the program.
            with contextlib.suppress(Exception, asyncio.CancelledError, GeneratorExit):
                coroutine.close()


class _Handle(asyncio.Handle):
    """A ready callback, without what the base class does for debugging: a run makes hundreds of thousands."""

    __slots__ = ("arguments", "callback", "context", "is_cancelled", "process")

    def __init__(
        self, callback: Callable[..., object] | None, arguments: tuple[Any, ...], context: contextvars.Context | None
    ) -> None:
        self.callback = callback
        self.arguments = arguments
        self.context = contextvars.copy_context() if context is None else context
        self.process = self.context.get(_process)
        self.is_cancelled = False

    def __repr__(self) -> str:
        return f"<callback {self.callback!r} of {self.process}>"

    def cancel(self) -> None:
        self.is_cancelled = True
        self.callback, self.arguments = None, ()

    def cancelled(self) -> bool:
        return self.is_cancelled


class _Timer(asyncio.TimerHandle):
    """The same for a callback at a time. `is_set`: it is in the loop's heap."""

    __slots__ = ("arguments", "callback", "context", "due", "is_cancelled", "is_set", "loop", "process", "serial")

    def __init__(
        self,
        when: float,
        callback: Callable[..., object] | None,
        arguments: tuple[Any, ...],
        loop: "VirtualLoop",
        context: contextvars.Context | None,
    ) -> None:
        self.callback = callback
        self.arguments = arguments
        self.context = contextvars.copy_context() if context is None else context
        self.process = self.context.get(_process)
        self.is_cancelled = False
        self.is_set = True
        self.due = when
        self.loop = loop
        self.serial = loop.next_serial()

    def __repr__(self) -> str:
        return f"<timer for {self.callback!r} of {self.process}>"

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return self.serial

    def when(self) -> float:
        return self.due

    def cancel(self) -> None:
        if not self.is_cancelled:
            self.is_cancelled = True
            self.callback, self.arguments = None, ()
            self.loop.timer_cancelled(self)

    def cancelled(self) -> bool:
        return self.is_cancelled


class VirtualLoop(asyncio.BaseEventLoop):
    """See the module's docstring. Used from one thread; `close()` it, or use `run_virtual`."""

    def __init__(
        self,
        *,
        after_event: Callable[[], None] | None = None,
        events_per_instant_max: int = EVENTS_PER_INSTANT_MAX,
    ) -> None:
        self._now_ticks = round(START_SECONDS * TICKS_PER_SECOND)
        self.now = START_SECONDS
        """Virtual seconds since the loop was made, plus `START_SECONDS`. Moved by the loop alone."""
        self._queue: deque[_Handle | _Timer] = deque()
        self._timers: list[tuple[int, int, _Timer]] = []
        self._cancelled_timers = 0
        self.next_serial = itertools.count(1).__next__
        """A number that no other task or future of this loop has."""
        self._events_per_instant_max = events_per_instant_max
        self._events_before = 0
        """Those that ran before the present instant."""
        self._spinning: Counter[str] = Counter()
        self._owner = threading.get_ident()
        self._must_stop = False
        self._is_over = False
        """As `is_closed()`, without a call: it is looked at for each callback."""
        self.after_event = after_event
        """Called after every callback, in no process; what it raises ends the run. Invariants live here."""
        self.events = 0
        """Callbacks run so far."""
        self.ran: SimProcess | None = None
        """Whose callback ran last; None: nobody's."""
        self.deadline: float | None = None
        """Virtual time at which the run is given up with `RunawayError`; None: never."""
        super().__init__()
        self.set_debug(False)

    # --- time and scheduling

    def time(self) -> float:
        """`now` as the machine of the running code measures it: see `Timeline`."""
        process = _process.get()
        if process is None or process.timeline is None:
            return self.now
        return process.timeline.now

    def timeline_changed(self, timeline: Timeline) -> None:
        """Of use to timelines only."""
        self._timers = [
            (max(self._now_ticks, _ticks(timeline.true(timer.due))), serial, timer)
            if timer.process is not None and timer.process.timeline is timeline
            else (ticks, serial, timer)
            for ticks, serial, timer in self._timers
        ]
        heapq.heapify(self._timers)

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        if self._is_over:
            self._check_open()
        handle = _Handle(callback, args, context)
        self._queue.append(handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        process = _process.get() if context is None else context.get(_process)
        if process is not None and process.timeline is not None:
            return self.call_at(process.timeline.now + max(delay, 0.0), callback, *args, context=context)
        if delay > 0:
            when = self.now + delay
            ticks = _ticks(when)
            if ticks == self._now_ticks:
                ticks += 1  # a delay below the clock's resolution is a delay all the same
        else:
            when, ticks = self.now, self._now_ticks
        return self._set_timer(ticks, when, callback, args, context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        process = _process.get() if context is None else context.get(_process)
        if process is None or process.timeline is None:
            return self._set_timer(_ticks(when), when, callback, args, context)
        ticks = _ticks(process.timeline.true(when))
        if ticks <= self._now_ticks and when > process.timeline.now:
            ticks = self._now_ticks + 1  # a rounding error away: time must move on
        return self._set_timer(ticks, when, callback, args, context)

    def _set_timer(
        self,
        ticks: int,
        when: float,
        callback: Callable[..., object],
        arguments: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> asyncio.TimerHandle:
        if self._is_over:
            self._check_open()
        timer = _Timer(when, callback, arguments, self, context)
        heapq.heappush(self._timers, (ticks, timer.serial, timer))
        return timer

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        if threading.get_ident() != self._owner:
            raise SimulationError(
                f"another thread called into the virtual loop with {callback!r}: use BlockingExecutor"
            )
        return self.call_soon(callback, *args, context=context)

    def timer_cancelled(self, timer: _Timer) -> None:
        """Of use to timers only."""
        self._cancelled_timers += timer.is_set

    # --- tasks and futures

    def create_future(self) -> SimFuture[Any]:
        return SimFuture(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: contextvars.Context | None = None,
    ) -> SimTask[T]:
        self._check_open()
        task = SimTask(coro, loop=self, name=None if name is None else str(name), context=context)
        process = task.process
        if process is not None:
            process.own(task)
        return task

    def spawn(self, process: SimProcess, coro: Coroutine[Any, Any, T], *, name: str | None = None) -> SimTask[T]:
        """Start a task that belongs to `process`."""
        return self.create_task(coro, name=name, context=process.context())

    def kill(self, process: SimProcess) -> None:
        """Nothing of `process` runs from here on (but for the rest of the running callback, if it is its own)."""
        process.is_alive = False

    # --- running

    def stop(self) -> None:
        self._must_stop = True
        super().stop()

    def _run_once(self) -> None:
        """Rounds, as asyncio's, until the loop is stopped: what is ready now. With nothing ready, time moves to the next
        timer first."""
        self._must_stop = False
        queue = self._queue
        while True:
            if not queue:
                self._advance()
            if self._timers and self._timers[0][0] <= self._now_ticks:
                self._take_due_timers()
            if self.events - self._events_before > self._events_per_instant_max - SPIN_SAMPLE:
                self._spinning.update(_callback_name(handle) for handle in queue)
            for _ in range(len(queue)):
                handle = queue.popleft()
                process = handle.process
                if handle.is_cancelled or (process is not None and not process.is_alive):
                    continue
                self.ran = process
                callback = handle.callback
                assert callback is not None
                handle.callback = None  # a callback that knows its handle would be garbage in a cycle
                try:
                    handle.context.run(callback, *handle.arguments)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self.call_exception_handler({"message": f"Exception in {callback!r}", "exception": error})
                self.events += 1
                if self.after_event is not None:
                    self.after_event()
            if self.events - self._events_before > self._events_per_instant_max:
                self._give_up_spinning()
            if self._must_stop:
                return

    def _give_up_spinning(self) -> NoReturn:
        spinning = "\n".join(f"  {count} times {name}" for name, count in self._spinning.most_common(10))
        raise RunawayError(
            f"{self.events - self._events_before} callbacks at virtual time {self.now:.6f} without progress, the last of them:\n"
            f"{spinning}\nwaiting tasks:\n{self.describe_tasks()}"
        )

    def _advance(self) -> None:
        self._drop_cancelled_timers()
        if not self._timers:
            if self._must_stop:
                return
            raise DeadlockError(
                f"nothing can happen any more at virtual time {self.now:.6f}; waiting tasks:\n{self.describe_tasks()}"
            )
        ticks = self._timers[0][0]
        if self.deadline is not None and ticks > self.deadline * TICKS_PER_SECOND:
            raise RunawayError(f"not done at virtual time {self.deadline:.3f}; waiting tasks:\n{self.describe_tasks()}")
        if ticks > self._now_ticks:
            self._now_ticks = ticks
            self.now = ticks / TICKS_PER_SECOND
            self._events_before = self.events

    def _take_due_timers(self) -> None:
        timers, now_ticks = self._timers, self._now_ticks
        while timers and timers[0][0] <= now_ticks:
            _, _, timer = heapq.heappop(timers)
            timer.is_set = False
            if timer.is_cancelled:
                self._cancelled_timers -= 1
            else:
                self._queue.append(timer)

    def _drop_cancelled_timers(self) -> None:
        """Those that would be next; all of them, when they are many."""
        if self._cancelled_timers >= COMPACT_TIMERS_MIN and self._cancelled_timers * 2 > len(self._timers):
            self._timers = [entry for entry in self._timers if _can_run(entry[2])]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0
        while self._timers and not _can_run(self._timers[0][2]):
            _, _, timer = heapq.heappop(self._timers)
            timer.is_set = False
            self._cancelled_timers -= timer.is_cancelled

    def describe_tasks(self) -> str:
        """One line for each task that is not done: its name, and the line where it waits."""
        lines = []
        for task in sorted(asyncio.all_tasks(self), key=lambda task: task.get_name()):
            if isinstance(task, SimTask) and task.process is not None and not task.process.is_alive:
                continue
            stack = task.get_stack(limit=1)
            place = f"{stack[-1].f_code.co_filename}:{stack[-1].f_lineno}" if stack else "?"
            lines.append(f"  {task.get_name()}: {getattr(task.get_coro(), '__qualname__', '?')} at {place}")
        return "\n".join(lines) or "  (none)"

    def abandon_all(self) -> None:
        """End every task without running it on: the quick end of a simulation. The loop can only be closed then."""
        abandoned: set[SimTask[Any]] = set()
        while tasks := [task for task in self._sim_tasks() if task not in abandoned]:
            for task in tasks:
                abandoned.add(task)
                task.abandon()

    def _sim_tasks(self) -> "list[SimTask[Any]]":
        """Tasks that are not done, in the order of their creation."""
        tasks = [task for task in asyncio.all_tasks(self) if isinstance(task, SimTask)]
        return sorted(tasks, key=lambda task: task.serial)

    def close(self) -> None:
        if not self.is_closed():
            self._queue.clear()
            self._timers.clear()
            self._is_over = True
        super().close()

    def _check_open(self) -> None:
        if self.is_closed():
            raise RuntimeError("Event loop is closed")


def _ticks(when: float) -> int:
    return math.ceil(when * TICKS_PER_SECOND - ROUNDING_TICKS)


def _callback_name(handle: _Handle | _Timer) -> str:
    """What a callback does, as far as it says: for a task's step the task and the place where it waits."""
    callback = handle.callback
    task = getattr(callback, "__self__", None)
    if isinstance(task, SimTask):
        stack = task.get_stack(limit=1)
        place = f" at {stack[-1].f_code.co_filename}:{stack[-1].f_lineno}" if stack else ""
        return f"{task.get_name()}: {getattr(task.get_coro(), '__qualname__', '?')}{place}"
    return getattr(callback, "__qualname__", repr(callback))


def _can_run(timer: _Timer) -> bool:
    return not timer.is_cancelled and (timer.process is None or timer.process.is_alive)


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refuse(*args: object, **kwargs: object) -> NoReturn:
        raise SimulationError(
            f"loop.{name}() is not possible on virtual time: go through the seams (Network, executor)"
        )

    refuse.__name__ = name
    return refuse


for _name in _REFUSED:
    setattr(VirtualLoop, _name, _refusal(_name))


@contextlib.contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Collect no cycles within: a finalizer must not run at a moment that no seed controls. At the end only what has been
    made within is looked at."""
    was_enabled, is_ours = gc.isenabled(), gc.get_freeze_count() == 0
    gc.disable()
    if is_ours:
        gc.freeze()
    try:
        yield
    finally:
        gc.collect()
        if is_ours:
            gc.unfreeze()
        if was_enabled:
            gc.enable()


def run_virtual(
    main: Coroutine[Any, Any, T],
    *,
    loop: VirtualLoop | None = None,
    after_event: Callable[[], None] | None = None,
    max_seconds: float | None = None,
) -> T:
    """Like `asyncio.run`, on virtual time: run `main`, then cancel what it left and close the loop.

    `max_seconds` bounds the virtual time (`RunawayError`); None: no bound.
    """
    loop = loop or VirtualLoop(after_event=after_event)
    if max_seconds is not None:
        loop.deadline = loop.time() + max_seconds
    try:
        return loop.run_until_complete(main)
    finally:
        loop.after_event = None
        loop.deadline = None
        try:
            _cancel_leftovers(loop)
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()


def _cancel_leftovers(loop: VirtualLoop) -> None:
    tasks = loop._sim_tasks()
    living = [task for task in tasks if task.process is None or task.process.is_alive]
    for task in living:
        task.cancel()
    if living:
        loop.run_until_complete(asyncio.gather(*living, return_exceptions=True))
    for task in tasks:
        if not task.done():
            task.abandon()
