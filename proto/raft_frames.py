"""The messages of `raft.proto`, framed by hand (see `framing`): record batches and snapshot chunks are never copied.

Names, fields and defaults are those of `raft.proto`. A frame has exactly one of its fields set.
"""

from dataclasses import dataclass

from kraftlog.proto.frames import FrameCodec
from kraftlog.proto.framing import Buffer, Kind, Records, Schema

EXCHANGE = "/kraftlog.v1.Raft/Exchange"
MAX_MESSAGE_BYTES = 16 * 1024 * 1024  # an operation of 8 MiB, or a megabyte of appends, with much room
MAX_FRAMES = 4096  # of one message; a sender stays far below


@dataclass(slots=True)
class RaftHello:
    cluster_id: str = ""
    node_id: int = 0
    directory_id: Buffer = b""
    to_node_id: int = 0
    to_directory_id: Buffer = b""
    host: str = ""
    port: int = 0
    voter: bool = False


@dataclass(slots=True)
class RaftHelloAnswer:
    node_id: int = 0
    directory_id: Buffer = b""
    host: str = ""
    port: int = 0


@dataclass(slots=True)
class RaftLeaderHint:
    term: int = 0
    node_id: int = 0
    directory_id: Buffer = b""
    host: str = ""
    port: int = 0


@dataclass(slots=True)
class RaftVoteRequest:
    term: int = 0
    last_offset: int = 0
    last_term: int = 0
    pre_vote: bool = False
    forced: bool = False


@dataclass(slots=True)
class RaftVoteResponse:
    term: int = 0
    pre_vote: bool = False
    granted: bool = False


@dataclass(slots=True)
class RaftAppendRequest:
    term: int = 0
    prev_offset: int = 0
    prev_term: int = 0
    records: Records = b""
    commit_offset: int = 0
    round: int = 0


@dataclass(slots=True)
class RaftAppendResponse:
    term: int = 0
    accepted: bool = False
    match_offset: int = 0
    rejected_offset: int = 0
    round: int = 0


@dataclass(slots=True)
class RaftSnapshotRequest:
    term: int = 0
    last_offset: int = 0
    last_term: int = 0
    voters: Buffer = b""
    position: int = 0
    data: Buffer = b""
    last: bool = False
    round: int = 0


@dataclass(slots=True)
class RaftSnapshotResponse:
    term: int = 0
    last_offset: int = 0
    position: int = 0
    round: int = 0


@dataclass(slots=True)
class RaftTimeoutNow:
    term: int = 0


@dataclass(slots=True)
class RaftReadIndexRequest:
    request_id: int = 0


@dataclass(slots=True)
class RaftReadIndexResponse:
    request_id: int = 0
    offset: int = 0


RaftBody = (
    RaftHello
    | RaftHelloAnswer
    | RaftLeaderHint
    | RaftVoteRequest
    | RaftVoteResponse
    | RaftAppendRequest
    | RaftAppendResponse
    | RaftSnapshotRequest
    | RaftSnapshotResponse
    | RaftTimeoutNow
    | RaftReadIndexRequest
    | RaftReadIndexResponse
)
"""What a frame holds."""


@dataclass(slots=True)
class RaftFrame:
    hello: RaftHello | None = None
    hello_answer: RaftHelloAnswer | None = None
    leader_hint: RaftLeaderHint | None = None
    vote_request: RaftVoteRequest | None = None
    vote_response: RaftVoteResponse | None = None
    append_request: RaftAppendRequest | None = None
    append_response: RaftAppendResponse | None = None
    snapshot_request: RaftSnapshotRequest | None = None
    snapshot_response: RaftSnapshotResponse | None = None
    timeout_now: RaftTimeoutNow | None = None
    read_index_request: RaftReadIndexRequest | None = None
    read_index_response: RaftReadIndexResponse | None = None


_INT64, _BYTES, _BOOL = Kind.INT64, Kind.RECORDS, Kind.BOOL
_SCHEMAS = (
    Schema(
        RaftHello,
        (1, "cluster_id", Kind.STRING),
        (2, "node_id", Kind.INT32),
        (3, "directory_id", _BYTES),
        (4, "to_node_id", Kind.INT32),
        (5, "to_directory_id", _BYTES),
        (6, "host", Kind.STRING),
        (7, "port", Kind.UINT32),
        (8, "voter", _BOOL),
    ),
    Schema(
        RaftHelloAnswer,
        (1, "node_id", Kind.INT32),
        (2, "directory_id", _BYTES),
        (3, "host", Kind.STRING),
        (4, "port", Kind.UINT32),
    ),
    Schema(
        RaftLeaderHint,
        (1, "term", _INT64),
        (2, "node_id", Kind.INT32),
        (3, "directory_id", _BYTES),
        (4, "host", Kind.STRING),
        (5, "port", Kind.UINT32),
    ),
    Schema(
        RaftVoteRequest,
        (1, "term", _INT64),
        (2, "last_offset", _INT64),
        (3, "last_term", _INT64),
        (4, "pre_vote", _BOOL),
        (5, "forced", _BOOL),
    ),
    Schema(RaftVoteResponse, (1, "term", _INT64), (2, "pre_vote", _BOOL), (3, "granted", _BOOL)),
    Schema(
        RaftAppendRequest,
        (1, "term", _INT64),
        (2, "prev_offset", _INT64),
        (3, "prev_term", _INT64),
        (4, "records", Kind.RECORDS),
        (5, "commit_offset", _INT64),
        (6, "round", _INT64),
    ),
    Schema(
        RaftAppendResponse,
        (1, "term", _INT64),
        (2, "accepted", _BOOL),
        (3, "match_offset", _INT64),
        (4, "rejected_offset", _INT64),
        (5, "round", _INT64),
    ),
    Schema(
        RaftSnapshotRequest,
        (1, "term", _INT64),
        (2, "last_offset", _INT64),
        (3, "last_term", _INT64),
        (4, "voters", _BYTES),
        (5, "position", _INT64),
        (6, "data", _BYTES),
        (7, "last", _BOOL),
        (8, "round", _INT64),
    ),
    Schema(
        RaftSnapshotResponse,
        (1, "term", _INT64),
        (2, "last_offset", _INT64),
        (3, "position", _INT64),
        (4, "round", _INT64),
    ),
    Schema(RaftTimeoutNow, (1, "term", _INT64)),
    Schema(RaftReadIndexRequest, (1, "request_id", Kind.UINT64)),
    Schema(RaftReadIndexResponse, (1, "request_id", Kind.UINT64), (2, "offset", _INT64)),
)
RAFT_FRAMES: FrameCodec[RaftBody] = FrameCodec(
    RaftFrame, _SCHEMAS, max_message_bytes=MAX_MESSAGE_BYTES, max_frames=MAX_FRAMES
)
