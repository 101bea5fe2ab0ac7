"""The quorum's messages on the wire: they come back as they were, equal the generated classes, and hostile bytes neither
pass as messages nor bring down the core that believes them."""

import contextlib
import random
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from kraftlog.kraft.raft import (
    NO_OFFSET,
    AppendRequest,
    AppendResponse,
    Entry,
    HardState,
    Message,
    RaftConfig,
    RaftCore,
    ReplicaKey,
    Snapshot,
    SnapshotRequest,
    SnapshotResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from kraftlog.kraft.records import ControlBatches, entry_of
from kraftlog.kraft.wire import MAX_OFFSET, MAX_SNAPSHOT_BYTES, MAX_TERM, from_wire, to_wire
from kraftlog.proto import raft_frames, raft_pb2
from kraftlog.proto.errors import IllegalStateError, InvalidRequestError
from kraftlog.proto.framing import Buffer
from kraftlog.proto.metadata_pb2 import MetadataRecord, ProducerIdsRecord
from kraftlog.proto.raft_frames import RAFT_FRAMES, RaftBody, RaftFrame
from tests.property.strategies import mutants
from tests.unit.kraft.batches import encode_records

A, B, C = ReplicaKey(1, bytes(15) + b"a"), ReplicaKey(2, bytes(15) + b"b"), ReplicaKey(3)
CONTROL = ControlBatches(lambda: 1_700_000_000_000)

offsets = st.one_of(st.integers(NO_OFFSET, 20), st.sampled_from([(1 << 31) - 1, MAX_OFFSET]))
small_offsets = st.integers(NO_OFFSET, 12)
terms = st.one_of(st.just(1), st.integers(0, 5), st.just(MAX_TERM))
voter_sets = st.sets(st.sampled_from([A, B, C]), min_size=1).map(frozenset)


@st.composite
def entry_runs(draw: st.DrawFn) -> tuple[int, int, tuple[Entry, ...], int]:
    """(offset and term of the predecessor, entries that follow each other, a term that none exceeds)."""
    prev = draw(small_offsets)
    term = prev_term = 0 if prev == NO_OFFSET else draw(st.integers(0, 3))
    offset, entries = prev, []
    for kind in draw(st.lists(st.sampled_from(["data", "leader", "voters"]), max_size=4)):
        term += draw(st.integers(0, 1))
        if kind == "data":
            records = [MetadataRecord(producer_ids=ProducerIdsRecord(next_producer_id=offset + 9))] * draw(
                st.integers(1, 3)
            )
            batch = encode_records(records, base_offset=offset + 1, leader_epoch=term, timestamp_ms=5)
        elif kind == "leader":
            batch = CONTROL.leader_change(offset + 1, term, B, frozenset({A, B}))
        else:
            batch = CONTROL.voters(offset + 1, term, draw(voter_sets))
        entries.append(entry_of(batch))
        offset = entries[-1].last_offset
    return prev, prev_term, tuple(entries), term + draw(st.integers(0, 1))


@st.composite
def append_requests(draw: st.DrawFn) -> AppendRequest:
    prev, prev_term, entries, term = draw(entry_runs())
    return AppendRequest(B, A, term, prev, prev_term, entries, draw(offsets), draw(offsets))


@st.composite
def snapshot_requests(draw: st.DrawFn) -> SnapshotRequest:
    term = draw(terms)
    return SnapshotRequest(
        B,
        A,
        term,
        draw(offsets),
        draw(st.integers(0, min(term, 3))),
        draw(voter_sets),
        draw(st.integers(0, 40)),
        draw(st.binary(max_size=40)),
        draw(st.booleans()),
        draw(offsets),
    )


@st.composite
def vote_requests(draw: st.DrawFn) -> VoteRequest:
    term = draw(terms)
    last_term = draw(st.integers(0, min(term, 3)))
    return VoteRequest(B, A, term, draw(offsets), last_term, draw(st.booleans()), draw(st.booleans()))


core_messages: SearchStrategy[Message] = st.one_of(
    append_requests(),
    snapshot_requests(),
    vote_requests(),
    st.builds(VoteResponse, st.just(B), st.just(A), terms, st.booleans(), st.booleans()),
    st.builds(AppendResponse, st.just(B), st.just(A), terms, st.booleans(), offsets, offsets, offsets),
    st.builds(SnapshotResponse, st.just(B), st.just(A), terms, offsets, offsets, offsets),
    st.builds(TimeoutNow, st.just(B), st.just(A), terms),
)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
other_bodies: SearchStrategy[RaftBody] = st.one_of(
    st.builds(
        raft_frames.RaftHello,
        st.text(max_size=5),
        int32,
        st.binary(max_size=16),
        int32,
        st.binary(max_size=16),
        st.text(max_size=5),
        st.integers(0, 65535),
        st.booleans(),
    ),
    st.builds(raft_frames.RaftHelloAnswer, int32, st.binary(max_size=16), st.text(max_size=5), st.integers(0, 65535)),
    st.builds(raft_frames.RaftLeaderHint, terms, int32, st.binary(max_size=16), st.text(max_size=5)),
    st.builds(raft_frames.RaftReadIndexRequest, st.integers(0, (1 << 64) - 1)),
    st.builds(raft_frames.RaftReadIndexResponse, st.integers(0, (1 << 64) - 1), offsets),
)
bodies = core_messages.map(to_wire) | other_bodies


def joined(body: RaftBody) -> bytes:
    return b"".join(RAFT_FRAMES.encode(body))


def to_generated(body: RaftBody) -> raft_pb2.RaftFrames:
    name = raft_frames.RAFT_FRAMES.field_of[type(body)]
    frames = raft_pb2.RaftFrames()
    inner = getattr(frames.frames.add(), name)
    inner.SetInParent()
    for field in fields(body):
        value: Any = getattr(body, field.name)
        setattr(inner, field.name, _plain(value))
    return frames


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return b"".join(value)
    return bytes(value) if isinstance(value, memoryview) else value


def test_fields_are_those_of_the_proto_file() -> None:
    """A field added to raft.proto must be added by hand."""
    frame = raft_pb2.RaftFrame.DESCRIPTOR
    assert [field.name for field in frame.fields] == [field.name for field in fields(RaftFrame)]
    for field in frame.fields:
        body_class = getattr(raft_frames, field.message_type.name)
        assert [inner.name for inner in field.message_type.fields] == [inner.name for inner in fields(body_class)]


@given(bodies)
def test_bytes_equal_the_generated_classes(body: RaftBody) -> None:
    """Both ways; frames one after the other are one message."""
    theirs = to_generated(body)
    assert joined(body) == theirs.SerializeToString(deterministic=True)
    twice = list(RAFT_FRAMES.decode(joined(body) * 2))
    assert [to_generated(frame) for frame in twice] == [theirs, theirs]


@given(core_messages)
def test_every_message_comes_back(message: Message) -> None:
    (body,) = RAFT_FRAMES.decode(joined(to_wire(message)))
    assert from_wire(body, message.src, message.dst) == message


def test_a_snapshot_that_would_fill_the_memory_is_refused() -> None:
    """At the bound a chunk is taken, beyond it not; no chunk before it was larger than the last."""
    voters = frozenset({A, B})
    last = SnapshotRequest(B, A, 1, 9, 1, voters, MAX_SNAPSHOT_BYTES - 3, b"xyz", True, 1)
    beyond = SnapshotRequest(B, A, 1, 9, 1, voters, MAX_SNAPSHOT_BYTES - 2, b"xyz", True, 1)
    assert from_wire(to_wire(last), B, A) == last
    with pytest.raises(InvalidRequestError, match="more than"):
        from_wire(to_wire(beyond), B, A)


def test_batches_leave_uncopied_and_arrive_in_bytes_of_their_own() -> None:
    """A megabyte of log is the very object in the sender's log; at the receiver it does not pin the message."""
    records = [MetadataRecord(producer_ids=ProducerIdsRecord(next_producer_id=n)) for n in range(30_000)]
    entry = entry_of(encode_records(records, base_offset=0, leader_epoch=1, timestamp_ms=0))
    pieces: list[Buffer] = RAFT_FRAMES.encode(to_wire(AppendRequest(B, A, 1, NO_OFFSET, 0, (entry,), 0, 0)))
    assert any(piece is entry.data for piece in pieces)
    (body,) = RAFT_FRAMES.decode(b"".join(pieces))
    message = from_wire(body, B, A)
    assert isinstance(message, AppendRequest)
    assert message.entries == (entry,)
    assert type(message.entries[0].data) is bytes


def core_in_use(*, leads: bool) -> RaftCore:
    """A voter of three with entries, some of them committed."""
    core = RaftCore(
        A,
        config=RaftConfig(),
        random=random.Random(1),
        control=CONTROL,
        hard_state=HardState(0, None),
        snapshot=Snapshot(NO_OFFSET, 0, frozenset({A, B, C}), b""),
    )
    if leads:
        core.campaign()
        core.step(VoteResponse(B, A, 1, is_pre_vote=True, is_granted=True))
        core.step(VoteResponse(B, A, 1, is_pre_vote=False, is_granted=True))
        core.propose(encode_records([PRODUCER], base_offset=1, leader_epoch=1, timestamp_ms=0))
        pump(core)
        core.step(AppendResponse(B, A, 1, is_accepted=True, match_offset=0))
    else:
        entries = (entry_of(CONTROL.leader_change(0, 1, B, frozenset({A, B, C}))),)
        core.step(AppendRequest(B, A, 1, NO_OFFSET, 0, entries, 0, 0))
    pump(core)
    return core


PRODUCER = MetadataRecord(producer_ids=ProducerIdsRecord(next_producer_id=1))


def pump(core: RaftCore) -> None:
    while core.has_ready():
        core.advance(core.ready())


@given(
    st.booleans(),
    st.lists(
        st.one_of(mutants(core_messages.map(to_wire).map(joined)), core_messages.map(to_wire).map(joined)), max_size=6
    ),
)
def test_hostile_bytes_are_refused_or_do_no_harm(leads: bool, messages: list[bytes]) -> None:
    """Whatever gets through the checks, the core can only find that its leader contradicts what is committed, or that
    it claims its own term: it never trips over a shape that it did not expect."""
    core = core_in_use(leads=leads)
    commit = core.commit_offset
    with contextlib.suppress(IllegalStateError):
        for data in messages:
            with contextlib.suppress(InvalidRequestError):
                for body in RAFT_FRAMES.decode(data):
                    message = from_wire(body, B, A)
                    if message is not None:
                        core.step(message)
                        pump(core)
                        assert core.commit_offset >= commit
                        commit = core.commit_offset
    core.tick()
