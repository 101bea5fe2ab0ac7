"""The same work for many logs, in a few threads or, with one, in the caller's: then in order, as the simulator needs it."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def run_all(
    work: Callable[[Item], Result], items: Sequence[Item], threads: int
) -> Iterator[tuple[Item, Result | Exception]]:
    """Each item with what `work` returned or raised, as they get done. Nothing is left out because another failed.

    Blocks. An iteration that is given up waits for the work that runs and drops the rest.
    """
    if threads <= 1 or len(items) <= 1:
        for item in items:
            yield item, _outcome(work, item)
        return
    pool = ThreadPoolExecutor(min(threads, len(items)), thread_name_prefix="kraftlog-log-dir")
    try:
        running: dict[Future[Result | Exception], Item] = {pool.submit(_outcome, work, item): item for item in items}
        for future in as_completed(running):
            yield running[future], future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _outcome(work: Callable[[Item], Result], item: Item) -> Result | Exception:
    try:
        return work(item)
    except Exception as e:
        return e
