from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RaftFrames(_message.Message):
    __slots__ = ("frames",)
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    frames: _containers.RepeatedCompositeFieldContainer[RaftFrame]
    def __init__(self, frames: _Optional[_Iterable[_Union[RaftFrame, _Mapping]]] = ...) -> None: ...

class RaftFrame(_message.Message):
    __slots__ = ("hello", "hello_answer", "leader_hint", "vote_request", "vote_response", "append_request", "append_response", "snapshot_request", "snapshot_response", "timeout_now", "read_index_request", "read_index_response")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    HELLO_ANSWER_FIELD_NUMBER: _ClassVar[int]
    LEADER_HINT_FIELD_NUMBER: _ClassVar[int]
    VOTE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    VOTE_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    APPEND_REQUEST_FIELD_NUMBER: _ClassVar[int]
    APPEND_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_REQUEST_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_NOW_FIELD_NUMBER: _ClassVar[int]
    READ_INDEX_REQUEST_FIELD_NUMBER: _ClassVar[int]
    READ_INDEX_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    hello: RaftHello
    hello_answer: RaftHelloAnswer
    leader_hint: RaftLeaderHint
    vote_request: RaftVoteRequest
    vote_response: RaftVoteResponse
    append_request: RaftAppendRequest
    append_response: RaftAppendResponse
    snapshot_request: RaftSnapshotRequest
    snapshot_response: RaftSnapshotResponse
    timeout_now: RaftTimeoutNow
    read_index_request: RaftReadIndexRequest
    read_index_response: RaftReadIndexResponse
    def __init__(self, hello: _Optional[_Union[RaftHello, _Mapping]] = ..., hello_answer: _Optional[_Union[RaftHelloAnswer, _Mapping]] = ..., leader_hint: _Optional[_Union[RaftLeaderHint, _Mapping]] = ..., vote_request: _Optional[_Union[RaftVoteRequest, _Mapping]] = ..., vote_response: _Optional[_Union[RaftVoteResponse, _Mapping]] = ..., append_request: _Optional[_Union[RaftAppendRequest, _Mapping]] = ..., append_response: _Optional[_Union[RaftAppendResponse, _Mapping]] = ..., snapshot_request: _Optional[_Union[RaftSnapshotRequest, _Mapping]] = ..., snapshot_response: _Optional[_Union[RaftSnapshotResponse, _Mapping]] = ..., timeout_now: _Optional[_Union[RaftTimeoutNow, _Mapping]] = ..., read_index_request: _Optional[_Union[RaftReadIndexRequest, _Mapping]] = ..., read_index_response: _Optional[_Union[RaftReadIndexResponse, _Mapping]] = ...) -> None: ...

class RaftHello(_message.Message):
    __slots__ = ("cluster_id", "node_id", "directory_id", "to_node_id", "to_directory_id", "host", "port", "voter")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    TO_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    TO_DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    VOTER_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    node_id: int
    directory_id: bytes
    to_node_id: int
    to_directory_id: bytes
    host: str
    port: int
    voter: bool
    def __init__(self, cluster_id: _Optional[str] = ..., node_id: _Optional[int] = ..., directory_id: _Optional[bytes] = ..., to_node_id: _Optional[int] = ..., to_directory_id: _Optional[bytes] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., voter: bool = ...) -> None: ...

