"""Does the effects of the Raft core, in the order that makes them safe: persist, fsync, then send, then apply. What a
leader asks of the others leaves before its own fsync, so that all disks work at the same time.

Between two Readys it does what else needs the log for itself (`submit`): trimming it after a snapshot.

Writes go to the page cache on the event loop (one writer per log), waiting for the disk happens in the executor.
Whatever is decided meanwhile is gathered and in the next Ready: so all operations that arrive during one fsync share the
next one.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

from kraftlog.kraft.raft import Entry, HardState, Message, RaftCore, Ready, Snapshot
from kraftlog.kraft.snapshot import SnapshotContents
from kraftlog.proto.seams import BlockingExecutor


class QuorumStorage(Protocol):
    """What the driver needs of the disk; `kraft.log_adapter.MetadataLog` in a node."""

    def write_hard_state(self, hard_state: HardState) -> None:
        """Durable on return. Blocks."""
        ...

    def install_snapshot(self, snapshot: Snapshot) -> SnapshotContents:
        """It takes the place of the log; durable on return. Blocks."""
        ...

    def truncate_to(self, last_offset: int) -> None:
        """Cut what follows; durable on return. Blocks."""
        ...

    def append(self, entries: Sequence[Entry]) -> None:
        """Write, not yet durable."""
        ...

    def flush(self) -> None:
        """All that was written before is durable on return. Blocks; runs in another thread than the rest."""
        ...


class QuorumDriver:
    """Used from one event loop. `run` ends by `stop`, or raises what an effect raised: then the disk may not hold what
    the core believes, and the node must stop."""

    def __init__(
        self,
        *,
        core: RaftCore,
        storage: QuorumStorage,
        executor: BlockingExecutor,
        gather: Callable[[], None],
        send: Callable[[Message], None],
        load: Callable[[Snapshot, SnapshotContents], None],
        apply: Callable[[Ready], None],
    ) -> None:
        """`gather` proposes what waits for that, before each Ready. `load` puts a received snapshot in the place of the state, `apply` the rest of a Ready on top."""
        self._core = core
        self._storage = storage
        self._executor = executor
        self._gather = gather
        self._send = send
        self._load = load
        self._apply = apply
        self._jobs: deque[Callable[[], Awaitable[None]]] = deque()
        self._wake = asyncio.Event()
        self._is_stopping = False

    def wake(self) -> None:
        """The core has had an input."""
        self._wake.set()

    def submit(self, job: Callable[[], Awaitable[None]]) -> None:
        """Do this between two Readys, when nothing else touches the log. What it raises ends `run`. After `stop` it is
        dropped. The only caller submits no second job before the first is done."""
        self._jobs.append(job)
        self._wake.set()

    def stop(self) -> None:
        """Let `run` return after the effects that are under way."""
        self._is_stopping = True
        self._wake.set()

    async def run(self) -> None:
        while not self._is_stopping:
            if self._jobs:
                await self._jobs.popleft()()
                continue
            self._gather()
            if self._core.has_ready():
                await self._perform(self._core.ready())
                await asyncio.sleep(0)  # a long replay is many Readys: let others run in between
            else:
                await self._wake.wait()
                self._wake.clear()

    async def _perform(self, ready: Ready) -> None:
        contents = await self._persist(ready)
        for message in ready.messages:
            self._send(message)
        if ready.snapshot is not None:
            assert contents is not None
            self._load(ready.snapshot, contents)
        self._apply(ready)
        self._core.advance(ready)

    async def _persist(self, ready: Ready) -> SnapshotContents | None:
        """The term first, and durable: entries of a term must not outlive the vote that made their leader."""
        if ready.hard_state is not None:
            await self._executor.run(partial(self._storage.write_hard_state, ready.hard_state))
        contents = None
        if ready.snapshot is not None:
            contents = await self._executor.run(partial(self._storage.install_snapshot, ready.snapshot))
        if ready.truncate_to is not None:
            await self._executor.run(partial(self._storage.truncate_to, ready.truncate_to))
        if ready.entries:
            self._storage.append(ready.entries)
            for message in ready.early_messages:
                self._send(message)
            await self._executor.run(self._storage.flush)
        return contents
