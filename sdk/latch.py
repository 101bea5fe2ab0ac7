"""What a thread waits for that Ctrl-C may interrupt at any moment."""

import threading

WAIT_SLICE_S = 0.1  # a signal that the kernel hands to another thread is seen by the waiting main thread so often


class Latch:
    """Opens once, for any number of threads.

    All its state is one flag and one lock of the interpreter. `threading.Event`, `Condition` and futures are Python code
    over several locks: a `KeyboardInterrupt` inside of them leaves a lock held, for which the thread that would set the
    event then waits for ever, or gives back one that is not held (RuntimeError in place of the KeyboardInterrupt).
    """

    __slots__ = ("_closed", "is_open")

    def __init__(self, *, is_open: bool = False) -> None:
        self.is_open = is_open
        self._closed = threading.Lock()
        if not is_open:
            self._closed.acquire()

    def open(self) -> None:
        """Once, by one thread."""
        self.is_open = True
        self._closed.release()

    def wait(self, timeout_s: float) -> bool:
        """Whether it is open, after `timeout_s` at most. Of a wait that Ctrl-C has interrupted, others that wait may
        learn that it is open by their time-out only: wait in slices of `WAIT_SLICE_S`."""
        if not self.is_open and self._closed.acquire(timeout=timeout_s):
            self._closed.release()
        return self.is_open
