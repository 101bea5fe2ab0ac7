"""The values that enter and leave the core: entries, durable state, messages, and `Ready`.

One Raft entry is one record batch. Its place in the log is its *last offset*, so entries leave gaps (a batch of three
records after offset 4 is the entry at 7), the predecessor of an entry is named by the last offset of the batch before
it, and a log is cut only between batches. `term` is Raft's word; on disk and on the wire it is the leader epoch.
"""

from enum import IntEnum
from typing import NamedTuple

NO_OFFSET = -1
"""The last offset of an empty log: offsets start at 0."""

NO_DIRECTORY = bytes(16)
"""The directory id of a node that has not said which one it uses."""


class ReplicaKey(NamedTuple):
    """Who takes part: a node id *and* the directory that holds its log (KIP-853).

    A node that comes back with an empty disk has another directory id. It is then another replica, whose lost votes
    and entries nobody counts.
    """

    node_id: int
    directory_id: bytes = NO_DIRECTORY


Voters = frozenset[ReplicaKey]


class EntryKind(IntEnum):
    DATA = 0
    LEADER_CHANGE = 1
    """The first entry of a leadership; carries no state. It lets entries of earlier terms commit (Raft §5.4.2)."""
    VOTERS = 2
    """The voter set from this entry on, in force as soon as it is in the log."""


class Entry(NamedTuple):
    last_offset: int
    term: int
    kind: EntryKind
    data: bytes
    """The encoded batch; opaque to the core."""
    record_count: int = 1
    voters: Voters | None = None
    """Set exactly when `kind` is VOTERS."""

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.record_count + 1


class Snapshot(NamedTuple):
    """The state machine after `last_offset`, which ends a batch. Genesis is a snapshot at NO_OFFSET of term 0."""

    last_offset: int
    term: int
    voters: Voters
    data: bytes


class HardState(NamedTuple):
    """What must survive a crash besides the log."""

    term: int
    vote: ReplicaKey | None


class VoteRequest(NamedTuple):
    src: ReplicaKey
    dst: ReplicaKey
    term: int
    """The term that the candidate is in, or would enter if it were elected (pre-vote)."""
    last_offset: int
    last_term: int
    is_pre_vote: bool
    is_forced: bool
    """The old leader asked for this election (transfer): stickiness does not apply."""


class VoteResponse(NamedTuple):
    src: ReplicaKey
    dst: ReplicaKey
    term: int
    """Granted pre-vote: the term asked about. Otherwise the term of the sender."""
    is_pre_vote: bool
    is_granted: bool


class AppendRequest(NamedTuple):
    src: ReplicaKey
    dst: ReplicaKey
    term: int
    prev_offset: int
    prev_term: int
    entries: tuple[Entry, ...]
    commit_offset: int
    round: int
    """Number of the leader's latest heartbeat or read round; the answer repeats it."""


class AppendResponse(NamedTuple):
    src: ReplicaKey
    dst: ReplicaKey
    term: int
    is_accepted: bool
    match_offset: int = NO_OFFSET
    """Accepted: the follower's log equals the leader's up to here. Refused: where the leader may try next."""
    rejected_offset: int = NO_OFFSET
    """Refused: the `prev_offset` of the request."""
    round: int = 0


class SnapshotRequest(NamedTuple):
    """One chunk of a snapshot."""

    src: ReplicaKey
    dst: ReplicaKey
    term: int
    last_offset: int
    last_term: int
    voters: Voters
    position: int
    """Where `data` starts within the snapshot's bytes."""
    data: bytes
    is_last: bool
    round: int


class SnapshotResponse(NamedTuple):
    src: ReplicaKey
    dst: ReplicaKey
    term: int
    last_offset: int
    position: int
    """Bytes of that snapshot which the follower holds: where the leader goes on."""
    round: int


class TimeoutNow(NamedTuple):
    """The leader hands over: campaign at once."""

    src: ReplicaKey
    dst: ReplicaKey
    term: int


Message = VoteRequest | VoteResponse | AppendRequest | AppendResponse | SnapshotRequest | SnapshotResponse | TimeoutNow


class ReadResult(NamedTuple):
    context: object
    """What the caller gave to `read_index`."""
    offset: int | None
    """Serve the read from state that includes this offset; it is applied. None: not leader any more, ask elsewhere."""


class Ready(NamedTuple):
    """What the driver must do now, in this order; then it calls `advance` with the same object.

    1. persist `hard_state`;
    2. persist `snapshot` and empty the log behind it; cut every entry after `truncate_to`; append `entries`; then
       `early_messages` may leave, now or any time later: they promise nothing of this node's disk;
    3. fsync all of that, if `must_sync`;
    4. send `messages`: they may promise what steps 1-3 made durable, so none leaves earlier;
    5. load `snapshot` into the state machine, apply `committed` in order, answer `reads`.

    Inputs may arrive while the driver works; their effects are in the next Ready. A step that fails is fatal: the
    driver stops, because what the core believes to be durable is not.
    """

    hard_state: HardState | None
    snapshot: Snapshot | None
    truncate_to: int | None
    """Last offset that stays; None: nothing is cut."""
    entries: tuple[Entry, ...]
    early_messages: tuple[AppendRequest, ...]
    """Of a leader whose term is durable: the others write its entries while it does so itself (Raft thesis §10.2.1). Its
    own copy counts towards a commit from `advance` on, and after a crash it never leads in this term again."""
    messages: tuple[Message, ...]
    committed: tuple[Entry, ...]
    reads: tuple[ReadResult, ...]

    @property
    def must_sync(self) -> bool:
        return bool(
            self.entries or self.hard_state is not None or self.snapshot is not None or self.truncate_to is not None
        )
