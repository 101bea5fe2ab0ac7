"""The thread that runs the delivery callbacks of a synchronous producer, started with the first one.

Callbacks run here and not on the event loop, so that a slow one holds up no heartbeat, and so that one may send or wait
for other things. The memory of a batch is given back after its callbacks have run: slow callbacks slow the sends down
instead of filling a queue.
"""

import queue
import threading
from collections.abc import Callable

from kraftlog.sdk.producer.async_producer import run_callbacks
from kraftlog.sdk.producer.batch import ProducerBatch

Job = tuple[ProducerBatch, list[Callable[[], object]]]


class CallbackThread:
    """Runs jobs in order. `submit` may be called from any thread; after `close` the job runs there."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def submit(self, batch: ProducerBatch, callbacks: list[Callable[[], object]]) -> None:
        with self._lock:
            if not self._is_closed:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._main, name="kraftlog-callbacks", daemon=True)
                    self._thread.start()
                self._jobs.put((batch, callbacks))
                return
        self._run(batch, callbacks)

    def is_own_thread(self) -> bool:
        return threading.current_thread() is self._thread

    def close(self, timeout_s: float) -> bool:
        """Run what was submitted and end; whether that was done in time. From a callback: ends after it."""
        with self._lock:
            self._is_closed = True
            thread = self._thread
            self._jobs.put(None)
        if thread is None:
            return True
        if self.is_own_thread():
            return True
        thread.join(timeout_s)
        return not thread.is_alive()

    def _main(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._run(*job)

    def _run(self, batch: ProducerBatch, callbacks: list[Callable[[], object]]) -> None:
        run_callbacks(callbacks)
        batch.queue.accumulator.release(batch)
