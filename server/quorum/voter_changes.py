"""Adding and removing voters, one at a time (KIP-853): wait until the core takes the change, then until it is committed."""

from collections.abc import Callable

from kraftlog.kraft.raft import BusyError, Entry, NotLeaderError, RaftCore, ReplicaKey
from kraftlog.proto.errors import (
    DuplicateVoterError,
    InvalidRequestError,
    NotControllerError,
    RequestTimedOutError,
    VoterNotFoundError,
)
from kraftlog.proto.seams import Clock
from kraftlog.proto.uuids import uuid_to_text
from kraftlog.server.quorum.waiting import Conditions


class VoterChanges:
    """Used from one event loop."""

    def __init__(
        self,
        conditions: Conditions,
        clock: Clock,
        *,
        timeout_ms: float,
        retry_ms: float,
        before_input: Callable[[], None],
        after_input: Callable[[], None],
    ) -> None:
        """`before_input` is called before a change is appended, `after_input` when the core has had an input."""
        self._conditions = conditions
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._retry_ms = retry_ms
        self._before_input = before_input
        self._after_input = after_input

    async def add(self, core: RaftCore, key: ReplicaKey) -> None:
        """Give the observer `key` a vote once it has caught up."""

        def begin() -> Entry:
            same_node = [voter for voter in core.voters if voter.node_id == key.node_id]
            if same_node:
                other = "" if key in same_node else f", with directory {_directory(same_node[0])}: remove that first"
                raise DuplicateVoterError(f"node {key.node_id} is a voter already{other}")
            if core.leadership is not None and key not in core.leadership.progress:
                raise BusyError(f"node {key.node_id} with directory {_directory(key)} is not connected")
            entry = core.change_voter(add=key)
            assert entry is not None, "it does not vote yet"
            return entry

        await self._change(core, begin, f"node {key.node_id} is not a voter yet")

    async def remove(self, core: RaftCore, key: ReplicaKey) -> None:
        """Take the vote of `key`."""

        def begin() -> Entry:
            if key not in core.voters:
                raise VoterNotFoundError(f"node {key.node_id} with directory {_directory(key)} is not a voter")
            if len(core.voters) == 1:
                raise InvalidRequestError(f"node {key.node_id} is the only voter")
            entry = core.change_voter(remove=key)
            assert entry is not None, "it votes, and is not the only one"
            return entry

        await self._change(core, begin, f"node {key.node_id} is still a voter")

    async def _change(self, core: RaftCore, begin: Callable[[], Entry], outlook: str) -> None:
        deadline_ms = self._clock.monotonic_ms() + self._timeout_ms
        entry = await self._begin(core, begin, outlook, deadline_ms)
        offset, term = entry.last_offset, entry.term
        is_decided = await self._conditions.wait(
            lambda: core.commit_offset >= offset or core.term != term, deadline_ms - self._clock.monotonic_ms()
        )
        if not is_decided:
            raise RequestTimedOutError(f"{outlook}: the change at offset {offset} is not committed")
        if core.commit_offset < offset or core.log.term_at(offset) not in (term, None):
            raise NotControllerError(f"{outlook}: the leadership was lost, the next leader decides")

    async def _begin(self, core: RaftCore, begin: Callable[[], Entry], outlook: str, deadline_ms: float) -> Entry:
        while True:
            try:
                if core.leadership is None:
                    raise NotLeaderError(core.leader)
                self._before_input()
                entry = begin()
            except NotLeaderError as error:
                raise NotControllerError(str(error)) from None
            except BusyError as error:
                left_ms = deadline_ms - self._clock.monotonic_ms()
                if left_ms <= 0:
                    raise RequestTimedOutError(f"{outlook}: {error}") from None
                # Also raises when the node stops meanwhile.
                await self._conditions.wait(lambda: False, min(self._retry_ms, left_ms))
            else:
                self._after_input()
                return entry


def _directory(key: ReplicaKey) -> str:
    return uuid_to_text(key.directory_id)
