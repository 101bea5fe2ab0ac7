"""The core's messages as they travel, and back, with a check of everything that the core relies on.

The core believes its peers: it asserts that entries follow each other and that terms do not fall. A peer that is broken
or hostile must not reach those asserts, so whatever could is refused here with `InvalidRequestError`, and costs no more
memory than the message that it came in. What no check of one message can find (a leader that lies about what is
committed) is not defended against; peers are authenticated for that.

Entries travel as the batches that they are: on the way out the very objects that the log holds, on the way in one copy
each, so that no entry keeps the rest of its message alive.
"""

from collections.abc import Iterator
from typing import cast

from kraftlog.kraft.control_records import decode_voters, encode_voters
from kraftlog.kraft.raft import (
    NO_OFFSET,
    AppendRequest,
    AppendResponse,
    Entry,
    EntryKind,
    Message,
    ReplicaKey,
    SnapshotRequest,
    SnapshotResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
    Voters,
)
from kraftlog.kraft.records import entry_of
from kraftlog.proto.errors import InvalidRequestError, KraftlogError
from kraftlog.proto.framing import Buffer
from kraftlog.proto.raft_frames import (
    RaftAppendRequest,
    RaftAppendResponse,
    RaftBody,
    RaftSnapshotRequest,
    RaftSnapshotResponse,
    RaftTimeoutNow,
    RaftVoteRequest,
    RaftVoteResponse,
)
from kraftlog.proto.records import CompressionType, iter_headers

MAX_TERM = (1 << 31) - 2  # a batch has its leader epoch in 31 bits, and a candidate adds one
MAX_OFFSET = (1 << 63) - 2
MAX_SNAPSHOT_BYTES = 1 << 30  # far beyond the metadata of a cluster of the largest size; chunks are collected in memory


def to_wire(message: Message) -> RaftBody:
    """Without `src` and `dst`, which the stream has."""
    match message:
        case VoteRequest():
            return RaftVoteRequest(
                message.term, message.last_offset, message.last_term, message.is_pre_vote, message.is_forced
            )
        case VoteResponse():
            return RaftVoteResponse(message.term, message.is_pre_vote, message.is_granted)
        case AppendRequest():
            return RaftAppendRequest(
                message.term,
                message.prev_offset,
                message.prev_term,
                [entry.data for entry in message.entries],
                message.commit_offset,
                message.round,
            )
        case AppendResponse():
            return RaftAppendResponse(
                message.term, message.is_accepted, message.match_offset, message.rejected_offset, message.round
            )
        case SnapshotRequest():
            return RaftSnapshotRequest(
                message.term,
                message.last_offset,
                message.last_term,
                encode_voters(message.voters),
                message.position,
                message.data,
                message.is_last,
                message.round,
            )
        case SnapshotResponse():
            return RaftSnapshotResponse(message.term, message.last_offset, message.position, message.round)
        case TimeoutNow():
            return RaftTimeoutNow(message.term)


def from_wire(body: RaftBody, src: ReplicaKey, dst: ReplicaKey) -> Message | None:
    """The message that came from `src`; None if `body` is none of the core's. Raises `InvalidRequestError`."""
    match body:
        case RaftVoteRequest():
            _check_term(body.term, last_term=body.last_term)
            _check_offsets(last_offset=body.last_offset)
            return VoteRequest(
                src, dst, body.term, body.last_offset, body.last_term, is_pre_vote=body.pre_vote, is_forced=body.forced
            )
        case RaftVoteResponse():
            _check_term(body.term)
            return VoteResponse(src, dst, body.term, body.pre_vote, body.granted)
        case RaftAppendRequest():
            return _append_request(body, src, dst)
        case RaftAppendResponse():
            _check_term(body.term)
            _check_offsets(match_offset=body.match_offset, rejected_offset=body.rejected_offset, round=body.round)
            return AppendResponse(
                src, dst, body.term, body.accepted, body.match_offset, body.rejected_offset, body.round
            )
        case RaftSnapshotRequest():
            return _snapshot_request(body, src, dst)
        case RaftSnapshotResponse():
            _check_term(body.term)
            _check_offsets(last_offset=body.last_offset, position=body.position, round=body.round)
            return SnapshotResponse(src, dst, body.term, body.last_offset, body.position, body.round)
        case RaftTimeoutNow():
            _check_term(body.term)
            return TimeoutNow(src, dst, body.term)
        case _:
            return None