class RaftHelloAnswer(_message.Message):
    __slots__ = ("node_id", "directory_id", "host", "port")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    directory_id: bytes
    host: str
    port: int
    def __init__(self, node_id: _Optional[int] = ..., directory_id: _Optional[bytes] = ..., host: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class RaftLeaderHint(_message.Message):
    __slots__ = ("term", "node_id", "directory_id", "host", "port")
    TERM_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    term: int
    node_id: int
    directory_id: bytes
    host: str
    port: int
    def __init__(self, term: _Optional[int] = ..., node_id: _Optional[int] = ..., directory_id: _Optional[bytes] = ..., host: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class RaftVoteRequest(_message.Message):
    __slots__ = ("term", "last_offset", "last_term", "pre_vote", "forced")
    TERM_FIELD_NUMBER: _ClassVar[int]
    LAST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_TERM_FIELD_NUMBER: _ClassVar[int]
    PRE_VOTE_FIELD_NUMBER: _ClassVar[int]
    FORCED_FIELD_NUMBER: _ClassVar[int]
    term: int
    last_offset: int
    last_term: int
    pre_vote: bool
    forced: bool
    def __init__(self, term: _Optional[int] = ..., last_offset: _Optional[int] = ..., last_term: _Optional[int] = ..., pre_vote: bool = ..., forced: bool = ...) -> None: ...

class RaftVoteResponse(_message.Message):
    __slots__ = ("term", "pre_vote", "granted")
    TERM_FIELD_NUMBER: _ClassVar[int]
    PRE_VOTE_FIELD_NUMBER: _ClassVar[int]
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    term: int
    pre_vote: bool
    granted: bool
    def __init__(self, term: _Optional[int] = ..., pre_vote: bool = ..., granted: bool = ...) -> None: ...

class RaftAppendRequest(_message.Message):
    __slots__ = ("term", "prev_offset", "prev_term", "records", "commit_offset", "round")
    TERM_FIELD_NUMBER: _ClassVar[int]
    PREV_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PREV_TERM_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    COMMIT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    term: int
    prev_offset: int
    prev_term: int
    records: bytes
    commit_offset: int
    round: int
    def __init__(self, term: _Optional[int] = ..., prev_offset: _Optional[int] = ..., prev_term: _Optional[int] = ..., records: _Optional[bytes] = ..., commit_offset: _Optional[int] = ..., round: _Optional[int] = ...) -> None: ...

class RaftAppendResponse(_message.Message):
    __slots__ = ("term", "accepted", "match_offset", "rejected_offset", "round")
    TERM_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    MATCH_OFFSET_FIELD_NUMBER: _ClassVar[int]
    REJECTED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    term: int
    accepted: bool
    match_offset: int
    rejected_offset: int
    round: int
    def __init__(self, term: _Optional[int] = ..., accepted: bool = ..., match_offset: _Optional[int] = ..., rejected_offset: _Optional[int] = ..., round: _Optional[int] = ...) -> None: ...

class RaftSnapshotRequest(_message.Message):
    __slots__ = ("term", "last_offset", "last_term", "voters", "position", "data", "last", "round")
    TERM_FIELD_NUMBER: _ClassVar[int]
    LAST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_TERM_FIELD_NUMBER: _ClassVar[int]
    VOTERS_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    term: int
    last_offset: int
    last_term: int
    voters: bytes
    position: int
    data: bytes
    last: bool
    round: int
    def __init__(self, term: _Optional[int] = ..., last_offset: _Optional[int] = ..., last_term: _Optional[int] = ..., voters: _Optional[bytes] = ..., position: _Optional[int] = ..., data: _Optional[bytes] = ..., last: bool = ..., round: _Optional[int] = ...) -> None: ...

class RaftSnapshotResponse(_message.Message):
    __slots__ = ("term", "last_offset", "position", "round")
    TERM_FIELD_NUMBER: _ClassVar[int]
    LAST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    term: int
    last_offset: int
    position: int
    round: int
    def __init__(self, term: _Optional[int] = ..., last_offset: _Optional[int] = ..., position: _Optional[int] = ..., round: _Optional[int] = ...) -> None: ...

class RaftTimeoutNow(_message.Message):
    __slots__ = ("term",)
    TERM_FIELD_NUMBER: _ClassVar[int]
    term: int
    def __init__(self, term: _Optional[int] = ...) -> None: ...

class RaftReadIndexRequest(_message.Message):
    __slots__ = ("request_id",)
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    def __init__(self, request_id: _Optional[int] = ...) -> None: ...

class RaftReadIndexResponse(_message.Message):
    __slots__ = ("request_id", "offset")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    offset: int
    def __init__(self, request_id: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...
