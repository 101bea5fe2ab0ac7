"""Frames of the replica stream: the bytes are those of the generated classes, and hostile ones are refused."""

import contextlib
from dataclasses import fields
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from kraftlog.proto import replica_frames, replica_pb2
from kraftlog.proto.errors import InvalidRequestError
from kraftlog.proto.replica_frames import REPLICA_FRAMES, ReplicaBody, ReplicaFrame
from tests.property.strategies import mutants

VALUES: dict[str, SearchStrategy[Any]] = {
    "uint64": st.integers(0, (1 << 64) - 1),
    "uint32": st.integers(0, (1 << 32) - 1),
    "int64": st.integers(-(1 << 63), (1 << 63) - 1),
    "int32": st.integers(-(1 << 31), (1 << 31) - 1),
    "sint32": st.integers(-(1 << 31), (1 << 31) - 1),
    "string": st.text(max_size=5),
    "bytes": st.binary(max_size=30),
    "bool": st.booleans(),
}
TYPE_NAMES = {4: "uint64", 13: "uint32", 3: "int64", 5: "int32", 17: "sint32", 9: "string", 12: "bytes", 8: "bool"}


def bodies_of(message_type: Any) -> SearchStrategy[ReplicaBody]:
    body_class = getattr(replica_frames, message_type.name)
    return st.builds(body_class, **{field.name: VALUES[TYPE_NAMES[field.type]] for field in message_type.fields})


bodies: SearchStrategy[ReplicaBody] = st.one_of(
    *(bodies_of(field.message_type) for field in replica_pb2.ReplicaFrame.DESCRIPTOR.fields)
)


def joined(body: ReplicaBody) -> bytes:
    return b"".join(REPLICA_FRAMES.encode(body))


def to_generated(body: ReplicaBody) -> replica_pb2.ReplicaFrames:
    frames = replica_pb2.ReplicaFrames()
    inner = getattr(frames.frames.add(), REPLICA_FRAMES.field_of[type(body)])
    inner.SetInParent()
    for field in fields(body):
        value: Any = getattr(body, field.name)
        setattr(inner, field.name, bytes(value) if isinstance(value, memoryview) else value)
    return frames


def test_fields_are_those_of_the_proto_file() -> None:
    """A field added to replica.proto must be added by hand."""
    frame = replica_pb2.ReplicaFrame.DESCRIPTOR
    assert [field.name for field in frame.fields] == [field.name for field in fields(ReplicaFrame)]
    for field in frame.fields:
        body_class = getattr(replica_frames, field.message_type.name)
        assert [inner.name for inner in field.message_type.fields] == [inner.name for inner in fields(body_class)]


@given(bodies)
def test_bytes_equal_the_generated_classes(body: ReplicaBody) -> None:
    """Both ways; frames one after the other are one message."""
    theirs = to_generated(body)
    assert joined(body) == theirs.SerializeToString(deterministic=True)
    assert [to_generated(frame) for frame in REPLICA_FRAMES.decode(joined(body) * 2)] == [theirs, theirs]


@given(mutants(st.lists(bodies, min_size=1, max_size=4).map(lambda some: b"".join(map(joined, some)))))
def test_hostile_bytes_are_frames_or_refused(data: bytes) -> None:
    with contextlib.suppress(InvalidRequestError):
        for body in REPLICA_FRAMES.decode(data):
            assert type(body) in REPLICA_FRAMES.field_of