def _append_request(body: RaftAppendRequest, src: ReplicaKey, dst: ReplicaKey) -> AppendRequest:
    _check_term(body.term, prev_term=body.prev_term)
    _check_offsets(prev_offset=body.prev_offset, commit_offset=body.commit_offset, round=body.round)
    entries: list[Entry] = []
    last_offset, last_term = body.prev_offset, body.prev_term
    for entry in _entries(cast(Buffer, body.records)):  # what was decoded is one buffer
        if entry.base_offset != last_offset + 1 or not last_term <= entry.term <= body.term:
            raise InvalidRequestError(
                f"append of term {body.term}: an entry at offset {entry.base_offset} of term {entry.term}"
                f" after offset {last_offset} of term {last_term}"
            )
        last_offset, last_term = entry.last_offset, entry.term
        entries.append(entry)
    return AppendRequest(
        src, dst, body.term, body.prev_offset, body.prev_term, tuple(entries), body.commit_offset, body.round
    )


def _entries(records: Buffer) -> Iterator[Entry]:
    end = 0
    with memoryview(records) as view:
        try:
            for position, header in iter_headers(view):
                end = position + header.size_bytes
                if header.compression_type is not CompressionType.NONE:
                    raise InvalidRequestError(f"the batch at offset {header.base_offset} is compressed")
                if header.record_count != header.last_offset_delta + 1:
                    raise InvalidRequestError(
                        f"the batch at offset {header.base_offset} has {header.record_count} records"
                        f" over {header.last_offset_delta + 1} offsets"
                    )
                yield _checked(entry_of(bytes(view[position:end])))
        except (KraftlogError, ValueError) as error:
            raise InvalidRequestError(f"the batch at byte {end} of an append is no metadata: {error}") from None
        if end != len(view):
            raise InvalidRequestError(f"an append ends with {len(view) - end} bytes that are no batch")


def _checked(entry: Entry) -> Entry:
    if entry.record_count < 1 or not 0 <= entry.base_offset <= entry.last_offset <= MAX_OFFSET:
        raise InvalidRequestError(f"an entry at offsets {entry.base_offset}..{entry.last_offset}")
    if entry.kind is not EntryKind.DATA and entry.record_count != 1:
        raise InvalidRequestError(f"a control batch of {entry.record_count} records at offset {entry.base_offset}")
    if entry.kind is EntryKind.VOTERS and not entry.voters:
        raise InvalidRequestError(f"no voters from offset {entry.last_offset} on")
    return entry


def _snapshot_request(body: RaftSnapshotRequest, src: ReplicaKey, dst: ReplicaKey) -> SnapshotRequest:
    _check_term(body.term, last_term=body.last_term)
    _check_offsets(last_offset=body.last_offset, position=body.position, round=body.round)
    if body.position < 0:
        raise InvalidRequestError(f"a snapshot chunk at position {body.position}")
    if body.position + len(body.data) > MAX_SNAPSHOT_BYTES:
        raise InvalidRequestError(f"a snapshot of more than {MAX_SNAPSHOT_BYTES} bytes")
    return SnapshotRequest(
        src,
        dst,
        body.term,
        body.last_offset,
        body.last_term,
        _voters(bytes(body.voters)),
        body.position,
        bytes(body.data),
        body.last,
        body.round,
    )


def _voters(value: bytes) -> Voters:
    try:
        voters = decode_voters(value)
    except KraftlogError as error:
        raise InvalidRequestError(f"the voters of a snapshot chunk: {error}") from None
    if not voters:
        raise InvalidRequestError("a snapshot without voters")
    return voters


def _check_term(term: int, **earlier: int) -> None:
    """`earlier`: terms that cannot be above `term`."""
    if not 0 <= term <= MAX_TERM:
        raise InvalidRequestError(f"term {term} is not within 0..{MAX_TERM}")
    for name, value in earlier.items():
        if not 0 <= value <= term:
            raise InvalidRequestError(f"{name} {value} is not within 0..{term}")


def _check_offsets(**offsets: int) -> None:
    for name, value in offsets.items():
        if not NO_OFFSET <= value <= MAX_OFFSET:
            raise InvalidRequestError(f"{name} {value} is not within {NO_OFFSET}..{MAX_OFFSET}")
