"""The hand-framed messages equal the generated protobuf classes, on good and on hostile bytes."""

from dataclasses import fields, is_dataclass
from typing import Any

from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from kraftlog.proto import broker_pb2, hotpath
from kraftlog.proto.errors import InvalidRequestError
from tests.property import strategies

DECODERS: dict[type[Any], Any] = {
    hotpath.ProduceRequest: hotpath.decode_produce_request,
    hotpath.ProduceResponse: hotpath.decode_produce_response,
    hotpath.FetchRequest: hotpath.decode_fetch_request,
    hotpath.FetchControl: hotpath.decode_fetch_control,
    hotpath.FetchChunk: hotpath.decode_fetch_chunk,
}


def generated_class(message_class: type[Any]) -> Any:
    return getattr(broker_pb2, message_class.__name__)


def to_generated(message: Any) -> Any:
    """The same message as an object of the generated class."""
    out = generated_class(type(message))()
    for field in fields(message):
        value = getattr(message, field.name)
        if isinstance(value, list):
            getattr(out, field.name).extend(map(to_generated, value))
        elif is_dataclass(value):
            getattr(out, field.name).CopyFrom(to_generated(value))
        elif value is not None:
            setattr(out, field.name, value)
    return out


def from_generated(message: Any, message_class: type[Any]) -> Any:
    """A generated message as ours, field by field."""
    out = message_class()
    for field in fields(message_class):
        value = getattr(message, field.name)
        default = getattr(out, field.name)
        if isinstance(default, list):
            value = [from_generated(item, getattr(hotpath, type(item).__name__)) for item in value]
        elif default is None:
            value = from_generated(value, hotpath.FetchRequest) if message.HasField(field.name) else None
        setattr(out, field.name, value)
    return out


def test_fields_are_those_of_the_proto_file() -> None:
    """A field added to broker.proto must be added by hand."""
    for message_class in (*DECODERS, *(type(value) for value in _nested())):
        names = [field.name for field in generated_class(message_class).DESCRIPTOR.fields]
        assert [field.name for field in fields(message_class)] == names


def _nested() -> list[Any]:
    return [
        hotpath.PartitionRecords(),
        hotpath.ProduceResult(),
        hotpath.FetchPosition(),
        hotpath.TopicPartition(),
        hotpath.PartitionChunk(),
        hotpath.AbortedTransaction(),
    ]


@given(strategies.hotpath_messages)
def test_both_ways_equal_the_generated_classes(message: Any) -> None:
    """Our bytes are those that protobuf writes, and we read what it wrote."""
    theirs = to_generated(message)
    ours = b"".join(hotpath.encode(message))
    assert ours == theirs.SerializeToString(deterministic=True)
    assert generated_class(type(message)).FromString(ours) == theirs
    assert DECODERS[type(message)](theirs.SerializeToString()) == message


@given(strategies.hotpath_messages, st.data())
def test_records_in_pieces_are_the_records_joined(message: Any, data: st.DataObject) -> None:
    """How a caller cuts the records does not show in the bytes."""
    whole = b"".join(hotpath.encode(message))
    for partition in getattr(message, "partitions", []):
        if hasattr(partition, "records"):
            cut = data.draw(st.integers(0, len(partition.records)))
            partition.records = [partition.records[:cut], memoryview(partition.records)[cut:]]
    assert b"".join(hotpath.encode(message)) == whole


@given(st.sampled_from(list(DECODERS)), st.data())
def test_hostile_bytes_are_refused_or_read_as_protobuf_does(message_class: type[Any], data: st.DataObject) -> None:
    """Mutated messages, messages of another class, noise: `InvalidRequestError` or protobuf's own reading."""
    good = strategies.hotpath_messages.map(lambda message: b"".join(hotpath.encode(message)))
    hostile = data.draw(st.one_of(strategies.mutants(good), good, st.binary(max_size=40)))
    try:
        ours = DECODERS[message_class](hostile)
    except InvalidRequestError as error:
        ours = error
    try:
        theirs = from_generated(generated_class(message_class).FromString(hostile), message_class)
    except DecodeError:
        assert isinstance(ours, InvalidRequestError)
        return
    if isinstance(ours, InvalidRequestError):
        assert "wire type" in str(ours)  # groups, which protobuf skips and we refuse
    else:
        assert ours == theirs
